"""The duplicate filter: which events this node has already seen.

Bounded in count and in time without a timer. Real-time events go through two generations: an entry
lives in the current one, and when that is old or full it becomes the previous one and the one before
is forgotten. So an identifier is remembered for at least `hold`, unless more than `capacity / 2` newer
ones push it out. A memorized event can come round again for as long as it lives, so it is remembered
until its lifetime ends; past `capacity` of those, the first to expire is forgotten.
"""

import heapq
from typing import TypeAlias

from roamcast.units import SECOND, Micros

HOLD: Micros = 120 * SECOND  # far above any flight time of a copy that still has hops left
CAPACITY = 65_536

EventKey: TypeAlias = tuple[int, ...]
"""An `EventId`, or a plain tuple of the same numbers; maybe more numbers before them."""


class SeenEvents:
    def __init__(self, *, hold: Micros = HOLD, capacity: int = CAPACITY) -> None:
        assert hold > 0 and capacity >= 2
        self._hold = hold
        self._capacity = capacity
        # The current generation, always the same object. A hit here needs no clock, so a hot caller may
        # look for itself before it asks.
        self.current: set[EventKey] = set()
        self._previous: set[EventKey] = set()
        self._turns_at: Micros = hold
        self._lasting: set[EventKey] = set()
        self._lasting_by_expiry: list[tuple[Micros, EventKey]] = []

    def observe(self, event: EventKey, now: Micros, until: Micros = 0) -> bool:
        """True the first time that `event` is seen. It is remembered until `until`, and for `hold` anyway."""
        if now >= self._turns_at:
            self._turn(now)
        if event in self.current or event in self._previous or event in self._lasting:
            return False
        if until > now + self._hold:
            self._remember(event, now, until)
            return True
        if len(self.current) >= self._capacity // 2:
            self._turn(now)
        self.current.add(event)
        return True

    def __contains__(self, event: EventKey) -> bool:
        return event in self.current or event in self._previous or event in self._lasting

    def __len__(self) -> int:
        return len(self.current) + len(self._previous) + len(self._lasting)

    def _remember(self, event: EventKey, now: Micros, until: Micros) -> None:
        self._lasting.add(event)
        heapq.heappush(self._lasting_by_expiry, (until, event))
        while self._lasting_by_expiry[0][0] <= now or len(self._lasting) > self._capacity:
            self._lasting.discard(heapq.heappop(self._lasting_by_expiry)[1])

    def _turn(self, now: Micros) -> None:
        # After a silence of two holds even the current generation is too old to keep.
        self._previous = set(self.current) if now < self._turns_at + self._hold else set()
        self.current.clear()
        self._turns_at = now + self._hold
        while self._lasting_by_expiry and self._lasting_by_expiry[0][0] <= now:
            self._lasting.discard(heapq.heappop(self._lasting_by_expiry)[1])
