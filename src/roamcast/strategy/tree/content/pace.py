"""The allowance for sending again: recovery backs off where the radio has no room for it.

The radio is shared. When it is saturated, repeats only displace events that are sent for the first time, and
both come too late. So all links of a node share one token bucket, and all nodes in range of each other one
allowance: a repeat of another node that is overheard takes a token here. The bucket gets one token for each
event sent for the first time, and some per second, for a tree that has to catch up after a repair. The rate
per second doubles while it is used up and nothing is lost. It is halved when broadcasts were missed, as TCP
halves its window.

The constants are chosen by us; docs/protocols/tree-routing.md ("Recovery backs off") has what was measured
with them.
"""

from roamcast.units import MILLISECOND, SECOND, Micros

PER_SECOND_MIN = 4.0  # tokens per second; each allows one repeat
PER_SECOND_MAX = 128.0
SHARE = 1.0  # tokens for each event sent for the first time
SAVED_MAX = 64.0  # size of the bucket
CHANGE_INTERVAL: Micros = 250 * MILLISECOND  # between two changes of the rate; losses together count once
CALM: Micros = SECOND  # without a loss before the rate grows


class RecoveryPace:
    def __init__(self) -> None:
        self.per_second = PER_SECOND_MIN
        self._saved = SAVED_MAX
        self._counted_at: Micros = 0
        self._changed_at: Micros = 0
        self._lost_at: Micros = -CALM

    def on_fresh(self) -> None:
        """An event was sent for the first time."""
        self._saved = min(self._saved + SHARE, SAVED_MAX)

    def on_loss(self, now: Micros) -> None:
        """The radio is busy: a neighbour missed what we sent."""
        self._count(now)
        self._lost_at = now
        if now - self._changed_at >= CHANGE_INTERVAL:
            self._changed_at = now
            self.per_second = max(self.per_second / 2, PER_SECOND_MIN)

    def on_others(self, now: Micros) -> None:
        """Another node has sent an event again."""
        self._count(now)
        self._saved = max(self._saved - 1, 0.0)

    def take(self, now: Micros) -> bool:
        """Take a token: whether one more event may be sent again."""
        self._count(now)
        if self._saved >= 1:
            self._saved -= 1
            return True
        self._grow(now)
        return False

    def next_at(self, now: Micros) -> Micros:
        """When the next token will be there."""
        self._count(now)
        lacking = max(0.0, 1 - self._saved)
        if lacking:
            self._grow(now)
        return now + int(lacking * SECOND / self.per_second) + (1 if lacking else 0)

    def _grow(self, now: Micros) -> None:
        """More is wanted than there is."""
        if now - self._lost_at >= CALM and now - self._changed_at >= CHANGE_INTERVAL:
            self._changed_at = now
            self.per_second = min(2 * self.per_second, PER_SECOND_MAX)

    def _count(self, now: Micros) -> None:
        self._saved = min(self._saved + (now - self._counted_at) * self.per_second / SECOND, SAVED_MAX)
        self._counted_at = now
