"""What ideal store-and-carry would have delivered: the ceiling for memorized events.

Ideal means: every node keeps every event for its whole lifetime and gives it, at once and without loss, to
every node it meets. An event then spreads over the contact graph as fast as the graph allows: it is flooding
over time, and the instant at which it reaches a node is that node's earliest arrival. No protocol can do
better, and none reaches it: a real protocol must detect a contact before it can use it.

A crash loses nothing (memorized events are on disk), but a node that is down neither gives nor takes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.event import EventClass
from roamcast.lab.run.graph import IdealSpread
from roamcast.lab.run.tables import Expected, RunInfo, records
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published
from roamcast.units import Micros, NodeId

Pair = tuple[NodeId, int, NodeId]
"""Publisher, sequence, and the node that should get the event."""


@dataclass(frozen=True)
class IdealShare:
    """Of the expected pairs after the warm-up."""

    expected: int
    ideal: int  # those that ideal store-and-carry serves within the event's lifetime and the run
    delivered: int  # those of the ideal ones that were delivered

    @property
    def share(self) -> float | None:
        return self.delivered / self.ideal if self.ideal else None

    @property
    def ceiling(self) -> float | None:
        """What ideal store-and-carry reaches of everything expected."""
        return self.ideal / self.expected if self.expected else None


def share_of_ideal(tables: Mapping[str, pa.Table], run: RunInfo, grace: Micros = 0) -> IdealShare:
    """How much of the ideal a run delivered. The ideal counts only arrivals until `grace` before the end,
    because no real protocol delivers over a contact that begins in the last instant of a run."""
    publications = [event for event in records(tables, Published) if event.t >= run.warmup]
    counted = {(event.publisher, event.sequence) for event in publications}
    expected = {
        (pair.publisher, pair.sequence, pair.node)
        for pair in records(tables, Expected)
        if (pair.publisher, pair.sequence) in counted
    }
    arrivals = earliest_arrivals(
        publications, records(tables, LinkChanged), records(tables, FaultHappened), run.duration - grace
    )
    ideal = expected & arrivals.keys()
    served = {(d.publisher, d.sequence, d.node) for d in records(tables, Delivered) if d.matched}
    return IdealShare(len(expected), len(ideal), len(ideal & served))


def earliest_arrivals(
    publications: Iterable[Published],
    links: Iterable[LinkChanged],
    faults: Iterable[FaultHappened],
    duration: Micros,
) -> dict[Pair, Micros]:
    """For each event and each other node that it can reach: the earliest arrival.

    Counted are arrivals before the end of the run and within the lifetime, its last instant included. A
    real-time event has no lifetime, so it reaches only the nodes that it reaches at once. Changes of the
    graph at an instant come before publications at it.
    """
    spread = IdealSpread(list(links), list(faults))
    arrivals: dict[Pair, Micros] = {}
    for event in publications:
        if event.t < duration:
            lifetime = event.lifetime if event.event_class == EventClass.MEMORIZED.value else 0
            deadline = min(event.t + lifetime, duration - 1)
            reached = spread.reached({event.publisher: event.t}, event.t, deadline)
            for node, (_, t) in reached.items():
                arrivals[event.publisher, event.sequence, node] = t
    return arrivals
