"""A node's trace as a file: one record per line, bounded, and a way to read it back.

A line is a JSON list of the table's name and the record: `["deliveries", {"t": 1200, …}]`. Times are
microseconds after `epoch` on the machine's monotonic clock, so the nodes of one emulation, which share the
machine, share the axis. When the file has reached its bound it is renamed to `<name>.1` (replacing the one
before) and a new one begins: a forgotten trace never fills a disk.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from roamcast.errors import FileError
from roamcast.trace import RECORDS, Record
from roamcast.units import Micros

logger = logging.getLogger("roamcast.trace")

# Records are written after this time or number. Chosen by us: fewer writes against records that a kill loses.
FLUSH_SECONDS = 0.1
BUFFER_RECORDS = 1_000

_TABLES = {kind.TABLE: kind for kind in RECORDS}
_TIMED = {kind for kind in RECORDS if "t" in kind.__struct_fields__}


class TraceFile:
    def __init__(self, path: Path, epoch: Micros, bytes_max: int, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._epoch = epoch
        self._bytes_max = bytes_max
        self._loop = loop
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._flush: asyncio.TimerHandle | None = None
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FileError(f"trace.file: {path}", f"cannot be written: {error.strerror}") from None
        self._size = os.fstat(self._file).st_size

    def add(self, record: Record) -> None:
        if self._file < 0:
            return  # a late record, after `close`
        if type(record) in _TIMED:
            record = msgspec.structs.replace(record, t=record.t - self._epoch)  # type: ignore[attr-defined]
        self._lines.append(self._encoder.encode((record.TABLE, record)))
        if len(self._lines) >= BUFFER_RECORDS:
            self.flush()
        elif self._flush is None:
            self._flush = self._loop.call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if not self._lines:
            return
        data = b"\n".join([*self._lines, b""])
        self._lines.clear()
        try:
            if self._size + len(data) > self._bytes_max and self._size:
                self._begin_anew()
            # One write: a reader finds whole lines, also after a kill.
            self._size += os.write(self._file, data)
        except OSError as error:  # a full disk costs the trace, never the node
            logger.warning("the trace %s cannot be written: %s", self._path, error.strerror)

    def close(self) -> None:
        if self._file >= 0:
            self.flush()
            os.close(self._file)
            self._file = -1  # the system may use the number for another file from now on

    def _begin_anew(self) -> None:
        os.replace(self._path, f"{self._path}.1")
        os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = 0


def read_trace(path: Path) -> Iterator[Record]:
    """The records in a file, in their order. An incomplete last line is ignored: a kill may leave one."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                yield _record(path, number, line)
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}") from None


def _record(path: Path, number: int, line: bytes) -> Record:
    problem = "is no trace record"
    with contextlib.suppress(msgspec.MsgspecError, KeyError):
        table, rest = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
        return msgspec.json.decode(rest, type=_TABLES[table])
    raise FileError(f"{path}:{number}", problem)
