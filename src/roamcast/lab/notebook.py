"""Tables for notebooks and jobs: what a command wrote, as Spark DataFrames or as Arrow tables.

`recorded` finds out what a folder holds: the one place that knows how a sweep, a run or live segments are
read. `Recorded` gives its tables by name, by one of two engines with the same rows, columns and units. With
`arrow` neither Spark nor Java is needed, and pandas, polars and DuckDB read what it gives. With `spark` the
trace tables of a sweep are read by Spark (by its workers, where Spark has no connector for the storage), and
smaller tables are read here and handed to it. So it works with any storage and any session.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

import roamcast
from roamcast.errors import FileError, InputError
from roamcast.lab.run.metrics import measure, metric_of
from roamcast.lab.run.tables import RUN_FILE, UNITS, RunInfo, read, read_run, read_table, with_run
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, KINDS, TRACE_TABLES, SweepFolder
from roamcast.runtime.live.report.segments import SUFFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = ("spark", "arrow")
Table = TypeVar("Table")


class RecordedFolder:
    """What a folder holds: its tables as Arrow has them, and `about`, where they are from."""

    def __init__(self, storage: Storage, about: Mapping[str, Any], tables: Sequence[str] = ()) -> None:
        self.storage = storage
        self.about = dict(about)
        self._tables = tuple(tables)

    @property
    def tables(self) -> tuple[str, ...]:
        return self._tables

    def arrow(self, name: str, runs: Collection[str] | None, columns: Sequence[str] | None) -> pa.Table:
        """A table that is there, whole or in part."""
        found = self._whole(name)
        if runs is not None and "run" in found.column_names:
            found = found.filter(pa.compute.is_in(found["run"], pa.array(sorted(runs), pa.string())))
        return found if columns is None else found.select([c for c in found.column_names if c in columns])

    def spark(
        self,
        spark: "SparkSession",
        name: str,
        runs: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> "DataFrame":
        from roamcast.lab.sweep.check import with_units  # here, as below: not everybody has Spark

        found = self.arrow(name, runs, columns)
        return with_units(spark.createDataFrame(found), found.schema)

    def _whole(self, name: str) -> pa.Table:
        raise NotImplementedError


class _Sweep(RecordedFolder):
    """A sweep's folder, also while the sweep is running: then with the runs that have ended, and without the
    tables that are made at its end."""

    def __init__(self, storage: Storage) -> None:
        self._folder = SweepFolder(storage)
        document = self._folder.description()
        names = {
            "experiment": "experiment",
            "schema": "folder",
            "roamcast": "roamcast",
            "digest": "fingerprint",
        }
        super().__init__(storage, {name: document[key] for name, key in names.items()})
        self.about["code"] = self._folder.code

    @property
    def tables(self) -> tuple[str, ...]:
        return (*TRACE_TABLES, *self._folder.made())

    def arrow(self, name: str, runs: Collection[str] | None, columns: Sequence[str] | None) -> pa.Table:
        if name in KINDS:
            return self._folder.table(name, runs, columns)
        return super().arrow(name, runs, columns)

    def _whole(self, name: str) -> pa.Table:
        return self._folder.table(name)

    def spark(
        self,
        spark: "SparkSession",
        name: str,
        runs: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> "DataFrame":
        if name not in KINDS:
            return super().spark(spark, name, runs, columns)
        from roamcast.lab.sweep.check import table_of

        return table_of(spark, self._folder, name, runs, columns)


class _Run(RecordedFolder):
    """The folder of a single run."""

    def __init__(self, storage: Storage) -> None:
        self._info = read_run(storage)
        about = {"scenario": self._info.name, "strategy": self._info.strategy, "seed": self._info.seed}
        about["read by roamcast"] = roamcast.__version__
        super().__init__(storage, about, (*TRACE_TABLES, "runs", "metrics"))

    def _whole(self, name: str) -> pa.Table:
        if name == "runs":
            return _runs([self._info])
        if name == "metrics":
            return _figures([measure(read(self.storage), self._info)])
        return read_table(self.storage, KINDS[name])


class _Network(RecordedFolder):
    """A folder of segments of live nodes: each run of the network, put together (`lab/live/network.py`)."""

    def __init__(self, storage: Storage) -> None:
        from roamcast.lab.live.network import read_network  # here: notebooks of sweeps need none of it

        self._runs = read_network(str(storage))
        names = ", ".join(live.result.info.name for live in self._runs)
        remarks = "; ".join(remark for live in self._runs for remark in live.remarks)
        about = {"live runs": names, "remarks": remarks or "none"}
        super().__init__(storage, about, (*TRACE_TABLES, "runs", "metrics"))

    def _whole(self, name: str) -> pa.Table:
        results = [live.result for live in self._runs]
        if name == "runs":
            return _runs([result.info for result in results])
        if name == "metrics":
            return _figures([{"run": result.info.name, **result.metrics} for result in results])
        return pa.concat_tables([with_run(result.tables[name], result.info.name) for result in results])


class Recorded(Generic[Table]):
    """The tables of a folder: `.deliveries`, `.metrics`, …; `tables` lists them, `about` says where they are
    from. A column's unit is in the metadata of the table's schema, and in `units`."""

    # What any folder may have; `tables` says what this one has.
    publications: Table
    subscriptions: Table
    deliveries: Table
    transmissions: Table
    air: Table
    drops: Table
    links: Table
    motion: Table
    faults: Table
    overlay: Table
    handoffs: Table
    loads: Table
    paths: Table
    overlay_health: Table
    expected: Table
    reached: Table
    attainable: Table
    limits: Table
    runs: Table
    metrics: Table
    summary: Table

    def __init__(self, folder: RecordedFolder, made: Callable[..., Table]) -> None:
        self._folder = folder
        self._made = made
        self.about = folder.about

    @property
    def tables(self) -> tuple[str, ...]:
        return self._folder.tables

    def table(
        self, name: str, runs: Collection[str] | None = None, columns: Sequence[str] | None = None
    ) -> Table:
        """A table by its name. With `runs` only the files of a sweep that have those runs are opened."""
        self._check(name)
        return self._made(name, runs, columns)

    def units(self, name: str) -> dict[str, str]:
        """The columns of a table that have a unit."""
        self._check(name)
        fields = [(field.name, field.metadata or {}) for field in self._folder.arrow(name, (), None).schema]
        return {name: metadata[b"unit"].decode() for name, metadata in fields if b"unit" in metadata}

    if not TYPE_CHECKING:  # a name that is no table is an error for who checks types, too

        def __getattr__(self, name: str) -> Table:
            if name.startswith("_") or name not in self.tables:
                raise AttributeError(f"{self._folder.storage} {self._without(name)}")
            return self.table(name)

    def __dir__(self) -> Iterator[str]:
        yield from ("tables", "table", "units", "about", *self.tables)

    def __repr__(self) -> str:
        known = ", ".join(f"{key} {value}" for key, value in self.about.items())
        return f"{self._folder.storage} ({known})\n{' '.join(self.tables)}"

    def _check(self, name: str) -> None:
        if name not in self.tables:
            raise FileError(str(self._folder.storage), self._without(name))

    def _without(self, name: str) -> str:
        return f"has no table {name}; it has {', '.join(self.tables)}"


def opened(uri: str | Path, spark: "SparkSession | None" = None, engine: str = "spark") -> Recorded[Any]:
    """The tables of a folder that one of the commands wrote, or a `FileError`."""
    if engine not in ENGINES or (engine == "arrow" and spark is not None):
        raise InputError("engine", f"is {engine!r}; allowed: {' or '.join(ENGINES)}, arrow without a session")
    folder = recorded(uri)
    if engine == "arrow":
        return Recorded(folder, folder.arrow)

    def by_spark(name: str, runs: Collection[str] | None, columns: Sequence[str] | None) -> "DataFrame":
        from roamcast.lab.spark.session import session

        return folder.spark(spark or session(), name, runs, columns)

    return Recorded(folder, by_spark)


def recorded(uri: str | Path | Storage) -> RecordedFolder:
    """What a folder holds, or a `FileError`."""
    storage = Storage.open(uri)
    if storage.exists(EXPERIMENT_FILE):
        return _Sweep(storage)
    if storage.exists(RUN_FILE):
        return _Run(storage)
    if any(file.endswith(SUFFIX) for file in storage.files()):
        return _Network(storage)
    raise FileError(
        str(storage), "holds no sweep, run or segment; allowed: what `sweep`, `simulate --out` or nodes wrote"
    )


def _runs(runs: Sequence[RunInfo]) -> pa.Table:
    rows = []
    for run in runs:
        scenario = msgspec.json.encode(run.scenario).decode()
        rows.append(msgspec.structs.asdict(run) | {"brokers": list(run.brokers), "scenario": scenario})
    return _measured(pa.Table.from_pylist(rows))


def _figures(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The figures as columns; a metric without any value is still a column of numbers."""
    return _measured(pa.Table.from_pylist(rows), pa.float64())


def _measured(table: pa.Table, unknown: pa.DataType | None = None) -> pa.Table:
    """The table with the units of its columns."""
    fields = []
    for field in table.schema:
        unit = UNITS.get(field.name) or metric_of(field.name).unit
        kind = unknown if unknown is not None and pa.types.is_null(field.type) else field.type
        fields.append(pa.field(field.name, kind, metadata={"unit": unit} if unit else None))
    return table.cast(pa.schema(fields))
