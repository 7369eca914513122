"""An event in compact form: what a Join Request carries (sections 3.3 and 3.5.1).

A digest has the tokens of an event whose bits are looked up in the Bloom filters. It names each value once.
The nodes above a number's cell, the pairs of values and the bits themselves follow from that, so they are
computed where they are needed and not sent.

    | version 8 | types 8, each 24 | elements 16 | each: element 16, kind 8, value |
    value: nothing (a boolean is in the kind), a cell 24, or exact 24, beginnings 24 each, ends 24 each

The upper four bits of a text's kind say how many beginnings (and as many ends) follow: of 8, 4, 2 and 1
characters, as far as the text is long enough.
"""

from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

from roamcast.errors import WireError
from roamcast.event import ATTRIBUTES_MAX, Event, Value
from roamcast.filter.expression import is_number
from roamcast.strategy.odmrp.summary.bloom import TOKEN_BYTES
from roamcast.strategy.odmrp.summary.cells import (
    AFFIX_LENGTHS,
    ANY,
    TOPIC,
    TYPE_LEVELS_MAX,
    any_text,
    association_token,
    boolean_token,
    cell_of,
    element_of,
    exact_token,
    is_whole,
    label,
    left_token,
    node_token,
    nodes_above,
    number_point_token,
    right_token,
    type_token,
    types_above,
)
from roamcast.strategy.odmrp.summary.entry import TYPE_KEY, Key, SummaryEntry
from roamcast.strategy.odmrp.summary.geometry import DEFAULT, Geometry, SummaryOptions

DIGEST_VERSION = 1
DIGEST_ELEMENTS_MAX = ATTRIBUTES_MAX + 1  # the topic is one more

_FALSE, _TRUE, _WHOLE, _REAL, _TEXT = 0, 1, 2, 3, 4


class Named(NamedTuple):
    """One element with its value: the kind, and the tokens (or the cell) in the order of the wire form."""

    element: int
    kind: int
    tokens: tuple[int, ...]


class DigestQuestion:
    """Satisfied by a vector that contains one of `masks`, or one of `lefts` and one of `rights`."""

    __slots__ = ("lefts", "masks", "rights")

    def __init__(self, masks: Iterable[int], lefts: Iterable[int] = (), rights: Iterable[int] = ()) -> None:
        self.masks = tuple(masks)
        self.lefts = tuple(lefts)
        self.rights = tuple(rights)

    def satisfied(self, vector: int) -> bool:
        for mask in self.masks:  # a loop: several times as fast as any() over a generator
            if vector & mask == mask:
                return True
        for left in self.lefts:
            if vector & left == left:
                return any(vector & right == right for right in self.rights)
        return False

    def or_else(self, other: "DigestQuestion") -> "DigestQuestion":
        return DigestQuestion(self.masks + other.masks, self.lefts + other.lefts, self.rights + other.rights)


Questions: TypeAlias = dict[Key, DigestQuestion]


