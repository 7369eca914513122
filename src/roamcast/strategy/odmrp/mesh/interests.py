"""Subscription information: this node's own, and that of others as Join Tables brought it.

A summary is named by its version, a checksum of its octets. A Join Table attaches the octets until the
next hop is known to have them and names only the version from then on, so a stable mesh costs a few octets
per member and round (section 3.5.2 attaches them always). Version 0 means no subscriptions at all:
plain ODMRP, or a member that is only an event's destination.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias
from zlib import crc32

from roamcast.errors import WireError
from roamcast.filter import Filter
from roamcast.filter.expression import Or
from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.strategy.odmrp.mesh.messages import SUMMARY_BYTES_MAX, JoinRequest
from roamcast.strategy.odmrp.summary.conditions import entries_of
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.entry import SummaryEntry
from roamcast.strategy.odmrp.summary.geometry import SummaryOptions
from roamcast.strategy.odmrp.summary.merging import thinned
from roamcast.strategy.odmrp.summary.summary import Summary
from roamcast.units import Micros, NodeId

NO_SUBSCRIPTIONS = 0
SUMMARIES_MAX = 16_384  # chosen by us
_NOTHING = Filter(Or(()))


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
            or any(_may_be(wanted, type) for type in request.types for wanted in self._filters)
        )

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


@lru_cache(maxsize=4_096)
def _may_be(wanted: Filter, type: str) -> bool:
    """Whether some event of the type can match. An event without a type can be anything."""
    return type == "" or not _NOTHING.covers(wanted & Filter.of_type(type))
