"""Labels: how near a node is to a leader, and how fresh that is. Their order is what forbids cycles.

The original protocol compares group sequence number and hop count, each by itself. Here both, with the
leader's identifier between them, make one total order. Three rules keep it useful (`docs/protocols/tree.md`
has the proof): a node's label only ever gets better; a node links below another only if that one's label is
strictly better; and only a node without an upstream may improve its label beyond what an upstream states.
"""

from typing import NamedTuple

from roamcast.units import NodeId

RANKS_PER_HOP = 1 << 20
"""Ranks are hop counts with room between them: a path can be turned round, or a reply can improve the labels
of the nodes it passes, without waiting for the leader's next group hello. Chosen by us; any number far
above that of such steps between two group hellos works."""


class Label(NamedTuple):
    """`rank`: hops to the leader times `RANKS_PER_HOP`, lowered or raised by ones in between."""

    sequence: int
    leader: NodeId
    rank: int

    def better_than(self, other: "Label") -> bool:
        """A fresher sequence wins; identifiers break ties between leaders; then the lower rank."""
        if self.sequence != other.sequence:
            return self.sequence > other.sequence
        if self.leader != other.leader:
            return self.leader > other.leader
        return self.rank < other.rank

    def moved(self, ranks: int) -> "Label":
        return Label(self.sequence, self.leader, self.rank + ranks)

    def better_of(self, other: "Label") -> "Label":
        return self if self.better_than(other) else other
