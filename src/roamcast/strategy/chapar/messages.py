"""The messages of Chapar. Vectors and identifiers are sent as octets, lifetimes as ages.

| message | use and path | in the trace |
|---|---|---|
| `Carry` | real-time event: to the publisher's broker (without EDNV), then down the tree | `event` |
| `Spread` | the same to several next hops and neighbours, as one broadcast | `event` |
| `Recap` | what was broadcast lately: whoever missed something asks for it (`Request`) | `recap` |
| `Memorized` | memorized event: to a broker, flooded among brokers, handed to a subscriber | `memorized` |
| `InterestChange` | filter added or removed: to a broker, flooded among them | `subscribe`, `unsubscribe` |
| `Check` `Lists` `Request` `Records` | table consistency check, inheritance, check-out | `consistency` |
| `Attach` `BrokerAnswer` `WantOffered` | a node checks what its broker knows about it | `attach` |
| `Decline` | "I am no broker" | `attach` |
"""

from typing import Annotated, Any, TypeAlias

import msgspec

from roamcast.event import Count, Event, EventId
from roamcast.host import Kind
from roamcast.kit.protocol import WireMessage
from roamcast.strategy.chapar.identifiers import IDENTIFIER_BYTES_MAX
from roamcast.strategy.chapar.node_vectors import VECTOR_BYTES_MAX
from roamcast.units import NodeId
from roamcast.wire import Codec

LIST_MAX = 8192  # this and the next: chosen by us
FILTERS_MAX = 16_384  # of one node in one message: more than fit a frame
BRANCHES_MAX = 64  # next hops in one broadcast
RECAP_MAX = 128  # events in one recapitulation
CHAIN_MAX = 8  # events that one names before it: as many as there are different lifetimes, at most

Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]
Identifier: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=IDENTIFIER_BYTES_MAX)]
Vector: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=VECTOR_BYTES_MAX)]
Digest: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=16)]
Chain: TypeAlias = Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=CHAIN_MAX)]
EventKeys: TypeAlias = Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=LIST_MAX)]


class CarriedEvent(WireMessage, frozen=True):
    """The base of those that carry an event."""

    name = "event"
    kind = Kind.DATA
    event: Event

    @property
    def event_id(self) -> EventId:
        return self.event.id


class Carry(CarriedEvent, frozen=True, tag=1):
    """A real-time event in transit. Without `destinations` (EDNV) the receiver is asked to look it up.

    `sealed`: the event identifier of an encrypted event, whose attributes only its readers can see. `age`:
    microseconds since the publication.
    """

    destinations: Vector | None
    hops: Hops
    sealed: Identifier = b""
    age: Count = 0


class Memorized(CarriedEvent, frozen=True, tag=2):
    """A memorized event. `previous`: the sequence numbers of memorized events that its publisher sent before
    it and that had not expired then, with their remaining lifetimes: the latest one, the latest that outlives
    that one, and so on. A receiver that lacks the first of them that still lives waits for it for a while."""

    name = "memorized"
    hops: Hops
    age: Count
    previous: Chain = ()
    sealed: Identifier = b""


class InterestChange(WireMessage, frozen=True, tag=3):
    """`subscriber` wants (`stands`) or no longer wants what the filter identifier selects. `version` counts
    the changes that the subscriber made, without gaps."""

    subscriber: Count
    version: Count
    filter_id: Identifier
    stands: bool

    @property
    def name(self) -> str:  # type: ignore[override]
        return "subscribe" if self.stands else "unsubscribe"


