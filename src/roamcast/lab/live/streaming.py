"""`watch`: delivery, latency and traffic per window of time while nodes are still writing.

Segments come into a folder (`SegmentStream` gives each once). A stream of Spark, keyed by run, keeps the
state of the open windows (`windows.py`) in its state store and gives the figures of each window that changed;
they replace the window's row in `out/windows`. The mesh of each run (`mesh.py`) stands in `out/mesh`. What
was not counted stands in `out/unread`, with file and reason.

Exactly once: Spark notes which segments a batch has before it is read, and which state it began with. A batch
that was interrupted at any moment is repeated with both, so it gives the same rows, and rows are replaced by
their key.

Which segments have been read is known by node, boot and number, not by file: the offset has a few ranges of
numbers for each boot of each node, however many segments there were. Spark writes it down before a batch is
read, so a batch that was interrupted comes again as it was. New segments are taken in the order of their
beginning, whosever they are, so that the nodes of a network advance together.

A segment that is damaged, or gone when its turn comes, is a row with the problem instead of an extract.
"""

import hashlib
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

import msgspec
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from roamcast.errors import FileError, InputError
from roamcast.lab.live.collect import Listed, listed
from roamcast.lab.live.extract import Extract, extract
from roamcast.lab.live.windows import DAY, RunWindows, table_schema
from roamcast.lab.spark.session import parallelism, session, spark_errors_in_a_line
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import check_is_free, put_table, table_in
from roamcast.runtime.live.report.segments import SegmentId
from roamcast.units import Micros, micros

NAME = "roamcast_segments"
SCHEMA = "strategy STRING, run STRING, file STRING, problem STRING, extract BINARY"
BATCH_BYTES_MAX = 1 << 26  # of segments, at a time; bounds the memory of a batch; chosen by us

_ARROW = pa.schema(
    [(name, pa.string()) for name in ("strategy", "run", "file", "problem")] + [("extract", pa.binary())]
)


