"""The timers of all layers of one node: one heap, one wake-up of the loop at a time.

A protocol moves its timers far more often than they fire (each beacon postpones the time-out of its
sender). So setting a timer only pushes an entry to the heap. The old entry stays there until it is due, or
until half of the heap consists of such old entries.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import TypeAlias

from roamcast.host import TimerName
from roamcast.runtime.live.port.clock import monotonic
from roamcast.runtime.live.port.inputs import Inputs
from roamcast.units import SECOND, Micros

# Both chosen by us.
FIRED_PER_TURN_MAX = 256  # then the sockets have a turn
REMAINS_MIN = 1_000  # with fewer old entries the heap is not worth clearing

Handler: TypeAlias = Callable[[TimerName], None]


class LayerTimers:
    """The timers of one layer. Made by `Timers.layer`."""

    def __init__(self, timers: "Timers") -> None:
        self._timers = timers
        self.numbers: dict[TimerName, int] = {}
        self.handler: Handler | None = None

    def set(self, name: TimerName, at: Micros) -> None:
        timers = self._timers
        if name in self.numbers:
            timers.remains += 1
        timers.number = number = timers.number + 1
        self.numbers[name] = number
        timers.push(at, number, self, name)

    def cancel(self, name: TimerName) -> None:
        if self.numbers.pop(name, None) is not None:
            self._timers.remains += 1


class Timers:
    def __init__(self, inputs: Inputs, loop: asyncio.AbstractEventLoop) -> None:
        self._inputs = inputs
        self._loop = loop
        self._heap: list[tuple[Micros, int, LayerTimers, TimerName]] = []
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

    def push(self, at: Micros, number: int, layer: LayerTimers, name: TimerName) -> None:
        if self._closed:
            return
        heapq.heappush(self._heap, (at, number, layer, name))
        if self.remains > REMAINS_MIN and self.remains > len(self._heap) // 2:
            self._clear_remains()
        if self._wake is None or at < self._wakes_at:
            self._wake_at(at)

    def __len__(self) -> int:
        return len(self._heap) - self.remains

    def _wake_at(self, at: Micros) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wakes_at = at
        wait = max(0, at - monotonic()) / SECOND
        self._wake = self._loop.call_later(wait, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        heap = self._heap
        moment = monotonic()
        # Only timers that are set already: one that a handler sets for this instant fires after the sockets
        # had a turn, so that no layer can block the node.
        last = self.number
        fired = 0
        later: list[tuple[Micros, int, LayerTimers, TimerName]] = []
        while heap and heap[0][0] <= moment and fired < FIRED_PER_TURN_MAX:
            at, number, layer, name = entry = heapq.heappop(heap)
            if number > last:
                later.append(entry)
                continue
            if layer.numbers.get(name) != number:
                self.remains -= 1
                continue
            del layer.numbers[name]
            if layer.handler is not None:
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
