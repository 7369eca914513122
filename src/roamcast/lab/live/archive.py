"""Events kept as Parquet, and found again with the same filter text that subscribers use.

One row per event: the struct `_event` (publisher, sequence, topic, type, class, t, …) and one column per
attribute name, of the attribute's own type. So a subscriber's text is a condition on the table:

    select(spark, folder, "level > 3 AND room LIKE 'B%'")     # means what it means in a subscription
    for table in tables(spark, folder):
        table.filter("level > 3 AND room LIKE 'B%'")          # Spark's own reading of the text

A column has one type. Events that disagree about an attribute (a number here, a text there) go into different
files, and `tables` has one table for each set of files that agree; nearly always there is one. Where an event
has no such attribute, its column is NULL.

`select` reads the text as a subscription does and puts it to Spark without room for conversions. Spark's own
reading is the same on columns of one kind, except for:
- a literal of another kind than the column: Spark converts or fails, here the comparison is UNKNOWN;
- a 64-bit integer and a double: Spark compares them as doubles, here they are compared exactly;
- a name that no archived event has: Spark refuses it, here it is NULL;
- `"a"`, ON_TOPIC and OF_TYPE: Spark does not know them as we do.
Mended for both: letter case counts (these tables' session has `spark.sql.caseSensitive`), and a NaN is
archived as NULL.
"""

import math
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.errors import FileError, FilterError, InputError
from roamcast.event import Event, Value
from roamcast.filter import Filter
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
)
from roamcast.filter.kind import INTEGER_MAX, INTEGER_MIN, ValueKind, kind_of
from roamcast.units import Micros

EVENT = "_event"
FILE_ROWS_MAX = 1 << 20
_UNKNOWN = "CAST(NULL AS BOOLEAN)"

Number: TypeAlias = int | float | Decimal
Types: TypeAlias = dict[str, pa.DataType]
"""The type of each attribute's column in one table."""

# Integers that 64 bits hold; those that only an unsigned 64-bit integer of another sender's holds; the rest.
_INTEGER, _LARGE, _REAL = pa.int64(), pa.decimal128(20, 0), pa.float64()
_BOOLEAN, _TEXT = pa.bool_(), pa.string()
_EXACT_MAX = 2**53  # every integer up to here is a double

