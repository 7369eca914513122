"""Delivery, latency and traffic of each window of time, from the trace files of live nodes.

The metrics are those of `metrics.py`, by the same statement: here a "run" is one window of a run. Who should
have got an event follows from publications and subscriptions as in `expected.py`. Left out: paths in the
contact graph (no node sees it) and the warm-up, because a live network has none.
"""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.lab.live.trace_folder import file_schema
from roamcast.lab.run.expected import RecordedInterests
from roamcast.lab.run.metrics import COLUMNS, METRICS, RELATIONS, RUN_COLUMNS
from roamcast.lab.run.tables import records
from roamcast.trace import Delivered, Published, Record, Subscribed, Transmitted
from roamcast.units import Micros

WATCHED: tuple[type[Record], ...] = (Published, Subscribed, Delivered, Transmitted)
FIGURES = (
    "published",
    "expected",
    "delivered",
    "duplicates",
    "misdelivered",
    "delivery_ratio",
    "latency_p50",
    "latency_p95",
    "hops_mean",
    "control_messages",
    "control_bytes",
    "data_messages",
    "data_bytes",
    "control_overhead",
)
PARTITION_BYTES = 1 << 24  # of trace files, for one task of an exchange; chosen by us
_EXPECTED = pa.schema(
    [
        ("run", pa.string()),
        ("publisher", pa.int32()),
        ("sequence", pa.int64()),
        ("node", pa.int32()),
        ("reachable", pa.bool_()),
    ]
)


def windows_of(
    spark: SparkSession, files: Mapping[str, list[str]], runs: list[str], window: Micros
) -> pa.Table:
    """The figures of every window of some runs, from all their files."""
    catalog = spark.newSession()  # so that the tables' names are visible only here
    # A dozen small exchanges: adaptive planning of each one costs more than it saves.
    catalog.conf.set("spark.sql.adaptive.enabled", "false")
    size = sum(os.path.getsize(file) for paths in files.values() for file in paths)
    partitions = min(size // PARTITION_BYTES + 1, int(catalog.conf.get("spark.sql.shuffle.partitions") or 1))
    catalog.conf.set("spark.sql.shuffle.partitions", str(partitions))
    tables = {kind: _read(catalog, kind, files[kind.TABLE], runs) for kind in WATCHED}
    # One window of a run is what the metrics call a run. The window comes last, so that names stay distinct.
    at = F.floor(F.col("t") / window)
    key = F.concat_ws("@", "run", at)
    publications = tables[Published].withColumn("key", key)
    of_event = publications.select("run", "publisher", "sequence", "key")
    event = ["run", "publisher", "sequence"]
    expected = (
        tables[Published]
        .groupBy("run")
        .cogroup(tables[Subscribed].groupBy("run"))
        .applyInArrow(_expected, from_arrow_schema(_EXPECTED))
    )
    transmissions = tables[Transmitted].withColumn("key", key)
    seen = [
        frame.select("key", "run", "strategy", (at * window).alias("window"))
        for frame in (publications, transmissions)
    ]
    windows = seen[0].union(seen[1]).distinct().cache()
    views = {
        "publications": publications.drop("run"),
        "deliveries": tables[Delivered].join(of_event, event).drop("run"),
        "expected": expected.join(of_event, event).drop("run"),
        "transmissions": transmissions.drop("run"),
        "runs": windows.select(
            "key",
            F.lit(0).cast("bigint").alias("warmup"),
            F.lit(window).cast("bigint").alias("duration"),
            F.lit(None).cast("bigint").alias("sim_events"),
            F.lit(None).cast("double").alias("wall_s"),
        ),
    }
    for name, frame in views.items():
        columns = RUN_COLUMNS if name == "runs" else COLUMNS[name]
        frame.withColumnRenamed("key", "run").select("run", *columns).createOrReplaceTempView(name)
    figures = catalog.sql(_statement()).withColumnRenamed("run", "key")
    found = windows.join(figures, "key").select("strategy", "run", "window", *FIGURES)
    try:
        return found.toArrow().cast(table_schema())
    finally:
        windows.unpersist()


def _statement() -> str:
    """The definitions of `FIGURES` as one statement, without those that need tables that no node writes."""
    sources = list(dict.fromkeys(METRICS[name].source for name in FIGURES if METRICS[name].source))
    relations = ("events", "hand_overs", "pairs", "frames")
    steps = [f"{name} AS ({RELATIONS[name]})" for name in relations]
    for source in sources:
        values = [f"{METRICS[n].value} AS {n}" for n in FIGURES if METRICS[n].source == source]
        steps.append(f"of_{source} AS (SELECT run, {', '.join(values)} FROM {source} GROUP BY run)")
    aggregates = [f"COALESCE({n}, {METRICS[n].empty}) AS {n}" for n in FIGURES if METRICS[n].source]
    joins = " ".join(f"LEFT JOIN of_{source} USING (run)" for source in sources)
    steps.append(f"figures AS (SELECT run, {', '.join(aggregates)} FROM runs {joins})")
    columns = [n if METRICS[n].source else f"{METRICS[n].value} AS {n}" for n in FIGURES]
    return f"WITH {', '.join(steps)} SELECT run, {', '.join(columns)} FROM figures"


def table_schema() -> pa.Schema:
    """The columns of the table: which window, and its figures."""
    counts = {
        "published",
        "expected",
        "delivered",
        "duplicates",
        "misdelivered",
        "control_messages",
        "control_bytes",
        "data_messages",
        "data_bytes",
    }
    figures = [pa.field(name, pa.int64() if name in counts else pa.float64()) for name in FIGURES]
    key = [("strategy", pa.string()), ("run", pa.string()), ("window", pa.int64())]
    return pa.schema([*(pa.field(name, kind) for name, kind in key), *figures])


def _read(spark: SparkSession, kind: type[Record], files: list[str], runs: list[str]) -> DataFrame:
    written = from_arrow_schema(file_schema(kind))
    if not files:
        return spark.createDataFrame([], written)
    return spark.read.schema(written).parquet(*files).where(F.col("run").isin(runs))


def _expected(publications: pa.Table, subscriptions: pa.Table) -> pa.Table:
    """Who should have got which event, of one run."""
    interests = RecordedInterests(records({Subscribed.TABLE: subscriptions}, Subscribed))
    rows = [
        (event.publisher, event.sequence, node, False)
        for event in records({Published.TABLE: publications}, Published)
        for node in sorted(interests.in_event(event))
    ]
    run = publications["run"][0].as_py() if len(publications) else ""
    columns: list[Any] = [[run] * len(rows), *(list(c) for c in zip(*rows, strict=True))] if rows else []
    return pa.table(columns or [[]] * len(_EXPECTED), schema=_EXPECTED)
