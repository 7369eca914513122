"""A recording of any size, cut up for workers: every fix in a file of its share, grouped by node.

Workers read the shares (`shares.py`); what can only be read from the front (archives, compressed and XML
files, BonnMotion's long lines) the driver reads as a stream. Each share becomes a file (`share_files.py`).

Errors are those of the core: where a share cannot be read, the driver reads the whole recording from the
front with the core's own reader, which names the line.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import IO

from pyspark import SparkContext

from roamcast.errors import FileError
from roamcast.lab.recordings import shares
from roamcast.lab.recordings.share_files import FixTable, ShareReport, write_share
from roamcast.lab.recordings.shares import ReadShare, RecordingSource, shares_of
from roamcast.units import micros
from roamcast.world.formats import MOTION_FORMATS
from roamcast.world.formats.motion import bonnmotion, cabs, csv_fixes, fcd, gpx, ns2, one_movement
from roamcast.world.formats.motion.fixes import Fix, MotionOptions
from roamcast.world.formats.text import guess, numbers
from roamcast.world.formats.text.source import lines, opened
from roamcast.world.trajectory import Motion

SHARE_FIXES = 1 << 18  # of a stream; as Python values they take about 300 bytes each
BUCKETS_MAX = 1024  # record batches per share file


@dataclass(frozen=True)
class Recording:
    """Fixes on disk, ready for workers."""

    folder: Path
    buckets: int
    geographic: bool
    reports: list[ShareReport]

    @property
    def fixes(self) -> int:
        return sum(report.fixes for report in self.reports)

    def names(self) -> list[str]:
        """What the recording calls its nodes; a node's number is the position of its name."""
        return sorted({name for report in self.reports for name, _ in report.names}, key=numbers.name_order)

    def file_of(self, name: str) -> str:
        return next(file for report in self.reports for known, file in report.names if known == name)

    def line(self, share: int, line: int) -> int:
        """The line of the file, for a line of a share. Files that are split by lines begin with a header."""
        before = sum(report.lines for report in self.reports if report.number < share)
        return line + before + any(report.lines for report in self.reports)


def trace_of(path: Path, format: str | None, max_gap: float | None, geographic: bool) -> RecordingSource:
    """The trace with its format's defaults, or an `InputError`."""
    if not path.exists():
        raise FileError(str(path), "does not exist")
    known = sorted(MOTION_FORMATS)
    chosen = format or guess.motion_format(path)
    if chosen is None:
        raise guess.refusal(path, known)
    if chosen not in MOTION_FORMATS:
        raise FileError(str(path), f"format is {chosen!r}; known are {', '.join(known)}")
    defaults = MOTION_FORMATS[chosen]
    gap = defaults.max_gap
    if max_gap is not None:
        if not max_gap > 0:
            raise FileError("max_gap", f"is {max_gap}; it is a number of seconds above 0")
        gap = None if max_gap > numbers.SECONDS_MAX else micros(max_gap)
    return RecordingSource(
        path, chosen, MotionOptions(max_gap=gap, conflict=defaults.conflict, geographic=geographic)
    )


def record(context: SparkContext, trace: RecordingSource, folder: Path) -> Recording:
    """Read the whole trace into `folder`, which must be there and empty."""
    buckets = _buckets(trace.path, context.defaultParallelism)
    reports = _in_parallel(context, trace, folder, buckets)
    if reports is None:
        reports = _from_the_front(trace, folder, buckets)
    if not any(report.fixes for report in reports):
        raise FileError(str(trace.path), "holds no fix")
    return Recording(folder, buckets, _is_geographic(trace), reports)


def _is_geographic(trace: RecordingSource) -> bool:
    if trace.format == "csv":
        with opened(trace.path) as stream:
            header = next(lines(stream, str(trace.path)), "")
        return csv_fixes.parse_header(header, f"{trace.path}:1").geographic
    return trace.format in ("cabs", "gpx") or (trace.format == "fcd" and trace.options.geographic)


def _buckets(path: Path, parallelism: int) -> int:
    files = [path] if path.is_file() else list(path.iterdir())
    size = sum(file.stat().st_size for file in files if file.is_file())
    return min(max(2 * parallelism, size // shares.SHARE_BYTES), BUCKETS_MAX)


# In parallel.


def _in_parallel(
    context: SparkContext, trace: RecordingSource, folder: Path, buckets: int
) -> list[ShareReport] | None:
    """None: it must be read from the front, because of its format or of an error in it."""
    cut = shares_of(trace)
    if len(cut) < 2:
        return None
    work = ReadShare(trace, str(folder), buckets)
    reports = context.parallelize(cut, len(cut)).map(work).collect()
    if any(report.broken for report in reports):
        return None
    with_rows = [report for report in reports if report.fixes]
    if trace.format == "one" and any(late.first < early.last for early, late in pairwise(with_rows)):
        return None  # rows are not sorted by time; the core's reader will say where
    return reports


# From the front.


def _from_the_front(trace: RecordingSource, folder: Path, buckets: int) -> list[ShareReport]:
    reports = []
    for number, table in enumerate(_tables(_streams(trace))):
        reports.append(write_share(folder, number, table, buckets))
    return reports


def _tables(streams: Iterator[tuple[str, Iterable[Fix]]]) -> Iterator[FixTable]:
    rows = ((file, fix) for file, fixes in streams for fix in fixes)
    while part := list(islice(rows, SHARE_FIXES)):
        # Lines of a stream are lines of its file; no share before it shifts them.
        yield FixTable.of_rows(part).moved(by=0, lines=0)


def _streams(trace: RecordingSource) -> Iterator[tuple[str, Iterable[Fix]]]:
    """The fixes of each file of a trace, by the core's readers."""
    path, where = trace.path, str(trace.path)
    if trace.format == "cabs":
        seen: set[str] = set()
        for node, file, text in cabs._cabs(path):
            if node in seen:
                raise FileError(file, f"is a second file for cab {node}; one file per cab")
            seen.add(node)
            yield file, cabs.parse_fixes(text, node, file)
    elif trace.format == "gpx":
        for each in sorted(path.glob("*.gpx")) if path.is_dir() else [path]:
            name = numbers.name_of(each.name.removesuffix(".gz").removesuffix(".gpx"), str(each), "file name")
            with opened(each) as stream:
                yield str(each), gpx.parse_fixes(stream, name, str(each))
    elif trace.format == "ns2":
        yield where, _fixes_of(ns2.read(path, trace.options))
    else:
        with opened(path) as stream:
            yield where, _fixes_in(trace, stream, where)


def _fixes_in(trace: RecordingSource, stream: IO[bytes], where: str) -> Iterable[Fix]:
    match trace.format:
        case "csv":
            return csv_fixes.parse_fixes(lines(stream, where), where)
        case "one":
            return one_movement.parse_fixes(lines(stream, where), where)
        case "bonnmotion":
            text = lines(stream, where, bytes_max=bonnmotion.LINE_BYTES_MAX)
            return bonnmotion.parse_fixes(text, where)
        case "fcd":
            return fcd.parse_fixes(stream, where, geographic=trace.options.geographic)
    raise FileError(where, f"format {trace.format} cannot be read here")


def _fixes_of(motion: Motion) -> Iterator[Fix]:
    """The fixes of a motion that its reader had to build as a whole."""
    for node, path in enumerate(motion.trajectories):
        name = motion.names[node] if motion.names else str(node)
        gaps = [False, *path.gap.tolist()]
        for time, x, y, gap in zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), gaps, strict=True):
            yield Fix(name, time, x, y, 0, gap)
