"""Many conjunctions at once: one OR of bitmaps per attribute rules out those that an event cannot match.

This is the inverse of the counting algorithm. Counting adds up, per conjunction, how many of its
predicates hold, and touches every satisfied predicate; here each attribute's value selects a row
(`rows.py`), a bitmap of the conjunctions that are false there, and what no row has ruled out is the
answer. Qian et al., "REIN: a fast event matching approach for content-based publish/subscribe systems"
(INFOCOM 2014), mark the unmatched predicate by predicate; the rows hold these marks ready made.

A bitmap is a Python integer: up to some thousand conjunctions its operators are faster than numpy's, and a
device may lack numpy (`roamcast[fast]`). Where it is installed, it copies the keys out of large answers.

Conjunctions get consecutive slots in the order of adding. A removed one leaves its slot empty; the owner
(`block.py`) builds anew when there are too many of these.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import compress, islice
from typing import Any, TypeAlias

from roamcast.event import Event
from roamcast.extras import numpy_is_installed
from roamcast.filter.expression import Within
from roamcast.filter.index.layout import (
    BitmapColumn,
    BitmapLayout,
    ColumnDraft,
    Conjunction,
    Located,
    Steps,
    attribute_of,
)
from roamcast.filter.index.rows import TrueSpans, both
from roamcast.filter.place import circle, direction

Seen: TypeAlias = dict[int, int]
"""The rows of a bitmap's columns. Equal ones are kept once: of an attribute compared for equality every
second one is the same."""


class ClosedColumn:
    """A column to which nothing is added: arranged so that all columns of a wide bitmap are answered
    together.

    A row's bitmap has the conjunctions that are false in all of the row. Those that are true in a part of it
    are found by the edges of that part. An edge's mark is the slot that is false once the edge is passed, or
    `~slot`, false as long as it is ahead: the marks of all columns are collected and their bits set at once.
    The type of the marks allows 2**15 slots.
    """

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


class CircleColumn:
    """Circles around the positions in one pair of attributes, packed together.

    Boxes leave few circles over, but the filters that hold them lie anywhere in memory: asking a few dozen of
    these took longer than all columns (`benchmarks/matching.py`).
    """

    def __init__(self) -> None:
        self.bits = 0  # of the slots that have a circle here
        self._attributes: tuple[str, str] | None = None  # of the first; others are left to their filters
        self._numbers = array("d")  # four for each slot, up to the last with a circle

    def add(self, slot: int, place: Within) -> bool:
        attributes = place.latitude, place.longitude
        if self._attributes not in (None, attributes):
            return False
        self._attributes = attributes
        self._pad(slot)
        self._numbers.extend(circle(place))
        self.bits |= 1 << slot
        return True

    def join(self, later: "CircleColumn", by: int) -> int:
        """Take over those of another; returns the bits of those that belong to other attributes."""
        if later._attributes is None:
            return 0
        if self._attributes not in (None, later._attributes):
            return later.bits << by
        self._attributes = later._attributes
        self._pad(by)
        self._numbers += later._numbers
        self.bits |= later.bits << by
        return 0

    def outside(self, event: Event, candidates: int) -> int:
        """The candidates whose circle does not contain the event's position."""
        latitude, longitude = self._attributes or ("", "")
        found = direction(event.attributes.get(latitude), event.attributes.get(longitude))
        if found is None:
            return candidates
        x, y, z = found
        slots, numbers, false = _slots_in(candidates), self._numbers, 0
        for slot in slots:
            at = 4 * slot
            east, north, up = numbers[at] - x, numbers[at + 1] - y, numbers[at + 2] - z
            if east * east + north * north + up * up > numbers[at + 3]:
                false |= 1 << slot
        return false

    def _pad(self, slots: int) -> None:
        self._numbers.extend([0.0] * (4 * slots - len(self._numbers)))


SPARSE = 20  # slots per match from which looking for each match beats copying past the others

_TRUTH = bytes(byte == ord("1") for byte in range(256))


