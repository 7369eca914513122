"""The filter mapping table as numpy arrays, where it is large: an event is compared with all filters at once.

A row has the words of an identifier, each in a column of its own, and the vector of its subscribers. The last
word takes as few octets as its bits need, and results go into buffers that stay: most of the time is the
memory's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roamcast.strategy.chapar.tables.node_vector import NO_NODES, NodeVector

WORD_BITS = 64
ROWS_FIRST = 64
_TYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class IdentifierRows:
    def __init__(self, identifier_bits: int, table: Mapping[int, NodeVector]) -> None:
        words = -(-identifier_bits // WORD_BITS)
        last = identifier_bits - WORD_BITS * (words - 1)
        widths = [WORD_BITS] * (words - 1) + [next(width for width in _TYPES if width >= last)]
        self._types = [_TYPES[width] for width in widths]
        self._masks = [(1 << width) - 1 for width in widths]
        self._columns: list[NDArray[Any]] = [np.zeros(ROWS_FIRST, kind) for kind in self._types]
        self._buffers = [np.empty_like(column) for column in self._columns]
        self._row_of: dict[int, int] = {}
        self._identifiers: list[int] = []
        self._vectors: list[NodeVector] = []
        for identifier, vector in table.items():
            self.put(identifier, vector)

    def put(self, identifier: int, vector: NodeVector) -> None:
        row = self._row_of.get(identifier)
        if row is not None:
            self._vectors[row] = vector
            return
        row = len(self._identifiers)
        if row == len(self._columns[0]):
            self._columns = [np.concatenate([column, np.zeros_like(column)]) for column in self._columns]
            self._buffers = [np.empty_like(column) for column in self._columns]
        self._identifiers.append(identifier)
        self._vectors.append(vector)
        self._place(row, identifier)

    def remove(self, identifier: int) -> None:
        row = self._row_of.pop(identifier)
        last, vector = self._identifiers.pop(), self._vectors.pop()
        if last != identifier:
            self._identifiers[row], self._vectors[row] = last, vector
            self._place(row, last)

    def lookup(self, event_id: int) -> NodeVector:
        """The union over the identifiers all of whose bits the event has."""
        count = len(self._identifiers)
        extra = self._buffers[0][:count]
        for number, (column, word) in enumerate(zip(self._columns, self._words(~event_id), strict=True)):
            if number == 0:
                np.bitwise_and(column[:count], word, out=extra)
            else:
                more = self._buffers[number][:count]
                np.bitwise_and(column[:count], word, out=more)
                np.bitwise_or(extra, more, out=extra)
        found, vectors = NO_NODES, self._vectors
        for row in (extra == 0).nonzero()[0].tolist():
            found |= vectors[row]
        return found

    def _place(self, row: int, identifier: int) -> None:
        self._row_of[identifier] = row
        for column, word in zip(self._columns, self._words(identifier), strict=True):
            column[row] = word

    def _words(self, bits: int) -> list[Any]:
        return [
            kind(bits >> WORD_BITS * number & mask)
            for number, (kind, mask) in enumerate(zip(self._types, self._masks, strict=True))
        ]
