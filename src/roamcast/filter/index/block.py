"""Conjunctions that one access path leads to: tried one by one while few, by bitmaps when many.

Each bitmap has a bounded width, so that adding never has to build a large one anew. They follow each other in
the order of adding.
"""

from bisect import bisect_right

from roamcast.event import Event
from roamcast.filter.index.bitmap import Bitmap
from roamcast.filter.index.conjunction import Conjunction
from roamcast.filter.index.found import MatchesFound
from roamcast.filter.index.layout import BitmapLayout, Located

SCAN_MAX = 16  # so many compiled filters cost about as much as a bitmap's fixed part
WIDTH = 4096  # slots of a bitmap; chosen by us: an OR takes 0.1 µs, building one anew some 40 ms


class Block:
    __slots__ = ("_bitmaps", "_room", "_scanned", "_stated")

    def __init__(self) -> None:
        self._stated: dict[Conjunction, None] | None = None  # true whenever the access path leads here
        self._scanned: list[Conjunction] = []
        self._bitmaps: list[Bitmap] | None = None
        self._room = 0  # slots of the last bitmap

    def add(self, conjunction: Conjunction) -> None:
        """`conjunction` has conditions beside the one that leads here."""
        bitmaps = self._bitmaps
        if bitmaps is None:
            self._scanned.append(conjunction)
            if len(self._scanned) > SCAN_MAX:
                self._bitmaps = []
                self._append_new(self._scanned)
                self._scanned = []
            return
        last = bitmaps[-1]
        if last.slots >= self._room:
            if last.slots < WIDTH:
                self._renew_last()
            else:
                last.close()
                bitmaps.append(Bitmap([conjunction], last.layout))
                self._room = WIDTH
                return
        bitmaps[-1].add(conjunction)
        if 8 * bitmaps[-1].without_column > len(bitmaps[-1]) + SCAN_MAX:
            self._renew_last()

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
        bitmaps = self._bitmaps
        if bitmaps is None:
            self._scanned.remove(conjunction)
            return
        at = bisect_right(bitmaps, conjunction.sequence, key=lambda bitmap: bitmap.first_sequence) - 1
        bitmap = bitmaps[at]
        bitmap.remove(conjunction)
        if 2 * len(bitmap) < bitmap.slots:
            self._close_up(at)

    @property
    def tested(self) -> int:
        """How many conjunctions need more than the access path."""
        return len(self._scanned) if self._bitmaps is None else sum(map(len, self._bitmaps))

    @property
    def is_empty(self) -> bool:
        return not self._scanned and self._bitmaps is None and self._stated is None

    def match(self, event: Event, found: MatchesFound) -> None:
        if self._stated is not None:
            found.add_all(self._stated)
        for conjunction in self._scanned:
            if conjunction.filter.matches(event):
                found.add(conjunction)
        if self._bitmaps is not None:
            layout: BitmapLayout | None = None
            located: Located = []
            found.begin_run()
            for bitmap in self._bitmaps:
                if bitmap.layout is not layout:
                    layout = bitmap.layout
                    located = layout.located(event)
                matched = bitmap.match(event, located)
                if matched:
                    found.add_many(bitmap, matched)

    def _append_new(self, conjunctions: list[Conjunction]) -> None:
        assert self._bitmaps is not None
        self._bitmaps.append(Bitmap(conjunctions, BitmapLayout(conjunctions)))
        self._room = min(WIDTH, 2 * len(conjunctions))

    def _renew_last(self) -> None:
        """With twice the room, and the cuts of the conjunctions that came meanwhile."""
        assert self._bitmaps is not None
        self._append_new(self._bitmaps.pop().conjunctions())

    def _close_up(self, at: int) -> None:
        """Build a bitmap anew that is half empty, together with a neighbour where there is room."""
        bitmaps = self._bitmaps
        assert bitmaps is not None
        start, end = at, at + 1
        if at > 0 and 2 * (len(bitmaps[at - 1]) + len(bitmaps[at])) <= WIDTH:
            start -= 1
        elif end < len(bitmaps) and 2 * (len(bitmaps[at]) + len(bitmaps[end])) <= WIDTH:
            end += 1
        kept = [conjunction for bitmap in bitmaps[start:end] for conjunction in bitmap.conjunctions()]
        if len(bitmaps) == end - start:
            if 2 * len(kept) <= SCAN_MAX:
                self._scanned, self._bitmaps = kept, None
            else:
                bitmaps.clear()
                self._append_new(kept)
        else:
            bitmaps[start:end] = [Bitmap(kept, bitmaps[start].layout)] if kept else []
            self._room = WIDTH
