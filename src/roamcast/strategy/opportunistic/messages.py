"""What goes over the air, in three layers.

Frames go one hop. `Rows`, `Flooded` and `NodeDigest` are for all who hear them, `RowNumbers` and
`WantFlooded` for one neighbour, `Envelope` and `Bundle` for the next hop. Envelopes go from node to node and
carry `StreamSegment`s, numbered so that nothing is lost, and their `StreamAcknowledgement`s. A segment has a
`StreamMessage`: what clients and brokers say to each other. One codec encodes all of it at once.

Three counts tell old news from new, and each survives a crash. The *boot* of a node counts its starts. The
*generation* of a client counts its own choices of a home broker. The *version* of a row counts its changes.
"""

from typing import Annotated, Any, Self, TypeAlias

import msgspec

from roamcast.event import Count, Event, EventId, Name
from roamcast.filter.filter import FILTER_BYTES_MAX
from roamcast.host import Kind
from roamcast.kit.protocol import WireMessage
from roamcast.kit.repair import PUBLISHERS_MAX, HeldRuns
from roamcast.modulator.base import STATE_BYTES_MAX, ModulatorSpec
from roamcast.wire import Codec

HOPS_MAX = 64
VIA_MAX = 64
MESSAGE_OCTETS_MAX = 63_000
ROW_OCTETS_MAX = 65_000
BUNDLE_MAX = 64  # envelopes in one frame
ROWS_MAX = 200  # in one frame
NUMBERS_MAX = 3_000  # rows named in one frame
WANTED_MAX = 1_000  # events in one request
SUBSCRIPTIONS_MAX = 256  # of one client at its home broker
INTERESTS_BYTES_MAX = 36_000  # of all of them together: one message carries them, beside other things
CURSORS_MAX = 1_024  # producers of one client
STORED_MAX = 2_048  # memorized events remembered for one client
DIRECT_MAX = 1_024  # consumers named in one flooded event
VALUES_MAX = 16  # of one reading
PEERS_MAX = 64  # nodes of one question about latencies
FARTHEST = 100_000_000  # metres from the origin of the plane in which nodes know their places

FULL = 1_000_000  # the load of a broker that takes no clients

Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]
RingHops = Annotated[int, msgspec.Meta(ge=1, le=HOPS_MAX)]
Load = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # hundredths of a capacity
Metres = Annotated[int, msgspec.Meta(ge=-FARTHEST, le=FARTHEST)]
Location = tuple[Metres, Metres]  # as `Host.position` has it


