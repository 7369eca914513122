"""Live traces: delivery, latency and traffic per window of time while nodes are still writing.

Nodes put trace files into a folder, one subfolder per table: `<folder>/<table>/<anything>.parquet`, with the
columns of that table in `trace.py` after two more, `run` and `strategy` (`put` writes such files). Spark's
Structured Streaming watches the folder; each micro-batch is a set of new files.

Exactly once: the checkpoint gives every file to one batch, and a batch that was cut short comes again with
the same number and the same files. All that is kept is which files each batch brought
(`batches/<number>.json`), so doing a batch twice changes nothing. The table is made anew from those files for
every run that got new ones, so late files and restarts leave no trace: the table is always what one look at
all files would give.

The metrics are those of `metrics.py`, by the same statement: here a "run" is one window of a run. Who should
have got an event follows from publications and subscriptions as in `expected.py`. What is left out: paths in
the contact graph (no node sees it), and the warm-up, which a live network has none of.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema
from rich.console import Console
from rich.live import Live
from rich.table import Table as ScreenTable

from roamcast.errors import FileError, InputError
from roamcast.lab.run.derived import TABLES
from roamcast.lab.run.expected import RecordedInterests
from roamcast.lab.run.metrics import COLUMNS, METRICS, RELATIONS, RUN_COLUMNS
from roamcast.lab.run.tables import records, schema
from roamcast.lab.spark.session import session, spark_errors_in_a_line
from roamcast.trace import Delivered, Published, Record, Subscribed, Transmitted
from roamcast.units import SECOND, Micros, micros

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
REFRESH_SECONDS = 1
FILES_PER_BATCH_MAX = 10_000
PARTITION_BYTES = 1 << 24  # of trace files, for one task of an exchange
SHOWN_WINDOWS = 12  # of each run, on a terminal

OnTable: TypeAlias = Callable[[pa.Table], None]

_FILES_SCHEMA = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_MARK = [pa.field("run", pa.string(), nullable=False), pa.field("strategy", pa.string(), nullable=False)]
_EXPECTED = pa.schema(
    [
        ("run", pa.string()),
        ("publisher", pa.int32()),
        ("sequence", pa.int64()),
        ("node", pa.int32()),
        ("reachable", pa.bool_()),
    ]
)


def put(table: pa.Table, kind: type[Record], folder: Path, name: str, *, run: str, strategy: str) -> Path:
    """Add a table of records (`tables.table`) to a watched folder. The file appears whole or not at all."""
    marked = table
    for field, value in zip(reversed(_MARK), (strategy, run), strict=True):
        marked = marked.add_column(0, field, pa.repeat(pa.scalar(value, pa.string()), len(table)))
    target = folder / kind.TABLE / f"{name}.parquet"
    if target.exists():
        raise FileError(str(target), "exists already; every trace file has a name of its own")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.part")  # Spark passes over names with a dot
        pq.write_table(marked, partial, compression="zstd")
        partial.replace(target)
    except OSError as error:
        raise FileError(str(target), f"cannot be written: {error.strerror or error}") from error
    return target


def watch(
    folder: Path,
    out: Path,
    *,
    window_s: float = 10.0,
    master: str | None = None,
    once: bool = False,
    on_table: OnTable | None = None,
    on_refused: Callable[[str], None] | None = None,
) -> None:
    """Keep `out/windows` up to date with the trace files in `folder`, until interrupted.

    `once`: take what is there and return. `on_table` gets the whole table after each batch that brought
    something; `on_refused` a line for each file that is no trace file, which is passed over. Called again
    with the same `out`, it goes on where it stopped.
    """
    job = FolderWatch(folder, out, window_s, on_table, on_refused)
    job.claim()
    spark = session(master)
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILES_SCHEMA)
        .option("pathGlobFilter", "*.parquet")
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", FILES_PER_BATCH_MAX)
        .load(str(folder.resolve()))
    )
    writer = (
        files.select("path")
        .writeStream.foreachBatch(job.on_batch)
        .option("checkpointLocation", str(job.checkpoint))
    )
    writer = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{REFRESH_SECONDS} seconds")
    )
    running = writer.start()
    with spark_errors_in_a_line("called again with the same folder, it goes on"):
        try:
            running.awaitTermination()
        except KeyboardInterrupt:
            pass
        except (Py4JError, PySparkException):
            if job.failure is not None:
                raise job.failure from None
            raise
        finally:
            running.stop()


def read_windows(out: Path) -> pa.Table:
    """The table as it is: a row per strategy, run and window, sorted."""
    file = out / "windows" / "windows.parquet"
    return pq.ParquetFile(file).read() if file.exists() else _table_schema().empty_table()


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one micro-batch brought: trace files per table, and what was passed over, and why."""

    files: dict[str, list[str]]
    refused: dict[str, str]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `out` was made for."""

    folder: str
    window: Micros


class FolderWatch:
    """One watched folder and its output."""

    def __init__(
        self,
        folder: Path,
        out: Path,
        window_s: float,
        on_table: OnTable | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        if not 1e-3 <= window_s <= 1e9:
            raise InputError("window", f"is {window_s}; allowed: seconds from 0.001 to 1e9")
        self._folder = folder.resolve()
        self._out = out.resolve()
        self._window = micros(window_s)
        self._on_table = on_table
        self._on_refused = on_refused
        self.failure: Exception | None = None

    @property
    def checkpoint(self) -> Path:
        return self._out / "checkpoint"

    def claim(self) -> None:
        """Make the output folder, or see that it is this job's own."""
        if not self._folder.is_dir():
            raise FileError(str(self._folder), "is no folder; expected the one that nodes write traces into")
        if self._out.is_relative_to(self._folder):
            raise InputError(str(self._out), "lies inside the watched folder; allowed: a folder outside it")
        settings = Settings(str(self._folder), self._window)
        file = self._out / "watch.json"
        try:
            if file.exists():
                if msgspec.json.decode(file.read_bytes(), type=Settings) != settings:
                    raise InputError(
                        str(self._out), "belongs to another folder or window; allowed: a new one"
                    )
            elif self._out.exists() and any(self._out.iterdir()):
                raise InputError(str(self._out), "holds something else; allowed: a new or empty folder")
            for name in ("batches", "windows"):
                (self._out / name).mkdir(parents=True, exist_ok=True)
            _save(file, msgspec.json.encode(settings))
        except (OSError, msgspec.DecodeError) as error:
            raise FileError(str(self._out), f"cannot be used: {error}") from error

    def on_batch(self, paths: DataFrame, number: int) -> None:
        """One micro-batch. The same number always comes with the same files."""
        try:
            self._on_batch(paths, number)
        except Exception as error:
            self.failure = error  # Spark would only pass its text on
            raise

    def _on_batch(self, paths: DataFrame, number: int) -> None:
        batch = self._sorted_out(sorted(_local(row.path) for row in paths.collect()))
        _save(self._out / "batches" / f"{number:010d}.json", msgspec.json.encode(batch))
        if self._on_refused is not None:
            for path, problem in batch.refused.items():
                self._on_refused(f"{path}: {problem}")
        touched = sorted({run for files in batch.files.values() for run in _runs_in(files)})
        if not touched:
            return
        fresh = windows_of(paths.sparkSession, self._seen(), touched, self._window)
        before = read_windows(self._out)
        others = before.filter(pc.invert(pc.is_in(before["run"], pa.array(touched, pa.string()))))
        table = pa.concat_tables([others, fresh]).sort_by(
            [("strategy", "ascending"), ("run", "ascending"), ("window", "ascending")]
        )
        target = self._out / "windows" / "windows.parquet"
        partial = target.with_name(f".{target.name}.part")
        pq.write_table(table, partial, compression="zstd")
        partial.replace(target)
        if self._on_table is not None:
            self._on_table(table)

    def _sorted_out(self, paths: Iterable[str]) -> Batch:
        files: dict[str, list[str]] = {kind.TABLE: [] for kind in WATCHED}
        refused = {}
        known = {kind.TABLE: kind for kind in TABLES}
        for path in paths:
            table = Path(path).parent.name
            if Path(path).parent.parent != self._folder or table not in known:
                refused[path] = f"is in no folder of a table; known are {', '.join(sorted(known))}"
            elif table in files:
                problem = _problem(path, known[table])
                if problem is None:
                    files[table].append(path)
                else:
                    refused[path] = problem
        return Batch(files, refused)

    def _seen(self) -> dict[str, list[str]]:
        """Every file that batches have brought so far. As sets: none counts twice, whatever happened."""
        seen: dict[str, set[str]] = {kind.TABLE: set() for kind in WATCHED}
        for file in sorted((self._out / "batches").glob("[0-9]*.json")):
            batch = msgspec.json.decode(file.read_bytes(), type=Batch)
            for table, paths in batch.files.items():
                seen[table].update(paths)
        return {table: sorted(paths) for table, paths in seen.items()}