class EventDigest:
    """Immutable; equal events have equal digests, and their octets are equal too."""

    __slots__ = ("__dict__", "named", "options", "types")

    types: tuple[int, ...]
    named: tuple[Named, ...]
    options: SummaryOptions

    def __init__(self, types: Iterable[int], named: Iterable[Named], options: SummaryOptions) -> None:
        self.types = tuple(types)
        self.named = tuple(sorted(named))
        self.options = options

    @classmethod
    def of(cls, event: Event, options: SummaryOptions = DEFAULT) -> "EventDigest":
        named = [
            found
            for name, value in event.attributes.items()
            if (found := _named(element_of(name), value)) is not None
        ]
        if event.topic:
            named.append(_named_text(element_of(TOPIC), event.topic))
        return cls(map(type_token, types_above(event.type)), named, options)

    @classmethod
    def of_type(cls, type_: str, options: SummaryOptions = DEFAULT) -> "EventDigest":
        """An advertisement: what all events of a type have in common."""
        return cls(map(type_token, types_above(type_)), (), options)

    @classmethod
    def decode(cls, data: bytes, options: SummaryOptions = DEFAULT) -> "EventDigest":
        """What `encode` wrote; WireError for anything else."""
        reader = _Reader(data)
        version = reader.number(1, "digest version")
        if version != DIGEST_VERSION:
            raise WireError("digest version", 0, f"is {version}, not {DIGEST_VERSION}")
        types = [reader.number(TOKEN_BYTES, "type") for _ in range(reader.count(1, "types", TYPE_LEVELS_MAX))]
        count = reader.count(2, "elements", DIGEST_ELEMENTS_MAX)
        named = [_read_named(reader) for _ in range(count)]
        if reader.at != len(data):
            raise WireError("digest", reader.at, f"has {len(data) - reader.at} octets after its end")
        return cls(types, named, options)

    def encode(self) -> bytes:
        return self._encoded

    def satisfies(self, entry: SummaryEntry) -> bool:
        """Whether the event may match what the entry stands for."""
        for key, vector in entry.constraints:
            question = self.question(key)
            if question is None or not question.satisfied(vector):
                return False
        return True

    def may_satisfy(self, entry: SummaryEntry) -> bool:
        """As an advertisement: whether an event of this type, with whatever elements, may match. An event
        without a type can be anything."""
        vector, question = entry.by_key.get(TYPE_KEY), self.question(TYPE_KEY)
        return vector is None or question is None or question.satisfied(vector)

    def question(self, key: Key) -> DigestQuestion | None:
        """What this event looks up in a vector under the key; None if it has no such element."""
        found = self._questions.get(key)
        if found is None and key >> 16:
            found = self._pair_question(key >> 16, key & 0xFFFF)
            if found is not None:
                self._questions[key] = found
        return found

    def __eq__(self, other: object) -> bool:
        return self._encoded == other._encoded if isinstance(other, EventDigest) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._encoded)

    def __repr__(self) -> str:
        return f"Digest.decode(bytes.fromhex({self._encoded.hex()!r}))"

    @cached_property
    def _encoded(self) -> bytes:
        parts = [bytes([DIGEST_VERSION, len(self.types)])]
        parts += (token.to_bytes(TOKEN_BYTES, "big") for token in self.types)
        parts.append(len(self.named).to_bytes(2, "big"))
        for element, kind, tokens in self.named:
            parts.append(element.to_bytes(2, "big"))
            parts.append(bytes([kind | len(tokens) // 2 << 4 if kind == _TEXT else kind]))
            parts += (token.to_bytes(TOKEN_BYTES, "big") for token in tokens)
        return b"".join(parts)

    @cached_property
    def _questions(self) -> Questions:
        """Of the type and the elements; those of pairs are made when an entry needs them."""
        geometry = self.options.geometry
        questions: Questions = {}
        if self.types:
            questions[TYPE_KEY] = DigestQuestion(geometry.types.mask(each) for each in self.types)
        for named in self.named:
            question = _question(named, geometry)
            known = questions.get(named.element)
            # Attributes that share an element: it is enough that one of them satisfies a vector.
            questions[named.element] = question if known is None else known.or_else(question)
        return questions

    def _pair_question(self, first: int, second: int) -> DigestQuestion | None:
        labels = self._labels
        if first not in labels or second not in labels:
            return None
        structure = self.options.geometry.associations
        return DigestQuestion(
            structure.mask(association_token(one, other))
            for one, other in product(labels[first], labels[second])
        )

    @cached_property
    def _labels(self) -> dict[int, tuple[int, ...]]:
        labels: dict[int, tuple[int, ...]] = {}
        for named in self.named:
            labels[named.element] = (*labels.get(named.element, (ANY,)), _label(named))
        return labels


def _named(element: int, value: Value) -> Named | None:
    """The element of an attribute; None for a NULL, which has nothing to look up."""
    if isinstance(value, str):
        return _named_text(element, value)
    if isinstance(value, bool):
        return Named(element, _TRUE if value else _FALSE, ())
    if is_number(value):
        return Named(element, _WHOLE if is_whole(value) else _REAL, (cell_of(value),))
    return None


@lru_cache(maxsize=1 << 14)
def _named_text(element: int, text: str) -> Named:
    lengths = [length for length in AFFIX_LENGTHS if length <= len(text)]
    lefts = [left_token(element, text[:length]) for length in lengths]
    rights = [right_token(element, text[-length:]) for length in lengths]
    return Named(element, _TEXT, (exact_token(element, text), *lefts, *rights))


@lru_cache(maxsize=1 << 14)
def _question(named: Named, geometry: Geometry) -> DigestQuestion:
    element, kind, tokens = named
    if kind in (_FALSE, _TRUE):
        return DigestQuestion([geometry.enumeration.mask(boolean_token(element, kind == _TRUE))])
    if kind in (_WHOLE, _REAL):
        point = geometry.enumeration.mask(number_point_token(element, tokens[0]))
        nodes = nodes_above(tokens[0], kind == _WHOLE)
        ranges = [geometry.arithmetic(node.level).mask(node_token(element, node)) for node in nodes]
        return DigestQuestion([point, *ranges])
    exact, affixes = tokens[0], tokens[1:]
    lefts, rights = affixes[: len(affixes) // 2], affixes[len(affixes) // 2 :]
    empty = any_text(element)
    return DigestQuestion(
        (geometry.enumeration.mask(exact), geometry.exact.mask(exact)),
        (geometry.left.mask(token) for token in (*lefts, empty)),
        (geometry.right.mask(token) for token in (*rights, empty)),
    )


def _label(named: Named) -> int:
    element, kind, tokens = named
    if kind in (_FALSE, _TRUE):
        return label(1, boolean_token(element, kind == _TRUE))
    if kind == _TEXT:
        return label(3, tokens[0])
    return label(2, number_point_token(element, tokens[0]))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def number(self, size: int, field: str) -> int:
        left = len(self._data) - self.at
        if left < size:
            raise WireError(field, self.at, f"needs {size} octets, {left} left")
        self.at += size
        return int.from_bytes(self._data[self.at - size : self.at], "big")

    def count(self, size: int, field: str, most: int) -> int:
        number = self.number(size, field)
        if number > most:
            raise WireError(field, self.at - size, f"number {number}, at most {most} are allowed")
        return number


def _read_named(reader: _Reader) -> Named:
    at = reader.at
    element = reader.number(2, "element")
    octet = reader.number(1, "kind")
    kind, affixes = octet & 15, octet >> 4
    if element == 0 or kind > _TEXT or affixes > (len(AFFIX_LENGTHS) if kind == _TEXT else 0):
        raise WireError("element", at, f"{element} has the unknown kind {octet}")
    count = {_WHOLE: 1, _REAL: 1, _TEXT: 1 + 2 * affixes}.get(kind, 0)
    return Named(element, kind, tuple(reader.number(TOKEN_BYTES, "value") for _ in range(count)))
