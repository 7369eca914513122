"""`roamcast archive`: the events of live traces, kept as Parquet, and queried with the same filter text that
subscribers use.

One row per event: the struct `_event` (publisher, sequence, topic, type, class, t, …) and one column per
attribute name, of the attribute's own type. So a subscriber's text is a condition on the table:

    select(spark, folder, "level > 3 AND room LIKE 'B%'")     # means what it means in a subscription
    for table in tables(spark, folder):
        table.filter("level > 3 AND room LIKE 'B%'")          # Spark's own reading of the text

A column has one type. Events that disagree about an attribute (a number here, a text there) go into different
files, and `tables` has one table for each set of files that agree; nearly always there is one. Where an event
has no such attribute, its column is NULL.

`select` reads the text as a subscription does and translates it so that Spark converts nothing. Spark's own
reading is the same on columns of one kind, except for:
- a literal of another kind than the column: Spark converts or fails, here the comparison is UNKNOWN;
- a 64-bit integer and a double: Spark compares them as doubles, here they are compared exactly;
- a name that no archived event has: Spark refuses it, here it is NULL;
- `"a"`, ON_TOPIC and OF_TYPE: Spark does not know them as we do.
In both, letter case counts (these tables' session has `spark.sql.caseSensitive`), and a NaN is archived as
NULL.

Each addition is a manifest beside its files, written last: files that none names do not count. It has their
digests, which are compared before a question is answered, the types and ranges of their columns and times, so
that a question opens only files that may have an answer, and what they were made from, so that nothing is
added twice.

Events come from segments. A node's trace has each of its publications with topic, type and attributes,
which is all that a filter of the archive can ask for; so nothing else has to be kept on a device or sent over
the air. Payloads are in no trace, and so in no archive.
"""

import hashlib
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.event import Event, EventClass, Value
from roamcast.filter import Filter
from roamcast.filter.expression import INTEGER_MAX, INTEGER_MIN, ValueKind, kind_of
from roamcast.lab.live.collect import Listed, listed
from roamcast.lab.live.conditions import (
    BOOLEAN,
    EVENT,
    INTEGER,
    LARGE,
    REAL,
    TEXT,
    Types,
    condition,
    may_match,
    quoted,
)
from roamcast.lab.spark.session import read_by_workers, with_session
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import (
    SealedFile,
    check_all,
    manifest_in,
    put_manifest,
    put_table,
    table_in,
)
from roamcast.runtime.live.report.segments import parse_segment
from roamcast.trace import Published
from roamcast.units import SECOND, Micros

FILE_ROWS_MAX = 1 << 20  # chosen by us: bounds the memory of the writer


RANGE_LENGTH_MAX = 200  # octets of the least and greatest value of a column in a manifest
_KINDS = {str(kind): kind for kind in (INTEGER, LARGE, REAL, BOOLEAN, TEXT)}
ColumnType = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(map(re.escape, _KINDS))})$")]
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


class ArchivedFile(SealedFile, frozen=True, kw_only=True):
    """What a manifest says of a file: enough to know whether a question concerns it, without opening it."""

    types: dict[str, ColumnType]  # by attribute
    ranges: dict[str, tuple[Any, Any]]  # least and greatest value
    first: Micros  # of the events' times
    last: Micros

    def columns(self) -> Types:
        return {name: _KINDS[kind] for name, kind in self.types.items()}


class Addition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manifest: the files of one addition, and what they were made from."""

    files: dict[str, ArchivedFile]
    sources: list[str]


class _Unsigned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manifest of version 0.2: the rows of each file."""

    files: dict[str, int]
    sources: list[str]


def archive(
    events: Iterable[Archived], folder: "str | Path | Storage", sources: Iterable[str] = ()
) -> Addition:
    """Add events to an archive: all of them or, if this fails, none. `sources`: what they come from."""
    storage = Storage.open(folder)
    added = Addition(dict(_write(part, storage) for part in _agreeing(events)), list(sources))
    put_manifest(storage, f"added-{uuid.uuid4().hex}.json", added)
    return added


def additions(folder: "str | Path | Storage") -> list[Addition]:
    """The additions that an archive is made of."""
    storage = Storage.open(folder)
    found = []
    for name in storage.files():
        if name.startswith("added-") and name.endswith(".json"):
            try:
                old = msgspec.json.decode(storage.read(name), type=_Unsigned)
                files = {file: _opened(storage, file, rows) for file, rows in old.files.items()}
                found.append(Addition(files, old.sources))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                found.append(manifest_in(storage, name, Addition))
    return found


