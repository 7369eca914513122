"""What goes over the air, in three layers.

Frames go one hop: `Search` to all who hear it, `Datagram` to the next hop. Datagrams go from node to node,
and carry a `Content`. `Segment`s are numbered so that nothing is lost, and carry a `Letter`: what clients and
brokers say to each other.
"""

from typing import Annotated, get_args

import msgspec
import msgspec.inspect

from roamcast.event import Count, Event, Name
from roamcast.filter.filter import FILTER_BYTES_MAX
from roamcast.modulator.base import STATE_BYTES_MAX, ModulatorSpec
from roamcast.strategy.opportunistic.adaptation.messages import AdaptationLetter
from roamcast.strategy.opportunistic.reliable import BODY_BYTES_MAX, Acknowledgement, Segment
from roamcast.strategy.opportunistic.rows import Row, RowChange
from roamcast.strategy.opportunistic.windows import WINDOWS_MAX, Window
from roamcast.wire import Codec

HOPS_MAX = 64
VIA_MAX = 64
BODY_MAX = 65_000
BUNDLE_MAX = 64  # datagrams in one frame
FLOODED_MAX = 128  # addressees of one flood
TAKEN_MAX = 64  # confirmations in one announcement
ROWS_MAX = 200  # in one update
SUBSCRIPTIONS_MAX = 256  # of one client at its home broker
INTERESTS_BYTES_MAX = 36_000  # of all of them together: one letter carries them, beside other things
BROKERS_MAX = 2_000  # named in one letter
CONSUMERS_MAX = 1_024  # of one event at one home broker

FULL = 1_000_000  # the load of a broker that takes no clients

Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Wire(msgspec.Struct, frozen=True, array_like=True, tag_field="message", forbid_unknown_fields=True):
    """On the wire an array that begins with the class's number."""


# Frames.


class Search(Wire, frozen=True, tag=1):
    """Expanding ring search: who is a broker within `reach` hops of `origin`?"""

    origin: Count
    number: Count
    reach: Hops
    hops: Hops


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


class Flood(Wire, frozen=True, tag=10):
    """A segment for each of many nodes, with the same letter in it; every node passes it on once. `parts`:
    one after the other, an addressee, the number of the stream among those of `boot`, that of the segment,
    and how many before it are not known to have arrived."""

    origin: Count
    number: Count
    hops: Hops
    boot: Count
    held: Count
    parts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=4 * FLOODED_MAX)]
    label: Count
    event: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2)]
    letter: Annotated[bytes, msgspec.Meta(max_length=BODY_BYTES_MAX)]

    def moved(self) -> "Flood":
        """One hop on."""
        return msgspec.structs.replace(self, hops=self.hops + 1)


# Contents of datagrams, beside `Segment` and `Acknowledgement`.


class Found(Wire, frozen=True, tag=3):
    """A broker's answer to a search. `load` in hundredths of its capacity."""

    number: Count
    hops: Hops
    load: Count


RowNumbers = Annotated[tuple[Count, ...], msgspec.Meta(max_length=3 * ROWS_MAX)]
"""One after the other: a broker, and the sequence number of its row in two parts (`propagation.py`)."""


class Update(Wire, frozen=True, tag=4):
    """Rows of the sender's topology table that the receiver is not known to have."""

    number: Count
    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=ROWS_MAX)]
    changes: Annotated[tuple[RowChange, ...], msgspec.Meta(max_length=ROWS_MAX)] = ()
    offered: RowNumbers = ()  # to be asked for


class UpdateTaken(Wire, frozen=True, tag=7):
    """That update has arrived: what was in it need not be told again, but for the rows wanted, by the numbers
    of those that the sender has."""

    number: Count
    life: Count  # the sender's: what an earlier one was told is forgotten
    wanted: RowNumbers = ()


class Announcement(Wire, frozen=True, tag=9):
    """A frame: an update for all neighbours who hear it. `taken`: one after the other, a neighbour and the
    number of its announcement that has arrived here."""

    update: Update
    life: Count
    taken: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * TAKEN_MAX)] = ()


# Letters.


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


