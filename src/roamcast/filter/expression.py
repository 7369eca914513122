"""The filter model: one small tree behind every filter language.

SQL conditions, MQTT topic filters, event types and XPath all become these nodes. They are
values: immutable, hashable, comparable, sent on the wire. Truth is three-valued as in SQL: comparing
an absent attribute, or values of different kinds (a text with a number), is UNKNOWN, and a filter
matches only where it is TRUE.

Booleans, numbers and texts are kinds of their own. Python says `True == 1 == 1.0`; SQL says a boolean is no
number. Code that compares, hashes or removes duplicates among literals must therefore check the kind too: use
`kind_of`, or the encoded bytes.
"""

from enum import Enum, IntEnum
from typing import Annotated, TypeAlias, TypeGuard

import msgspec

from roamcast.event import Name, Text, Value

Literal: TypeAlias = bool | int | float | str
TERMS_MAX = 1024  # of one AND, OR or IN; bounds what a decoder builds. Chosen by us


class Operator(Enum):
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class ExpressionNode(
    msgspec.Struct, frozen=True, array_like=True, tag_field="node", forbid_unknown_fields=True
):
    """One node. On the wire it is an array that begins with the class's number, its `tag`.

    Beware of `==`: Python holds TRUE, 1 and 1.0 equal, and so are nodes that differ only in that.
    `normal.order_key` tells them apart.
    """


class Compare(ExpressionNode, frozen=True, tag=1):
    """`attribute operator value`."""

    attribute: Name
    operator: Operator
    value: bool | int | float | Text


class OneOf(ExpressionNode, frozen=True, tag=2):
    """`attribute IN (values)`, without NULL; never empty."""

    attribute: Name
    values: Annotated[tuple[bool | int | float | Text, ...], msgspec.Meta(min_length=1, max_length=TERMS_MAX)]


class Like(ExpressionNode, frozen=True, tag=3):
    """`attribute LIKE pattern [ESCAPE escape]`, case-sensitive: `%` any run, `_` any one character."""

    attribute: Name
    pattern: Text
    escape: Annotated[str, msgspec.Meta(max_length=1)] = ""


class IsNull(ExpressionNode, frozen=True, tag=4):
    """`attribute IS NULL`: never unknown."""

    attribute: Name


class OnTopic(ExpressionNode, frozen=True, tag=5):
    """The event's topic matches an MQTT topic filter. Never unknown."""

    topic_filter: Text


class OfType(ExpressionNode, frozen=True, tag=6):
    """The event's type is `type` or one below it (`alarm` includes `alarm.fire`). Never unknown."""

    type: Name


class And(ExpressionNode, frozen=True, tag=7):
    """All terms; without terms TRUE."""

    terms: Annotated[tuple["Expression", ...], msgspec.Meta(max_length=TERMS_MAX)]


class Or(ExpressionNode, frozen=True, tag=8):
    """At least one term; without terms FALSE."""

    terms: Annotated[tuple["Expression", ...], msgspec.Meta(max_length=TERMS_MAX)]


class Not(ExpressionNode, frozen=True, tag=9):
    """SQL's NOT: unknown stays unknown."""

    term: "Expression"


class Within(ExpressionNode, frozen=True, tag=10):
    """The position in two attributes (degrees) is at most so many metres from a place. UNKNOWN where the
    attributes are no position. `place.py` has the geometry."""

    latitude: Name
    longitude: Name
    center_latitude: float
    center_longitude: float
    metres: float


Expression: TypeAlias = Compare | OneOf | Like | IsNull | OnTopic | OfType | And | Or | Not | Within

TRUE = And(())
FALSE = Or(())


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
