"""The fixes of a share in storage: an Arrow file with one record batch per bucket of nodes.

So one worker can later gather all fixes of its bucket without looking at the others.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.storage import Storage
from roamcast.world.formats.fixes import Fix

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


def batches(
    folder: Storage, reports: Sequence[ShareReport], bucket: int
) -> Iterator[tuple[int, Any, list[str]]]:
    """`(share, record batch, names)` of one bucket, in the order of the recording."""
    for report in reports:
        with folder.opened(share_file(report.number)) as source:
            reader = pa.ipc.open_file(source)
            names = msgspec.json.decode(reader.schema.metadata[_NAMES], type=list[str])
            yield report.number, reader.get_batch(bucket), names


def write_batches(folder: Storage, file: str, schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> None:
    """An Arrow file with these record batches, whole or not at all."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for part in parts:
            writer.write_batch(part)
    folder.write(file, sink.getvalue())


def share_file(number: int) -> str:
    return f"share-{number:06d}.arrow"