class Attach(Wire, frozen=True, tag=10):
    """A client chooses its home broker by itself: at first, or when the one it had is gone.

    `generation` grows with each choice of the client's own; deliveries count from 0 in each.
    """

    generation: Count
    interests: Interests
    produces: bool
    distance: Hops


class Want(Wire, frozen=True, tag=11):
    """A client's subscriptions have changed."""

    generation: Count
    interests: Interests


class Publish(Wire, frozen=True, tag=12):
    """A client's event, for its home broker."""

    event: Event
    age: Count
    hops: Hops


class Nearer(Wire, frozen=True, tag=13):
    """A client found a broker nearer than its home (2.4, step 1): distances in hops, load in hundredths."""

    generation: Count
    broker: Count
    distance: Hops
    load: Count
    home_distance: Hops


NO_GENERATION = 0  # of a delivery to a node that is at home nowhere, by its name


class Deliver(Wire, frozen=True, tag=14):
    """An event for a client; `number` counts them, across all its home brokers of one generation."""

    generation: Count
    number: Count
    age: Count
    hops: Hops
    subscription: Count | None  # which one's modulator made it; None: the event as it was published
    event: Event  # the last: copies for several clients end alike


class Here(Wire, frozen=True, tag=21):
    """Every discovery period: the client is there, so far from its home (CIT), and publishes or not."""

    generation: Count
    distance: Hops
    produces: bool


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

    event: Event
    age: Count


class ModulatorFailed(Wire, frozen=True, tag=26):
    """To its owner: the modulator of this subscription was cut off, and why."""

    generation: Count
    subscription: Count
    problem: Annotated[str, msgspec.Meta(max_length=400)]


class Register(Wire, frozen=True, tag=15):
    """Where a consumer is at home and what it wants: told to every broker. Higher `version` wins."""

    consumer: Count
    version: Count
    home: Count
    interests: Interests


Nodes = Annotated[tuple[Count, ...], msgspec.Meta(max_length=4_096)]


class Renew(Wire, frozen=True, tag=24):
    """The sender is still the home of these consumers, by these versions of their registrations."""

    consumers: Nodes
    versions: Nodes


class Missing(Wire, frozen=True, tag=25):
    """Of those renewed, the ones that the receiver does not know so."""

    consumers: Nodes


class Introduce(Wire, frozen=True, tag=28):
    """From a node that is about to be a broker: tell me of your clients, now and from now on."""


class Introduced(Wire, frozen=True, tag=29):
    """That was done. All consumers and brokers that the sender knows, with the registrations' versions."""

    consumers: Nodes
    versions: Nodes
    brokers: Nodes


class Keep(Wire, frozen=True, tag=44):
    """From a broker that ends: a memorized event, for consumers that will subscribe later."""

    event: Event
    age: Count
    hops: Hops


class Forward(Wire, frozen=True, tag=16):
    """An event from a producer's home broker to the home broker of consumers; of none: that broker's own
    node. So it reads the same for all who are at home in themselves."""

    consumers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=CONSUMERS_MAX)]
    age: Count
    hops: Hops
    event: Event  # the last: copies for several homes end alike

    def consumers_at(self, home: int) -> tuple[int, ...]:
        return self.consumers or (home,)


class Leave(Wire, frozen=True, tag=17):
    """A producer is about to publish through another broker: is all that it gave you delivered?"""

    number: Count


class Left(Wire, frozen=True, tag=18):
    number: Count


class Barrier(Wire, frozen=True, tag=19):
    """Answered at once; what the sender sent before has then been handled."""

    producer: Count
    number: Count


class Passed(Wire, frozen=True, tag=20):
    producer: Count
    number: Count


# The handoff, section 2.4, step 3.


class Handoff(Wire, frozen=True, tag=30):
    """1: the source broker asks the destination to take a client over."""

    consumer: Count
    version: Count  # of the registration that will say so
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
    """3: to every producer's home broker: from now on to `home`. It is a registration, too."""

    consumer: Count
    version: Count
    home: Count
    source: Count
    interests: Interests
    is_back: bool = False  # a roll back: `home` waits for the answer, too


class Switched(Wire, frozen=True, tag=33):
    """4: a producer's home broker has switched; to source and destination, behind its last event."""

    consumer: Count
    version: Count


