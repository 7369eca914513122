"""A recording of any size, cut up for workers: every fix in a file of its share, grouped by node.

Workers read the shares (`shares.py`), each of which becomes a file. What can only be read
from the front (archives, XML files, BonnMotion's long lines) one worker reads as a stream.

Errors are those of the core: where a share cannot be read, a worker reads the whole recording from the front
with the core's own reader, which names the line.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from roamcast.errors import FileError
from roamcast.lab.recordings import shares
from roamcast.lab.recordings.shares import (
    FixTable,
    ReadShare,
    RecordingSource,
    ShareReport,
    Unpack,
    is_compressed,
    shares_of,
    write_share,
)
from roamcast.lab.spark.session import cores_of, mapped
from roamcast.lab.storage import Storage
from roamcast.units import micros
from roamcast.world.formats import MOTION_FORMATS, guess
from roamcast.world.formats.fixes import FixStream, MotionOptions
from roamcast.world.formats.motion_tables import parse_header
from roamcast.world.formats.text import SECONDS_MAX, name_order

SHARE_FIXES = 1 << 18  # of a stream; as Python values they take about 300 bytes each
BUCKETS_MAX = 1024  # record batches per share file
BUCKET_BYTES = 1 << 23  # of text; its fixes take about twenty times as much memory while they are cut
CLUSTER_CORES = 8  # at least; a cluster's come and go. Large recordings have a task for each `BUCKET_BYTES`
HEAD_BYTES = 1 << 20  # of a file elsewhere, from which its format is told; chosen by us
EXPANDS = 8  # a compressed table is about so many times as long as its archive


@dataclass(frozen=True)
class Recording:
    """Fixes on disk, ready for workers."""

    buckets: int
    geographic: bool
    reports: list[ShareReport]

    @property
    def fixes(self) -> int:
        return sum(report.fixes for report in self.reports)

    def names(self) -> list[str]:
        """What the recording calls its nodes; a node's number is the position of its name."""
        return sorted({name for report in self.reports for name, _ in report.names}, key=name_order)

    def file_of(self, name: str) -> str:
        return next(file for report in self.reports for known, file in report.names if known == name)

    def line(self, share: int, line: int) -> int:
        """The line of the file, for a line of a share. Files that are split by lines begin with a header."""
        before = sum(report.lines for report in self.reports if report.number < share)
        return line + before + any(report.lines for report in self.reports)


def trace_of(uri: str | Path, format: str | None, max_gap: float | None, geographic: bool) -> RecordingSource:
    """The trace with its format's defaults, or an `InputError`."""
    folder, file = _place(uri)
    name = folder.name(file)
    known = sorted(MOTION_FORMATS)
    chosen = format or _guessed(folder, file)
    if chosen is None:
        raise guess.refusal(Path(name), known)
    if chosen not in MOTION_FORMATS:
        raise FileError(name, f"format is {chosen!r}; known are {', '.join(known)}")
    defaults = MOTION_FORMATS[chosen]
    gap = defaults.max_gap
    if max_gap is not None:
        if not max_gap > 0:
            raise FileError("max_gap", f"is {max_gap}; it is a number of seconds above 0")
        gap = None if max_gap > SECONDS_MAX else micros(max_gap)
    options = MotionOptions(max_gap=gap, conflict=defaults.conflict, geographic=geographic)
    return RecordingSource(folder, file, chosen, options)


def _place(uri: str | Path) -> tuple[Storage, str]:
    """The folder and the file in it; no file if the recording is a folder."""
    whole = Storage.open(uri)
    if whole.path is not None and whole.path.is_dir():
        return whole, ""
    parent, file = Storage.of_file(whole)
    if "/" in whole.root and parent.exists(file):
        return parent, file
    if whole.path is not None or not whole.files():
        raise FileError(str(uri), "does not exist")
    return whole, ""


def _guessed(folder: Storage, file: str) -> str | None:
    if folder.path is not None:
        return guess.motion_format(folder.path / file)
    with TemporaryDirectory(prefix="roamcast-") as name:
        head = Path(name) / file
        if file:
            with folder.opened(file) as source:
                head.write_bytes(source.read(HEAD_BYTES))
        else:  # what counts is how the files are called
            for each in folder.files():
                (head / each.replace("/", "_")).touch()
        return guess.motion_format(head)


def record(spark: SparkSession, trace: RecordingSource, folder: Storage) -> Recording:
    """Read the whole trace into `folder`, which must be empty."""
    buckets = _buckets(trace, cores_of(spark) or CLUSTER_CORES)
    reports = _in_parallel(spark, trace, folder, buckets)
    if reports is None:
        (found,) = mapped(spark, ReadFromTheFront(trace, folder, buckets), [0])
        if isinstance(found, FileError):
            raise found
        reports = found
    if not any(report.fixes for report in reports):
        raise FileError(trace.name, "holds no fix")
    return Recording(buckets, _is_geographic(trace), reports)


def _is_geographic(trace: RecordingSource) -> bool:
    if trace.format != "csv":
        return trace.format in ("cabs", "gpx") or (trace.format == "fcd" and trace.options.geographic)
    return parse_header(shares.first_line(trace), f"{trace.name}:1").geographic


def _buckets(trace: RecordingSource, cores: int) -> int:
    size = sum(trace.sizes().values()) * (EXPANDS if is_compressed(trace) else 1)
    return min(max(2 * cores, size // BUCKET_BYTES), BUCKETS_MAX)


# In parallel.


def _in_parallel(
    spark: SparkSession, trace: RecordingSource, folder: Storage, buckets: int
) -> list[ShareReport] | None:
    """None: it must be read from the front, because of its format or of an error in it."""
    if trace.format in ("csv", "one") and is_compressed(trace):
        (cut,) = mapped(spark, Unpack(trace, folder, shares.SHARE_BYTES), [0])
    else:
        cut = shares_of(trace)
    if not cut:
        return None
    reports = mapped(spark, ReadShare(trace, folder, buckets), cut)
    if any(report.broken for report in reports):
        return None
    with_rows = [report for report in reports if report.fixes]
    if trace.format == "one" and any(late.first < early.last for early, late in pairwise(with_rows)):
        return None  # rows are not sorted by time; the core's reader will say where
    return reports


# From the front.


@dataclass(frozen=True)
class ReadFromTheFront:
    """What one worker does with a recording that cannot be split: all of it, or what is wrong with it."""

    trace: RecordingSource
    folder: Storage
    buckets: int

    def __call__(self, _: int) -> list[ShareReport] | FileError:
        try:
            with self.trace.as_local() as path:
                streams = MOTION_FORMATS[self.trace.format].streams(path, self.trace.options)
                return [
                    write_share(self.folder, number, table, self.buckets)
                    for number, table in enumerate(_tables(streams))
                ]
        except FileError as error:
            return error


def _tables(streams: Iterator[FixStream]) -> Iterator[FixTable]:
    rows = ((stream.where, fix) for stream in streams for fix in stream.fixes)
    while part := list(islice(rows, SHARE_FIXES)):
        # Lines of a stream are lines of its file; no share before it shifts them.
        yield FixTable.of_rows(part).moved(by=0, lines=0)
