"""The contacts of a finished run, replayed from its trace: who heard whom, and what could have reached whom.

Links go from sender to receiver; a node that is down keeps its links in the plan, but nothing passes through
it. At equal times the changes come first: a link that goes up at `t` is there for what happens at `t`. The
runtimes play the contact plan and the faults before anything else of the same instant.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from roamcast.trace import FaultHappened, LinkChanged, NodeSet
from roamcast.units import Micros, NodeId
from roamcast.world import reach

Numbers = npt.NDArray[np.int64]
Link = tuple[NodeId, NodeId]
Key = TypeVar("Key")
UNPACKED_BYTES_MAX = 1 << 26  # of sets that `unpack` reads at a time; chosen by us


class ContactGraph:
    """Who hears whom at the current instant, which only moves forward."""

    def __init__(self, links: Iterable[LinkChanged], faults: Iterable[FaultHappened]) -> None:
        changes: list[LinkChanged | FaultHappened] = [*links]
        changes.extend(fault for fault in faults if fault.kind in ("crash", "restart"))
        self._to_come = sorted(changes, key=_time)
        self._to_come.reverse()  # the next one last
        self._hearers: defaultdict[NodeId, NodeSet] = defaultdict(int)
        self.down: NodeSet = 0
        self.now: Micros = 0
        self.epoch = 0  # grows with each change, so that results can be kept between changes

    def advance(self, to: Micros) -> None:
        """Play every change up to and including `to`."""
        assert to >= self.now, "the graph is replayed forwards"
        self.now = to
        while self._to_come and self._to_come[-1].t <= to:
            change = self._to_come.pop()
            self.epoch += 1
            if isinstance(change, FaultHappened):
                self.down = _with(self.down, change.node, change.kind == "crash")
            else:
                for sender, receiver in _links_of(change):
                    self._hearers[sender] = _with(self._hearers[sender], receiver, change.up)

    # Questions.

    def hearers(self, node: NodeId) -> NodeSet:
        """Who would hear `node` if it sent now."""
        return 0 if self.down >> node & 1 else self._hearers[node] & ~self.down

    def distances(self, source: NodeId) -> dict[NodeId, int]:
        """The hops of the shortest path to each node that has one."""
        rings = reach.rings(1 << source, self.hearers)
        return {node: hops for hops, ring in enumerate(rings) for node in ring}

    def parents(self, sources: NodeSet) -> dict[NodeId, NodeId]:
        """For each node that `sources` can reach: the node before it on a shortest path."""
        return reach.parents(sources, self.hearers)

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


class UpTimes(Generic[Key]):
    """When links, or nodes, were up and down."""

    def __init__(self, changes: Iterable[tuple[Key, Micros, bool]], before: Micros | None = None) -> None:
        """Changes come by time. `before`: since when one is down that has not changed yet; None: it is up."""
        self._before = before
        self._changes: dict[Key, list[tuple[Micros, bool]]] = {}
        for key, t, up in changes:
            self._changes.setdefault(key, []).append((t, up))

    def __bool__(self) -> bool:
        return bool(self._changes)

    def down_since(self, key: Key, at: Micros) -> Micros | None:
        """When what is down at `at` went down; None if it is up."""
        changes = self._changes.get(key, [])
        index = bisect_right(changes, (at, True))  # (at, False) < (at, True): all changes at `at` are past
        while index and not changes[index - 1][1]:
            if index == 1 or changes[index - 2][1]:
                return changes[index - 1][0]
            index -= 1  # reported down twice: the first report counts
        return None if index else self._before

    def first_down(self, key: Key, start: Micros, end: Micros) -> Micros | None:
        """The first instant in [start, end] at which it is down."""
        if self.down_since(key, start) is not None:
            return start
        return next((t for t, up in self._between(key, start, end) if not up), None)

    def up_in(self, key: Key, start: Micros, end: Micros) -> bool:
        """Whether it was up at some instant of [start, end]."""
        return self.down_since(key, start) is None or any(up for _, up in self._between(key, start, end))

    def _between(self, key: Key, start: Micros, end: Micros) -> list[tuple[Micros, bool]]:
        changes = self._changes.get(key, [])
        return changes[bisect_right(changes, (start, True)) : bisect_right(changes, (end, True))]


def links_up(links: Iterable[LinkChanged]) -> UpTimes[Link]:
    """Of each direction of a link. One that was never up is down since -1."""
    return UpTimes(
        ((link, change.t, change.up) for change in sorted(links, key=_time) for link in _links_of(change)),
        before=-1,
    )


def nodes_up(faults: Iterable[FaultHappened]) -> UpTimes[NodeId]:
    in_time = sorted(faults, key=_time)
    return UpTimes((f.node, f.t, f.kind == "restart") for f in in_time if f.kind in ("crash", "restart"))


class IdealSpread:
    """Which nodes ideal store-and-forward would have reached: an event's spread over all later contacts."""

    def __init__(self, links: Sequence[LinkChanged], faults: Sequence[FaultHappened]) -> None:
        self._links, self._faults = links, faults
        # Each time at which a path may open, with its two ends: a link comes up, a node restarts.
        rises: list[tuple[Micros, NodeSet, NodeSet]] = [
            (change.t, 1 << sender, 1 << receiver)
            for change in links
            if change.up
            for sender, receiver in _links_of(change)
        ]
        for fault in faults:
            if fault.kind == "restart":
                rises.append((fault.t, -1, 1 << fault.node))  # from anyone
                rises.append((fault.t, 1 << fault.node, -1))  # to anyone
        self._rises = sorted(rises)

    def reached(
        self, held_since: Mapping[NodeId, Micros], since: Micros, deadline: Micros
    ) -> dict[NodeId, tuple[NodeId, Micros]]:
        """The nodes that would have the event by the deadline: from which node, and when."""
        graph = ContactGraph(self._links, self._faults)
        reached: dict[NodeId, tuple[NodeId, Micros]] = {}
        seen: NodeSet = 0
        arrivals = [(max(held, since), 1 << holder) for holder, held in held_since.items()]
        first = bisect_right(self._rises, since, key=lambda rise: rise[0])
        # A new link matters only if it leads from a reached node to one that is not reached.
        steps = sorted(
            [(t, 0, bit) for t, bit in arrivals]
            + [(since, 0, 0)]
            + [(t, from_, to) for t, from_, to in self._rises[first:] if t <= deadline]
        )
        for t, from_, to in steps:
            if from_ == 0:
                seen |= to
            elif not (seen & from_ and to & ~seen):
                continue
            graph.advance(t)
            for node, giver in graph.parents(seen).items():
                seen |= 1 << node
                reached[node] = (giver, t)
        return reached


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


def _links_of(change: LinkChanged) -> list[Link]:
    """A link that changed, or the two directions that did so together."""
    forth, back = (change.sender, change.receiver), (change.receiver, change.sender)
    return [forth, back] if change.both else [forth]


def _with(nodes: NodeSet, node: NodeId, is_in: bool) -> NodeSet:
    return nodes | 1 << node if is_in else nodes & ~(1 << node)


def _time(record: LinkChanged | FaultHappened) -> Micros:
    return record.t
