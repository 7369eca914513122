"""How often a node may speak ahead of time (the option `prompt`), and when it is about to."""

from roamcast.host import Host, TimerName
from roamcast.units import MILLISECOND, Micros

BURST = 4
PER_INTERVAL = 4  # messages ahead of time, in the long run
DELAY: Micros = 15 * MILLISECOND  # at most: changes come in swarms, and several nodes see each


class EarlyPace:
    """`BURST` times in a row, and no more than once per `every` in the long run: nobody can make a node talk
    without end, and a meeting of two, which takes each of them two or three HELLOs, does not wait."""

    def __init__(self, every: Micros) -> None:
        self._every = every
        self._even_at: Micros | None = None  # when all that was spent is earned again

    def earliest(self, now: Micros) -> Micros:
        if self._even_at is None:
            return now
        return max(now, self._even_at - (BURST - 1) * self._every)

    def spend(self, now: Micros) -> None:
        self._even_at = (now if self._even_at is None else max(now, self._even_at)) + self._every


class Prompt:
    """A message of one kind that is to be sent soon, by a timer of its own."""

    def __init__(self, host: Host, timer: TimerName, interval: Micros) -> None:
        self._host = host
        self._timer = timer
        self._pace = EarlyPace(interval // PER_INTERVAL)
        self._is_due = False

    def ask(self) -> None:
        """Once is enough: it says whatever is true when it goes."""
        if not self._is_due:
            self._is_due = True
            delay = int(self._host.random.random() * DELAY)
            self._host.set_timer(self._timer, self._pace.earliest(self._host.now()) + delay)

    def on_timer(self) -> None:
        self._is_due = False
        self._pace.spend(self._host.now())

    def cancel(self) -> None:
        """It has been said meanwhile."""
        if self._is_due:
            self._is_due = False
            self._host.cancel_timer(self._timer)
