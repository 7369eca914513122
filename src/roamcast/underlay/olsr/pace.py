"""How often a node may send ahead of time (the option `prompt`), and the message that is due."""

from roamcast.host import Host, TimerName
from roamcast.units import MILLISECOND, Micros

BURST = 4  # chosen by us: a meeting takes each node two or three HELLOs
PER_INTERVAL = 4  # messages ahead of time, in the long run; chosen by us
DELAY: Micros = 15 * MILLISECOND  # at most, at random: changes come in bursts, and several nodes see each


class EarlyPace:
    """A token bucket: `BURST` times in a row, and once per `every` in the long run. Nobody can make a node
    send without limit, and two nodes that meet, which takes each two or three HELLOs, need not wait."""

    def __init__(self, every: Micros) -> None:
        self._every = every
        self._even_at: Micros | None = None  # when the bucket is full again

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
        """Send soon. Asking again changes nothing: the message is built when it is sent."""
        if not self._is_due:
            self._is_due = True
            delay = int(self._host.random.random() * DELAY)
            self._host.set_timer(self._timer, self._pace.earliest(self._host.now()) + delay)

    def on_timer(self) -> None:
        self._is_due = False
        self._pace.spend(self._host.now())

    def cancel(self) -> None:
        """The regular message has said it meanwhile."""
        if self._is_due:
            self._is_due = False
            self._host.cancel_timer(self._timer)
