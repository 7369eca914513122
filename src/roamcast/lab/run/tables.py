"""Traces as tables: one Arrow table and one Parquet file per class of `trace.py`, and per class of `Derived`
here: what the lab computes from a trace after the run. No runtime writes those, so no strategy can influence
them.

The schema is read off the classes, so it cannot drift from them; `docs/study/trace.md` documents it.
A folder holds one run: `<table>.parquet` for every table, also the empty ones, and `run.json`. It
appears whole or not at all, and the same trace gives the same bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.errors import FileError
from roamcast.lab.run.graph import unpack
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import table_in, whole_folder
from roamcast.trace import RECORDS, SCHEMA, AnyRecord, Moved, NodeSet, Record, Trace
from roamcast.units import Micros, NodeId


class Derived(Record, frozen=True):
    """One row of a table that was computed from a trace."""


class OverlayJudged(Derived, frozen=True):
    """One row if the strategy has overlay links: cycles and partitions of its graph (`overlay_graph.py`)."""

    TABLE: ClassVar[str] = "overlay_health"
    cycles: int  # instants of change after which the overlay had a cycle
    excess_partitions: float | None  # time average of overlay components beyond the physical ones


class ReachedNodes(Derived, frozen=True):
    """One row per event that somebody received: whom its frames reached (`expected.py`)."""

    TABLE: ClassVar[str] = "reached"
    publisher: NodeId
    sequence: int
    nodes: int  # that received a frame with it, the publisher apart
    unwanted: int  # of those, where it was not expected: nobody there wanted it
    relayed: int  # of the unwanted, that sent it on


class Expected(Derived, frozen=True):
    """Ground truth: `node` should get the event (`expected.py`).

    A real-time event expects the subscriptions that stand when it is published, a memorized one also
    those made within its lifetime; explicit destinations are expected always.
    """

    TABLE: ClassVar[str] = "expected"
    publisher: NodeId
    sequence: int
    node: NodeId
    since: Micros  # publication, or the later subscription that made it expected
    reachable: bool  # a path in the contact graph at publish time
    hops: int | None  # length of the shortest such path


class AttainablePair(Derived, frozen=True):
    """An expected pair that some protocol could have served in time (`limit.py`)."""

    TABLE: ClassVar[str] = "attainable"
    publisher: NodeId
    sequence: int
    node: NodeId
    t: Micros  # the earliest possible arrival; not before the subscription


class EventLimit(Derived, frozen=True):
    """One row per event after the warm-up, or sampled one: what any protocol needs for it (`limit.py`)."""

    TABLE: ClassVar[str] = "limits"
    publisher: NodeId
    sequence: int
    deadline: Micros  # the last instant that counts
    airtime: Micros  # of a frame that holds the event and nothing else
    # Bounds on the fewest broadcasts that serve those whom the run served in time; equal where they are known
    # exactly, null where they were not computed.
    fewest: int | None
    at_most: int | None


DERIVED: tuple[type[Derived], ...] = (OverlayJudged, Expected, ReachedNodes, AttainablePair, EventLimit)
TABLES: tuple[type[Record], ...] = (*RECORDS, *DERIVED)  # everything in the folder of a run, in this order


Tables = dict[str, pa.Table]
RUN_FILE = "run.json"
# `NodeId` is an `int` to the type checker and at run time; only the names tell node numbers apart.
NODE_COLUMNS = frozenset({"node", "publisher", "to", "sender", "receiver", "peer", "source", "destination"})
UNITS = {
    **dict.fromkeys(
        ("t", "lifetime", "airtime", "started", "span", "since", "duration", "warmup", "deadline"), "us"
    ),
    **dict.fromkeys(("size", "octets"), "octets"),
    **dict.fromkeys(("seconds", "wall_s"), "s"),
    **dict.fromkeys(("x", "y"), "m"),
}
"""By column: in the tables' own metadata, so that a file says it without its page."""
_LATER_THAN: dict[int, tuple[type[Record], ...]] = {
    1: (Moved, AttainablePair, EventLimit),
    2: (AttainablePair, EventLimit),
    SCHEMA: (),
}
"""By schema: the tables that folders of it do not have, and that are read as empty."""
NODE_LIST = pa.list_(pa.field("element", pa.int32(), nullable=False))


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run was: its row in the `runs` table. Times in microseconds."""

    name: str  # the scenario's
    strategy: str
    seed: int
    nodes: int
    duration: Micros
    warmup: Micros = 0
    brokers: tuple[NodeId, ...] = ()
    runtime: str = "sim"  # or "emulate", "live"
    sim_events: int | None = None  # None where nothing is simulated
    # Never written beside the trace: the same run must give the same bytes.
    wall_s: float | None = None
    play_delay: Micros | None = None  # of an ether: how late it played, 99th percentile
    scenario: dict[str, Any] = {}  # the whole scenario, as its file has it
    schema: int = SCHEMA  # of the tables beside it


def tables(trace: Trace, derived: Iterable[Derived] = ()) -> Tables:
    """Every table of a run: the trace, in the order in which it was recorded, and the derived tables."""
    rows: dict[type[Record], list[Record]] = trace.records | {kind: [] for kind in DERIVED}
    for row in derived:
        rows[type(row)].append(row)
    return {kind.TABLE: table(kind, rows[kind]) for kind in TABLES}


def table(kind: type[Record], records: Sequence[Record]) -> pa.Table:
    """One record class as an Arrow table."""
    columns = [
        convert(list(map(attrgetter(name), records)), field.type)
        for field, (name, convert) in zip(schema(kind), _columns(kind), strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema(kind))


@cache
def schema(kind: type[Record]) -> pa.Schema:
    """The columns of a record class: its fields, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return pa.schema(
        [
            pa.field(
                name,
                _arrow_type(name, hints[name]),
                nullable=_optional(hints[name]),
                metadata={"unit": UNITS[name]} if name in UNITS else None,
            )
            for name in kind.__struct_fields__
        ]
    )


