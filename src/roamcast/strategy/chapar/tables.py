"""The two tables of a broker together (FMT, MET), and what this node's own applications want.

*Own interests* are filter identifiers with a version. Several subscriptions may have one identifier; only the
first and the last of them are a change. The version counts the changes and survives a crash, so that no
broker takes an old state for the newer one.
"""

from collections.abc import MutableMapping, Sequence
from typing import NamedTuple

from roamcast.broker.core import Subscription
from roamcast.event import Event
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import overflow_traced, trace_drop
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar.filter_mapping_table import EVERYTHING, FilterTable
from roamcast.strategy.chapar.identifiers import IdentifierLayout, matches
from roamcast.strategy.chapar.memorized_event_table import EventTable, Memo
from roamcast.strategy.chapar.messages import InterestRegister
from roamcast.strategy.chapar.node_vectors import (
    BloomAddresses,
    NodeBits,
    NodeVector,
    OrderedAddresses,
    vector_of,
)
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.trace import DropReason
from roamcast.units import NodeId

REGISTER_BYTES_MAX = 60_000  # of one register: a frame holds it, sealed too. Chosen by us
VERSION_BLOCK = 1_000
"""How many versions one stable write reserves. Chosen by us: more mean fewer writes."""
VERSION_MAX = 2**62  # a register that claims more is hostile


class Tables:
    def __init__(self, context: StrategyContext, options: ChaparOptions) -> None:
        host = self._host = context.host
        self._underlay = context.underlay
        self.layout = IdentifierLayout(options.hash_bits, options.attribute_slots)
        self.addresses: NodeBits = (
            OrderedAddresses(0, options.nodes_max)
            if options.node_vectors == "bitmap"
            else BloomAddresses(options.nodes_max, self._make_room)
        )
        self.interests = VersionedInterests(self.layout, host.stable)
        self.filters = FilterTable(
            self.addresses,
            self.layout.bits,
            entries_max=options.fmt_entries_max,
            on_widened=lambda node: self._trace_full(f"node {node} now gets everything"),
            by_hashes=options.in_force().fmt_lists == "hashes",
        )
        self.events = EventTable(
            entries_max=options.in_force().met_entries_max,
            on_full=lambda memo: trace_drop(host, DropReason.STORE_FULL, "memorized", memo.id),
            on_forgotten=overflow_traced(host, "memorized", "KNOWN_MAX_FACTOR"),
        )

    def event_id(self, event: Event, sealed: bytes) -> int:
        """EID: given with a sealed event, computed for a clear one."""
        return self.layout.decode(sealed) if sealed else self.layout.event_id(event)

    def wanted_by(self, memo: Memo) -> NodeVector:
        """Who should get a memorized event, as far as this broker knows: subscribers and destinations."""
        wanted = vector_of(self.addresses, memo.event.destinations)
        if memo.event.wants_subscribers:
            wanted |= self.filters.lookup(memo.event_id)
        return wanted

    def may_match(self, memo: Memo) -> bool:
        """Whether a local application may want it, by the identifiers alone."""
        return self._host.node in memo.event.destinations or (
            memo.event.wants_subscribers and self.interests.select(memo.event_id)
        )

    def register(self, subscriber: NodeId) -> InterestRegister:
        if subscriber == self._host.node:
            version, filter_ids = self.interests.version, sorted(self.interests.filter_ids())
        else:
            version, filter_ids = self.filters.version(subscriber), self.filters.filter_ids(subscriber)
        encoded = tuple(self.layout.encode(filter_id) for filter_id in filter_ids)
        if octets_of(encoded) > REGISTER_BYTES_MAX:
            encoded = (self.layout.encode(EVERYTHING),)  # as in a full table: nobody misses an event
        return InterestRegister(subscriber, version, encoded)

    def digests(self) -> tuple[bytes, bytes]:
        """The digests of both tables, MET first."""
        return self.events.digest(), self.filters.digest()

    def enter_own(self) -> None:
        """Enter a broker's own interests into its table, like everyone's."""
        if self.interests.version:
            self.filters.replace(self._host.node, self.interests.version, self.interests.filter_ids())

    def clear(self) -> None:
        self.filters.clear()
        self.events.clear()

    def _make_room(self, node: NodeId, numbered: Sequence[NodeId]) -> NodeId | None:
        """Of the nodes that have a bit, the oldest that no route leads to; only for a node that one leads to.
        So invented node numbers cannot take the places of nodes that exist."""
        known = {*self._underlay.known_nodes(), self._host.node}
        leaves = next((other for other in numbered if other not in known), None)
        if node not in known or leaves is None:
            return None
        self.filters.forget(leaves)
        self.events.forget_notified(self.addresses.bit(leaves))
        self._trace_full(f"nodes_max: node {leaves} is forgotten")
        return leaves

    def _trace_full(self, detail: str) -> None:
        trace_drop(self._host, DropReason.STORE_FULL, "subscribe", detail=detail)


def octets_of(filter_ids: Sequence[bytes]) -> int:
    """The most octets that a register with these identifiers takes."""
    return 16 + sum(2 + len(each) for each in filter_ids)


class Move(NamedTuple):
    """One change of the interests."""

    version: int
    filter_id: int
    stands: bool


class VersionedInterests:
    def __init__(self, layout: IdentifierLayout, stable: MutableMapping[str, bytes]) -> None:
        self._layout = layout
        self._counts: dict[int, int] = {}
        self._versions = StableCounter(stable, "chapar version", VERSION_BLOCK)
        # Versions before a crash were below the reserved one; 0 is "never wanted anything".
        self.version = self._versions.next

    def add(self, subscription: Subscription) -> Move | None:
        filter_id = self._layout.filter_id(subscription.filter)
        self._counts[filter_id] = count = self._counts.get(filter_id, 0) + 1
        return self._move(filter_id, True) if count == 1 else None

    def remove(self, subscription: Subscription) -> Move | None:
        filter_id = self._layout.filter_id(subscription.filter)
        count = self._counts.get(filter_id, 0) - 1
        if count > 0:
            self._counts[filter_id] = count
            return None
        if self._counts.pop(filter_id, None) is None:
            return None
        return self._move(filter_id, False)

    def overtake(self, version: int) -> None:
        """A broker knows a later version of ours than we do (our storage was lost): continue above it."""
        if self.version < version < VERSION_MAX:
            self._count_up(version + 1)

    def filter_ids(self) -> frozenset[int]:
        return frozenset(self._counts)

    def select(self, event_id: int) -> bool:
        """Whether some filter may match an event with this identifier."""
        return any(matches(filter_id, event_id) for filter_id in self._counts)

    def _move(self, filter_id: int, stands: bool) -> Move:
        self._count_up(self.version + 1)
        return Move(self.version, filter_id, stands)

    def _count_up(self, version: int) -> None:
        self._versions.skip_to(version)
        self.version = self._versions.take()
