"""Link hysteresis: a link counts only once enough packets came over it (RFC 3626, section 14).

A link that lets one HELLO in five through would come and go with each of them. The quality of a link is an
average over its packets, 1 for each that came and 0 for each that was lost: losses show as gaps in the
packet numbers, and as silence. The RFC counts a loss after one HELLO interval of silence; here it is one and
a half, because a packet that is merely late is none.
"""

from roamcast.units import MILLISECOND, Micros

# Section 14.3 and 18.5.
SCALING = 0.5
THRESHOLD_HIGH = 0.8
THRESHOLD_LOW = 0.3
# More losses than this in a row leave no quality worth counting: 0.5 ** 8 is below 0.004.
LOSSES_MAX = 8
INTERVAL_MIN: Micros = 100 * MILLISECOND  # of HELLOs, whatever one claims: each silence costs a timer
NUMBERS = 65_536


class LinkQuality:
    """L_link_quality and L_link_pending of one link."""

    __slots__ = ("_interval", "_sequence", "is_pending", "silent_at", "value")

    def __init__(self, sequence: int) -> None:
        self.value = SCALING
        self.is_pending = True
        self._sequence = sequence  # of the latest packet
        self._interval: Micros = INTERVAL_MIN  # of the neighbour's HELLOs
        self.silent_at: Micros = 0  # when the next packet counts as lost

    def on_packet(self, sequence: int, now: Micros) -> None:
        """A packet came; those whose numbers were left out are lost. A number that goes back is no loss: the
        neighbour has restarted, or two packets changed places."""
        self._wait(now)
        ahead = (sequence - self._sequence) % NUMBERS
        if ahead == 0:
            return
        self._sequence = sequence
        if ahead < NUMBERS // 2:
            self.value *= (1 - SCALING) ** min(ahead - 1, LOSSES_MAX)
        self.value = (1 - SCALING) * self.value + SCALING
        self._judge()

    def on_hello(self, interval: Micros, now: Micros) -> None:
        self._interval = max(interval, INTERVAL_MIN)
        self._wait(now)

    def on_silence(self, now: Micros) -> None:
        self.value *= 1 - SCALING
        self.silent_at = now + self._interval
        self._judge()

    def _wait(self, now: Micros) -> None:
        self.silent_at = now + self._interval * 3 // 2

    def _judge(self) -> None:
        if self.value > THRESHOLD_HIGH:
            self.is_pending = False
        elif self.value < THRESHOLD_LOW:
            self.is_pending = True
