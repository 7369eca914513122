"""One attribute's values, divided into rows by the constants that filters compare it with.

Every condition is true on half-open intervals of values, from one constant up to another: `a <= 3` is
everything below the number after 3, `a = 3` begins at 3 and ends there. Some constants are chosen as
cuts; a row is what lies between two neighbouring cuts, one row more each for FALSE, TRUE and NULL.

Values are located by `bisect` on Python values: Python compares int with float exactly (2**53 + 1).
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from roamcast.filter.evaluate import TESTS
from roamcast.filter.expression import Compare, Expression, IsNull, Like, Literal, Not, OneOf, Operator
from roamcast.filter.pattern import after_prefix, is_prefix_pattern, prefix, tokens_of

Place: TypeAlias = tuple[int, bool, Any]
"""Where a condition begins or ends to be true: a row; whether inside it; the value, if inside. In order."""

EXACT_MAX = 2**53  # beyond it not every integer is a float


class TrueSpans(NamedTuple):
    """Where a condition can be true, from each first place up to the second; disjoint, in order."""

    spans: list[tuple[Place, Place]]
    is_decided: bool = True  # otherwise it can also be false there, and the filter has the last word


class AttributeRows:
    """Rows in order: numbers, texts, FALSE, TRUE, NULL."""

    __slots__ = ("_false", "_numbers", "_text_base", "_texts", "count")

    def __init__(self, numbers: list[int | float], texts: list[str]) -> None:
        self._numbers = numbers
        self._texts = texts
        self._text_base = len(numbers) + 1
        self._false = self._text_base + len(texts) + 1
        self.count = self._false + 3

    def row_of(self, value: Any) -> int:
        kind = type(value)
        if kind is float or kind is int:
            # A NaN is NULL.
            return bisect_right(self._numbers, value) if value == value else self.count - 1
        if kind is str:
            return self._text_base + bisect_right(self._texts, value)
        if kind is bool:
            return self._false + value  # type: ignore[no-any-return]
        if isinstance(value, str | int | float):  # a subclass, such as numpy's float64
            return self.row_of(str(value) if isinstance(value, str) else value.real)
        return self.count - 1

    def truth_of(self, leaf: Expression) -> TrueSpans:
        match leaf:
            case Compare():
                return self._compare(leaf.operator, leaf.value)
            case OneOf():
                points = [self._compare(Operator.EQUAL, value).spans for value in leaf.values]
                return TrueSpans(sorted({span for spans in points for span in spans}))
            case Not(term=OneOf(values=values)):
                truth = self._not_null()
                for value in values:
                    truth = both(truth, self._compare(Operator.NOT_EQUAL, value))
                return truth
            case Like():
                return self._like(leaf)
            case IsNull():
                return _rows(self.count - 1, self.count)
            case Not(term=IsNull()):
                return self._not_null()
        return self._not_null()._replace(is_decided=False)

    def _not_null(self) -> TrueSpans:
        return _rows(0, self.count - 1)

    def _compare(self, operator: Operator, value: Literal) -> TrueSpans:
        if isinstance(value, bool):
            test = TESTS[operator]
            rows = [self._false + each for each in (False, True) if test(each, value)]
            return TrueSpans([((row, False, 0), (row + 1, False, 0)) for row in rows])
        cuts: list[Any] = self._texts if isinstance(value, str) else self._numbers
        base = self._text_base if isinstance(value, str) else 0
        first, end = (base, False, 0), (base + len(cuts) + 1, False, 0)
        match operator:
            case Operator.LESS:
                return TrueSpans([(first, _place(cuts, base, value))])
            case Operator.LESS_OR_EQUAL:
                return TrueSpans([(first, _place(cuts, base, following(value)))])
            case Operator.GREATER_OR_EQUAL:
                return TrueSpans([(_place(cuts, base, value), end)])
            case Operator.GREATER:
                return TrueSpans([(_place(cuts, base, following(value)), end)])
        start, stop = _place(cuts, base, value), _place(cuts, base, following(value))
        if operator is Operator.EQUAL:
            return TrueSpans([(start, stop)])
        return TrueSpans([(first, start), (stop, end)])

    def _like(self, leaf: Like) -> TrueSpans:
        """Texts with a given beginning lie together in the order of texts."""
        tokens = tokens_of(leaf.pattern, leaf.escape)
        start, after = prefix(tokens), after_prefix(prefix(tokens))
        end = (self._false, False, 0) if after is None else _place(self._texts, self._text_base, after)
        return TrueSpans([(_place(self._texts, self._text_base, start), end)], is_prefix_pattern(tokens))


def edges_of(leaf: Expression) -> Iterable[Literal]:
    """The values at which a leaf's truth changes: candidates for cuts."""
    match leaf:
        case Compare(value=bool()):
            return ()
        case Compare(operator=Operator.LESS | Operator.GREATER_OR_EQUAL):
            return (leaf.value,)
        case Compare(operator=Operator.LESS_OR_EQUAL | Operator.GREATER):
            return (following(leaf.value),)
        case Compare():
            return (leaf.value, following(leaf.value))
        case OneOf(values=values) | Not(term=OneOf(values=values)):
            plain = [value for value in values if not isinstance(value, bool)]
            return [edge for value in plain for edge in (value, following(value))]
        case Like():
            start = prefix(tokens_of(leaf.pattern, leaf.escape))
            after = after_prefix(start)
            return (start,) if after is None else (start, after)
    return ()


def following(value: Any) -> Any:
    """The value after a text or finite number: nothing that an attribute can have lies between."""
    if isinstance(value, str):
        return value + "\0"
    if -EXACT_MAX < value < EXACT_MAX:
        return math.nextafter(value, math.inf)  # all integers of this size are floats
    return int(value) + 1  # all floats of this size are integers


def both(one: TrueSpans, other: TrueSpans) -> TrueSpans:
    """Where two conditions on one attribute can be true together."""
    shared = ((max(a, c), min(b, d)) for a, b in one.spans for c, d in other.spans)
    return TrueSpans(
        [(start, end) for start, end in shared if start < end], one.is_decided and other.is_decided
    )


def choose_cuts(values: list[Any], limit: int) -> list[Any]:
    """At most `limit` values in order, such that about equally many of `values` lie between any two.

    A value that fills more than its share is always chosen, so that frequent constants are exact.
    """
    values = sorted(values)
    distinct = _without_repetition(values)
    if len(distinct) <= limit:
        return distinct
    middles = range(len(values), 2 * limit * len(values), 2 * len(values))
    return _without_repetition([values[middle // (2 * limit)] for middle in middles])


def _without_repetition(ordered: list[Any]) -> list[Any]:
    return [value for index, value in enumerate(ordered) if index == 0 or value != ordered[index - 1]]


def _rows(first: int, end: int) -> TrueSpans:
    return TrueSpans([((first, False, 0), (end, False, 0))])


def _place(cuts: list[Any], base: int, edge: Any) -> Place:
    at = bisect_right(cuts, edge)
    if at and cuts[at - 1] == edge:
        return (base + at, False, 0)
    return (base + at, True, edge)
