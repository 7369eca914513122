"""The interface between the middleware and the mesh: "to supply data to be attached to ODMRP packets and
indicate how to process them" (section 1).

The mesh (`mesh/`) floods requests, keeps forwarding groups and relays data. It does not know what a
subscription is: what it attaches to a Join Request, a Join Table and a data packet, and what a node does with
what it finds attached, is said by a `MeshContext`. There are two. `SubscriptionContext` is the paper's:
summaries of subscriptions, digests of events, groups by content. `PlainContext` attaches nothing: then this
is ODMRP as its draft has it, the baseline (`grouping = "none"`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.odmrp.grouping.channels import UNGROUPED, Channels
from roamcast.strategy.odmrp.grouping.k_means import Chance
from roamcast.strategy.odmrp.mesh.interests import (
    NO_SUBSCRIPTIONS,
    KnownSummaries,
    OwnInterests,
    decoded_digest,
)
from roamcast.strategy.odmrp.mesh.messages import DIGEST_BYTES_MAX, JoinRequest
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.table import SummaryTable
from roamcast.units import Micros, NodeId


class MeshContext(Protocol):
    """What is attached to packets is octets to the mesh: empty octets mean that nothing is said."""

    # Whether one forwarding group serves all sources and all subscribers are asked to join (plain ODMRP).
    asks_everyone: bool

    # The Join Request (3.5.1).

    def digest(self, event: Event) -> bytes:
        """What a request says about an event that is to be sent, and what its data packet carries."""
        ...

    def check(self, digest: bytes) -> None:
        """WireError if these octets, which came by radio, are no digest."""
        ...

    def answers(self, request: JoinRequest) -> bool:
        """Whether what a request announces may concern this node."""
        ...

    # The Join Table (3.5.2).

    @property
    def version(self) -> int:
        """Names what this node attaches, so that octets which are known are not sent again."""
        ...

    def octets(self, member: NodeId, version: int) -> bytes | None:
        """What a member attached, this node included; None if that version is not known here."""
        ...

    def learn(self, member: NodeId, version: int, octets: bytes | None, until: Micros) -> bool:
        """A table has brought this. False if the octets of that version are needed; WireError if bad."""
        ...

    # Data (3.5.3).

    def claims(self, digest: bytes) -> bool:
        """Whether what this node attaches says that it wants such an event; that may be a mistake."""
        ...

    def wants(self, member: NodeId, version: int, digest: bytes) -> bool:
        """Whether a member behind this relay may want an event."""
        ...

    # The publisher's broker (3.4): groups of its members.

    @property
    def epoch(self) -> int: ...

    @property
    def groups(self) -> tuple[tuple[NodeId, ...], ...]: ...

    def regroup(self, members: Mapping[NodeId, int]) -> None:
        """Make groups of these members, given with their versions."""
        ...

    def on_member(self, member: NodeId, version: int) -> None:
        """A member is new, or attached something else."""
        ...

    def channels(self, members: Mapping[NodeId, int], digest: bytes) -> int:
        """The bits of the channels on which an event is sent; `UNGROUPED` for members in no group."""
        ...

    def wanting(self, members: Mapping[NodeId, int], digest: bytes) -> list[NodeId]:
        """Those that may want an event."""
        ...

    # Soft state.

    def on_interests(self, added: Filter | None = None, removed: Filter | None = None) -> None:
        """What this node's clients want has changed."""
        ...

    def expire(self, now: Micros) -> None: ...

    def next_expiry(self) -> Micros | None: ...

    def __len__(self) -> int: ...


class PlainContext:
    """Nothing is attached; every member wants everything, and there is one group."""

    asks_everyone = True
    epoch = 0
    groups: tuple[tuple[NodeId, ...], ...] = ()
    version = NO_SUBSCRIPTIONS

    def __init__(self, wanted: Callable[[], Sequence[Filter]]) -> None:
        self._wanted = wanted

    def digest(self, event: Event) -> bytes:
        return b""

    def check(self, digest: bytes) -> None:
        """Whatever it is, nobody looks at it."""

    def answers(self, request: JoinRequest) -> bool:
        return bool(self._wanted())

    def octets(self, member: NodeId, version: int) -> bytes | None:
        return None

    def learn(self, member: NodeId, version: int, octets: bytes | None, until: Micros) -> bool:
        return True

    def claims(self, digest: bytes) -> bool:
        return False

    def wants(self, member: NodeId, version: int, digest: bytes) -> bool:
        return True

    def regroup(self, members: Mapping[NodeId, int]) -> None:
        """One group, without a name."""

    def on_member(self, member: NodeId, version: int) -> None:
        """All members are alike."""

    def channels(self, members: Mapping[NodeId, int], digest: bytes) -> int:
        return UNGROUPED if members else 0

    def wanting(self, members: Mapping[NodeId, int], digest: bytes) -> list[NodeId]:
        return list(members)

    def on_interests(self, added: Filter | None = None, removed: Filter | None = None) -> None:
        """They are asked for when a request comes."""

    def expire(self, now: Micros) -> None:
        """There is nothing to forget."""

    def next_expiry(self) -> Micros | None:
        return None

    def __len__(self) -> int:
        return 0


