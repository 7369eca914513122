"""The port that the layers of a simulated node see (`roamcast.host.Host`)."""

from collections.abc import Callable, MutableMapping
from random import Random

from roamcast.host import Channel, CoreTimer, Frame, Layer, Position, SendFailure, TimerName
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.medium import Job, Medium
from roamcast.trace import Record, Trace
from roamcast.units import Micros, NodeId
from roamcast.world.trajectory import Trajectory


class SimTimer:
    """A timer that is set. Many are moved to later again and again before they are due (silent neighbours).
    The queue has one entry for each; if that comes too early, it goes back to where the timer is now."""

    __slots__ = ("at", "name", "number", "queued_at")

    def __init__(self, name: TimerName, at: Micros) -> None:
        self.name = name
        self.at = self.queued_at = at
        self.number = 0  # once it is moved: its place among the actions of that instant


class SimHost:
    """One layer of one node. After a crash it is dead: its timers never fire, its frames go nowhere."""

    def __init__(
        self,
        node: NodeId,
        channel: Channel,
        engine: Engine,
        medium: Medium,
        trace: Trace,
        random: Random,
        stable: MutableMapping[str, bytes],
        path: Trajectory | None,
    ) -> None:
        self.node = node
        self.random = random
        self.stable = stable
        self._channel = channel
        self._engine = engine
        self._medium = medium
        self._trace = trace
        self._path = path
        self._layer: Layer | None = None
        self._timers: dict[TimerName, SimTimer] = {}
        self._spare: SimTimer | None = None  # one that was due: an object is used again faster than made
        self._when_due = self._due  # made once: a bound method costs as much as a call

    def attach(self, layer: Layer) -> None:
        self._layer = layer

    def die(self) -> None:
        self._layer = None
        for name in list(self._timers):
            self.cancel_timer(name)

    def now(self) -> Micros:
        return self._engine.now

    def set_timer(self, name: TimerName, at: Micros) -> None:
        engine = self._engine
        if at < engine.now:
            at = engine.now
        timer = self._timers.get(name)
        if timer is not None and at <= timer.queued_at:
            self.cancel_timer(name)
            timer = None
        if timer is None:
            timer = self._spare
            if timer is None:
                timer = SimTimer(name, at)
            else:
                self._spare = None
                timer.name = name
                timer.at = timer.queued_at = at
            self._timers[name] = timer
            engine.at(at, self._when_due, timer)
        else:
            if timer.at != timer.queued_at:
                engine.spare(timer.at)
            timer.at = at
            timer.number = engine.take_number()

    def cancel_timer(self, name: TimerName) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None and timer.at != timer.queued_at:
            self._engine.spare(timer.at)

    def broadcast(self, frame: Frame) -> None:
        self._medium.send(Job(self.node, self._channel, frame, None, None))

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        assert to != self.node, "a node does not send to itself"
        failure = None if on_failure is None else lambda reason: self._fail(on_failure, reason)
        self._medium.send(Job(self.node, self._channel, frame, to, failure))

    def airtime(self, octets: int) -> Micros:
        return self._medium.airtime(octets)

    def position(self) -> Position | None:
        where = None if self._path is None else self._path.position_and_velocity(self._engine.now)
        return None if where is None else Position(*where)

    def trace(self, record: Record) -> None:
        self._trace.add(record)

    def _due(self, timer: SimTimer) -> None:
        name = timer.name
        if self._timers.get(name) is not timer:
            return  # moved to earlier, cancelled, or of a node that crashed
        if timer.at != timer.queued_at:
            self._engine.at_number(timer.at, timer.number, self._when_due, timer)
            timer.queued_at = timer.at
            return
        del self._timers[name]
        self._spare = timer
        assert self._layer is not None
        if type(name) is CoreTimer:
            name.due()
        else:
            self._layer.on_timer(name)

    def _fail(self, on_failure: Callable[[SendFailure], None], reason: SendFailure) -> None:
        if self._layer is not None:
            on_failure(reason)
