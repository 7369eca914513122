"""A column to which nothing is added: arranged so that all columns of a wide bitmap are answered together.

A row's bitmap has the conjunctions that are false in all of the row. Those that are true in a part of it are
found by the edges of that part. An edge's mark is the slot that is false once the edge is passed, or `~slot`,
false as long as it is ahead: the marks of all columns are collected and their bits set at once.
The type of the marks allows 2**15 slots.
"""

from array import array
from typing import Any

from roamcast.filter.index.column import BitmapColumn


class ClosedColumn:
    __slots__ = ("edges", "gaps", "marks", "rows", "starts")

    def __init__(self, column: BitmapColumn) -> None:
        self.rows: list[int] = []
        self.starts = array("I", [0])
        self.edges: list[Any] = []
        self.marks = array("h")
        self.gaps: dict[
            int, list[tuple[Any, Any, int]]
        ] = {}  # by row: false from a value up to another; slot
        for row, false in enumerate(column.rows):
            here = range(column.starts[row], column.starts[row + 1])
            changes: dict[int, list[Any]] = {}
            for at in here:
                changes.setdefault(column.slots[at], []).append(column.edges[at])
            inside: list[tuple[Any, int]] = []
            for slot, edges in changes.items():
                if false >> slot & 1:
                    false ^= 1 << slot
                    inside.append((edges.pop(0), ~slot))
                if len(edges) % 2:
                    inside.append((edges.pop(), slot))
                for low, high in zip(edges[::2], edges[1::2], strict=True):  # of a `<>` or IN
                    self.gaps.setdefault(row, []).append((low, high, slot))
            inside.sort()
            self.rows.append(false)
            self.edges += [edge for edge, _ in inside]
            self.marks.extend([mark for _, mark in inside])
            self.starts.append(len(self.edges))

    def append(self, other: "ClosedColumn", by: int) -> None:
        """Take over a column with the same rows, its slots moved by so many."""
        self.rows = [row | (more << by) for row, more in zip(self.rows, other.rows, strict=True)]
        edges: list[Any] = []
        marks = array("h")
        moved = array("h", [mark + by if mark >= 0 else mark - by for mark in other.marks])
        for row in range(len(self.rows)):
            here = slice(self.starts[row], self.starts[row + 1])
            there = slice(other.starts[row], other.starts[row + 1])
            row_edges, row_marks = self.edges[here] + other.edges[there], self.marks[here] + moved[there]
            order = sorted(range(len(row_edges)), key=row_edges.__getitem__)
            edges += [row_edges[at] for at in order]
            marks.extend([row_marks[at] for at in order])
        self.edges, self.marks = edges, marks
        self.starts = array("I", map(int.__add__, self.starts, other.starts))
        for row, gaps in other.gaps.items():
            self.gaps.setdefault(row, []).extend((low, high, slot + by) for low, high, slot in gaps)

    def share_rows(self, seen: dict[int, int]) -> None:
        """Equal rows are kept once: of an attribute compared for equality every second one is the same."""
        self.rows = [seen.setdefault(row, row) for row in self.rows]
