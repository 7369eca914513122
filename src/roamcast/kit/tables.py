"""Tables with a bound: a full table evicts an entry and reports it to the owner.

A table that outsiders can fill has a bound, and reaching the bound must be visible: `on_evicted` is not
optional, and the owner traces or counts there. `BoundedDict` evicts the oldest entry, `ExpiringDict` the one
that would expire first; so does `LifetimeDict`, for thousands of entries whose time never changes. Entries
that are taken out because their time is over are not reported.

What belongs to one key is one entry of one table. Of two tables with the same keys and two bounds, one pushes
out what the other still asks for.

Neither class reads a clock. Not covered here: a table that refuses new entries (so that a flood of forged
ones cannot push out known ones) compares its own length, and the store and the duplicate filter of the
broker have bounds of their own kind (`broker/store.py`, `broker/seen.py`).
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from roamcast.units import Micros

Key = TypeVar("Key")
Value = TypeVar("Value")

FEW = 64  # entries: a heap of so few more than needed is not worth sorting anew

OnEvicted: TypeAlias = Callable[[Key, Value], object]


def unreported(key: object, value: object) -> None:
    """For tables that are meant to hold only the latest entries: an eviction is no loss."""


class BoundedDict(OrderedDict[Key, Value]):
    """A dictionary of at most `most` entries, the oldest first; a new entry evicts the oldest.

    Assigning to an existing key keeps its age, as in any dictionary; `renew` makes it the youngest. It is an
    `OrderedDict` because that takes its first entry out in constant time, and because every way to enter
    something (`setdefault`, `update`) leads through `__setitem__`.
    """

    def __init__(self, most: int, on_evicted: OnEvicted[Key, Value]) -> None:
        assert most >= 1
        super().__init__()
        self._most = most
        self._on_evicted = on_evicted

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._most and key not in self:  # `is_full`
            self._on_evicted(*self._taken_out())
        super().__setitem__(key, value)

    @property
    def is_full(self) -> bool:
        return len(self) >= self._most

    def renew(self, key: Key, value: Value) -> None:
        """Enter or replace, as the youngest."""
        self[key] = value
        self.move_to_end(key)

    def forget(self, is_over: Callable[[Value], bool]) -> list[Key]:
        """Take out all entries that are over; returns their keys."""
        ended = [key for key, value in self.items() if is_over(value)]
        for key in ended:
            del self[key]
        return ended

    def forget_oldest(self, is_over: Callable[[Value], bool]) -> None:
        """Take out the oldest entries, up to the first that is not over: for entries that end by age."""
        while self:
            first = next(iter(self))
            if not is_over(self[first]):
                return
            del self[first]

    def _taken_out(self) -> tuple[Key, Value]:
        """The entry to evict, which is no longer in the table."""
        return self.popitem(last=False)


class ExpiringDict(BoundedDict[Key, Value]):
    """A bounded dictionary whose entries expire; `until` gives the time of a value. The first to expire is
    evicted; of several the one with the lowest key, so that all nodes choose alike."""

    def __init__(
        self, most: int, on_evicted: OnEvicted[Key, Value], until: Callable[[Value], Micros]
    ) -> None:
        super().__init__(most, on_evicted)
        self._until = until

    def expire(self, now: Micros) -> list[Key]:
        """Take out what has expired; returns the keys."""
        until = self._until
        return self.forget(lambda value: until(value) <= now)

    def next_expiry(self) -> Micros | None:
        return min(map(self._until, self.values()), default=None)

    def _taken_out(self) -> tuple[Key, Value]:
        def rank(key: Key) -> tuple[Micros, Any]:
            return self._until(self[key]), key

        first = min(self, key=rank)
        return first, self.pop(first)


class LifetimeDict(ExpiringDict[Key, Value]):
    """As `ExpiringDict`, for values whose time never changes: a heap finds the first to expire, so
    neither entering nor expiring looks at all of them. A new entry is evicted itself if it would be the first
    to expire: nodes that hold the same entries agree on what stays, in whatever order the entries came."""

    def __init__(
        self, most: int, on_evicted: OnEvicted[Key, Value], until: Callable[[Value], Micros]
    ) -> None:
        super().__init__(most, on_evicted, until)
        self._by_expiry: list[tuple[Micros, Any]] = []  # of all entries, and of some that were taken out

    def __setitem__(self, key: Key, value: Value) -> None:
        OrderedDict.__setitem__(self, key, value)
        heapq.heappush(self._by_expiry, (self._until(value), key))
        if len(self) > self._most:
            self._on_evicted(*self._taken_out())
        elif len(self._by_expiry) > 2 * len(self) + FEW:
            self._by_expiry = sorted((self._until(value), key) for key, value in self.items())

    def expire(self, now: Micros) -> list[Key]:
        ended = []
        while self._by_expiry and self._by_expiry[0][0] <= now:
            at, key = heapq.heappop(self._by_expiry)
            if key in self and self._until(self[key]) == at:
                del self[key]
                ended.append(key)
        return ended

    def _taken_out(self) -> tuple[Key, Value]:
        while True:
            at, key = heapq.heappop(self._by_expiry)
            if key in self and self._until(self[key]) == at:
                return key, self.pop(key)