class Undelivered(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A delivery that the client has not confirmed to the source broker."""

    number: Count
    event: Event
    age: Count
    hops: Hops
    subscription: Count | None = None


class Moved(Wire, frozen=True, tag=34):
    """7: how far deliveries have been counted; the modulators' states have gone before."""

    consumer: Count
    version: Count
    generation: Count
    interests: Interests  # they may have changed since the request
    next_number: Count
    told: Nodes  # brokers that know the registration
    open: Nodes  # of those, the ones that may still send to the source: `Closed` will say
    produces: bool
    distance: Hops
    work: Count = 0  # as in `Handoff`
    access: Count | None = None  # the broker nearest to the client, where its modulators run elsewhere


class MovedDelivery(Wire, frozen=True, tag=35):
    """Before 7: one delivery that the client has not confirmed."""

    consumer: Count
    version: Count
    delivery: Undelivered


class MovedState(Wire, frozen=True, tag=42):
    """Before 7: the state of one subscription's modulator."""

    consumer: Count
    version: Count
    subscription: Count
    state: Annotated[bytes, msgspec.Meta(max_length=STATE_BYTES_MAX)]


class MovedWindows(Wire, frozen=True, tag=43):
    """Before 7: which events have been handled already."""

    consumer: Count
    version: Count
    windows: Annotated[tuple[Window, ...], msgspec.Meta(max_length=WINDOWS_MAX)]
    subscription: Count | None = None  # one that came later than others; None: the client's


class Salvaged(Wire, frozen=True, tag=41):
    """A delivery that an earlier home broker could not make before the client chose another."""

    consumer: Count
    delivery: Undelivered


class Taken(Wire, frozen=True, tag=38):
    """8: the destination serves the client; the source may forget it."""

    consumer: Count
    version: Count


class Cancelled(Wire, frozen=True, tag=36):
    """The source broker gave the handoff up before anything was switched."""

    consumer: Count
    version: Count


class Relay(Wire, frozen=True, tag=39):
    """An event of producers' broker `sender` that reached a broker where the consumer is not at home: on its
    way to the home, in `sender`'s order."""

    consumer: Count
    version: Count
    sender: Count
    event: Event
    age: Count
    hops: Hops


class Closed(Wire, frozen=True, tag=40):
    """That was all that `sender` had sent here."""

    consumer: Count
    version: Count
    sender: Count


class NewHome(Wire, frozen=True, tag=37):
    """8: the destination tells the client where it is at home now."""

    generation: Count
    version: Count


FrameMessage = Search | Datagram | Bundle | Flood | Announcement
FRAMES: Codec[FrameMessage] = Codec("opportunistic frame", 2, FrameMessage)

Content = Found | Update | UpdateTaken | Segment | Acknowledgement
CONTENTS: Codec[Content] = Codec("opportunistic content", 2, Content)

Letters = (
    Attach
    | Want
    | Publish
    | Nearer
    | Deliver
    | Here
    | NotHome
    | Skip
    | Returned
    | ModulatorFailed
    | Register
    | Renew
    | Missing
    | Introduce
    | Introduced
    | Keep
    | Forward
    | Leave
    | Left
    | Barrier
    | Passed
    | Handoff
    | Accepted
    | Detour
    | Switched
    | Moved
    | MovedDelivery
    | MovedState
    | MovedWindows
    | Salvaged
    | Taken
    | Cancelled
    | Relay
    | Closed
    | NewHome
    | AdaptationLetter
)
LETTERS: Codec[Letters] = Codec("opportunistic letter", 2, Letters)


def _number(kind: type) -> int:
    tag = msgspec.inspect.type_info(kind).tag  # type: ignore[attr-defined]
    assert isinstance(tag, int)
    return tag


# Of datagrams, in queues and traces: the tag of what they carry, which is the same in every node.
NUMBERS = {kind.__name__.lower(): _number(kind) for kind in (*get_args(Content), *get_args(Letters))}
PATIENT, HASTY = 1, 2  # acknowledgements: one that waits for many others' company, and one that does not
NAMES = {PATIENT: "acknowledgement", HASTY: "acknowledgement"} | {
    number: name for name, number in NUMBERS.items()
}
