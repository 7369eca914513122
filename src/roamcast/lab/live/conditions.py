"""A subscriber's filter as a condition in Spark SQL, on a table of archived events.

Comparisons are written so that Spark does no conversions of its own (`archive.py` says where Spark's reading
of the same text differs).
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.errors import FilterError
from roamcast.filter.expression import (
    INTEGER_MAX,
    INTEGER_MIN,
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
    kind_of,
)
from roamcast.filter.place import box_around, circle

EVENT = "_event"
_UNKNOWN = "CAST(NULL AS BOOLEAN)"

Number: TypeAlias = int | float | Decimal
Types: TypeAlias = dict[str, pa.DataType]
"""The type of each attribute's column in one table."""

# Integers of 64 bits; integers that only fit 64 bits unsigned (other senders have them); all other numbers.
INTEGER, LARGE, REAL = pa.int64(), pa.decimal128(20, 0), pa.float64()
BOOLEAN, TEXT = pa.bool_(), pa.string()


def condition(expression: Expression, types: Types) -> str:
    """Spark SQL that is TRUE, FALSE or NULL exactly where the filter is TRUE, FALSE or UNKNOWN.

    Text, not Spark's own columns: each of those is a call to Java, and a filter may have thousands of parts.
    """
    match expression:
        case And(terms):
            return "(" + " AND ".join(condition(term, types) for term in terms) + ")" if terms else "TRUE"
        case Or(terms):
            return "(" + " OR ".join(condition(term, types) for term in terms) + ")" if terms else "FALSE"
        case Not(term):
            return f"(NOT {condition(term, types)})"
        case IsNull(attribute):
            _refuse_reserved(attribute)
            return f"({quoted(attribute)} IS NULL)" if attribute in types else "TRUE"
        case Compare(attribute, operator, value):
            return _compare(attribute, operator, value, types)
        case OneOf(attribute, values):
            return _one_of(attribute, values, types)
        case Like(attribute, pattern, escape):
            _refuse_reserved(attribute)
            if types.get(attribute) != TEXT:
                return _UNKNOWN
            # Without an escape character of its own Spark would take the backslash for one.
            unused = escape or next(c for c in map(chr, range(33, 1 << 16)) if c not in pattern + "%_")
            return f"({quoted(attribute)} LIKE {_literal(pattern)} ESCAPE {_literal(unused)})"
        case OnTopic(topic_filter):
            return f"({EVENT}.topic RLIKE {_literal(topic_regular_expression(topic_filter))})"
        case OfType(type_):
            below = _literal(type_ + ".")
            return f"({EVENT}.type = {_literal(type_)} OR startswith({EVENT}.type, {below}))"
        case Within():
            return _within(expression, types)


Ranges: TypeAlias = dict[str, tuple[Any, Any]]
"""Of attributes in one file, the least and the greatest value, where that is known."""


def may_match(expression: Expression, types: Types, ranges: Ranges) -> bool:
    """False only where the filter is TRUE for no event of a file."""
    match expression:
        case And(terms):
            return all(may_match(term, types, ranges) for term in terms)
        case Or(terms):
            return any(may_match(term, types, ranges) for term in terms)
        case Compare(attribute, operator, value):
            return _may_compare(attribute, operator, value, types, ranges)
        case OneOf(attribute, values):
            return any(_may_compare(attribute, Operator.EQUAL, value, types, ranges) for value in values)
        case Like(attribute):
            return attribute in types
        case Within():
            return all(may_match(side, types, ranges) for side in box_around(expression))
    return True


def _may_compare(attribute: str, operator: Operator, value: Literal, types: Types, ranges: Ranges) -> bool:
    kind = types.get(attribute)
    if kind is None or _kind(kind) is not kind_of(value):
        return False
    if attribute not in ranges:
        return True
    low, high = ranges[attribute]
    match operator:
        case Operator.EQUAL:
            return bool(low <= value <= high)
        case Operator.LESS:
            return bool(low < value)
        case Operator.LESS_OR_EQUAL:
            return bool(low <= value)
        case Operator.GREATER:
            return bool(high > value)
        case Operator.GREATER_OR_EQUAL:
            return bool(high >= value)
    return True


def _compare(attribute: str, operator: Operator, value: Literal, types: Types) -> str:
    _refuse_reserved(attribute)
    kind = types.get(attribute)
    if kind is None or _kind(kind) is not kind_of(value):
        return _UNKNOWN
    column = quoted(attribute)
    if isinstance(value, bool | str):
        return f"({column} {operator.value} {_literal(value)})"
    below, above = _neighbours(value, kind)
    match operator:
        case Operator.EQUAL | Operator.NOT_EQUAL:
            against, otherwise = (below if below == above else None), operator is Operator.NOT_EQUAL
        case Operator.LESS:
            against, otherwise = above, True
        case Operator.LESS_OR_EQUAL:
            against, otherwise = below, False
        case Operator.GREATER:
            against, otherwise = below, True
        case Operator.GREATER_OR_EQUAL:
            against, otherwise = above, False
    if against is None:
        return _known(column, otherwise)
    return f"({column} {operator.value} {_literal(against)})"


