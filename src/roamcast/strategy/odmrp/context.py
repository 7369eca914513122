"""The interface between the middleware and the mesh: "to supply data to be attached to ODMRP packets and
indicate how to process them" (section 1).

The mesh (`publisher.py`, `join_tables.py`, `routes.py`, `strategy.py`) floods requests, keeps forwarding
groups and relays data. It does not know what a subscription is: what it attaches to a Join Request, a Join
Table and a data packet, and what a node does with what it finds attached, is said by a `MeshContext`. By
itself that attaches nothing: then this is ODMRP as its draft has it, the baseline (`grouping = "none"`).
`SubscriptionContext` is the paper's: summaries of subscriptions, digests of events, groups by content. It
holds subscription information, this node's own (`OwnInterests`) and that of others as Join Tables brought it
(`KnownSummaries`).

A summary is named by its version, a checksum of its octets. A Join Table attaches the octets until the
next hop is known to have them and names only the version from then on, so a stable mesh costs a few octets
per member and round (section 3.5.2 attaches them always). Version 0 means no subscriptions at all:
plain ODMRP, or a member that is only an event's destination.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias
from zlib import crc32

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.strategy.odmrp.grouping.channels import UNGROUPED, Channels
from roamcast.strategy.odmrp.grouping.k_means import Chance
from roamcast.strategy.odmrp.messages import DIGEST_BYTES_MAX, SUMMARY_BYTES_MAX, JoinRequest
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.summary.conditions import entries_of
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.entry import SummaryEntry, thinned
from roamcast.strategy.odmrp.summary.geometry import SummaryOptions
from roamcast.strategy.odmrp.summary.summary import Summary, SummaryTable
from roamcast.units import Micros, NodeId

NO_SUBSCRIPTIONS = 0
SUMMARIES_MAX = 16_384  # chosen by us


class MeshContext:
    """Nothing is attached; every member wants everything, and there is one group: plain ODMRP.

    What is attached to packets is octets to the mesh: empty octets mean that nothing is said.
    """

    asks_everyone = True  # one forwarding group serves all sources, and all subscribers are asked to join

    def __init__(self, wanted: Callable[[], Sequence[Filter]]) -> None:
        self._wanted = wanted

    # The Join Request (3.5.1).

    def digest(self, event: Event) -> bytes:
        """What a request says about an event that is to be sent, and what its data packet carries."""
        return b""

    def advertisement(self, type_: str) -> bytes:
        """What a request says about events of a type that may come."""
        return b""

    def check(self, digest: bytes) -> None:
        """WireError if these octets, which came by radio, are no digest."""

    def answers(self, request: JoinRequest) -> bool:
        """Whether what a request announces may concern this node."""
        return request.everyone and bool(self._wanted())

    # The Join Table (3.5.2).

    @property
    def version(self) -> int:
        """Names what this node attaches, so that octets which are known are not sent again."""
        return NO_SUBSCRIPTIONS

    def octets(self, member: NodeId, version: int) -> bytes | None:
        """What a member attached, this node included; None if that version is not known here."""
        return None

    def learn(self, member: NodeId, version: int, octets: bytes | None, until: Micros) -> bool:
        """A table has brought this. False if the octets of that version are needed; WireError if bad."""
        return True

    # Data (3.5.3).

    def claims(self, digest: bytes) -> bool:
        """Whether what this node attaches says that it wants such an event; that may be a mistake."""
        return False

    def concerns(self, digest: bytes) -> bool:
        """Whether this node may want an event; of an empty digest it may."""
        return bool(self._wanted())

    def wants(self, member: NodeId, version: int, digest: bytes) -> bool:
        """Whether a member behind this relay may want an event."""
        return True

    # The publisher's broker (3.4): groups of its members.

    @property
    def epoch(self) -> int:
        return 0

    @property
    def groups(self) -> tuple[tuple[NodeId, ...], ...]:
        return ()

    def regroup(self, members: Mapping[NodeId, int]) -> None:
        """Make groups of these members, given with their versions."""

    def on_member(self, member: NodeId, version: int) -> None:
        """A member is new, or attached something else."""

    def channels(self, members: Mapping[NodeId, int], digest: bytes) -> int:
        """The bits of the channels on which an event is sent; `UNGROUPED` for members in no group."""
        return UNGROUPED if members else 0

    def wanting(self, members: Mapping[NodeId, int], digest: bytes) -> list[NodeId]:
        """The members that may want an event."""
        return list(members)

    # Soft state.

    def on_interests(self, added: Filter | None = None, removed: Filter | None = None) -> None:
        """What this node's clients want has changed."""

    def expire(self, now: Micros) -> None:
        """Forget what nobody has named for long."""

    def next_expiry(self) -> Micros | None:
        return None

    def __len__(self) -> int:
        return 0


