"""Conjunctions that one access path leads to: tried one by one while few, by bitmaps when many.

Each bitmap has a bounded width. They follow each other in the order of adding. To build one anew, to close a
full one and to join it to the one before can take half a second: each change does a few steps of it, and
meanwhile the old bitmaps answer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from roamcast.event import Event
from roamcast.filter.index.bitmap import Bitmap
from roamcast.filter.index.layout import BitmapLayout, Conjunction, Located, Steps, layout_for


class MatchesFound:
    """The matches of one search, and their final order. Single matches come from tests, many at once from
    bitmaps."""

    __slots__ = ("_many", "_runs", "_single")

    def __init__(self) -> None:
        self._single: list[Conjunction] = []
        self._many: list[tuple[Bitmap, int]] = []
        self._runs = 0

    def add(self, conjunction: Conjunction) -> None:
        self._single.append(conjunction)

    def add_all(self, conjunctions: Iterable[Conjunction]) -> None:
        self._single.extend(conjunctions)

    def begin_run(self) -> None:
        """The bitmaps that follow are of one block, in the order of adding."""
        self._runs += 1

    def add_many(self, bitmap: Bitmap, matched: int) -> None:
        self._many.append((bitmap, matched))

    def keys(self, once: bool) -> list[Any]:
        """In the order of adding; `once`: a subscription can be found several times."""
        keys: list[Any] = []
        if self._runs == 1 and not self._single:
            for bitmap, matched in self._many:
                keys += bitmap.keys_of(matched)
        else:
            conjunctions = self._single
            for bitmap, matched in self._many:
                conjunctions += bitmap.members_of(matched)
            conjunctions.sort(key=_SEQUENCE)
            keys = [conjunction.key for conjunction in conjunctions]
        return list(dict.fromkeys(keys)) if once else keys


_SEQUENCE = attrgetter("sequence")


SCAN_MAX = 16  # so many compiled filters cost about as much as a bitmap's fixed part
WIDTH = 4096  # slots of a bitmap; chosen by us: an OR takes 0.1 µs
STEPS = 16  # of building, with each change: done long before the bitmap has doubled again

CLOSED_WIDTH = 32768  # of several joined, to which nothing is added; the most that marks allow (`bitmap.py`)


class Block:
    __slots__ = ("_bitmaps", "_building", "_coming", "_room", "_scanned", "_stated")

    def __init__(self) -> None:
        self._stated: dict[Conjunction, None] | None = None  # true whenever the access path leads here
        self._scanned: list[Conjunction] = []
        self._bitmaps: list[Bitmap] | None = None
        self._room = 0  # slots of the last bitmap
        self._building: Steps[None] | None = None
        self._coming: Bitmap | None = None  # the bitmap that is being built

    def add(self, conjunction: Conjunction) -> None:
        """`conjunction` has conditions beside the one that leads here."""
        if self._bitmaps is None:
            self._scanned.append(conjunction)
            if len(self._scanned) > SCAN_MAX:
                self._bitmaps = self._of_scanned()
                self._scanned = []
            return
        last = self._bitmaps[-1]
        if last.is_closed or (last.slots >= WIDTH and self._building is None):
            self._bitmaps.append(Bitmap(last.layout))
            self._room = WIDTH
        self._bitmaps[-1].add(conjunction)
        self._build_on(self._bitmaps)

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
        bitmaps[at].remove(conjunction)
        if self._coming is not None:
            self._coming.remove(conjunction)
        if 2 * self.tested <= SCAN_MAX:
            self._scanned = [member for member in _members(bitmaps) if member is not None]
            self._bitmaps = self._building = self._coming = None
        else:
            self._build_on(bitmaps)

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

    def _of_scanned(self) -> list[Bitmap]:
        bitmaps = [Bitmap(BitmapLayout({}))]
        for conjunction in self._scanned:
            bitmaps[0].add(conjunction)
        for _ in self._renew(bitmaps, 0, 1, with_layout=True):
            pass
        return bitmaps

    def _build_on(self, bitmaps: list[Bitmap]) -> None:
        if self._building is None:
            self._building = self._next_building(bitmaps)
        if self._building is not None and len(list(islice(self._building, STEPS))) < STEPS:
            self._building = None

    def _next_building(self, bitmaps: list[Bitmap]) -> Steps[None] | None:
        for at, bitmap in enumerate(bitmaps):
            if 2 * len(bitmap) < bitmap.slots:
                return self._close_up(bitmaps, at)
        if len(bitmaps) > 1 and not bitmaps[-2].is_closed:
            return _close(bitmaps, len(bitmaps) - 2)
        last = bitmaps[-1]
        is_full = self._room <= last.slots < WIDTH
        if is_full or 8 * last.without_column > len(last) + SCAN_MAX:
            return self._renew(bitmaps, len(bitmaps) - 1, len(bitmaps), with_layout=True)
        return None

    def _close_up(self, bitmaps: list[Bitmap], at: int) -> Steps[None]:
        """Build a bitmap anew that is half empty, together with a neighbour where there is room."""
        start, end = at, at + 1
        if at > 0 and 2 * (len(bitmaps[at - 1]) + len(bitmaps[at])) <= WIDTH:
            start -= 1
        elif end < len(bitmaps) and 2 * (len(bitmaps[at]) + len(bitmaps[end])) <= WIDTH:
            end += 1
        return self._renew(bitmaps, start, end, with_layout=end - start == len(bitmaps))

    def _renew(self, bitmaps: list[Bitmap], start: int, end: int, with_layout: bool) -> Steps[None]:
        """One bitmap in place of some, perhaps with the cuts of the conjunctions that came meanwhile."""
        old = bitmaps[start:end]
        layout, room = old[0].layout, WIDTH
        if with_layout:
            slots = sum(bitmap.slots for bitmap in old)
            room = min(WIDTH, 2 * sum(map(len, old)))
            layout = yield from layout_for(islice(_members(old), 0, None, -(-slots // WIDTH)))
        new = self._coming = Bitmap(layout)
        yield from new.fill(_members(old))
        if end < len(bitmaps) or (old[-1].is_closed and new.slots >= WIDTH):
            yield from new.close()
        for conjunction in old[-1].added_after(new):
            if conjunction is not None:
                new.add(conjunction)
                del conjunction
            yield
        if end == len(bitmaps):
            self._room = room
        bitmaps[start:end] = [new] if len(new) else []
        self._coming = None


def _close(bitmaps: list[Bitmap], at: int) -> Steps[None]:
    """Close the bitmap; it becomes a part of the one before, if that has room."""
    bitmap = bitmaps[at]
    yield from bitmap.close()
    before = bitmaps[at - 1] if at else bitmap
    is_near = before is not bitmap and before.is_closed and before.layout is bitmap.layout
    if is_near and before.slots + bitmap.slots <= CLOSED_WIDTH:
        yield from before.join(bitmap)
        del bitmaps[at]


def _members(bitmaps: list[Bitmap]) -> Iterator[Conjunction | None]:
    return chain.from_iterable(bitmap.members for bitmap in bitmaps)