# Frames.


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One versioned line of what all nodes know (`board.py`): `kind` says what `body` is."""

    kind: Count
    node: Count
    version: Count
    age: Count  # milliseconds since its owner said so
    body: Annotated[bytes, msgspec.Meta(max_length=ROW_OCTETS_MAX)]


class Rows(WireMessage, frozen=True, tag=1):
    """To all who hear it; who learns a row from it passes the row on."""

    name = "rows"
    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=ROWS_MAX)]


class Flooded(WireMessage, frozen=True, tag=3):
    """An event for all who hear it. `previous`: one more than the sequence number of its producer's event
    before it, 0 for the first since the producer's boot; `gap`: the microseconds between the two. `base`: one
    more than the sequence number of the producer's event that was flooded before it. Events between that one
    and this were sent to the readers in `direct` alone (`readers.py: mark`)."""

    name = "flooded"
    kind = Kind.DATA
    event: Event
    previous: Count
    gap: Count
    base: Count
    hops: Hops
    age: Count
    direct: Annotated[tuple[Count, ...], msgspec.Meta(max_length=DIRECT_MAX)] = ()

    @property
    def event_id(self) -> EventId:
        return self.event.id


class NodeDigest(WireMessage, frozen=True, tag=4):
    """What the sender knows: the fingerprint of its rows, and which flooded events it has; None: the same as
    in its last digests."""

    name = "digest"
    rows: Count
    held: Annotated[tuple[HeldRuns, ...], msgspec.Meta(max_length=PUBLISHERS_MAX)] | None = None


class RowNumbers(WireMessage, frozen=True, tag=7):
    """To a neighbour whose fingerprint is another: kind, node and version (in two parts, which are small) of
    each row that the sender has; or, in answer (`is_all` is false), of those that the neighbour has newer."""

    name = "numbers"
    numbers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=4 * NUMBERS_MAX)]
    is_all: bool = True


class WantFlooded(WireMessage, frozen=True, tag=9):
    """To a neighbour: publisher and sequence of each event wanted."""

    name = "want"
    events: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * WANTED_MAX)]


class RingSearch(WireMessage, frozen=True, tag=50):
    """Who is a broker, so many hops around `origin`? (`search.py`). `hops`: of this copy so far; `ring`: how
    far it goes."""

    name = "search"
    origin: Count
    number: Count
    hops: RingHops
    ring: RingHops


class RingAnswer(WireMessage, frozen=True, tag=51):
    """Back the way that the search came: `broker` is one, so many hops from `origin`."""

    name = "found"
    origin: Count
    number: Count
    broker: Count
    hops: RingHops


# Bodies of rows.


class BrokerRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One broker's neighbours and their distances in hops, one after the other (BTT), and its line of the
    Broker Information Table: `load` in hundredths of its capacity, how many `producers` are at home there.
    `ring` is how far it looked. `boot` counts its starts; `is_over`: it is no broker any more."""

    links: Annotated[tuple[Count, ...], msgspec.Meta(max_length=510)]
    ring: Count = 0
    load: Count = 0
    producers: Count = 0
    boot: Count = 0
    is_over: bool = False

    def neighbours(self) -> dict[int, int]:
        """A distance of 0 is none: only the row's own broker is so near."""
        pairs = zip(self.links[::2], self.links[1::2], strict=False)
        return {node: distance for node, distance in pairs if distance > 0}


class Interest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One subscription of a client; with a modulator the client gets what that makes of its events."""

    number: Count
    filter: Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]
    modulator: ModulatorSpec | None = None

    @property
    def octets(self) -> int:
        """On the wire, at most."""
        spec = self.modulator
        return 20 + len(self.filter) + (0 if spec is None else 10 + 4 * len(spec.name) + len(spec.parameters))


Interests = Annotated[tuple[Interest, ...], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)]


class ClientRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a client is at home, in which boot of that broker, and what it wants."""

    home: Count
    boot: Count
    produces: bool
    interests: Interests


# StreamMessage.


class StreamMessage(WireMessage, frozen=True):
    """What clients and brokers say to each other. A message is named after its class."""

    def __init_subclass__(cls, **_: Any) -> None:
        cls.name = cls.__name__.lower().removesuffix("message")


class EventMessage(StreamMessage, frozen=True):
    """`age`: of the event in microseconds when the message was written; `hops`: before it was written."""

    kind = Kind.DATA
    event: Event
    age: Count
    hops: Hops

    @property
    def event_id(self) -> EventId:
        return self.event.id

    def aged(self, waited: int) -> Self:
        """After it has waited for so many microseconds more."""
        return msgspec.structs.replace(self, age=self.age + waited)

    def travelled(self, hops: int, held: int) -> Self:
        """After so many hops, and after it was held back for so long on its way."""
        return msgspec.structs.replace(self, age=self.age + held, hops=min(self.hops + hops, 255))


# Between a client and its home broker.


Cursors = Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * CURSORS_MAX)]
"""One after the other: a producer, and the sequence of its last event that was handled."""


class GenerationMessage(StreamMessage, frozen=True):
    """It counts in this generation of the client; of another one it is outdated."""

    generation: Count


class AttachMessage(GenerationMessage, frozen=True, tag=10):
    """A client chooses its home broker by itself, at first or when the one it had is gone; or, in the same
    `generation`, its subscriptions have changed.

    `generation` grows with each choice of the client's own; deliveries count from 0 in each. `ages`: for how
    many microseconds each subscription has stood. `got`: of each producer, the last event that a modulator's
    product came of: a home that begins anew begins there. `before`: the home that it gave up, which may still
    have its modulators."""

    interests: Interests
    ages: Annotated[tuple[Count, ...], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)]
    produces: bool
    distance: Hops
    got: Cursors = ()
    before: Count | None = None


