"""How much work came in lately: a sum over a window that slides with the clock."""

from collections import deque

from roamcast.units import SECOND, Micros

WINDOW: Micros = 10 * SECOND


class Demand:
    def __init__(self) -> None:
        self._parts: deque[tuple[Micros, Micros]] = deque()  # when, how much
        self._total: Micros = 0

    def add(self, now: Micros, amount: Micros) -> None:
        if amount:
            self._parts.append((now, amount))
            self._total += amount

    def total(self, now: Micros) -> Micros:
        """Of the last `WINDOW`."""
        while self._parts and self._parts[0][0] <= now - WINDOW:
            self._total -= self._parts.popleft()[1]
        return self._total
