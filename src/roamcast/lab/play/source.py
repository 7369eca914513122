"""The run that is to be played: of `simulate --out`, of `collect`, or of a sweep."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.run.tables import RUN_FILE, TABLES, RunInfo, Tables, read, read_run, table
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import cells, settings_of
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, OK, SweepFolder
from roamcast.scenario import with_settings
from roamcast.units import NodeId


@dataclass(frozen=True)
class PlayedRun:
    info: RunInfo
    tables: Tables
    remarks: tuple[str, ...] = ()  # what to know before the picture is believed
    names: Mapping[NodeId, str] = field(default_factory=dict)  # of nodes that are not called by their number


def open_run(folder: str, run: str | None = None) -> PlayedRun:
    """The only run of a folder, or the one asked for by name."""
    path = Path(folder)
    if (path / RUN_FILE).exists():
        return PlayedRun(read_run(path), read(path))
    if path.is_dir() and any(path.rglob("*.trace")):
        return _of_live(folder, run)
    if (path / EXPERIMENT_FILE).exists() or "://" in folder:
        return _of_sweep(folder, run)
    state = "holds no run" if path.is_dir() else "is no folder"
    allowed = "what `simulate --out`, `emulate --out`, `collect` or `sweep` wrote"
    raise FileError(folder, f"{state}; allowed: {allowed}")


def _of_live(folder: str, run: str | None) -> PlayedRun:
    from roamcast.lab.live.network import began_text, read_one

    live = read_one(folder, run)
    remarks = (began_text(live), *live.remarks)
    return PlayedRun(live.result.info, live.result.tables, remarks, live.names)


def _of_sweep(folder: str, run: str | None) -> PlayedRun:
    """One run of a sweep, by default the first that ended well. `0003-1` is enough of a name."""
    runs = SweepRuns(Storage.open(folder))
    chosen = next((name for name in runs.names if name.startswith(run or "")), None)
    if chosen is None:
        problem = "did not end well, or is not there" if run else "are not there: none ended well"
        raise InputError(f"{folder}: run {run}" if run else f"{folder}: runs", problem)
    return runs.open(chosen)


class SweepRuns:
    """The runs of a sweep that ended well and left rows; each file is read and proved once."""

    def __init__(self, storage: Storage) -> None:
        self._folder = SweepFolder(storage)
        document = self._folder.experiment()
        if document is None:
            raise FileError(str(storage), "is no sweep's folder; allowed: what `roamcast sweep` wrote")
        self._document = document
        self._segments = self._folder.segments()
        self._ended = {
            record.run: (segment, record)
            for segment in self._segments
            for record in segment.runs
            if record.status == OK and record.info is not None
        }
        self._read: dict[tuple[str, str], pa.Table | None] = {}

    @property
    def names(self) -> list[str]:
        return sorted(self._ended)

    def has(self, run: str) -> bool:
        return run in self._ended

    def rows(self, table: str, runs: Iterable[str]) -> int:
        """How many there are of these runs; nothing is read for it."""
        return sum(self._ended[run][1].rows.get(table, 0) for run in runs)

    def info(self, run: str) -> RunInfo:
        info = self._ended[run][1].info
        assert info is not None
        return info

    def tables(self, run: str, names: Iterable[str]) -> Tables:
        segment, _ = self._ended[run]
        found = {}
        for kind in TABLES:
            if kind.TABLE in names:
                key = (segment.name, kind.TABLE)
                if key not in self._read:
                    self._read[key] = segment.read(self._folder.storage, kind.TABLE)
                rows = self._read[key]
                found[kind.TABLE] = (
                    table(kind, [])
                    if rows is None
                    else rows.filter(pc.field("run") == run).drop_columns(["run"]).replace_schema_metadata()
                )
        return found

    def open(self, run: str) -> PlayedRun:
        axes = next(islice(cells(self._document["axes"]), int(run.split("-")[0]), None))
        settings = settings_of(axes, self._document.get("variants", {}))
        scenario = with_settings(self._document["scenario"], settings)
        info = msgspec.structs.replace(self.info(run), scenario=scenario)
        return PlayedRun(info, self.tables(run, [kind.TABLE for kind in TABLES]))