class SubscriptionContext:
    """Section 3: summaries in Join Tables, digests in Join Requests and data, groups at the publisher."""

    asks_everyone = False

    def __init__(
        self,
        node: NodeId,
        wanted: Callable[[], Sequence[Filter]],
        options: OdmrpOptions,
        random: Chance,
        on_evicted: Callable[[NodeId, object], object],
    ) -> None:
        self._node = node
        self._options = options.summary
        self._own = OwnInterests(wanted, options.summary)
        self._known = KnownSummaries(options.summary, on_evicted)
        self._channels = Channels(options, random)
        self._members: SummaryTable[NodeId] = SummaryTable()  # of the members of this publisher
        self._digested: object = None  # what is digested of the last event
        self._last_digest = b""

    def digest(self, event: Event) -> bytes:
        """Empty where it is not needed or too large. An empty digest counts as a match."""
        if not event.wants_subscribers:
            return b""
        # Most events of a busy publisher differ from the one before in their payload alone, which is in no
        # digest. With the types of the values: 1 and TRUE are equal in Python, and have two digests.
        values = tuple([(name, type(value), value) for name, value in event.attributes.items()])
        digested = event.type, event.topic, values
        if digested != self._digested:
            digest = EventDigest.of(event, self._options).encode()
            self._digested = digested
            self._last_digest = digest if len(digest) <= DIGEST_BYTES_MAX else b""
        return self._last_digest

    def check(self, digest: bytes) -> None:
        if digest:
            decoded_digest(digest, self._options)

    def answers(self, request: JoinRequest) -> bool:
        return self._own.answers(request)

    @property
    def version(self) -> int:
        return self._own.version

    def octets(self, member: NodeId, version: int) -> bytes | None:
        return self._own.octets if member == self._node else self._known.octets(member, version)

    def learn(self, member: NodeId, version: int, octets: bytes | None, until: Micros) -> bool:
        return self._known.learn(member, version, octets, until)

    def claims(self, digest: bytes) -> bool:
        return bool(digest) and self._own.match(digest)

    def wants(self, member: NodeId, version: int, digest: bytes) -> bool:
        return self._known.match(member, version, digest)

    @property
    def epoch(self) -> int:
        return self._channels.epoch

    @property
    def groups(self) -> tuple[tuple[NodeId, ...], ...]:
        return self._channels.members

    def regroup(self, members: Mapping[NodeId, int]) -> None:
        self._members.keep(members)
        if not members:
            self._channels.clear()
            return
        self._channels.regroup(
            {member: self._members[member] for member in sorted(members) if member in self._members}
        )

    def on_member(self, member: NodeId, version: int) -> None:
        summary = self._known.summary(member, version)
        if summary is None:
            self._members.remove(member)
        else:
            self._members.add(member, summary)
            self._channels.on_summary(member, summary)

    def channels(self, members: Mapping[NodeId, int], digest: bytes) -> int:
        bits = self._channels.claim(decoded_digest(digest, self._options) if digest else None)
        alone = {
            member: version for member, version in members.items() if self._channels.bit(member) == UNGROUPED
        }
        return bits | UNGROUPED if alone and self.wanting(alone, digest) else bits

    def wanting(self, members: Mapping[NodeId, int], digest: bytes) -> list[NodeId]:
        matching: Iterable[NodeId] = ()
        if digest and any(member in self._members for member in members):
            matching = set(self._members.matching(decoded_digest(digest, self._options)))
        return [
            member
            for member, version in members.items()
            if version != NO_SUBSCRIPTIONS
            and (not digest or member not in self._members or member in matching)
        ]

    def on_interests(self, added: Filter | None = None, removed: Filter | None = None) -> None:
        self._own.on_changed(added, removed)

    def expire(self, now: Micros) -> None:
        self._known.expire(now)

    def next_expiry(self) -> Micros | None:
        return self._known.next_expiry()

    def __len__(self) -> int:
        return len(self._known)
