"""How fast: a token bucket, a limit that follows losses as TCP's window does, and messages ahead of time.

None of them reads a clock by itself but `Prompt`, which owns a timer.
"""

from collections.abc import Callable

from roamcast.host import Host
from roamcast.kit.protocol import Timer
from roamcast.units import MILLISECOND, SECOND, Micros

BURST = 4  # chosen by us: a meeting takes each node two or three HELLOs
PER_INTERVAL = 4  # messages ahead of time, in the long run, of a node with few others around; chosen by us
ROOM = 20  # early frames of one kind in a second, at most; chosen by us
SHARE = 40  # and at most one in so many parts of the medium's time, which counts below 2 Mbit/s; chosen by us
EARLY_OCTETS = 64  # of such a frame, about
DELAY: Micros = 15 * MILLISECOND  # at most, at random: changes come in bursts, and several nodes see each


class Bucket:
    """A token bucket: `burst` times in a row, and once per `every` in the long run."""

    def __init__(self, every: Micros, burst: int) -> None:
        self.every = every
        self._burst = burst
        self._full_at: Micros | None = None  # None: nothing was ever taken

    def earliest(self, now: Micros) -> Micros:
        """When the next token is there; `now` if one is."""
        if self._full_at is None:
            return now
        return max(now, self._full_at - (self._burst - 1) * self.every)

    def spend(self, now: Micros) -> None:
        self._full_at = (now if self._full_at is None else max(now, self._full_at)) + self.every


class Aimd:
    """A limit that grows with each success and is halved by a loss (RFC 5681): by one each time up to the
    last limit that was too high, then by one for as many successes as the limit counts."""

    def __init__(self, *, first: float, least: float, most: float, cut_every: Micros) -> None:
        """`cut_every`: what is lost within this time is one sign, not many."""
        self.limit = first
        self._least = least
        self._most = most
        self._threshold = most
        self._cut_every = cut_every
        self._cut_at: Micros = -cut_every

    def on_success(self) -> None:
        grown = self.limit + (1 if self.limit < self._threshold else 1 / self.limit)
        self.limit = min(grown, self._most)

    def on_loss(self, now: Micros) -> None:
        if now - self._cut_at >= self._cut_every:
            self._cut_at = now
            self.limit = self._threshold = max(self.limit / 2, self._least)


class Prompt:
    """A message of one kind that may be sent ahead of its time (the option `prompt`).

    What one node sees, its neighbours see too, and in a dense place each has many. So the pace follows from
    what the medium has room for: all early messages that can be heard at one place, of all who send or relay
    them, should stay below `ROOM` in a second, and below one part in `SHARE` of a slow radio's time. Nobody
    can make a node send without limit, and two nodes that meet need not wait."""

    def __init__(self, host: Host, send: Callable[[], object], interval: Micros) -> None:
        """`interval`: of the regular message."""
        self._host = host
        self._send = send
        self._shortest = interval // PER_INTERVAL
        self._pace = Bucket(self._shortest, BURST)
        self._timer = Timer(host, self._due)
        self.is_due = False  # asked for; what it will say need not be compared any more

    def ask(self, frames: int) -> None:
        """Send soon. `frames`: how many would be heard here if all around did the same. Asking again changes
        nothing: the message is built when it is sent."""
        if not self.is_due:
            self.is_due = True
            share = SHARE * self._host.airtime(EARLY_OCTETS)
            self._pace.every = max(self._shortest, frames * max(SECOND // ROOM, share))
            delay = int(self._host.random.random() * DELAY)
            self._timer.at(self._pace.earliest(self._host.now()) + delay)

    def cancel(self) -> None:
        """The regular message has said it meanwhile."""
        if self.is_due:
            self.is_due = False
            self._timer.cancel()

    def _due(self) -> None:
        self.is_due = False
        self._pace.spend(self._host.now())
        self._send()