class PublishMessage(EventMessage, frozen=True, tag=12):
    """A client's event, for its home broker; `previous` and `gap` as in `Flooded`."""

    previous: Count
    gap: Count


class Here(GenerationMessage, frozen=True, tag=21):
    """Every discovery period: the client is there, so far from its home (CIT), and publishes or not.
    `nearer`: the broker that is nearest beside its home (2.4, step 1), how far, and its load."""

    distance: Hops
    produces: bool
    nearer: Count | None = None
    nearer_distance: Hops = 0
    nearer_load: Count = 0


class Deliver(EventMessage, frozen=True, tag=14):
    """What a modulator made of an event; `number` counts them, across all homes of one generation."""

    generation: Count
    number: Count
    subscription: Count


class NotHome(GenerationMessage, frozen=True, tag=22):
    """The broker has no such client (any more): it shall choose again, and may choose it if `is_broker`."""

    is_broker: bool = True


class Skip(GenerationMessage, frozen=True, tag=23):
    """Deliveries from `first` to `until - 1` that have not come will not come: their time was over."""

    first: Count
    until: Count


class Returned(StreamMessage, frozen=True, tag=27):
    """An event that was given to a node that is no broker any more: its client publishes it elsewhere."""

    publication: PublishMessage


class ModulatorFailed(GenerationMessage, frozen=True, tag=26):
    """To its owner: the modulator of this subscription was cut off, and why."""

    subscription: Count
    problem: Annotated[str, msgspec.Meta(max_length=400)]


class NewHome(GenerationMessage, frozen=True, tag=37):
    """8: the destination tells the client where it is at home now."""

    version: Count


# About events.


class CarryMessage(EventMessage, frozen=True, tag=16):
    """An event for one consumer, to the node that reads for it: itself, or its home where modulators run.
    `base`: one more than the sequence of the event before which the consumer lacks nothing of this producer.
    `is_stored`: a memorized one from before the subscription, in no order with others."""

    consumer: Count
    is_modulated: bool
    base: Count
    is_stored: bool
    previous: Count
    gap: Count


class BundledCarry(StreamMessage, frozen=True, tag=19):
    """A `CarryMessage` in a bundle, without its event: several messages carry the same one, which the bundle
    holds once, at this place."""

    place: Count
    age: Count
    hops: Hops
    consumer: Count
    is_modulated: bool
    base: Count
    is_stored: bool
    previous: Count
    gap: Count


class ReaderMessage(StreamMessage, frozen=True):
    """About what the reader of a consumer lacks of a producer's events."""

    consumer: Count
    is_modulated: bool
    producer: Count


class Fetch(ReaderMessage, frozen=True, tag=17):
    """To a producer or its home: what a consumer lacks of its events after `after - 1`, to `until`."""

    after: Count
    until: Count
    within: Count  # microseconds: nothing older
    filters: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)], ...],
        msgspec.Meta(max_length=SUBSCRIPTIONS_MAX),
    ]


class Head(ReaderMessage, frozen=True, tag=18):
    """Of a producer, the consumer's events until `until` have been sent. `is_all`: and those that have not
    come will not come any more."""

    until: Count
    is_all: bool


class Keep(EventMessage, frozen=True, tag=44):
    """From a broker that ends: a memorized event, for consumers that will subscribe later."""


class TopologyMessage(StreamMessage, frozen=True, tag=45):
    """2.3, step 2: what has changed in a broker's topology table, to a neighbour in the overlay. Rows of
    brokers with their links, each with the version that its broker gave it."""

    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=ROWS_MAX)]


# The handoff, section 2.4, step 3.


class HandoffMessage(StreamMessage, frozen=True):
    """`version`: of the client's row that will say where it is at home then."""

    consumer: Count
    version: Count


class Handoff(HandoffMessage, frozen=True, tag=30):
    """1: the source broker asks the destination to take a client over."""

    generation: Count
    interests: Interests
    work: Count = 0  # of the client's modulators: microseconds per second on a broker of capacity 1
    below: Count | None = None  # only if the destination's load would stay below, in hundredths


