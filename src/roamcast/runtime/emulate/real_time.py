"""The simulator's queue of future actions, run in real time."""

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop

from roamcast.runtime.sim.engine import Engine
from roamcast.units import MILLISECOND, SECOND, Micros

HEARTBEAT: Micros = 5 * MILLISECOND
TRUSTED_DELAY: Micros = 20 * MILLISECOND
"""A run with a larger delay (99th percentile) does not represent the scenario. Chosen by us: the shortest
protocol timers are tens of milliseconds, so smaller delays hardly matter to them."""
PR_SET_TIMERSLACK = 29

Clock = Callable[[], Micros]


def monotonic() -> Micros:
    """The one clock that all processes of an emulation share."""
    return time.monotonic_ns() // 1000


class RealTimeEngine(Engine):
    """Every action still sees the instant for which it was scheduled, so a radio model computes as in a
    simulation. A heartbeat measures how much later actions really run, also when there is no other action:
    a machine that is too slow is noticed there first."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.delays: list[Micros] = []  # of the heartbeats, microseconds

    def beat_until(self, end: Micros) -> None:
        self._end = end
        self.at(0, self._beat, 0)

    def next_due(self) -> Micros | None:
        return self._queue[0][0] if self._anything_ahead() else None

    def run(self, until: Micros) -> None:
        queue = self._queue
        while self._anything_ahead() and queue[0][0] < until:
            self.now, _, action, argument = heappop(queue)
            action(argument)
            self.executed += 1
        self.now = max(self.now, until)

    def _beat(self, due: Micros) -> None:
        late = max(self._clock() - due, 0)
        self.delays.append(late)
        # Heartbeats that fell due in the meantime count as late too, each by its own delay.
        for missed in range(due + HEARTBEAT, due + late, HEARTBEAT):
            self.delays.append(due + late - missed)
        following = due + late // HEARTBEAT * HEARTBEAT + HEARTBEAT
        if following < self._end:
            self.at(following, self._beat, following)


def percentile(values: list[Micros], share: float) -> Micros:
    """The value that `share` of them do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0


def ask_for_exact_timers() -> None:
    """Timers of this thread fire within one microsecond instead of Linux's default of fifty."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1_000, 0, 0, 0)


def ask_for_priority() -> None:
    """Give the ether precedence over the nodes that it serves: the scheduler's real-time class, so that it
    does not wait until one of forty busy nodes gives up a core. It needs a fraction of one, and Linux leaves
    the others 5% of the time in any case. An ordinary user may have neither this nor the lesser priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)


def seconds_until(due: Micros | None, now: Micros, longest: Micros = SECOND // 10) -> float:
    wait = longest if due is None else min(max(due - now, 0), longest)
    return wait / SECOND