class Bitmap:
    def __init__(self, layout: BitmapLayout) -> None:
        self.layout = layout
        self.is_closed = False
        self.without_column = 0  # conjunctions that no column narrows, for which a new layout could have some
        self.members: list[Conjunction | None] = []  # by slot
        self._keys: Any = []  # a list, in the end an array where numpy is installed
        self._sequences = array("q")
        self._live = 0
        self._used = 0  # a bit for every slot in use or empty again
        self._empty = 0
        self._asked = 0  # those on which the filter always has the last word
        self._circles = CircleColumn()
        self._columns = [BitmapColumn(rows.count) for rows in layout.columns.values()]
        self._closed: list[ClosedColumn] = []  # in the end, in place of these

    def add(self, conjunction: Conjunction) -> None:
        """The latest of all so far."""
        slot = self.slots
        for number, truth in self._enter(conjunction).items():
            self._columns[number].add(slot, truth)

    def fill(self, members: Iterable[Conjunction | None]) -> Steps[None]:
        """Add to an empty bitmap all that are there, in their order; faster than one by one."""
        drafts = [ColumnDraft(rows.count) for rows in self.layout.columns.values()]
        for conjunction in members:
            if conjunction is not None:
                slot = self.slots
                for number, truth in self._enter(conjunction).items():
                    drafts[number].add(slot, truth)
                del conjunction  # it may be removed before the next step, so no reference to it is kept here
                yield
        self.without_column = 0
        for number, draft in enumerate(drafts):
            self._columns[number] = yield from draft.finished()

    def remove(self, conjunction: Conjunction) -> None:
        """Take it out, if it is here."""
        slot = bisect_left(self._sequences, conjunction.sequence)
        if slot < self.slots and self.members[slot] is conjunction:
            self.members[slot] = self._keys[slot] = None
            self._empty |= 1 << slot
            self._live -= 1

    def close(self) -> Steps[None]:
        """Nothing will be added, except whole bitmaps."""
        seen: Seen = {}
        for column in self._columns:
            self._closed += [(yield from closed(column, seen))]
        self._columns = []
        self.is_closed = True
        self._settle()

    def join(self, later: "Bitmap") -> Steps[None]:
        """Take over one of the same layout, both closed; faster than adding its conjunctions."""
        by = self.slots
        seen: Seen = {}
        columns: list[ClosedColumn] = []
        for column, more in zip(self._closed, later._closed, strict=True):
            columns += [(yield from joined(column, more, by, seen))]
        self._closed = columns
        self.members += later.members
        self._keys = [*self._keys, *later._keys]
        self._sequences += later._sequences
        self._live += later._live
        self._used |= later._used << by
        self._empty |= later._empty << by
        self._asked |= later._asked << by | self._circles.join(later._circles, by)
        self._settle()

    def _settle(self) -> None:
        if numpy_is_installed():
            import numpy as np

            self._keys = np.fromiter(self._keys, np.object_, len(self._keys))

    def __len__(self) -> int:
        return self._live

    @property
    def slots(self) -> int:
        """Used and empty ones."""
        return len(self.members)

    @property
    def first_sequence(self) -> int:
        return self._sequences[0]

    def added_after(self, other: "Bitmap") -> Iterator[Conjunction | None]:
        """What the other one, made of the same, does not have yet; also what is added while this goes on."""
        last = other._sequences[-1] if other.slots else -1
        return islice(self.members, bisect_right(self._sequences, last), None)

    def match(self, event: Event, located: Located) -> int:
        """A bit for each slot that matches."""
        false = self._false_when_closed(located) if self.is_closed else self._false_when_open(located)
        matched = self._used ^ (self._empty | false)
        near = self._circles.bits & matched
        if near:
            matched ^= self._circles.outside(event, near)
        asked = self._asked & matched
        if asked:
            members: list[Any] = self.members
            for slot in _slots_in(asked):
                if not members[slot].filter.matches(event):
                    matched ^= 1 << slot
        return matched

    def _false_when_open(self, located: Located) -> int:
        ruled_out = 0
        for column, (row, value) in zip(self._columns, located, strict=True):
            # Here and not in a method of the column: a call costs a third of this loop.
            false = column.rows[row]
            start, end = column.starts[row], column.starts[row + 1]
            if start != end:
                for slot in column.slots[start : bisect_right(column.edges, value, start, end)]:
                    false ^= 1 << slot
            ruled_out |= false
        return ruled_out

    def _false_when_closed(self, located: Located) -> int:
        ruled_out = 0
        passed, ahead = array("h"), array("h")
        for column, (row, value) in zip(self._closed, located, strict=True):
            ruled_out |= column.rows[row]
            start, end = column.starts[row], column.starts[row + 1]
            if start != end:
                at = bisect_right(column.edges, value, start, end)
                passed += column.marks[start:at]
                ahead += column.marks[at:end]
            if row in column.gaps:
                passed.extend([slot for low, high, slot in column.gaps[row] if low <= value < high])
        return ruled_out | _false_by(passed, ahead, self.slots, not isinstance(self._keys, list))

    def keys_of(self, matched: int) -> list[Any]:
        return _select(self._keys, matched)

    def members_of(self, matched: int) -> list[Conjunction]:
        return _select(self.members, matched)

    def _enter(self, conjunction: Conjunction) -> dict[int, TrueSpans]:
        """Fill the next slot, except for the columns; returns what to enter there."""
        bit = 1 << self.slots
        self.members.append(conjunction)
        self._keys.append(conjunction.key)
        self._sequences.append(conjunction.sequence)
        self._live += 1
        self._used |= bit
        layout = self.layout
        is_decided = True
        places: list[Within] = []
        truths: dict[int, TrueSpans] = {}
        for leaf in conjunction.tested_leaves():
            if isinstance(leaf, Within):
                places.append(leaf)
                continue
            attribute = attribute_of(leaf)
            number = layout.numbers.get(attribute) if attribute is not None else None
            if attribute is None or number is None:
                is_decided = False
                continue
            truth = layout.columns[attribute].truth_of(leaf)
            is_decided = is_decided and truth.is_decided
            truths[number] = both(truths[number], truth) if number in truths else truth
        self.without_column += not truths
        if is_decided and len(places) == 1:
            is_decided = self._circles.add(self.slots - 1, places[0])
        if not is_decided or len(places) > 1:
            self._asked |= bit
        return truths


