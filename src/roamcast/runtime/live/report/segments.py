"""A node's trace on its disk: rotated segments, each one whole, all together bounded.

A segment is a file of JSON lines, each a list of a name and an object. The first is its head (`SegmentHead`:
whose, which boot, which clock), then come the records by their table (`["deliveries", {"t": 1200, …}]`), and
the last is its end (`SegmentEnd`: how many records, and the SHA-256 of every octet before this line). Who
reads a segment checks both, so a damaged file never becomes a figure.

While it is written it is named `….partial`; it gets its name when it has its end. What a kill leaves behind
is ended at the next start (`close_partials`). When all segments of the node are beyond their bound, the
oldest go: counted, and told by the next head. JSON, because a device has msgspec and no Arrow, and a person
can read it.

Times are microseconds after `epoch` on the machine's monotonic clock. Each head has the wall clock of that
epoch, and names the clock: the segments of one boot of one machine share an axis exactly.
"""

import asyncio
import errno
import hashlib
import logging
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from roamcast import __version__
from roamcast.errors import FileError
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.storage.database import UNWRITABLE, UnwritableError
from roamcast.runtime.live.world import NodeDisk, NodeWorld
from roamcast.trace import RECORDS, Record
from roamcast.units import SECOND, Micros, NodeId, micros

logger = logging.getLogger("roamcast.trace")

# Records are written after this time or number. Chosen by us: fewer writes against records that a kill loses.
FLUSH_SECONDS = 0.1
BUFFER_RECORDS = 1_000
SEGMENTS_MAX = 10_000  # of a node, whatever their size: a folder is listed often; chosen by us
SEGMENT_BYTES_MAX = 1 << 28  # that a reader takes; a writer's bound is far below

SUFFIX = ".trace"
PARTIAL = ".partial"
NAME = re.compile(r"(\d{10,12})-(\d{1,10})-(\d{10})-(\d{8,12})\.trace")
FORMAT = 1

_HEAD, _END = "segment", "end"
_TIMED = {kind for kind in RECORDS if "t" in kind.__struct_fields__}
_Line = TypeVar("_Line")
_encode = msgspec.json.Encoder().encode
_split = msgspec.json.Decoder(tuple[str, msgspec.Raw]).decode
_decode = {kind.TABLE: msgspec.json.Decoder(kind).decode for kind in RECORDS}


class SegmentId(NamedTuple):
    """Which segment: no two have the same."""

    node: NodeId
    boot: int
    number: int


class SegmentName(NamedTuple):
    """What a file's name says; the head must say the same. Names of all nodes' segments sort by time."""

    second: int  # Unix time of its beginning
    id: SegmentId

    def __str__(self) -> str:
        return f"{self.second:010d}-{self.id.node}-{self.id.boot:010d}-{self.id.number:08d}{SUFFIX}"

    @classmethod
    def of(cls, file: str) -> "SegmentName | None":
        """The name of a segment, from a path; None for other files."""
        found = NAME.fullmatch(file.rpartition("/")[2])
        if found is None:
            return None
        second, *identity = (int(part) for part in found.groups())
        return cls(second, SegmentId(*identity))


