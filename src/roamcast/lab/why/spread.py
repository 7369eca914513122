"""Which nodes ideal store-and-forward would have reached: an event's spread over all later contacts."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from roamcast.lab.run.graph import ContactGraph
from roamcast.trace import FaultHappened, LinkChanged, NodeSet
from roamcast.units import Micros, NodeId


class IdealSpread:
    def __init__(self, links: Sequence[LinkChanged], faults: Sequence[FaultHappened]) -> None:
        self._links, self._faults = links, faults
        self._rises = _rises(links, faults)

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


def _rises(
    links: Iterable[LinkChanged], faults: Iterable[FaultHappened]
) -> list[tuple[Micros, NodeSet, NodeSet]]:
    """Each time at which a path may open, with its two ends: a link comes up, a node restarts."""
    rises = []
    for change in links:
        if change.up:
            sender, receiver = 1 << change.sender, 1 << change.receiver
            rises.append((change.t, sender, receiver))
            if change.both:
                rises.append((change.t, receiver, sender))
    for fault in faults:
        if fault.kind == "restart":
            rises.append((fault.t, -1, 1 << fault.node))  # from anyone
            rises.append((fault.t, 1 << fault.node, -1))  # to anyone
    return sorted(rises)