def _one_of(attribute: str, values: Sequence[Literal], types: Types) -> str:
    _refuse_reserved(attribute)
    kind = types.get(attribute)
    if kind is None:
        return _UNKNOWN
    column = quoted(attribute)
    same = [value for value in values if kind_of(value) is _kind(kind)]
    members: list[Literal | Decimal] = []
    for value in same:
        if isinstance(value, bool | str):
            members.append(value)
        else:
            below, above = _neighbours(value, kind)
            if below is not None and below == above:
                members.append(below)
    listed = ", ".join(map(_literal, members))
    found = f"({column} IN ({listed}))" if members else _known(column, False)
    return found if len(same) == len(values) else f"({found} OR {_UNKNOWN})"


def _within(place: Within, types: Types) -> str:
    """The same steps as in `roamcast.filter.place`, so that only the last digits of sines can differ."""
    names = place.latitude, place.longitude
    for name in names:
        _refuse_reserved(name)
    if any(name not in types or _kind(types[name]) is not ValueKind.NUMBER for name in names):
        return _UNKNOWN
    latitude, longitude = (f"CAST({quoted(name)} AS DOUBLE)" for name in names)
    found = (
        f"cos(radians({latitude})) * cos(radians({longitude}))",
        f"cos(radians({latitude})) * sin(radians({longitude}))",
        f"sin(radians({latitude}))",
    )
    *center, most = circle(place)
    chord = " + ".join(f"pow({one} - {_literal(at)}, 2)" for one, at in zip(found, center, strict=True))
    return (
        f"(CASE WHEN {latitude} BETWEEN -90 AND 90 AND {longitude} BETWEEN -180 AND 180"
        f" THEN {chord} <= {_literal(most)} END)"
    )


def _neighbours(value: int | float, kind: pa.DataType) -> tuple[Number | None, Number | None]:
    """The largest value of a column's type that is not above `value`, and the smallest not below it.

    Comparing with these is comparing with the exact value, without Spark's conversions. None: there is none.
    """
    if kind == REAL:
        near = float(value)  # of 64 bits: never beyond a double's range
        exact = Fraction(value)
        below = near if Fraction(near) <= exact else math.nextafter(near, -math.inf)
        above = near if Fraction(near) >= exact else math.nextafter(near, math.inf)
        return below, above
    low, high = (INTEGER_MIN, INTEGER_MAX) if kind == INTEGER else (INTEGER_MIN, 2**64 - 1)
    floor, ceiling = math.floor(value), math.ceil(value)
    below_whole = None if floor < low else min(floor, high)
    above_whole = None if ceiling > high else max(ceiling, low)
    if kind == LARGE:
        return (
            None if below_whole is None else Decimal(below_whole),
            None if above_whole is None else Decimal(above_whole),
        )
    return below_whole, above_whole


def topic_regular_expression(topic_filter: str) -> str:
    """An MQTT topic filter for Java's regular expressions, which is what Spark has."""
    levels = topic_filter.split("/")
    open_ended = levels[-1] == "#"
    fixed = levels[:-1] if open_ended else levels
    parts = ["[^/]*" if level == "+" else _verbatim(level) for level in fixed]
    body = "/".join(parts)
    if open_ended:
        body = rf"{body}(?:/[\s\S]*)?" if fixed else r"[\s\S]*"
    # An event without a topic matches nothing; a wildcard in the first level does not match `$…`.
    guard = r"(?!\z)" + (r"(?!\$)" if levels[0] in ("+", "#") else "")
    return rf"\A{guard}(?:{body})\z"


def _verbatim(text: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def _known(column: str, truth: bool) -> str:
    """UNKNOWN where the attribute is absent, else this."""
    return f"IF({column} IS NULL, {_UNKNOWN}, {_literal(truth)})"


def _literal(value: "Literal | Decimal") -> str:
    """A value as text that Spark reads back exactly, in the type of its column."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case int():
            return f"CAST('{value}' AS BIGINT)"
        case Decimal():
            return f"CAST('{value}' AS DECIMAL(20, 0))"
    return f"CAST('{value!r}' AS DOUBLE)"  # `inf` too


def _kind(column_type: pa.DataType) -> ValueKind:
    return {TEXT: ValueKind.TEXT, BOOLEAN: ValueKind.BOOLEAN}.get(column_type, ValueKind.NUMBER)


def quoted(name: str) -> str:
    """A column's name in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _refuse_reserved(attribute: str) -> None:
    if attribute == EVENT:
        raise FilterError(attribute, "is the archive's own column; an attribute of that name is not archived")