class SegmentStream(DataSource):
    """Options: `folder`, a URI; `window`, in microseconds; `tasks`, how many read side by side."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self.options
        return SegmentReader(Storage.open(options["folder"]), int(options["window"]), int(options["tasks"]))


class SegmentReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: Storage, window: int, tasks: int) -> None:
        self._folder = folder
        self._window = window
        self._tasks = tasks
        self._fixed: list[Listed] | None = None  # the segments that are there, where no more are wanted
        self._last: list[Listed] | None = None  # as last listed

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's names, as below
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(BATCH_BYTES_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._fixed = listed(self._folder)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        known = Numbers(start)
        room = BATCH_BYTES_MAX
        if isinstance(limit, ReadMaxBytes):
            room = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            room = 1 << 62
        for one in self._listed():
            if one.name.id not in known:
                if room <= 0:
                    break
                room -= one.size
                known.add(one.name.id)
        return known.offset()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        wanted = Numbers(end).without(Numbers(start))
        there = {one.name.id: one for one in self._last or self._listed()}  # None after a restart
        files = [there[one].file if one in there else f"segment {tuple(one)}" for one in wanted]
        sizes = [there[one].size if one in there else 0 for one in wanted]
        return [InputPartition(part) for part in _spread(files, sizes, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = [self._row(file) for file in partition.value]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def _row(self, file: str) -> dict[str, object]:
        try:
            found = extract(self._folder.read(file), file, self._window)
        except FileError as error:
            return {"strategy": "", "run": "", "file": file, "problem": error.problem}
        data = msgspec.msgpack.encode(found)
        return {"strategy": found.head.strategy, "run": found.head.run, "file": file, "extract": data}

    def _listed(self) -> list[Listed]:
        self._last = listed(self._folder) if self._fixed is None else self._fixed
        return self._last


class Numbers:
    """Which segments: for each boot of a node, ranges of numbers. As an offset: `{"7-3": "0-41,43-50"}`."""

    def __init__(self, offset: Mapping[str, str]) -> None:
        self._ranges: dict[str, list[list[int]]] = {
            key: [[int(number) for number in part.split("-")] for part in text.split(",")]
            for key, text in offset.items()
        }

    def __contains__(self, one: SegmentId) -> bool:
        ranges = self._ranges.get(f"{one.node}-{one.boot}", ())
        return any(first <= one.number <= last for first, last in ranges)

    def add(self, one: SegmentId) -> None:
        ranges = self._ranges.setdefault(f"{one.node}-{one.boot}", [])
        ranges.append([one.number, one.number])
        ranges.sort()
        joined = [ranges[0]]
        for first, last in ranges[1:]:
            if first == joined[-1][1] + 1:
                joined[-1][1] = last
            else:
                joined.append([first, last])
        ranges[:] = joined

    def without(self, others: "Numbers") -> list[SegmentId]:
        """Those that the others have not."""
        found = []
        for key, ranges in self._ranges.items():
            node, boot = (int(part) for part in key.split("-"))
            for first, last in ranges:
                known = (SegmentId(node, boot, number) for number in range(first, last + 1))
                found += [one for one in known if one not in others]
        return found

    def offset(self) -> dict[str, str]:
        return {
            key: ",".join(f"{first}-{last}" for first, last in ranges)
            for key, ranges in sorted(self._ranges.items())
        }


def _spread(files: list[str], sizes: list[int], parts: int) -> list[list[str]]:
    """About the same number of octets for each part; the largest files first."""
    heaps: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(parts, len(files)))]
    for size, file in sorted(zip(sizes, files, strict=True), reverse=True):
        at = min(range(len(heaps)), key=lambda place: heaps[place][0])
        heaps[at] = (heaps[at][0] + size, [*heaps[at][1], file])
    return [names for _, names in heaps]


REFRESH_SECONDS = 1  # chosen by us, as are the next
STATE_PARTITIONS = 2  # a key is a whole run, and few runs are watched at a time
STATE_VERSIONS = 10  # that Spark keeps: a restart needs the last two
WORKER_TRIES = 3  # Spark gives a Python worker ten seconds to start; on a busy machine that may be too short
UNREAD_MAX = 100_000

OnTable: TypeAlias = Callable[[pa.Table], None]
OnMesh: TypeAlias = Callable[["WatchedMesh"], None]

_UNREAD = pa.schema([("file", pa.string()), ("reason", pa.string())])
_GIVEN = pa.schema([*table_schema(), *_UNREAD, ("mesh", pa.string())])
_KEY = ("strategy", "run", "window")


class WatchedMesh(msgspec.Struct, frozen=True):
    """The mesh of a run, as its nodes' newest segments have it. `document`: JSON, by `mesh.py`."""

    strategy: str
    run: str
    document: msgspec.Raw


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `out` was made for."""

    folder: str
    window: Micros
    late: Micros


def watch(
    folder: str | Storage,
    out: str | Storage,
    *,
    window_s: float = 10.0,
    late_s: float = 120.0,
    master: str | None = None,
    once: bool = False,
    on_table: OnTable | None = None,
    on_unread: Callable[[str], None] | None = None,
    on_mesh: OnMesh | None = None,
) -> None:
    """Keep `out/windows` up to date with the segments in `folder`, until interrupted.

    `once`: process the segments that are there and return. `on_table` gets the rows that changed, after each
    batch; `on_unread` a line for what was not counted; `on_mesh` the mesh of each run that changed. Called
    again with the same `out`, it continues where it stopped.
    """
    for name, value, least in (("window", window_s, 1e-3), ("late", late_s, 0.0)):
        if not least <= value <= 1e9:
            raise InputError(name, f"is {value}; allowed: seconds from {least:g} to 1e9")
    settings = Settings(str(Storage.open(folder)), micros(window_s), micros(late_s))
    tables = WatchTables(Storage.open(out), on_table, on_unread, on_mesh)
    tables.claim(settings)
    spark = session(master).newSession()  # settings and names of its own
    spark.conf.set("spark.sql.shuffle.partitions", str(STATE_PARTITIONS))
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(STATE_VERSIONS))
    spark.dataSource.register(SegmentStream)
    with spark_errors_in_a_line("called again with the same folder, it goes on"):
        for tries_left in reversed(range(WORKER_TRIES)):
            try:
                _stream(spark, settings, tables, once)
                break
            except KeyboardInterrupt:
                break
            except (Py4JError, PySparkException) as error:
                if tables.failure is not None:
                    raise tables.failure from None
                if not tries_left or "to connect back" not in str(error):
                    raise


def _stream(spark: SparkSession, settings: Settings, tables: "WatchTables", once: bool) -> None:
    segments = (
        spark.readStream.format(NAME)
        .option("folder", settings.folder)
        .option("window", str(settings.window))
        .option("tasks", str(parallelism(spark)))
        .load()
    )
    changed = segments.groupBy("strategy", "run").applyInPandasWithState(
        _updater(settings.window, settings.late),
        from_arrow_schema(_GIVEN),
        "state BINARY",
        "update",
        GroupStateTimeout.NoTimeout,
    )
    writer = (
        changed.writeStream.outputMode("update")
        .foreachBatch(tables.on_batch)
        .option("checkpointLocation", tables.checkpoint)
    )
    refresh: dict[str, Any] = (
        {"availableNow": True} if once else {"processingTime": f"{REFRESH_SECONDS} seconds"}
    )
    running = writer.trigger(**refresh).start()
    try:
        _wait(running)
    finally:
        running.stop()


def _wait(running: StreamingQuery) -> None:
    """Until the stream ends, in a thread of its own: an interruption must not hit a connection to Java."""
    ended: Future[None] = Future()

    def wait() -> None:
        try:
            running.awaitTermination()
            ended.set_result(None)
        except BaseException as error:
            ended.set_exception(error)

    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own would cancel the batch
    try:
        threading.Thread(target=wait, daemon=True).start()
        ended.result()
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


def read_windows(out: str | Storage) -> pa.Table:
    """The table as it is: a row per strategy, run and window, sorted."""
    storage = Storage.open(out)
    files = [name for name in storage.files("windows") if name.endswith(".parquet")]
    parts = [_read(storage, name, table_schema()) for name in files]
    return pa.concat_tables([table_schema().empty_table(), *parts]).sort_by([(k, "ascending") for k in _KEY])


def read_unread(out: str | Storage) -> pa.Table:
    """What was not counted: file (empty where it is about no single one) and reason."""
    return _read(Storage.open(out), "unread.parquet", _UNREAD)


def read_meshes(out: str | Storage) -> list[WatchedMesh]:
    """The mesh of each run, as it was last."""
    storage = Storage.open(out)
    return [msgspec.json.decode(storage.read(name), type=WatchedMesh) for name in storage.files("mesh")]


class WatchTables:
    """The output of one watch."""

    def __init__(
        self,
        out: Storage,
        on_table: OnTable | None = None,
        on_unread: Callable[[str], None] | None = None,
        on_mesh: OnMesh | None = None,
    ) -> None:
        self._out = out
        self._on_mesh = on_mesh
        self._on_table = on_table
        self._on_unread = on_unread
        self.failure: Exception | None = None
        self.checkpoint = out.spark_name("checkpoint")

    def claim(self, settings: Settings) -> None:
        """Make the output folder, or check that it belongs to this job."""
        folder = Storage.open(settings.folder)
        if folder.path is not None and not folder.path.is_dir():
            raise FileError(settings.folder, "is no folder; expected the one that segments are collected in")
        folder.exists("watch.json")  # a store that cannot be reached says so before anything is claimed
        if f"{self._out}/".startswith(f"{folder}/"):
            raise InputError(str(self._out), "lies inside the watched folder; allowed: a folder outside it")
        known = self._out.read_if_there("watch.json")
        if known is None:
            check_is_free(self._out)
            self._out.write("watch.json", msgspec.json.encode(settings))
            return
        try:
            if msgspec.json.decode(known, type=Settings) == settings:
                return
        except msgspec.DecodeError:
            raise FileError(
                self._out.name("watch.json"), "is no settings of a watch; use a new folder"
            ) from None
        raise InputError(str(self._out), "belongs to another folder, window or lateness; allowed: a new one")

    def on_batch(self, given: DataFrame, number: int) -> None:
        """The rows of one batch. The same number always comes with the same rows."""
        try:
            rows = given.toArrow().to_pylist()
            self._replace([row for row in rows if row["window"] is not None])
            self._note([(row["file"], row["reason"]) for row in rows if row["reason"] is not None])
            self._keep([row for row in rows if row["mesh"] is not None])
        except Exception as error:
            self.failure = error  # kept here, because Spark passes on only its text
            raise

    def _replace(self, rows: list[dict[str, Any]]) -> None:
        by_day: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_day.setdefault(row["window"] // DAY, []).append(row)
        for day, changed in by_day.items():
            name = f"windows/{day:06d}.parquet"
            known = {
                tuple(row[k] for k in _KEY): row for row in _read(self._out, name, table_schema()).to_pylist()
            }
            known |= {tuple(row[k] for k in _KEY): row for row in changed}
            _write(self._out, name, [known[key] for key in sorted(known)], table_schema())
        if rows and self._on_table is not None:
            table = pa.Table.from_pylist(rows, schema=table_schema())
            self._on_table(table.sort_by([(name, "ascending") for name in _KEY]))

    def _keep(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            mesh = WatchedMesh(row["strategy"], row["run"], msgspec.Raw(row["mesh"].encode()))
            digest = hashlib.sha256(f"{mesh.strategy}\n{mesh.run}".encode()).hexdigest()[:16]
            self._out.write(f"mesh/{digest}.json", msgspec.json.encode(mesh))
            if self._on_mesh is not None:
                self._on_mesh(mesh)

    def _note(self, problems: list[tuple[str, str]]) -> None:
        if not problems:
            return
        known = [tuple(row.values()) for row in read_unread(self._out).to_pylist()]
        fresh = [problem for problem in dict.fromkeys(problems) if problem not in set(known)]
        kept = [*known, *fresh][-UNREAD_MAX:]
        rows = [{"file": file, "reason": reason} for file, reason in kept]
        _write(self._out, "unread.parquet", rows, _UNREAD)
        for file, reason in fresh if self._on_unread is not None else ():
            self._on_unread(f"{file}: {reason}" if file else reason)  # type: ignore[misc]


def _updater(window: Micros, late: Micros) -> Callable[..., Iterator[pd.DataFrame]]:
    """What Spark calls for the new segments of each run, with its state."""

    def update(
        key: tuple[str, str], batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        strategy, run = key
        frames = list(batches)
        rows: list[dict[str, Any]] = []
        if not run:  # what could not be read belongs to no run
            for frame in frames:
                found = zip(frame["file"], frame["problem"], strict=True)
                rows += [{"file": file, "reason": reason} for file, reason in found]
        else:
            known = msgspec.msgpack.decode(state.get[0], type=RunWindows) if state.exists else RunWindows()
            extracts = [msgspec.msgpack.decode(d, type=Extract) for f in frames for d in f["extract"]]
            figures, problems = known.take(extracts, window, late)
            rows += [{"strategy": strategy, "run": run, **row} for row in figures]
            rows += [problem._asdict() for problem in problems]
            rows.append({"strategy": strategy, "run": run, "mesh": known.mesh.document()})
            state.update((msgspec.msgpack.encode(known),))
        yield pa.Table.from_pylist(rows, schema=_GIVEN).to_pandas(integer_object_nulls=True)

    return update


def _read(storage: Storage, name: str, schema: pa.Schema) -> pa.Table:
    """Empty if there is none yet."""
    try:
        return table_in(storage, name).cast(schema) if storage.exists(name) else schema.empty_table()
    except (pa.ArrowException, ValueError) as error:
        reason = re.split(r"[\n;]", str(error))[0]
        raise FileError(storage.name(name), f"cannot be read: {reason}; allowed: a new folder") from None


def _write(storage: Storage, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    put_table(storage, name, pa.Table.from_pylist(rows, schema=schema))