class InterestRegister(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that one node wants, at its version."""

    subscriber: Count
    version: Count
    filter_ids: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=FILTERS_MAX)]


class Check(WireMessage, frozen=True, tag=4):
    """The digests of both tables. `answer`: reply even if they are the same (inheritance, check-out). `to`:
    for this broker alone, where it rides on a HELLO."""

    name = "consistency"
    events: Digest
    filters: Digest
    answer: bool = False
    to: Count | None = None


class Lists(WireMessage, frozen=True, tag=5):
    """What the tables hold; None for a table with the same digest. `missing`: events that the sender lacks
    too, but knows to exist; others may wait for them. `versions`: the filter table, as subscribers and the
    versions of their registers, or as the hashes of its records, each with a 1 (`fmt_lists`).

    Tables that do not fit are sent in parts. A part says of which events and of which subscribers it lists
    all: those from `first_event` and `first_subscriber` on, before `end_event` and `end_subscriber` (None: to
    the last). `to`: the addressee of a broadcast; others learn from it that they need not answer.
    """

    name = "consistency"
    events: EventKeys | None = None
    versions: Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=LIST_MAX)] | None = None
    missing: EventKeys = ()
    to: Count | None = None
    first_event: tuple[Count, Count] = (0, 0)
    end_event: tuple[Count, Count] | None = None
    first_subscriber: Count = 0
    end_subscriber: Count | None = None

    def tells_of_subscriber(self, subscriber: NodeId) -> bool:
        return self.versions is not None and is_between(
            subscriber, self.first_subscriber, self.end_subscriber
        )


def is_between(item: Any, first: Any, end: Any) -> bool:
    return bool(first <= item and (end is None or item < end))


class Request(WireMessage, frozen=True, tag=6):
    """`subscribers`: as in `Lists`, entries of the filter table by their numbers. Without anything: for a
    `Recap` of what was there lately."""

    name = "consistency"
    events: EventKeys = ()
    subscribers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=LIST_MAX)] = ()


class Records(WireMessage, frozen=True, tag=7):
    """`is_exchanged`: for one broker alone, in a consistency check or an inheritance."""

    name = "consistency"
    registers: Annotated[tuple[InterestRegister, ...], msgspec.Meta(max_length=LIST_MAX)]
    is_exchanged: bool = False


class Attach(WireMessage, frozen=True, tag=8):
    """From a node to its broker: the version of its interests, digests of the memorized events that it
    published and of those it has received. `waiting`: events that wait for earlier ones; if there are any,
    the broker answers in any case. `to`: the broker, where it rides on a HELLO, which all neighbours hear."""

    name = "attach"
    version: Count
    published: Digest = b""
    received: Digest = b""
    waiting: EventKeys = ()
    to: Count | None = None


class BrokerAnswer(WireMessage, frozen=True, tag=9):
    """From a broker to its node: the version it has; which of the node's own events it has (if the digests
    differ); the events it can offer; the events it lacks itself but knows to exist (None: it cannot say)."""

    name = "attach"
    version: Count
    published: Annotated[tuple[Count, ...], msgspec.Meta(max_length=LIST_MAX)] | None = None
    offered: EventKeys = ()
    missing: EventKeys | None = None


class WantOffered(WireMessage, frozen=True, tag=10):
    """The offered events that the node lacks; it has the rest."""

    name = "attach"
    events: EventKeys = ()


class Decline(WireMessage, frozen=True, tag=11):
    """The sender of this is no broker, whoever hears it."""

    name = "attach"


class Spread(CarriedEvent, frozen=True, tag=12):
    """A real-time event for several neighbours at once: `leaves` (NSNV) are only notified, each of the
    `branches` is a next hop and the residual vector (RNV) that it takes on."""

    hops: Hops
    leaves: Vector
    branches: Annotated[tuple[tuple[Count, Vector], ...], msgspec.Meta(max_length=BRANCHES_MAX)] = ()
    sealed: Identifier = b""
    age: Count = 0


class RecapEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An event that was broadcast, with its identifier (EID) and age: enough to know whether one lacks it."""

    publisher: Count
    sequence: Count
    event_id: Identifier
    age: Count


class Recap(WireMessage, frozen=True, tag=13):
    name = "recap"
    entries: Annotated[tuple[RecapEntry, ...], msgspec.Meta(max_length=RECAP_MAX)]


AnyMessage: TypeAlias = (
    Carry
    | Spread
    | Recap
    | Memorized
    | InterestChange
    | Check
    | Lists
    | Request
    | Records
    | Attach
    | BrokerAnswer
    | WantOffered
    | Decline
)

CODEC: Codec[AnyMessage] = Codec("chapar", 4, AnyMessage)
