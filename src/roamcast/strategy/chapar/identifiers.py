"""Filter and event identifiers, FID and EID (Chapar, section 4.2, *Subscription* and *Lookup process*).

An identifier is a row of slots of `hash_bits` bits, one per attribute; a slot without a constraint is 0,
and a filter may match an event where FID ∧ EID = FID (Algorithm 1 prints ≠; its own text says =).

The paper's applications have a fixed record of fields. Here attributes have arbitrary names, so the layout
is: slot 0 the topic, slot 1 the type, and the other slots shared by all attribute names, each name in the
slot that its own hash chooses. The hashes of attributes that share a slot are united by OR.

That is sound, i.e. FID ⊆ EID whenever the exact filter matches, by induction over the filter:
- equality: the event has that very value, so the hash is among those united in its slot;
- AND: the union of what the terms need, each of which the event has;
- OR and IN: the intersection of what the terms need, all of which any matching term has;
- a type includes the types below it: an event carries the hash of each type above its own;
- everything else (ranges, LIKE, wildcards in topics, NOT, IS NULL) needs nothing: 0.
Precision is lost, never a match: the exact filter on the subscriber's node stops the rest.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from hashlib import blake2b
from math import comb
from operator import and_, or_
from typing import NamedTuple

import msgspec

from roamcast.event import Event, Value, identifier_of, is_sealed
from roamcast.filter import Filter
from roamcast.filter.expression import (
    And,
    Compare,
    Expression,
    OfType,
    OneOf,
    OnTopic,
    Operator,
    Or,
    ValueKind,
    kind_of,
)

NAMED_SLOTS = 2  # the topic's and the type's
IDENTIFIER_BYTES_MAX = 128  # 16 slots of 64 bits
DIGEST_BYTES = 8  # two different tables look the same once in 2^64 checks


class IdentifierLayout(NamedTuple):
    """How identifiers are laid out. All nodes of a network must agree on it."""

    hash_bits: int = 16
    slots: int = 5

    @property
    def bits(self) -> int:
        return self.hash_bits * self.slots

    @property
    def size(self) -> int:
        """Octets of an identifier that is not shortened."""
        return (self.bits + 7) // 8

    def filter_id(self, wanted: Filter) -> int:
        return _filter_id(self, wanted)

    def event_id(self, event: Event) -> int:
        """EID: computed from a clear event; a sealed one brings its own."""
        if is_sealed(event):
            return self.decode(identifier_of(event))
        identifier = 0
        if event.topic:
            identifier |= self._slot("topic", f"t{event.topic}", 0)
        for type_ in _types_above(event.type):
            identifier |= self._slot("type", f"t{type_}", 1)
        for name, value in event.attributes.items():
            identifier |= self.value_bits(name, value)
        return identifier

    def value_bits(self, name: str, value: Value) -> int:
        """The hash of `name = value` in its slot; 0 for a NULL, which equals nothing."""
        text = _text_of(value)
        return 0 if text is None else self._slot(name, text, None)

    def encode(self, identifier: int) -> bytes:
        """Little-endian and without the zero octets at the end: unconstrained slots cost little."""
        return identifier.to_bytes((identifier.bit_length() + 7) // 8, "little")

    def decode(self, data: bytes) -> int:
        return int.from_bytes(data, "little") & ((1 << self.bits) - 1)

    def _slot(self, name: str, text: str, slot: int | None) -> int:
        return _hashed(self.hash_bits, self.slots, name, text, slot)


def matches(filter_id: int, event_id: int) -> bool:
    """Whether the filter may match the event. False is certain, True is not."""
    return filter_id & event_id == filter_id


def false_positive_probability(hash_bits: int) -> float:
    """Formula (1): how often two unrelated values match in one slot.

    Of all pairs of n-bit hashes, those whose filter part lies within the event part and differs from it;
    an event part of no bits or of all bits is left out, as the paper does.
    """
    pairs = sum(comb(hash_bits, i) * (2**i - 1) for i in range(1, hash_bits))
    return float(pairs / 2 ** (2 * hash_bits))


def digest_of(items: Iterable[Sequence[int]]) -> bytes:
    """One hash of a table's content (*Table consistency check*): of rows of numbers, independent of their
    order, equal on all nodes that hold the same. Empty for no rows."""
    rows = sorted(tuple(item) for item in items)
    if not rows:
        return b""
    return blake2b(msgspec.msgpack.encode(rows), digest_size=DIGEST_BYTES).digest()


@lru_cache(maxsize=16_384)
def _filter_id(layout: IdentifierLayout, wanted: Filter) -> int:
    return _needed(layout, wanted.expression)


def _needed(layout: IdentifierLayout, expression: Expression) -> int:
    """The bits that every event which matches the expression is sure to have."""
    match expression:
        case Compare(attribute, Operator.EQUAL, value):
            return layout.value_bits(attribute, value)
        case OneOf(attribute, values):
            return _common(layout, (layout.value_bits(attribute, value) for value in values))
        case OnTopic(topic_filter) if topic_filter and not set("+#") & set(topic_filter):
            return layout._slot("topic", f"t{topic_filter}", 0)
        case OfType(type_) if type_:
            return layout._slot("type", f"t{type_}", 1)
        case And(terms):
            return reduce(or_, (_needed(layout, term) for term in terms), 0)
        case Or(terms):
            return _common(layout, (_needed(layout, term) for term in terms))
    return 0


def _common(layout: IdentifierLayout, needs: Iterable[int]) -> int:
    # Nothing matches an empty OR, so every bit is common to all that do.
    return reduce(and_, needs, (1 << layout.bits) - 1)


def _types_above(type_: str) -> list[str]:
    """The type itself and all types above it: `alarm` and `alarm.fire`."""
    ends = [at for at, letter in enumerate(type_) if letter == "."]
    return [name for name in (*(type_[:end] for end in ends), type_) if name]


def _text_of(value: Value) -> str | None:
    """One text for values that are equal in a filter: numbers by value, booleans apart from them."""
    match kind_of(value):
        case ValueKind.TEXT:
            return f"t{value}"
        case ValueKind.BOOLEAN:
            return f"b{value}"
        case ValueKind.NUMBER:
            whole = isinstance(value, float) and value.is_integer()
            return f"n{int(value) if whole and value is not None else value!r}"
    return None


@lru_cache(maxsize=65_536)
def _hashed(hash_bits: int, slots: int, name: str, text: str, slot: int | None) -> int:
    data = name.encode("utf-8", "surrogatepass") + b"\0" + text.encode("utf-8", "surrogatepass")
    digest = blake2b(data, digest_size=8, person=b"chapar value").digest()
    value = int.from_bytes(digest, "little") & ((1 << hash_bits) - 1)
    if slot is None:
        slot = NAMED_SLOTS + _slot_of(name, slots - NAMED_SLOTS)
    return value << hash_bits * slot


@lru_cache(maxsize=4_096)
def _slot_of(name: str, slots: int) -> int:
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=b"chapar name").digest()
    return int.from_bytes(digest, "little") % slots
