"""`watch`: delivery, latency and traffic per window of time while nodes are still writing.

Segments come into a folder. Each pass takes the new ones of all nodes, oldest first, so that the nodes of a
network advance together. The state of the open windows of each run (`windows.py`) gives the figures of each
window that changed; they replace the window's row in `out/windows`. The mesh of each run (`mesh.py`) stands
in `out/mesh`. What was not counted stands in `out/unread`, with file and reason.

Exactly once: `out/state` has the state of all runs and which segments are in it, in one file that is written
last. A pass that was interrupted at any moment is done again from the state before it; it gives the same
figures, and rows are replaced by their key.

Nothing grows with what was read. Which segments have been read is known by node, boot and number: a few
ranges for each boot. Rows lie in a file per hour. A run whose nodes have all stopped, or of which nothing
came while another went on for hours, leaves its state; what is left of it is up to when it was counted.

No Spark: figures come from the window's own SQL, and a run is one state. Structured Streaming kept that state
as one blob, for ever, and needed 13 s of processor time to start. Its `transformWithState` would keep a map
per run with a call between Python and Java for each event: measured with Spark 4.3, 20,000 events took 1.4 to
2.2 s of Python's time alone, a tenth of the speed that this has. And it needs a connector for each store.
"""

import hashlib
import re
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.live.collect import Listed, listed
from roamcast.lab.live.extract import Extract, extract
from roamcast.lab.live.windows import RunWindows, table_schema
from roamcast.lab.storage import Storage
from roamcast.lab.storage.claim import FolderClaim
from roamcast.lab.storage.sealed import check_is_free, manifest_in, put_manifest, put_table, table_in
from roamcast.runtime.live.report.segments import SegmentId
from roamcast.units import SECOND, Micros, micros

BATCH_BYTES_MAX = (
    1 << 26
)  # of segments, at a time; bounds the memory of a pass; chosen by us, as are the next
REFRESH_SECONDS = 1.0
LISTING_SHARE = 10  # between two looks at the folder, so many times as long as a look took
SILENT: Micros = 6 * 3600 * SECOND  # a run of which nothing comes while another is so much further has ended
ENDED_MAX = 100_000
UNREAD_MAX = 100_000
HOUR: Micros = 3600 * SECOND
VERSION = 3  # of the output; 1 was Spark's, 2 had its state as MessagePack

OnTable: TypeAlias = Callable[[pa.Table], None]
OnMesh: TypeAlias = Callable[["WatchedMesh"], None]

_UNREAD = pa.schema([("file", pa.string()), ("reason", pa.string())])
_KEY = ("strategy", "run", "window")


