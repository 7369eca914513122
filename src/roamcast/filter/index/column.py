"""One attribute's part of a bitmap: which conjunctions its value rules out.

For each row there is a bitmap of the conjunctions that are false where the row begins. Edges inside a
row change one bit each; they are kept in order and applied up to the event's value, so every comparison is
decided exactly, and the number of rows only trades memory for time.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from roamcast.filter.index.rows import Truth


class BitmapColumn:
    __slots__ = ("edges", "rows", "slots", "starts")

    def __init__(self, row_count: int, entries: Iterable[tuple[int, Truth]]) -> None:
        """`entries`: slots, and where their conjunctions can be true."""
        changes = [0] * (row_count + 1)
        inside: list[list[tuple[Any, int]]] = [[] for _ in range(row_count)]
        for slot, truth in entries:
            bit = 1 << slot
            changes[0] ^= bit
            for span in truth.spans:
                for row, is_inside, edge in span:
                    changes[row + is_inside] ^= bit
                    if is_inside:
                        inside[row].append((edge, slot))
        self.rows: list[int] = []
        self.starts = array("H", [0])  # of each row in the edges, and their number
        self.edges: list[Any] = []
        self.slots = array("H")
        false = 0
        for change, edges in zip(changes, inside, strict=False):
            false ^= change
            self.rows.append(false)
            edges.sort()
            self.edges += [edge for edge, _ in edges]
            self.slots.extend([slot for _, slot in edges])
            self.starts.append(len(self.edges))

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

    def share_rows(self, seen: dict[int, int]) -> None:
        self.rows = [seen.setdefault(row, row) for row in self.rows]

    def _insert(self, row: int, edge: Any, slot: int) -> None:
        starts = self.starts
        at = bisect_right(self.edges, edge, starts[row], starts[row + 1])
        self.edges.insert(at, edge)
        self.slots.insert(at, slot)
        for after in range(row + 1, len(starts)):
            starts[after] += 1
