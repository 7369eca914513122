"""One attribute's part of a bitmap: which conjunctions its value rules out.

For each row there is a bitmap of the conjunctions that are false where the row begins. Edges inside a
row change one bit each; they are kept in order and applied up to the event's value, so every comparison is
decided exactly, and the number of rows only trades memory for time.
"""

from array import array
from bisect import bisect_right
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from roamcast.filter.index.rows import Truth

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Building, in steps of some ten microseconds: who changes the index need not wait for the end of it."""


class BitmapColumn:
    __slots__ = ("edges", "rows", "slots", "starts")

    def __init__(self, row_count: int) -> None:
        self.rows = [0] * row_count
        self.starts = array("I", bytes(4 * (row_count + 1)))  # of each row in the edges, and their number
        self.edges: list[Any] = []
        self.slots = array("H")

    def add(self, slot: int, truth: Truth) -> None:
        bit = 1 << slot
        rows = self.rows
        start = 0
        for (first, begins_inside, low), (last, ends_inside, high) in truth.spans:
            for row in range(start, first + begins_inside):
                rows[row] |= bit
            start = last + ends_inside
            if begins_inside:
                self._insert(first, low, slot)
            if ends_inside:
                self._insert(last, high, slot)
        for row in range(start, len(rows)):
            rows[row] |= bit

    def _insert(self, row: int, edge: Any, slot: int) -> None:
        starts = self.starts
        at = bisect_right(self.edges, edge, starts[row], starts[row + 1])
        self.edges.insert(at, edge)
        self.slots.insert(at, slot)
        for after in range(row + 1, len(starts)):
            starts[after] += 1


class ColumnDraft:
    """A column of many conjunctions: notes where each changes, which takes less than `BitmapColumn.add`."""

    __slots__ = ("_changes", "_inside")

    def __init__(self, row_count: int) -> None:
        self._changes = [0] * (row_count + 1)
        self._inside: list[list[tuple[Any, int]]] = [[] for _ in range(row_count)]

    def add(self, slot: int, truth: Truth) -> None:
        bit = 1 << slot
        changes = self._changes
        changes[0] ^= bit
        for span in truth.spans:
            for row, is_inside, edge in span:
                changes[row + is_inside] ^= bit
                if is_inside:
                    self._inside[row].append((edge, slot))

    def finished(self) -> Steps[BitmapColumn]:
        column = BitmapColumn(len(self._inside))
        false = 0
        for row, edges in enumerate(self._inside):
            self._inside[row] = []  # freed row by row: all at once would be a long step
            false ^= self._changes[row]
            column.rows[row] = false
            edges.sort()
            column.edges += [edge for edge, _ in edges]
            column.slots.extend([slot for _, slot in edges])
            column.starts[row + 1] = len(column.edges)
            yield
        return column
