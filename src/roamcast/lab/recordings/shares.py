"""Shares of a recording: the parts that workers read independently.

Tables of rows (CSV, The ONE's movement) are split by bytes, folders of cab files by file. A compressed table
cannot be split where it lies: one worker unpacks it into shares (`Unpack`), all workers read them. Other
formats are not split.

In storage, the fixes of a share are an Arrow file with one record batch per bucket of nodes. So one worker
can later gather all fixes of its bucket without looking at the others.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]

from roamcast.errors import FileError
from roamcast.lab.storage import Storage
from roamcast.units import SECOND
from roamcast.world.formats import motion_tables
from roamcast.world.formats.fixes import Fix, MotionOptions
from roamcast.world.formats.text import (
    METRES_MAX,
    ROW_BYTES_MAX,
    SECONDS_MAX,
    damage_as_file_error,
    lines,
    name_of,
)

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


class ShareReport(NamedTuple):
    """What a worker found. `broken`: a row is wrong, or cannot be read without the rows before the share."""

    number: int
    broken: bool
    fixes: int = 0
    lines: int = 0
    first: int = 0  # time of the first and of the last row, microseconds
    last: int = 0
    names: tuple[tuple[str, str], ...] = ()  # node, and the file that it is in


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
        """The same with other line numbers, and with the number of lines of the share."""
        columns = (self.names, self.files, self.code, self.time, self.x, self.y)
        return FixTable(*columns, self.line + by, self.returns, lines)


def write_share(folder: Storage, number: int, table: FixTable, buckets: int) -> ShareReport:
    """Put the fixes of a share into its file, which appears whole or not at all."""
    of_name = np.array([zlib.crc32(name.encode()) % buckets for name in table.names], dtype=np.int64)
    bucket = of_name[table.code] if len(table.names) else np.empty(0, dtype=np.int64)
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    columns = (table.code, table.time, table.x, table.y, table.line, table.returns)
    arrays = [pa.array(column[order]) for column in columns]
    schema = _SCHEMA.with_metadata({_NAMES: msgspec.json.encode(table.names)})
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    parts = zip(ends.tolist(), np.diff(ends, prepend=0).tolist(), strict=True)
    write_batches(
        folder, share_file(number), schema, (whole.slice(end - count, count) for end, count in parts)
    )
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


def batches(folder: Storage, shares: Iterable[int], bucket: int) -> Iterator[tuple[int, Any, list[str]]]:
    """`(share, record batch, names)` of one bucket, in the order of the recording."""
    for share in shares:
        with folder.opened(share_file(share)) as source:
            reader = pa.ipc.open_file(source)
            names = msgspec.json.decode(reader.schema.metadata[_NAMES], type=list[str])
            yield share, reader.get_batch(bucket), names


def write_batches(folder: Storage, file: str, schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> None:
    """An Arrow file with these record batches, whole or not at all."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for part in parts:
            writer.write_batch(part)
    folder.write(file, sink.getvalue())


def share_file(number: int) -> str:
    return f"share-{number:06d}.arrow"


SHARE_BYTES = 1 << 24
COPY_BYTES = 1 << 22  # at a time; chosen by us
GZIP_MAGIC = b"\x1f\x8b"


class Share(NamedTuple):
    """What one worker reads: files in a row, the lines that begin in `[begin, end)` of one, or lines that
    were unpacked from one."""

    number: int
    files: tuple[str, ...]
    begin: int = 0
    end: int | None = None  # None: whole files
    unpacked: bool = False


@dataclass(frozen=True)
class RecordingSource:
    """What the user named, and how to read it."""

    folder: Storage
    file: str  # in the folder; empty if the folder itself is the recording
    format: str
    options: MotionOptions

    @property
    def name(self) -> str:
        return self.folder.name(self.file)

    def sizes(self) -> dict[str, int]:
        """The files of the recording and their sizes."""
        if not self.file:
            return {name: size for name, size in self.folder.files().items() if "/" not in name}
        with self.folder.opened(self.file) as opened:
            return {self.file: opened.size()}

    @contextmanager
    def as_local(self) -> Iterator[Path]:
        """The recording on this machine, for readers that want a path: copied if it is elsewhere."""
        if self.folder.path is not None:
            yield self.folder.path / self.file
            return
        with TemporaryDirectory(prefix="roamcast-") as name:
            copy = Path(name) / (self.file or PurePosixPath(self.folder.root).name)
            for file in self.sizes():
                target = copy if self.file else copy / file
                target.parent.mkdir(exist_ok=True)
                with self.folder.opened(file) as source, target.open("wb") as opened:
                    while octets := source.read(COPY_BYTES):
                        opened.write(octets)
            try:
                yield copy
            except FileError as error:
                raise FileError(error.where.replace(str(copy), self.name), error.problem) from error


def is_compressed(trace: RecordingSource) -> bool:
    if not trace.file:
        return False
    with trace.folder.opened(trace.file) as raw:
        return bool(raw.read(2) == GZIP_MAGIC)


def first_line(trace: RecordingSource) -> str:
    """The first line of a table, compressed or not."""
    with trace.folder.opened(trace.file) as raw, damage_as_file_error(trace.name):
        compressed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        text = gzip.GzipFile(fileobj=raw) if compressed else raw
        return _line(text.read(ROW_BYTES_MAX + 1).split(b"\n")[0], trace.name)


