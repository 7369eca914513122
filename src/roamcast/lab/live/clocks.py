"""How far the clocks of two machines differ, as far as the events that went between them prove it.

A node stamps its records with its machine's monotonic clock, and a segment's head has the wall clock's
reading of that clock's zero. So nodes of one machine share an axis exactly, and nodes of two machines as well
as their wall clocks agree. An event that is delivered before it was published proves that they do not. Then,
as in NTP, the difference is half of what the shortest delays of the two directions differ by; with one
direction only, the least that makes no delay negative. Where no delay is negative nothing is corrected: the
correction would be within the delays themselves.
"""

import msgspec

from roamcast.units import MILLISECOND, Micros

PAIRS_MAX = 10_000  # chosen by us, as is the next
STEP: Micros = 100 * MILLISECOND  # a wall clock that moved by more was set anew


class ClockDelays(msgspec.Struct):
    """The shortest delay seen from each clock to each other one, as their stamps have it."""

    shortest: dict[str, dict[str, Micros]] = {}

    def observe(self, publisher: str, receiver: str, delay: Micros) -> None:
        if publisher == receiver:
            return
        known = self.shortest.setdefault(publisher, {})
        if receiver in known:
            known[receiver] = min(known[receiver], delay)
        elif sum(map(len, self.shortest.values())) < PAIRS_MAX:
            known[receiver] = delay

    def forget(self, clock: str) -> None:
        """The clock was set: what was measured with it says nothing any more."""
        self.shortest.pop(clock, None)
        for known in self.shortest.values():
            known.pop(clock, None)

    def ahead(self, receiver: str, publisher: str) -> Micros:
        """How far the receiver's clock is ahead of the publisher's; 0 where nothing proves a difference."""
        there = self.shortest.get(publisher, {}).get(receiver)
        back = self.shortest.get(receiver, {}).get(publisher)
        if min(0 if there is None else there, 0 if back is None else back) >= 0:
            return 0
        if there is None:
            return -(back or 0)
        return there if back is None else (there - back) // 2
