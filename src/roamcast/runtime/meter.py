"""How long a consumer's function takes, and how one that does not end is stopped.

`SimMeter` answers with the function's own cost, the model's quantity, so that runs repeat exactly; real time
only serves to stop a function that hangs. `LiveMeter` answers with the processor's time.

Stopping works by an alarm signal that raises inside the function. Python delivers signals to the main thread
only: elsewhere a function that hangs cannot be stopped, and one that was slow is found out afterwards.
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

HANG_LIMIT: Micros = 2 * SECOND  # real time in `sim`: long enough for any honest function on a busy machine
AGAIN_SECONDS = 0.05  # a function that swallows the alarm gets the next one

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
        """What a function says of itself does not count here."""


class _Alarm(BaseException):
    """No `Exception`: a function that catches everything of that kind must not catch this."""


@contextmanager
def _alarm(after: Micros) -> Iterator[None]:
    """OverTimeError if the block takes longer, where that can be done."""
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
        if left:  # somebody else's alarm goes on; a little late
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _disarm() -> None:
    """An alarm may still ring on the way here."""
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        except _Alarm:
            continue
