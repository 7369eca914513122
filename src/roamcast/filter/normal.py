"""The normal form: one form for filters that clearly mean the same.

Negation is pushed down to the leaves first; that is exact in three-valued logic. What remains is
built of AND and OR alone, and those never turn an UNKNOWN into a TRUE, so from there on UNKNOWN may
be read as FALSE. Hence `normalise` keeps what a filter matches (where it is TRUE), not where it is
FALSE and where UNKNOWN: a normal form may be combined by AND and OR, but must not be negated.

Then all conditions on one attribute in one AND or OR become one `ValueSet`, and conditions are written
back from it: `a > 3 AND a > 5` is `a > 5`, `a = 1 OR a = 2` is `a IN (1, 2)`, `a > 5 AND a < 3` is
FALSE. A circle (`WITHIN`) brings the box around it, as ranges of its two attributes. Terms are sorted by
their encoding, and equal ones written once.
"""

from collections.abc import Callable, Iterable

import msgspec

from roamcast.filter.expression import (
    FALSE,
    TRUE,
    And,
    Compare,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    OfType,
    OneOf,
    OnTopic,
    Operator,
    Or,
    ValueKind,
    Within,
    canonical_literal,
    kind_of,
)
from roamcast.filter.pattern import Wildcard, spelling, tokens_of
from roamcast.filter.place import box_around
from roamcast.filter.topic import canonical_topic_filter
from roamcast.filter.value_set import (
    ALL_NUMBERS,
    ALL_TEXTS,
    ALL_VALUES,
    NO_VALUES,
    NOT_NULL,
    NULL_ONLY,
    NUMBER_END,
    NUMBER_FIRST,
    TEXT_END,
    TEXT_FIRST,
    WHOLE_KIND,
    Cut,
    Cuts,
    Plain,
    ValueSet,
    any_of,
    compared,
    cut_after,
    cut_before,
    spans,
)

INVERSE = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
}

_encoder = msgspec.msgpack.Encoder()


def normalise(expression: Expression) -> Expression:
    """An expression that matches the same events; normalising it again changes nothing."""
    return _normal(push_negation(expression))


def disjuncts(expression: Expression, limit: int = 64) -> list[tuple[Expression, ...]] | None:
    """A normal form as an OR of ANDs of leaves; None where that takes more than `limit` ANDs.

    A leaf is any node but And and Or; Not stands only around a Like, OnTopic, OfType, IsNull, OneOf or
    Within. TRUE gives one empty AND, FALSE gives none. The ANDs are not normalised again: some may be
    unsatisfiable.
    """
    if not isinstance(expression, And | Or):
        return [(expression,)]
    if isinstance(expression, Or):
        alternatives: list[tuple[Expression, ...]] = []
        for term in expression.terms:
            expanded = disjuncts(term, limit)
            if expanded is None or len(alternatives) + len(expanded) > limit:
                return None
            alternatives += expanded
        return alternatives
    if not any(isinstance(term, And | Or) for term in expression.terms):
        return [expression.terms]
    products: list[tuple[Expression, ...]] = [()]
    for term in expression.terms:
        expanded = disjuncts(term, limit)
        if expanded is None or len(products) * len(expanded) > limit:
            return None
        products = [left + right for left in products for right in expanded]
    return products


def order_key(expression: Expression) -> bytes:
    """Distinguishes expressions and sorts them; unlike `==` it distinguishes TRUE from 1."""
    return _encoder.encode(expression)


def push_negation(expression: Expression, negated: bool = False) -> Expression:
    """The same truth value on every event, UNKNOWN included, with Not only around leaves."""
    match expression:
        case Not(term):
            return push_negation(term, not negated)
        case And(terms):
            pushed = tuple(push_negation(term, negated) for term in terms)
            return Or(pushed) if negated else And(pushed)
        case Or(terms):
            pushed = tuple(push_negation(term, negated) for term in terms)
            return And(pushed) if negated else Or(pushed)
        case Compare(attribute, operator, value) if negated:
            return Compare(attribute, INVERSE[operator], value)
    return Not(expression) if negated else expression


