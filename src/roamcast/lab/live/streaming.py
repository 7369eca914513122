"""Live traces: delivery, latency and traffic per window of time while nodes are still writing.

Nodes put trace files into a folder (`trace_folder.py`). Spark's Structured Streaming watches it; each
micro-batch is a set of new files. `windows.py` makes the table, `screen.py` shows it.

Exactly once: the checkpoint assigns every file to one batch, and an interrupted batch is repeated with the
same number and the same files. The only state is which files each batch brought (`batches/<number>.json`), so
a repeated batch changes nothing. For every run that got new files the table is computed again from all of
them, so late files and restarts make no difference: the table always equals one computed from all files at
once.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from roamcast.errors import FileError, InputError
from roamcast.lab.live.trace_folder import problem_of, runs_in
from roamcast.lab.live.windows import WATCHED, table_schema, windows_of
from roamcast.lab.run.derived import TABLES
from roamcast.lab.spark.session import session, spark_errors_in_a_line
from roamcast.units import Micros, micros

REFRESH_SECONDS = 1  # chosen by us, as is the next
FILES_PER_BATCH_MAX = 10_000  # bounds the first batch of a folder that has been filling for long

OnTable: TypeAlias = Callable[[pa.Table], None]

_FILES_SCHEMA = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


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

    `once`: process the files that are there and return. `on_table` gets the whole table after each batch with
    new trace files; `on_refused` gets a line for each file that is no trace file, which is skipped. Called
    again with the same `out`, it continues where it stopped.
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
    return pq.ParquetFile(file).read() if file.exists() else table_schema().empty_table()


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of one micro-batch: trace files per table; skipped files, with the reason."""

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
        """Make the output folder, or check that it belongs to this job."""
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
            self.failure = error  # kept here, because Spark passes on only its text
            raise

    def _on_batch(self, paths: DataFrame, number: int) -> None:
        batch = self._sorted_out(sorted(_local(row.path) for row in paths.collect()))
        _save(self._out / "batches" / f"{number:010d}.json", msgspec.json.encode(batch))
        if self._on_refused is not None:
            for path, problem in batch.refused.items():
                self._on_refused(f"{path}: {problem}")
        touched = sorted({run for files in batch.files.values() for run in runs_in(files)})
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
                problem = problem_of(path, known[table])
                if problem is None:
                    files[table].append(path)
                else:
                    refused[path] = problem
        return Batch(files, refused)

    def _seen(self) -> dict[str, list[str]]:
        """Every file of all batches so far. Collected in sets, so none counts twice."""
        seen: dict[str, set[str]] = {kind.TABLE: set() for kind in WATCHED}
        for file in sorted((self._out / "batches").glob("[0-9]*.json")):
            batch = msgspec.json.decode(file.read_bytes(), type=Batch)
            for table, paths in batch.files.items():
                seen[table].update(paths)
        return {table: sorted(paths) for table, paths in seen.items()}


def _local(uri: str) -> str:
    """Spark names files by URI."""
    return unquote(urlparse(uri).path) if uri.startswith("file:") else uri


def _save(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_bytes(data)
    partial.replace(path)
