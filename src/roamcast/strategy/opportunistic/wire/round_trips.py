"""How long to wait for a confirmation before a letter counts as lost (RFC 6298, by size).

A letter travels whole, in one datagram: one of 40,000 octets takes a thousand times as long as one of 40.
A single estimate would follow the small ones and send every large one twice. So there is one for each class
of sizes. A class is so narrow (a factor of the square root of two) that the half which a wait adds to the
estimate covers it: on a link without loss or other traffic no wait is ever too short, once measured. A class
without a measurement waits as on the slowest way that anyone may expect.

A wait runs from the moment when a letter became the first that is missing. One sent right behind another
takes less than its round trip from there, so it says something only if it took longer than was thought.
"""

from typing import NamedTuple

from roamcast.units import MILLISECOND, SECOND, Micros

FIRST_WAIT: Micros = 300 * MILLISECOND  # before anything has been measured, for the smallest letter
FIRST_WAIT_PER_OCTET: Micros = 80  # 100 kbit/s from end to end
SHORTEST_WAIT: Micros = 50 * MILLISECOND
LONGEST_WAIT: Micros = 4 * SECOND  # repeats back off up to here, unless one round trip is longer
BACKOFFS_MAX = 16


class Estimate(NamedTuple):
    smoothed: Micros
    deviation: Micros

    def wait(self) -> Micros:
        # On a steady link the deviation shrinks to nothing; a half more is for the queue that comes one day.
        margin = max(4 * self.deviation, self.smoothed // 2)
        return max(self.smoothed + margin, SHORTEST_WAIT)


class RoundTrips:
    """Of one stream."""

    def __init__(self, first_wait: Micros = FIRST_WAIT) -> None:
        self._first_wait = first_wait
        self._estimates: dict[int, Estimate] = {}  # by size class
        self._backoffs = 0

    def measure(self, octets: int, took: Micros, *, is_alone: bool) -> None:
        """A copy of so many octets was answered; `is_alone`: nothing of its stream was under way then."""
        self._backoffs = 0
        size = _class_of(octets)
        known = self._estimates.get(size)
        if known is None:
            if is_alone:
                self._estimates[size] = Estimate(took, took // 2)
        elif is_alone or took > known.smoothed:
            deviation = known.deviation + (abs(known.smoothed - took) - known.deviation) // 4
            self._estimates[size] = Estimate(known.smoothed + (took - known.smoothed) // 8, deviation)

    def back_off(self) -> None:
        """A wait was in vain: the next is twice as long, until a copy has been measured (RFC 6298, 5.7)."""
        self._backoffs = min(self._backoffs + 1, BACKOFFS_MAX)

    def rest(self) -> None:
        """There is reason to hope: wait as if nothing had been lost."""
        self._backoffs = 0

    def shortest(self) -> Micros | None:
        """Of the smallest letters measured: what the way takes, whatever it carries."""
        return self._estimates[min(self._estimates)].smoothed if self._estimates else None

    def bandwidth(self) -> int | None:
        """Octets per second that the largest letters measured had on their way; what confirms them takes half
        of the shortest round trip."""
        shortest = self.shortest()
        if shortest is None:
            return None
        size = max(self._estimates)
        took = self._estimates[size].smoothed - shortest // 2
        return round(2 ** ((size - 1) / 2) * SECOND / max(took, 1))

    def wait(self, octets: int) -> Micros:
        size = _class_of(octets)
        # What is larger takes no less time: smaller ones that now take longer show a longer way.
        waits = [estimate.wait() for known, estimate in self._estimates.items() if known <= size]
        if size not in self._estimates:
            waits.append(self._first_wait + FIRST_WAIT_PER_OCTET * octets)
        longest = max(waits)
        return min(longest << self._backoffs, max(LONGEST_WAIT, longest))


def _class_of(octets: int) -> int:
    return (octets * octets).bit_length()
