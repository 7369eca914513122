"""Conjunctions that one access path leads to: tried one by one while few, by bitmap when many.

Bitmaps need numpy, which a device may lack (`roamcast[fast]`), and which takes 16 MB: it is loaded when the
first place has many. Without it all are tried one by one; the answers are the same.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roamcast.event import Event
from roamcast.extras import numpy_is_installed
from roamcast.filter.index.conjunction import Conjunction
from roamcast.filter.index.found import MatchesFound

if TYPE_CHECKING:
    from roamcast.filter.index.bitmap import Bitmap

SCAN_MAX = 96  # so many compiled filters cost about as much as a bitmap's fixed part, one AND per attribute


class Block:
    __slots__ = ("_bitmap", "_scanned", "_stated")

    def __init__(self) -> None:
        self._stated: dict[Conjunction, None] | None = None  # true whenever the access path leads here
        self._scanned: list[Conjunction] = []
        self._bitmap: Bitmap | None = None

    def add(self, conjunction: Conjunction) -> None:
        """`conjunction` has conditions beside the one that leads here."""
        bitmap = self._bitmap
        if bitmap is None:
            self._scanned.append(conjunction)
            if len(self._scanned) > SCAN_MAX and numpy_is_installed():
                self._bitmap = bitmap_of(self._scanned)
                self._scanned = []
        elif bitmap.wants_rebuild:
            self._bitmap = bitmap_of([*bitmap.conjunctions(), conjunction])
        else:
            bitmap.add(conjunction)

    def add_stated(self, conjunction: Conjunction) -> None:
        """`conjunction` is nothing but the condition that leads here: no test is needed."""
        if self._stated is None:
            self._stated = {}
        self._stated[conjunction] = None

    def remove(self, conjunction: Conjunction) -> None:
        if self._stated is not None and conjunction in self._stated:
            del self._stated[conjunction]
            if not self._stated:
                self._stated = None
            return
        bitmap = self._bitmap
        if bitmap is None:
            self._scanned.remove(conjunction)
            return
        bitmap.remove(conjunction)
        if 2 * len(bitmap) < SCAN_MAX:
            self._scanned = bitmap.conjunctions()
            self._bitmap = None
        elif bitmap.wants_rebuild:
            self._bitmap = bitmap_of(bitmap.conjunctions())

    @property
    def tested(self) -> int:
        """How many conjunctions need more than the access path."""
        return len(self._scanned) if self._bitmap is None else len(self._bitmap)

    @property
    def is_empty(self) -> bool:
        return not self._scanned and self._bitmap is None and self._stated is None

    def match(self, event: Event, found: MatchesFound) -> None:
        if self._stated is not None:
            for conjunction in self._stated:
                found.add(conjunction)
        for conjunction in self._scanned:
            if conjunction.matches(event):
                found.add(conjunction)
        if self._bitmap is not None:
            self._bitmap.match(event, found)


def bitmap_of(conjunctions: Sequence[Conjunction]) -> "Bitmap":
    from roamcast.filter.index.bitmap import Bitmap

    return Bitmap(conjunctions)
