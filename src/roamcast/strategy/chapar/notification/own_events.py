"""The memorized events that a node has published itself and answers for.

Bounded: the first to expire makes room, and of several the one with the lowest number. A publisher may add
thousands of them in a second, so nothing here looks at all of them for each.
"""

import heapq

from roamcast.event import EventId
from roamcast.kit.tables import OnEvicted
from roamcast.strategy.chapar.tables.event_table import Memo
from roamcast.units import Micros


class OwnEvents:
    def __init__(self, most: int, on_evicted: OnEvicted[EventId, Memo]) -> None:
        self._most = most
        self._on_evicted = on_evicted
        self._memos: dict[EventId, Memo] = {}
        self._by_expiry: list[tuple[Micros, EventId]] = []  # each once
        self._latest: EventId | None = None  # None: not known

    def add(self, memo: Memo) -> None:
        """One that is among them already stays as it is."""
        key = memo.id
        if key in self._memos:
            return
        if len(self._memos) >= self._most:
            first = heapq.heappop(self._by_expiry)[1]
            self._on_evicted(first, self._take_out(first))
        is_latest = not self._memos or (self._latest is not None and key > self._latest)
        self._memos[key] = memo
        heapq.heappush(self._by_expiry, (memo.expires_at, key))
        if is_latest:
            self._latest = key

    def forget_expired(self, now: Micros) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            self._take_out(heapq.heappop(self._by_expiry)[1])

    def find(self, event: EventId) -> Memo | None:
        return self._memos.get(event)

    def latest(self) -> Memo | None:
        """The one with the highest number."""
        if not self._memos:
            return None
        if self._latest is None:
            self._latest = max(self._memos)
        return self._memos[self._latest]

    def in_order(self) -> list[Memo]:
        return [self._memos[key] for key in sorted(self._memos)]

    def _take_out(self, event: EventId) -> Memo:
        if event == self._latest:
            self._latest = None
        return self._memos.pop(event)
