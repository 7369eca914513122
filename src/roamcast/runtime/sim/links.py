"""Who hears whom at this instant: the contact plan, less cut links and crashed nodes.

Sets of nodes are integers, bit n for node n: the media intersect and unite them once per transmission
instead of looping over receivers. `reach[n]` is the set that hears node n.
"""

from roamcast.units import NodeId

MEMBERS_CACHED_MAX = 65_536  # sets of nodes; chosen by us: memory against computing a set's members again


class RadioLinks:
    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.alive = (1 << nodes) - 1
        self.alone = [1 << node for node in range(nodes)]  # the set of each node by itself
        self.reach: list[int] = [0] * nodes
        self._heard: list[int] = [0] * nodes  # whom each node hears: `reach` the other way round
        self._planned: list[int] = [0] * nodes
        self._cut: list[int] = [0] * nodes  # receivers that a cut hides from this sender
        self._distances: dict[NodeId, list[int | None]] = {}
        self.members = Members(list(range(nodes)))

    # Changes. Each answers whether the link, not counting crashes, differs from before.

    def plan(self, sender: NodeId, receiver: NodeId, up: bool) -> bool:
        before = self.linked(sender, receiver)
        if up:
            self._planned[sender] |= 1 << receiver
        else:
            self._planned[sender] &= ~(1 << receiver)
        self._refresh(sender)
        return self.linked(sender, receiver) != before

    def cut(self, sender: NodeId, receiver: NodeId, is_cut: bool) -> bool:
        before = self.linked(sender, receiver)
        if is_cut:
            self._cut[sender] |= 1 << receiver
        else:
            self._cut[sender] &= ~(1 << receiver)
        self._refresh(sender)
        return self.linked(sender, receiver) != before

    def crash(self, node: NodeId) -> None:
        self.alive &= ~(1 << node)
        self._refresh_all()

    def restart(self, node: NodeId) -> None:
        self.alive |= 1 << node
        self._refresh_all()

    # Questions.

    def linked(self, sender: NodeId, receiver: NodeId) -> bool:
        """By plan and cuts, whether or not both nodes are up."""
        return bool((self._planned[sender] & ~self._cut[sender]) >> receiver & 1)

    def hears(self, sender: NodeId, receiver: NodeId) -> bool:
        return bool(self.reach[sender] >> receiver & 1)

    def neighbours(self, node: NodeId) -> list[NodeId]:
        """Those with a working link in both directions, in increasing order."""
        return list(self.members[self.reach[node] & self._heard[node]])

    def distance(self, node: NodeId, to: NodeId) -> int | None:
        """Hops of the shortest path from `node` to `to`, by one search per destination and link state."""
        if to not in self._distances:
            self._distances[to] = self._search(to)
        return self._distances[to][node]

    def connected(self, node: NodeId) -> list[NodeId]:
        """Every node that a path leads to, `node` included, in increasing order. Paths work both ways."""
        return [other for other in range(self.nodes) if self.distance(other, node) is not None]

    def next_hop(self, node: NodeId, to: NodeId) -> NodeId | None:
        """The lowest-numbered neighbour on a shortest path."""
        away = self.distance(node, to)
        if not away:
            return None
        distances, near = self._distances[to], self.members[self.reach[node] & self._heard[node]]
        return next(peer for peer in near if distances[peer] == away - 1)

    # Private.

    def _search(self, to: NodeId) -> list[int | None]:
        """Breadth first from `to` over links that work in both directions."""
        distances: list[int | None] = [None] * self.nodes
        reach, heard, members = self.reach, self._heard, self.members
        found = frontier = 1 << to
        hops = 0
        while frontier:
            ahead = 0
            for node in members[frontier]:
                distances[node] = hops
                ahead |= reach[node] & heard[node]
            frontier = ahead & ~found
            found |= frontier
            hops += 1
        return distances

    def _refresh(self, sender: NodeId) -> None:
        self._distances.clear()
        before = self.reach[sender]
        if self.alive >> sender & 1:
            self.reach[sender] = self._planned[sender] & ~self._cut[sender] & self.alive
        else:
            self.reach[sender] = 0
        for receiver in _bits(before ^ self.reach[sender]):
            self._heard[receiver] ^= self.alone[sender]

    def _refresh_all(self) -> None:
        for node in range(self.nodes):
            self._refresh(node)


class Members(dict[int, tuple[NodeId, ...]]):
    """The numbers in a set of nodes, increasing. The same sets come again and again, so the answers are
    cached; looking up a cached one costs no Python call."""

    def __init__(self, numbers: list[NodeId]) -> None:
        self._numbers = numbers  # of all nodes: the same objects in all answers

    def __missing__(self, nodes: int) -> tuple[NodeId, ...]:
        if len(self) >= MEMBERS_CACHED_MAX:
            self.clear()
        numbers = self._numbers
        self[nodes] = known = tuple([numbers[node] for node in _bits(nodes)])
        return known


def _bits(nodes: int) -> list[NodeId]:
    """From the highest down, so that what is left of a set of thousands of nodes gets shorter."""
    found = []
    while nodes:
        highest = nodes.bit_length() - 1
        found.append(highest)
        nodes ^= 1 << highest
    found.reverse()
    return found
