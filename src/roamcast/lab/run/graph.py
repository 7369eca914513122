"""The contact graph of a finished run, replayed from its trace.

Sets of nodes are integers with bit n for node n: a breadth-first search is then a few operations on
whole sets, and a thousand of them take less time than reading their links. Links go from sender to
receiver; a node that is down keeps its links in the plan, but nothing passes through it.

At equal times the changes come first: a link that goes up at `t` is there for what happens at `t`.
The runtimes play the contact plan and the faults before anything else of the same instant.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from roamcast.trace import FaultHappened, LinkChanged, NodeSet
from roamcast.units import Micros, NodeId

Numbers = npt.NDArray[np.int64]
UNPACKED_BYTES_MAX = 1 << 26  # of sets that `unpack` reads at a time; chosen by us


class ContactGraph:
    """Who hears whom at the current instant, which only moves forward."""

    def __init__(self, links: Iterable[LinkChanged], faults: Iterable[FaultHappened]) -> None:
        self._changes = sorted(links, key=_time)
        self._faults = sorted((f for f in faults if f.kind in ("crash", "restart")), key=_time)
        self._next_change = 0
        self._next_fault = 0
        self._hearers: dict[NodeId, NodeSet] = {}
        self._down: NodeSet = 0
        self.now: Micros = 0
        self.epoch = 0  # grows with each change, so that results can be kept between changes

    def advance(self, to: Micros) -> None:
        """Play every change up to and including `to`."""
        assert to >= self.now, "the graph is replayed forwards"
        self.now = to
        while self._next_change < len(self._changes) and self._changes[self._next_change].t <= to:
            self._play(self._changes[self._next_change])
            self._next_change += 1
        while self._next_fault < len(self._faults) and self._faults[self._next_fault].t <= to:
            fault = self._faults[self._next_fault]
            bit = 1 << fault.node
            self._down = self._down | bit if fault.kind == "crash" else self._down & ~bit
            self._next_fault += 1
            self.epoch += 1

    # Questions.

    def hearers(self, node: NodeId) -> NodeSet:
        """Who would hear `node` if it sent now."""
        if self._down >> node & 1:
            return 0
        return self._hearers.get(node, 0) & ~self._down

    def levels(self, source: NodeId) -> list[NodeSet]:
        """`levels(source)[h]`: the nodes whose shortest path from `source` has h hops."""
        seen = 1 << source
        levels = [seen]
        while True:
            reached = 0
            for node in members(levels[-1]):
                reached |= self.hearers(node)
            reached &= ~seen
            if not reached:
                return levels
            seen |= reached
            levels.append(reached)

    def parents(self, sources: NodeSet) -> dict[NodeId, NodeId]:
        """For each node that `sources` can reach: the node before it on a shortest path.

        Of several shortest paths the one through the lowest node numbers is taken.
        """
        parents: dict[NodeId, NodeId] = {}
        seen = frontier = sources
        while frontier:
            reached = 0
            for node in members(frontier):
                new = self.hearers(node) & ~seen
                seen |= new
                reached |= new
                for hearer in members(new):
                    parents[hearer] = node
            frontier = reached
        return parents

    def path_lengths(self, nodes: Sequence[NodeId], size: int) -> tuple[int, int]:
        """Over ordered pairs of `nodes` with a path: how many pairs, and the sum of their hops.

        All sources advance at once: row n of a bit matrix holds what n reaches within h hops, and one
        step joins the rows of its hearers.
        """
        offsets, hearers = unpack([self.hearers(node) for node in range(size)])
        senders = np.flatnonzero(np.diff(offsets))
        wanted = _packed_identity(size)
        among = np.bitwise_or.reduce(wanted[list(nodes)], axis=0) if nodes else wanted[:0].sum(axis=0)
        rows = np.array(sorted(nodes), dtype=np.int64)
        reach = wanted
        pairs = total = hops = 0
        while len(senders) and len(rows):
            hops += 1
            wider = reach.copy()
            wider[senders] |= np.bitwise_or.reduceat(reach[hearers], offsets[senders], axis=0)
            new = int(np.bitwise_count((wider[rows] & ~reach[rows]) & among).sum())
            if np.array_equal(wider, reach):
                break
            pairs += new
            total += hops * new
            reach = wider
        return pairs, total

    # Private.

    def _play(self, change: LinkChanged) -> None:
        self._set(change.sender, change.receiver, change.up)
        if change.both:
            self._set(change.receiver, change.sender, change.up)
        self.epoch += 1

    def _set(self, sender: NodeId, receiver: NodeId, up: bool) -> None:
        hearers = self._hearers.get(sender, 0)
        bit = 1 << receiver
        self._hearers[sender] = hearers | bit if up else hearers & ~bit


class LinkHistory:
    """For any past instant: whether a link was up, whether a node was up."""

    def __init__(self, links: Iterable[LinkChanged], faults: Iterable[FaultHappened]) -> None:
        self._links: dict[tuple[NodeId, NodeId], list[tuple[Micros, bool]]] = {}
        for change in sorted(links, key=_time):
            self._links.setdefault((change.sender, change.receiver), []).append((change.t, change.up))
            if change.both:
                self._links.setdefault((change.receiver, change.sender), []).append((change.t, change.up))
        self._nodes: dict[NodeId, list[tuple[Micros, bool]]] = {}
        for fault in sorted(faults, key=_time):
            if fault.kind in ("crash", "restart"):
                self._nodes.setdefault(fault.node, []).append((fault.t, fault.kind == "restart"))

    def link_down_since(self, sender: NodeId, receiver: NodeId, at: Micros) -> Micros | None:
        """When the link that is down at `at` went down: None if it is up, -1 if it was never up before."""
        return _down_since(self._links.get((sender, receiver), []), at, before=-1)

    def link_falls(self, sender: NodeId, receiver: NodeId, start: Micros, end: Micros) -> Micros | None:
        """The first instant in [start, end] at which the link is down."""
        return _first_down(self._links.get((sender, receiver), []), start, end, before=-1)

    def down_since(self, node: NodeId, at: Micros) -> Micros | None:
        """When the node that is down at `at` crashed; None if it is up."""
        return _down_since(self._nodes.get(node, []), at, before=None)

    def first_down(self, node: NodeId, start: Micros, end: Micros) -> Micros | None:
        """The first instant in [start, end] at which the node is down."""
        return _first_down(self._nodes.get(node, []), start, end, before=None)

    def up_in(self, node: NodeId, start: Micros, end: Micros) -> bool:
        """Whether the node was up at some instant of [start, end]."""
        if self.down_since(node, start) is None:
            return True
        changes = self._nodes[node]
        return any(up for t, up in changes[bisect_right(changes, (start, True)) :] if t <= end)


def members(nodes: NodeSet) -> Iterator[NodeId]:
    """The nodes of a set, in increasing order."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def unpack(sets: Sequence[NodeSet]) -> tuple[Numbers, npt.NDArray[np.int32]]:
    """Many sets at once as one list of nodes: set i holds `nodes[offsets[i]:offsets[i + 1]]`, sorted."""
    width = max(1, (max((nodes.bit_length() for nodes in sets), default=0) + 7) // 8)
    rows_max = max(1, UNPACKED_BYTES_MAX // width)
    counts: list[Numbers] = [np.zeros(1, dtype=np.int64)]
    found: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(sets), rows_max):
        part = sets[start : start + rows_max]
        octets = np.frombuffer(b"".join([nodes.to_bytes(width, "little") for nodes in part]), np.uint8)
        # A set has a few neighbours among thousands of nodes: only octets that are not zero are looked into.
        used = np.flatnonzero(octets)
        octet, bit = np.nonzero(np.unpackbits(octets[used, np.newaxis], axis=1, bitorder="little"))
        row, column = np.divmod(used[octet], width)
        counts.append(np.bincount(row, minlength=len(part)))
        found.append((8 * column + bit).astype(np.int32))
    nodes = np.concatenate(found) if found else np.zeros(0, dtype=np.int32)
    return np.cumsum(np.concatenate(counts)), nodes


def _packed_identity(size: int) -> npt.NDArray[np.uint64]:
    words = (size + 63) // 64
    identity = np.zeros((size, words), dtype=np.uint64)
    node = np.arange(size)
    identity[node, node // 64] = np.uint64(1) << (node % 64).astype(np.uint64)
    return identity


def _time(record: LinkChanged | FaultHappened) -> Micros:
    return record.t


def _down_since(changes: list[tuple[Micros, bool]], at: Micros, before: Micros | None) -> Micros | None:
    """`before` is the result for the time before the first change: None if the first state is up."""
    index = bisect_right(changes, (at, True))  # (at, False) < (at, True): all changes at `at` are past
    while index and not changes[index - 1][1]:
        if index == 1 or changes[index - 2][1]:
            return changes[index - 1][0]
        index -= 1  # reported down twice: the first report counts
    return None if index else before


def _first_down(
    changes: list[tuple[Micros, bool]], start: Micros, end: Micros, before: Micros | None
) -> Micros | None:
    if _down_since(changes, start, before) is not None:
        return start
    for t, up in changes[bisect_right(changes, (start, True)) :]:
        if t > end:
            return None
        if not up:
            return t
    return None
