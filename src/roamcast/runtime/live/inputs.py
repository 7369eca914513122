"""One input at a time: the clock advances, the handler runs, then applications get their deliveries.

Everything that happens to a node's layers (a frame, a timer, a failure of a frame, the start) comes
through here, so that no handler is called while another one runs. An exception in a handler costs that
input and not the node: it is logged with its traceback, a few times a minute, and counted, and the node goes
on.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import TypeAlias

from roamcast.host import CoreTimer, Layer, TimerName
from roamcast.runtime.live.report.counters import Counters, LineLimit
from roamcast.runtime.live.world import MachineClock
from roamcast.units import SECOND, Micros

logger = logging.getLogger("roamcast.node")

# Chosen by us.
FIRED_PER_TURN_MAX = 256  # then the sockets have a turn
REMAINS_MIN = 1_000  # with fewer old entries the heap is not worth clearing
TRACEBACKS_PER_MINUTE = 5  # otherwise every frame that triggers the same fault would add to the log


class Clock:
    """The clock of a live node: microseconds that stand still while a handler runs.

    The machine's monotonic clock runs on; a layer sees it as it was when its input began. All layers of a
    node share one clock. `now` is the instant of the input being handled; it never goes back.
    """

    __slots__ = ("_monotonic_ns", "now")

    def __init__(self, machine: MachineClock) -> None:
        self._monotonic_ns = machine.monotonic_ns
        self.now: Micros = self.read()

    def read(self) -> Micros:
        """The machine's clock, which does not stand still."""
        return self._monotonic_ns() // 1_000

    def enter(self) -> Micros:
        """An input begins, at the instant that is returned."""
        moment = self._monotonic_ns() // 1_000
        if moment > self.now:
            self.now = moment
        return self.now

    def enter_not_before(self, at: Micros) -> None:
        """A timer's input begins. The loop may wake us a tick early, but no layer sees a time before its own
        timer's."""
        moment = self._monotonic_ns() // 1_000
        if at > moment:
            moment = at
        if moment > self.now:
            self.now = moment


class Inputs:
    def __init__(self, clock: Clock, counters: Counters, after: Callable[[], None]) -> None:
        """`after` runs when a handler has returned."""
        self.clock = clock
        self._counters = counters
        self._after = after
        self._log = LineLimit(logger, TRACEBACKS_PER_MINUTE)
        self._running = False
        self._open = True

    def close(self) -> None:
        """Stop: from here on nothing reaches a layer."""
        self._open = False

    def handle(self, handler: Callable[..., None], *arguments: object) -> None:
        self.clock.enter()
        self._run(handler, arguments)

    def handle_not_before(self, at: Micros, handler: Callable[..., None], *arguments: object) -> None:
        self.clock.enter_not_before(at)
        self._run(handler, arguments)

    def _run(self, handler: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if not self._open:
            return
        assert not self._running, "an input came while another one was being handled"
        self._running = True
        try:
            handler(*arguments)
        except Exception:
            self._counters.count("handler_errors_total")
            line = "a handler raised an error; the input is dropped"
            self._log.log(self.clock.now, logging.ERROR, line, error=True)
        finally:
            self._running = False
        self._after()


class LayerTimers:
    """The timers of one layer. Made by `NodeTimers.layer`."""

    def __init__(self, timers: "NodeTimers") -> None:
        self._timers = timers
        self.numbers: dict[TimerName, int] = {}
        self.handler: Callable[[TimerName], None] | None = None

    def attach(self, layer: Layer) -> None:
        self.handler = layer.on_timer

    def set(self, name: TimerName, at: Micros) -> None:
        timers = self._timers
        if name in self.numbers:
            timers.remains += 1
        timers.number = number = timers.number + 1
        self.numbers[name] = number
        timers.push((at, number, self, name))

    def cancel(self, name: TimerName) -> None:
        if self.numbers.pop(name, None) is not None:
            self._timers.remains += 1


TimerEntry: TypeAlias = tuple[Micros, int, LayerTimers, TimerName]


class NodeTimers:
    """The timers of all layers of one node: one heap, one wake-up of the loop at a time.

    A protocol moves its timers far more often than they fire (each beacon postpones the time-out of its
    sender). So setting a timer only pushes an entry to the heap. The old entry stays there until it is due,
    or until half of the heap consists of such old entries.
    """

    def __init__(self, inputs: Inputs, loop: asyncio.AbstractEventLoop) -> None:
        self._inputs = inputs
        self._loop = loop
        self._heap: list[TimerEntry] = []
        self._wake: asyncio.TimerHandle | None = None
        self._wakes_at: Micros = 0
        self._closed = False
        self.number = 0  # of the timer set last; orders timers of one instant
        self.remains = 0  # entries of timers that were moved or cancelled

    def layer(self) -> LayerTimers:
        return LayerTimers(self)

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def push(self, entry: TimerEntry) -> None:
        if self._closed:
            return
        heapq.heappush(self._heap, entry)
        if self.remains > REMAINS_MIN and self.remains > len(self._heap) // 2:
            self._clear_remains()
        if self._wake is None or entry[0] < self._wakes_at:
            self._wake_at(entry[0])

    def __len__(self) -> int:
        return len(self._heap) - self.remains

    def _wake_at(self, at: Micros) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wakes_at = at
        wait = max(0, at - self._inputs.clock.read()) / SECOND
        self._wake = self._loop.call_later(wait, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        heap = self._heap
        moment = self._inputs.clock.read()
        # Only timers that are set already: one that a handler sets for this instant fires after the sockets
        # had a turn, so that no layer can block the node.
        last = self.number
        fired = 0
        later: list[TimerEntry] = []
        while heap and heap[0][0] <= moment and fired < FIRED_PER_TURN_MAX:
            at, number, layer, name = entry = heapq.heappop(heap)
            if number > last:
                later.append(entry)
                continue
            if layer.numbers.get(name) != number:
                self.remains -= 1
                continue
            del layer.numbers[name]
            if type(name) is CoreTimer:
                self._inputs.handle_not_before(at, name.due)
            elif layer.handler is not None:
                self._inputs.handle_not_before(at, layer.handler, name)
            fired += 1
        for entry in later:
            heapq.heappush(heap, entry)
        if heap and not self._closed and (self._wake is None or heap[0][0] < self._wakes_at):
            self._wake_at(heap[0][0])

    def _clear_remains(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].numbers.get(entry[3]) == entry[1]]
        heapq.heapify(self._heap)
        self.remains = 0