def windows_of(
    spark: SparkSession, files: Mapping[str, list[str]], runs: list[str], window: Micros
) -> pa.Table:
    """The figures of every window of some runs, from all their files."""
    catalog = spark.newSession()  # the tables' names mean something else to nobody else
    # A dozen small exchanges: planning each anew by what the one before found costs more than it saves.
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
        return found.toArrow().cast(_table_schema())
    finally:
        windows.unpersist()


def _statement() -> str:
    """The definitions of `FIGURES` as one statement; those that need tables no node writes are left out."""
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


def _table_schema() -> pa.Schema:
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
    written = from_arrow_schema(pa.schema([*_MARK, *schema(kind)]))
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


def _problem(path: str, kind: type[Record]) -> str | None:
    """Why a file is no part of a table; None if it is."""
    try:
        found = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        return f"is no Parquet file: {str(error).splitlines()[0]}"
    wanted = pa.schema([*_MARK, *schema(kind)])
    for field in wanted:
        if field.name not in found.names:
            return f"has no column {field.name}"
        if found.field(field.name).type != field.type:
            return f"has column {field.name} of type {found.field(field.name).type}; expected {field.type}"
    return None


def _runs_in(files: Iterable[str]) -> set[str]:
    return {
        run for file in files for run in pc.unique(pq.read_table(file, columns=["run"])["run"]).to_pylist()
    }


