"""What survives a crash of a live node: one SQLite file.

Every write goes into the transaction of the loop turn. `commit` makes the turn durable with one sync of the
disk and then calls back everyone who waits to acknowledge (`on_durable`). A sync takes milliseconds in which
the node does nothing else, so `end_turn` leaves out a turn that kept nothing but chunks of large payloads,
unless someone waits: they come by the hundred, and may follow within `LAZY`. A write to `stable` is durable
on return, as `Host` promises; pending writes are committed with it.

Durable means on the disk: WAL with `synchronous = FULL` syncs each commit, so what was acknowledged survives
SIGKILL and a power cut. `durability = "process"` leaves out the sync: what was acknowledged survives SIGKILL,
a power cut may take the last moments with it (never the file).

A full disk, or the file at its `bytes_max`, refuses what is new (`StoreFullError`) and keeps what is there.
Values in `stable` have a reserve beyond `bytes_max`, so that events cannot take all the room.
"""

import errno
import logging
import sqlite3
import zlib
from collections import deque
from collections.abc import Callable, Container, Iterator, MutableMapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from roamcast.broker.retained import order_of
from roamcast.broker.store import BYTES_MAX as STORE_BYTES_MAX
from roamcast.broker.store import ENTRIES_MAX, EventStore, Settled, StoredEvent, StoreFullError
from roamcast.chunks import is_chunk
from roamcast.errors import FileError
from roamcast.event import COUNT_MAX, LIFETIME_MAX, Count, Event, EventId, event_ids
from roamcast.kit.repair import by_publisher, runs
from roamcast.runtime.live.storage.mark import SUFFIX as MARK_SUFFIX
from roamcast.runtime.live.storage.mark import StorageMark, read_mark, write_mark
from roamcast.runtime.live.world import NodeDisk
from roamcast.units import MILLISECOND, SECOND, Micros

logger = logging.getLogger("roamcast.storage")

# The bounds in octets and the two of `LAZY` are chosen by us.
BYTES_MAX = 256 * 1024 * 1024
DISK_RESERVE = 4 * 1024 * 1024  # octets left free on the disk: others write there too
STABLE_RESERVE = 1024 * 1024  # octets beyond `bytes_max` for `stable`
PAGE_BYTES = 4_096
LAZY: Micros = 500 * MILLISECOND  # longest delay of a write that nobody waits for: fewer syncs against loss
LAZY_WRITES = 1_000  # such writes before a commit
UNWRITTEN_MAX = 10_000  # of one commit: as many as a store has events by default
APPLICATION_ID = 0x526F616D  # "Roam"; distinguishes our files from other databases
VERSION = 1
HOPS_BITS = 16
HOPS_MASK = (1 << HOPS_BITS) - 1
# Keys of the table that are not for hosts: the wall clock of the boot before, and how often it was written.
LAST_BOOT, WRITES = " last boot", " writes"
UNWRITABLE = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO)
HERE = ""  # the client whose queue is the node's own: notes of what its store has pushed out
PUSHED_OUT_MAX = 10_000  # events in such notes; as many as a store has by default
CLOCK_SET = 1_767_225_600 * SECOND  # 2026-01-01: a wall clock before that was never set

Durability: TypeAlias = Literal["power", "process"]
Statement: TypeAlias = tuple[str, tuple[Any, ...]]
Write: TypeAlias = tuple[Statement, ...]
"""Statements that are written all or not at all, whether or not other writes of the turn fail."""
OnDurable: TypeAlias = Callable[[StoreFullError | None], None]

_SCHEMA = """
CREATE TABLE stable (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE event (
  arrival INTEGER PRIMARY KEY, publisher INTEGER NOT NULL, sequence INTEGER NOT NULL, hops INTEGER NOT NULL,
  expires INTEGER, remaining INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (publisher, sequence));
CREATE TABLE session (client TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE subscription (
  client TEXT NOT NULL, number INTEGER NOT NULL, filter TEXT NOT NULL, options BLOB NOT NULL,
  PRIMARY KEY (client, number)) WITHOUT ROWID;
CREATE TABLE queued (number INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX queued_by_client ON queued (client, number);
CREATE TABLE delivered (
  client TEXT NOT NULL, publisher INTEGER NOT NULL, sequence INTEGER NOT NULL, expires INTEGER NOT NULL,
  PRIMARY KEY (client, publisher, sequence)) WITHOUT ROWID;
"""

