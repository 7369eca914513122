"""The health of an overlay, from the trace of a finished run: cycles and excess partitions.

A link of the overlay stands while both its ends have it up (`OverlayChanged` with `link_up` and
`link_down`, recorded by each end for itself). A crash ends a node's links without a record. The physical
partitions are the components of the contact graph over links that work both ways, less crashed nodes.
All changes of one instant count together: states between them last for no time.
"""

from collections.abc import Iterable
from itertools import chain
from typing import TypeAlias

from roamcast.lab.run.derived import OverlayJudged
from roamcast.trace import FaultHappened, LinkChanged, OverlayChanged
from roamcast.units import Micros, NodeId

Pair = tuple[NodeId, NodeId]
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
        changes.setdefault(record.t, []).append(record)
    state = _State(nodes)
    cycles = 0
    excess = 0  # component-microseconds
    since, beyond = warmup, 0
    for moment in sorted(changes):
        if moment >= duration:
            break
        if moment > since:
            excess += beyond * (moment - since)
            since = moment
        for record in changes[moment]:
            state.play(record)
        beyond = state.excess()
        if moment >= warmup and state.has_cycle():
            cycles += 1
    span = duration - warmup
    if span <= 0:
        return OverlayJudged(cycles, None)
    excess += beyond * (duration - max(since, warmup))
    return OverlayJudged(cycles, excess / span)


class _State:
    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._down: set[NodeId] = set()
        self._ends: set[Pair] = set()  # (node, peer): the node has a tree link to the peer up
        self._heard: set[Pair] = set()  # (sender, receiver)

    def play(self, record: Change) -> None:
        match record:
            case OverlayChanged(node=node, peer=int() as peer):
                _set(self._ends, (node, peer), record.change == "link_up")
            case LinkChanged(sender=sender, receiver=receiver):
                _set(self._heard, (sender, receiver), record.up)
                if record.both:
                    _set(self._heard, (receiver, sender), record.up)
            case FaultHappened(kind="crash", node=node):
                self._down.add(node)
                self._ends = {end for end in self._ends if end[0] != node}
            case FaultHappened(kind="restart", node=node):
                self._down.discard(node)

    def excess(self) -> int:
        return self._components(self._tree()) - self._components(_mutual(self._heard))

    def has_cycle(self) -> bool:
        tree = self._tree()
        return len(tree) > self._nodes - len(self._down) - self._components(tree)

    def _tree(self) -> list[Pair]:
        return _mutual(self._ends)

    def _components(self, pairs: list[Pair]) -> int:
        """Of the nodes that are up; by union-find."""
        group = list(range(self._nodes))

        def root(node: NodeId) -> NodeId:
            while group[node] != node:
                group[node] = node = group[group[node]]
            return node

        count = self._nodes - len(self._down)
        for a, b in pairs:
            if a in self._down or b in self._down:
                continue
            one, other = root(a), root(b)
            if one != other:
                group[one] = other
                count -= 1
        return count


def _mutual(ends: set[Pair]) -> list[Pair]:
    return [(a, b) for a, b in ends if a < b and (b, a) in ends]


def _set(pairs: set[Pair], pair: Pair, up: bool) -> None:
    if up:
        pairs.add(pair)
    else:
        pairs.discard(pair)
