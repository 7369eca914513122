"""How long a consumer's function takes, and how one that does not end is stopped.

`SimMeter` answers with the function's modelled cost, so that runs repeat exactly; real time only serves to
stop a function that hangs. `LiveMeter` answers with the measured real time.

Stopping works by an alarm signal that raises inside the function. Python delivers signals to the main thread
only. In any other thread a function that hangs cannot be stopped, and a slow one is noticed afterwards.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from roamcast.modulator.guard import OverTimeError
from roamcast.units import SECOND, Micros, seconds

# Both chosen by us. Longer: a hanging function stops the run for longer. Shorter: a busy machine may stop a
# function that works.
HANG_LIMIT: Micros = 2 * SECOND  # real time in `sim`
AGAIN_SECONDS = 0.05  # until the next alarm, for a function that has caught the first

Answer = TypeVar("Answer")


class SimMeter:
    def __init__(self, limit: Micros, hang_limit: Micros = HANG_LIMIT) -> None:
        """`limit` is modelled time, `hang_limit` real time."""
        self._limit = limit
        self._hang_limit = hang_limit

    def run(self, call: Callable[[], Answer], modelled: Micros) -> tuple[Answer, Micros]:
        self.check(modelled)
        with _alarm(self._hang_limit):
            return call(), modelled

    def check(self, modelled: Micros) -> None:
        if modelled > self._limit:
            raise OverTimeError(f"its cost is {modelled} microseconds, the limit {self._limit}")


class LiveMeter:
    def __init__(self, limit: Micros) -> None:
        self._limit = limit

    def run(self, call: Callable[[], Answer], modelled: Micros) -> tuple[Answer, Micros]:
        began = time.perf_counter_ns()
        with _alarm(self._limit):
            answer = call()
        took = (time.perf_counter_ns() - began) // 1_000
        if took > self._limit:
            raise OverTimeError(f"it took {took} microseconds, the limit is {self._limit}")
        return answer, took

    def check(self, modelled: Micros) -> None:
        """Does nothing: in real time the modelled cost does not count."""


class _Alarm(BaseException):
    """Not an `Exception`, because a function may catch every `Exception` and must not catch this."""


@contextmanager
def _alarm(after: Micros) -> Iterator[None]:
    """OverTimeError if the block takes longer; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds(after), 0.001), AGAIN_SECONDS)
    try:
        yield
    except _Alarm:
        raise OverTimeError(f"it was stopped after {after} microseconds") from None
    finally:
        _disarm()
        signal.signal(signal.SIGALRM, before)
        if left:  # an alarm that was set before us goes on, a little late
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _disarm() -> None:
    """Stop the timer. An alarm may still be raised before it is stopped."""
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        except _Alarm:
            continue