class SegmentSource(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same in all segments of a boot."""

    node: NodeId
    name: str
    run: str  # which network: what is collected in one place is told apart by it
    strategy: str
    boot: int  # grows with each start of the node
    epoch: Micros  # where `t` is 0, on the clock
    clock: str  # which monotonic clock: one per boot of a machine
    roamcast: str = __version__


class SegmentHead(SegmentSource, frozen=True, kw_only=True):
    """The first line."""

    format: int = FORMAT
    number: int  # 0 for a boot's first, then without gaps
    wall: Micros  # Unix time of `epoch`, by the wall clock when the segment was begun
    opened: Micros  # on the records' axis
    dropped: int = 0  # segments that went in this boot so far, to stay within the bound
    unwritten: int = 0  # records that could not be written so far in this boot: the disk was full

    @property
    def segment(self) -> SegmentName:
        second = max(self.wall + self.opened, 0) // SECOND
        return SegmentName(second, SegmentId(self.node, self.boot, self.number))


class SegmentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    records: int
    sha256: str  # of everything before this line
    closed: Micros  # on the records' axis
    # "full": the next one goes on; "stopped": the node stopped in good order; "cut": it did not.
    why: str


class TraceSegment(NamedTuple):
    """A segment that was read and proved whole."""

    head: SegmentHead
    end: SegmentEnd
    lines: list[bytes]  # of the records

    def records(self) -> Iterator[Record]:
        for number, line in enumerate(self.lines, 2):
            yield _record(str(self.head.segment), number, line)


class TraceSegments:
    """What a node writes to. `folder` holds the segments of this node, perhaps of others too."""

    def __init__(
        self,
        folder: Path,
        source: SegmentSource,
        world: NodeWorld,
        counters: Counters,
        *,
        bytes_max: int,
        segment_bytes: int,
        segment_seconds: float,
    ) -> None:
        self._folder = folder
        self._source = source
        self._world = world
        self._loop = world.loop
        self._disk = world.disk
        self._counters = counters
        self._bytes_max = bytes_max
        self._segment_bytes = min(segment_bytes, max(bytes_max // 4, 1_000))
        self._segment_time = micros(segment_seconds)
        self._lines: list[bytes] = []
        self._flush: asyncio.TimerHandle | None = None
        self._turn: asyncio.TimerHandle | None = None
        self._file: RawIOBase | None = None
        self._is_closed = False
        self._is_failing = False
        self._number = self._size = self._records = self._dropped = self._unwritten = 0
        self._opened: Micros = 0
        self._name = ""
        self._hash = hashlib.sha256()
        try:
            self._disk.make_folder(folder)
            close_partials(self._disk, folder, source.node)
            self._kept = deque((name, size) for _, name, size in _listed(self._disk, folder, source.node))
            self._kept_bytes = sum(size for _, size in self._kept)
            self._begin()
        except OSError as error:
            kind = UnwritableError if error.errno in UNWRITABLE else FileError
            raise kind(f"trace.folder: {folder}", f"cannot be written: {error.strerror}") from None

    def add(self, record: Record) -> None:
        if self._is_closed:
            return
        if type(record) in _TIMED:
            record = msgspec.structs.replace(record, t=record.t - self._source.epoch)  # type: ignore[attr-defined]
        self._lines.append(_encode((record.TABLE, record)))
        if len(self._lines) >= BUFFER_RECORDS:
            self.flush()
        elif self._flush is None:
            self._flush = self._loop.call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what waits. A full disk costs the trace, never the node."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._lines:
            count, data = len(self._lines), b"\n".join([*self._lines, b""])
            self._lines.clear()
            try:
                if self._is_full(len(data)):
                    self._finish("full")
                if self._file is None:
                    self._begin()
                self._write(data)
                self._records += count
                self._is_failing = False
            except OSError as error:
                self._unwritten += count
                self._counters.count("trace_records_unwritten_total", count)
                if not self._is_failing:  # once, not ten times a second
                    logger.warning("the trace in %s cannot be written: %s", self._folder, error.strerror)
                self._is_failing = True
        # The records of a node that falls quiet must not wait for its next one.
        if self._records and self._turn is None and not self._is_closed:
            left = self._opened + self._segment_time - self._now()
            self._turn = self._loop.call_later(max(left / SECOND, FLUSH_SECONDS), self._on_turn)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._turn is not None:
            self._turn.cancel()
        self.flush()
        with suppress(OSError):
            if self._file is None:
                self._begin()  # so that the end of the boot is told
            self._finish("stopped")

    # Private.

    def _now(self) -> Micros:
        return self._world.clock.monotonic_ns() // 1_000 - self._source.epoch

    def _on_turn(self) -> None:
        self._turn = None
        if self._records and self._is_full(0):
            with suppress(OSError):  # the next flush says so
                self._finish("full")
        self.flush()

    def _is_full(self, more: int) -> bool:
        return (
            self._file is not None
            and bool(self._records)
            and (self._size + more > self._segment_bytes or self._now() >= self._opened + self._segment_time)
        )

    def _begin(self) -> None:
        self._opened = self._now()
        head = SegmentHead(
            **msgspec.structs.asdict(self._source),
            number=self._number,
            wall=self._world.wall() - self._opened,
            opened=self._opened,
            dropped=self._dropped,
            unwritten=self._unwritten,
        )
        self._name = str(head.segment)
        self._file = self._disk.open(self._folder / (self._name + PARTIAL), "wb")
        self._size = self._records = 0
        self._hash = hashlib.sha256()
        self._write(_line(_HEAD, head))

    def _write(self, data: bytes) -> None:
        """All of it or, after an error, nothing: a full disk must not leave half a line."""
        assert self._file is not None
        try:
            _write_whole(self._file, data)
        except OSError:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            raise
        self._size += len(data)
        self._hash.update(data)

    def _finish(self, why: str) -> None:
        assert self._file is not None
        file, self._file = self._file, None
        end = SegmentEnd(records=self._records, sha256=self._hash.hexdigest(), closed=self._now(), why=why)
        self._number += 1
        try:
            line = _line(_END, end)
            _write_whole(file, line)  # else it stays partial, and the next start ends it
        finally:
            file.close()
        self._disk.rename(self._folder / (self._name + PARTIAL), self._folder / self._name)
        self._kept.append((self._name, self._size + len(line)))
        self._kept_bytes += self._size + len(line)
        self._records = 0
        self._let_go()

    def _let_go(self) -> None:
        room = self._bytes_max - self._segment_bytes  # the next one has to fit in, too
        while len(self._kept) > 1 and (self._kept_bytes > room or len(self._kept) > SEGMENTS_MAX):
            name, size = self._kept.popleft()
            self._disk.remove(self._folder / name)
            self._kept_bytes -= size
            self._dropped += 1
            self._counters.count("trace_segments_dropped_total")


# Reading.


def parse_segment(data: bytes, name: str) -> TraceSegment:
    """A segment from its octets, proved whole; `FileError` says what is wrong with it."""
    if len(data) > SEGMENT_BYTES_MAX:
        raise FileError(name, f"is larger than {SEGMENT_BYTES_MAX:,} octets, the most allowed")
    lines = data.split(b"\n")
    if len(lines) < 3 or lines.pop():
        raise FileError(name, "is cut short; expected a segment of a trace, with its head and its end")
    head = _special(lines[0], _HEAD, SegmentHead, name)
    if head.format != FORMAT:
        raise FileError(name, f"has format {head.format}; this version reads format {FORMAT}")
    end = _special(lines[-1], _END, SegmentEnd, name)
    if len(lines) - 2 != end.records:
        raise FileError(name, f"holds {len(lines) - 2} records; its end says {end.records}")
    if hashlib.sha256(data[: len(data) - len(lines[-1]) - 1]).hexdigest() != end.sha256:
        raise FileError(name, "is damaged: its digest does not match")
    named = SegmentName.of(name)
    if named is not None and named != head.segment:
        raise FileError(name, f"says that it is {head.segment}")
    return TraceSegment(head, end, lines[1:-1])


def read_segment(disk: NodeDisk, path: Path) -> TraceSegment:
    """A segment of a disk, proved whole."""
    try:
        with disk.open(path, "rb") as file:
            return parse_segment(file.readall(), str(path))
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}") from None


def read_trace(disk: NodeDisk, folder: Path, node: NodeId | None = None) -> Iterator[Record]:
    """The records of all segments in a folder, or of one node's, each node's in their order."""
    for _, name, _ in _listed(disk, folder, node):
        yield from read_segment(disk, folder / name).records()


def close_partials(disk: NodeDisk, folder: Path, node: NodeId | None = None) -> None:
    """End what a kill left unended, of one node or of all: whole lines are kept, a broken rest is cut off."""
    for name, _ in sorted(disk.files(folder)):
        found = SegmentName.of(name.removesuffix(PARTIAL))
        if name.endswith(PARTIAL) and found is not None and node in (None, found.id.node):
            _close_partial(disk, folder / name)


def _close_partial(disk: NodeDisk, path: Path) -> None:
    with disk.open(path, "rb") as file:
        data = file.readall()
    good, count, last = 0, -1, 0
    for line in data.splitlines(keepends=True):
        try:
            if count < 0:
                last = _special(line.rstrip(b"\n"), _HEAD, SegmentHead, path.name).opened
            else:
                last = max(last, getattr(_record(path.name, count, line), "t", last))
        except FileError:
            break
        if not line.endswith(b"\n"):
            break
        good, count = good + len(line), count + 1
    if count < 0:
        disk.remove(path)  # not even its head is whole
        return
    end = SegmentEnd(records=count, sha256=hashlib.sha256(data[:good]).hexdigest(), closed=last, why="cut")
    with disk.open(path, "r+b") as file:
        file.truncate(good)
        file.seek(good)
        _write_whole(file, _line(_END, end))
    disk.rename(path, path.with_name(path.name.removesuffix(PARTIAL)))


def _write_whole(file: RawIOBase, data: bytes) -> None:
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, "No space left on device")


def _listed(disk: NodeDisk, folder: Path, node: NodeId | None) -> list[tuple[SegmentId, str, int]]:
    """Each segment in order: whose and which it is, its name and its size."""
    found = []
    for name, size in disk.files(folder):
        known = SegmentName.of(name)
        if known is not None and node in (None, known.id.node):
            found.append((known.id, name, size))
    return sorted(found)


def _line(name: str, value: object) -> bytes:
    return _encode((name, value)) + b"\n"


def _special(line: bytes, name: str, kind: type[_Line], where: str) -> _Line:
    with suppress(msgspec.MsgspecError):
        found, rest = _split(line)
        if found == name:
            return msgspec.json.decode(rest, type=kind)
    raise FileError(where, f"has no {'head' if name == _HEAD else 'end'} of a segment where it belongs")


def _record(name: str, number: int, line: bytes) -> Any:
    with suppress(msgspec.MsgspecError, KeyError):
        table, rest = _split(line)
        return _decode[table](rest)
    raise FileError(f"{name}:{number}", "is no trace record")
