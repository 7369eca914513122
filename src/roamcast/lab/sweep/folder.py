"""A sweep's folder, on a disk or in an object store.

    experiment.json                what is swept; a folder holds one experiment
    manifest/<segment>.json        a segment: several runs with their figures, and the files of their rows
    <table>/<segment>.parquet      the rows of the segment's runs, with a leading column `run`; none if empty
    runs/ metrics/ summary/        made from the manifests when all runs have ended
    aside/                         what was no longer as it had been written, and what does not belong here

Every file is whole or not there (`lab/storage/sealed.py`). Nothing is appended, renamed or locked, so workers
on many machines can write at once. A segment is there when its manifest is; a worker that dies before has
left files that nobody reads. A run that was written twice (a worker that was thought dead went on) counts
once. Figures of a run are in its record: they were measured before its rows were written.
"""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

import roamcast
from roamcast.errors import FileError, InputError
from roamcast.lab.run.metrics import Figure
from roamcast.lab.run.tables import TABLES, RunInfo, with_run
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import (
    SealedFile,
    check_is_free,
    manifest_in,
    put_manifest,
    put_table,
    set_aside,
    table_in,
)
from roamcast.lab.sweep.experiment import Experiment

EXPERIMENT_FILE = "experiment.json"
MANIFEST = "manifest"
TRACE_TABLES = tuple(kind.TABLE for kind in TABLES)
MADE_TABLES = ("runs", "metrics", "summary")
VERSION = 2  # of a sweep's folder and its tables; 1 was a file per run and table, without digests
OK, FAILED = "ok", "failed"
READERS = 8  # files read at a time; chosen by us, for object stores far away
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
    metrics: tuple[str, ...]  # that were measured, also those without a value
    runs: tuple[RunRecord, ...]
    files: dict[str, SealedFile]  # by table

    def file(self, table: str) -> str:
        return f"{table}/{self.name}.parquet"

    @property
    def manifest(self) -> str:
        return f"{MANIFEST}/{self.name}.json"

    def read(self, storage: Storage, table: str) -> pa.Table | None:
        """The rows of one table, checked against the manifest; None if the segment has none."""
        return table_in(storage, self.file(table), self.files[table]) if table in self.files else None

    def check(self, storage: Storage, table: str) -> None:
        """A `FileError` if a file is not what the manifest says."""
        self.files[table].check(storage.name(self.file(table)), storage.read(self.file(table)))


class SweepFolder:
    """The files of one sweep. Workers and the driver see the same folder, each through its own object."""

    def __init__(self, place: Storage | Path | str) -> None:
        self.storage = Storage.open(place)
        self._segments: dict[str, SweepSegment] = {}  # by the manifest's file; a manifest never changes
        self._digested: set[str] = set()  # those whose files were compared in full
        self._document: dict[str, Any] | None = None

    # Beginning.

    def check(self, experiment: Experiment, resume: bool) -> None:
        """Whether the folder is, or may become, this experiment's. Nothing is written."""
        document = self.experiment()
        if document is None:
            check_is_free(self.storage)
            return
        wanted = _described(experiment)
        different = [key for key in wanted if key != "seeds" and document.get(key) != wanted[key]]
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

    def claim(self, experiment: Experiment) -> None:
        """Make the folder this experiment's, after `check`. Tables that were made of fewer runs go."""
        for name in MADE_TABLES:
            self.storage.delete(_made(name))
        self.describe(experiment)

    def describe(self, experiment: Experiment) -> None:
        """Write `experiment.json`, or add the seeds that it does not have; it loses none."""
        document = self.experiment()
        known = [] if document is None else document["seeds"]
        more = [seed for seed in experiment.seeds if seed not in known]
        if more:
            whole = replace(experiment, seeds=(*known, *more))
            text = msgspec.json.format(msgspec.json.encode(_described(whole)), indent=2)
            self.storage.write(EXPERIMENT_FILE, text + b"\n")
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

    def whole(self, experiment: Experiment) -> Experiment:
        """With all seeds of the folder, once it is this experiment's."""
        document = self.experiment()
        assert document is not None
        return replace(experiment, seeds=tuple(document["seeds"]))

    @property
    def fingerprint(self) -> str:
        """Of the experiment, once the folder has one."""
        document = self.experiment()
        assert document is not None
        return str(document["fingerprint"])

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
        return latest(self.segments())

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
                if segment.manifest != file:
                    raise FileError(
                        self.storage.name(file), f"is the manifest of {segment.name} under another name"
                    )
                self._segments[file] = segment

    # Checking.

    def mend(self, digests: bool) -> list[str]:
        """Find what is not as it was written, and set it aside: a line for each. The runs that were in it are
        missing from then on. Only when no worker is writing any more."""
        found = [*self._mend_manifests(), *self._mend_tables(digests)]
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

    def _mend_tables(self, digests: bool) -> list[str]:
        sizes = self.storage.files()

        def problem(found: tuple[str, SweepSegment]) -> FileError | None:
            manifest, segment = found
            try:
                for table, expected in segment.files.items():
                    file = segment.file(table)
                    expected.check_size(self.storage.name(file), sizes.get(file))
                    if digests and manifest not in self._digested:
                        segment.check(self.storage, table)
            except FileError as error:
                return error
            if digests:
                self._digested.add(manifest)
            return None

        problems = []
        committed = list(self._segments.items())
        with ThreadPoolExecutor(READERS) as pool:
            for (manifest, segment), error in zip(committed, pool.map(problem, committed), strict=True):
                if error is not None:
                    problems.append(f"{error} ({len(segment.runs)} runs)")
                    self._remove(manifest)
                    for table in segment.files:
                        if segment.file(table) in sizes:
                            set_aside(self.storage, segment.file(table))
        return problems

    def drop_doubles(self) -> None:
        """Of segments that share a run, the largest stays; what else was in the others is run again."""
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

    # Tables of the whole sweep.

    def put_table(self, name: str, table: pa.Table) -> None:
        """One of `MADE_TABLES`, in place of the earlier one."""
        put_table(self.storage, _made(name), table, self._lineage())

    def _lineage(self) -> dict[str, str]:
        return {
            "roamcast.schema": str(VERSION),
            "roamcast.version": roamcast.__version__,
            "roamcast.experiment": self.fingerprint,
        }


def latest(segments: Iterable[SweepSegment]) -> dict[str, RunRecord]:
    """The record that counts of each run."""
    found: dict[str, RunRecord] = {}
    for segment in segments:
        for record in segment.runs:
            known = found.get(record.run)
            if known is None or _rank(record) > _rank(known):
                found[record.run] = record
    return found


def _rank(record: RunRecord) -> tuple[bool, int, float]:
    return record.status != FAILED, record.attempt, record.seconds


def _made(name: str) -> str:
    return f"{name}/{name}.parquet"


def _described(experiment: Experiment) -> dict[str, Any]:
    document = {"folder": VERSION, "fingerprint": experiment.fingerprint} | experiment.to_dict()
    return msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])
