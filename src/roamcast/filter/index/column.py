"""One attribute's part of a bitmap: which conjunctions a value leaves possible.

The constants that filters compare the attribute with cut its values into rows: one row per cut point
and one per open interval between two cut points, for numbers and for texts, and one each for NULL,
FALSE and TRUE. Each row is a bitmap over the conjunctions. The rows decide a condition exactly if all its
constants are cuts. Where there are more constants than cuts, a constant can lie inside an open interval; the
row then says only that the condition can be true, and it is called inexact.

Values are located by `bisect` on Python values, because Python compares int with float exactly where
float64 arrays would round (2**53 + 1).
"""

from bisect import bisect_left
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roamcast.filter.expression import Compare, Expression, IsNull, Like, Literal, Not, OneOf, Operator
from roamcast.filter.pattern import after_prefix, prefix, tokens_of

Words: TypeAlias = NDArray[np.uint64]
Spans: TypeAlias = list[tuple[int, int]]
"""The rows in which a condition can be true, as first row and the one after the last; disjoint, in order."""

NULL_ROW = 0
FALSE_ROW = 1
TRUE_ROW = 2
NUMBER_BASE = 3


class BitmapColumn:
    """Bits of conjunctions that say nothing about the attribute are set everywhere, so that adding one
    touches only the columns it names."""

    def __init__(self, numbers: list[int | float], texts: list[str], width: int) -> None:
        """`width`: octets of a row, a multiple of eight."""
        self._numbers = numbers
        self._texts = texts
        self._text_base = NUMBER_BASE + 2 * len(numbers) + 1
        self._row_count = self._text_base + 2 * len(texts) + 1
        self._not_null = (NULL_ROW + 1, self._row_count)
        self._bits: NDArray[np.uint8] = np.full((self._row_count, width), 255, dtype=np.uint8)
        # Views made once: slicing an array costs as much as the AND that follows.
        self.possible: list[Words] = list(self._bits.view(np.uint64))

    def row_of(self, value: Any) -> int:
        """The most frequent call of the index: once per attribute and event, hence without further calls."""
        kind = type(value)
        cuts: list[Any]
        if kind is float or kind is int:
            if value != value:  # a NaN is NULL
                return NULL_ROW
            cuts, base = self._numbers, NUMBER_BASE
        elif kind is str:
            cuts, base = self._texts, self._text_base
        elif kind is bool:
            return TRUE_ROW if value else FALSE_ROW
        elif isinstance(value, str | int | float):  # a subclass, such as numpy's float64
            return self.row_of(str(value) if isinstance(value, str) else value.real)
        else:
            return NULL_ROW
        index = bisect_left(cuts, value)
        if index < len(cuts) and cuts[index] == value:
            return base + 2 * index + 1
        return base + 2 * index

    def write(self, slot: int, spans: Spans) -> None:
        """Record where one conjunction can be true, once."""
        octet = self._bits[:, slot >> 3]
        keep = np.uint8(255 ^ (1 << (slot & 7)))
        row = 0
        for start, end in spans:
            octet[row:start] &= keep
            row = end
        octet[row:] &= keep

    def write_all(self, slots: list[int], spans_of: list[Spans]) -> None:
        """The same for many, into an empty column."""
        starts = [(start, slot) for slot, spans in zip(slots, spans_of, strict=True) for start, _ in spans]
        ends = [(end, slot) for slot, spans in zip(slots, spans_of, strict=True) for _, end in spans]
        # One more where a span begins, one less where it ends: the sum down the rows is 1 inside.
        steps = np.zeros((self._row_count + 1, 8 * self._bits.shape[1]), dtype=np.int8)
        steps[0] = 1
        steps[0, slots] = 0
        if starts:
            steps[tuple(np.array(starts).T)] += 1
            steps[tuple(np.array(ends).T)] -= 1
        possible = np.cumsum(steps[:-1], axis=0, dtype=np.int8, out=steps[:-1])
        self._bits[:] = np.packbits(possible, axis=1, bitorder="little")

    def spans_of(self, leaves: list[Expression]) -> tuple[Spans, list[Expression]]:
        """Where the AND of leaves on this attribute can be true, and which leaves are inexact."""
        spans, is_exact = self._spans_of_leaf(leaves[0])
        inexact = [] if is_exact else leaves[:1]
        for leaf in leaves[1:]:
            leaf_spans, is_exact = self._spans_of_leaf(leaf)
            spans = _intersection(spans, leaf_spans)
            if not is_exact:
                inexact.append(leaf)
        return spans, inexact

    def _spans_of_leaf(self, leaf: Expression) -> tuple[Spans, bool]:
        match leaf:
            case Compare():
                return self._compare(leaf.operator, leaf.value)
            case OneOf():
                equal = [self._compare(Operator.EQUAL, value) for value in leaf.values]
                points = {span for spans, _ in equal for span in spans}
                return sorted(points), all(exact for _, exact in equal)
            case Not(term=OneOf(values=values)):
                remaining, all_exact = [self._not_null], True
                for value in values:
                    spans, is_exact = self._compare(Operator.NOT_EQUAL, value)
                    remaining = _intersection(remaining, spans)
                    all_exact = all_exact and is_exact
                return remaining, all_exact
            case Like():
                return self._like(leaf)
            case IsNull():
                return [(NULL_ROW, NULL_ROW + 1)], True
            case _:
                return [self._not_null], isinstance(leaf, Not) and isinstance(leaf.term, IsNull)

    def _compare(self, operator: Operator, value: Literal) -> tuple[Spans, bool]:
        if isinstance(value, bool):
            return _compare_truth(operator, value)
        cuts: list[Any] = self._texts if isinstance(value, str) else self._numbers
        first = self._text_base if isinstance(value, str) else NUMBER_BASE
        end = first + 2 * len(cuts) + 1
        row = _locate(cuts, value, first)
        on_cut = (row - first) & 1 == 1
        match operator:
            case Operator.EQUAL:
                spans = [(row, row + 1)]
            case Operator.NOT_EQUAL:
                spans = [(first, row), (row + 1, end)] if on_cut else [(first, end)]
            case Operator.LESS:
                spans = [(first, row if on_cut else row + 1)]
            case Operator.LESS_OR_EQUAL:
                spans = [(first, row + 1)]
            case Operator.GREATER:
                spans = [(row + 1 if on_cut else row, end)]
            case Operator.GREATER_OR_EQUAL:
                spans = [(row, end)]
        return spans, on_cut

    def _like(self, leaf: Like) -> tuple[Spans, bool]:
        """Texts with a given beginning lie together in the order of texts."""
        start = prefix(tokens_of(leaf.pattern, leaf.escape))
        after = after_prefix(start)
        first = _locate(self._texts, start, self._text_base)
        end = self._text_base + 2 * len(self._texts) + 1
        if after is None:
            return [(first, end)], False
        last = _locate(self._texts, after, self._text_base)
        after_is_cut = (last - self._text_base) & 1 == 1
        return [(first, last if after_is_cut else last + 1)], False


def constants(leaf: Expression) -> tuple[Literal, ...]:
    """The values at which a leaf's truth can change: candidates for cuts."""
    match leaf:
        case Compare():
            return (leaf.value,)
        case OneOf(values=values) | Not(term=OneOf(values=values)):
            return values
        case Like():
            return (prefix(tokens_of(leaf.pattern, leaf.escape)),)
        case _:
            return ()


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


def _compare_truth(operator: Operator, value: bool) -> tuple[Spans, bool]:
    if operator is Operator.EQUAL or operator is Operator.NOT_EQUAL:
        wanted = value is (operator is Operator.EQUAL)
        row = TRUE_ROW if wanted else FALSE_ROW
        return [(row, row + 1)], True
    return [(FALSE_ROW, TRUE_ROW + 1)], False


def _intersection(left: Spans, right: Spans) -> Spans:
    both = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return [(start, end) for start, end in both if start < end]


def _locate(cuts: list[Any], value: Any, base: int) -> int:
    index = bisect_left(cuts, value)
    if index < len(cuts) and cuts[index] == value:
        return base + 2 * index + 1
    return base + 2 * index