def attribute_set(expression: Expression) -> tuple[str, ValueSet] | None:
    """The attribute and its values, if the expression (Not only at leaves) asks for nothing else."""
    match expression:
        case Compare(attribute, operator, value):
            return attribute, compared(operator, value)
        case OneOf(attribute, values):
            return attribute, any_of(values)
        case IsNull(attribute):
            return attribute, NULL_ONLY
        case Not(IsNull(attribute)):
            return attribute, NOT_NULL
        case Not(OneOf(attribute, values)):
            return attribute, none_of(values)
        case And(terms):
            return _combined_set(terms, ValueSet.intersection)
        case Or(terms):
            return _combined_set(terms, ValueSet.union)
    return None


def none_of(values: Iterable[Literal]) -> ValueSet:
    """Where `attribute NOT IN (values)` is TRUE. Never for values of several kinds: whatever the
    attribute is, its comparison with some of them is UNKNOWN."""
    values = tuple(values)
    kinds = {kind_of(value) for value in values}
    if len(kinds) != 1 or None in kinds:
        return NO_VALUES
    return WHOLE_KIND[ValueKind(kinds.pop() or 0)].minus(any_of(values))


def _combined_set(
    terms: tuple[Expression, ...], combine: Callable[[ValueSet, ValueSet], ValueSet]
) -> tuple[str, ValueSet] | None:
    combined: tuple[str, ValueSet] | None = None
    for term in terms:
        found = attribute_set(term)
        if found is None or (combined is not None and combined[0] != found[0]):
            return None
        combined = found if combined is None else (found[0], combine(combined[1], found[1]))
    return combined


def _normal(expression: Expression) -> Expression:
    match expression:
        case And(terms):
            return _joined(And, (_normal(term) for term in terms), ValueSet.intersection)
        case Or(terms):
            return _joined(Or, (_normal(term) for term in terms), ValueSet.union)
        case Like(attribute, pattern, escape):
            return _normal_like(attribute, pattern, escape, negated=False)
        case Not(Like(attribute, pattern, escape)):
            return _normal_like(attribute, pattern, escape, negated=True)
        case OnTopic(topic_filter):
            return OnTopic(canonical_topic_filter(topic_filter))
        case Not(OnTopic(topic_filter)):
            return Not(OnTopic(canonical_topic_filter(topic_filter)))
        case Within():
            return _joined(And, [*box_around(expression), expression], ValueSet.intersection)
    found = attribute_set(expression)
    return expression if found is None else spelled(*found)


def _joined(
    junction: type[And] | type[Or],
    terms: Iterable[Expression],
    combine: Callable[[ValueSet, ValueSet], ValueSet],
) -> Expression:
    """One AND (or OR) of normal terms: flat, one set per attribute, sorted, without repetition."""
    sets: dict[str, ValueSet] = {}
    others: list[Expression] = []
    for term in _flat(junction, terms):
        found = attribute_set(term)
        if found is None:
            others.append(term)
        else:
            attribute, values = found
            sets[attribute] = combine(sets[attribute], values) if attribute in sets else values
    respelled = (spelled(attribute, values) for attribute, values in sets.items())
    unique = {order_key(term): term for term in _flat(junction, [*others, *respelled])}
    absorbing = FALSE if junction is And else TRUE
    if order_key(absorbing) in unique or _has_opposites(junction, unique):
        return absorbing
    if len(unique) == 1:
        return next(iter(unique.values()))
    return junction(tuple(unique[key] for key in sorted(unique)))


def _flat(junction: type[And] | type[Or], terms: Iterable[Expression]) -> Iterable[Expression]:
    for term in terms:
        if isinstance(term, And | Or) and isinstance(term, junction):
            yield from term.terms  # normal already, so flat
        else:
            yield term


def _has_opposites(junction: type[And] | type[Or], unique: dict[bytes, Expression]) -> bool:
    """`x AND NOT x` never matches; `x OR NOT x` always does, but only where x is never UNKNOWN."""
    opposed = (term.term for term in unique.values() if isinstance(term, Not))
    return any(
        order_key(term) in unique and (junction is And or isinstance(term, OnTopic | OfType))
        for term in opposed
    )


def _normal_like(attribute: str, pattern: str, escape: str, negated: bool) -> Expression:
    tokens = tokens_of(pattern, escape)
    if tokens == (Wildcard.RUN,):
        return FALSE if negated else spelled(attribute, ALL_TEXTS)
    if not any(isinstance(token, Wildcard) for token in tokens):
        operator = Operator.NOT_EQUAL if negated else Operator.EQUAL
        return Compare(attribute, operator, "".join(map(str, tokens)))
    like = Like(attribute, *spelling(tokens))
    return Not(like) if negated else like


