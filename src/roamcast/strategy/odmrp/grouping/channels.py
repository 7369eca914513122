"""The multicast groups that a publisher's broker makes of the subscriptions it learns (section 3.4).

Each group is a channel: its members, and what they want. An event travels over the channels that want it: by
the summaries of all channels in one table, or, with the graph method, by a search in the graph. Members
that joined after the last announcement of the groups belong to no channel yet; they share bit 0.
"""

from collections.abc import Mapping

from roamcast.strategy.odmrp.grouping.covering_graph import CoveringGraph
from roamcast.strategy.odmrp.grouping.k_means import Chance
from roamcast.strategy.odmrp.grouping.methods import Group, group
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.summary import Summary
from roamcast.strategy.odmrp.summary.table import SummaryTable
from roamcast.units import NodeId

UNGROUPED = 1
"""The bit of members that are in no channel yet."""


class Channels:
    def __init__(self, options: OdmrpOptions, random: Chance) -> None:
        self._method = options.grouping
        self._k = options.k
        self._channels_max = options.channels_max
        self._random = random
        self._groups: list[Group] = []
        self._bits: dict[NodeId, int] = {}
        self._summaries: SummaryTable[int] = SummaryTable()  # by the channel's number
        self._graph: CoveringGraph[NodeId] | None = CoveringGraph() if self._method == "graph" else None
        self.epoch = 0

    @property
    def members(self) -> tuple[tuple[NodeId, ...], ...]:
        """Channel by channel, as a Join Request announces them."""
        return tuple(tuple(sorted(group.members)) for group in self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def regroup(self, summaries: Mapping[NodeId, Summary]) -> None:
        """Compute the groups again; the epoch increases only if a group has other members than before."""
        before = self.members
        assert self._method != "none"
        made = group(self._method, summaries, k=self._k, random=self._random, previous=self._groups or None)
        # Where there are more groups than bits, the smallest stay ungrouped.
        made = sorted(made, key=lambda found: (-len(found.members), min(found.members)))
        self._groups = made[: self._channels_max]
        if self.members != before:
            self.epoch += 1
        self._bits = {m: 2 << n for n, found in enumerate(self._groups) for m in found.members}
        self._summaries.clear()
        if self._graph is None:
            for number, found in enumerate(self._groups):
                self._summaries.add(number, found.summary)
        else:
            for member in set(self._graph.members()) - set(self._bits):
                self._graph.remove(member)
            for member in self._bits:
                self._graph.put(member, summaries[member].entries)

    def on_summary(self, member: NodeId, summary: Summary) -> None:
        """A member's subscriptions changed: its channel wants these too, so that no event is lost."""
        bit = self._bits.get(member)
        if bit is None:
            return
        if self._graph is not None:
            self._graph.put(member, summary.entries)
            return
        number = bit.bit_length() - 2
        self._summaries.add(number, self._summaries[number].union(summary))

    def bit(self, member: NodeId) -> int:
        return self._bits.get(member, UNGROUPED)

    def claim(self, digest: EventDigest | None) -> int:
        """The bits of the channels that want the event; all of them where nothing is known about it."""
        if digest is None:
            return sum(2 << number for number in range(len(self._groups)))
        if self._graph is not None:
            return 2 if self._groups and self._graph.matches(digest) else 0
        return sum(2 << number for number in self._summaries.matching(digest))

    def clear(self) -> None:
        """Nobody is left to group. The epoch stays: it must not be used twice."""
        if self._groups:
            self.epoch += 1
        self._groups, self._bits = [], {}
        self._summaries.clear()
        if self._graph is not None:
            self._graph = CoveringGraph()
