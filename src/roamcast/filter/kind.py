"""The kinds of values that a filter distinguishes, and one form for each number.

Python says `True == 1 == 1.0`; SQL says a boolean is no number. Code that compares, hashes or removes
duplicates among literals must therefore check the kind too: use `kind_of`, or the encoded bytes.
"""

from enum import IntEnum
from typing import TypeGuard

from roamcast.event import Value
from roamcast.filter.expression import Literal

INTEGER_MIN = -(2**63)  # what msgpack, Spark's BIGINT and SQLite's INTEGER all hold
INTEGER_MAX = 2**63 - 1


class ValueKind(IntEnum):
    """Values of different kinds are never equal, less or greater: their comparison is UNKNOWN."""

    BOOLEAN = 0  # FALSE < TRUE
    NUMBER = 1  # integers and floats together, compared by exact value
    TEXT = 2  # ordered by code points, as UTF-8 bytes are


def kind_of(value: Value) -> ValueKind | None:
    """None for NULL. A NaN is NULL: it compares with nothing, and SQLite stores it so."""
    if isinstance(value, str):
        return ValueKind.TEXT
    if isinstance(value, bool):  # before int: Python's bool is one
        return ValueKind.BOOLEAN
    if is_number(value):
        return ValueKind.NUMBER
    return None


def is_number(value: Value) -> TypeGuard[int | float]:
    """An integer or float that is neither a boolean nor a NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def canonical_literal(value: Literal) -> Literal:
    """One form for equal numbers: an integer wherever 64 bits hold the value (1.0 and -0.0 too)."""
    if isinstance(value, float) and value.is_integer() and INTEGER_MIN <= value <= INTEGER_MAX:
        return int(value)
    return value