_KEEP = (
    "INSERT OR IGNORE INTO event (publisher, sequence, hops, expires, remaining, data)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_REMOVE = "DELETE FROM event WHERE publisher = ? AND sequence = ?"
_REMOVE_RUN = "DELETE FROM event WHERE publisher = ? AND sequence >= ? AND sequence < ? + ?"


class DurableEvent(NamedTuple):
    """A memorized event as it is found at boot. `remaining`: the rest of its lifetime."""

    event: Event
    hops: int
    remaining: Micros


class PushedOutNote(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Events that were here. `until`: the last end of a lifetime, wall clock."""

    until: Micros
    runs: list[tuple[Count, Count, Annotated[int, msgspec.Meta(ge=1, le=PUSHED_OUT_MAX)]]]
    """Publisher, first sequence number, and how many numbers follow each other."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Event)
_notes = msgspec.msgpack.Decoder(PushedOutNote)


class NodeStorage:
    def __init__(
        self,
        disk: NodeDisk,
        path: Path,
        *,
        bytes_max: int = BYTES_MAX,
        disk_reserve: int = DISK_RESERVE,
        durability: Durability = "power",
    ) -> None:
        """The storage in this file, made if there is none; `FileError` says in one line why not."""
        self._disk = disk
        self._path = path
        self._disk_reserve = disk_reserve
        self._pages_max = max(bytes_max // PAGE_BYTES, 16)
        self._written: list[Write] = []  # in the transaction that is open
        # Events that are in memory alone, because a commit failed: nobody is told that they are durable.
        self._unwritten: dict[EventId, Write] = {}
        self._waiting: list[OnDurable] = []
        self._failure: StoreFullError | None = None  # of the turn
        self._lazy_until: Micros | None = None
        self._is_lazy = True  # all that is written may wait
        self._cautious = False  # after a failed commit: events are committed one by one
        self.trouble = ""  # why the last event could not be kept
        self._is_short = False  # the trouble is want of room on the disk, and ends with it
        self.damaged = 0  # kept events that could not be read
        self.lost = ""  # what is known to be gone, and why
        self._mark = read_mark(disk, path)
        try:
            self._open(durability)
        except DamagedError as error:
            self._begin_anew(error.problem, durability)

    def _open(self, durability: Durability) -> None:
        disk, path, mark = self._disk, self._path, self._mark
        with ExitStack() as opened:
            try:
                has_log = any(name == f"{path.name}-wal" for name, _ in disk.files(path.parent))
                self._connection = disk.connect(path)
                opened.callback(self._connection.close)
                _prepare(self._connection, path, durability, mark is not None)
                self._limit(self._pages_max)
                self._stable = _Stable(self)
                self.stable: MutableMapping[str, bytes] = self._stable
            except OSError as error:
                kind = UnwritableError if error.errno in UNWRITABLE else FileError
                raise kind(str(path), f"cannot be written: {error.strerror}") from None
            except (sqlite3.Error, UnicodeDecodeError) as error:  # the second: a name in the schema
                raise _kind_of(error, mark is not None)(str(path), _why_not(error)) from None
            if mark is not None and self._stable.writes < mark.writes:
                raise DamagedError(str(path), "has lost what was written last")
            if mark is not None and mark.is_open and not has_log:
                raise DamagedError(str(path), "has lost its log")
            opened.pop_all()  # it stays open

    def _begin_anew(self, problem: str, durability: Durability) -> None:
        """What is left of the database is put aside. Numbers that must not come twice go on from the mark."""
        mark = self._mark
        assert mark is not None
        aside = self._path.with_name(f"{self._path.name}.damaged")
        try:
            self._disk.rename(self._path, aside)
            for beside in ("-wal", "-shm"):
                self._disk.remove(self._path.with_name(self._path.name + beside))
        except OSError as error:
            raise FileError(str(self._path), f"{problem}, and cannot be replaced: {error.strerror}") from None
        self._mark = None
        self._open(durability)
        self._mark = mark
        self.lost = f"{self._path} {problem}: its events, sessions and queues are lost; see {aside.name}"
        logger.error("%s; numbers go on from %s%s", self.lost, self._path.name, MARK_SUFFIX)
        for key, value in sorted(mark.stable.items()):
            self._stable[key] = value

    def close(self) -> None:
        """Commit what waits, and close."""
        self.commit()
        self._connection.close()
        if self._mark is not None and self._mark.is_open:
            self._mark.is_open = False
            with suppress(OSError):
                write_mark(self._disk, self._path, self._mark)

    def mark(self, writes: int, stable: dict[str, bytes]) -> None:
        """The values of `stable` are on the disk; here they are again."""
        self._mark = StorageMark(writes, True, stable)
        try:
            write_mark(self._disk, self._path, self._mark)
        except OSError as error:
            self._troubled(f"{self._path.name}{MARK_SUFFIX} cannot be written: {error.strerror}")

    # Durability.

    def on_durable(self, callback: OnDurable) -> None:
        """Call back from `commit`, once all that has been written so far is durable. The argument is None, or
        the reason why something of this turn could not be kept."""
        self._waiting.append(callback)

    def end_turn(self, now: Micros) -> None:
        """The end of a loop turn: `commit` if someone waits, or if writes have waited for long enough."""
        if not self._waiting and not self._written:
            return
        if self._lazy_until is None:
            self._lazy_until = now + LAZY
        is_urgent = bool(self._waiting) or not self._is_lazy
        if is_urgent or now >= self._lazy_until or len(self._written) >= LAZY_WRITES:
            self.commit()

    @property
    def is_pending(self) -> bool:
        """Whether something is written and not durable."""
        return bool(self._written)

    def commit(self) -> None:
        """Make all writes durable, then call back everyone who waits. Costs nothing without writes."""
        if self._unwritten:
            self._write_unwritten()
        if self._written:
            self._flush()
        waiting, self._waiting = self._waiting, []
        failure, self._failure = self._failure, None
        for callback in waiting:
            callback(failure)

    # Memorized events.

    def keep(
        self,
        event: Event,
        remaining: Micros,
        hops: int,
        wall: Micros,
        *,
        instead_of: EventId | None = None,
        is_lazy: bool = False,
    ) -> None:
        """Keep an event, maybe in the place of another; `is_lazy`: its sync may wait for others. After
        `StoreFullError` nothing has changed. A crash leaves at least one of the two events.

        `wall`: the wall clock in microseconds since 1970. Where it is not set (before 2026), the lifetime
        does not run while the node is off: events are kept too long rather than lost.
        """
        self._check_disk()
        expires = wall + remaining if wall >= CLOCK_SET else None
        data = _encoder.encode(event)
        counted = _checked(hops, expires, remaining, data)
        kept = (event.publisher, event.sequence, counted, expires, remaining, data)
        removed = () if instead_of is None else ((_REMOVE, tuple(instead_of)),)
        was_lazy = self._is_lazy
        self._write(((_KEEP, kept), *removed))
        self._is_lazy = is_lazy and was_lazy
        if self._cautious and self._flush():
            self._unwritten.pop(event.id, None)  # the caller keeps it elsewhere
            raise self._refused()
        self._has_room()

    def standing_trouble(self) -> str:
        """Why events are refused, if they still would be: room on the disk comes back without a word."""
        if self._is_short and not self._shortage():
            self._has_room()
        return self.trouble

    def remove(self, event: EventId) -> None:
        self._unwritten.pop(event, None)
        self.write(_REMOVE, tuple(event))

    def events(self, wall: Micros) -> list[DurableEvent]:
        """The kept events that have not expired, oldest arrival first. One that has is deleted by the next
        boot that finds it so: the clock of this one may be ahead."""
        is_set = wall >= CLOCK_SET
        rows = self.read("SELECT arrival, hops, expires, remaining, data FROM event ORDER BY arrival")
        kept = []
        for arrival, counted, expires, remaining, data in rows:
            hops = counted & HOPS_MASK
            try:
                event = _decoder.decode(data)
                if counted not in (hops, _checked(hops, expires, remaining, data)):
                    raise ValueError("its sum does not fit")
            except (msgspec.DecodeError, ValueError, TypeError):
                self.damaged += 1
                with suppress(StoreFullError):
                    self.write("DELETE FROM event WHERE arrival = ?", (arrival,))
                continue
            # Never more than when it was kept: the wall clock may have been set back.
            left = min(expires - wall, remaining) if is_set and expires is not None else remaining
            if left > 0:
                kept.append(DurableEvent(event, hops, min(left, LIFETIME_MAX)))
        if self.damaged:
            self.lost = f"{self._path}: {self.damaged} memorized events could not be read"
            logger.error("%s; they are lost here", self.lost)
        last = self.read("SELECT value FROM stable WHERE key = ?", (LAST_BOOT,))
        before = int.from_bytes(last[0][0], "big") if last else 0
        with suppress(StoreFullError):
            self.write("DELETE FROM event WHERE expires <= ?", (min(before, wall),))
            self.write("INSERT OR REPLACE INTO stable VALUES (?, ?)", (LAST_BOOT, wall.to_bytes(8, "big")))
        return kept

    def push_out(self, events: list[EventId], until: Micros) -> int:
        """Note that events were here, then remove them; returns the note's number. A savepoint around both
        would copy every page to a file beside the database."""
        note = PushedOutNote(until, [])
        for publisher, sequences in by_publisher(events).items():
            ends = runs(sequences)
            note.runs += [
                (publisher, first, last - first + 1) for first, last in zip(ends, ends, strict=True)
            ]
        number = self.write("INSERT INTO queued (client, data) VALUES (?, ?)", (HERE, _encoder.encode(note)))
        for publisher, first, count in note.runs:
            self.write(_REMOVE_RUN, (publisher, first, first, count))
        for event in events if self._unwritten else ():
            self._unwritten.pop(event, None)
        return number

    def pushed_out(self) -> Iterator[tuple[int, PushedOutNote]]:
        """What `push_out` has noted, by number, oldest first; empty where it cannot be read."""
        rows = self.read("SELECT number, data FROM queued WHERE client = ? ORDER BY number", (HERE,))
        for number, data in rows:
            try:
                yield number, _notes.decode(data)
            except msgspec.DecodeError:
                yield number, PushedOutNote(0, [])

    def forget_pushed_out(self, number: int) -> None:
        with suppress(StoreFullError):
            self.write("DELETE FROM queued WHERE client = ? AND number = ?", (HERE, number))

    # For the tables beside this class (`clients.py`).

    def write(self, statement: str, values: tuple[Any, ...], *, reserved: bool = False) -> int:
        """One statement of this turn; returns the row's number. `reserved`: may use the reserve."""
        return self._write(((statement, values),), reserved=reserved)

    def read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Rows, including what this turn has written so far."""
        return self._connection.execute(statement, values).fetchall()

    def write_durably(self, *write: Statement) -> None:
        """On the disk on return, or `StoreFullError`. Also commits what this turn has written before."""
        self._write(write, reserved=True)
        if write in self._flush():
            raise self._refused()

    # Private.

    def _write(self, write: Write, *, reserved: bool = False) -> int:
        try:
            return self._execute(write)
        except sqlite3.Error as error:
            failure = self._failed(error)
        if not reserved:
            raise failure
        self._limit(self._pages_max + STABLE_RESERVE // PAGE_BYTES)
        try:
            return self._execute(write)
        except sqlite3.Error as error:
            raise self._failed(error) from None
        finally:
            self._limit(self._pages_max)

    def _execute(self, write: Write) -> int:
        connection = self._connection
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        row = self._execute_together(write) if len(write) > 1 else connection.execute(*write[0]).lastrowid
        self._written.append(write)
        self._is_lazy = False
        return row or 0

    def _execute_together(self, write: Write) -> int | None:
        """A statement that fails undoes itself; this undoes those before it too."""
        connection = self._connection
        connection.execute("SAVEPOINT together")
        try:
            rows = [connection.execute(*statement).lastrowid for statement in write]
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO together")
                connection.execute("RELEASE together")
            raise
        connection.execute("RELEASE together")
        return rows[0]

    def _failed(self, error: sqlite3.Error) -> StoreFullError:
        """The error for a failed write. If it undid the transaction, the turn's other writes are redone."""
        failure = self._failure_of(error)
        if not self._connection.in_transaction and self._written and self._write_again():
            self._failure = failure
        return failure

    def _flush(self) -> list[Write]:
        """Commit. If that fails, the writes are committed one by one; returns those that did not fit."""
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._failure = self._failure_of(error)
            self._cautious = True
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            lost = self._write_again()
            for write in lost[:UNWRITTEN_MAX]:
                if write[0][0] == _KEEP:
                    self._unwritten[EventId(*write[0][1][:2])] = write
            return lost
        self._written.clear()
        self._lazy_until = None
        self._is_lazy = True
        self._cautious = False
        return []

    def _write_unwritten(self) -> None:
        """Write once more what no failed commit may lose."""
        unwritten, self._unwritten = self._unwritten, {}
        try:
            self._check_disk()
            for event, write in list(unwritten.items()):
                self._execute(write)
                del unwritten[event]
        except (StoreFullError, sqlite3.Error):
            self._failure = StoreFullError(self.trouble)
        self._unwritten |= unwritten

    def _write_again(self) -> list[Write]:
        written, self._written = self._written, []
        self._lazy_until = None
        self._is_lazy = True
        lost = []
        for write in written:
            try:
                with self._connection:  # commits, or rolls back
                    self._connection.execute("BEGIN IMMEDIATE")
                    for statement in write:
                        self._connection.execute(*statement)
            except sqlite3.Error:
                lost.append(write)
        return lost

    def _refused(self) -> StoreFullError:
        assert self._failure is not None, "a write was lost without a reason"
        failure, self._failure = self._failure, None
        return failure

    def _failure_of(self, error: sqlite3.Error) -> StoreFullError:
        is_full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
        shortage = self._shortage() if is_full else ""
        return self._troubled(shortage or _why_not(error), is_short=bool(shortage))

    def _troubled(self, problem: str, *, is_short: bool = False) -> StoreFullError:
        """Said once, until an event can be kept again."""
        failure = StoreFullError(f"{self._path}: {problem}")
        if not self.trouble:
            logger.error("%s; new memorized events are refused until there is room", failure)
        self.trouble = str(failure)
        self._is_short = is_short
        return failure

    def _has_room(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._is_short = False
            logger.info("%s has room again: events are kept", self._path)

    def _check_disk(self) -> None:
        if shortage := self._shortage():
            raise self._troubled(shortage, is_short=True)

    def _shortage(self) -> str:
        reserve = self._disk_reserve
        if not reserve or (free := self._disk.free_bytes(self._path)) >= reserve:
            return ""
        return f"the disk has {free} octets left; {reserve} are kept free for other programs"

    def _limit(self, pages: int) -> None:
        self._connection.execute(f"PRAGMA max_page_count = {pages}")


class DurableEventStore(EventStore):
    def __init__(
        self,
        storage: NodeStorage,
        now: Micros,
        wall_clock: Callable[[], Micros],
        *,
        entries_max: int = ENTRIES_MAX,
        settled: Settled | None = None,
    ) -> None:
        """Loads what was kept before. `now`: the node's clock; `wall_clock`: microseconds since 1970."""
        super().__init__(entries_max=COUNT_MAX, bytes_max=COUNT_MAX)  # nobody can be asked what may go yet
        self._storage = storage
        self._wall_clock = wall_clock
        self._off_disk: Container[EventId | None] = ()  # that are about to leave memory too
        self._is_loaded = False
        self._notes: deque[tuple[int, int]] = deque()  # of what was pushed out: number, events
        self._noted = 0  # events in them
        for number, note in storage.pushed_out():
            if note.until > wall_clock():
                self._note(number, sum(count for *_, count in note.runs))
            else:
                storage.forget_pushed_out(number)
        for kept in storage.events(wall_clock()):
            self.keep(kept.event, now + kept.remaining, kept.hops, now)
            if kept.event.id not in self:
                self._remove_from_disk(kept.event.id)
        self._is_loaded = True
        self.entries_max, self.bytes_max, self.settled = entries_max, STORE_BYTES_MAX, settled
        self._from_before = {topic: order_of(entry.event) for topic, entry in self._newest.items()}

    def _write(self, entry: StoredEvent, before: EventId | None, now: Micros) -> None:
        """Durable after the next `NodeStorage.commit`."""
        if self._is_loaded:
            event, left, wall_now = entry.event, entry.expires_at - now, self._wall_clock()
            lazy = is_chunk(event)
            self._storage.keep(event, left, entry.hops, wall_now, instead_of=before, is_lazy=lazy)
            self._off_disk = (before,)

    def pushed_out_before(self, now: Micros) -> Iterator[tuple[EventId, Micros]]:
        wall = self._wall_clock()
        for _, note in self._storage.pushed_out():
            for publisher, first, count in note.runs:
                for event in event_ids(publisher, range(first, first + count)):
                    yield event, now + max(0, note.until - wall)

    def _push_out(self, events: list[EventId], now: Micros) -> list[Event]:
        """It is noted that they were here: a neighbour that has one may wait for us to take it."""
        until = self._wall_clock() - now + max(self._entries[event].expires_at for event in events)
        with suppress(StoreFullError):
            self._note(self._storage.push_out(events, until), len(events))
            self._off_disk = set(events)
        return super()._push_out(events, now)

    def _note(self, number: int, count: int) -> None:
        self._notes.append((number, count))
        self._noted += count
        while self._noted > PUSHED_OUT_MAX:
            oldest, count = self._notes.popleft()
            self._noted -= count
            self._storage.forget_pushed_out(oldest)

    def _remove(self, event: EventId) -> StoredEvent:
        if event not in self._off_disk:
            self._remove_from_disk(event)
        return super()._remove(event)

    def _remove_from_disk(self, event: EventId) -> None:
        # A disk may be too full even for a deletion; then the next boot finds that the event has expired.
        with suppress(StoreFullError):
            self._storage.remove(event)


class _Stable(MutableMapping[str, bytes]):
    """`Host.stable`: small, wholly in memory, each change durable on return."""

    def __init__(self, storage: NodeStorage) -> None:
        self._storage = storage
        self._values: dict[str, bytes] = dict(storage.read("SELECT key, value FROM stable ORDER BY key"))
        self._values.pop(LAST_BOOT, None)
        self.writes = int.from_bytes(self._values.pop(WRITES, b""), "big")

    def __getitem__(self, key: str) -> bytes:
        return self._values[key]

    def __setitem__(self, key: str, value: bytes) -> None:
        if self._values.get(key) == value:
            return
        self._write("INSERT OR REPLACE INTO stable VALUES (?, ?)", (key, bytes(value)))
        self._values[key] = bytes(value)
        self._storage.mark(self.writes, self._values)

    def __delitem__(self, key: str) -> None:
        if key not in self._values:
            raise KeyError(key)
        self._write("DELETE FROM stable WHERE key = ?", (key,))
        del self._values[key]
        self._storage.mark(self.writes, self._values)

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        writes = (self.writes + 1).to_bytes(8, "big")
        counted = ("INSERT OR REPLACE INTO stable VALUES (?, ?)", (WRITES, writes))
        self._storage.write_durably((statement, values), counted)
        self.writes += 1

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)


def _checked(hops: int, expires: Micros | None, remaining: Micros, data: bytes) -> int:
    """The number of hops, with a sum over the row above it. Rows of version 0.2 have none."""
    rest = b"%d %d %d" % (hops, expires or 0, remaining)
    return hops & HOPS_MASK | zlib.crc32(data, zlib.crc32(rest)) + 1 << HOPS_BITS


class DamagedError(FileError):
    """A database of ours that cannot be used any more."""


class UnwritableError(FileError):
    """The disk takes nothing. The node can go on without storage."""


def _prepare(connection: sqlite3.Connection, path: Path, durability: Durability, is_ours: bool) -> None:
    # Exclusive: a second node process on the same file is refused, and the lock goes with the process.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN IMMEDIATE")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute("COMMIT")
    if is_ours:
        if not tables or (application, version) != (APPLICATION_ID, VERSION):
            raise DamagedError(str(path), "is empty" if not tables else "is damaged")
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DamagedError(str(path), f"is damaged ({' '.join(found.split())[:80]})")
    if tables and application != APPLICATION_ID:
        raise FileError(str(path), "is a database of something else")
    if tables and version != VERSION:
        raise FileError(str(path), f"has storage version {version}; this program reads and writes {VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit = {4 * 1024 * 1024}")
    if not tables:
        # All or nothing: a crash in between leaves an empty database, which the next start fills.
        connection.executescript(
            f"BEGIN IMMEDIATE; {_SCHEMA}"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
        )


def _why_not(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "")
    for beginning, problem in _PROBLEMS.items():
        if name.startswith(beginning):
            return problem
    return f"cannot be used: {error}"


def _kind_of(error: Exception, is_ours: bool) -> type[FileError]:
    is_garbled = isinstance(error, UnicodeDecodeError)
    name = "SQLITE_CORRUPT" if is_garbled else getattr(error, "sqlite_errorname", "")
    if is_ours and name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedError
    is_unwritable = name.startswith(("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR"))
    return UnwritableError if is_unwritable else FileError


_PROBLEMS = {
    "SQLITE_FULL": "the disk, or the storage at its configured size, is full",
    "SQLITE_BUSY": "is in use by another node process",
    "SQLITE_LOCKED": "is in use by another node process",
    "SQLITE_NOTADB": "is no storage of a node (not a database)",
    "SQLITE_CORRUPT": "is damaged; move it away to begin with an empty one",
    "SQLITE_READONLY": "cannot be written: it is read-only",
    "SQLITE_CANTOPEN": "cannot be opened",
}
