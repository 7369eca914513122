"""The filter mapping table, FMT: which filter identifier is wanted by which nodes (Chapar, section 4.1).

Beside the paper's rows (FID → SNV) stands a register per subscriber: its version and its identifiers. The
paper's consistency check brings unsubscribed filters back, because a removed row and a row that never
came look alike. Here each change by a subscriber increments its version, and the higher version wins. The
(empty) register of a node that wants nothing any more is kept as a tombstone. It is never dropped, however
long a partition lasts: it costs one number per node, and the length of a vector bounds the number of nodes.

When the table is full, a subscription that would need a new row is widened: its subscriber is entered as
wanting everything. Nobody misses an event because of a full table; the exact filter stops the
surplus.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from roamcast.extras import numpy_is_installed
from roamcast.strategy.chapar.identifiers import digest_of
from roamcast.strategy.chapar.node_vectors import NO_NODES, NodeBits, NodeVector
from roamcast.units import NodeId

EVERYTHING = 0  # the identifier of a filter without any constraint
RECORD_HASH_BYTES = 6  # chosen by us: of 1,000 records two look alike once in 10^8
FEW_ROWS = 160  # measured: a plain loop takes 0.07 µs a row, numpy's calls 12 µs for any number

WORD_BITS = 64
ROWS_FIRST = 64
WORD_TYPES = {8: "uint8", 16: "uint16", 32: "uint32", 64: "uint64"}  # of numpy


class TableChange(Enum):
    """What a message did to the table."""

    NEWS = "news"  # new: to be passed on
    KNOWN = "known"
    GAP = "gap"  # changes before it are missing: pass it on, and ask for the whole register


class FilterTable:
    def __init__(
        self,
        addresses: NodeBits,
        identifier_bits: int,
        *,
        entries_max: int,
        on_widened: Callable[[NodeId], object],
        by_hashes: bool = False,
    ) -> None:
        """`on_widened`: called with a subscriber that did not fit and gets everything from now on.
        `by_hashes`: the table is compared by a hash per record, not by a version per subscriber."""
        self._addresses = addresses
        self._entries_max = entries_max
        self._on_widened = on_widened
        self._by_hashes = by_hashes
        self._registers: dict[NodeId, _Register] = {}
        self._subscribers: dict[int, NodeVector] = {}  # the table itself: FID → SNV
        self._identifier_bits = identifier_bits
        self._rows: IdentifierRows | None = None  # the same again, above `FEW_ROWS` rows
        self._digest: bytes | None = None

    # Changes.

    def apply(self, subscriber: NodeId, version: int, filter_id: int, stands: bool) -> TableChange:
        """One subscription or unsubscription."""
        if not self._addresses.bit(subscriber):
            return TableChange.KNOWN
        register = self._registers.get(subscriber) or _Register()
        if version <= register.heard:
            return TableChange.KNOWN
        self._registers[subscriber] = register
        register.heard = version
        if stands:
            self._add(subscriber, register, filter_id)
        if version != register.version + 1:
            return TableChange.GAP  # a new filter counts at once; a removal waits for the register
        if not stands:
            self._discard(subscriber, register, filter_id)
        register.version = version
        self._digest = None
        return TableChange.NEWS

    def replace(self, subscriber: NodeId, version: int, filter_ids: frozenset[int]) -> bool:
        """A whole register; True if it is newer than what was known."""
        if not self._addresses.bit(subscriber):
            return False
        register = self._registers.get(subscriber) or _Register()
        if version <= register.version:
            return False
        self._registers[subscriber] = register
        register.is_wide = False
        for gone in sorted(register.filter_ids - filter_ids):
            self._discard(subscriber, register, gone)
        for filter_id in sorted(filter_ids - register.filter_ids):
            self._add(subscriber, register, filter_id)
        register.version = version
        register.heard = version  # an early change that this register overrides may come again
        self._digest = None
        return True

    def forget(self, subscriber: NodeId) -> None:
        """All that is known of a subscriber, its tombstone too."""
        register = self._registers.pop(subscriber, None)
        if register is not None:
            for filter_id in sorted(register.filter_ids):
                self._clear(subscriber, filter_id)
            self._digest = None

    def clear(self) -> None:
        self._registers.clear()
        self._subscribers.clear()
        self._rows = self._digest = None

    # Questions.

    def lookup(self, event_id: int) -> NodeVector:
        """Algorithm 1: SNV, the union over all filters that may match."""
        subscribers = self._subscribers
        if self._rows is not None:
            return self._rows.lookup(event_id)
        found = NO_NODES
        for filter_id, vector in subscribers.items():
            if filter_id & event_id == filter_id:
                found |= vector
        return found

    def knows_only(self, node: NodeId) -> bool:
        """Whether no other node has ever subscribed."""
        return self._registers.keys() <= {node}

    def version(self, subscriber: NodeId) -> int:
        return self._registers.get(subscriber, NOTHING).version

    def heard(self, subscriber: NodeId) -> int:
        """The highest version of any change of a subscriber, applied or not."""
        return self._registers.get(subscriber, NOTHING).heard

    def versions(self) -> list[tuple[NodeId, int]]:
        """The version of every subscriber that has ever been entered, in increasing order."""
        return [(s, r.version) for s, r in sorted(self._registers.items()) if r.version]

    def listed(self) -> list[tuple[int, int]]:
        """The table as a consistency check lists it: entries by number, and how new each is."""
        if not self._by_hashes:
            return self.versions()
        return sorted((self._hash(*row), 1) for row in self._subscribers.items())

    def has_place(self, entry: int) -> bool:
        """Whether a listed entry could be entered: the subscriber that it names has a bit."""
        return self._by_hashes or self._addresses.bit(entry) != NO_NODES

    def subscribers_of(self, entries: Iterable[int]) -> list[NodeId]:
        """Whose registers make up these entries of the list."""
        if not self._by_hashes:
            return [subscriber for subscriber in entries if self.version(subscriber)]
        wanted = set(entries)
        found = [vector for row, vector in self._subscribers.items() if self._hash(row, vector) in wanted]
        return self._addresses.nodes(reduce(or_, found, NO_NODES))

    def filter_ids(self, subscriber: NodeId) -> list[int]:
        return sorted(self._registers.get(subscriber, NOTHING).filter_ids)

    def rows(self) -> list[tuple[int, NodeVector]]:
        """The table as the paper has it, by identifier."""
        return sorted(self._subscribers.items())

    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = digest_of(self.listed())
        return self._digest

    def __len__(self) -> int:
        return len(self._subscribers)

    # Private.

    def _hash(self, filter_id: int, subscribers: NodeVector) -> int:
        """The hash of one record: the paper's `hash of each FMT record`."""
        octets = filter_id.to_bytes(self._identifier_bits // 8 + 1)
        members = ((node,) for node in self._addresses.nodes(subscribers))
        return int.from_bytes(digest_of([octets, *members])[:RECORD_HASH_BYTES])

    def _add(self, subscriber: NodeId, register: "_Register", filter_id: int) -> None:
        if register.is_wide or filter_id in register.filter_ids:
            return
        if filter_id not in self._subscribers and filter_id != EVERYTHING and self._is_full():
            self._widen(subscriber, register)
            return
        register.filter_ids.add(filter_id)
        self._enter(filter_id, self._subscribers.get(filter_id, NO_NODES) | self._addresses.bit(subscriber))

    def _discard(self, subscriber: NodeId, register: "_Register", filter_id: int) -> None:
        if filter_id not in register.filter_ids or (register.is_wide and filter_id == EVERYTHING):
            return
        register.filter_ids.discard(filter_id)
        self._clear(subscriber, filter_id)

    def _clear(self, subscriber: NodeId, filter_id: int) -> None:
        left = self._subscribers[filter_id] & ~self._addresses.bit(subscriber)
        if left:
            self._enter(filter_id, left)
        else:
            del self._subscribers[filter_id]
            if self._rows is not None:
                self._rows.remove(filter_id)

    def _enter(self, filter_id: int, subscribers: NodeVector) -> None:
        """Also into `IdentifierRows`, which are made once there are more than `FEW_ROWS`."""
        self._subscribers[filter_id] = subscribers
        if self._rows is not None:
            self._rows.put(filter_id, subscribers)
        elif len(self._subscribers) > FEW_ROWS and numpy_is_installed():
            self._rows = IdentifierRows(self._identifier_bits, self._subscribers)

    def _is_full(self) -> bool:
        rows = len(self._subscribers) - (EVERYTHING in self._subscribers)  # there is always room for that one
        return rows >= self._entries_max

    def _widen(self, subscriber: NodeId, register: "_Register") -> None:
        for filter_id in sorted(register.filter_ids):
            self._clear(subscriber, filter_id)
        register.filter_ids.clear()
        self._add(subscriber, register, EVERYTHING)
        register.is_wide = True
        self._on_widened(subscriber)


def encoded_size(rows: int, nodes: int, identifier_bytes: int) -> int:
    """Octets of a table as the paper counts it: an identifier and a bitmap per row."""
    return rows * (identifier_bytes + (nodes + 7) // 8)


class _Register(msgspec.Struct):
    """What one node wants. `heard`: the highest version of any change, applied or still ahead."""

    version: int = 0
    heard: int = 0
    filter_ids: set[int] = set()
    is_wide: bool = False


NOTHING = _Register()  # of a node that was never heard of


class IdentifierRows:
    """The same table as numpy arrays, where it is large: an event is compared with all filters at once.

    A row has the words of an identifier, each in a column of its own, and the vector of its subscribers. The
    last word takes as few octets as its bits need, and results go into buffers that stay: most of the time is
    the memory's."""

    def __init__(self, identifier_bits: int, table: Mapping[int, NodeVector]) -> None:
        import numpy  # not above: it is optional, and slow to load

        self._numpy = numpy
        words = -(-identifier_bits // WORD_BITS)
        last = identifier_bits - WORD_BITS * (words - 1)
        widths = [WORD_BITS] * (words - 1) + [next(width for width in WORD_TYPES if width >= last)]
        self._types = [getattr(numpy, WORD_TYPES[width]) for width in widths]
        self._masks = [(1 << width) - 1 for width in widths]
        self._columns: list[Any] = [numpy.zeros(ROWS_FIRST, kind) for kind in self._types]
        self._buffers = [numpy.empty_like(column) for column in self._columns]
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
            numpy = self._numpy
            self._columns = [
                numpy.concatenate([column, numpy.zeros_like(column)]) for column in self._columns
            ]
            self._buffers = [numpy.empty_like(column) for column in self._columns]
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
        """The union of the subscribers of all identifiers whose bits the event has."""
        count, np = len(self._identifiers), self._numpy
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
