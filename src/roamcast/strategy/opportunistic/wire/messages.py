"""What goes over the air, in three layers.

Frames go one hop. `Rows`, `Flooded` and `Digest` are for all who hear them, `Numbers` and `WantEvents` for
one neighbour, `Datagram` and `Bundle` for the next hop. Datagrams go from node to node and carry a `Content`:
`Segment`s, numbered so that nothing is lost, and their `Acknowledgement`s. A segment carries a `Letter`: what
clients and brokers say to each other.
"""

from typing import Annotated, get_args

import msgspec
import msgspec.inspect

from roamcast.event import Count, Event, Name
from roamcast.filter.filter import FILTER_BYTES_MAX
from roamcast.modulator.base import STATE_BYTES_MAX, ModulatorSpec
from roamcast.strategy.opportunistic.adaptation.messages import AdaptationLetter
from roamcast.strategy.opportunistic.wire.reliable import StreamAcknowledgement, StreamSegment
from roamcast.wire import Codec

HOPS_MAX = 64
VIA_MAX = 64
BODY_MAX = 65_000
BUNDLE_MAX = 64  # datagrams in one frame
ROWS_MAX = 200  # in one frame
NUMBERS_MAX = 3_000  # rows named in one frame
RUNS_MAX = 1_000  # of events in one digest
WANTED_MAX = 1_000  # events in one request
SUBSCRIPTIONS_MAX = 256  # of one client at its home broker
INTERESTS_BYTES_MAX = 36_000  # of all of them together: one letter carries them, beside other things
CURSORS_MAX = 1_024  # producers of one client
STORED_MAX = 2_048  # memorized events remembered for one client
DIRECT_MAX = 1_024  # consumers named in one flooded event

FULL = 1_000_000  # the load of a broker that takes no clients

Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Wire(msgspec.Struct, frozen=True, array_like=True, tag_field="message", forbid_unknown_fields=True):
    """On the wire an array that begins with the class's number."""


# Frames.


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One versioned line of what all nodes know (`overlay/board.py`): `kind` says what `body` is."""

    kind: Count
    node: Count
    version: Count
    age: Count  # seconds since its owner said so
    body: Annotated[bytes, msgspec.Meta(max_length=BODY_MAX)]


class Rows(Wire, frozen=True, tag=1):
    """To all who hear it; who learns a row from it passes the row on."""

    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=ROWS_MAX)]


class Datagram(Wire, frozen=True, tag=2):
    """`via`: brokers still to be passed, in this order (source routing)."""

    origin: Count
    to: Count
    hops: Hops  # so far
    via: Annotated[tuple[Count, ...], msgspec.Meta(max_length=VIA_MAX)]
    body: Annotated[bytes, msgspec.Meta(max_length=BODY_MAX)]
    # For the queues and the trace of the nodes on the way, which do not look inside.
    label: Count  # in `NAMES`
    event: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2)] = ()  # publisher, sequence; a data frame

    def moved(self, hops: int, via: tuple[int, ...]) -> "Datagram":
        return Datagram(self.origin, self.to, hops, via, self.body, self.label, self.event)

    def with_body(self, body: bytes) -> "Datagram":
        return Datagram(self.origin, self.to, self.hops, self.via, body, self.label, self.event)


class Bundle(Wire, frozen=True, tag=8):
    """Datagrams in one frame. The body of each goes on with the octets of `shared` that `endings` has the
    place of, from 1 on; 0: it is whole."""

    datagrams: Annotated[tuple[Datagram, ...], msgspec.Meta(min_length=1, max_length=BUNDLE_MAX)]
    endings: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1, max_length=BUNDLE_MAX)]
    shared: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=BUNDLE_MAX)]
    # Of a frame to all who hear it: whose each of them is. Empty: all are for the one who gets the frame.
    next_hops: Annotated[tuple[Count, ...], msgspec.Meta(max_length=BUNDLE_MAX)] = ()


class Flooded(Wire, frozen=True, tag=3):
    """An event for all who hear it. `previous`: one more than the sequence of its producer's event before it,
    0 for the first of the producer's life; `gap`: the microseconds between the two. `base`: the same of the
    last one that was flooded. Between that and this, only the readers of `direct` (`events/readers.py: mark`)
    were sent anything."""

    event: Event
    previous: Count
    gap: Count
    base: Count
    hops: Hops
    age: Count
    direct: Annotated[tuple[Count, ...], msgspec.Meta(max_length=DIRECT_MAX)] = ()


class NodeDigest(Wire, frozen=True, tag=4):
    """What the sender knows: a sum of its rows, and of flooded events, for one producer after the other, the
    first and last sequence of each run (publisher, how many runs, first, last, …)."""

    rows: Count
    runs: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * RUNS_MAX)] = ()


class RowNumbers(Wire, frozen=True, tag=7):
    """To a neighbour whose sum is another: kind, node and version of each row that the sender has."""

    numbers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=3 * NUMBERS_MAX)]


class WantFlooded(Wire, frozen=True, tag=9):
    """To a neighbour: publisher and sequence of each event wanted."""

    events: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * WANTED_MAX)]


# Bodies of rows.


class BrokerRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One broker's neighbours and their distances in hops, one after the other (BTT), and its line of the
    Broker Information Table: `load` in hundredths of its capacity, how many `producers` are at home there.
    `ring` is how far it looked. `life` counts its boots; `is_over`: it is a broker no more."""

    links: Annotated[tuple[Count, ...], msgspec.Meta(max_length=510)]
    ring: Count = 0
    load: Count = 0
    producers: Count = 0
    life: Count = 0
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
    """Where a client is at home, in which of that broker's lives, and what it wants."""

    home: Count
    life: Count
    produces: bool
    interests: Interests


