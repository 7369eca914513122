"""The run that is to be played: of `simulate --out`, of `collect`, or of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.run.derived import TABLES
from roamcast.lab.run.tables import RUN_FILE, RunInfo, Tables, read, read_run, table
from roamcast.lab.sweep.experiment import cells, settings_of
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, SweepFolder
from roamcast.lab.sweep.segments import OK, read_table
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
    place = SweepFolder(folder)
    document = place.experiment()
    if document is None:
        raise FileError(folder, "is no sweep's folder; allowed: what `roamcast sweep` wrote")
    ended = {
        record.run: (segment, record)
        for segment in place.segments()
        for record in segment.runs
        if record.status == OK and record.info is not None
    }
    chosen = next((name for name in sorted(ended) if name.startswith(run or "")), None)
    if chosen is None:
        problem = "did not end well, or is not there" if run else "are not there: none ended well"
        raise InputError(f"{folder}: run {run}" if run else f"{folder}: runs", problem)
    segment, record = ended[chosen]
    tables = {}
    for kind in TABLES:
        rows = read_table(place.storage, segment, kind.TABLE)
        of_run = None if rows is None else rows.filter(pc.field("run") == chosen).drop_columns(["run"])
        tables[kind.TABLE] = table(kind, []) if of_run is None else of_run
    assert record.info is not None
    axes = next(islice(cells(document["axes"]), int(chosen.split("-")[0]), None))
    scenario = with_settings(document["scenario"], settings_of(axes, document.get("variants", {})))
    return PlayedRun(msgspec.structs.replace(record.info, scenario=scenario), tables)
