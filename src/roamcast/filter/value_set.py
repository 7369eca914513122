"""Sets of attribute values: the values that the conditions on one attribute allow.

Comparisons, IN and IS NULL on one attribute describe a set of values, and so does any AND or OR of
them; as sets they can be intersected, united and compared exactly. `normal.py` writes a set back as
conditions, `covering.py` asks whether one set lies in another.

Numbers are taken as the dense real line with both infinities, although events carry only integers
and floats: `a > 1` is not held to be `a >= 1.0000000000000002`. Texts are the strings ordered by code
points, where every string has a successor (itself and U+0000) but few have a predecessor.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntFlag
from typing import NamedTuple, TypeAlias

from roamcast.event import Value
from roamcast.filter.expression import Literal, Operator, ValueKind, kind_of

Cut: TypeAlias = tuple[int, int | float | str, int]
"""A place between values: (-1, …) before all, (1, …) after all, (0, v, 0) just before v, (0, v, 1)
just after. For texts "just after v" is written as "just before v and U+0000", the same place, so that
equal places are equal tuples; and "before all" is just before the empty text."""

Cuts: TypeAlias = tuple[Cut, ...]
"""Ascending; membership turns on at the first cut, off at the second, and so on."""

NUMBER_FIRST: Cut = (-1, 0, 0)
NUMBER_END: Cut = (1, 0, 0)
TEXT_FIRST: Cut = (0, "", 0)
TEXT_END: Cut = (1, "", 0)


class Plain(IntFlag):
    """The values that have no order worth cutting."""

    NOTHING = 0
    NULL = 1
    FALSE = 2
    TRUE = 4
    BOOLEANS = 6
    ALL = 7


class ValueSet(NamedTuple):
    """A set of values, NULL among them."""

    plain: Plain
    numbers: Cuts
    texts: Cuts

    def intersection(self, other: "ValueSet") -> "ValueSet":
        return ValueSet(
            self.plain & other.plain,
            _combine(self.numbers, other.numbers, _both),
            _combine(self.texts, other.texts, _both),
        )

    def union(self, other: "ValueSet") -> "ValueSet":
        return ValueSet(
            self.plain | other.plain,
            _combine(self.numbers, other.numbers, _either),
            _combine(self.texts, other.texts, _either),
        )

    def minus(self, other: "ValueSet") -> "ValueSet":
        return ValueSet(
            self.plain & ~other.plain,
            _combine(self.numbers, other.numbers, _first_only),
            _combine(self.texts, other.texts, _first_only),
        )

    def within(self, other: "ValueSet") -> bool:
        return self.minus(other) == NO_VALUES

    def holds(self, value: Value) -> bool:
        kind = kind_of(value)
        if kind is None:
            return Plain.NULL in self.plain
        return self.minus(single(value)) != self  # type: ignore[arg-type]  # not NULL, by its kind

    def few_texts(self, most: int) -> list[str] | None:
        """The texts in the set, if they are finitely many and at most `most`."""
        texts: list[str] = []
        for first, end in spans(self.texts):
            if end == TEXT_END:
                return None
            text = str(first[1])
            # From one text to its successor, and so on; any other end is infinitely many texts away.
            steps = len(str(end[1])) - len(text)
            if end[1] != text + "\0" * steps or len(texts) + steps > most:
                return None
            texts.extend(text + "\0" * step for step in range(steps))
        return texts


NO_VALUES = ValueSet(Plain.NOTHING, (), ())
NULL_ONLY = ValueSet(Plain.NULL, (), ())
ALL_BOOLEANS = ValueSet(Plain.BOOLEANS, (), ())
ALL_NUMBERS = ValueSet(Plain.NOTHING, (NUMBER_FIRST, NUMBER_END), ())
ALL_TEXTS = ValueSet(Plain.NOTHING, (), (TEXT_FIRST, TEXT_END))
NOT_NULL = ValueSet(Plain.BOOLEANS, ALL_NUMBERS.numbers, ALL_TEXTS.texts)
ALL_VALUES = ValueSet(Plain.ALL, ALL_NUMBERS.numbers, ALL_TEXTS.texts)

WHOLE_KIND = {ValueKind.BOOLEAN: ALL_BOOLEANS, ValueKind.NUMBER: ALL_NUMBERS, ValueKind.TEXT: ALL_TEXTS}


def compared(operator: Operator, value: Literal) -> ValueSet:
    """The values for which `attribute operator value` is TRUE: all of the literal's kind."""
    if isinstance(value, bool):
        return ValueSet(_COMPARED_BOOLEANS[operator, value], (), ())
    before, after = cut_before(value), cut_after(value)
    first, end = (TEXT_FIRST, TEXT_END) if isinstance(value, str) else (NUMBER_FIRST, NUMBER_END)
    match operator:
        case Operator.EQUAL:
            cuts = _cuts((before, after))
        case Operator.NOT_EQUAL:
            cuts = _cuts((first, before), (after, end))
        case Operator.LESS:
            cuts = _cuts((first, before))
        case Operator.LESS_OR_EQUAL:
            cuts = _cuts((first, after))
        case Operator.GREATER:
            cuts = _cuts((after, end))
        case Operator.GREATER_OR_EQUAL:
            cuts = _cuts((before, end))
    return ValueSet(Plain.NOTHING, (), cuts) if isinstance(value, str) else ValueSet(Plain.NOTHING, cuts, ())