def select(
    spark: SparkSession,
    folder: "str | Path | Storage",
    text: str,
    since: Micros = -(2**63),
    until: Micros = 2**63 - 1,
) -> DataFrame:
    """The archived events that a subscription with this filter would have got in that time. Only files that
    may have such events are opened.

    The columns are `_event` and those attributes whose type all files agree about; `_event.attributes` has
    them all.
    """
    wanted = Filter.sql(text).expression
    within = (
        f"{EVENT}.t >= {since}L AND {EVENT}.t < {until}L" if since > -(2**63) else f"{EVENT}.t < {until}L"
    )

    def concerns(file: ArchivedFile) -> bool:
        ranges = {name: (low, high) for name, (low, high) in file.ranges.items()}
        return file.last >= since and file.first < until and may_match(wanted, file.columns(), ranges)

    found = [
        (table.filter(within).filter(condition(wanted, types)), types)
        for table, types in _tables(spark, folder, concerns)
    ]
    kinds: dict[str, set[pa.DataType]] = {}
    for _, types in found:
        for name, kind in types.items():
            kinds.setdefault(name, set()).add(kind)
    common = {name for name, seen in kinds.items() if len(seen) == 1}
    parts = [
        table.select(EVENT, *(quoted(name) for name in types if name in common)) for table, types in found
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def tables(spark: SparkSession, folder: "str | Path | Storage") -> list[DataFrame]:
    """The archive as Spark reads it: as few tables as there are sets of files that agree about types."""
    return [table for table, _ in _tables(spark, folder, lambda _: True)]


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
    """The narrowest column type for a value; None for NULL, and for names that no filter can use."""
    if name in ("", EVENT) or "\0" in name:
        return None
    match kind_of(value):
        case None:
            return None
        case ValueKind.TEXT:
            return TEXT
        case ValueKind.BOOLEAN:
            return BOOLEAN
    if isinstance(value, float):
        return REAL
    assert isinstance(value, int)
    if INTEGER_MIN <= value <= INTEGER_MAX:
        # A double can hold it too, unless it is too large; the other values of the column decide.
        return INTEGER if abs(value) > _EXACT_MAX else pa.int32()
    if value >= 2**64 or value < 0:
        raise InputError(
            f"attribute {name}", f"is {value}; an archive holds integers from -2**63 to 2**64 - 1"
        )
    return LARGE


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both exactly. `int32` stands for integers that a double holds."""
    if one == other:
        return one
    for wide in (REAL, INTEGER, LARGE):
        if {one, other} == {pa.int32(), wide}:
            return wide
    return LARGE if {one, other} == {INTEGER, LARGE} else None


def _write(part: _Part, storage: Storage) -> tuple[str, ArchivedFile]:
    types = {name: INTEGER if kind == pa.int32() else kind for name, kind in part.types.items()}
    fields = [pa.field(EVENT, _EVENT, nullable=False)]
    columns = [pa.array([_event_row(row) for row in part.rows], _EVENT)]
    for name, kind in sorted(types.items()):
        values = [_stored(row.event.attributes.get(name), kind) for row in part.rows]
        fields.append(pa.field(name, kind))
        columns.append(pa.array(values, kind))
    name = f"events-{uuid.uuid4().hex}.parquet"
    written = put_table(storage, name, pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    ranges = {
        name: found
        for name, column in zip(sorted(types), columns[1:], strict=True)
        if (found := _range(column))
    }
    times = [row.t for row in part.rows]
    kinds = {name: str(kind) for name, kind in types.items()}
    sealed = msgspec.structs.asdict(written)
    return name, ArchivedFile(**sealed, types=kinds, ranges=ranges, first=min(times), last=max(times))


def _range(column: pa.Array) -> tuple[Any, Any] | None:
    """Least and greatest value of a column; None if they are not known, not JSON, or too long."""
    low, high = (
        int(value) if isinstance(value, Decimal) else value for value in pc.min_max(column).as_py().values()
    )
    if low is None or len(msgspec.json.encode((low, high))) > RANGE_LENGTH_MAX:
        return None
    return (low, high) if isinstance(low, str) or (math.isfinite(low) and math.isfinite(high)) else None


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
    if kind == REAL:
        assert isinstance(value, int | float)
        return float(value) + 0.0  # -0.0 becomes 0.0
    return Decimal(value) if kind == LARGE and isinstance(value, int) else value


# Reading.


def _tables(
    spark: SparkSession, folder: "str | Path | Storage", concerns: Callable[[ArchivedFile], bool]
) -> list[tuple[DataFrame, Types]]:
    storage = Storage.open(folder)
    files = {name: found for addition in additions(storage) for name, found in addition.files.items()}
    if not files:
        raise FileError(str(storage), "holds no archived events")
    sets: list[tuple[dict[str, SealedFile], Types]] = []  # of files that agree: those asked for, and types
    for file, found in sorted(files.items()):
        types = found.columns()
        agreeing = (
            one for one in sets if all(one[1].get(name, kind) == kind for name, kind in types.items())
        )
        if (one := next(agreeing, None)) is None:
            one = {}, {}
            sets.append(one)
        one[1].update(types)
        if concerns(found):
            one[0][file] = found
    # A text may name any attribute of the archive: where a set of files has no such column, it is NULL.
    anywhere = {name: kind for _, types in reversed(sets) for name, kind in types.items()}
    reader = spark.newSession()
    reader.conf.set("spark.sql.caseSensitive", "true")
    tables = []
    for chosen, types in sets:
        types = anywhere | types
        fields = [pa.field(EVENT, _EVENT), *(pa.field(name, kind) for name, kind in sorted(types.items()))]
        tables.append((_table(reader, storage, chosen, pa.schema(fields)), types))
    return tables


def _table(
    spark: SparkSession, storage: Storage, files: dict[str, SealedFile], fields: pa.Schema
) -> DataFrame:
    """Of files that are as they were written. Spark reads those of a disk, its workers others, by our own
    storage: no connector is needed."""
    schema = from_arrow_schema(fields)
    if not files:
        return spark.createDataFrame([], schema)
    if storage.path is not None:
        check_all(storage, files.items())
        return spark.read.schema(schema).parquet(*map(storage.spark_name, files))
    names = list(files)

    def read(number: int) -> pa.Table:
        found = table_in(storage, names[number], files[names[number]])
        columns = [
            found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(len(found), f.type)
            for f in fields
        ]
        return pa.table(columns, schema=fields)

    return read_by_workers(spark, read, len(names), schema)


def _opened(storage: Storage, file: str, rows: int) -> ArchivedFile:
    """Of an older version's file, whose manifest says less."""
    data = storage.read(file)
    found = table_in(storage, file)
    types = {field.name: str(field.type) for field in found.schema if field.name != EVENT}
    if EVENT not in found.column_names or not set(types.values()) <= _KINDS.keys() or len(found) != rows:
        raise FileError(storage.name(file), "is not the archive of events that was written")
    digest = hashlib.sha256(data).hexdigest()
    return ArchivedFile(
        rows=rows,
        size=len(data),
        sha256=digest,
        types=types,
        ranges={},
        first=-(2**63),
        last=2**63 - 1,
    )


_attributes = msgspec.json.Decoder(dict[str, bool | int | float | str | None]).decode


@dataclass
class Added:
    events: int = 0
    segments: int = 0
    refused: list[str] = field(default_factory=list)  # file and reason


@dataclass(frozen=True)
class ArchivedEvents:
    """Events of an archive, oldest first."""

    rows: list[dict[str, Any]]

    def to_json(self) -> str:
        return msgspec.json.encode(self.rows).decode()

    def to_text(self) -> str:
        lines = [
            " ".join(
                [
                    _text(row["t"]),
                    f"{row['publisher']}:{row['sequence']}",
                    *filter(None, (row["topic"], row["type"])),
                    msgspec.json.encode(row["attributes"]).decode(),
                ]
            )
            for row in self.rows
        ]
        return "\n".join([*lines, f"{len(self.rows)} events"])


def add_segments(folder: str, out: str) -> Added:
    """Add the publications of all segments in a folder that are not in the archive yet."""
    source, target = Storage.open(folder), Storage.open(out)
    known = {name for addition in additions(target) for name in addition.sources}
    result = Added()
    fresh = [one for one in listed(source) if str(one.name) not in known]
    if fresh:
        names: list[str] = []  # filled as the events are taken
        added = archive(_events(source, fresh, names, result), target, names)
        result.segments = len(names)
        result.events = sum(file.rows for file in added.files.values())
    return result


def query(
    folder: str,
    text: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = 1_000,
    master: str | None = None,
) -> ArchivedEvents:
    """The events that a subscription with this text would have got in that time; at most `limit`."""
    first = -(2**63) if since is None else instant(since, "--since")
    last = 2**63 - 1 if until is None else instant(until, "--until")

    def work(spark: Any) -> ArchivedEvents:
        found = select(spark, folder, text, first, last).selectExpr("_event.*").drop("payload")
        rows = found.orderBy("t", "publisher", "sequence").limit(limit).toArrow().to_pylist()
        return ArchivedEvents([{**row, "attributes": msgspec.json.decode(row["attributes"])} for row in rows])

    return with_session(master, work)


def instant(text: str, where: str) -> Micros:
    """A time of the command line as Unix time; without a zone it is UTC."""
    try:
        if text.replace(".", "", 1).isdecimal():
            return round(float(text) * SECOND)
        parsed = datetime.fromisoformat(text)
        return round(parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp() * SECOND)
    except (ValueError, OverflowError):
        allowed = "2026-05-01, 2026-05-01T12:30 or Unix seconds"
        raise InputError(where, f"is {text!r}; allowed: {allowed}") from None


def _events(source: Storage, fresh: list[Listed], names: list[str], result: Added) -> Iterator[Archived]:
    for one in fresh:
        try:
            segment = parse_segment(source.read(one.file), source.name(one.file))
            found = [record for record in segment.records() if isinstance(record, Published)]
            made = [Archived(record.t + segment.head.wall, _event(record)) for record in found]
        except FileError as error:
            result.refused.append(str(error))
            continue
        except (RoamcastError, msgspec.MsgspecError, ValueError) as error:
            result.refused.append(f"{source.name(one.file)}: holds an event that is none: {error}")
            continue
        names.append(str(one.name))
        yield from made


def _event(record: Published) -> Event:
    return Event(
        record.publisher,
        record.sequence,
        _attributes(record.attributes),
        topic=record.topic,
        type=record.type,
        event_class=EventClass(record.event_class),
        lifetime=record.lifetime,
    )


def _text(t: Micros) -> str:
    return datetime.fromtimestamp(t / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
