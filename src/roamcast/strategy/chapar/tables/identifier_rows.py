"""The filter identifiers of a large table as a numpy array: an event is compared with all at once."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

WORD_BITS = 64
_WORD = (1 << WORD_BITS) - 1


class IdentifierRows:
    """Columns of 64-bit words, a row for each identifier."""

    def __init__(self, identifier_bits: int, identifiers: Iterable[int]) -> None:
        self._words = -(-identifier_bits // WORD_BITS)
        self._columns: NDArray[np.uint64] = np.zeros((self._words, 64), np.uint64)
        self._identifiers: list[int] = []
        self._row_of: dict[int, int] = {}
        for identifier in identifiers:
            self.add(identifier)

    def add(self, identifier: int) -> None:
        row = len(self._identifiers)
        if row == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._put(row, identifier)
        self._identifiers.append(identifier)

    def remove(self, identifier: int) -> None:
        row = self._row_of.pop(identifier)
        last = self._identifiers.pop()
        if last != identifier:
            self._identifiers[row] = last
            self._put(row, last)

    def within(self, event_id: int) -> list[int]:
        """The identifiers all of whose bits the event has."""
        count = len(self._identifiers)
        absent = [np.uint64(~word & _WORD) for word in self._split(event_id)]
        extra = self._columns[0, :count] & absent[0]
        for column, missing in zip(self._columns[1:], absent[1:], strict=True):
            extra |= column[:count] & missing
        identifiers = self._identifiers
        return [identifiers[row] for row in np.flatnonzero(extra == 0).tolist()]

    def _put(self, row: int, identifier: int) -> None:
        self._row_of[identifier] = row
        for column, word in enumerate(self._split(identifier)):
            self._columns[column, row] = word

    def _split(self, identifier: int) -> list[int]:
        return [identifier >> WORD_BITS * word & _WORD for word in range(self._words)]
