"""From a filter to entries of a summary: each AND of its disjunctive form becomes one entry.

Every condition of an entry must follow from the filter, so that an event which the filter matches satisfies
the entry. Conditions that the structures cannot express are left out, which only widens the entry:

| condition | becomes |
|---|---|
| type | EN |
| `= text` | SC_X |
| IN of several texts, booleans, numbers by `=` and IN | EC |
| ranges of numbers, `<>` | AC, as nodes of a tree over cells (`cells.py`) |
| LIKE, topic filters with wildcards | what stands before the first wildcard in SC_L, after the last in SC_R |
| ranges of texts | the common beginning in SC_L |
| NOT LIKE, NOT NULL | that the element is there at all |
| IS NULL, NOT on topics and types | nothing |
| two elements with few values each | EL, the values that belong together |
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

from roamcast.filter import Filter
from roamcast.filter.covering import Prepared, SortedConjunction
from roamcast.filter.expression import And, Expression, Or
from roamcast.filter.pattern import Tokens, after_prefix
from roamcast.filter.value_set import TEXT_END, Cut, Plain, ValueSet, spans
from roamcast.strategy.odmrp.summary.cells import (
    ANY,
    TOPIC,
    TYPE_LEVELS_MAX,
    association_token,
    boolean_token,
    cell_of,
    cut_to_length,
    element_of,
    exact_token,
    label,
    left_token,
    node_token,
    nodes_between,
    number_point_token,
    right_token,
    type_token,
    types_above,
)
from roamcast.strategy.odmrp.summary.entry import ELEMENTS_MAX, TYPE_KEY, Key, SummaryEntry, pair_key
from roamcast.strategy.odmrp.summary.geometry import Geometry

# Bounds chosen by us: larger ones are more exact and set more bits.
LABELS_MAX = 4  # values of one element that are associated one by one
TEXTS_MAX = 64  # values of one IN that are entered one by one; more become their common beginning
SPANS_MAX = 16  # ranges of one element; more become the one range around them


@lru_cache(maxsize=4096)
def entries_of(filter_: Filter, geometry: Geometry) -> tuple[SummaryEntry, ...]:
    """One entry for each way in which the filter can match; none if it cannot."""
    found: dict[SummaryEntry, None] = {}
    for conjunction in _conjunctions(filter_.expression):
        if not conjunction.impossible():
            found[_entry(conjunction, geometry)] = None
    return tuple(found)


def _conjunctions(expression: Expression) -> list[SortedConjunction]:
    """The disjunctive form or, where that is too long, one that is wider and shorter."""
    alternatives = Prepared.of(expression).alternatives
    if alternatives is not None:
        return alternatives
    match expression:
        case Or(terms):
            return [each for term in terms for each in _conjunctions(term)]
        case And(terms):
            joined = SortedConjunction()
            for term in terms:
                own = Prepared.of(term).alternatives
                if own is not None and len(own) == 1:  # the other terms are left out
                    joined = joined.joined(own[0])
            return [joined.settled()]
    raise AssertionError(f"a leaf with several alternatives: {expression}")


class ElementCondition(NamedTuple):
    """The condition on one element: its bits, and its values if they are few."""

    element: int
    bits: int
    labels: tuple[int, ...]  # (ANY,) where they are many


def _entry(conjunction: SortedConjunction, geometry: Geometry) -> SummaryEntry:
    constraints: list[tuple[Key, int]] = []
    if conjunction.types:
        deepest = max(conjunction.types, key=len)
        above = types_above(deepest)[:TYPE_LEVELS_MAX]
        constraints.append((TYPE_KEY, geometry.types.mask(type_token(above[-1]))))
    conditions = _conditions(conjunction, geometry)
    constraints += ((each.element, each.bits) for each in conditions)
    for first, second in combinations(conditions, 2):
        bits = _association(first, second, geometry)
        if bits:
            constraints.append((pair_key(first.element, second.element), bits))
    return SummaryEntry(constraints)


def _conditions(conjunction: SortedConjunction, geometry: Geometry) -> list[ElementCondition]:
    found: dict[int, ElementCondition] = {}
    patterns: dict[str, list[Tokens]] = {}
    for attribute, tokens in conjunction.like:
        patterns.setdefault(attribute, []).append(tokens)
    for attribute, values in conjunction.values.items():
        if Plain.NULL in values.plain:
            continue  # the element may be absent: nothing to look up
        writer = _Writer(element_of(attribute), geometry)
        writer.add_values(values, patterns.get(attribute, []))
        _meet(found, writer.condition())
    if conjunction.topics:
        writer = _Writer(element_of(TOPIC), geometry)
        writer.add_topics(conjunction.topics)
        _meet(found, writer.condition())
    # Elements with few values are most selective; ties go by the element's number, equally on every node.
    chosen = sorted(found.values(), key=lambda each: (each.labels == (ANY,), each.element))[:ELEMENTS_MAX]
    return sorted(chosen)


def _meet(found: dict[int, ElementCondition], condition: ElementCondition) -> None:
    """Two attributes may hash to one element: it then has several values, and each condition is met by some
    of them. One of the two is kept, since the vectors of an element cannot express "and"."""
    known = found.get(condition.element)
    if known is None or condition < known:
        found[condition.element] = condition


def _association(first: ElementCondition, second: ElementCondition, geometry: Geometry) -> int:
    if first.labels == second.labels == (ANY,):
        return 0
    structure = geometry.associations
    bits = 0
    for one, other in product(first.labels, second.labels):
        bits |= structure.mask(association_token(one, other))
    return bits


class _Writer:
    """Collects the bits of one element."""

    def __init__(self, element: int, geometry: Geometry) -> None:
        self._element = element
        self._geometry = geometry
        self._bits = 0
        self._labels: list[int] | None = []

    def condition(self) -> ElementCondition:
        labels = self._labels
        few = labels is not None and len(labels) <= LABELS_MAX
        return ElementCondition(
            self._element, self._bits, tuple(sorted(labels)) if labels and few else (ANY,)
        )

    def add_values(self, values: ValueSet, patterns: list[Tokens]) -> None:
        for flag, value in ((Plain.FALSE, False), (Plain.TRUE, True)):
            if flag in values.plain:
                token = boolean_token(self._element, value)
                self._bits |= self._geometry.enumeration.mask(token)
                self._name(label(1, token))
        self._add_numbers(list(spans(values.numbers)))
        texts = values.few_texts(TEXTS_MAX)
        if texts is not None:
            self._add_texts(texts)
        elif patterns:  # all must match, so the longest beginning and the longest end are required
            self._add_affixes(
                max((_literal(tokens[0]) for tokens in patterns), key=len),
                max((_literal(tokens[-1]) for tokens in patterns), key=len),
            )
        else:
            ranges = list(spans(values.texts))
            if len(ranges) > SPANS_MAX:
                ranges = [(ranges[0][0], ranges[-1][1])]
            for first, end in ranges:
                self._add_affixes(_common_beginning(first, end), "")

    def add_topics(self, topic_filters: Iterable[str]) -> None:
        beginning = end = ""
        for topic_filter in topic_filters:
            levels = topic_filter.split("/")
            wild = [at for at, level in enumerate(levels) if level in ("+", "#")]
            if not wild:
                self._add_texts([topic_filter])
                return
            before = "/".join(levels[: wild[0]])
            # `sport/#` matches `sport` too; `sport/+` needs the slash.
            if wild[0] and levels[wild[0]] == "+":
                before += "/"
            after = "" if levels[-1] == "#" else "".join("/" + level for level in levels[wild[-1] + 1 :])
            beginning, end = max(beginning, before, key=len), max(end, after, key=len)
        self._add_affixes(beginning, end)

    def _add_numbers(self, ranges: list[tuple[Cut, Cut]]) -> None:
        if sum(not _is_point(*each) for each in ranges) > SPANS_MAX:
            ranges = [(ranges[0][0], ranges[-1][1])]
        for first, end in ranges:
            if _is_point(first, end):
                self._add_number(first)
                continue
            for node in nodes_between(first, end):
                structure = self._geometry.arithmetic(node.level)
                self._bits |= structure.mask(node_token(self._element, node))
            self._name(None)

    def _add_number(self, cut: Cut) -> None:
        value = cut[1]
        assert not isinstance(value, str)
        token = number_point_token(self._element, cell_of(value))
        self._bits |= self._geometry.enumeration.mask(token)
        self._name(label(2, token))

    def _add_texts(self, texts: list[str]) -> None:
        structure = self._geometry.exact if len(texts) == 1 else self._geometry.enumeration
        for text in texts:
            token = exact_token(self._element, text)
            self._bits |= structure.mask(token)
            self._name(label(3, token))

    def _add_affixes(self, beginning: str, end: str) -> None:
        beginning = beginning[: cut_to_length(beginning)]
        end = end[len(end) - cut_to_length(end) :]
        self._bits |= self._geometry.left.mask(left_token(self._element, beginning))
        self._bits |= self._geometry.right.mask(right_token(self._element, end))
        self._name(None)

    def _name(self, name: int | None) -> None:
        if name is None:
            self._labels = None
        elif self._labels is not None:
            self._labels.append(name)


def _literal(token: object) -> str:
    return token if isinstance(token, str) else ""


def _common_beginning(first: Cut, end: Cut) -> str:
    """The common beginning of all texts between two cuts."""
    if end == TEXT_END:
        return ""
    low, high = str(first[1]), str(end[1])
    beginning = low[: len(high)]  # from `m…` to `n` all begin with `m`
    return beginning if after_prefix(beginning) == high else _shared(low, high)


def _shared(low: str, high: str) -> str:
    length = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), None)
    return min(low, high, key=len) if length is None else low[:length]


def _is_point(first: Cut, end: Cut) -> bool:
    return first[0] == end[0] == 0 and first[1] == end[1]
