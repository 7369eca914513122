"""A sweep's folder, on a disk or in an object store.

    experiment.json                what is swept, by which code; a folder holds one experiment of one code
    manifest/<segment>.json        a segment: several runs with their figures, and the files of their rows
    <table>/<segment>.parquet      the rows of the segment's runs, with a leading column `run`; none if empty
    runs/ metrics/ summary/        made from the manifests when all runs have ended
    tables.json                    their sizes and digests
    aside/                         what was no longer as it had been written, and what does not belong here

Every file is whole or not there (`lab/storage/sealed.py`). Nothing is appended or renamed, so workers on many
machines can write at once, for one sweep at a time (`lab/storage/claim.py`). A segment is there when its
manifest is; a worker that dies before has left files that nobody reads. A run that was written twice (a
worker that was thought dead went on) counts once. Figures of a run are in its record: they were measured
before its rows were written.
"""

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

import roamcast
from roamcast.errors import FileError, InputError
from roamcast.lab.run.metrics import Figure
from roamcast.lab.run.tables import TABLES, RunInfo, schema, with_run
from roamcast.lab.spark.package import code_digest
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import (
    READERS,
    SealedFile,
    check_is_free,
    manifest_in,
    put_manifest,
    put_sure,
    put_table,
    set_aside,
    table_in,
)
from roamcast.lab.sweep.experiment import Experiment

EXPERIMENT_FILE = "experiment.json"
MANIFEST = "manifest"
KINDS = {kind.TABLE: kind for kind in TABLES}
TRACE_TABLES = tuple(KINDS)
MADE_TABLES = ("runs", "metrics", "summary")
MADE_FILE = "tables.json"
VERSION = 2  # of a sweep's folder and its tables; 1 was a file per run and table, without digests
OK, FAILED = "ok", "failed"
# `<cell>-<seed>-<digest of the scenario>-<chance>`: a leftover of a worker that died is one of these.
_SEGMENT_NAME = re.compile(r"\d+-\d+-[0-9a-f]{8}-[0-9a-f]{8}")


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended."""

    run: str
    status: str  # OK or FAILED
    error: str | None = None  # one line
    traceback: str | None = None
    seconds: float  # wall clock
    attempt: int  # 1 for the first; increases when a worker died and when a failed run is resumed
    info: RunInfo | None = None  # None for a failed run; without the scenario, which the experiment has
    figures: dict[str, Figure] = {}  # the metrics that have a value
    rows: dict[str, int] = {}  # by table, where there are any


class SweepSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Several runs in one file per table: what a manifest says."""

    name: str
    version: int
    roamcast: str
    experiment: str  # its fingerprint
    code: str = ""  # the digest of what ran them; empty in segments of before 0.4
    metrics: tuple[str, ...]  # that were measured, also those without a value
    runs: tuple[RunRecord, ...]
    files: dict[str, SealedFile]  # by table

    def file(self, table: str) -> str:
        return f"{table}/{self.name}.parquet"

    @property
    def manifest(self) -> str:
        return f"{MANIFEST}/{self.name}.json"

    def problem(self, storage: Storage) -> str | None:
        """What is wrong with the content of its files, in a line."""
        try:
            for table, expected in self.files.items():
                expected.check(storage.name(self.file(table)), storage.read(self.file(table)))
        except FileError as error:
            return str(error)
        return None


Compare: TypeAlias = Callable[[Sequence[SweepSegment]], Sequence[str | None]]


