"""Spark's SQL over the tables of a sweep, against the figures that its runs were measured with.

Each run is measured in its own task, by SQLite, before its rows are written. The same SQL over the rows that
were written, executed by Spark, must give the same figures to the last digit; if it does not, one of the two
engines, the writing or the reading is wrong, and no figure of the sweep can be trusted.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from roamcast.errors import RoamcastError
from roamcast.lab.run.metrics import COLUMNS, METRICS, RUN_COLUMNS, Metric, query, relations_of
from roamcast.lab.run.tables import TABLES, schema, with_run
from roamcast.lab.spark.session import read_by_workers
from roamcast.lab.storage.sealed import check_all
from roamcast.lab.sweep.folder import KINDS, RunRecord, SweepFolder

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
    folder: SweepFolder,
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
        found = measured(spark, folder, records, metrics)
    by_run = {row.pop("run"): row for row in found.to_pylist()}
    for record in records:
        if record.run not in by_run:
            raise RoamcastError(f"{folder.storage}: Spark's SQL found no run {record.run}")
        for name, value in by_run[record.run].items():
            kept = record.figures.get(name)
            if value != kept:
                raise RoamcastError(
                    f"{folder.storage}: of run {record.run}, {name} is {kept} as its task measured it and "
                    f"{value} by Spark's SQL over its tables; no figure of this sweep can be trusted"
                )


def measured(
    spark: SparkSession,
    folder: SweepFolder,
    records: Sequence[RunRecord],
    metrics: Mapping[str, Metric] | None = None,
) -> pa.Table:
    """A row of metrics for each of these runs, computed by Spark over trace tables that were verified."""
    wanted = frozenset(record.run for record in records)
    metrics = METRICS if metrics is None else metrics
    needed = relations_of(metric.source for metric in metrics.values())
    tables = {
        kind.TABLE: table_of(spark, folder, kind.TABLE, wanted, list(COLUMNS[kind.TABLE]), verified=True)
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
    folder: SweepFolder,
    table: str,
    runs: Collection[str] | None = None,
    columns: Sequence[str] | None = None,
    verified: bool = False,
) -> DataFrame:
    """A trace table of a sweep as `SweepFolder.table` has it, read by Spark.

    From a disk Spark reads the files, after they were checked here unless they were `verified` before.
    Elsewhere workers read them through our own storage and check them then; Spark needs no connector.
    """
    storage = folder.storage
    whole = with_run(schema(KINDS[table]).empty_table(), "").schema
    names = [name for name in whole.names if columns is None or name in ("run", *columns)]
    fields = from_arrow_schema(pa.schema([whole.field(name) for name in names]))
    parts = folder.parts(table, runs)
    if not parts:
        return with_units(spark.createDataFrame([], fields), whole)
    if storage.path is None:
        found = read_by_workers(
            spark, lambda number: parts[number].read(storage, names).select(names), len(parts), fields
        )
        return with_units(found, whole)
    if not verified:
        check_all(storage, (part[:2] for part in parts))
    doubled = [[part] for part in parts if part.is_doubled]
    plain = [part for part in parts if not part.is_doubled]
    tables = []
    for together in [plain, *doubled] if plain else doubled:
        files = spark.read.schema(fields).parquet(*(storage.spark_name(part.file) for part in together))
        if any(part.has_others for part in together):
            files = files.where(F.col("run").isin(sorted(run for part in together for run in part.runs)))
        tables.append(files)
    return with_units(reduce(DataFrame.unionAll, tables), whole)


def with_units(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Spark forgets what an Arrow schema says beside the types."""
    fields = []
    for each in frame.schema:
        metadata = (schema.field(each.name).metadata or {}).items()
        known = {key.decode(): value.decode() for key, value in metadata}
        fields.append(StructField(each.name, each.dataType, each.nullable, known))
    return frame.to(StructType(fields))


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
