"""A column to which nothing is added: arranged so that all columns of a wide bitmap are answered together.

A row's bitmap has the conjunctions that are false in all of the row. Those that are true in a part of it are
found by the edges of that part. An edge's mark is the slot that is false once the edge is passed, or `~slot`,
false as long as it is ahead: the marks of all columns are collected and their bits set at once.
The type of the marks allows 2**15 slots.
"""

from array import array
from typing import Any, TypeAlias

from roamcast.filter.index.column import BitmapColumn, Steps

Seen: TypeAlias = dict[int, int]
"""The rows of a bitmap's columns. Equal ones are kept once: of an attribute compared for equality every
second one is the same."""


class ClosedColumn:
    __slots__ = ("edges", "gaps", "marks", "rows", "starts")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.starts = array("I", [0])
        self.edges: list[Any] = []
        self.marks = array("h")
        self.gaps: dict[int, list[tuple[Any, Any, int]]] = {}  # by row: false from a value to another; slot

    def _append_row(self, false: int, inside: list[tuple[Any, int]], seen: Seen) -> None:
        self.rows.append(seen.setdefault(false, false))
        self.edges += [edge for edge, _ in inside]
        self.marks.extend([mark for _, mark in inside])
        self.starts.append(len(self.edges))

    def _inside(self, row: int) -> list[tuple[Any, int]]:
        here = slice(self.starts[row], self.starts[row + 1])
        return list(zip(self.edges[here], self.marks[here], strict=True))


def closed(column: BitmapColumn, seen: Seen) -> Steps[ClosedColumn]:
    new = ClosedColumn()
    for row, false in enumerate(column.rows):
        changes: dict[int, list[Any]] = {}
        for at in range(column.starts[row], column.starts[row + 1]):
            changes.setdefault(column.slots[at], []).append(column.edges[at])
        inside: list[tuple[Any, int]] = []
        for slot, edges in changes.items():
            if false >> slot & 1:
                false ^= 1 << slot
                inside.append((edges.pop(0), ~slot))
            if len(edges) % 2:
                inside.append((edges.pop(), slot))
            for low, high in zip(edges[::2], edges[1::2], strict=True):  # of a `<>` or IN
                new.gaps.setdefault(row, []).append((low, high, slot))
        inside.sort()
        new._append_row(false, inside, seen)
        yield
    return new


def joined(column: ClosedColumn, later: ClosedColumn, by: int, seen: Seen) -> Steps[ClosedColumn]:
    """Of two with the same rows, the slots of the later one moved by so many."""
    new = ClosedColumn()
    for row, false in enumerate(column.rows):
        moved = [(edge, mark + by if mark >= 0 else mark - by) for edge, mark in later._inside(row)]
        new._append_row(false | later.rows[row] << by, sorted(column._inside(row) + moved), seen)
        gaps = column.gaps.get(row, []) + [(*gap, slot + by) for *gap, slot in later.gaps.get(row, [])]
        if gaps:
            new.gaps[row] = gaps
        yield
    return new
