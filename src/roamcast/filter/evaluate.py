"""Whether an event matches: a plain interpreter with three truth values, and a fast one with two.

`evaluate` is the definition: SQL's three-valued logic, node by node. `compile_expression` is what
runs: it pushes negation down to the leaves, after which only AND and OR stand above them, so a leaf
that is UNKNOWN may answer False like one that is FALSE; neither can make the whole TRUE. It builds
closures and no source text: the expression may come from the network.
"""

import operator as python
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from roamcast.event import Event, Value
from roamcast.filter.expression import (
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
    is_number,
    kind_of,
)
from roamcast.filter.normal import normalise, push_negation
from roamcast.filter.pattern import matcher, tokens_of
from roamcast.filter.place import place_test
from roamcast.filter.topic import topic_matcher, topic_matches

Matcher: TypeAlias = Callable[[Event], bool]


def evaluate(expression: Expression, event: Event) -> bool | None:
    """TRUE, FALSE or, as None, UNKNOWN."""
    match expression:
        case Compare(attribute, operator, value):
            return _compared(event.attributes.get(attribute), operator, value)
        case OneOf(attribute, values):
            found = event.attributes.get(attribute)
            return _any_true(_compared(found, Operator.EQUAL, value) for value in values)
        case Like(attribute, pattern, escape):
            found = event.attributes.get(attribute)
            return matcher(tokens_of(pattern, escape))(found) if isinstance(found, str) else None
        case IsNull(attribute):
            return kind_of(event.attributes.get(attribute)) is None
        case OnTopic(topic_filter):
            return topic_matches(topic_filter, event.topic)
        case OfType(type_):
            return type_covers(type_, event.type)
        case Within(latitude, longitude):
            return place_test(expression)(event.attributes.get(latitude), event.attributes.get(longitude))
        case Or(terms):
            return _any_true(evaluate(term, event) for term in terms)
        case And(terms):
            return _opposite(_any_true(_opposite(evaluate(term, event)) for term in terms))
        case Not(term):
            return _opposite(evaluate(term, event))


def compile_expression(expression: Expression) -> Matcher:
    """A function that is True exactly where `evaluate` is."""
    return _compiled(push_negation(expression))


def type_covers(wide: str, narrow: str) -> bool:
    """Is `narrow` the type `wide`, or one below it? The dot ends a name: `alarm` has no `alarms`."""
    return narrow == wide or narrow.startswith(wide + ".")


def _compared(found: Value, operator: Operator, value: Literal) -> bool | None:
    kind = kind_of(found)
    if kind is None or kind is not kind_of(value):
        return None
    return bool(TESTS[operator](found, value))


def _any_true(truths: Iterable[bool | None]) -> bool | None:
    known = True
    for truth in truths:
        if truth:
            return True
        known &= truth is not None
    return False if known else None


def _opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


TESTS: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQUAL: python.eq,
    Operator.NOT_EQUAL: python.ne,
    Operator.LESS: python.lt,
    Operator.LESS_OR_EQUAL: python.le,
    Operator.GREATER: python.gt,
    Operator.GREATER_OR_EQUAL: python.ge,
}


def _compiled(expression: Expression) -> Matcher:
    match expression:
        case And(terms):
            return _all_of([_compiled(term) for term in _without_boxes(terms)])
        case Or(terms):
            return _some_of([_compiled(term) for term in terms])
        case Compare(attribute, operator, value):
            return _compare(attribute, operator, value)
        case OneOf(attribute, values):
            return _one_of(attribute, values)
        case Not(OneOf(attribute, values)):
            return _not_one_of(attribute, values)
        case Like(attribute, pattern, escape):
            return _like(attribute, matcher(tokens_of(pattern, escape)), wanted=True)
        case Not(Like(attribute, pattern, escape)):
            return _like(attribute, matcher(tokens_of(pattern, escape)), wanted=False)
        case IsNull(attribute):
            return lambda event: kind_of(event.attributes.get(attribute)) is None
        case OnTopic(topic_filter):
            on_topic = topic_matcher(topic_filter)
            return lambda event: on_topic(event.topic)
        case OfType(type_):
            below = type_ + "."
            return lambda event: event.type == type_ or event.type.startswith(below)
        case Within():
            return _within(expression, wanted=True)
        case Not(Within() as place):
            return _within(place, wanted=False)
        case Not(term):  # around a leaf that is never UNKNOWN
            opposite = _compiled(term)
            return lambda event: not opposite(event)


def _without_boxes(terms: tuple[Expression, ...]) -> Iterable[Expression]:
    """A circle's own box serves the index; a single filter is faster without it."""
    implied: set[Expression] = set()
    for term in terms:
        if isinstance(term, Within) and isinstance(whole := normalise(term), And):
            implied.update(whole.terms)
            implied.discard(term)
    return [term for term in terms if term not in implied] if implied else terms


def _all_of(tests: list[Matcher]) -> Matcher:
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda event: first(event) and second(event)

    def matches(event: Event) -> bool:
        for test in tests:  # noqa: SIM110 - twice as fast as all() over a generator
            if not test(event):
                return False
        return True

    return matches


def _some_of(tests: list[Matcher]) -> Matcher:
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda event: first(event) or second(event)

    def matches(event: Event) -> bool:
        for test in tests:  # noqa: SIM110 - twice as fast as any() over a generator
            if test(event):
                return True
        return False

    return matches


def _compare(attribute: str, operator: Operator, value: Literal) -> Matcher:
    test = TESTS[operator]
    kind = kind_of(value)
    if kind is ValueKind.NUMBER:

        def matches(event: Event) -> bool:
            found = event.attributes.get(attribute)
            # The first test decides nearly always; NaN needs the second for `<>` alone.
            return (type(found) is int or is_number(found)) and test(found, value)

        return matches
    python_type = str if kind is ValueKind.TEXT else bool
    return lambda event: (
        isinstance(found := event.attributes.get(attribute), python_type) and test(found, value)
    )


def _one_of(attribute: str, values: tuple[Literal, ...]) -> Matcher:
    # By kind, because `1 in {True}` holds in Python.
    texts = frozenset(value for value in values if isinstance(value, str))
    others = frozenset((kind_of(value), value) for value in values if not isinstance(value, str))

    def matches(event: Event) -> bool:
        found = event.attributes.get(attribute)
        return found in texts if isinstance(found, str) else (kind_of(found), found) in others

    return matches


def _not_one_of(attribute: str, values: tuple[Literal, ...]) -> Matcher:
    members = frozenset(values)
    kind, *more = {kind_of(value) for value in values}
    if more:  # whatever the attribute is, its comparison with some of the values is UNKNOWN
        return lambda event: False

    def matches(event: Event) -> bool:
        found = event.attributes.get(attribute)
        return kind_of(found) is kind and found not in members

    return matches


def _like(attribute: str, matches_text: Callable[[str], bool], wanted: bool) -> Matcher:
    def matches(event: Event) -> bool:
        found = event.attributes.get(attribute)
        return isinstance(found, str) and matches_text(found) is wanted

    return matches


def _within(place: Within, wanted: bool) -> Matcher:
    latitude, longitude, test = place.latitude, place.longitude, place_test(place)

    def matches(event: Event) -> bool:
        attributes = event.attributes
        return test(attributes.get(latitude), attributes.get(longitude)) is wanted

    return matches
