"""Spark's SQL over the tables of a sweep, against the figures that its runs were measured with.

Each run is measured in its own task, by SQLite, before its rows are written. The same SQL over the rows that
were written, executed by Spark, must give the same figures to the last digit; if it does not, one of the two
engines, the writing or the reading is wrong, and no figure of the sweep can be trusted.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.errors import RoamcastError
from roamcast.lab.run.metrics import COLUMNS, METRICS, RUN_COLUMNS, Metric, query, relations_of
from roamcast.lab.run.tables import TABLES, schema, with_run
from roamcast.lab.spark.session import parallelism
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.folder import RunRecord, SweepSegment

SAMPLE_SHARE = 25  # one run of so many is measured again; chosen by us, as are the next two
SAMPLE_MAX = 8
SAMPLE_SOURCES = 1  # relations whose metrics are checked, beside that of the deliveries
DELIVERIES = "pairs"
# A query over few rows takes less time than compiling it would.
INTERPRETED_ROWS_MAX = 100_000
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def sample(
    fingerprint: str, records: Sequence[RunRecord], verify: str
) -> tuple[list[RunRecord], Collection[str] | None]:
    """Which runs are measured again, and from which relations (None: all metrics).

    A small sweep has no sample: it would take longer than its runs. Runs and relations are drawn by digests,
    so that the same sweep has the same sample, and sweeps together cover everything.
    """
    if verify == "all":
        return list(records), None
    count = min(len(records) // SAMPLE_SHARE, SAMPLE_MAX) if verify == "sample" else 0

    def drawn(text: str) -> bytes:
        return hashlib.sha256(f"{fingerprint} {text}".encode()).digest()

    sources = sorted({m.source for m in METRICS.values() if m.source not in ("", DELIVERIES)}, key=drawn)
    return sorted(records, key=lambda record: drawn(record.run))[:count], [
        DELIVERIES,
        *sources[:SAMPLE_SOURCES],
    ]


def check_figures(
    spark: SparkSession,
    storage: Storage,
    segments: Sequence[SweepSegment],
    records: Sequence[RunRecord],
    sources: Collection[str] | None = None,
    redefined: Collection[str] = (),
) -> None:
    """Measure these runs again, in Spark; raises if a figure differs. A study may have `redefined` some."""
    metrics = {
        name: metric
        for name, metric in METRICS.items()
        if (sources is None or metric.source in sources) and name not in redefined
    }
    few = sum(sum(record.rows.values()) for record in records) <= INTERPRETED_ROWS_MAX
    with _conf(spark, _INTERPRETED if few else {}):
        found = measured(spark, storage, segments, records, metrics)
    by_run = {row.pop("run"): row for row in found.to_pylist()}
    for record in records:
        if record.run not in by_run:
            raise RoamcastError(f"{storage}: Spark's SQL found no run {record.run}")
        for name, value in by_run[record.run].items():
            kept = record.figures.get(name)
            if value != kept:
                raise RoamcastError(
                    f"{storage}: of run {record.run}, {name} is {kept} as its task measured it and {value} "
                    "by Spark's SQL over its tables; no figure of this sweep can be trusted"
                )


def measured(
    spark: SparkSession,
    storage: Storage,
    segments: Sequence[SweepSegment],
    records: Sequence[RunRecord],
    metrics: Mapping[str, Metric] | None = None,
) -> pa.Table:
    """A row of metrics for each of these runs, computed by Spark over trace tables that were verified."""
    wanted = frozenset(record.run for record in records)
    metrics = METRICS if metrics is None else metrics
    needed = relations_of(metric.source for metric in metrics.values())
    tables = {
        kind.TABLE: table_of(
            spark, storage, segments, kind.TABLE, ("run", *COLUMNS[kind.TABLE]), wanted, verified=True
        )
        for kind in TABLES
        if kind.TABLE in COLUMNS and kind.TABLE in needed
    }
    columns: dict[str, list[Any]] = {"run": [record.run for record in records]}
    for name in RUN_COLUMNS:
        columns[name] = [getattr(record.info, name) for record in records]
    types = [pa.float64() if kind == "DOUBLE" else pa.int64() for kind in RUN_COLUMNS.values()]
    runs = pa.table(columns, schema=pa.schema(list(zip(columns, [pa.string(), *types], strict=True))))
    tables["runs"] = spark.createDataFrame(runs)
    # Named inside the statement, not as views of a session that may be a notebook's.
    named = ", ".join(f"{name} AS (SELECT * FROM {{t_{name}}})" for name in tables)
    text = query(metrics).removeprefix("WITH ")
    given: dict[str, Any] = {f"t_{name}": table for name, table in tables.items()}
    return spark.sql(f"WITH {named}, {text}", **given).toArrow()


def table_of(
    spark: SparkSession,
    storage: Storage,
    segments: Sequence[SweepSegment],
    table: str,
    columns: Sequence[str] | None = None,
    runs: frozenset[str] | None = None,
    verified: bool = False,
) -> DataFrame:
    """A trace table of a sweep, of all runs or some, from files that are as they were written.

    From a disk Spark reads the files, after they were checked here unless they were `verified` before.
    Elsewhere workers read them through our own storage and check them then; Spark needs no connector.
    """
    kind = next(kind for kind in TABLES if table == kind.TABLE)
    whole = with_run(schema(kind).empty_table(), "").schema
    fields = from_arrow_schema(pa.schema([whole.field(name) for name in columns or whole.names]))
    files = [
        segment
        for segment in segments
        if table in segment.files
        and (runs is None or any(r.rows.get(table) and r.run in runs for r in segment.runs))
    ]
    if not files:
        return spark.createDataFrame([], fields)
    if storage.path is not None:
        for segment in files if not verified else []:
            segment.check(storage, table)
        names = [storage.spark_name(segment.file(table)) for segment in files]
        found = spark.read.schema(fields).parquet(*names)
        return found if runs is None else found.where(F.col("run").isin(sorted(runs)))
    # What is needed to read the files: little enough to be sent with every task.
    slim = [msgspec.structs.replace(segment, metrics=(), runs=()) for segment in files]
    read = _SegmentReader(storage, table, tuple(fields.names), tuple(slim), runs)
    numbers = spark.range(0, len(files), 1, min(len(files), parallelism(spark)))
    return numbers.mapInArrow(read, fields)


@dataclass(frozen=True)
class _SegmentReader:
    """On a worker: segments by number, their rows as Arrow."""

    storage: Storage
    table: str
    columns: tuple[str, ...]
    segments: tuple[SweepSegment, ...]
    runs: frozenset[str] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = self.segments[number].read(self.storage, self.table)
                assert found is not None
                if self.runs is not None:
                    found = found.filter(pc.is_in(found["run"], pa.array(sorted(self.runs))))
                yield from found.select(self.columns).to_batches()


@contextmanager
def _conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings for one query; the session's own come back."""
    before = {key: spark.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
