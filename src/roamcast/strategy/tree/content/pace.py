"""How much a node may send again: recovery backs off where the radio has no room for it.

The radio is shared. When it cannot carry more, what is sent again only pushes out what is sent for the
first time, and both come too late. So all links of a node share one allowance: as much again as the node
sends for the first time, and some by the clock, for a tree that has to catch up after a repair. What the
clock gives doubles while it is used up and nothing is lost, and is halved when broadcasts were missed or
our own send queue was full: as TCP finds its share of a bottleneck.
"""

from roamcast.units import MILLISECOND, SECOND, Micros

PER_SECOND_MIN = 4.0  # repeats that the clock allows
PER_SECOND_MAX = 128.0
SHARE = 1.0  # repeats for each first sending
SAVED_MAX = 64.0  # repeats that can be saved up
CHANGE_INTERVAL: Micros = 250 * MILLISECOND  # between two changes; many losses together are one sign
CALM: Micros = SECOND  # without a loss before the clock gives more


class RecoveryPace:
    def __init__(self, quickest: Micros) -> None:
        self.interval = quickest  # between two bursts
        self.per_second = PER_SECOND_MIN
        self._saved = SAVED_MAX
        self._counted_at: Micros = 0
        self._changed_at: Micros = 0
        self._lost_at: Micros = -CALM

    def on_fresh(self) -> None:
        """An event was sent for the first time."""
        self._saved = min(self._saved + SHARE, SAVED_MAX)

    def on_loss(self, now: Micros) -> None:
        """The radio is busy: a neighbour missed what we sent, or our send queue is full."""
        self._count(now)
        self._lost_at = now
        if now - self._changed_at >= CHANGE_INTERVAL:
            self._changed_at = now
            self.per_second = max(self.per_second / 2, PER_SECOND_MIN)

    def take(self, now: Micros) -> bool:
        """Whether one more may be sent again."""
        self._count(now)
        if self._saved >= 1:
            self._saved -= 1
            return True
        if now - self._lost_at >= CALM and now - self._changed_at >= CHANGE_INTERVAL:
            self._changed_at = now
            self.per_second = min(2 * self.per_second, PER_SECOND_MAX)
        return False

    def next_at(self, now: Micros) -> Micros:
        """When the clock will have allowed the next one."""
        self._count(now)
        lacking = max(0.0, 1 - self._saved)
        return now + int(lacking * SECOND / self.per_second) + (1 if lacking else 0)

    def _count(self, now: Micros) -> None:
        self._saved = min(self._saved + (now - self._counted_at) * self.per_second / SECOND, SAVED_MAX)
        self._counted_at = now
