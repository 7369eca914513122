"""The messages. Times travel as durations, never as clock readings.

| message | sent | in the trace |
|---|---|---|
| `JoinRequest` | flooded by a publisher's broker, once per refresh interval | `join_request` |
| `JoinTable` | broadcast by members and relays, each row meant for one next hop | `join_table` |
| `DataPacket` | broadcast by the publisher and by the forwarding group | `data` |
| `BrokerSearch`, `Carried` | between clients and brokers, see `clients/messages.py` | |
"""

from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import DESTINATIONS_MAX, Count, Event, Name
from roamcast.strategy.odmrp.clients.messages import BrokerSearch, Carried
from roamcast.units import SECOND
from roamcast.wire import Codec

# Bounds chosen by us: what exceeds them is refused when it is decoded.
DIGEST_BYTES_MAX = 2_048
SUMMARY_BYTES_MAX = 16_384
DIGESTS_MAX = 64
CHANNELS_MAX = 62
MEMBERS_MAX = 4_096  # of one channel or one row
ROWS_MAX = 256
HOLD_MAX = 3_600 * SECOND
UNLIMITED = 2**62
"""The lifetime of a path whose end nobody can predict."""

Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]
DigestBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES_MAX)]
SummaryBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=SUMMARY_BYTES_MAX)]
Version: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Members: TypeAlias = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MEMBERS_MAX)]
Lifetime: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=UNLIMITED)]


class _Struct(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields have an order instead of names."""


class SenderPosition(_Struct, frozen=True):
    """Where the sender of this frame is and how it moves: metres, metres per second."""

    x: float
    y: float
    vx: float
    vy: float


class JoinRequest(_Struct, frozen=True, tag=1):
    """Section 3.5.1. A node that wants an event of `digests` answers with a Join Table.

    `hold`: how long the state that this round builds lasts without another. `urgent`: the publisher has no
    members, so answers do not wait for others to share their frame. `everyone`: every subscriber is asked
    (plain ODMRP, or more digests than fit). `types`: advertisement, every event of these types.
    `channels`: the members of each multicast group, as of `epoch`; channel n has bit n + 1 in `DataPacket`,
    and bit 0 is for members that are in no group yet. `lifetime`: of the weakest link so far (mobility
    prediction); `place` is its last sender's.
    """

    publisher: Count
    sequence: Count
    hops: Hops  # radio hops before this one
    hold: Annotated[int, msgspec.Meta(ge=1, le=HOLD_MAX)]
    urgent: bool
    everyone: bool
    digests: Annotated[tuple[DigestBytes, ...], msgspec.Meta(max_length=DIGESTS_MAX)]
    types: Annotated[tuple[Name, ...], msgspec.Meta(max_length=DIGESTS_MAX)]
    destinations: Annotated[tuple[Count, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)]
    epoch: Count
    channels: Annotated[tuple[Members, ...], msgspec.Meta(max_length=CHANNELS_MAX)]
    lifetime: Lifetime = UNLIMITED
    place: SenderPosition | None = None


class MemberEntry(_Struct, frozen=True):
    """One member and its subscription information; without `summary` the receiver knows it by version."""

    member: Count
    version: Version
    summary: SummaryBytes | None = None


class PublisherRow(_Struct, frozen=True):
    """The part of a Join Table about one publisher. Only `next_hop` acts on it. Nodes that had sent these
    members to the sender of this row take it as an acknowledgement."""

    publisher: Count
    sequence: Count  # of the Join Request that is answered
    next_hop: Count
    lifetime: Lifetime  # of the weakest path from the publisher to these members
    entries: Annotated[tuple[MemberEntry, ...], msgspec.Meta(max_length=MEMBERS_MAX)]


class Acknowledgement(_Struct, frozen=True):
    """The sender has these members: sent where no Join Table of its own will show it."""

    publisher: Count
    sequence: Count
    members: Members


class JoinTable(_Struct, frozen=True, tag=2):
    """Section 3.5.2. Rows for several publishers share a frame."""

    rows: Annotated[tuple[PublisherRow, ...], msgspec.Meta(max_length=ROWS_MAX)]
    acknowledgements: Annotated[tuple[Acknowledgement, ...], msgspec.Meta(max_length=ROWS_MAX)] = ()


class DataPacket(_Struct, frozen=True, tag=3):
    """Section 3.5.3. `source` is the broker that sends it, for itself or for a client without a broker;
    `packet` is that broker's number of the packet. `channels`: bits, as of `epoch`.
    An event that is sent again for members that came later names them in `members` instead."""

    source: Count
    packet: Count
    epoch: Count
    channels: Count
    members: Members
    digest: DigestBytes
    hops: Hops
    age: Count
    event: Event


AnyMessage: TypeAlias = JoinRequest | JoinTable | DataPacket | BrokerSearch | Carried

CODEC: Codec[AnyMessage] = Codec("odmrp", 2, AnyMessage)
