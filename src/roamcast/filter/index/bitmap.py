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
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

from roamcast.event import Event
from roamcast.extras import numpy_is_installed
from roamcast.filter.index.column import BitmapColumn
from roamcast.filter.index.conjunction import Conjunction, attribute_of
from roamcast.filter.index.layout import BitmapLayout, Located
from roamcast.filter.index.rows import Truth, both

SPARSE = 20  # slots per match from which looking for each match beats copying past the others

_TRUTH = bytes(byte == ord("1") for byte in range(256))


class Bitmap:
    def __init__(self, conjunctions: Sequence[Conjunction], layout: BitmapLayout) -> None:
        self.layout = layout
        self.without_column = 0  # conjunctions that no column narrows
        self._members: list[Conjunction | None] = []
        self._keys: Any = []  # a list, in the end an array where numpy is installed
        self._sequences = array("q")
        self._live = 0
        self._used = 0  # a bit for every slot in use or empty again
        self._empty = 0
        self._asked = 0  # those on which the filter always has the last word
        self._columns = self._filled(conjunctions)

    def add(self, conjunction: Conjunction) -> None:
        """The latest of all so far."""
        slot = len(self._members)
        for number, truth in self._enter(conjunction).items():
            self._columns[number].add(slot, truth)

    def remove(self, conjunction: Conjunction) -> None:
        slot = bisect_left(self._sequences, conjunction.sequence)
        self._members[slot] = self._keys[slot] = None
        self._empty |= 1 << slot
        self._live -= 1

    def close(self) -> None:
        """Nothing will be added. Equal rows are kept once: of an attribute compared for equality every second
        one is the same."""
        seen: dict[int, int] = {}
        for column in self._columns:
            column.share_rows(seen)
        if numpy_is_installed():
            import numpy as np

            self._keys = np.fromiter(self._keys, np.object_, len(self._keys))

    def __len__(self) -> int:
        return self._live

    @property
    def slots(self) -> int:
        """Used and empty ones."""
        return len(self._members)

    @property
    def first_sequence(self) -> int:
        return self._sequences[0]

    def conjunctions(self) -> list[Conjunction]:
        """In the order of adding."""
        return [member for member in self._members if member is not None]

    def match(self, event: Event, located: Located) -> int:
        """A bit for each slot that matches."""
        ruled_out = self._empty
        for column, (row, value) in zip(self._columns, located, strict=True):
            # Here and not in a method of the column: a call costs a third of this loop.
            false = column.rows[row]
            start, end = column.starts[row], column.starts[row + 1]
            if start != end:
                for slot in column.slots[start : bisect_right(column.edges, value, start, end)]:
                    false ^= 1 << slot
            ruled_out |= false
        matched = self._used ^ ruled_out
        asked = self._asked & matched
        if asked:
            members: list[Any] = self._members
            for slot in _slots_in(asked):
                if not members[slot].filter.matches(event):
                    matched ^= 1 << slot
        return matched

    def keys_of(self, matched: int) -> list[Any]:
        return _select(self._keys, matched)

    def members_of(self, matched: int) -> list[Conjunction]:
        return _select(self._members, matched)

    def _filled(self, conjunctions: Sequence[Conjunction]) -> list[BitmapColumn]:
        entries: list[list[tuple[int, Truth]]] = [[] for _ in self.layout.columns]
        for slot, conjunction in enumerate(conjunctions):
            for number, truth in self._enter(conjunction).items():
                entries[number].append((slot, truth))
        self.without_column = 0  # counts conjunctions added later, for which a new layout could have columns
        counts = [rows.count for rows in self.layout.columns.values()]
        return [BitmapColumn(count, each) for count, each in zip(counts, entries, strict=True)]

    def _enter(self, conjunction: Conjunction) -> dict[int, Truth]:
        """Fill the next slot, except for the columns; returns what to enter there."""
        bit = 1 << len(self._members)
        self._members.append(conjunction)
        self._keys.append(conjunction.key)
        self._sequences.append(conjunction.sequence)
        self._live += 1
        self._used |= bit
        layout = self.layout
        is_decided = True
        truths: dict[int, Truth] = {}
        for leaf in conjunction.tested_leaves():
            attribute = attribute_of(leaf)
            number = layout.numbers.get(attribute) if attribute is not None else None
            if attribute is None or number is None:
                is_decided = False
                continue
            truth = layout.columns[attribute].truth_of(leaf)
            is_decided = is_decided and truth.is_decided
            truths[number] = both(truths[number], truth) if number in truths else truth
        self.without_column += not truths
        if not is_decided:
            self._asked |= bit
        return truths


def _slots_in(bits: int) -> Iterator[int]:
    text = bin(bits)[:1:-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)


def _select(values: Any, bits: int) -> list[Any]:
    """Those of a list or numpy array whose bits are set."""
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
