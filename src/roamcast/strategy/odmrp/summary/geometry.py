"""The sizes of a summary's five structures. All nodes of a network must agree on them."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple
from zlib import crc32

import msgspec

from roamcast.strategy.odmrp.summary.bloom import BITS_MAX, HASHES_MAX, mask

Bits = Annotated[int, msgspec.Meta(ge=8, le=BITS_MAX, multiple_of=8)]
TwiceBits = Annotated[int, msgspec.Meta(ge=16, le=BITS_MAX, multiple_of=16)]
Hashes = Annotated[int, msgspec.Meta(ge=1, le=HASHES_MAX)]

ENTRIES_MAX = 255  # one octet counts them
# Nodes down to this level show where a range lies, those below it only where exactly it ends (`cells.py`).
# They are kept apart, so that ranges can be compared by the first alone (`k_means.py`). Chosen by us.
COARSE_LEVELS = 5


class SummaryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Bits and hash functions of each structure, and how many entries a broker's summary has.

    A summary of the default sizes takes 4 octets, and for each entry about 50 for a subscription such as
    `player = 'woods' AND hole BETWEEN 10 AND 18` on one event type. The sizes are chosen by us;
    docs/protocols/odmrp-summaries.md has octets and false positives as measured with them.
    """

    type_bits: Bits = 128  # EN
    type_hashes: Hashes = 4
    association_bits: Bits = 128  # EL, for each pair of elements
    association_hashes: Hashes = 4
    enumeration_bits: Bits = 128  # EC, for each element
    enumeration_hashes: Hashes = 4
    arithmetic_bits: TwiceBits = 1024  # AC, for each element; a range inserts some 15 nodes
    arithmetic_hashes: Hashes = 3
    string_bits: Bits = 128  # SC_L, SC_R and SC_X, for each element
    string_hashes: Hashes = 4
    entries: Annotated[int, msgspec.Meta(ge=1, le=ENTRIES_MAX)] = 32  # if more, the most similar are merged

    @cached_property
    def geometry(self) -> "Geometry":
        return Geometry.of(self)


class Structure(NamedTuple):
    """One Bloom filter: its name in the paper, where its bits begin in the vector it is part of."""

    name: str
    offset: int
    bits: int
    hashes: int

    def mask(self, token: int) -> int:
        return mask(token, self.bits, self.hashes) << self.offset

    def part(self, vector: int) -> int:
        return vector >> self.offset & (1 << self.bits) - 1


class Geometry(NamedTuple):
    """The structures in place. Those of one element lie side by side in one vector of `element_bits`."""

    types: Structure  # EN
    associations: Structure  # EL
    enumeration: Structure  # EC
    coarse: Structure  # AC, the larger nodes of ranges
    fine: Structure  # AC, the smaller ones
    left: Structure  # SC_L
    right: Structure  # SC_R
    exact: Structure  # SC_X
    element_bits: int
    fingerprint: int  # 16 bits; summaries of other sizes are refused by it

    @classmethod
    def of(cls, options: SummaryOptions) -> "Geometry":
        place = _placer()
        types = Structure("EN", 0, options.type_bits, options.type_hashes)
        associations = Structure("EL", 0, options.association_bits, options.association_hashes)
        elements = (
            place("EC", options.enumeration_bits, options.enumeration_hashes),
            place("AC coarse", options.arithmetic_bits // 2, options.arithmetic_hashes),
            place("AC fine", options.arithmetic_bits // 2, options.arithmetic_hashes),
            place("SC_L", options.string_bits, options.string_hashes),
            place("SC_R", options.string_bits, options.string_hashes),
            place("SC_X", options.string_bits, options.string_hashes),
        )
        bits = sum(each.bits for each in elements)
        fingerprint = crc32(repr((types, associations, elements)).encode()) & 0xFFFF
        return cls(types, associations, *elements, bits, fingerprint)

    def arithmetic(self, level: int) -> Structure:
        """The structure for nodes of a level."""
        return self.coarse if level <= COARSE_LEVELS else self.fine

    @lru_cache(maxsize=16)  # noqa: B019 - few geometries exist, and they are values
    def weights(self) -> dict[int, int]:
        """For distances between summaries: each weight, and the bits of a summary's vector that have it.

        A value sets four bits, a range some fifteen coarse ones, but a value is more selective: most events
        have another one. So its bits have four times the weight. The exact ends of a range have none, or two
        ranges that nearly agree would be as far apart as two that have nothing in common. The weights are
        chosen by us, and whole numbers, so that distances are exact.
        """
        parts = [(self.types, 2), (self.associations, 1), (self.enumeration, 4), (self.coarse, 1)]
        parts += [(self.fine, 0), (self.left, 2), (self.right, 2), (self.exact, 4)]
        places = {1: 0, 2: 0, 4: 0}
        at = 0
        for structure, weight in parts:
            if weight:
                places[weight] |= ((1 << structure.bits) - 1) << at
            at += structure.bits
        return places

    @property
    def of_elements(self) -> tuple[Structure, ...]:
        return (self.enumeration, self.coarse, self.fine, self.left, self.right, self.exact)


def _placer() -> Callable[[str, int, int], Structure]:
    offset = 0

    def place(name: str, bits: int, hashes: int) -> Structure:
        nonlocal offset
        offset += bits
        return Structure(name, offset - bits, bits, hashes)

    return place


DEFAULT = SummaryOptions()
