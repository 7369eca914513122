"""One entry of a summary: conditions that belong together, each a bit vector under a key.

The keys of an entry are its Element Association List: the elements that a subscription has conditions on, and
pairs of them. An event satisfies an entry if it satisfies the vector under each key (`digest.py`); elements
without a key may have any value. Two operations follow, and both are plain bit arithmetic:
- joined: the keys that both have, under each the union of the bits. It is satisfied wherever either is.
- covers: each key of this is a key of the other, and has all the other's bits there.

Keeping an array of entries short: covered entries are removed, the most similar ones are joined.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property, reduce
from heapq import heapify, heappop, heappush
from itertools import combinations
from operator import or_
from typing import NamedTuple, TypeAlias

from roamcast.errors import WireError
from roamcast.strategy.odmrp.summary.bloom import decode_bits, encode_bits
from roamcast.strategy.odmrp.summary.geometry import Geometry

Key: TypeAlias = int
"""TYPE_KEY, an element (16 bits), or a pair of elements (32 bits, the smaller in the upper half)."""

TYPE_KEY: Key = 0
ELEMENTS_MAX = 8  # of one entry; conditions on further elements are left out; chosen by us
_TYPE_FLAG = 0x80


class SummaryEntry:
    """Immutable. `constraints` are sorted by key, and no vector is empty."""

    __slots__ = ("__dict__", "constraints")

    constraints: tuple[tuple[Key, int], ...]

    def __init__(self, constraints: Iterable[tuple[Key, int]]) -> None:
        self.constraints = tuple(sorted(constraints))

    def joined(self, other: "SummaryEntry") -> "SummaryEntry":
        theirs = other.by_key
        return SummaryEntry((key, bits | theirs[key]) for key, bits in self.constraints if key in theirs)

    def covers(self, other: "SummaryEntry") -> bool:
        theirs = other.by_key
        return all(key in theirs and theirs[key] & ~bits == 0 for key, bits in self.constraints)

    @cached_property
    def by_key(self) -> dict[Key, int]:
        return dict(self.constraints)

    @property
    def elements(self) -> list[int]:
        return [key for key, _ in self.constraints if TYPE_KEY < key < 1 << 16]

    def widening(self, other: "SummaryEntry") -> float:
        """How much wider the join of two entries is: the conditions lost, and the bits that differ."""
        mine, theirs = self.by_key, other.by_key
        shared = mine.keys() & theirs.keys()
        loss = _LOST * (len(mine) + len(theirs) - 2 * len(shared))
        if not any(TYPE_KEY < key < 1 << 16 for key in shared):
            loss += _LOST_ALL
        # Ratios of small whole numbers, added in the order of the keys: equal on every machine.
        for key in sorted(shared):
            loss += (mine[key] ^ theirs[key]).bit_count() / (mine[key] | theirs[key]).bit_count()
        return loss

    def vector(self, geometry: Geometry) -> "Vector":
        """All elements and pairs in one vector for each structure; without a condition all bits are set."""
        types = associations = elements = 0
        for key, bits in self.constraints:
            if key == TYPE_KEY:
                types = bits
            elif key < 1 << 16:
                elements |= bits
            else:
                associations |= bits
        return Vector(
            types or (1 << geometry.types.bits) - 1,
            associations,
            elements or (1 << geometry.element_bits) - 1,
        )

    def encode(self, geometry: Geometry) -> bytes:
        """| type flag 1, elements 7 | EN | each element: number 16, structures 8, vectors | pairs |"""
        own, elements = self.by_key, self.elements
        parts = [bytes([len(elements) | (_TYPE_FLAG if TYPE_KEY in own else 0)])]
        if TYPE_KEY in own:
            parts.append(encode_bits(own[TYPE_KEY], geometry.types.bits))
        for element in elements:
            pieces = [(each, each.part(own[element])) for each in geometry.of_elements]
            present = sum(bool(piece) << at for at, (_, piece) in enumerate(pieces))
            parts.append(element.to_bytes(2, "big") + bytes([present]))
            parts += [encode_bits(piece, each.bits) for each, piece in pieces if piece]
        pairs = [own.get(pair_key(*pair), 0) for pair in combinations(elements, 2)]
        if pairs:
            present = sum(bool(bits) << at for at, bits in enumerate(pairs))
            parts.append(present.to_bytes((len(pairs) + 7) // 8, "big"))
            parts += [encode_bits(bits, geometry.associations.bits) for bits in pairs if bits]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, at: int, geometry: Geometry) -> "tuple[SummaryEntry, int]":
        """The entry at octet `at`, and the octet after it."""
        header = _octets(data, at, 1, "entry")
        at += 1
        constraints: list[tuple[Key, int]] = []
        if header & _TYPE_FLAG:
            bits, at = decode_bits(data, at, geometry.types.bits, "EN")
            constraints.append((TYPE_KEY, bits))
        count = header & ~_TYPE_FLAG
        if count > ELEMENTS_MAX:
            raise WireError("entry", at - 1, f"has {count} elements, at most {ELEMENTS_MAX} are allowed")
        elements: list[int] = []
        for _ in range(count):
            element = _octets(data, at, 2, "element")
            if element <= (elements[-1] if elements else 0):
                raise WireError("element", at, f"{element} does not follow in ascending order")
            elements.append(element)
            bits, at = _decode_element(data, at + 2, geometry)
            constraints.append((element, bits))
        pairs = [pair_key(*pair) for pair in combinations(elements, 2)]
        if pairs:
            size = (len(pairs) + 7) // 8
            present = _octets(data, at, size, "associations")
            if present >> len(pairs):
                raise WireError("associations", at, f"names a pair beyond the {len(pairs)} there are")
            at += size
            for number, key in enumerate(pairs):
                if present >> number & 1:
                    bits, at = decode_bits(data, at, geometry.associations.bits, "EL")
                    constraints.append((key, bits))
        return cls(constraints), at

    def __eq__(self, other: object) -> bool:
        return self.constraints == other.constraints if isinstance(other, SummaryEntry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.constraints)

    def __repr__(self) -> str:
        return f"Entry({self.constraints!r})"


class Vector(NamedTuple):
    types: int
    associations: int
    elements: int


# Costs of a join, chosen by us; only the order of the joins depends on them.
_LOST = 2.0  # one condition lost costs as much as two whose bits differ entirely
_LOST_ALL = 1000.0  # no condition on any element is left: after all other joins


def pair_key(first: int, second: int) -> Key:
    assert first < second
    return first << 16 | second


def _decode_element(data: bytes, at: int, geometry: Geometry) -> tuple[int, int]:
    present = _octets(data, at, 1, "structures")
    structures = geometry.of_elements
    if present == 0 or present >> len(structures):
        raise WireError("structures", at, f"is {present}, not 1 to {(1 << len(structures)) - 1}")
    at += 1
    vector = 0
    for number, structure in enumerate(structures):
        if present >> number & 1:
            bits, at = decode_bits(data, at, structure.bits, structure.name)
            vector |= bits << structure.offset
    return vector, at


def _octets(data: bytes, at: int, size: int, field: str) -> int:
    if len(data) - at < size:
        raise WireError(field, at, f"needs {size} octets, {len(data) - at} left")
    return int.from_bytes(data[at : at + size], "big")


COMPARED_MAX = 64  # entries that take some 20 ms to compare pair by pair; chosen by us


def merged(entries: Iterable[SummaryEntry], most: int) -> tuple[SummaryEntry, ...]:
    """At most `most` entries, in `order`. What satisfies one of the given entries satisfies one of these.

    Entries are added in an order that depends on nothing but themselves, so that the result does not depend
    on the order of arrival. Whenever there is one too many, the two whose join is the least wider are joined.
    """
    array = _Array()
    for entry in sorted({entry.constraints: entry for entry in entries}.values(), key=order):
        array.add(entry)
        if len(array) > most:
            array.join_closest()
    return tuple(sorted(array, key=order))


def thinned(entries: Collection[SummaryEntry]) -> Collection[SummaryEntry]:
    """At most about `COMPARED_MAX` for `merged`: of more, runs of those with the same keys and similar bits
    are joined. Thousands of entries set most bits of an array anyway, whichever are joined."""
    if len(entries) <= COMPARED_MAX:
        return entries
    alike: dict[tuple[Key, ...], list[tuple[int, ...]]] = {}
    for entry in entries:
        keys, bits = zip(*entry.constraints, strict=True) if entry.constraints else ((), ())
        alike.setdefault(keys, []).append(bits)
    if len(alike) > COMPARED_MAX:  # so many different ones share no condition
        return [reduce(SummaryEntry.joined, entries)]
    run = -(-len(entries) // COMPARED_MAX)
    found = []
    for keys, rows in alike.items():
        rows.sort()
        for at in range(0, len(rows), run):
            columns = zip(*rows[at : at + run], strict=True)
            found.append(SummaryEntry(zip(keys, (reduce(or_, column) for column in columns), strict=True)))
    return found


def order(entry: SummaryEntry) -> tuple[int, list[tuple[int, int]]]:
    """An entry sorts before those it covers: it has fewer conditions, or as many with more bits."""
    return len(entry.constraints), [(key, -bits) for key, bits in entry.constraints]


class _Array:
    """Entries by serial number, and from the first join on, what each further join would cost."""

    def __init__(self) -> None:
        self._entries: dict[int, SummaryEntry] = {}
        self._next = 0
        self._costs: list[tuple[float, int, int]] | None = None  # a heap; removed entries stay in it

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SummaryEntry]:
        return iter(self._entries.values())

    def add(self, entry: SummaryEntry) -> None:
        if any(other.covers(entry) for other in self):
            return
        for number in [number for number, other in self._entries.items() if entry.covers(other)]:
            del self._entries[number]
        if self._costs is not None:
            for number, other in self._entries.items():
                heappush(self._costs, (other.widening(entry), number, self._next))
        self._entries[self._next] = entry
        self._next += 1

    def join_closest(self) -> None:
        if self._costs is None:
            pairs = combinations(self._entries.items(), 2)
            self._costs = [(one.widening(other), first, second) for (first, one), (second, other) in pairs]
            heapify(self._costs)
        while True:
            _, first, second = heappop(self._costs)
            if first in self._entries and second in self._entries:
                break
        self.add(self._entries.pop(first).joined(self._entries.pop(second)))