class WatchedMesh(msgspec.Struct, frozen=True):
    """The mesh of a run, as its nodes' newest segments have it. `document`: JSON, by `mesh.py`."""

    strategy: str
    run: str
    document: msgspec.Raw


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings that the output folder was made with."""

    folder: str
    window: Micros
    late: Micros
    version: int


class EndedRun(msgspec.Struct, frozen=True):
    """All that is left of a run."""

    closed: Micros  # every window before is closed
    stopped: bool  # all its nodes stopped in good order, so that no subscription of it stands


class WatchState(msgspec.Struct):
    """The state that a pass begins with."""

    read: dict[str, list[tuple[int, int]]] = {}  # by `node-boot`, ranges of the numbers of segments, sorted
    runs: dict[str, RunWindows] = {}  # by strategy and run

    def has(self, one: SegmentId) -> bool:
        ranges = self.read.get(f"{one.node}-{one.boot}", [])
        at = bisect_right(ranges, one.number, key=lambda known: known[0]) - 1
        return at >= 0 and one.number <= ranges[at][1]

    def add(self, one: SegmentId) -> None:
        """One that it has not."""
        ranges = self.read.setdefault(f"{one.node}-{one.boot}", [])
        at = bisect_right(ranges, one.number, key=lambda known: known[0])
        first = last = one.number
        if at < len(ranges) and ranges[at][0] == last + 1:
            last = ranges.pop(at)[1]
        if at > 0 and ranges[at - 1][1] == first - 1:
            at -= 1
            first = ranges.pop(at)[0]
        ranges.insert(at, (first, last))


def watch(
    folder: str | Storage,
    out: str | Storage,
    *,
    window_s: float = 10.0,
    late_s: float = 120.0,
    once: bool = False,
    on_table: OnTable | None = None,
    on_unread: Callable[[str], None] | None = None,
    on_mesh: OnMesh | None = None,
) -> None:
    """Keep `out/windows` up to date with the segments in `folder`, until interrupted.

    `once`: process the segments that are there and return. `on_table` gets the rows that changed, after each
    pass; `on_unread` a line for what was not counted; `on_mesh` the mesh of each run that changed. Called
    again with the same `out`, it continues where it stopped.
    """
    for name, value, least in (("window", window_s, 1e-3), ("late", late_s, 0.0)):
        if not least <= value <= 1e9:
            raise InputError(name, f"is {value}; allowed: seconds from {least:g} to 1e9")
    settings = Settings(str(Storage.open(folder)), micros(window_s), micros(late_s), VERSION)
    target = Storage.open(out)
    _claim(settings, target)
    held = FolderClaim(target)
    try:
        work = _Watch(settings, target, on_table, on_unread, on_mesh)
        while True:
            began = time.monotonic()
            fresh = work.fresh()
            looked = time.monotonic() - began
            while fresh:
                held.check()
                fresh = work.take(fresh)
            if once:
                return
            time.sleep(max(REFRESH_SECONDS, LISTING_SHARE * looked))
    except KeyboardInterrupt:
        pass  # what ends it
    finally:
        held.release()


class _Watch:
    def __init__(
        self,
        settings: Settings,
        out: Storage,
        on_table: OnTable | None,
        on_unread: Callable[[str], None] | None,
        on_mesh: OnMesh | None,
    ) -> None:
        self._settings = settings
        self._folder = Storage.open(settings.folder)
        self._out = out
        self._on_table, self._on_unread, self._on_mesh = on_table, on_unread, on_mesh
        self._state = manifest_in(out, "state", WatchState) if out.exists("state") else WatchState()
        self._ended = manifest_in(out, "ended", dict[str, EndedRun]) if out.exists("ended") else {}
        self._unread = {(row["file"], row["reason"]): None for row in read_unread(out).to_pylist()}

    def fresh(self) -> list[Listed]:
        """The segments that were not read yet, by time."""
        return [one for one in listed(self._folder) if not self._state.has(one.name.id)]

    def take(self, fresh: list[Listed]) -> list[Listed]:
        """Count as many as a pass may have; those that are left."""
        room, problems = BATCH_BYTES_MAX, list[tuple[str, str]]()
        found: dict[str, list[Extract]] = {}
        for at, one in enumerate(fresh):
            if room <= 0:
                fresh, left = fresh[:at], fresh[at:]
                break
            room -= one.size
            self._state.add(one.name.id)
            try:
                made = extract(self._folder.read(one.file), one.file, self._settings.window)
                found.setdefault(f"{made.head.strategy}\n{made.head.run}", []).append(made)
            except FileError as error:
                problems.append((one.file, error.problem))
        else:
            left = []
        rows: list[dict[str, Any]] = []
        meshes = []
        for key, extracts in found.items():
            strategy, _, run = key.partition("\n")
            known = self._known(key, problems)
            figures, uncounted = known.take(extracts, self._settings.window, self._settings.late)
            rows += [{"strategy": strategy, "run": run, **row} for row in figures]
            problems += [(each.file, each.reason) for each in uncounted]
            meshes.append(WatchedMesh(strategy, run, msgspec.Raw(known.mesh.document().encode())))
        self._replace(rows)
        self._note(problems)
        self._keep(meshes)
        self._forget()
        put_manifest(self._out, "state", self._state)
        return left

    def _known(self, key: str, problems: list[tuple[str, str]]) -> RunWindows:
        if key not in self._state.runs:
            ended = self._ended.get(key)
            self._state.runs[key] = RunWindows() if ended is None else RunWindows(closed=ended.closed)
            if ended is not None and not ended.stopped:
                reason = f"run {key.partition(chr(10))[2]} goes on after hours of silence"
                problems.append(("", f"{reason}: subscriptions from before are not known"))
        return self._state.runs[key]

    def _forget(self) -> None:
        """The states of runs that ended."""
        runs = self._state.runs
        newest = max((run.clock() for run in runs.values()), default=0)
        newest = min(newest, round(time.time() * SECOND) + SILENT)  # a clock may be years ahead
        before = len(runs)
        for key, run in list(runs.items()):
            silent = newest - run.clock()
            if silent > (self._settings.late if run.has_stopped() else SILENT):
                end = (run.newest() // self._settings.window + 1) * self._settings.window
                self._ended[key] = EndedRun(max(run.closed, end), run.has_stopped())
                del runs[key]
        if len(runs) < before:
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]
            put_manifest(self._out, "ended", self._ended)

    def _replace(self, rows: list[dict[str, Any]]) -> None:
        by_hour: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_hour.setdefault(row["window"] // HOUR, []).append(row)
        for hour, changed in by_hour.items():
            name = f"windows/{hour:08d}.parquet"
            new = pa.Table.from_pylist(changed, schema=table_schema())
            known = _read(self._out, name, table_schema())
            others = known.join(new.select(_KEY), list(_KEY), join_type="left anti")
            put_table(self._out, name, _sorted(pa.concat_tables([others.select(new.column_names), new])))
        if rows and self._on_table is not None:
            self._on_table(_sorted(pa.Table.from_pylist(rows, schema=table_schema())))

    def _keep(self, meshes: list[WatchedMesh]) -> None:
        for mesh in meshes:
            digest = hashlib.sha256(f"{mesh.strategy}\n{mesh.run}".encode()).hexdigest()[:16]
            self._out.write(f"mesh/{digest}.json", msgspec.json.encode(mesh))
            if self._on_mesh is not None:
                self._on_mesh(mesh)

    def _note(self, problems: list[tuple[str, str]]) -> None:
        fresh = [problem for problem in dict.fromkeys(problems) if problem not in self._unread]
        if not fresh:
            return
        self._unread |= dict.fromkeys(fresh)
        while len(self._unread) > UNREAD_MAX:
            del self._unread[next(iter(self._unread))]
        files, reasons = zip(*self._unread, strict=True)
        put_table(self._out, "unread.parquet", pa.table([files, reasons], schema=_UNREAD))
        for file, reason in fresh if self._on_unread is not None else ():
            self._on_unread(f"{file}: {reason}" if file else reason)  # type: ignore[misc]


def read_windows(out: str | Storage) -> pa.Table:
    """The table as it is: a row per strategy, run and window, sorted."""
    storage = Storage.open(out)
    files = [name for name in storage.files("windows") if name.endswith(".parquet")]
    parts = [_read(storage, name, table_schema()) for name in files]
    return _sorted(pa.concat_tables([table_schema().empty_table(), *parts]))


def read_unread(out: str | Storage) -> pa.Table:
    """What was not counted: file (empty where it is about no single one) and reason."""
    return _read(Storage.open(out), "unread.parquet", _UNREAD)


def read_meshes(out: str | Storage) -> list[WatchedMesh]:
    """The mesh of each run, as it was last."""
    storage = Storage.open(out)
    return [msgspec.json.decode(storage.read(name), type=WatchedMesh) for name in storage.files("mesh")]


def _claim(settings: Settings, out: Storage) -> None:
    """Make the output folder, or check that it belongs to this job."""
    folder = Storage.open(settings.folder)
    if folder.path is not None and not folder.path.is_dir():
        raise FileError(settings.folder, "is no folder; expected the one that segments are collected in")
    folder.exists("watch.json")  # a store that cannot be reached says so before anything is claimed
    if f"{out}/".startswith(f"{folder}/"):
        raise InputError(str(out), "lies inside the watched folder; allowed: a folder outside it")
    known = out.read_if_there("watch.json")
    if known is None:
        check_is_free(out)
        out.write("watch.json", msgspec.json.encode(settings))
        return
    try:
        if msgspec.json.decode(known, type=Settings) == settings:
            return
    except msgspec.DecodeError:
        problem = "is no settings of a watch of this version; use a new folder"
        raise FileError(out.name("watch.json"), problem) from None
    raise InputError(str(out), "belongs to another folder, window or lateness; allowed: a new one")


def _read(storage: Storage, name: str, schema: pa.Schema) -> pa.Table:
    """Empty if there is none yet."""
    try:
        return table_in(storage, name).cast(schema) if storage.exists(name) else schema.empty_table()
    except (pa.ArrowException, ValueError) as error:
        reason = re.split(r"[\n;]", str(error))[0]
        raise FileError(storage.name(name), f"cannot be read: {reason}; allowed: a new folder") from None


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in _KEY])