class Accepted(HandoffMessage, frozen=True, tag=31):
    """2: the destination has entered the client, or says why not."""

    problem: Name = ""
    load: Count = 0  # of the destination now, in hundredths


class Detour(HandoffMessage, frozen=True, tag=32):
    """3: to the home brokers of all producers: from now on to `home`. From a broker that the client
    chose by itself (`source` is `home`) to the home that it gave up: send its modulators."""

    home: Count
    source: Count


class Switched(HandoffMessage, frozen=True, tag=33):
    """4: a producer's home broker has switched; to the source and to the destination."""


class MovedMessage(HandoffMessage, frozen=True, tag=34):
    """7: how far events have been handled and deliveries counted; the modulators' states have gone before."""

    generation: Count
    interests: Interests  # they may have changed since the request
    ages: Annotated[tuple[Count, ...], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)]
    next_number: Count
    cursors: Cursors
    produces: bool
    distance: Hops
    work: Count = 0  # as in `Handoff`
    access: Count | None = None  # the broker nearest to the client, where its modulators run elsewhere
    has_states: bool = True  # False: modulators begin anew


class MovedDelivery(HandoffMessage, frozen=True, tag=35):
    """Before 7: one delivery that the client has not confirmed."""

    delivery: Deliver


class MovedState(HandoffMessage, frozen=True, tag=42):
    """Before 7: the state of one subscription's modulator, and which memorized events it has had."""

    subscription: Count
    state: Annotated[bytes, msgspec.Meta(max_length=STATE_BYTES_MAX)]
    stored: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * STORED_MAX)] = ()


class Taken(HandoffMessage, frozen=True, tag=38):
    """8: the destination serves the client; the source may forget it."""


class Cancelled(HandoffMessage, frozen=True, tag=36):
    """The source broker gave the handoff up."""


class Salvaged(StreamMessage, frozen=True, tag=41):
    """A delivery that an earlier home broker could not make before the client chose another."""

    consumer: Count
    delivery: Deliver


# Between monitors and directories of different nodes.


class NumberedMessage(StreamMessage, frozen=True):
    """`number`: of the question that it asks or answers."""

    number: Count


class Watch(NumberedMessage, frozen=True, tag=60):
    """Tell me of readings of this kind that pass the filter. Must be said again within its lifetime."""

    reading: Name
    filter: Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]


class Unwatch(NumberedMessage, frozen=True, tag=61):
    """No more readings of this number."""


class Reading(NumberedMessage, frozen=True, tag=62):
    """One reading for the watch of this number; names and values in pairs."""

    reading: Name
    names: Annotated[tuple[Name, ...], msgspec.Meta(max_length=VALUES_MAX)]
    values: Annotated[tuple[float, ...], msgspec.Meta(max_length=VALUES_MAX)]


class Report(StreamMessage, frozen=True, tag=63):
    """For a central directory: this broker's load, how far it is to others (broker, hops, …), how many octets
    it has left for messages that wait, and where it is, if it knows."""

    load: Load
    accepts: bool
    distances: Annotated[tuple[Count, ...], msgspec.Meta(max_length=510)] = ()
    memory: Count = 0
    location: Location | None = None


class Volunteer(StreamMessage, frozen=True, tag=64):
    """A node that is no broker and would be one."""


class Ask(NumberedMessage, frozen=True, tag=65):
    """The nearest broker below this load; without a load, the nearest volunteer; with `near`, the broker
    nearest to that one, itself first; with `about`, what that broker has reported."""

    below: Load | None = None
    near: Count | None = None
    about: Count | None = None


class ServerAnswer(NumberedMessage, frozen=True, tag=66):
    """`load` and `hops` (from `near`) where a broker near another was asked for; `load`, `memory` and
    `location` where one broker was asked about."""

    node: Count | None = None
    load: Load = 0
    hops: Count = 0
    memory: Count = 0
    location: Location | None = None


class BecomeBroker(StreamMessage, frozen=True, tag=67):
    """To a volunteer: be a broker from now on."""


class Ping(NumberedMessage, frozen=True, tag=68):
    """Answer at once."""


