"""Who hears whom at this instant: the contact plan, less cut links and crashed nodes.

Sets of nodes are integers, bit n for node n: the media intersect and unite them once per transmission
instead of looping over receivers. `reach[n]` is the set that hears node n.
"""

from roamcast.trace import NodeSet
from roamcast.units import NodeId
from roamcast.world.reach import members, rings

MEMBERS_CACHED_MAX = 65_536  # sets of nodes; chosen by us: memory against computing a set's members again


class RadioLinks:
    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.alive = (1 << nodes) - 1
        self.alone = [1 << node for node in range(nodes)]  # the set of each node by itself
        self.reach: list[NodeSet] = [0] * nodes
        self._heard: list[NodeSet] = [0] * nodes  # whom each node hears: `reach` the other way round
        self._near: list[NodeSet] = [0] * nodes  # those with a working link in both directions
        self._planned: list[NodeSet] = [0] * nodes
        self._cut: list[NodeSet] = [0] * nodes  # receivers that a cut hides from this sender
        self._distances: dict[NodeId, list[int | None]] = {}
        self.members = Members(list(range(nodes)))

    # Changes. Each answers whether the link, not counting crashes, differs from before.

    def plan(self, sender: NodeId, receiver: NodeId, up: bool) -> bool:
        return self._change(self._planned, sender, receiver, up)

    def cut(self, sender: NodeId, receiver: NodeId, is_cut: bool) -> bool:
        return self._change(self._cut, sender, receiver, is_cut)

    def crash(self, node: NodeId) -> None:
        self.alive &= ~(1 << node)
        self._refresh_all()

    def restart(self, node: NodeId) -> None:
        self.alive |= 1 << node
        self._refresh_all()

    # Questions.

    def linked(self, sender: NodeId, receiver: NodeId) -> bool:
        """Whether there is a link by plan and cuts, even if a node is down."""
        return bool((self._planned[sender] & ~self._cut[sender]) >> receiver & 1)

    def hears(self, sender: NodeId, receiver: NodeId) -> bool:
        return bool(self.reach[sender] >> receiver & 1)

    def neighbours(self, node: NodeId) -> list[NodeId]:
        """The nodes with a working link in both directions, in increasing order."""
        return list(self.members[self._near[node]])

    def distance(self, node: NodeId, to: NodeId) -> int | None:
        """Hops of the shortest path from `node` to `to` over links that work in both directions. There is
        one search per destination and link state."""
        if to not in self._distances:
            distances: list[int | None] = [None] * self.nodes
            self._distances[to] = distances
            for hops, ring in enumerate(rings(1 << to, self._near.__getitem__)):
                for reached in ring:
                    distances[reached] = hops
        return self._distances[to][node]

    def connected(self, node: NodeId) -> list[NodeId]:
        """Every node that a path leads to, `node` included, in increasing order. Paths work both ways."""
        return [other for other in range(self.nodes) if self.distance(other, node) is not None]

    def next_hop(self, node: NodeId, to: NodeId) -> NodeId | None:
        """The lowest-numbered neighbour on a shortest path."""
        away = self.distance(node, to)
        if not away:
            return None
        distances = self._distances[to]
        return next(peer for peer in self.members[self._near[node]] if distances[peer] == away - 1)

    # Private.

    def _change(self, sets: list[NodeSet], sender: NodeId, receiver: NodeId, is_in: bool) -> bool:
        before = self.linked(sender, receiver)
        if is_in:
            sets[sender] |= 1 << receiver
        else:
            sets[sender] &= ~(1 << receiver)
        self._refresh(sender)
        return self.linked(sender, receiver) != before

    def _refresh(self, sender: NodeId) -> None:
        self._distances.clear()
        before = self.reach[sender]
        if self.alive >> sender & 1:
            self.reach[sender] = self._planned[sender] & ~self._cut[sender] & self.alive
        else:
            self.reach[sender] = 0
        for receiver in members(before ^ self.reach[sender]):
            self._heard[receiver] ^= self.alone[sender]
            self._near[receiver] = self.reach[receiver] & self._heard[receiver]
        self._near[sender] = self.reach[sender] & self._heard[sender]

    def _refresh_all(self) -> None:
        for node in range(self.nodes):
            self._refresh(node)


class Members(dict[NodeSet, tuple[NodeId, ...]]):
    """The numbers in a set of nodes, increasing. The same sets come again and again, so the answers are
    cached; looking up a cached one costs no Python call."""

    def __init__(self, numbers: list[NodeId]) -> None:
        self._numbers = numbers  # of all nodes: the same objects in all answers

    def __missing__(self, nodes: NodeSet) -> tuple[NodeId, ...]:
        if len(self) >= MEMBERS_CACHED_MAX:
            self.clear()
        numbers = self._numbers
        self[nodes] = known = tuple([numbers[node] for node in members(nodes)])
        return known
