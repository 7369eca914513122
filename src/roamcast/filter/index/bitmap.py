"""Many conjunctions at once: one AND of bitmaps per attribute leaves the possible ones.

This is the inverse of the counting algorithm. Counting adds up, per conjunction, how many of its
predicates hold, and touches every satisfied predicate; here each attribute's value selects one bitmap
of the conjunctions it does not rule out, and their AND is the answer for 64 conjunctions per machine
word, equality and ranges alike (see `column.py`). Numeric ranges that the rows do not decide exactly are
compared for all remaining conjunctions together (`interval.py`); the compiled filter decides the rest.

Conjunctions get consecutive slots and a removed one leaves its slot empty, so the bitmap only fills
up; the owner (`block.py`) then builds a new one from the remaining ones, which also chooses new cuts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roamcast.event import Event, Value
from roamcast.filter.expression import Expression
from roamcast.filter.index.column import BitmapColumn, Spans, Words, choose_cuts, constants
from roamcast.filter.index.conjunction import COLUMNS_MAX, Conjunction, attribute_of
from roamcast.filter.index.found import MatchesFound
from roamcast.filter.index.interval import as_float, interval_of

CUTS_TOTAL = 640  # over all columns; chosen by us: two rows per cut make 160 octets a conjunction
CUTS_MIN = 4  # of each kind in each column; chosen by us
TEXT_WEIGHT = 2  # a text that is no cut costs a compiled filter, a number only a comparison of intervals
INTERVALS_MAX = 4  # of one conjunction: their bounds fill one cache line
VERIFY_MAX = 16  # so many compiled filters are as fast as one comparison of intervals

Slots: TypeAlias = NDArray[np.intp]


class Bitmap:
    """Room for half as many conjunctions again as it is built from."""

    def __init__(self, conjunctions: Sequence[Conjunction]) -> None:
        word_count = len(conjunctions) * 3 // 2 // 64 + 1
        self._columns = _columns_for(conjunctions, word_count * 8)
        self._numbers = {attribute: number for number, attribute in enumerate(self._columns)}
        self._probes: list[tuple[str, Callable[[Value], int], list[Words]]] = [
            (attribute, column.row_of, column.possible) for attribute, column in self._columns.items()
        ]
        self._slots: dict[Conjunction, int] = {}
        self._used = 0
        self._room = word_count * 64
        self._without_column = 0
        self._members = np.full(self._room, None, dtype=np.object_)
        self._keys = np.full(self._room, None, dtype=np.object_)
        self._sequences: NDArray[np.int64] = np.zeros(self._room, dtype=np.int64)
        # Each interval has the number of its column; the number after the last means "always inside".
        self._interval_columns = np.full((self._room, INTERVALS_MAX), len(self._columns), dtype=np.uint8)
        # Lows and highs side by side: the bounds of one conjunction fill one cache line.
        self._bounds = np.empty((self._room, 2, INTERVALS_MAX))
        self._bounds[:, 0], self._bounds[:, 1] = -math.inf, math.inf
        self._exact = np.zeros(self._room, dtype=np.bool_)  # rows and intervals decide alone
        self._live: Words = np.zeros(word_count, dtype=np.uint64)
        self._found: Words = np.zeros(word_count, dtype=np.uint64)
        self._fill(conjunctions)

    def add(self, conjunction: Conjunction) -> None:
        """Only where `wants_rebuild` is false."""
        slot = self._used
        for attribute, spans in self._enter(conjunction):
            self._columns[attribute].write(slot, spans)

    def remove(self, conjunction: Conjunction) -> None:
        slot = self._slots.pop(conjunction)
        self._members[slot] = self._keys[slot] = None
        self._live.view(np.uint8)[slot >> 3] &= np.uint8(255 ^ (1 << (slot & 7)))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def wants_rebuild(self) -> bool:
        """Full, mostly empty, or many conjunctions have attributes without a column and must be verified."""
        return (
            self._used == self._room
            or 4 * len(self._slots) < self._room
            or 8 * self._without_column > len(self._slots) + 8 * VERIFY_MAX
        )

    def conjunctions(self) -> list[Conjunction]:
        """In the order of adding."""
        return list(self._slots)

    def match(self, event: Event, found: MatchesFound) -> None:
        value_of = event.attributes.get
        words = self._found
        np.copyto(words, self._live)
        intersect: Any = np.bitwise_and
        for attribute, row_of, possible in self._probes:
            intersect(words, possible[row_of(value_of(attribute))], words)
        slots = _slots_in(words)
        if len(slots) > VERIFY_MAX:
            values = [as_float(value_of(attribute)) for attribute in self._columns]
            if None not in values:
                is_exact = self._exact[slots]
                sure = self._inside(slots[is_exact], np.array([*values, 0.0], dtype=np.float64))
                found.add_many(self._sequences[sure], self._keys[sure])
                slots = slots[~is_exact]
        for conjunction in self._members[slots].tolist():
            if conjunction.matches(event):
                found.add(conjunction)

    def _inside(self, slots: Slots, values: NDArray[np.float64]) -> Slots:
        """Those of the slots whose intervals all hold the values."""
        compared = values[self._interval_columns[slots]]
        bounds = self._bounds[slots]
        inside = (bounds[:, 0] <= compared) & (compared <= bounds[:, 1])
        return slots[inside.all(axis=1)]

    def _fill(self, conjunctions: Sequence[Conjunction]) -> None:
        slots_of: dict[str, list[int]] = {attribute: [] for attribute in self._columns}
        spans_of: dict[str, list[Spans]] = {attribute: [] for attribute in self._columns}
        for conjunction in conjunctions:
            slot = self._used
            for attribute, spans in self._enter(conjunction):
                slots_of[attribute].append(slot)
                spans_of[attribute].append(spans)
        for attribute, column in self._columns.items():
            column.write_all(slots_of[attribute], spans_of[attribute])
        self._without_column = 0  # counts conjunctions added later, for which a rebuild could make columns

    def _enter(self, conjunction: Conjunction) -> list[tuple[str, Spans]]:
        """Take the next slot and fill it, except for the columns; returns what to write there."""
        slot = self._used
        self._used += 1
        self._slots[conjunction] = slot
        self._members[slot] = conjunction
        self._keys[slot] = conjunction.key
        self._sequences[slot] = conjunction.sequence
        leaves_of: dict[str, list[Expression]] = {}
        exact = True
        for leaf in conjunction.leaves:
            attribute = attribute_of(leaf)
            if attribute in self._columns:
                leaves_of.setdefault(attribute, []).append(leaf)
            else:
                exact = False
        self._without_column += not leaves_of
        written: list[tuple[str, Spans]] = []
        intervals = 0
        for attribute, leaves in leaves_of.items():
            spans, inexact = self._columns[attribute].spans_of(leaves)
            written.append((attribute, spans))
            if not inexact:
                continue
            interval = interval_of(inexact)
            if interval is None or intervals == INTERVALS_MAX:
                exact = False
                continue
            self._interval_columns[slot, intervals] = self._numbers[attribute]
            self._bounds[slot, :, intervals] = interval
            intervals += 1
        self._exact[slot] = exact
        self._live.view(np.uint8)[slot >> 3] |= np.uint8(1 << (slot & 7))
        return written


def _slots_in(words: Words) -> Slots:
    """The positions of the bits that are set; most words are zero."""
    where = np.flatnonzero(words)
    bits = np.unpackbits(words[where].view(np.uint8), bitorder="little")
    positions = np.flatnonzero(bits.view(np.bool_))  # numpy searches truth values faster than numbers
    slots: Slots = (where[positions >> 6] << 6) + (positions & 63)
    return slots


def _columns_for(conjunctions: Sequence[Conjunction], width: int) -> dict[str, BitmapColumn]:
    """Columns for the attributes used most, with cuts shared out by use."""
    numbers: dict[str, list[int | float]] = {}
    texts: dict[str, list[str]] = {}
    uses: dict[str, int] = {}
    for conjunction in conjunctions:
        for leaf in conjunction.leaves:
            attribute = attribute_of(leaf)
            if attribute is None:
                continue
            uses[attribute] = uses.get(attribute, 0) + 1
            for value in constants(leaf):
                if isinstance(value, str):
                    texts.setdefault(attribute, []).append(value)
                elif not isinstance(value, bool):
                    numbers.setdefault(attribute, []).append(value)
    chosen = sorted(uses, key=lambda attribute: -uses[attribute])[:COLUMNS_MAX]
    values_total = sum(
        len(numbers.get(attribute, ())) + TEXT_WEIGHT * len(texts.get(attribute, ())) for attribute in chosen
    )

    def cuts(values: list[Any], weight: int) -> list[Any]:
        share = CUTS_TOTAL * weight * len(values) // max(1, values_total)
        return choose_cuts(values, max(CUTS_MIN, share))

    return {
        attribute: BitmapColumn(
            cuts(numbers.get(attribute, []), 1), cuts(texts.get(attribute, []), TEXT_WEIGHT), width
        )
        for attribute in chosen
    }