class Pong(NumberedMessage, frozen=True, tag=69):
    """The answer to a ping."""


class Measure(NumberedMessage, frozen=True, tag=70):
    """Ping these nodes, and tell how far they are in time."""

    peers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=PEERS_MAX)]


class Latencies(NumberedMessage, frozen=True, tag=71):
    """Node and microseconds of one way, in pairs; who did not answer is not there."""

    pairs: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * PEERS_MAX)] = ()


# Streams and envelopes.

AnyStreamMessage: TypeAlias = (
    AttachMessage
    | PublishMessage
    | Here
    | Deliver
    | NotHome
    | Skip
    | Returned
    | ModulatorFailed
    | NewHome
    | CarryMessage
    | BundledCarry
    | Fetch
    | Head
    | Keep
    | TopologyMessage
    | Handoff
    | Accepted
    | Detour
    | Switched
    | MovedMessage
    | MovedDelivery
    | MovedState
    | Taken
    | Cancelled
    | Salvaged
    | Watch
    | Unwatch
    | Reading
    | Report
    | Volunteer
    | Ask
    | ServerAnswer
    | BecomeBroker
    | Ping
    | Pong
    | Measure
    | Latencies
)


ADAPTATION_MESSAGES = (
    *(Watch, Unwatch, Reading, Report, Volunteer, Ask, ServerAnswer, BecomeBroker),
    *(Ping, Pong, Measure, Latencies),
)


class StreamSegment(WireMessage, frozen=True, tag=5):
    """Message `number` of `stream`; all before `confirmed` are known to have arrived. It was `held` back for
    so long (microseconds) before this copy was sent: ages of events count that."""

    stream: Count
    number: Count
    confirmed: Count
    held: Count
    message: AnyStreamMessage


class StreamAcknowledgement(WireMessage, frozen=True, tag=6):
    """All before `expected` has arrived at this `boot` of the receiver. It answers the copy of `number` that
    had been `held` back for so long. `unknown`: the receiver has no such stream. `early`: which later
    ones have arrived, bit 0 for the one after `expected`. `is_prompt`: somebody waits for it."""

    name = "acknowledgement"
    stream: Count
    expected: Count
    boot: Count
    number: Count
    held: Count
    unknown: bool = False
    early: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    is_prompt: bool = False


class Envelope(WireMessage, frozen=True, tag=2):
    """`via`: brokers still to be passed, in this order (source routing)."""

    origin: Count
    to: Count
    hops: Hops  # so far
    via: Annotated[tuple[Count, ...], msgspec.Meta(max_length=VIA_MAX)]
    content: StreamSegment | StreamAcknowledgement

    @property
    def label(self) -> WireMessage:
        """What names it in queues and traces: the message, or the acknowledgement."""
        content = self.content
        return content.message if isinstance(content, StreamSegment) else content


class Bundle(WireMessage, frozen=True, tag=8):
    """Envelopes in one frame. An event that several of them carry is among `events` instead."""

    envelopes: Annotated[tuple[Envelope, ...], msgspec.Meta(min_length=1, max_length=BUNDLE_MAX)]
    events: Annotated[tuple[Event, ...], msgspec.Meta(max_length=BUNDLE_MAX)] = ()
    # Of a frame to all who hear it: whose each of them is. Empty: all are for the one who gets the frame.
    next_hops: Annotated[tuple[Count, ...], msgspec.Meta(max_length=BUNDLE_MAX)] = ()


FrameMessage = (
    Rows | Envelope | Bundle | Flooded | NodeDigest | RowNumbers | WantFlooded | RingSearch | RingAnswer
)
FRAMES: Codec[FrameMessage] = Codec("opportunistic frame", 8, FrameMessage)
BROKER_ROWS: Codec[BrokerRow] = Codec("opportunistic broker row", 3, BrokerRow)
CLIENT_ROWS: Codec[ClientRow] = Codec("opportunistic client row", 3, ClientRow)


def octets(value: msgspec.Struct) -> int:
    """The octets that it takes in a frame."""
    return len(_ENCODER.encode(value))


_ENCODER = msgspec.msgpack.Encoder()
