"""Tables for notebooks: what a command wrote, as Spark DataFrames on whatever session there is.

`recorded` finds out what a folder holds. The trace tables of a sweep are read by Spark (by its workers, where
Spark has no connector for the storage); smaller tables are read here and handed to it. So it works with any
storage and any session, Spark Connect included.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

import roamcast
from roamcast.errors import FileError
from roamcast.lab.run.metrics import measure
from roamcast.lab.run.tables import RUN_FILE, TABLES, UNITS, RunInfo, with_run
from roamcast.lab.spark.session import session
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.check import table_of
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, MADE_TABLES, SweepFolder
from roamcast.runtime.live.report.segments import SUFFIX

TRACE_TABLES = tuple(kind.TABLE for kind in TABLES)


class Recorded:
    """The tables of a folder: `.deliveries`, `.metrics`, …; `tables` lists them, `about` says where they are
    from. A column's unit is in the metadata of the DataFrame's schema, and in `units`."""

    def __init__(self, storage: Storage, spark: SparkSession | None, about: Mapping[str, Any]) -> None:
        self._storage = storage
        self._spark = spark
        self.about = dict(about)

    @property
    def tables(self) -> tuple[str, ...]:
        raise NotImplementedError

    def table(self, name: str) -> DataFrame:
        """A table by its name."""
        if name not in self.tables:
            raise FileError(str(self._storage), f"has no table {name}; it has {', '.join(self.tables)}")
        found = self._table(self._spark or session(), name)
        fields = (
            StructField(f.name, f.dataType, f.nullable, {"unit": UNITS[f.name]} if f.name in UNITS else {})
            for f in found.schema
        )
        return found.to(StructType(list(fields)))

    def units(self, name: str) -> dict[str, str]:
        """The columns of a table that have a unit."""
        return {field.name: UNITS[field.name] for field in self.table(name).schema if field.name in UNITS}

    def _table(self, spark: SparkSession, name: str) -> DataFrame:
        raise NotImplementedError

    def __getattr__(self, name: str) -> DataFrame:
        if name.startswith("_") or name not in self.tables:
            raise AttributeError(f"{self._storage} has no table {name}; it has {', '.join(self.tables)}")
        return self.table(name)

    def __dir__(self) -> Iterator[str]:
        yield from ("tables", "table", "units", "about", *self.tables)

    def __repr__(self) -> str:
        known = ", ".join(f"{key} {value}" for key, value in self.about.items())
        return f"{self._storage} ({known})\n{' '.join(self.tables)}"


class RecordedSweep(Recorded):
    """A sweep's folder, also while the sweep is running: then with the runs that have ended, and without the
    tables that are made at its end."""

    def __init__(self, storage: Storage, spark: SparkSession | None) -> None:
        self._folder = SweepFolder(storage)
        document = self._folder.experiment()
        assert document is not None
        about = {
            "experiment": document["experiment"],
            "schema": document["folder"],
            "roamcast": document["roamcast"],
            "digest": document["fingerprint"],
        }
        super().__init__(storage, spark, about)

    @property
    def tables(self) -> tuple[str, ...]:
        made = (name for name in MADE_TABLES if self._storage.exists(f"{name}/{name}.parquet"))
        return (*TRACE_TABLES, *made)

    def _table(self, spark: SparkSession, name: str) -> DataFrame:
        if name in TRACE_TABLES:
            return table_of(spark, self._storage, self._folder.segments(), name)
        with self._storage.opened(f"{name}/{name}.parquet") as opened:
            return spark.createDataFrame(pq.read_table(opened))


class RecordedRun(Recorded):
    """The folder of a single run."""

    def __init__(self, storage: Storage, spark: SparkSession | None) -> None:
        try:
            self._run = msgspec.json.decode(storage.read(RUN_FILE), type=RunInfo)
        except msgspec.MsgspecError as error:
            raise FileError(storage.name(RUN_FILE), f"is no description of a run: {error}") from error
        about = {"scenario": self._run.name, "strategy": self._run.strategy, "seed": self._run.seed}
        super().__init__(storage, spark, about | {"read by roamcast": roamcast.__version__})

    @property
    def tables(self) -> tuple[str, ...]:
        return (*TRACE_TABLES, "runs", "metrics")

    def _table(self, spark: SparkSession, name: str) -> DataFrame:
        if name == "runs":
            return spark.createDataFrame(_rows_of([self._run]))
        if name == "metrics":
            figures = measure({table: self._read(table) for table in TRACE_TABLES}, self._run)
            return spark.createDataFrame(pa.Table.from_pylist([figures]))
        return spark.createDataFrame(self._read(name))

    def _read(self, table: str) -> pa.Table:
        with self._storage.opened(f"{table}.parquet") as opened:
            return pq.read_table(opened)


class RecordedNetwork(Recorded):
    """A folder of segments of live nodes: each run of the network, put together (`lab/live/network.py`)."""

    def __init__(self, storage: Storage, spark: SparkSession | None) -> None:
        from roamcast.lab.live.network import read_network  # here: notebooks of sweeps need none of it

        self._runs = read_network(str(storage))
        names = ", ".join(live.result.info.name for live in self._runs)
        remarks = "; ".join(remark for live in self._runs for remark in live.remarks)
        super().__init__(storage, spark, {"live runs": names, "remarks": remarks or "none"})

    @property
    def tables(self) -> tuple[str, ...]:
        return (*TRACE_TABLES, "runs", "metrics")

    def _table(self, spark: SparkSession, name: str) -> DataFrame:
        results = [live.result for live in self._runs]
        if name == "runs":
            return spark.createDataFrame(_rows_of([result.info for result in results]))
        if name == "metrics":
            rows = [{"run": result.info.name, **result.metrics} for result in results]
            return spark.createDataFrame(pa.Table.from_pylist(rows))
        parts = [with_run(result.tables[name], result.info.name) for result in results]
        return spark.createDataFrame(pa.concat_tables(parts))


def _rows_of(runs: Sequence[RunInfo]) -> pa.Table:
    rows = []
    for run in runs:
        scenario = msgspec.json.encode(run.scenario).decode()
        rows.append(msgspec.structs.asdict(run) | {"brokers": list(run.brokers), "scenario": scenario})
    return pa.Table.from_pylist(rows)


def recorded(uri: str | Path, spark: SparkSession | None = None) -> Recorded:
    """The tables of a folder that one of the commands wrote, or a `FileError`."""
    storage = Storage.open(uri)
    if storage.exists(EXPERIMENT_FILE):
        return RecordedSweep(storage, spark)
    if storage.exists(RUN_FILE):
        return RecordedRun(storage, spark)
    if any(file.endswith(SUFFIX) for file in storage.files()):
        return RecordedNetwork(storage, spark)
    raise FileError(
        str(storage), "holds no sweep, run or segment; allowed: what `sweep`, `simulate --out` or nodes wrote"
    )
