"""The run that is to be played: of `simulate --out`, of `collect`, or of a sweep."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.columns import Naming
from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.event import EventId
from roamcast.explain import unknown
from roamcast.lab.run.tables import RUN_FILE, TABLES, RunInfo, Tables, read, read_run, table
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import table_in
from roamcast.lab.sweep.experiment import cells, settings_of
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, OK, SweepFolder
from roamcast.runtime.live.report.segments import SUFFIX
from roamcast.scenario import with_settings
from roamcast.units import NodeId


@dataclass(frozen=True)
class PlayedRun:
    info: RunInfo
    tables: Tables
    remarks: tuple[str, ...] = ()  # what to know before the picture is believed
    names: Mapping[NodeId, str] = field(default_factory=dict)  # of nodes that are not called by their number
    numbers: Mapping[NodeId, NodeId] = field(
        default_factory=dict
    )  # their own, of those with another one here

    def node(self, text: str) -> NodeId:
        """The node that a user means: by name, by its own number, or by its number in this trace."""
        called = list(self.names.values())
        known = {str(own): number for number, own in self.numbers.items()}
        known |= {name: number for number, name in self.names.items() if called.count(name) == 1}
        if text not in known and not text.isdecimal():
            raise InputError(f"node {text}", unknown(text, sorted(called), "is not in this run"))
        return known[text] if text in known else int(text)

    def event(self, text: str) -> EventId:
        """The event that `roamcast publish` printed, or `why`."""
        publisher, _, sequence = text.rpartition(":")
        if not publisher or not sequence.isdecimal():
            raise InputError(f"event {text!r}", "is no event; allowed: publisher:sequence, as in 3:17")
        return EventId(self.node(publisher), int(sequence))

    def published(self, text: str) -> EventId:
        """The same, refused as it was written if this run has no such event."""
        event, published = self.event(text), self.tables["publications"]
        if event not in set(zip(*(published[name].to_pylist() for name in event._fields), strict=True)):
            raise RoamcastError(f"event {text}: was not published in this run")
        return event

    def in_names(self, text: str) -> str:
        """What `why` says, with the nodes' names, and the numbers that they have elsewhere."""
        called = Naming({self.numbers.get(number, number): name for number, name in self.names.items()})

        def put(found: re.Match[str]) -> str:
            number = int(found[2])
            own = self.numbers.get(number, number)
            if found[1] == "event " or number not in self.names:
                return f"{found[1]}{own}"
            return called(own) if found[1] == "node " else f"{found[1]}{called(own)}"

        return re.sub(r"(\bevent (?=\d+:)|\bnode |\bhop |\bby |→ )(\d+)", put, text)


def open_run(folder: str, run: str | None = None) -> PlayedRun:
    """The only run of a folder, or the one asked for by name."""
    storage = Storage.open(folder)
    if storage.exists(RUN_FILE):
        return PlayedRun(read_run(storage), read(storage))
    if storage.exists(EXPERIMENT_FILE):
        return _of_sweep(folder, run)
    if any(file.endswith(SUFFIX) for file in storage.files()):
        return _of_live(folder, run)
    state = "is no folder" if storage.path is not None and not storage.path.is_dir() else "holds no run"
    allowed = "what `simulate --out`, `emulate --out`, `collect` or `sweep` wrote"
    raise FileError(folder, f"{state}; allowed: {allowed}")


def _of_live(folder: str, run: str | None) -> PlayedRun:
    from roamcast.lab.live.network import began_text, read_one

    live = read_one(folder, run)
    remarks = (began_text(live), *live.remarks)
    return PlayedRun(live.result.info, live.result.tables, remarks, live.names, live.numbers)


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
        self._document = self._folder.description()
        self._ended = {
            run: (segment, record)
            for run, (segment, record) in self._folder.counted().items()
            if record.status == OK and record.info is not None
        }
        self._read: dict[str, pa.Table] = {}  # by file

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
        segment, record = self._ended[run]
        found = {}
        for kind in TABLES:
            if kind.TABLE in names:
                found[kind.TABLE] = table(kind, [])
                if record.rows.get(kind.TABLE):
                    file = segment.file(kind.TABLE)
                    if file not in self._read:
                        self._read[file] = table_in(self._folder.storage, file, segment.files[kind.TABLE])
                    mine = self._read[file].filter(pc.field("run") == run)
                    found[kind.TABLE] = mine.drop_columns(["run"]).replace_schema_metadata()
        return found

    def open(self, run: str) -> PlayedRun:
        axes = next(islice(cells(self._document["axes"]), int(run.split("-")[0]), None))
        settings = settings_of(axes, self._document.get("variants", {}))
        scenario = with_settings(self._document["scenario"], settings)
        info = msgspec.structs.replace(self.info(run), scenario=scenario)
        return PlayedRun(info, self.tables(run, [kind.TABLE for kind in TABLES]))
