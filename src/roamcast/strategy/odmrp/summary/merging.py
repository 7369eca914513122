"""Keeping an array of entries short: covered entries are removed, the most similar ones are joined."""

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from heapq import heapify, heappop, heappush
from itertools import combinations
from operator import or_

from roamcast.strategy.odmrp.summary.entry import Key, SummaryEntry

COMPARED_MAX = 64  # entries that take some 20 ms to compare pair by pair; chosen by us


def merged(entries: Iterable[SummaryEntry], most: int) -> tuple[SummaryEntry, ...]:
    """At most `most` entries, in `order`. What satisfies one of the given entries satisfies one of these.

    Entries are added in an order that depends on nothing but themselves, so that the result does not depend
    on the order of arrival. Whenever there is one too many, the two whose join is the least wider are joined.
    """
    array = _Array()
    for entry in sorted({entry.constraints: entry for entry in entries}.values(), key=order):
        array.add(entry)
        if len(array) > most:
            array.join_closest()
    return tuple(sorted(array, key=order))


def thinned(entries: Collection[SummaryEntry]) -> Collection[SummaryEntry]:
    """At most about `COMPARED_MAX` for `merged`: of more, runs of those with the same keys and similar bits
    are joined. Thousands of entries set most bits of an array anyway, whichever are joined."""
    if len(entries) <= COMPARED_MAX:
        return entries
    alike: dict[tuple[Key, ...], list[tuple[int, ...]]] = {}
    for entry in entries:
        keys, bits = zip(*entry.constraints, strict=True) if entry.constraints else ((), ())
        alike.setdefault(keys, []).append(bits)
    if len(alike) > COMPARED_MAX:  # so many different ones share no condition
        return [reduce(SummaryEntry.joined, entries)]
    run = -(-len(entries) // COMPARED_MAX)
    found = []
    for keys, rows in alike.items():
        rows.sort()
        for at in range(0, len(rows), run):
            columns = zip(*rows[at : at + run], strict=True)
            found.append(SummaryEntry(zip(keys, (reduce(or_, column) for column in columns), strict=True)))
    return found


def order(entry: SummaryEntry) -> tuple[int, list[tuple[int, int]]]:
    """An entry sorts before those it covers: it has fewer conditions, or as many with more bits."""
    return len(entry.constraints), [(key, -bits) for key, bits in entry.constraints]


class _Array:
    """Entries by serial number, and from the first join on, what each further join would cost."""

    def __init__(self) -> None:
        self._entries: dict[int, SummaryEntry] = {}
        self._next = 0
        self._costs: list[tuple[float, int, int]] | None = None  # a heap; removed entries stay in it

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SummaryEntry]:
        return iter(self._entries.values())

    def add(self, entry: SummaryEntry) -> None:
        if any(other.covers(entry) for other in self):
            return
        for number in [number for number, other in self._entries.items() if entry.covers(other)]:
            del self._entries[number]
        if self._costs is not None:
            for number, other in self._entries.items():
                heappush(self._costs, (other.widening(entry), number, self._next))
        self._entries[self._next] = entry
        self._next += 1

    def join_closest(self) -> None:
        if self._costs is None:
            pairs = combinations(self._entries.items(), 2)
            self._costs = [(one.widening(other), first, second) for (first, one), (second, other) in pairs]
            heapify(self._costs)
        while True:
            _, first, second = heappop(self._costs)
            if first in self._entries and second in self._entries:
                break
        self.add(self._entries.pop(first).joined(self._entries.pop(second)))