def _local(uri: str) -> str:
    """Spark names files by URI."""
    return unquote(urlparse(uri).path) if uri.startswith("file:") else uri


def _save(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_bytes(data)
    partial.replace(path)


# On the screen.


class WindowScreen:
    """Shows the table: on a terminal the last windows, kept up to date; in a pipe a line for each change."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self._shown: dict[tuple[str, str, int], dict[str, Any]] = {}

    def __enter__(self) -> "WindowScreen":
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, table: pa.Table) -> None:
        rows = table.to_pylist()
        if self._live is not None:
            self._live.update(_screen(rows), refresh=True)
            return
        for row in rows:
            key = (row["strategy"], row["run"], row["window"])
            if self._shown.get(key) != row:
                self._shown[key] = row
                self._console.print(_line(row), soft_wrap=True, markup=False, highlight=False)


def _screen(rows: list[dict[str, Any]]) -> ScreenTable:
    screen = ScreenTable()
    for head in ("strategy", "run", "from s", "delivered", "ratio", "p50 s", "p95 s", "control", "octets"):
        screen.add_column(head, justify="left" if head in ("strategy", "run") else "right")
    by_run: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_run.setdefault((row["strategy"], row["run"]), []).append(row)
    for (strategy, run), windows in by_run.items():
        for row in windows[-SHOWN_WINDOWS:]:
            screen.add_row(
                strategy,
                run,
                f"{row['window'] / SECOND:g}",
                f"{row['delivered']}/{row['expected']}",
                _number(row["delivery_ratio"]),
                _number(row["latency_p50"]),
                _number(row["latency_p95"]),
                str(row["control_messages"]),
                str(row["control_bytes"]),
            )
    return screen


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['strategy']} {row['run']} from {row['window'] / SECOND:g} s: "
        f"delivered {row['delivered']}/{row['expected']} ({_number(row['delivery_ratio'])}), "
        f"latency p50 {_number(row['latency_p50'])} s, p95 {_number(row['latency_p95'])} s, "
        f"control {row['control_messages']} frames, {row['control_bytes']} octets"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
