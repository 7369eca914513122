"""Shares of a recording: the parts that workers read independently.

Tables of rows (CSV, The ONE's movement) are split by bytes, folders of cab files by file; other formats are
not split.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]

from roamcast.errors import FileError
from roamcast.lab.recordings.share_files import FixTable, ShareReport, write_share
from roamcast.units import SECOND
from roamcast.world.formats.motion import cabs, csv_fixes, one_movement
from roamcast.world.formats.motion.fixes import Fix, MotionOptions
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import ROW_BYTES_MAX, lines, opened

SHARE_BYTES = 1 << 24


class Share(NamedTuple):
    """What one worker reads: files in a row, or the lines that begin in `[begin, end)` of one."""

    number: int
    files: tuple[str, ...]
    begin: int = 0
    end: int | None = None  # None: whole files


@dataclass(frozen=True)
class RecordingSource:
    """What the user named, and how to read it."""

    path: Path
    format: str
    options: MotionOptions


def shares_of(trace: RecordingSource) -> list[Share]:
    """How a recording is cut; empty where it can only be read from the front."""
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
        # The driver will read the recording again and name the wrong line.
        with suppress(FileError, OSError):
            table = self._table(share)
            if table is not None:
                return write_share(Path(self.folder), share.number, table, self.buckets)
        return ShareReport(share.number, broken=True)

    def _table(self, share: Share) -> FixTable | None:
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


def _quick_csv(data: bytes, columns: csv_fixes.Columns, where: str) -> FixTable | None:
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
