"""A sweep's folder, on a disk or in an object store.

    experiment.json                what is swept; a folder holds one experiment
    manifest/ <table>/             the segments (`segments.py`): runs with their figures and rows
    runs/ metrics/ summary/        made from the manifests when all runs have ended
    aside/                         what was no longer as it had been written, and what does not belong here

Every file is whole or not there. Nothing is appended, renamed or locked, so workers on many machines can
write at once. A run that was written twice (a worker that was thought dead went on) counts once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment
from roamcast.lab.sweep.segments import (
    FAILED,
    MANIFEST,
    OK,
    TRACE_TABLES,
    VERSION,
    RunRecord,
    Segment,
    checked,
    commit,
    parquet,
    read_segment,
)

EXPERIMENT_FILE = "experiment.json"
MADE_TABLES = ("runs", "metrics", "summary")
ASIDE = "aside"
READERS = 8  # files read at a time; chosen by us, for object stores far away
# `<cell>-<seed>-<digest of the scenario>-<chance>`: a leftover of a worker that died is one of these.
_SEGMENT_NAME = re.compile(r"\d+-\d+-[0-9a-f]{8}-[0-9a-f]{8}")


class SweepFolder:
    """The files of one sweep. Workers and the driver see the same folder, each through its own object."""

    def __init__(self, place: Storage | Path | str) -> None:
        self.storage = Storage.open(place)
        self._segments: dict[str, Segment] = {}  # by the manifest's file; a manifest never changes
        self._digested: set[str] = set()  # those whose files were compared in full
        self._document: dict[str, Any] | None = None

    # Beginning.

    def check(self, experiment: Experiment, resume: bool) -> None:
        """Whether the folder is, or may become, this experiment's. Nothing is written."""
        document = self.experiment()
        if document is None:
            path = self.storage.path
            if path is not None and path.exists() and not path.is_dir():
                raise InputError(str(self.storage), "is a file; allowed: a new or empty folder")
            if found := next(iter(self.storage.files()), None):
                raise InputError(
                    str(self.storage), f"holds something else ({found}); allowed: a new or empty folder"
                )
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
    ) -> Segment:
        return commit(self.storage, self.fingerprint, runs, metrics)

    def segments(self) -> list[Segment]:
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
            for file, segment in zip(
                new, pool.map(lambda f: read_segment(self.storage, f), new), strict=True
            ):
                if segment.experiment != self.fingerprint:
                    raise FileError(self.storage.name(file), "is the manifest of another experiment")
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
                self._set_aside(file)
        return problems

    def _mend_tables(self, digests: bool) -> list[str]:
        sizes = self.storage.files()

        def problem(found: tuple[str, Segment]) -> FileError | None:
            for table, expected in found[1].files.items():
                file = found[1].file(table)
                try:
                    if file not in sizes:
                        raise FileError(self.storage.name(file), "is missing")
                    if sizes[file] != expected.size:
                        octets = f"has {sizes[file]} octets; its manifest says {expected.size}"
                        raise FileError(self.storage.name(file), octets)
                    if digests and found[0] not in self._digested:
                        checked(self.storage, found[1], table)
                except FileError as error:
                    return error
            if digests:
                self._digested.add(found[0])
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
                            self._set_aside(segment.file(table))
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
                    self._set_aside(file)
        return problems

    def _set_aside(self, file: str) -> None:
        self.storage.move(file, f"{ASIDE}/{file}")

    def _remove(self, manifest: str) -> None:
        del self._segments[manifest]
        self.storage.delete(manifest)

    # Tables of the whole sweep.

    def put_table(self, name: str, table: pa.Table) -> None:
        """One of `MADE_TABLES`, in place of the earlier one."""
        self.storage.write(_made(name), parquet(table, self.fingerprint))


def latest(segments: Iterable[Segment]) -> dict[str, RunRecord]:
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
