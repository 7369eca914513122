"""How long to wait for a next hop's own broadcast before its part is sent again.

On a full medium everything takes longer. If the wait stayed the same, every event would be sent twice and
the medium would stay full. So the time follows what is measured, as TCP's does (RFC 6298): smoothed time plus
four times its variation, doubled after each wait in vain.
"""

from roamcast.units import MILLISECOND, SECOND, Micros

FIRST: Micros = 150 * MILLISECOND  # this and the next two: chosen by us, for a relay's jitter and its queue
SHORTEST: Micros = 100 * MILLISECOND
LONGEST: Micros = 2 * SECOND


class EchoTime:
    def __init__(self) -> None:
        self.timeout: Micros = FIRST
        self._smoothed: Micros | None = None
        self._variation: Micros = 0

    def heard_after(self, time: Micros) -> None:
        if self._smoothed is None:
            self._smoothed, self._variation = time, time // 2
        else:
            self._variation += (abs(self._smoothed - time) - self._variation) // 4
            self._smoothed += (time - self._smoothed) // 8
        self.timeout = min(max(SHORTEST, self.measured), LONGEST)

    @property
    def measured(self) -> Micros:
        """The time within which a next hop is heard as a rule; 0 before the first was."""
        return 0 if self._smoothed is None else self._smoothed + 4 * self._variation

    def missed(self) -> None:
        self.timeout = min(2 * self.timeout, LONGEST)
