"""The contact plan and the faults, played on the links of an engine. Nodes are told nothing: they are to
find out by themselves, as they must in the field."""

from collections.abc import Callable, Iterator

from roamcast.runtime.sim.engine import FAULTS_NEXT, LINKS_FIRST, Engine
from roamcast.runtime.sim.links import Links
from roamcast.scenario.faults import FaultPlan, faults
from roamcast.scenario.model import FaultKind, Scenario
from roamcast.scenario.world import plan_of
from roamcast.trace import FaultHappened, LinkChanged, Record
from roamcast.units import Micros, NodeId

LinkStep = tuple[Micros, bool, NodeId, NodeId]
"""When, up or down, sender, receiver. Sorted, downs come before ups of the same instant."""


class Playback:
    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        links: Links,
        trace: Callable[[Record], None],
        on_node: Callable[[NodeId, bool], None],
    ) -> None:
        """`on_node` hears of crashes (False) and restarts (True), when the links have changed."""
        self._engine = engine
        self._links = links
        self._trace = trace
        self._on_node = on_node
        plan = plan_of(scenario)
        self._both = not plan.directed
        starts = zip(plan.start.tolist(), plan.sender.tolist(), plan.receiver.tolist(), strict=True)
        ends = zip(plan.end.tolist(), plan.sender.tolist(), plan.receiver.tolist(), strict=True)
        steps: list[LinkStep] = [(t, True, a, b) for t, a, b in starts if t < scenario.duration]
        steps += [(t, False, a, b) for t, a, b in ends if t < scenario.duration]
        self._steps: Iterator[LinkStep] = iter(sorted(steps))
        self._faults: Iterator[FaultPlan] = iter(faults(scenario))
        self._schedule_step()
        self._schedule_fault()

    def _schedule_step(self) -> None:
        step = next(self._steps, None)
        if step is not None:
            self._engine.world_at(step[0], LINKS_FIRST, self._step, step)

    def _step(self, step: LinkStep) -> None:
        _, up, sender, receiver = step
        if self._both:
            self._change(sender, receiver, self._links.plan, up)
        elif self._links.plan(sender, receiver, up):
            self._trace(LinkChanged(self._engine.now, sender, receiver, False, up))
        self._schedule_step()

    def _change(
        self, a: NodeId, b: NodeId, change: Callable[[NodeId, NodeId, bool], bool], value: bool
    ) -> None:
        """Both directions change; what differs afterwards is traced."""
        forth, back = change(a, b, value), change(b, a, value)
        if forth or back:
            sender, receiver = (a, b) if forth else (b, a)
            up = self._links.linked(sender, receiver)
            self._trace(LinkChanged(self._engine.now, sender, receiver, forth and back, up))

    def _schedule_fault(self) -> None:
        fault = next(self._faults, None)
        if fault is not None:
            self._engine.world_at(fault.time, FAULTS_NEXT, self._happen, fault)

    def _happen(self, fault: FaultPlan) -> None:
        self._trace(FaultHappened(self._engine.now, fault.kind.value, fault.node, fault.peer))
        match fault.kind:
            case FaultKind.CRASH:
                self._links.crash(fault.node)
                self._on_node(fault.node, False)
            case FaultKind.RESTART:
                self._links.restart(fault.node)
                self._on_node(fault.node, True)
            case FaultKind.CUT | FaultKind.HEAL:
                assert fault.peer is not None
                self._change(fault.node, fault.peer, self._links.cut, fault.kind is FaultKind.CUT)
        self._schedule_fault()