class SubscriptionContext(MeshContext):
    """Section 3: summaries in Join Tables, digests in Join Requests and data, groups at the publisher."""

    asks_everyone = False

    def __init__(
        self,
        node: NodeId,
        wanted: Callable[[], Sequence[Filter]],
        options: OdmrpOptions,
        random: Chance,
        take_epoch: Callable[[], int],
        on_evicted: Callable[[NodeId, object], object],
    ) -> None:
        super().__init__(wanted)
        self._node = node
        self._options = options.summary
        self._own = OwnInterests(wanted, options.summary)
        self._known = KnownSummaries(options.summary, on_evicted)
        self._channels = Channels(options, random, take_epoch)
        self._members: SummaryTable[NodeId] = SummaryTable()  # of the members of this publisher
        self._digested: object = None  # what is digested of the last event
        self._last_digest = b""

    def digest(self, event: Event) -> bytes:
        """The event's digest; empty where it is not needed or too large. An empty one counts as a match."""
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

    def advertisement(self, type_: str) -> bytes:
        return EventDigest.of_type(type_, self._options).encode()

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

    def concerns(self, digest: bytes) -> bool:
        return self._own.match(digest) if digest else self._own.version != NO_SUBSCRIPTIONS

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


class OwnInterests:
    """What the clients of this broker want, as a summary; computed again after a subscription changed."""

    def __init__(self, wanted: Callable[[], Sequence[Filter]], options: SummaryOptions) -> None:
        self._wanted = wanted
        self._options = options
        self._changed = True
        self._version = NO_SUBSCRIPTIONS
        self._summary: Summary | None = None
        self._octets: bytes | None = None
        self._filters: Sequence[Filter] = ()
        self._entries: dict[Filter, tuple[SummaryEntry, ...]] = {}  # of the filters, and of new ones

    def on_changed(self, added: Filter | None, removed: Filter | None) -> None:
        """Entries are computed filter by filter as they come: all of thousands at once would take long."""
        self._changed = True
        if added is not None and added not in self._entries:
            self._entries[added] = entries_of(added, self._options.geometry)
        if removed is not None:  # if another subscription has it too, it is computed again
            self._entries.pop(removed, None)

    @property
    def version(self) -> int:
        self._update()
        return self._version

    @property
    def octets(self) -> bytes | None:
        self._update()
        return self._octets

    def match(self, digest: bytes) -> bool:
        """Whether the summary matches an event with this digest."""
        self._update()
        return self._summary is not None and matches(self._summary, digest)

    def answers(self, request: JoinRequest) -> bool:
        """Whether what a publisher announces may concern this node."""
        self._update()
        if not self._filters:
            return False
        return (
            request.everyone
            or any(self.match(digest) for digest in request.digests)
            or any(map(self._may_want, request.advertisements))
        )

    def _may_want(self, advertisement: bytes) -> bool:
        digest = decoded_digest(advertisement, self._options)
        return self._summary is not None and any(map(digest.may_satisfy, self._summary.entries))

    def _update(self) -> None:
        if not self._changed:
            return
        self._changed = False
        self._filters = self._wanted()
        self._version, self._summary, self._octets = NO_SUBSCRIPTIONS, None, None
        if not self._filters:
            self._entries = {}
        else:
            known, geometry = self._entries, self._options.geometry
            self._entries = {
                each: known[each] if each in known else entries_of(each, geometry) for each in self._filters
            }
            entries = {entry for several in self._entries.values() for entry in several}
            self._summary = _bounded(Summary.of_entries(thinned(entries), self._options))
            self._octets = self._summary.encode()
            self._version = version_of(self._octets)


