"""A recording of any size, cut up for workers: every fix in a file of its share, grouped by node.

A share is a stretch of the recording that one worker reads on its own. Tables of rows (CSV, The ONE's
movement) are cut by bytes, folders of cab files by file; what can only be read from the front (archives,
compressed and XML files, BonnMotion's long lines) the driver reads as a stream. Each share becomes an Arrow
file with one record batch per bucket of nodes, so that later one worker can gather all fixes of its bucket
without looking at the others.

What is wrong is told exactly as the core tells it: where a share cannot be read, the driver reads the whole
recording from the front with the core's own reader, and that one names the line.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]
from pyspark import SparkContext

from roamcast.errors import FileError
from roamcast.units import SECOND, micros
from roamcast.world.formats import MOTION_FORMATS
from roamcast.world.formats.motion import bonnmotion, cabs, csv_fixes, fcd, gpx, ns2, one_movement
from roamcast.world.formats.motion.fixes import Fix, MotionOptions
from roamcast.world.formats.text import guess, numbers
from roamcast.world.formats.text.source import ROW_BYTES_MAX, lines, opened
from roamcast.world.trajectory import Motion

SHARE_BYTES = 1 << 24
SHARE_FIXES = 1 << 18  # of a stream; as Python values they take about 300 bytes each
BUCKETS_MAX = 1024  # record batches per share file

_SCHEMA = pa.schema(
    [
        ("name", pa.int32()),  # position in the list of names in the schema's metadata
        ("time", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("line", pa.int64()),  # counted from the share's first line
        ("returns", pa.bool_()),
    ]
)
_NAMES = b"names"


class Share(NamedTuple):
    """What one worker reads: files in a row, or the lines that begin in `[begin, end)` of one."""

    number: int
    files: tuple[str, ...]
    begin: int = 0
    end: int | None = None  # None: whole files


class ShareReport(NamedTuple):
    """What a worker found. `broken`: something in it is wrong, or needs the rows before it to be read."""

    number: int
    broken: bool
    fixes: int = 0
    lines: int = 0
    first: int = 0  # time of the first and of the last row, microseconds
    last: int = 0
    names: tuple[tuple[str, str], ...] = ()  # node, and the file that it is in


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
        """The line of the file, for a line of a share. What is cut by lines has a header before them."""
        before = sum(report.lines for report in self.reports if report.number < share)
        return line + before + any(report.lines for report in self.reports)


@dataclass(frozen=True)
class RecordingSource:
    """What the user named, and how to read it."""

    path: Path
    format: str
    options: MotionOptions


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


def batches(
    folder: Path, reports: Sequence[ShareReport], bucket: int
) -> Iterator[tuple[int, Any, list[str]]]:
    """`(share, record batch, names)` of one bucket, in the order of the recording."""
    for report in reports:
        with pa.memory_map(str(share_file(folder, report.number))) as source:
            reader = pa.ipc.open_file(source)
            names = msgspec.json.decode(reader.schema.metadata[_NAMES], type=list[str])
            yield report.number, reader.get_batch(bucket), names


def share_file(folder: Path, number: int) -> Path:
    return folder / f"share-{number:06d}.arrow"


def _is_geographic(trace: RecordingSource) -> bool:
    if trace.format == "csv":
        with opened(trace.path) as stream:
            header = next(lines(stream, str(trace.path)), "")
        return csv_fixes.parse_header(header, f"{trace.path}:1").geographic
    return trace.format in ("cabs", "gpx") or (trace.format == "fcd" and trace.options.geographic)


def _buckets(path: Path, parallelism: int) -> int:
    files = [path] if path.is_file() else list(path.iterdir())
    size = sum(file.stat().st_size for file in files if file.is_file())
    return min(max(2 * parallelism, size // SHARE_BYTES), BUCKETS_MAX)


# In parallel.


def _in_parallel(
    context: SparkContext, trace: RecordingSource, folder: Path, buckets: int
) -> list[ShareReport] | None:
    """None: it must be read from the front, be it for its format or for what is wrong in it."""
    shares = _shares(trace)
    if len(shares) < 2:
        return None
    work = ReadShare(trace, str(folder), buckets)
    reports = context.parallelize(shares, len(shares)).map(work).collect()
    if any(report.broken for report in reports):
        return None
    with_rows = [report for report in reports if report.fixes]
    if trace.format == "one" and any(late.first < early.last for early, late in pairwise(with_rows)):
        return None  # rows are not sorted by time; the core's reader will say where
    return reports


def _shares(trace: RecordingSource) -> list[Share]:
    path = trace.path
    if trace.format == "cabs" and path.is_dir():
        files = [file for file in sorted(path.glob("*.txt")) if not file.name.startswith(("_", "."))]
        return _shares_of_files(files)
    if trace.format in ("csv", "one") and path.is_file():
        with path.open("rb") as raw:
            if raw.read(2) == b"\x1f\x8b":
                return []
        size = path.stat().st_size
        return [
            Share(number, (str(path),), begin, min(begin + SHARE_BYTES, size))
            for number, begin in enumerate(range(0, size, SHARE_BYTES))
        ]
    return []


def _shares_of_files(files: list[Path]) -> list[Share]:
    shares: list[Share] = []
    chosen: list[str] = []
    size = 0
    for file in files:
        chosen.append(str(file))
        size += file.stat().st_size
        if size >= SHARE_BYTES:
            shares.append(Share(len(shares), tuple(chosen)))
            chosen, size = [], 0
    return [*shares, Share(len(shares), tuple(chosen))] if chosen else shares


@dataclass(frozen=True)
class ReadShare:
    """What a worker does with one share."""

    trace: RecordingSource
    folder: str
    buckets: int

    def __call__(self, share: Share) -> ShareReport:
        # Whatever is wrong, the driver will find it again and name the line.
        with suppress(FileError, OSError):
            table = self._table(share)
            if table is not None:
                return _write(Path(self.folder), share.number, table, self.buckets)
        return ShareReport(share.number, broken=True)

    def _table(self, share: Share) -> "FixTable | None":
        if self.trace.format == "cabs":
            return FixTable.of(_cab_fixes(share.files))
        (file,) = share.files
        header, data = _stretch(Path(file), share)
        if data is None:
            return None
        if self.trace.format == "csv":
            # Quotes may hold line ends, and then a line is not a row.
            if b'"' in data:
                return None
            columns = csv_fixes.parse_header(header, file)
            quick = _quick_csv(data, columns, file)
            if quick is not None:
                return quick
            fixes = csv_fixes.parse_fixes(chain([header], lines(BytesIO(data), file)), file)
        else:
            fixes = one_movement.parse_fixes(chain([header], lines(BytesIO(data), file)), file)
        table = FixTable.of([(file, fixes)])
        return table.moved(by=-1, lines=data.count(b"\n") + (not data.endswith(b"\n")))


def _cab_fixes(files: Iterable[str]) -> Iterator[tuple[str, Iterable[Fix]]]:
    for file in files:
        with opened(Path(file)) as stream:
            node = numbers.name_of(Path(file).stem, file, "cab")
            yield file, cabs.parse_fixes(lines(stream, file), node, file)


def _stretch(path: Path, share: Share) -> tuple[str, bytes | None]:
    """The file's first line, and the lines that begin in the share's bytes, without that first one."""
    assert share.end is not None
    with path.open("rb") as raw:
        first = raw.readline(ROW_BYTES_MAX + 1)
        header = next(lines(BytesIO(first), f"{path}:1"), "")
        if header.startswith("#") or not header.strip():
            return header, None  # The ONE's header may follow comments
        if share.begin > len(first):
            raw.seek(share.begin - 1)
            raw.readline(ROW_BYTES_MAX + 1)
        at = raw.tell()
        data = raw.read(share.end - at) if at < share.end else b""
        if data and not data.endswith(b"\n"):
            data += raw.readline(ROW_BYTES_MAX + 1)
    return header, data


def _quick_csv(data: bytes, columns: csv_fixes.Columns, where: str) -> "FixTable | None":
    """The rows of a plain CSV by Arrow's reader; None where the core's reader must say what they mean."""
    data = data.replace(b"\r\n", b"\n")
    if not data or b"\r" in data or b"\n\n" in data or data.startswith(b"\n"):
        return None
    names = [f"column {k}" for k in range(columns.width)]
    wanted = [names[k] for k in (columns.node, columns.time, columns.x, columns.y)]
    types = dict(zip(wanted, (pa.string(), pa.decimal128(38, 6), pa.float64(), pa.float64()), strict=True))
    try:
        table = arrow_csv.read_csv(
            BytesIO(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names),
            parse_options=arrow_csv.ParseOptions(quote_char=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=wanted, null_values=[], strings_can_be_null=False
            ),
        ).combine_chunks()
    except pa.ArrowException:
        return None
    name, time, x, y = (table.column(column).chunk(0) for column in wanted)
    names_found = name.dictionary_encode()
    clock = _unscaled(time)
    east, north = x.to_numpy(), y.to_numpy()
    limits = (180.0, 90.0) if columns.geographic else (numbers.METRES_MAX, numbers.METRES_MAX)
    if clock is None or bool(np.any(clock > numbers.SECONDS_MAX * SECOND)):
        return None
    # Written so that a NaN fails too.
    if not (bool(np.all(np.abs(east) <= limits[0])) and bool(np.all(np.abs(north) <= limits[1]))):
        return None
    known = [numbers.name_of(text.strip(), where) for text in names_found.dictionary.to_pylist()]
    if len(set(known)) != len(known):
        return None  # names that differ in blanks only
    return FixTable(
        known,
        [where] * len(known),
        names_found.indices.to_numpy(zero_copy_only=False).astype(np.int32),
        clock,
        east,
        north,
        np.arange(1, len(clock) + 1),
        np.zeros(len(clock), dtype=np.bool_),
        len(clock),
    )


def _unscaled(decimals: Any) -> npt.NDArray[np.int64] | None:
    """Decimals of scale 6 as whole millionths; None if one is negative or beyond 64 bits."""
    words = np.frombuffer(decimals.buffers()[1], dtype="<i8").reshape(-1, 2)
    words = words[decimals.offset : decimals.offset + len(decimals)]
    if bool(np.any(words[:, 1] != 0)) or bool(np.any(words[:, 0] < 0)):
        return None
    return np.ascontiguousarray(words[:, 0])


# From the front.


def _from_the_front(trace: RecordingSource, folder: Path, buckets: int) -> list[ShareReport]:
    reports = []
    for number, table in enumerate(_tables(_streams(trace))):
        reports.append(_write(folder, number, table, buckets))
    return reports


def _tables(streams: Iterator[tuple[str, Iterable[Fix]]]) -> Iterator["FixTable"]:
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
    """Motion that a reader had to make at once, as the fixes it is made of."""
    for node, path in enumerate(motion.trajectories):
        name = motion.names[node] if motion.names else str(node)
        gaps = [False, *path.gap.tolist()]
        for time, x, y, gap in zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), gaps, strict=True):
            yield Fix(name, time, x, y, 0, gap)


# Files of fixes.


@dataclass(frozen=True, eq=False)
class FixTable:
    """Fixes as columns, in the order of the recording."""

    names: list[str]
    files: list[str]  # one for each name
    code: npt.NDArray[np.int32]  # position of the name
    time: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    line: npt.NDArray[np.int64]
    returns: npt.NDArray[np.bool_]
    lines: int = 0

    @staticmethod
    def of(streams: Iterable[tuple[str, Iterable[Fix]]]) -> "FixTable":
        return FixTable.of_rows([(file, fix) for file, fixes in streams for fix in fixes])

    @staticmethod
    def of_rows(rows: list[tuple[str, Fix]]) -> "FixTable":
        codes: dict[str, int] = {}
        files: list[str] = []
        code = np.empty(len(rows), dtype=np.int32)
        for row, (file, fix) in enumerate(rows):
            known = codes.setdefault(fix.node, len(codes))
            if known == len(files):
                files.append(file)
            code[row] = known
        return FixTable(
            list(codes),
            files,
            code,
            np.array([fix.time for _, fix in rows], dtype=np.int64),
            np.array([fix.x for _, fix in rows], dtype=np.float64),
            np.array([fix.y for _, fix in rows], dtype=np.float64),
            np.array([fix.line for _, fix in rows], dtype=np.int64),
            np.array([fix.returns for _, fix in rows], dtype=np.bool_),
        )

    def moved(self, *, by: int, lines: int) -> "FixTable":
        """Lines counted from elsewhere, and how many lines the share has."""
        columns = (self.names, self.files, self.code, self.time, self.x, self.y)
        return FixTable(*columns, self.line + by, self.returns, lines)


def _write(folder: Path, number: int, table: FixTable, buckets: int) -> ShareReport:
    of_name = np.array([zlib.crc32(name.encode()) % buckets for name in table.names], dtype=np.int64)
    bucket = of_name[table.code] if len(table.names) else np.empty(0, dtype=np.int64)
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    columns = (table.code, table.time, table.x, table.y, table.line, table.returns)
    arrays = [pa.array(column[order]) for column in columns]
    schema = _SCHEMA.with_metadata({_NAMES: msgspec.json.encode(table.names)})
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    target = share_file(folder, number)
    partial = target.with_suffix(f".{id(table)}.partial")  # a retried task may meet its forerunner's
    with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for end, count in zip(ends.tolist(), np.diff(ends, prepend=0).tolist(), strict=True):
            writer.write_batch(whole.slice(end - count, count))
    partial.replace(target)
    fixes = len(table.time)
    return ShareReport(
        number,
        broken=False,
        fixes=fixes,
        lines=table.lines,
        first=int(table.time[0]) if fixes else 0,
        last=int(table.time[-1]) if fixes else 0,
        names=tuple(zip(table.names, table.files, strict=True)),
    )
