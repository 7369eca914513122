"""How many peers may be sent something again at the same time, where the medium is shared.

Each stream knows how long its own way takes. But a node that has a word for each of forty peers, and repeats
each of them now and then, fills the air with them although no single stream does anything wrong; and then
nothing gets through, and everything is repeated. So a node counts the peers that owe it a confirmation of
a repeat, and their number is limited as TCP limits octets (RFC 5681): it grows with every confirmation, and
is halved when a wait was in vain. First copies do not wait for their turn.
"""

from roamcast.units import MILLISECOND, Micros

FIRST_LIMIT = 4.0
LEAST_LIMIT = 1.0
LARGEST_LIMIT = 4_096.0
CUT_EVERY: Micros = 500 * MILLISECOND  # what is lost together is one sign, not many


class Congestion:
    def __init__(self) -> None:
        self.limit = FIRST_LIMIT
        self._threshold = LARGEST_LIMIT
        self._cut_at: Micros = -CUT_EVERY

    def on_confirmed(self) -> None:
        grown = self.limit + (1 if self.limit < self._threshold else 1 / self.limit)
        self.limit = min(grown, LARGEST_LIMIT)

    def on_lost(self, now: Micros) -> None:
        if now - self._cut_at >= CUT_EVERY:
            self._cut_at = now
            self.limit = self._threshold = max(self.limit / 2, LEAST_LIMIT)
