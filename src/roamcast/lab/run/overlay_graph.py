"""The health of an overlay, from the trace of a finished run: cycles and excess partitions.

A link of the overlay stands while both its ends have it up (`OverlayChanged` with `link_up` and
`link_down`, recorded by each end for itself). A crash ends a node's links without a record. The physical
partitions are the components of the contact graph over links that work both ways, less crashed nodes.
All changes of one instant count together: states between them last for no time.

Components are counted for all instants together, at a cost little more than linear in the number of changes:
the time in which a link stands is cut into a few segments of a binary tree, and a walk through that tree
joins and separates nodes as it enters and leaves a segment (offline dynamic connectivity).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import TypeAlias

from roamcast.lab.run.tables import OverlayJudged
from roamcast.trace import FaultHappened, LinkChanged, OverlayChanged
from roamcast.units import Micros, NodeId

Pair = tuple[NodeId, NodeId]
Span = tuple[NodeId, NodeId, int, int]  # a link, and the moments [first, last) in which it stood
Change: TypeAlias = OverlayChanged | LinkChanged | FaultHappened


def overlay_health(
    overlay: Iterable[OverlayChanged],
    links: Iterable[LinkChanged],
    faults: Iterable[FaultHappened],
    *,
    nodes: int,
    warmup: Micros,
    duration: Micros,
) -> OverlayJudged:
    """The verdict on one run. Both count from the end of the warm-up on."""
    changes: dict[Micros, list[Change]] = {}
    of_links = (each for each in overlay if each.change in ("link_up", "link_down"))
    records: tuple[Iterable[Change], ...] = (links, faults, of_links)
    for record in chain.from_iterable(records):
        if record.t < duration:
            changes.setdefault(record.t, []).append(record)
    moments = sorted(changes)
    tree, heard = _Links(), _Links()
    down: set[NodeId] = set()
    standing = []  # links of the tree, after each moment
    for number, moment in enumerate(moments):
        for record in changes[moment]:
            _play(record, tree, heard, down)
        tree.note(number, down)
        heard.note(number, down)
        standing.append(tree.count)
    of_tree = _joined(nodes, len(moments), tree.spans(len(moments)))
    of_heard = _joined(nodes, len(moments), heard.spans(len(moments)))
    cycles = sum(
        moment >= warmup and links > joined
        for moment, links, joined in zip(moments, standing, of_tree, strict=True)
    )
    span = duration - warmup
    if span <= 0:
        return OverlayJudged(cycles, None)
    ends = [*moments, duration][1:]
    excess = sum(  # component-microseconds; the overlay has more components by what it joins less
        (physical - logical) * (max(end, warmup) - max(moment, warmup))
        for moment, end, physical, logical in zip(moments, ends, of_heard, of_tree, strict=True)
    )
    return OverlayJudged(cycles, excess / span)


def _play(record: Change, tree: "_Links", heard: "_Links", down: set[NodeId]) -> None:
    match record:
        case OverlayChanged(node=node, peer=int() as peer):
            tree.change(node, peer, record.change == "link_up")
        case LinkChanged(sender=sender, receiver=receiver):
            heard.change(sender, receiver, record.up)
            if record.both:
                heard.change(receiver, sender, record.up)
        case FaultHappened(kind="crash", node=node):
            down.add(node)
            for peer in list(tree.peers[node]):
                tree.change(node, peer, False)
            heard.touch(node)
        case FaultHappened(kind="restart", node=node):
            down.discard(node)
            tree.touch(node)
            heard.touch(node)


class _Links:
    """Links with two ends, each up or down for itself, and the moments in which a link stood: both ends up
    and both nodes."""

    def __init__(self) -> None:
        self.peers: defaultdict[NodeId, set[NodeId]] = defaultdict(set)  # the ends that are up
        self.count = 0  # of links that stand
        self._touched: set[Pair] = set()
        self._since: dict[Pair, int] = {}
        self._ended: list[Span] = []

    def change(self, node: NodeId, peer: NodeId, up: bool) -> None:
        if up:
            self.peers[node].add(peer)
        else:
            self.peers[node].discard(peer)
        self._touched.add((node, peer) if node < peer else (peer, node))

    def touch(self, node: NodeId) -> None:
        """The node went down or came up: look at its links again."""
        self._touched.update((node, peer) if node < peer else (peer, node) for peer in self.peers[node])

    def note(self, moment: int, down: set[NodeId]) -> None:
        """All changes of a moment have been played."""
        for pair in self._touched:
            a, b = pair
            stands = b in self.peers[a] and a in self.peers[b] and a not in down and b not in down
            if stands and pair not in self._since:
                self._since[pair] = moment
            elif not stands and pair in self._since:
                self._ended.append((a, b, self._since.pop(pair), moment))
        self._touched.clear()
        self.count = len(self._since)

    def spans(self, moments: int) -> "list[Span]":
        return self._ended + [(a, b, since, moments) for (a, b), since in self._since.items()]


def _joined(nodes: int, moments: int, spans: "list[Span]") -> list[int]:
    """After each moment, by how many the links that stand make the components fewer than the nodes."""
    leaves = 1 << max(moments - 1, 0).bit_length()
    links: defaultdict[int, list[Pair]] = defaultdict(
        list
    )  # by segment; segment n has the halves 2n and 2n + 1
    for a, b, begin, end in spans:
        begin, end = begin + leaves, end + leaves
        while begin < end:
            if begin & 1:
                links[begin].append((a, b))
                begin += 1
            if end & 1:
                end -= 1
                links[end].append((a, b))
            begin, end = begin >> 1, end >> 1
    group, weight = list(range(nodes)), [1] * nodes  # union by weight, so that a union can be undone
    unions: list[NodeId] = []  # those that hold, in their order: which root got another one above it
    answer = [0] * moments

    def walk(segment: int, first: int, length: int) -> None:
        if first >= moments:
            return
        before = len(unions)
        for a, b in links.get(segment, ()):
            while group[a] != a:
                a = group[a]
            while group[b] != b:
                b = group[b]
            if a != b:
                if weight[a] > weight[b]:
                    a, b = b, a
                group[a] = b
                weight[b] += weight[a]
                unions.append(a)
        if length == 1:
            answer[first] = len(unions)
        else:
            walk(2 * segment, first, length // 2)
            walk(2 * segment + 1, first + length // 2, length // 2)
        while len(unions) > before:
            a = unions.pop()
            weight[group[a]] -= weight[a]
            group[a] = a

    walk(1, 0, leaves)
    return answer
