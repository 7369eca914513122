"""Times consumers' functions in a simulation: by the model, but with a real alarm for one that does not end.

What a function costs is a quantity of the model. A function that hangs would stop the whole simulation,
though, whatever the model says; so the system's timer interrupts it. That works in the main thread only;
elsewhere the modelled limit must do.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType

from roamcast.modulator import Content
from roamcast.modulator.guard import OverTimeError
from roamcast.units import Micros, seconds

REAL_LIMIT_S = 5.0  # of one call on the simulating machine, which may be busy


class AlarmMeter:
    def __init__(self, limit: Micros, real_limit_s: float = REAL_LIMIT_S) -> None:
        self._limit = limit
        self._real_limit_s = real_limit_s

    def run(self, call: Callable[[], Content | None], modelled: Micros) -> tuple[Content | None, Micros]:
        if modelled > self._limit:
            raise OverTimeError(f"its cost is {seconds(modelled):g} s, the limit {seconds(self._limit):g} s")
        if threading.current_thread() is not threading.main_thread():
            return call(), modelled
        before = signal.signal(signal.SIGALRM, _ring)
        signal.setitimer(signal.ITIMER_REAL, self._real_limit_s)
        try:
            return call(), modelled
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _ring(number: int, frame: FrameType | None) -> None:
    raise OverTimeError("it did not end")
