"""The messages. Times travel as durations, never as clock readings.

| message | sent | in the trace |
|---|---|---|
| `JoinRequest` | flooded by a publisher's broker, once per refresh interval | `join_request` |
| `JoinTable` | broadcast by members and relays, each row meant for one next hop | `join_table` |
| `DataPacket` | broadcast by the publisher and by the forwarding group | `data` |
| `HeldEvents` | broadcast after data, for neighbours that missed it | `held` |

What a client without a broker and its broker say to each other:

| message | sent | in the trace |
|---|---|---|
| `BrokerSearch` | flooded by the client, a few hops far | `broker_search` |
| `BrokerOffer` | by each broker that the search reaches | `broker_offer` |
| `Registration` | by the client: what it wants and advertises; again before its lease ends | `registration` |
| `Registered` | by the broker: has it, or needs it in full | `registered` |
| `ClientEvent` | a publication to the broker, an event to the client | `client_event` |
| `EventReceipt` | by whoever got it | `receipt` |
| `LackedEvents` | by a node that lacks events, to one that named them | `want` |
| `HandedEvent` | the answer | `handed` |

All but the first of these travel in a `Carried`, hop by hop; the last two between any nodes.
"""

from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import DESTINATIONS_MAX, Count, Event, EventId, Name
from roamcast.host import Kind
from roamcast.kit.protocol import WireMessage
from roamcast.kit.repair import PUBLISHERS_MAX, HeldRuns
from roamcast.units import SECOND
from roamcast.wire import Codec

# Bounds chosen by us: what exceeds them is refused when it is decoded.
FILTER_BYTES_MAX = 8_192
FILTERS_MAX = 256
TYPES_MAX = 64
HOPS_MAX = 255
DIGEST_BYTES_MAX = 2_048
SUMMARY_BYTES_MAX = 16_384
DIGESTS_MAX = 64
CHANNELS_MAX = 62
MEMBERS_MAX = 4_096  # of one channel or one row
ROWS_MAX = 256
GROUPS_MAX = 64  # of held events
WANTED_MAX = 256  # events in one request
HOLD_MAX = 3_600 * SECOND
UNLIMITED = 2**62
"""The lifetime of a path whose end nobody can predict."""

Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX)]
FilterBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]
DigestBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES_MAX)]
AnnouncedDigest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=1, max_length=DIGEST_BYTES_MAX)]
SummaryBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=SUMMARY_BYTES_MAX)]
Version: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Members: TypeAlias = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MEMBERS_MAX)]
Lifetime: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=UNLIMITED)]


class SenderPosition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where the sender of this frame is and how it moves: metres, metres per second."""

    x: float
    y: float
    vx: float
    vy: float


class HeldGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Events that a node has and that concern the same others: those whom the digest concerns (None: nobody;
    empty: all who want anything), and the destinations."""

    digest: DigestBytes | None
    destinations: Annotated[tuple[Count, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)]
    held: Annotated[tuple[HeldRuns, ...], msgspec.Meta(max_length=PUBLISHERS_MAX)]


HeldGroups: TypeAlias = Annotated[tuple[HeldGroup, ...], msgspec.Meta(max_length=GROUPS_MAX)]


class JoinRequest(WireMessage, frozen=True, tag=1):
    """Section 3.5.1. A node that wants an event of `digests` answers with a Join Table.

    `hold`: how long the state that this round builds lasts without another. `urgent`: the publisher has no
    members, so answers do not wait for others to share their frame. `everyone`: every subscriber is asked
    (plain ODMRP, or more digests than fit). `advertisements`: digests of a type alone, for all who may want
    an event of it. `held`: memorized events that the publisher's broker has, whoever published them.
    `channels`: the members of each multicast group, as of `epoch`; channel n has bit n + 1 in `DataPacket`,
    and bit 0 is for members that are in no group. `lifetime`: of the weakest link so far (mobility
    prediction); `place` is its last sender's.
    """

    name = "join_request"

    publisher: Count
    sequence: Count
    hops: Hops  # radio hops before this one
    hold: Annotated[int, msgspec.Meta(ge=1, le=HOLD_MAX)]
    urgent: bool
    everyone: bool
    digests: Annotated[tuple[AnnouncedDigest, ...], msgspec.Meta(max_length=DIGESTS_MAX)]
    advertisements: Annotated[tuple[AnnouncedDigest, ...], msgspec.Meta(max_length=DIGESTS_MAX)]
    destinations: Annotated[tuple[Count, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)]
    epoch: Count
    channels: Annotated[tuple[Members, ...], msgspec.Meta(max_length=CHANNELS_MAX)]
    lifetime: Lifetime = UNLIMITED
    place: SenderPosition | None = None
    held: HeldGroups = ()


class MemberEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One member and its subscription information; without `summary` the receiver knows it by version."""

    member: Count
    version: Version
    summary: SummaryBytes | None = None


class PublisherRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The part of a Join Table about one publisher. Only `next_hop` acts on it. Nodes that had sent these
    members to the sender of this row take it as an acknowledgement."""

    publisher: Count
    sequence: Count  # of the Join Request that is answered
    next_hop: Count
    lifetime: Lifetime  # of the weakest path from the publisher to these members
    entries: Annotated[tuple[MemberEntry, ...], msgspec.Meta(max_length=MEMBERS_MAX)]


class Acknowledgement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The sender has these members: sent where no Join Table of its own will show it."""

    publisher: Count
    sequence: Count
    members: Members


class JoinTable(WireMessage, frozen=True, tag=2):
    """Section 3.5.2. Rows for several publishers share a frame."""

    name = "join_table"

    rows: Annotated[tuple[PublisherRow, ...], msgspec.Meta(max_length=ROWS_MAX)]
    acknowledgements: Annotated[tuple[Acknowledgement, ...], msgspec.Meta(max_length=ROWS_MAX)] = ()


class DataPacket(WireMessage, frozen=True, tag=3):
    """Section 3.5.3. `source` is the broker that sends it, for itself or for a client without a broker;
    `packet` is that broker's number of the packet. `channels`: bits, as of `epoch`.
    An event that is sent again for members that came later names them in `members` instead."""

    name = "data"
    kind = Kind.DATA

    source: Count
    packet: Count
    epoch: Count
    channels: Count
    members: Members
    digest: DigestBytes
    hops: Hops
    age: Count
    event: Event

    @property
    def event_id(self) -> EventId:
        return self.event.id


# Clients without a broker.


class BrokerSearch(WireMessage, frozen=True, tag=4):
    name = "broker_search"

    client: Count
    number: Count  # of this client's search
    hops: Hops  # radio hops before this one


class BrokerOffer(WireMessage, frozen=True, tag=1):
    name = "broker_offer"

    number: Count  # of the search


class Registration(WireMessage, frozen=True, tag=2):
    """`filters` None: as in the version that the broker has."""

    name = "registration"

    version: Count
    filters: Annotated[tuple[FilterBytes, ...], msgspec.Meta(max_length=FILTERS_MAX)] | None
    types: Annotated[tuple[Name, ...], msgspec.Meta(max_length=TYPES_MAX)] = ()  # that it advertises


class Registered(WireMessage, frozen=True, tag=3):
    name = "registered"

    version: Count
    known: bool  # False: send it in full


class ClientEvent(WireMessage, frozen=True, tag=4):
    name = "client_event"
    kind = Kind.DATA

    hops: Hops  # radio hops before this unicast
    age: Count
    event: Event

    @property
    def event_id(self) -> EventId:
        return self.event.id


class EventReceipt(WireMessage, frozen=True, tag=5):
    name = "receipt"

    publisher: Count
    sequence: Count


class LackedEvents(WireMessage, frozen=True, tag=6):
    """Publisher and sequence of each event wanted, one after the other."""

    name = "want"

    events: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * WANTED_MAX)]


class HandedEvent(ClientEvent, frozen=True, tag=7):
    """An event for a node that asked for it."""

    name = "handed"


ClientContent: TypeAlias = (
    BrokerOffer | Registration | Registered | ClientEvent | EventReceipt | LackedEvents | HandedEvent
)


class Carried(WireMessage, frozen=True, tag=5):
    """Unicast to a node that is known by its messages, over the nodes between; counted as its content."""

    origin: Count
    target: Count
    hops: Hops
    content: ClientContent


class HeldEvents(WireMessage, frozen=True, tag=6):
    """Recent events that the sender has broadcast or had, for its neighbours. `is_call`: it has lost or met a
    neighbour, so the mesh may have a gap here: tell it of yours."""

    name = "held"

    groups: HeldGroups
    is_call: bool = False


AnyMessage: TypeAlias = JoinRequest | JoinTable | DataPacket | BrokerSearch | Carried | HeldEvents

CODEC: Codec[AnyMessage] = Codec("odmrp", 4, AnyMessage)
