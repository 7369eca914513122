"""Rules for every expression, whoever built it: bounds, and texts that every reader understands.

Parsers, decoders and programs all build expressions; `Filter` refuses those that fail here.
"""

import math
from collections.abc import Iterable

from roamcast.errors import FilterError
from roamcast.event import NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from roamcast.filter.expression import (
    INTEGER_MAX,
    INTEGER_MIN,
    TERMS_MAX,
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
    Or,
    Within,
)
from roamcast.filter.pattern import tokens_of
from roamcast.filter.place import METRES_MAX, direction
from roamcast.filter.topic import check_topic_filter

DEPTH_MAX = 40  # nested nodes; every function over expressions recurses this deep. Chosen by us


def problem_of(expression: Expression, depth: int = 1) -> str | None:
    """What is wrong with an expression, in words; None if nothing is."""
    if depth > DEPTH_MAX:
        return f"is nested more than {DEPTH_MAX} deep"
    match expression:
        case And(terms) | Or(terms):
            if len(terms) > TERMS_MAX:
                return f"has {len(terms)} terms in one AND or OR; at most {TERMS_MAX} are allowed"
            return _first(problem_of(term, depth + 1) for term in terms)
        case Not(term):
            return problem_of(term, depth + 1)
        case Compare(attribute, _, value):
            return _name_problem(attribute) or _literal_problem(value)
        case OneOf(attribute, values):
            if not 1 <= len(values) <= TERMS_MAX:
                return f"has {len(values)} values in one IN; 1 to {TERMS_MAX} are allowed"
            return _name_problem(attribute) or _first(map(_literal_problem, values))
        case Like(attribute, pattern, escape):
            return _name_problem(attribute) or _text_problem(pattern) or _like_problem(pattern, escape)
        case IsNull(attribute):
            return _name_problem(attribute)
        case OnTopic(topic_filter):
            return _text_problem(topic_filter) or _topic_problem(topic_filter)
        case OfType(type_):
            return _name_problem(type_)
        case Within():
            return _place_problem(expression)
    return f"holds a {type(expression).__name__}, which is no expression"


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)


def _name_problem(name: str) -> str | None:
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        return f"has a name of {len(name)} characters; 1 to {NAME_LENGTH_MAX} are allowed"
    return character_problem(name)


def _literal_problem(value: Literal) -> str | None:
    if isinstance(value, str):
        return _text_problem(value)
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return "has an integer that does not fit in 64 bits"
    if not math.isfinite(value):
        return f"compares with {value}, which SQL cannot spell"
    return None


def _text_problem(text: str) -> str | None:
    if len(text) > TEXT_LENGTH_MAX:
        return f"has a text of {len(text)} characters; at most {TEXT_LENGTH_MAX} are allowed"
    return character_problem(text)


def character_problem(text: str) -> str | None:
    """Characters that some readers of a text would not understand; None if all would."""
    if "\0" in text:
        return "has a text with U+0000, where some readers would stop"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "has a text with half a surrogate pair, which is no character"
    return None


def _place_problem(place: Within) -> str | None:
    if place.latitude == place.longitude:
        return f"takes {place.latitude[:80]!r} for latitude and longitude; WITHIN needs two attributes"
    if direction(place.center_latitude, place.center_longitude) is None:
        return (
            f"has a place at {place.center_latitude}, {place.center_longitude}; allowed: a latitude from -90"
            " to 90 degrees, then a longitude from -180 to 180"
        )
    if not 0 < place.metres <= METRES_MAX:  # a NaN neither
        return f"asks for {place.metres} metres around a place; allowed: above 0, at most {METRES_MAX:.0f}"
    return _name_problem(place.latitude) or _name_problem(place.longitude)


def _like_problem(pattern: str, escape: str) -> str | None:
    try:
        tokens_of(pattern, escape)
    except ValueError as error:
        return f"LIKE {pattern[:80]!r}: {error}"
    return None


def _topic_problem(topic_filter: str) -> str | None:
    try:
        check_topic_filter(topic_filter)
    except FilterError as error:
        return str(error)
    return None
