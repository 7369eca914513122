"""Segments: several runs in one file per table, and the manifest that commits them.

    <table>/<segment>.parquet      the rows of the segment's runs, with a leading column `run`; none if empty
    manifest/<segment>.json        written last: what the segment holds, with sizes, row counts and digests

A segment is there when its manifest is; a worker that dies before has left files that nobody reads. The
manifest has a digest of itself, and one of each file that it names, so that what was lost, cut or changed
since is noticed before anything is computed from it. Figures of a run are in its record: they were measured
before its rows were written.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

import roamcast
from roamcast.errors import FileError
from roamcast.lab.run.derived import TABLES
from roamcast.lab.run.metrics import Figure
from roamcast.lab.run.tables import RunInfo, with_run
from roamcast.lab.storage import Storage

MANIFEST = "manifest"
TRACE_TABLES = tuple(kind.TABLE for kind in TABLES)
VERSION = 2  # of a sweep's folder and its tables; 1 was a file per run and table, without digests
OK, FAILED = "ok", "failed"


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


class SegmentFile(msgspec.Struct, frozen=True, kw_only=True):
    """One table's file of a segment."""

    rows: int
    size: int
    sha256: str


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says."""

    name: str
    version: int
    roamcast: str
    experiment: str  # its fingerprint
    metrics: tuple[str, ...]  # that were measured, also those without a value
    runs: tuple[RunRecord, ...]
    files: dict[str, SegmentFile]  # by table

    def file(self, table: str) -> str:
        return f"{table}/{self.name}.parquet"


class _Signed(msgspec.Struct, frozen=True):
    """The manifest as it is written. The digest is that of the segment's own text."""

    sha256: str
    segment: msgspec.Raw


def commit(
    storage: Storage,
    experiment: str,
    runs: Sequence[tuple[RunRecord, Mapping[str, pa.Table]]],
    metrics: Sequence[str],
) -> Segment:
    """Write a segment: its tables, then its manifest. Nobody else writes under the same name."""
    name = f"{runs[0][0].run}-{uuid.uuid4().hex[:8]}"
    files = {}
    for table in TRACE_TABLES:
        parts = [with_run(tables[table], record.run) for record, tables in runs if record.rows.get(table)]
        if parts:
            whole = pa.concat_tables(parts)
            data = parquet(whole, experiment)
            storage.write(f"{table}/{name}.parquet", data)
            files[table] = SegmentFile(rows=len(whole), size=len(data), sha256=_digest(data))
    segment = Segment(
        name=name,
        version=VERSION,
        roamcast=roamcast.__version__,
        experiment=experiment,
        metrics=tuple(metrics),
        runs=tuple(record for record, _ in runs),
        files=files,
    )
    text = msgspec.json.encode(segment)
    signed = msgspec.json.encode(_Signed(_digest(text), msgspec.Raw(text)))
    storage.write(f"{MANIFEST}/{name}.json", signed)
    return segment


def read_segment(storage: Storage, file: str) -> Segment:
    """A segment by the name of its manifest, or a `FileError` if it is not as it was written."""
    data = storage.read(file)
    try:
        signed = msgspec.json.decode(data, type=_Signed)
        if _digest(bytes(signed.segment)) != signed.sha256:
            raise FileError(storage.name(file), "has not the digest that it was written with")
        segment = msgspec.json.decode(signed.segment, type=Segment)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        empty = "is empty" if not data else f"is no manifest of a segment: {error}"
        raise FileError(storage.name(file), empty) from error
    if file != f"{MANIFEST}/{segment.name}.json":
        raise FileError(storage.name(file), f"is the manifest of {segment.name} under another name")
    return segment


def read_table(storage: Storage, segment: Segment, table: str) -> pa.Table | None:
    """The rows of one table, checked against the manifest; None if the segment has none."""
    if table not in segment.files:
        return None
    data = checked(storage, segment, table)
    try:
        found = pq.ParquetFile(pa.BufferReader(data)).read()
    except pa.ArrowException as error:
        raise FileError(storage.name(segment.file(table)), f"is no Parquet file: {error}") from error
    if len(found) != segment.files[table].rows:
        rows = f"has {len(found)} rows; its manifest says {segment.files[table].rows}"
        raise FileError(storage.name(segment.file(table)), rows)
    return found


def checked(storage: Storage, segment: Segment, table: str) -> bytes:
    """A file's content, or a `FileError` if it is not what the manifest says."""
    file, expected = segment.file(table), segment.files[table]
    data = storage.read(file)
    if len(data) != expected.size:
        raise FileError(storage.name(file), f"has {len(data)} octets; its manifest says {expected.size}")
    if _digest(data) != expected.sha256:
        raise FileError(storage.name(file), "has not the digest that its manifest says")
    return data


def parquet(table: pa.Table, experiment: str) -> pa.Buffer:
    """A table as the content of a file, which says where it comes from."""
    lineage = {
        "roamcast.schema": str(VERSION),
        "roamcast.version": roamcast.__version__,
        "roamcast.experiment": experiment,
    }
    sink = pa.BufferOutputStream()
    metadata: dict[Any, Any] = {**(table.schema.metadata or {}), **lineage}
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue()


def _digest(data: bytes | pa.Buffer) -> str:
    return hashlib.sha256(data).hexdigest()