def shares_of(trace: RecordingSource) -> list[Share]:
    """How a recording is cut as it lies; empty where it can only be read from the front."""
    if trace.format == "cabs" and not trace.file:
        return _shares_of_files(
            {
                file: size
                for file, size in trace.sizes().items()
                if file.endswith(".txt") and not file.startswith("_")
            }
        )
    if trace.format in ("csv", "one") and trace.file and not is_compressed(trace):
        (size,) = trace.sizes().values()
        return [
            Share(number, (trace.file,), begin, min(begin + SHARE_BYTES, size))
            for number, begin in enumerate(range(0, size, SHARE_BYTES))
        ]
    return []


def _shares_of_files(files: dict[str, int]) -> list[Share]:
    shares: list[Share] = []
    chosen: list[str] = []
    total = 0
    for file, size in files.items():
        chosen.append(file)
        total += size
        if total >= SHARE_BYTES:
            shares.append(Share(len(shares), tuple(chosen)))
            chosen, total = [], 0
    return [*shares, Share(len(shares), tuple(chosen))] if chosen else shares


@dataclass(frozen=True)
class Unpack:
    """What one worker does with a compressed table: files of whole lines, each as long as a share."""

    trace: RecordingSource
    to: Storage
    share_bytes: int

    def __call__(self, _: int) -> list[Share]:
        """The shares; none if the archive is damaged, which the reader from the front will explain."""
        shares: list[Share] = []
        with suppress(FileError), damage_as_file_error(self.trace.name):
            with self.trace.folder.opened(self.trace.file) as raw, gzip.GzipFile(fileobj=raw) as text:
                while data := text.read(self.share_bytes):
                    data += text.readline(ROW_BYTES_MAX + 1)
                    self.to.write(unpacked_file(len(shares)), data)
                    shares.append(Share(len(shares), (self.trace.file,), unpacked=True))
            return shares
        return []


def unpacked_file(number: int) -> str:
    return f"lines-{number:06d}.txt"


@dataclass(frozen=True)
class ReadShare:
    """What a worker does with one share."""

    trace: RecordingSource
    folder: Storage
    buckets: int

    def __call__(self, share: Share) -> ShareReport:
        # The recording will be read again from the front, which names the wrong line.
        with suppress(FileError, OSError):
            table = self._table(share)
            if table is not None:
                return write_share(self.folder, share.number, table, self.buckets)
        return ShareReport(share.number, broken=True)

    def _table(self, share: Share) -> FixTable | None:
        if self.trace.format == "cabs":
            return FixTable.of(_cab_fixes(self.trace.folder, share.files))
        where = self.trace.name
        header, data = self._unpacked(share) if share.unpacked else self._stretch(share)
        if header.startswith("#") or not header.strip():
            return None  # The ONE's header may follow comments
        if self.trace.format == "csv":
            # Quotes may hold line ends, and then a line is not a row.
            if b'"' in data:
                return None
            columns = motion_tables.parse_header(header, where)
            quick = _quick_csv(data, columns, where)
            if quick is not None:
                return quick
            fixes = motion_tables.parse_csv(chain([header], lines(BytesIO(data), where)), where)
        else:
            fixes = motion_tables.parse_one(chain([header], lines(BytesIO(data), where)), where)
        table = FixTable.of([(where, fixes)])
        return table.moved(by=-1, lines=data.count(b"\n") + (not data.endswith(b"\n")))

    def _unpacked(self, share: Share) -> tuple[str, bytes]:
        """The recording's first line, and the share's lines without it."""
        with self.folder.opened(unpacked_file(0)) as first:
            header = BytesIO(first.read(ROW_BYTES_MAX + 1)).readline()
        data = self.folder.read(unpacked_file(share.number))
        return _line(header, self.trace.name), data[len(header) :] if share.number == 0 else data

    def _stretch(self, share: Share) -> tuple[str, bytes]:
        """The file's first line, and the lines that begin in the share's bytes, without that first one."""
        assert share.end is not None
        with self.trace.folder.opened(self.trace.file) as raw:
            header = BytesIO(raw.read(ROW_BYTES_MAX + 1)).readline()
            begin = max(share.begin, len(header))
            # One octet before: a line begins here if a line ends there. The last line ends behind the share.
            raw.seek(begin - 1)
            data = raw.read(share.end - begin + 1 + ROW_BYTES_MAX + 1)
        length = max(share.end - begin, 0)
        first = data.find(b"\n", 0, length) + 1
        last = data.find(b"\n", length) + 1 or len(data)
        return _line(header, self.trace.name), data[first:last] if first else b""


def _line(octets: bytes, where: str) -> str:
    return next(lines(BytesIO(octets), f"{where}:1"), "")


def _cab_fixes(folder: Storage, files: Iterable[str]) -> Iterator[tuple[str, Iterable[Fix]]]:
    for file in files:
        where = folder.name(file)
        node = name_of(PurePosixPath(file).stem, where, "cab")
        yield where, motion_tables.parse_cab(lines(_unzipped(folder.read(file), where), where), node, where)


def _unzipped(octets: bytes, where: str) -> IO[bytes]:
    with damage_as_file_error(where):
        return BytesIO(gzip.decompress(octets) if octets.startswith(GZIP_MAGIC) else octets)


def _quick_csv(data: bytes, columns: motion_tables.FixColumns, where: str) -> FixTable | None:
    """The rows of a plain CSV by Arrow's reader; None where only the core's reader can interpret them."""
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
    limits = (180.0, 90.0) if columns.geographic else (METRES_MAX, METRES_MAX)
    if clock is None or bool(np.any(clock > SECONDS_MAX * SECOND)):
        return None
    # Written so that a NaN fails too.
    if not (bool(np.all(np.abs(east) <= limits[0])) and bool(np.all(np.abs(north) <= limits[1]))):
        return None
    known = [name_of(text.strip(), where) for text in names_found.dictionary.to_pylist()]
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