def single(value: Literal) -> ValueSet:
    return compared(Operator.EQUAL, value)


def any_of(values: Iterable[Literal]) -> ValueSet:
    """The values for which `attribute IN (values)` is TRUE."""
    plain = Plain.NOTHING
    numbers: set[Cut] = set()
    texts: set[str] = set()
    for value in values:
        if isinstance(value, bool):
            plain |= Plain.TRUE if value else Plain.FALSE
        elif isinstance(value, str):
            texts.add(value)
        else:
            numbers.update((cut_before(value), cut_after(value)))
    pairs = [(cut_before(text), cut_after(text)) for text in sorted(texts)]
    return ValueSet(plain, tuple(sorted(numbers)), _cuts(*pairs))


def texts_between(first: str, end: str | None) -> ValueSet:
    """All texts from `first` on, before `end`."""
    return ValueSet(
        Plain.NOTHING, (), _cuts((cut_before(first), TEXT_END if end is None else cut_before(end)))
    )


def spans(cuts: Cuts) -> Iterator[tuple[Cut, Cut]]:
    """Each run of consecutive members, given by the cuts before and after it."""
    return zip(cuts[::2], cuts[1::2], strict=True)


def cut_before(value: float | str) -> Cut:
    return (0, value, 0)


def cut_after(value: float | str) -> Cut:
    return (0, value + "\0", 0) if isinstance(value, str) else (0, value, 1)


_COMPARED_BOOLEANS = {
    (Operator.EQUAL, False): Plain.FALSE,
    (Operator.EQUAL, True): Plain.TRUE,
    (Operator.NOT_EQUAL, False): Plain.TRUE,
    (Operator.NOT_EQUAL, True): Plain.FALSE,
    (Operator.LESS, False): Plain.NOTHING,
    (Operator.LESS, True): Plain.FALSE,
    (Operator.LESS_OR_EQUAL, False): Plain.FALSE,
    (Operator.LESS_OR_EQUAL, True): Plain.BOOLEANS,
    (Operator.GREATER, False): Plain.TRUE,
    (Operator.GREATER, True): Plain.NOTHING,
    (Operator.GREATER_OR_EQUAL, False): Plain.BOOLEANS,
    (Operator.GREATER_OR_EQUAL, True): Plain.TRUE,
}


def _cuts(*pairs: tuple[Cut, Cut]) -> Cuts:
    """Ascending, disjoint pairs as one row of cuts; empty pairs go, touching pairs become one."""
    row: list[Cut] = []
    for first, end in pairs:
        if first == end:
            continue
        if row and row[-1] == first:
            row[-1] = end
        else:
            row += (first, end)
    return tuple(row)


def _combine(left: Cuts, right: Cuts, keep: Callable[[bool, bool], bool]) -> Cuts:
    in_left, in_right, kept = False, False, False
    left_cuts, right_cuts = frozenset(left), frozenset(right)
    row: list[Cut] = []
    for cut in sorted(left_cuts | right_cuts):
        in_left ^= cut in left_cuts
        in_right ^= cut in right_cuts
        if keep(in_left, in_right) != kept:
            kept = not kept
            row.append(cut)
    return tuple(row)


def _both(left: bool, right: bool) -> bool:
    return left and right


def _either(left: bool, right: bool) -> bool:
    return left or right


def _first_only(left: bool, right: bool) -> bool:
    return left and not right