_EVENT = pa.struct(
    [
        pa.field("publisher", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("class", pa.string(), nullable=False),
        pa.field("lifetime", pa.int64(), nullable=False),
        pa.field("t", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        # As JSON, with every attribute, also those that cannot be columns.
        pa.field("attributes", pa.string(), nullable=False),
    ]
)


class Archived(NamedTuple):
    """An event, and when it was published or received (microseconds)."""

    t: Micros
    event: Event


def archive(events: Iterable[Archived], folder: Path) -> list[Path]:
    """Add events to an archive; the new files. Each file appears whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(part, folder) for part in _agreeing(events)]
    except OSError as error:
        raise FileError(str(folder), f"cannot be written: {error.strerror or error}") from error


def select(spark: SparkSession, folder: Path, text: str) -> DataFrame:
    """The archived events that a subscription with this filter would have got.

    The columns are `_event` and those attributes whose type all files agree about; `_event.attributes` has
    them all.
    """
    wanted = Filter.sql(text).expression
    found = [(table.filter(condition(wanted, types)), types) for table, types in _tables(spark, folder)]
    kinds: dict[str, set[pa.DataType]] = {}
    for _, types in found:
        for name, kind in types.items():
            kinds.setdefault(name, set()).add(kind)
    common = {name for name, seen in kinds.items() if len(seen) == 1}
    parts = [
        table.select(EVENT, *(_quoted(name) for name in types if name in common)) for table, types in found
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def tables(spark: SparkSession, folder: Path) -> list[DataFrame]:
    """The archive as Spark reads it: as few tables as there are sets of files that agree about types."""
    return [table for table, _ in _tables(spark, folder)]


# Writing.


class _Part:
    """Events that agree about the type of every attribute."""

    def __init__(self) -> None:
        self.rows: list[Archived] = []
        self.types: Types = {}

    def takes(self, types: Types) -> bool:
        return len(self.rows) < FILE_ROWS_MAX and all(
            _common(kind, self.types.get(name, kind)) is not None for name, kind in types.items()
        )

    def add(self, row: Archived, types: Types) -> None:
        self.rows.append(row)
        for name, kind in types.items():
            self.types[name] = _common(kind, self.types.get(name, kind))


def _agreeing(events: Iterable[Archived]) -> Iterator[_Part]:
    parts: list[_Part] = []
    for row in events:
        types = {name: kind for name, value in row.event.attributes.items() if (kind := _type(name, value))}
        part = next((part for part in parts if part.takes(types)), None)
        if part is None:
            part = _Part()
            parts.append(part)
        part.add(row, types)
        if len(part.rows) == FILE_ROWS_MAX:
            parts.remove(part)
            yield part
    yield from parts


def _type(name: str, value: Value) -> pa.DataType | None:
    """The narrowest column for a value; None for NULL, and for names that no filter can say."""
    if name in ("", EVENT) or "\0" in name:
        return None
    match kind_of(value):
        case None:
            return None
        case ValueKind.TEXT:
            return _TEXT
        case ValueKind.BOOLEAN:
            return _BOOLEAN
    if isinstance(value, float):
        return _REAL
    assert isinstance(value, int)
    if INTEGER_MIN <= value <= INTEGER_MAX:
        # A double holds it too, unless it is long; what it must share a column with decides.
        return _INTEGER if abs(value) > _EXACT_MAX else pa.int32()
    if value >= 2**64 or value < 0:
        raise InputError(
            f"attribute {name}", f"is {value}; an archive holds integers from -2**63 to 2**64 - 1"
        )
    return _LARGE


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both exactly. `int32` stands for integers that a double holds."""
    if one == other:
        return one
    for wide in (_REAL, _INTEGER, _LARGE):
        if {one, other} == {pa.int32(), wide}:
            return wide
    return _LARGE if {one, other} == {_INTEGER, _LARGE} else None


def _write(part: _Part, folder: Path) -> Path:
    types = {name: _INTEGER if kind == pa.int32() else kind for name, kind in part.types.items()}
    fields = [pa.field(EVENT, _EVENT, nullable=False)]
    columns = [pa.array([_event_row(row) for row in part.rows], _EVENT)]
    for name, kind in sorted(types.items()):
        values = [_stored(row.event.attributes.get(name), kind) for row in part.rows]
        fields.append(pa.field(name, kind))
        columns.append(pa.array(values, kind))
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    target = folder / f"events-{uuid.uuid4().hex}.parquet"
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        pq.write_table(table, partial, compression="zstd")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _event_row(row: Archived) -> dict[str, Any]:
    event = row.event
    return {
        "publisher": event.publisher,
        "sequence": event.sequence,
        "topic": event.topic,
        "type": event.type,
        "class": event.event_class.value,
        "lifetime": event.lifetime,
        "t": row.t,
        "payload": event.payload,
        "attributes": msgspec.json.encode(event.attributes).decode(),
    }


def _stored(value: Value, kind: pa.DataType) -> Any:
    if kind_of(value) is None:
        return None
    if kind == _REAL:
        assert isinstance(value, int | float)
        return float(value) + 0.0  # one zero
    return Decimal(value) if kind == _LARGE and isinstance(value, int) else value


# Reading.


def _tables(spark: SparkSession, folder: Path) -> list[tuple[DataFrame, Types]]:
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise FileError(str(folder), "holds no archived events")
    sets: list[tuple[list[str], Types]] = []
    for file in files:
        types = _types_in(file)
        for names, known in sets:
            if all(known.get(name, kind) == kind for name, kind in types.items()):
                names.append(str(file))
                known.update(types)
                break
        else:
            sets.append(([str(file)], types))
    # A text may name any attribute of the archive: where a set of files has no such column, it is NULL.
    anywhere = {name: kind for _, types in reversed(sets) for name, kind in types.items()}
    sets = [(names, anywhere | types) for names, types in sets]
    reader = spark.newSession()
    reader.conf.set("spark.sql.caseSensitive", "true")
    tables = []
    for names, types in sets:
        fields = [pa.field(EVENT, _EVENT), *(pa.field(name, kind) for name, kind in sorted(types.items()))]
        schema = from_arrow_schema(pa.schema(fields))
        tables.append((reader.read.schema(schema).parquet(*names), types))
    return tables


def _types_in(file: Path) -> Types:
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise FileError(str(file), f"is no archive of events: {str(error).splitlines()[0]}") from error
    known = (_INTEGER, _LARGE, _REAL, _BOOLEAN, _TEXT)
    if EVENT not in schema.names or any(f.type not in known for f in schema if f.name != EVENT):
        raise FileError(str(file), "is no archive of events")
    return {field.name: field.type for field in schema if field.name != EVENT}


# Filters as conditions on such a table.


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
            return f"({_quoted(attribute)} IS NULL)" if attribute in types else "TRUE"
        case Compare(attribute, operator, value):
            return _compare(attribute, operator, value, types)
        case OneOf(attribute, values):
            return _one_of(attribute, values, types)
        case Like(attribute, pattern, escape):
            _refuse_reserved(attribute)
            if types.get(attribute) != _TEXT:
                return _UNKNOWN
            # Without an escape character of its own Spark would take the backslash for one.
            unused = escape or next(c for c in map(chr, range(33, 1 << 16)) if c not in pattern + "%_")
            return f"({_quoted(attribute)} LIKE {_literal(pattern)} ESCAPE {_literal(unused)})"
        case OnTopic(topic_filter):
            return f"({EVENT}.topic RLIKE {_literal(topic_regular_expression(topic_filter))})"
        case OfType(type_):
            below = _literal(type_ + ".")
            return f"({EVENT}.type = {_literal(type_)} OR startswith({EVENT}.type, {below}))"


def _compare(attribute: str, operator: Operator, value: Literal, types: Types) -> str:
    _refuse_reserved(attribute)
    kind = types.get(attribute)
    if kind is None or _kind(kind) is not kind_of(value):
        return _UNKNOWN
    column = _quoted(attribute)
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
    column = _quoted(attribute)
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


def _neighbours(value: int | float, kind: pa.DataType) -> tuple[Number | None, Number | None]:
    """The largest value of a column's type that is not above `value`, and the smallest not below it.

    Comparing with these is comparing with the exact value, without Spark's conversions. None: there is none.
    """
    if kind == _REAL:
        near = float(value)  # of 64 bits: never beyond a double's range
        exact = Fraction(value)
        below = near if Fraction(near) <= exact else math.nextafter(near, -math.inf)
        above = near if Fraction(near) >= exact else math.nextafter(near, math.inf)
        return below, above
    low, high = (INTEGER_MIN, INTEGER_MAX) if kind == _INTEGER else (INTEGER_MIN, 2**64 - 1)
    floor, ceiling = math.floor(value), math.ceil(value)
    below_whole = None if floor < low else min(floor, high)
    above_whole = None if ceiling > high else max(ceiling, low)
    if kind == _LARGE:
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
    # An event without a topic matches nothing; a wildcard in front does not match `$…`.
    guard = r"(?!\z)" + (r"(?!\$)" if levels[0] in ("+", "#") else "")
    return rf"\A{guard}(?:{body})\z"


def _verbatim(text: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def _known(column: str, truth: bool) -> str:
    """UNKNOWN where the attribute is absent, else this."""
    return f"IF({column} IS NULL, {_UNKNOWN}, {_literal(truth)})"


def _literal(value: "Literal | Decimal") -> str:
    """A value for Spark to read back exactly, of the type of its column."""
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
    return {_TEXT: ValueKind.TEXT, _BOOLEAN: ValueKind.BOOLEAN}.get(column_type, ValueKind.NUMBER)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _refuse_reserved(attribute: str) -> None:
    if attribute == EVENT:
        raise FilterError(attribute, "is the archive's own column; an attribute of that name is not archived")
