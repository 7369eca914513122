"""Saying something again until it is answered, because silence is no proof of arrival.

`Backoff` is the rule: how long to wait, how often at most. `Repetition` is one thing that is being said, with
its timer. What to say, and what an answer is, stays with the protocol; so do repeats by other rules (a
fixed interval, a pace that the radio sets).
"""

from typing import NamedTuple

from roamcast.host import Host, TimerName
from roamcast.units import Micros

DOUBLINGS_MAX = 32  # of an endless repetition; far beyond every `longest`


class Backoff(NamedTuple):
    """Waits that double from `first` on, up to `longest`. Attempts count from 0."""

    first: Micros
    attempts: int | None = None  # that are made; None: without end
    longest: Micros | None = None

    def is_over(self, attempt: int) -> bool:
        """Whether this attempt is one too many."""
        return self.attempts is not None and attempt >= self.attempts

    def wait(self, attempt: int) -> Micros:
        """How long to wait after this attempt."""
        wait = self.first << min(attempt, DOUBLINGS_MAX)
        return wait if self.longest is None else min(wait, self.longest)


class Repetition:
    """The owner says it after each `attempt`, and once more whenever the timer is due."""

    def __init__(self, host: Host, timer: TimerName, backoff: Backoff) -> None:
        self._host = host
        self._timer = timer
        self._backoff = backoff
        self.attempts = 0

    def attempt(self) -> bool:
        """One more: sets the timer for the next. False if it was said often enough."""
        if self._backoff.is_over(self.attempts):
            return False
        self.attempts += 1
        self.wait_again()
        return True

    def wait_again(self) -> None:
        """As long as after the last attempt, from now on."""
        self.wait(self._backoff.wait(max(self.attempts - 1, 0)))

    def wait(self, time: Micros) -> None:
        """The next attempt is due after this time, whatever the rule says."""
        self._host.set_timer(self._timer, self._host.now() + time)

    def restart(self) -> None:
        """Something new is to be said: count from the beginning."""
        self.attempts = 0

    def take_back(self) -> None:
        """The last attempt was none: nothing left this node."""
        self.attempts -= 1

    def end(self) -> None:
        """It is answered, or needs no answer any more."""
        self._host.cancel_timer(self._timer)