def records(tables: Mapping[str, pa.Table], kind: type[AnyRecord]) -> list[AnyRecord]:
    """A table back as records: the inverse of `tables`."""
    hints = get_type_hints(kind, include_extras=True)
    columns = []
    for name in kind.__struct_fields__:
        values = plain(tables[kind.TABLE][name])
        column_type = _required(hints[name])
        if column_type == NodeSet:
            values = [sum(1 << node for node in nodes) for nodes in values]
        elif get_origin(column_type) is tuple:
            values = [tuple(nodes) for nodes in values]
        elif isinstance(column_type, type) and issubclass(column_type, Enum):
            values = [column_type(value) for value in values]
        columns.append(values)
    return list(map(kind, *columns))


def plain(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; numbers through numpy, which is several times faster."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def write(tables: Mapping[str, pa.Table], run: RunInfo, folder: Path) -> None:
    """Write a run into `folder`, which must be new, empty or hold the trace of this same run."""
    folder = folder.resolve()
    written = msgspec.structs.replace(run, wall_s=None)
    _refuse_other_content(folder, written)
    with whole_folder(folder) as unfinished:
        for kind in TABLES:
            pq.write_table(tables[kind.TABLE], unfinished / _file_name(kind), compression="zstd")
        document = msgspec.json.format(msgspec.json.encode(written, order="sorted"), indent=2)
        (unfinished / RUN_FILE).write_bytes(document + b"\n")


def read(folder: "Storage | Path | str") -> Tables:
    """The tables of a folder that `write` made."""
    return {kind.TABLE: read_table(folder, kind) for kind in TABLES}


def read_table(folder: "Storage | Path | str", kind: type[Record]) -> pa.Table:
    """One of them."""
    storage = Storage.open(folder)
    if kind in _LATER_THAN[read_run(storage).schema]:
        return table(kind, [])
    name = storage.name(_file_name(kind))
    found = table_in(storage, _file_name(kind))
    expected = schema(kind)
    if found.schema.names != expected.names:
        raise FileError(name, f"has columns {found.schema.names}; expected {expected.names}")
    if found.schema != expected:
        wrong = next(name for name in expected.names if found.schema.field(name) != expected.field(name))
        described = f"{_described(found.schema.field(wrong))}; expected {_described(expected.field(wrong))}"
        raise FileError(name, f"has column {wrong} of type {described}")
    return found


def read_run(folder: "Storage | Path | str") -> RunInfo:
    """The description of the run in a folder."""
    storage = Storage.open(folder)
    name = storage.name(RUN_FILE)
    data = storage.read_if_there(RUN_FILE)
    if data is None:
        raise FileError(name, "is missing; expected the trace that `--out` wrote")
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
        schema = document.setdefault("schema", 1)  # Roamcast 0.2 did not write it
        if not isinstance(schema, int) or schema not in _LATER_THAN:
            raise FileError(name, f"has schema {schema} of the trace; this version reads 1 to {SCHEMA}")
        return msgspec.convert(document, RunInfo)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(name, f"is no run description: {error}") from error


def with_run(table: pa.Table, run: str) -> pa.Table:
    """The table with a leading column `run`: its form where many runs lie together."""
    column = pa.repeat(pa.scalar(run, pa.string()), len(table))
    return table.add_column(0, pa.field("run", pa.string(), nullable=False), column)


# Columns.


@cache
def _columns(kind: type[Record]) -> tuple[tuple[str, Callable[[list[Any], pa.DataType], pa.Array]], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((name, _converter(_required(hints[name]))) for name in kind.__struct_fields__)


def _converter(column_type: Any) -> Callable[[list[Any], pa.DataType], pa.Array]:
    if column_type == NodeSet:
        return _from_sets
    if isinstance(column_type, type) and issubclass(column_type, Enum):
        return _from_enums
    return pa.array  # type: ignore[no-any-return]


def _from_sets(sets: list[NodeSet], arrow_type: pa.DataType) -> pa.Array:
    offsets, nodes = unpack(sets)
    assert offsets[-1] < 2**31, "a table this large is written in parts"
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(nodes), type=arrow_type)


def _from_enums(values: list[Enum | None], arrow_type: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else value.value for value in values], arrow_type)


def _arrow_type(name: str, hint: Any) -> pa.DataType:
    column_type = _required(hint)
    if column_type == NodeSet or get_origin(column_type) is tuple:
        return NODE_LIST
    if issubclass(column_type, Enum):
        return pa.string()
    if column_type is int:
        return pa.int32() if name in NODE_COLUMNS else pa.int64()
    return {str: pa.string(), bool: pa.bool_(), float: pa.float64()}[column_type]


def _optional(hint: Any) -> bool:
    return NoneType in get_args(hint)


def _required(hint: Any) -> Any:
    """The hint without `| None`."""
    if get_origin(hint) is not UnionType:
        return hint
    (column_type,) = (part for part in get_args(hint) if part is not NoneType)
    return column_type


# Folders.


def _file_name(kind: type[Record]) -> str:
    return f"{kind.TABLE}.parquet"


def _refuse_other_content(folder: Path, run: RunInfo) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileError(str(folder), "is a file; allowed: a new or empty folder")
    ours = {RUN_FILE, *(_file_name(kind) for kind in TABLES)}
    found = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in found if name not in ours]
    if foreign:
        raise FileError(str(folder), f"holds something else ({foreign[0]}); allowed: a new or empty folder")
    if found and read_run(folder) != run:
        raise FileError(str(folder), "holds the trace of another run; allowed: a new or empty folder")


def _described(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