def spelled(attribute: str, values: ValueSet) -> Expression:
    """The normal form of "the attribute is among these values"."""
    if values == ALL_VALUES:
        return TRUE
    alternatives: list[Expression] = []
    if Plain.NULL in values.plain:
        alternatives.append(IsNull(attribute))
    if NOT_NULL.within(values):
        alternatives.append(Not(IsNull(attribute)))
        return _one_or(alternatives)
    match values.plain & Plain.BOOLEANS:
        case Plain.FALSE:
            alternatives.append(Compare(attribute, Operator.EQUAL, False))
        case Plain.TRUE:
            alternatives.append(Compare(attribute, Operator.EQUAL, True))
        case Plain.BOOLEANS:
            alternatives.append(Compare(attribute, Operator.GREATER_OR_EQUAL, False))
    if values.numbers == ALL_NUMBERS.numbers:
        # No single comparison says "any number".
        alternatives.append(Compare(attribute, Operator.LESS, 0))
        alternatives.append(Compare(attribute, Operator.GREATER_OR_EQUAL, 0))
    else:
        alternatives += _spelled_cuts(attribute, values.numbers)
    if values.texts == ALL_TEXTS.texts:
        alternatives.append(Compare(attribute, Operator.GREATER_OR_EQUAL, ""))
    else:
        alternatives += _spelled_cuts(attribute, values.texts)
    return _one_or(alternatives)


def _one_or(alternatives: list[Expression]) -> Expression:
    return alternatives[0] if len(alternatives) == 1 else Or(tuple(sorted(alternatives, key=order_key)))


def _spelled_cuts(attribute: str, cuts: Cuts) -> list[Expression]:
    """Ranges with single values missing, and single values."""
    points: list[Literal] = []
    ranges: list[tuple[Cut, Cut, list[Literal]]] = []
    for first, end in spans(cuts):
        if _is_point(first, end):
            points.append(first[1])
        elif ranges and _is_point(ranges[-1][1], first):
            before = ranges.pop()
            ranges.append((before[0], end, [*before[2], before[1][1]]))
        else:
            ranges.append((first, end, []))
    spellings = [_spelled_range(attribute, *found) for found in ranges]
    if points:
        spellings.append(_one_of(attribute, points))
    return spellings


def _is_point(first: Cut, end: Cut) -> bool:
    """Whether there is exactly one value between the cuts."""
    return first[0] == end[0] == 0 and first == cut_before(first[1]) and end == cut_after(first[1])


def _spelled_range(attribute: str, first: Cut, end: Cut, missing: list[Literal]) -> Expression:
    terms: list[Expression] = []
    if first not in (NUMBER_FIRST, TEXT_FIRST):
        terms.append(Compare(attribute, *_lower_bound(first)))
    if end not in (NUMBER_END, TEXT_END):
        terms.append(Compare(attribute, *_upper_bound(end)))
    if missing:
        without = _one_of(attribute, missing)
        terms.append(push_negation(without, negated=True))
    return terms[0] if len(terms) == 1 else And(tuple(sorted(terms, key=order_key)))


def _lower_bound(cut: Cut) -> tuple[Operator, Literal]:
    value, after = _cut_value(cut)
    return (Operator.GREATER if after else Operator.GREATER_OR_EQUAL), value


def _upper_bound(cut: Cut) -> tuple[Operator, Literal]:
    value, after = _cut_value(cut)
    return (Operator.LESS_OR_EQUAL if after else Operator.LESS), value


def _cut_value(cut: Cut) -> tuple[Literal, bool]:
    """The value beside a cut, and whether the cut is after it."""
    value = cut[1]
    if isinstance(value, str):
        return value.removesuffix("\0"), value.endswith("\0")
    return canonical_literal(value), cut[2] == 1


def _one_of(attribute: str, values: list[Literal]) -> Expression:
    if len(values) == 1:
        return Compare(attribute, Operator.EQUAL, canonical_literal(values[0]))
    return OneOf(attribute, tuple(canonical_literal(value) for value in values))