class TablePart(NamedTuple):
    """A file of one table, and which of its runs count."""

    file: str
    sealed: SealedFile
    runs: frozenset[str]
    has_others: bool  # rows of other runs, too
    is_doubled: bool  # some of them stand in another part

    def read(self, storage: Storage, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that count, from a file that is as it was written. `columns` must name `run`."""
        found = table_in(storage, self.file, self.sealed, columns)
        return found.filter(pc.field("run").isin(sorted(self.runs))) if self.has_others else found


class MadeTables(msgspec.Struct, frozen=True):
    """What `tables.json` says of the tables that were made of all runs."""

    files: dict[str, SealedFile]


class SweepFolder:
    """The files of one sweep. Workers and the driver see the same folder, each through its own object."""

    def __init__(self, place: Storage | Path | str) -> None:
        self.storage = Storage.open(place)
        self._segments: dict[str, SweepSegment] = {}  # by the manifest's file; a manifest never changes
        self._digested: set[str] = set()  # those whose files were compared in full
        self._document: dict[str, Any] | None = None

    # Beginning.

    def check(self, experiment: Experiment, resume: bool, anew: bool = False) -> None:
        """Whether the folder is, or may become, this experiment's. Nothing is written. `anew`: what other
        code ran may be run again (`renew`)."""
        self._document = None
        document = self.experiment()
        if document is None:
            check_is_free(self.storage)
            return
        wanted = _described(experiment)
        free = ("seeds", "code")
        different = [key for key in wanted if key not in free and document.get(key) != wanted[key]]
        if different:
            raise InputError(
                str(self.storage),
                f"holds another experiment ({different[0]} not the same); allowed: a new or empty folder",
            )
        if not resume:
            raise InputError(
                str(self.storage),
                "holds this experiment already; use --resume to run what is missing or failed",
            )
        if not anew and document.get("code", "") != wanted["code"]:
            raise InputError(
                str(self.storage),
                f"was run by other code ({document.get('code', 'unknown')}, this is {wanted['code']}), and "
                "figures of both would be mixed; allowed: --resume --anew, which runs all of it again, a new "
                "folder, or that code",
            )

    def renew(self) -> None:
        """Make the folder one of this code: what other code ran goes."""
        self._write_document(self.description() | {"code": code_digest()})
        for file in self._manifests():
            if manifest_in(self.storage, file, SweepSegment).code != code_digest():
                self.storage.delete(file)

    def claim(self, experiment: Experiment) -> None:
        """Make the folder this experiment's, after `check`. Tables that were made of fewer runs go."""
        self.storage.delete(MADE_FILE)
        for name in MADE_TABLES:
            self.storage.delete(_made(name))
        self.describe(experiment)

    def describe(self, experiment: Experiment) -> None:
        """Write `experiment.json`, or add the seeds that it does not have; it loses none."""
        document = self.experiment()
        known = [] if document is None else document["seeds"]
        more = [seed for seed in experiment.seeds if seed not in known]
        if more:
            self._write_document(_described(replace(experiment, seeds=(*known, *more))))

    def _write_document(self, document: Mapping[str, Any]) -> None:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        put_sure(self.storage, EXPERIMENT_FILE, text + b"\n")
        self._document = None

    def experiment(self) -> dict[str, Any] | None:
        """The folder's `experiment.json`; None if there is none."""
        if self._document is not None:
            return self._document
        data = self.storage.read_if_there(EXPERIMENT_FILE)
        if data is None:
            return None
        name = self.storage.name(EXPERIMENT_FILE)
        try:
            document = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = "is empty" if not data else f"is no experiment description: {error}"
            raise FileError(name, f"{problem}; remove it if the folder holds nothing of value") from error
        if document.get("folder") != VERSION:
            by = document.get("roamcast", "an unknown version")
            raise FileError(
                name,
                f"was written by Roamcast {by}, in a layout that this version does not read; "
                "read it with that version, or sweep again into a new folder",
            )
        self._document = document
        return document

    def description(self) -> dict[str, Any]:
        """The same, or a `FileError`."""
        found = self.experiment()
        if found is None:
            path = self.storage.path
            state = "is no folder" if path is not None and not path.is_dir() else "is no sweep's folder"
            raise FileError(str(self.storage), f"{state}; allowed: a folder that `roamcast sweep` wrote")
        return found

    def whole(self, experiment: Experiment) -> Experiment:
        """The experiment with all seeds of the folder, once the folder is this experiment's."""
        return replace(experiment, seeds=tuple(self.description()["seeds"]))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the experiment, once the folder has one."""
        return str(self.description()["fingerprint"])

    @property
    def code(self) -> str:
        """The digest of the code that ran all that is here."""
        return str(self.description().get("code", ""))

    # Runs.

    def commit(
        self, runs: Sequence[tuple[RunRecord, Mapping[str, pa.Table]]], metrics: Sequence[str]
    ) -> SweepSegment:
        """Write a segment: its tables, then its manifest. Nobody else writes under the same name."""
        name = f"{runs[0][0].run}-{uuid.uuid4().hex[:8]}"
        files = {}
        for table in TRACE_TABLES:
            parts = [with_run(tables[table], record.run) for record, tables in runs if record.rows.get(table)]
            if parts:
                file = f"{table}/{name}.parquet"
                files[table] = put_table(self.storage, file, pa.concat_tables(parts), self._lineage())
        segment = SweepSegment(
            name=name,
            version=VERSION,
            roamcast=roamcast.__version__,
            experiment=self.fingerprint,
            code=code_digest(),
            metrics=tuple(metrics),
            runs=tuple(record for record, _ in runs),
            files=files,
        )
        put_manifest(self.storage, segment.manifest, segment)
        return segment

    def segments(self) -> list[SweepSegment]:
        """All that is committed, or a `FileError` for a manifest that is not as it was written."""
        self._read(self._manifests())
        return list(self._segments.values())

    def records(self) -> dict[str, RunRecord]:
        """Each run that ended, once: a success before a failure, then the latest attempt."""
        return {run: record for run, (_, record) in self.counted().items()}

    def counted(self) -> dict[str, tuple[SweepSegment, RunRecord]]:
        """The same with where its rows are. Whoever reads a sweep goes by this: a run may stand in two
        segments, because a worker that was thought dead went on."""
        found: dict[str, tuple[SweepSegment, RunRecord]] = {}
        for segment in self.segments():
            for record in segment.runs:
                known = found.get(record.run)
                if known is None or _rank(record) > _rank(known[1]):
                    found[record.run] = segment, record
        return found

    # Tables.

    def parts(self, table: str, runs: Collection[str] | None = None) -> list[TablePart]:
        """The files with the rows of one trace table, of all runs or some; no others need be opened."""
        counted = self.counted()
        wanted: dict[str, tuple[SweepSegment, set[str]]] = {}
        for run in counted if runs is None else [run for run in runs if run in counted]:
            segment, record = counted[run]
            if record.rows.get(table):
                wanted.setdefault(segment.name, (segment, set()))[1].add(run)
        chosen = {run for _, mine in wanted.values() for run in mine}
        found = []
        for segment, mine in wanted.values():
            others = {record.run for record in segment.runs if record.rows.get(table)} - mine
            part = segment.file(table), segment.files[table], frozenset(mine), bool(others)
            found.append(TablePart(*part, bool(others & chosen)))
        return found

    def table(
        self, name: str, runs: Collection[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """A table of the sweep, checked; a trace table of all runs or some, and of all columns or some."""
        if name in MADE_TABLES:
            return table_in(self.storage, _made(name), self.made().get(name))
        names = None if columns is None else ["run", *(column for column in columns if column != "run")]
        empty = with_run(schema(KINDS[name]).empty_table(), "")
        with ThreadPoolExecutor(READERS) as pool:
            read = pool.map(lambda part: part.read(self.storage, names), self.parts(name, runs))
            parts = [part.replace_schema_metadata() for part in read]
        return pa.concat_tables([empty if names is None else empty.select(names), *parts])

    def made(self) -> dict[str, SealedFile]:
        """Which of `MADE_TABLES` there are, and what they must be."""
        if not self.storage.exists(MADE_FILE):
            return {}
        return manifest_in(self.storage, MADE_FILE, MadeTables).files

    def _manifests(self) -> list[str]:
        return [file for file in self.storage.files(MANIFEST) if file.endswith(".json")]

    def _read(self, files: Iterable[str]) -> None:
        new = [file for file in files if file not in self._segments]
        if not new:
            return
        with ThreadPoolExecutor(READERS) as pool:
            found = pool.map(lambda file: manifest_in(self.storage, file, SweepSegment), new)
            for file, segment in zip(new, found, strict=True):
                if segment.experiment != self.fingerprint:
                    raise FileError(self.storage.name(file), "is the manifest of another experiment")
                if segment.code != self.code:
                    raise FileError(
                        self.storage.name(file),
                        f"is of other code ({segment.code}) than the rest ({self.code})",
                    )
                if segment.manifest != file:
                    raise FileError(
                        self.storage.name(file), f"is the manifest of {segment.name} under another name"
                    )
                self._segments[file] = segment

    # Checking.

    def mend(self, digests: bool, compare: "Compare | None" = None) -> list[str]:
        """Find what is not as it was written, and set it aside: a line for each. The runs that were in it are
        missing from then on. Only when no worker is writing any more. `compare`: who reads all files, by
        default this process."""
        found = [*self._mend_manifests(), *self._mend_tables(digests, compare or self._compare)]
        self.drop_doubles()
        return [*found, *self._mend_extras()]

    def _mend_manifests(self) -> list[str]:
        problems = []
        for file in self._manifests():
            try:
                self._read([file])
            except FileError as error:
                problems.append(str(error))
                set_aside(self.storage, file)
        return problems

    def _mend_tables(self, digests: bool, compare: "Compare") -> list[str]:
        sizes = self.storage.files()
        wrong: dict[str, str] = {}
        for manifest, segment in self._segments.items():
            try:
                for table, expected in segment.files.items():
                    file = segment.file(table)
                    expected.check_size(self.storage.name(file), sizes.get(file))
            except FileError as error:
                wrong[manifest] = str(error)
        if digests:
            fresh = [each for each in self._segments if each not in wrong and each not in self._digested]
            slim = [msgspec.structs.replace(self._segments[each], metrics=(), runs=()) for each in fresh]
            for manifest, problem in zip(fresh, compare(slim), strict=True):
                if problem is None:
                    self._digested.add(manifest)
                else:
                    wrong[manifest] = problem
        problems = []
        for manifest, problem in wrong.items():
            segment = self._segments[manifest]
            problems.append(f"{problem} ({len(segment.runs)} runs)")
            self._remove(manifest)
            for table in segment.files:
                if segment.file(table) in sizes:
                    set_aside(self.storage, segment.file(table))
        return problems

    def _compare(self, segments: Sequence[SweepSegment]) -> list[str | None]:
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda segment: segment.problem(self.storage), segments))

    def drop_doubles(self) -> None:
        """Where segments share a run, keep the largest one. Runs that only the others had are run again."""
        kept: set[str] = set()
        for manifest, segment in sorted(
            self._segments.items(), key=lambda found: (-len(found[1].runs), found[0])
        ):
            ended_well = {record.run for record in segment.runs if record.status == OK}
            if ended_well & kept:
                self._remove(manifest)
            else:
                kept |= ended_well

    def _mend_extras(self) -> list[str]:
        """What no manifest names: leftovers of workers that died are removed, other files are set aside."""
        known = {segment.file(table) for segment in self._segments.values() for table in segment.files}
        problems = []
        for table in (*TRACE_TABLES, *MADE_TABLES):
            for file in self.storage.files(table):
                if file in known or file == _made(table):
                    continue
                if _SEGMENT_NAME.fullmatch(file.removeprefix(f"{table}/").removesuffix(".parquet")):
                    self.storage.delete(file)
                else:
                    problems.append(f"{self.storage.name(file)}: belongs to no run of this sweep")
                    set_aside(self.storage, file)
        return problems

    def _remove(self, manifest: str) -> None:
        del self._segments[manifest]
        self.storage.delete(manifest)

    def put_made(self, tables: Mapping[str, pa.Table]) -> None:
        """All of `MADE_TABLES`, in place of the earlier ones."""
        files = {name: put_table(self.storage, _made(name), tables[name], self._lineage()) for name in tables}
        put_manifest(self.storage, MADE_FILE, MadeTables(files))

    def _lineage(self) -> dict[str, str]:
        return {
            "roamcast.schema": str(VERSION),
            "roamcast.version": roamcast.__version__,
            "roamcast.experiment": self.fingerprint,
            "roamcast.code": self.code,
        }


def _rank(record: RunRecord) -> tuple[bool, int, float]:
    return record.status != FAILED, record.attempt, record.seconds


def _made(name: str) -> str:
    return f"{name}/{name}.parquet"


def _described(experiment: Experiment) -> dict[str, Any]:
    document = {"folder": VERSION, "fingerprint": experiment.fingerprint, "code": code_digest()}
    document |= experiment.to_dict()
    return msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])
