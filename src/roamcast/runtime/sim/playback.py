"""The contact plan and the faults, applied to links over time, in simulation and emulation alike."""

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple, Protocol

from roamcast.runtime.sim.engine import FAULTS_NEXT, LINKS_FIRST, Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.scenario.model import FaultKind, Scenario
from roamcast.scenario.workload import FaultPlan, faults
from roamcast.scenario.world import motion_of, plan_of, sensing_plan_of
from roamcast.trace import FaultHappened, LinkChanged, Moved, Record
from roamcast.units import Micros, NodeId
from roamcast.world.contacts import ContactPlan
from roamcast.world.trajectory import Motion


class Inhabitants(Protocol):
    """Whoever runs the nodes. An emulated node gets no message about links: it must notice by itself."""

    def on_link(self, sender: NodeId, receiver: NodeId, up: bool) -> None:
        """A link has changed; where both directions did, this is one of them."""
        ...

    def on_crash(self, node: NodeId) -> None:
        """A node goes down. Its links stand until this has called `RadioLinks.crash`."""
        ...

    def on_restart(self, node: NodeId) -> None: ...


class PlanStep(NamedTuple):
    """One row of a plan. Sorted, downs come before ups of the same instant, sensing after reception."""

    moment: Micros
    up: bool
    is_sensing: bool
    sender: NodeId
    receiver: NodeId
    both: bool


class Playback:
    """Changes `links` and, where the radio senses farther than it receives, `sensed` too; otherwise the two
    are one object."""

    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        trace: Callable[[Record], None],
        inhabitants: Inhabitants,
        motion: Motion | None = None,
    ) -> None:
        self._engine = engine
        self._trace = trace
        self._inhabitants = inhabitants
        self.links = self.sensed = RadioLinks(scenario.nodes)
        motion = motion or motion_of(scenario)
        for knot in [] if motion is None else knots(motion, scenario.duration):
            trace(knot)
        rows = list(_rows(plan_of(scenario, motion), scenario.duration, is_sensing=False))
        farther = sensing_plan_of(scenario, motion)
        if farther is not None:
            self.sensed = RadioLinks(scenario.nodes)
            rows.extend(_rows(farther, scenario.duration, is_sensing=True))
        rows.sort()
        self._steps = groupby(rows, itemgetter(0))
        self._faults = iter(faults(scenario))
        self._schedule_steps()
        self._schedule_fault()

    def _schedule_steps(self) -> None:
        moment, steps = next(self._steps, (None, None))
        if moment is not None:
            # The group is read now: `groupby` empties it when the next group is asked for.
            self._engine.world_at(moment, LINKS_FIRST, self._play, list(steps or ()))

    def _play(self, steps: list[PlanStep]) -> None:
        links, sensed = self.links, self.sensed
        for _, up, is_sensing, sender, receiver, both in steps:
            if is_sensing:
                sensed.plan(sender, receiver, up)
                if both:
                    sensed.plan(receiver, sender, up)
            elif both:
                self._change(sender, receiver, links.plan, up)
            elif links.plan(sender, receiver, up):
                self._changed(sender, receiver, False, up)
        self._schedule_steps()

    def _change(
        self, a: NodeId, b: NodeId, change: Callable[[NodeId, NodeId, bool], bool], value: bool
    ) -> None:
        """Change both directions; what differs afterwards is traced and reported."""
        forth, back = change(a, b, value), change(b, a, value)
        if forth or back:
            sender, receiver = (a, b) if forth else (b, a)
            self._changed(sender, receiver, forth and back, self.links.linked(sender, receiver))

    def _changed(self, sender: NodeId, receiver: NodeId, both: bool, up: bool) -> None:
        self._trace(LinkChanged(self._engine.now, sender, receiver, both, up))
        self._inhabitants.on_link(sender, receiver, up)

    def _schedule_fault(self) -> None:
        fault = next(self._faults, None)
        if fault is not None:
            self._engine.world_at(fault.time, FAULTS_NEXT, self._happen_planned, fault)

    def _happen_planned(self, fault: FaultPlan) -> None:
        self.happen(fault)
        self._schedule_fault()

    def happen(self, fault: FaultPlan) -> None:
        """Now, whatever its time says: somebody may ask for one that the scenario does not have."""
        self._trace(FaultHappened(self._engine.now, fault.kind.value, fault.node, fault.peer))
        match fault.kind:
            case FaultKind.CRASH:
                self._inhabitants.on_crash(fault.node)
            case FaultKind.RESTART:
                self._inhabitants.on_restart(fault.node)
            case FaultKind.CUT | FaultKind.HEAL:
                assert fault.peer is not None
                is_cut = fault.kind is FaultKind.CUT
                if self.sensed is not self.links:  # an obstacle blocks sensing as well as reception
                    self.sensed.cut(fault.node, fault.peer, is_cut)
                    self.sensed.cut(fault.peer, fault.node, is_cut)
                self._change(fault.node, fault.peer, self.links.cut, is_cut)


def knots(motion: Motion, duration: Micros) -> list[Moved]:
    """Motion as records, by time: of each node the knots up to the first one at or after the end."""
    found = []
    for node, path in enumerate(motion.trajectories):
        count = min(int(path.times.searchsorted(duration)) + 1, len(path.times))
        gaps = [*path.gap.tolist(), False]
        rows = zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), gaps, strict=True)
        for t, x, y, gap in islice(rows, count):
            found.append(Moved(t, node, round(x, 6), round(y, 6), not gap))
    return sorted(found, key=lambda knot: (knot.t, knot.node))


def _rows(plan: ContactPlan, duration: Micros, *, is_sensing: bool) -> Iterator[PlanStep]:
    both = not plan.directed
    for up, moments in ((True, plan.start.tolist()), (False, plan.end.tolist())):
        for moment, sender, receiver in zip(
            moments, plan.sender.tolist(), plan.receiver.tolist(), strict=True
        ):
            if moment < duration:
                yield PlanStep(moment, up, is_sensing, sender, receiver, both)