KnownSummary: TypeAlias = tuple[int, bytes, Summary, Micros]
"""Version, octets, summary, and until when it is kept."""


class KnownSummaries:
    """The latest summary of each member that Join Tables named; when full, the longest unused is evicted."""

    def __init__(
        self, options: SummaryOptions, on_evicted: OnEvicted[NodeId, KnownSummary], most: int = SUMMARIES_MAX
    ) -> None:
        self._options = options
        self._known: BoundedDict[NodeId, KnownSummary] = BoundedDict(most, on_evicted)  # in the order of use

    def learn(self, member: NodeId, version: int, octets: bytes | None, until: Micros) -> bool:
        """True if the member's summary of that version is known from now on; bad octets are a WireError."""
        if version == NO_SUBSCRIPTIONS:
            return True
        known = self._known.pop(member, None)
        if known is not None and known[0] == version:
            self._known[member] = (*known[:3], max(until, known[3]))
            return True
        if octets is None:
            if known is not None:
                self._known[member] = known
            return False
        if version_of(octets) != version:
            raise WireError("summary", 0, f"is not of the version {version} that it claims")
        summary = decoded_summary(octets, self._options)
        self._known[member] = (version, octets, summary, until)
        return True

    def summary(self, member: NodeId, version: int) -> Summary | None:
        known = self._known.get(member)
        return known[2] if known is not None and known[0] == version else None

    def octets(self, member: NodeId, version: int) -> bytes | None:
        known = self._known.get(member)
        return known[1] if known is not None and known[0] == version else None

    def match(self, member: NodeId, version: int, digest: bytes) -> bool:
        """Whether the member may want the event; an unknown member may want everything."""
        if version == NO_SUBSCRIPTIONS:
            return False
        known = self._known.get(member)
        if known is None or known[0] != version or not digest:
            return True
        return matches(known[2], digest)

    def expire(self, now: Micros) -> None:
        self._known.forget(lambda known: known[3] <= now)

    def next_expiry(self) -> Micros | None:
        return min((known[3] for known in self._known.values()), default=None)

    def __len__(self) -> int:
        return len(self._known)


def _bounded(summary: Summary) -> Summary:
    """A summary that fits a Join Table: coarser, at worst `everything`, but without false negatives."""
    if len(summary.encode()) <= SUMMARY_BYTES_MAX:
        return summary
    one = summary.narrowed_to_one()
    everything = Summary.of([Filter.everything()], summary.options)
    return one if len(one.encode()) <= SUMMARY_BYTES_MAX else everything


def version_of(octets: bytes) -> int:
    """Never 0, which means that there is no summary."""
    return crc32(octets) or 1


# Pure functions of message contents, so the nodes of a simulation share their results.
@lru_cache(maxsize=65_536)
def matches(summary: Summary, digest: bytes) -> bool:
    """Digests were decoded when they arrived, so this cannot fail."""
    return summary.matches(decoded_digest(digest, summary.options))


@lru_cache(maxsize=16_384)
def decoded_digest(octets: bytes, options: SummaryOptions) -> EventDigest:
    return EventDigest.decode(octets, options)


@lru_cache(maxsize=4_096)
def decoded_summary(octets: bytes, options: SummaryOptions) -> Summary:
    return Summary.decode(octets, options)
