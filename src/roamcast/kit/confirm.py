"""Retransmission with exponential backoff: a message is sent again until it is answered.

`Backoff` is the rule: how long to wait, and how many attempts at most. `Repetition` is one message that is
being repeated, with its timer. The protocol decides what to send and what counts as an answer. Repeats by
other rules (a fixed interval, a pace that the radio sets) are not made here.
"""

from typing import NamedTuple

from roamcast.host import Host, TimerName
from roamcast.units import Micros

DOUBLINGS_MAX = 32  # bounds the shift of an endless repetition; any value far beyond `longest` works


class Backoff(NamedTuple):
    """Waits that double from `first` on, up to `longest`. Attempts count from 0."""

    first: Micros
    attempts: int | None = None  # at most; None: without end
    longest: Micros | None = None

    def is_over(self, attempt: int) -> bool:
        """Whether this attempt exceeds the limit."""
        return self.attempts is not None and attempt >= self.attempts

    def wait(self, attempt: int) -> Micros:
        """How long to wait after this attempt."""
        wait = self.first << min(attempt, DOUBLINGS_MAX)
        return wait if self.longest is None else min(wait, self.longest)


class Repetition:
    """The owner calls `attempt`, sends if that returns True, and does both again when the timer is due."""

    def __init__(self, host: Host, timer: TimerName, backoff: Backoff) -> None:
        self._host = host
        self._timer = timer
        self._backoff = backoff
        self.attempts = 0

    def attempt(self) -> bool:
        """Count one more attempt and set the timer for the next. False if the limit is reached."""
        if self._backoff.is_over(self.attempts):
            return False
        self.attempts += 1
        self.wait_again()
        return True

    def wait_again(self) -> None:
        """Set the timer again: from now on, as long as after the last attempt."""
        self.wait(self._backoff.wait(max(self.attempts - 1, 0)))

    def wait(self, time: Micros) -> None:
        """The next attempt is due after this time, whatever the rule says."""
        self._host.set_timer(self._timer, self._host.now() + time)

    def restart(self) -> None:
        """The message has changed: count attempts from the beginning."""
        self.attempts = 0

    def take_back(self) -> None:
        """Do not count the last attempt: nothing left this node."""
        self.attempts -= 1

    def end(self) -> None:
        """The message is answered, or needs no answer any more."""
        self._host.cancel_timer(self._timer)