def _false_by(passed: "array[int]", ahead: "array[int]", width: int, by_numpy: bool) -> int:
    """A bit for each slot that an edge passed or ahead makes false (`ClosedColumn`)."""
    if by_numpy:
        import numpy as np

        is_false = np.zeros(width, np.uint8)
        marks = np.frombuffer(passed, np.int16)
        is_false[marks[marks >= 0]] = 1
        marks = np.frombuffer(ahead, np.int16)
        is_false[~marks[marks < 0]] = 1
        return int.from_bytes(np.packbits(is_false, bitorder="little").tobytes(), "little")
    octets = bytearray(width // 8 + 1)
    for mark in passed:
        if mark >= 0:
            octets[mark >> 3] |= 1 << (mark & 7)
    for mark in ahead:
        if mark < 0:
            octets[~mark >> 3] |= 1 << (~mark & 7)
    return int.from_bytes(octets, "little")


def _slots_in(bits: int) -> Iterator[int]:
    """The last ones first: to turn the text around takes longer than to look for the ones in it."""
    text, at = bin(bits), None
    while (at := text.rfind("1", 2, at)) >= 0:
        yield len(text) - 1 - at


def _select(values: Any, bits: int) -> list[Any]:
    """The items of a list or numpy array whose bits are set."""
    if not isinstance(values, list):
        import numpy as np

        octets = np.frombuffer(bits.to_bytes(-(-len(values) // 8), "little"), np.uint8)
        is_set = np.unpackbits(octets, count=len(values), bitorder="little").view(np.bool_)
        selected: list[Any] = values[is_set].tolist()
        return selected
    if bits.bit_count() * SPARSE < len(values):
        few = []
        text = bin(bits)[:1:-1]
        at = text.find("1")
        while at >= 0:
            few.append(values[at])
            at = text.find("1", at + 1)
        return few
    return list(compress(values, bin(bits)[:1:-1].encode().translate(_TRUTH)))