# Letters between a client and its home broker.

Cursors = Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * CURSORS_MAX)]
"""One after the other: a producer, and the sequence of its last event that was handled."""


class AttachLetter(Wire, frozen=True, tag=10):
    """A client chooses its home broker by itself, at first or when the one it had is gone; or, in the same
    `generation`, its subscriptions have changed.

    `generation` grows with each choice of the client's own; deliveries count from 0 in each. `ages`: for how
    many microseconds each subscription has stood. `got`: of each producer, the last event that a modulator's
    product came of: a home that begins anew begins there. `before`: the home that it gave up, which may still
    have its modulators."""

    generation: Count
    interests: Interests
    ages: Annotated[tuple[Count, ...], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)]
    produces: bool
    distance: Hops
    got: Cursors = ()
    before: Count | None = None


class PublishLetter(Wire, frozen=True, tag=12):
    """A client's event, for its home broker; `previous` and `gap` as in `Flooded`."""

    event: Event
    previous: Count
    gap: Count
    age: Count
    hops: Hops


class Here(Wire, frozen=True, tag=21):
    """Every discovery period: the client is there, so far from its home (CIT), and publishes or not.
    `nearer`: the broker that is nearest beside its home (2.4, step 1), how far, and its load."""

    generation: Count
    distance: Hops
    produces: bool
    nearer: Count | None = None
    nearer_distance: Hops = 0
    nearer_load: Count = 0


class Deliver(Wire, frozen=True, tag=14):
    """What a modulator made of an event; `number` counts them, across all homes of one generation."""

    generation: Count
    number: Count
    age: Count
    hops: Hops
    subscription: Count
    event: Event


class NotHome(Wire, frozen=True, tag=22):
    """The broker has no such client (any more): it shall choose again, and may choose it if `is_broker`."""

    generation: Count
    is_broker: bool = True


class Skip(Wire, frozen=True, tag=23):
    """Deliveries from `first` to `until - 1` that have not come will not come: their time was over."""

    generation: Count
    first: Count
    until: Count


class Returned(Wire, frozen=True, tag=27):
    """An event that was given to a node that is a broker no more: its client publishes it elsewhere."""

    publication: PublishLetter


class ModulatorFailed(Wire, frozen=True, tag=26):
    """To its owner: the modulator of this subscription was cut off, and why."""

    generation: Count
    subscription: Count
    problem: Annotated[str, msgspec.Meta(max_length=400)]


class NewHome(Wire, frozen=True, tag=37):
    """8: the destination tells the client where it is at home now."""

    generation: Count
    version: Count


# Letters about events.


class CarryLetter(Wire, frozen=True, tag=16):
    """An event for one consumer, to the node that reads for it: itself, or its home where modulators run.
    `base`: one more than the sequence of the event before which the consumer lacks nothing of this producer.
    `is_stored`: a memorized one from before the subscription, in no order with others."""

    consumer: Count
    is_modulated: bool
    base: Count
    is_stored: bool
    previous: Count
    gap: Count
    age: Count
    hops: Hops
    event: Event  # the last: copies for several consumers end alike


class Fetch(Wire, frozen=True, tag=17):
    """To a producer or its home: what a consumer lacks of its events after `after - 1`, to `until`."""

    consumer: Count
    is_modulated: bool
    producer: Count
    after: Count
    until: Count
    within: Count  # microseconds: nothing older
    filters: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)], ...],
        msgspec.Meta(max_length=SUBSCRIPTIONS_MAX),
    ]


