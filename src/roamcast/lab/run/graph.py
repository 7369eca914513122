"""The contacts of a finished run, replayed from its trace: who heard whom, and what could have reached whom.

Links go from sender to receiver; a node that is down keeps its links in the plan, but nothing passes through
it. At equal times the changes come first: a link that goes up at `t` is there for what happens at `t`. The
runtimes play the contact plan and the faults before anything else of the same instant.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

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


class Hop(NamedTuple):
    """The last hop of a journey: who sends, when it begins, and when the frame has arrived."""

    giver: NodeId
    sent: Micros
    t: Micros


class Journeys:
    """Foremost journeys: whom an event can reach by when, if every node keeps it and sends it on at once,
    without loss, over all later contacts (Bui Xuan, Ferreira, Jarry 2003). No protocol is faster.

    A hop takes one frame's airtime inside a contact. A contact lasts while the link is up and both nodes are;
    a crash loses nothing, because the limit is for any protocol, also for one that keeps what it has on disk.
    """

    def __init__(self, links: Iterable[LinkChanged], faults: Iterable[FaultHappened]) -> None:
        # By sender and receiver: when contacts begin, and when they end.
        self._contacts: defaultdict[NodeId, dict[NodeId, tuple[list[Micros], list[Micros]]]]
        self._contacts = defaultdict(dict)
        changes: list[LinkChanged | FaultHappened] = [*links]
        changes.extend(fault for fault in faults if fault.kind in ("crash", "restart"))
        changes.sort(key=_time)
        self._instants = [change.t for change in changes]
        up: set[Link] = set()
        of_node: defaultdict[NodeId, set[Link]] = defaultdict(set)  # all its links, both directions
        down: set[NodeId] = set()
        for change in changes:
            if isinstance(change, LinkChanged):
                touched = _links_of(change)
                (up.update if change.up else up.difference_update)(touched)
                for link in touched:
                    of_node[link[0]].add(link)
                    of_node[link[1]].add(link)
            else:
                (down.add if change.kind == "crash" else down.discard)(change.node)
                touched = list(of_node[change.node])
            for link in touched:
                self._note(link, change.t, link in up and down.isdisjoint(link))

    def _note(self, link: Link, t: Micros, stands: bool) -> None:
        begins, ends = self._contacts[link[0]].setdefault(link[1], ([], []))
        if stands and len(begins) == len(ends):
            if ends and ends[-1] == t:
                ends.pop()  # down and up again in one instant: it was never down
            else:
                begins.append(t)
        elif not stands and len(begins) > len(ends):
            if begins[-1] == t:
                begins.pop()
            else:
                ends.append(t)

    def rests(self, start: Micros, end: Micros) -> bool:
        """Whether nothing changes in (start, end]."""
        return bisect_right(self._instants, start) == bisect_right(self._instants, end)

    def instants(self, start: Micros, end: Micros) -> list[Micros]:
        """When something changes in (start, end], each once."""
        return sorted(
            set(self._instants[bisect_right(self._instants, start) : bisect_right(self._instants, end)])
        )

    def connected(self, source: NodeId, t: Micros) -> list[NodeId]:
        """The nodes that a path leads to at an instant."""
        return list(self.earliest({source: t}, t, 0))

    def states(
        self, nodes: Sequence[NodeId], cuts: Sequence[Micros], end: Micros, ready: Mapping[NodeId, Micros]
    ) -> list[int]:
        """Who hears whom in the intervals that begin at `cuts`; the last one lasts to `end`, and has it.

        Bit k·n + j of element k·n + i: node j of the n nodes hears node i at some time of interval k, and
        node i may have what it sends by then: it is `ready`, or, if not named there, always so.
        """
        place = {node: at for at, node in enumerate(nodes)}
        hearers = [0] * (len(cuts) * len(nodes))
        for sender, node in enumerate(nodes):
            first = max(0, bisect_right(cuts, ready.get(node, 0)) - 1)
            for peer, (begins, ends) in self._contacts[node].items():
                if peer not in place:
                    continue
                for at in range(bisect_right(ends, cuts[0]), bisect_right(begins, end)):
                    last = len(cuts) if at == len(ends) else bisect_left(cuts, ends[at])
                    for interval in range(max(first, bisect_right(cuts, begins[at]) - 1), last):
                        state = interval * len(nodes)
                        hearers[state + sender] |= 1 << state + place[peer]
        return hearers

    def earliest(
        self, held_since: Mapping[NodeId, Micros], deadline: Micros, airtime: Micros, wanted: NodeSet = -1
    ) -> dict[NodeId, Hop]:
        """The hop by which the event can first be at each node until the deadline, its last instant included.
        The search ends once all `wanted` are reached."""
        arrivals = [(t, node, node, t) for node, t in held_since.items()]
        heapify(arrivals)
        best: dict[NodeId, Micros] = {}
        found: dict[NodeId, Hop] = {}
        settled: set[NodeId] = set()
        while arrivals and wanted:
            t, node, giver, sent = heappop(arrivals)
            if node in settled:
                continue
            settled.add(node)
            wanted &= ~(1 << node)
            if giver != node:
                found[node] = Hop(giver, sent, t)
            for receiver, (begins, ends) in self._contacts[node].items():
                if receiver in settled or receiver in held_since:
                    continue
                # A link that goes down as a frame ends has lost it: changes come first.
                for at in range(bisect_right(ends, t + airtime), len(begins)):
                    leaves = max(t, begins[at])
                    if at == len(ends) or leaves + airtime < ends[at]:
                        arrives = leaves + airtime
                        if arrives <= deadline and arrives < best.get(receiver, deadline + 1):
                            best[receiver] = arrives
                            heappush(arrivals, (arrives, receiver, node, leaves))
                        break
        return found


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
