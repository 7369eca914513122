"""How often a node may send ahead of time (the option `prompt`), and the message that is due.

What one node sees, its neighbours see too, and in a dense place each has many. So the pace follows from what
the medium has room for: all early messages that can be heard at one place, of all who send or relay them,
should stay below `ROOM` in a second. Each node counts those others in its own tables.
"""

from roamcast.host import Host, TimerName
from roamcast.units import MILLISECOND, SECOND, Micros

BURST = 4  # chosen by us: a meeting takes each node two or three HELLOs
PER_INTERVAL = 4  # messages ahead of time, in the long run, of a node with few others around; chosen by us
ROOM = 20  # early frames of one kind in a second; chosen by us: 1 or 2% of a slow radio's time
DELAY: Micros = 15 * MILLISECOND  # at most, at random: changes come in bursts, and several nodes see each


class EarlyPace:
    """A token bucket: `BURST` times in a row, and once per `every` in the long run. Nobody can make a node
    send without limit, and two nodes that meet, which takes each two or three HELLOs, need not wait."""

    def __init__(self, every: Micros) -> None:
        self.every = every
        self._even_at: Micros | None = None  # when the bucket is full again

    def earliest(self, now: Micros) -> Micros:
        if self._even_at is None:
            return now
        return max(now, self._even_at - (BURST - 1) * self.every)

    def spend(self, now: Micros) -> None:
        self._even_at = (now if self._even_at is None else max(now, self._even_at)) + self.every


class Prompt:
    """A message of one kind that is to be sent soon, by a timer of its own."""

    def __init__(self, host: Host, timer: TimerName, interval: Micros) -> None:
        self._host = host
        self._timer = timer
        self._shortest = interval // PER_INTERVAL
        self._pace = EarlyPace(self._shortest)
        self.is_due = False  # asked for; what it will say need not be compared any more

    def ask(self, frames: int) -> None:
        """Send soon. `frames`: how many would be heard here if all around did the same. Asking again changes
        nothing: the message is built when it is sent."""
        if not self.is_due:
            self.is_due = True
            self._pace.every = max(self._shortest, frames * SECOND // ROOM)
            delay = int(self._host.random.random() * DELAY)
            self._host.set_timer(self._timer, self._pace.earliest(self._host.now()) + delay)

    def on_timer(self) -> None:
        self.is_due = False
        self._pace.spend(self._host.now())

    def cancel(self) -> None:
        """The regular message has said it meanwhile."""
        if self.is_due:
            self.is_due = False
            self._host.cancel_timer(self._timer)