class Head(Wire, frozen=True, tag=18):
    """Of a producer, the consumer's events until `until` have been sent. `is_all`: and those that have not
    come are not to be had any more."""

    consumer: Count
    is_modulated: bool
    producer: Count
    until: Count
    is_all: bool


class Keep(Wire, frozen=True, tag=44):
    """From a broker that ends: a memorized event, for consumers that will subscribe later."""

    event: Event
    age: Count
    hops: Hops


# The handoff, section 2.4, step 3.


class Handoff(Wire, frozen=True, tag=30):
    """1: the source broker asks the destination to take a client over."""

    consumer: Count
    version: Count  # of the row that will say so
    generation: Count
    interests: Interests
    work: Count = 0  # of the client's modulators: microseconds per second on a broker of capacity 1
    below: Count | None = None  # only if the destination's load would stay below, in hundredths


class Accepted(Wire, frozen=True, tag=31):
    """2: the destination has entered the client, or says why not."""

    consumer: Count
    version: Count
    problem: Name = ""
    load: Count = 0  # of the destination now, in hundredths


class Detour(Wire, frozen=True, tag=32):
    """3: to the home brokers of the client's producers: from now on to `home`. From a broker that the client
    chose by itself (`source` is `home`) to the home that it gave up: send its modulators."""

    consumer: Count
    version: Count
    home: Count
    source: Count


class Switched(Wire, frozen=True, tag=33):
    """4: a producer's home broker has switched."""

    consumer: Count
    version: Count


class Undelivered(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A delivery that the client has not confirmed to the source broker."""

    number: Count
    event: Event
    age: Count
    hops: Hops
    subscription: Count


class Moved(Wire, frozen=True, tag=34):
    """7: how far events have been handled and deliveries counted; the modulators' states have gone before."""

    consumer: Count
    version: Count
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


class MovedDelivery(Wire, frozen=True, tag=35):
    """Before 7: one delivery that the client has not confirmed."""

    consumer: Count
    version: Count
    delivery: Undelivered


class MovedState(Wire, frozen=True, tag=42):
    """Before 7: the state of one subscription's modulator, and which memorized events it has had."""

    consumer: Count
    version: Count
    subscription: Count
    state: Annotated[bytes, msgspec.Meta(max_length=STATE_BYTES_MAX)]
    stored: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * STORED_MAX)] = ()


class Taken(Wire, frozen=True, tag=38):
    """8: the destination serves the client; the source may forget it."""

    consumer: Count
    version: Count


class Cancelled(Wire, frozen=True, tag=36):
    """The source broker gave the handoff up."""

    consumer: Count
    version: Count


class Salvaged(Wire, frozen=True, tag=41):
    """A delivery that an earlier home broker could not make before the client chose another."""

    consumer: Count
    delivery: Undelivered


FrameMessage = Rows | Datagram | Bundle | Flooded | NodeDigest | RowNumbers | WantFlooded
FRAMES: Codec[FrameMessage] = Codec("opportunistic frame", 3, FrameMessage)

Content = StreamSegment | StreamAcknowledgement
CONTENTS: Codec[Content] = Codec("opportunistic content", 3, Content)

BROKER_ROWS: Codec[BrokerRow] = Codec("opportunistic broker row", 3, BrokerRow)
CLIENT_ROWS: Codec[ClientRow] = Codec("opportunistic client row", 3, ClientRow)

Letters = (
    AttachLetter
    | PublishLetter
    | Here
    | Deliver
    | NotHome
    | Skip
    | Returned
    | ModulatorFailed
    | NewHome
    | CarryLetter
    | Fetch
    | Head
    | Keep
    | Handoff
    | Accepted
    | Detour
    | Switched
    | Moved
    | MovedDelivery
    | MovedState
    | Taken
    | Cancelled
    | Salvaged
    | AdaptationLetter
)
LETTERS: Codec[Letters] = Codec("opportunistic letter", 3, Letters)


def name_of(kind: type) -> str:
    """A message's name in queues and traces."""
    return kind.__name__.lower().removeprefix("stream").removesuffix("letter")


def _number(kind: type) -> int:
    tag = msgspec.inspect.type_info(kind).tag  # type: ignore[attr-defined]
    assert isinstance(tag, int)
    return tag


# Of datagrams, in queues and traces: the tag of what they carry, which is the same in every node.
NUMBERS = {name_of(kind): _number(kind) for kind in (*get_args(Content), *get_args(Letters))}
HASTY = 2  # an acknowledgement that a repair waits for
NAMES = {HASTY: "acknowledgement"} | {number: name for name, number in NUMBERS.items()}
