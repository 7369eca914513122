"""The durable storage: what is kept, across boots and clocks, at its bounds and on a full disk."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.broker.store import AT_ONCE_SHARE, StoredEvent, StoreFullError
from roamcast.errors import FileError
from roamcast.event import Event, EventClass, EventId
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.clients import DELIVERED_MAX, ClientRecords
from roamcast.runtime.live.storage.database import (
    LAZY,
    LAZY_WRITES,
    PAGE_BYTES,
    PUSHED_OUT_MAX,
    Durability,
    DurableEventStore,
    NodeStorage,
)
from roamcast.units import SECOND, Micros

WALL: Micros = 1_800_000_000 * SECOND  # in 2027
HOUR: Micros = 3_600 * SECOND


class HeldConnection:
    """A connection whose place another one can take for a while."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self.real = real
        self.used: Any = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.used, name)

    def __enter__(self) -> Any:
        return self.used.__enter__()

    def __exit__(self, *problem: Any) -> Any:
        return self.used.__exit__(*problem)


class HeldDisk(LocalDisk):
    """A disk in the hands of a test: with faults, room as it says, and crashes."""

    def __init__(self) -> None:
        self.free = 1 << 40

    def connect(self, path: Path) -> Any:
        self.held = HeldConnection(super().connect(path))
        return self.held

    def free_bytes(self, path: Path) -> int:
        return self.free

    def crash(self) -> None:
        """What was not committed is lost."""
        if self.held.real.in_transaction:
            self.held.real.execute("ROLLBACK")
        self.held.real.close()


def event(sequence: int, lifetime: Micros = HOUR, size: int = 10) -> Event:
    return Event(
        7, sequence, {"n": sequence}, bytes(size), event_class=EventClass.MEMORIZED, lifetime=lifetime
    )


def sequences(store: DurableEventStore, now: Micros = 0) -> list[int]:
    return [stored.event.sequence for stored in store.standing(now)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.db"


# Memorized events.


def test_what_is_kept_is_there_after_a_restart_in_order_of_arrival(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL)
    for sequence in (3, 1, 2):
        store.keep(event(sequence), HOUR, sequence, 0)
    store.keep(event(1), HOUR, 9, 0)  # a second copy changes nothing
    storage.close()
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL + 60 * SECOND)
    assert sequences(store) == [3, 1, 2]
    stored = store.standing(0)[1]
    assert stored.event == event(1) and stored.hops == 1
    assert stored.expires_at == HOUR - 60 * SECOND
    storage.close()


def test_lifetimes_go_on_while_the_node_is_off(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL)
    store.keep(event(1), 100 * SECOND, 0, 0)
    store.keep(event(2), 300 * SECOND, 0, 0)
    storage.close()
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 5_000, lambda: WALL + 100 * SECOND)
    assert sequences(store, 5_000) == [2]
    assert store.standing(5_000)[0].expires_at == 5_000 + 200 * SECOND
    storage.close()
    assert rows(path, "event") == 2  # the clock may be ahead
    storage = NodeStorage(LocalDisk(), path)
    DurableEventStore(storage, 0, lambda: WALL + 50 * SECOND)
    storage.close()
    assert rows(path, "event") == 2  # it was
    for _ in range(2):
        storage = NodeStorage(LocalDisk(), path)
        DurableEventStore(storage, 0, lambda: WALL + 100 * SECOND)
        storage.close()
    assert rows(path, "event") == 1  # two boots say so: the expired one is forgotten on the disk too


@pytest.mark.parametrize(
    ("kept_at", "found_at"),
    [
        (WALL, WALL - 10 * HOUR),  # the clock was set back
        (WALL, 0),  # no battery: the clock begins at 1970
        (30 * SECOND, WALL),  # it began there when the event came, and is right now
        (30 * SECOND, 10 * SECOND),
    ],
)
def test_a_wrong_clock_neither_loses_an_event_nor_makes_it_live_longer(
    path: Path, kept_at: Micros, found_at: Micros
) -> None:
    storage = NodeStorage(LocalDisk(), path)
    DurableEventStore(storage, 0, lambda: kept_at).keep(event(1), HOUR, 0, 0)
    storage.close()
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: found_at)
    assert [stored.expires_at for stored in store.standing(0)] == [HOUR]
    storage.close()


def test_what_expires_or_is_pushed_out_leaves_the_disk(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL, entries_max=2)
    store.keep(event(1), 10, 0, 0)
    store.keep(event(2), 30, 0, 0)
    assert [gone.sequence for gone in store.keep(event(3), 20, 0, 0)] == [1]
    assert sequences(store, 20) == [2]
    storage.close()
    assert rows(path, "event") == 1


def test_what_was_pushed_out_is_known_after_a_restart(path: Path) -> None:
    def everything(stored: list[StoredEvent]) -> list[StoredEvent]:
        return stored

    storage = NodeStorage(LocalDisk(), path)
    size = 2 * AT_ONCE_SHARE  # two go at once
    store = DurableEventStore(storage, 0, lambda: WALL, entries_max=size, settled=everything)
    for sequence in range(size + 5):
        store.keep(event(sequence), HOUR + sequence, 0, 0)
    gone = [EventId(7, sequence) for sequence in range(6)]
    assert not any(one in store for one in gone)
    assert EventId(7, 6) in store
    assert [one for one, _ in store.pushed_out_before(0)] == gone
    storage.write("INSERT INTO queued (client, data) VALUES ('', ?)", (b"no note",))
    storage.close()
    assert (rows(path, "event"), rows(path, "queued")) == (size - 1, 4)
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL, entries_max=size, settled=everything)
    found = list(store.pushed_out_before(0))
    assert [one for one, _ in found] == gone
    assert {ends for _, ends in found[:2]} == {HOUR + 1}
    storage.close()
    assert rows(path, "queued") == 3  # what cannot be read is deleted
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL + 2 * HOUR)
    assert list(store.pushed_out_before(0)) == []
    storage.close()
    assert rows(path, "queued") == 0


def test_notes_of_what_was_pushed_out_have_a_bound(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL, entries_max=1, settled=lambda stored: stored)
    for sequence in range(PUSHED_OUT_MAX + 10):
        store.keep(event(sequence), HOUR + sequence, 0, 0)
    storage.close()
    assert rows(path, "queued") == PUSHED_OUT_MAX


def retained(sequence: int, size: int = 10) -> Event:
    attributes: dict[str, bool | int | float | str | None] = {"mqtt": 4, "mqtt.at": sequence}
    return Event(7, sequence, attributes, bytes(size), "a", "", EventClass.MEMORIZED, HOUR)


def test_what_is_superseded_leaves_the_disk_with_the_same_commit(path: Path) -> None:
    disk = HeldDisk()
    storage = NodeStorage(disk, path)
    store = DurableEventStore(storage, 0, lambda: WALL)
    store.keep(event(1), HOUR, 0, 0)
    for sequence in range(2, 50):
        store.keep(retained(sequence), HOUR, 0, 0)
        storage.commit()
        assert len(storage.events(WALL)) == 2
    store.keep(retained(50), HOUR, 0, 0)  # never committed
    disk.crash()
    storage = NodeStorage(LocalDisk(), path)
    store = DurableEventStore(storage, 0, lambda: WALL)
    assert sequences(store) == [1, 49]
    assert store.is_history(retained(48)) and not store.is_history(retained(49))
    assert not store.is_history(event(48)) and not store.is_history(retained(51))
    storage.close()


def test_a_file_from_before_with_superseded_events_is_cleared_at_boot(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    for sequence in (3, 5, 4):
        storage.keep(retained(sequence), HOUR, 0, WALL)
    storage.close()
    storage = NodeStorage(LocalDisk(), path)
    assert sequences(DurableEventStore(storage, 0, lambda: WALL)) == [5]
    storage.close()
    assert rows(path, "event") == 1


def test_a_commit_that_fails_leaves_what_was_to_be_superseded(path: Path) -> None:
    disk = HeldDisk()
    storage = NodeStorage(disk, path)
    store = DurableEventStore(storage, 0, lambda: WALL)
    store.keep(retained(1), HOUR, 0, 0)
    storage.commit()
    told: list[StoreFullError | None] = []
    store.keep(retained(2), HOUR, 0, 0)
    storage.on_durable(told.append)
    disk.held.used = NoRoomForMore(disk.held.real)
    storage.commit()
    assert isinstance(told[0], StoreFullError)
    disk.held.real.close()  # it is killed
    storage = NodeStorage(LocalDisk(), path)
    assert [kept.event.sequence for kept in storage.events(WALL)] == [1]
    storage.close()


def test_an_event_without_room_supersedes_nothing(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path, bytes_max=100 * PAGE_BYTES)
    store = DurableEventStore(storage, 0, lambda: WALL)
    store.keep(retained(20_000), HOUR, 0, 0)
    fill(store, storage.commit)
    with pytest.raises(StoreFullError):
        store.keep(retained(20_001, size=50_000), HOUR, 0, 0)
    assert EventId(7, 20_000) in store
    storage.close()
    storage = NodeStorage(LocalDisk(), path, bytes_max=100 * PAGE_BYTES)
    assert storage.events(WALL)[0].event.sequence == 20_000
    storage.close()


def test_an_event_that_cannot_be_read_is_left_out_and_counted(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    for sequence in (1, 2):
        storage.keep(event(sequence), HOUR, 0, WALL)
    storage.write("UPDATE event SET data = x'c1' WHERE sequence = ?", (1,))
    assert [kept.event.sequence for kept in storage.events(WALL)] == [2]
    assert storage.damaged == 1
    storage.close()


# Durability.


def test_acknowledgements_wait_for_the_commit(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    told: list[StoreFullError | None] = []
    storage.keep(event(1), HOUR, 0, WALL)
    storage.on_durable(told.append)
    storage.stable["sequence"] = (
        b"1"  # durable at once, and the event with it; but nobody is told in a handler
    )
    assert told == []
    storage.commit()
    assert told == [None]
    storage.commit()
    assert told == [None]
    storage.on_durable(told.append)
    storage.commit()
    assert told == [None, None]
    storage.close()


def test_what_may_wait_and_nobody_waits_for_is_committed_a_little_later(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    told: list[StoreFullError | None] = []

    def pending(now: Micros) -> bool:
        storage.end_turn(now)
        return storage.is_pending

    storage.keep(event(1), HOUR, 0, WALL, is_lazy=True)
    assert pending(1_000) and pending(1_000 + LAZY - 1)
    assert not pending(1_000 + LAZY)
    assert not pending(2_000 + LAZY)  # nothing there
    storage.keep(event(2), HOUR, 0, WALL, is_lazy=True)
    assert pending(3_000 + LAZY)
    storage.on_durable(told.append)
    assert not pending(3_001 + LAZY) and told == [None]
    for sequence in range(LAZY_WRITES):
        assert not storage.is_pending or pending(4_000 + LAZY)
        storage.keep(event(10 + sequence), HOUR, 0, WALL, is_lazy=True)
    assert not pending(4_000 + LAZY)
    storage.keep(event(5_000), HOUR, 0, WALL, is_lazy=True)
    storage.keep(event(5_001), HOUR, 0, WALL)
    assert not pending(5_000 + LAZY)  # the other event waits for nobody
    storage.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("power", 2), ("process", 1)])
def test_a_commit_syncs_the_disk_unless_told_otherwise(
    path: Path, durability: Durability, synchronous: int
) -> None:
    """SIGKILL cannot show this, only a power cut can: SQLite's FULL (2) syncs the log at each commit."""
    storage = NodeStorage(LocalDisk(), path, durability=durability)
    assert storage.read("PRAGMA synchronous") == [(synchronous,)]
    assert storage.read("PRAGMA journal_mode") == [("wal",)]
    storage.close()


def test_stable_is_a_mapping_and_durable_on_return(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    storage.stable["a"] = b"1"
    storage.stable["b"] = b"2"
    storage.stable["a"] = b"3"
    del storage.stable["b"]
    with pytest.raises(KeyError):
        del storage.stable["b"]
    assert dict(storage.stable) == {"a": b"3"}
    copy = path.with_name("copy.db")  # as a crash would leave it: no close
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    storage.close()
    again = NodeStorage(LocalDisk(), copy)
    assert dict(again.stable) == {"a": b"3"}
    again.close()


# A full disk.


def fill(store: DurableEventStore, commit: Callable[[], None], first: int = 1) -> int:
    """Keep events until one is refused; returns the first that was."""
    for sequence in range(first, first + 10_000):
        try:
            store.keep(event(sequence, size=2_000), HOUR, 0, 0)
        except StoreFullError:
            return sequence
        if sequence % 7 == 0:
            commit()
    raise AssertionError("never full")


def test_at_its_size_the_storage_refuses_what_is_new_and_keeps_what_it_has(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path, bytes_max=100 * PAGE_BYTES)
    store = DurableEventStore(storage, 0, lambda: WALL)
    told: list[StoreFullError | None] = []
    refused = fill(store, storage.commit)
    assert refused > 50
    assert EventId(7, refused) not in store
    with pytest.raises(StoreFullError) as raised:
        store.keep(event(refused, size=2_000), HOUR, 0, 0)
    assert str(raised.value) == f"{path}: the disk, or the storage at its configured size, is full"
    storage.on_durable(told.append)
    storage.stable["sequence"] = bytes(8)  # numbers have their reserve
    storage.commit()
    assert told == [None]  # what was accepted is safe
    assert sequences(store) == list(range(1, refused))
    for sequence in range(1, 11):
        store._remove(EventId(7, sequence))
    store.keep(event(refused, size=2_000), HOUR, 0, 0)  # room again
    storage.close()
    assert path.stat().st_size <= 101 * PAGE_BYTES
    storage = NodeStorage(LocalDisk(), path, bytes_max=100 * PAGE_BYTES)
    kept = [kept.event.sequence for kept in storage.events(WALL)]
    assert kept == [*range(11, refused), refused]
    storage.close()


def test_a_disk_that_is_nearly_full_is_left_alone(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path, disk_reserve=2**62)
    with pytest.raises(StoreFullError, match=r"\d+ octets left; \d+ are kept free for other"):
        storage.keep(event(1), HOUR, 0, WALL)
    storage.stable["a"] = b"1"  # not an event
    storage.close()


def test_that_there_is_room_again_is_seen_without_an_event(path: Path) -> None:
    disk = HeldDisk()
    disk.free = 0
    storage = NodeStorage(disk, path)
    with pytest.raises(StoreFullError):
        storage.keep(event(1), HOUR, 0, WALL)
    assert "0 octets left" in storage.standing_trouble()
    disk.free = 1 << 40  # and nobody publishes
    assert storage.standing_trouble() == ""
    storage.close()


def test_a_database_that_is_full_stays_so_whatever_the_disk_has(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path, bytes_max=100 * PAGE_BYTES)
    fill(DurableEventStore(storage, 0, lambda: WALL), storage.commit)
    assert "at its configured size, is full" in storage.standing_trouble()
    storage.close()


def test_a_full_disk_is_logged_once_and_so_is_that_there_is_room_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    disk = HeldDisk()
    disk.free = 0
    storage = NodeStorage(disk, path)
    for sequence in range(5):
        with pytest.raises(StoreFullError):
            storage.keep(event(sequence), HOUR, 0, WALL)
    assert "octets left; 4194304 are kept free for other programs" in storage.trouble
    disk.free = 1 << 40  # somebody has made room
    storage.keep(event(9), HOUR, 0, WALL)
    assert storage.trouble == ""
    storage.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].endswith("new memorized events are refused until there is room")
    assert lines[1].endswith("has room again: events are kept")


def test_a_commit_that_fails_is_told_to_those_who_wait_and_nothing_accepted_before_is_lost(
    path: Path,
) -> None:
    disk = HeldDisk()
    storage = NodeStorage(disk, path)
    storage.keep(event(1), HOUR, 0, WALL)
    storage.commit()
    told: list[StoreFullError | None] = []
    storage.keep(event(2), HOUR, 0, WALL)
    storage.on_durable(told.append)
    disk.held.used = FullDisk(disk.held.real)
    storage.commit()
    assert isinstance(told[0], StoreFullError)
    with pytest.raises(StoreFullError):  # from here on at once, one by one
        storage.keep(event(3), HOUR, 0, WALL)
    with pytest.raises(StoreFullError):
        storage.stable["sequence"] = b"1"
    assert "sequence" not in storage.stable
    disk.held.used = disk.held.real
    storage.keep(event(4), HOUR, 0, WALL)
    storage.on_durable(told.append)
    storage.commit()
    assert told[1] is None
    assert [kept.event.sequence for kept in storage.events(WALL)] == [1, 4, 2], "2 was in memory all the time"
    storage.close()


class FullDisk:
    """A connection on which no commit succeeds."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if statement == "COMMIT":
            self._fail()
        return self._real.execute(statement, values)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self._fail()

    def _fail(self) -> None:
        self._real.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")


class NoRoomForMore(FullDisk):
    """One on which a removal succeeds by itself, but nothing that adds."""

    def __init__(self, real: sqlite3.Connection) -> None:
        super().__init__(real)
        self._added = False

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if statement.startswith("BEGIN"):
            self._added = False
        self._added = self._added or statement.startswith("INSERT")
        return super().execute(statement, values)

    def __exit__(self, *_: object) -> None:
        if self._added:
            self._fail()
        self._real.execute("COMMIT")


ON_A_SMALL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.runtime.live.storage import test_storage
test_storage.on_a_small_disk(Path({disk!r}))
"""


def test_a_disk_without_a_free_octet(tmp_path: Path) -> None:
    """A real one: a file system of 1 MiB in a namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = ON_A_SMALL_DISK.format(root=str(Path(__file__).parents[4]), disk=str(disk))
    mount = f'mount -t tmpfs -o size=1m none "{disk}" || exit 77; exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, script],
        capture_output=True,
        text=True,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this kernel lets no user mount a file system")
    assert done.returncode == 0, done.stderr


def on_a_small_disk(disk: Path) -> None:
    path = disk / "node.db"
    storage = NodeStorage(LocalDisk(), path, disk_reserve=0)
    store = DurableEventStore(storage, 0, lambda: WALL)
    durable: list[int] = []
    failures: list[StoreFullError] = []
    for sequence in range(1, 2_000):
        try:
            store.keep(event(sequence, size=2_000), HOUR, 0, 0)
        except StoreFullError as error:
            failures.append(error)
            continue

        def tell(error: StoreFullError | None, sequence: int = sequence) -> None:
            if error is None:
                durable.append(sequence)
            else:
                failures.append(error)

        storage.on_durable(tell)
        storage.commit()
    assert failures and len(durable) > 50, (len(failures), len(durable))
    assert os.statvfs(disk).f_bavail == 0 or "full" in str(failures[0])
    storage._connection.close()  # as a crash
    filler = disk / "node.db-wal"
    assert filler.exists() or path.exists()
    storage = NodeStorage(LocalDisk(), path, disk_reserve=0)
    kept = {kept.event.sequence for kept in storage.events(WALL)}
    assert set(durable) <= kept, sorted(set(durable) - kept)[:5]


# Files that are no storage.


def test_what_is_wrong_with_the_file_is_said_in_one_line(tmp_path: Path) -> None:
    used = tmp_path / "used.db"
    storage = NodeStorage(LocalDisk(), used)
    text = tmp_path / "text.db"
    text.write_text("this is a text, and not a short one: " * 100)
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    newer = tmp_path / "newer.db"
    NodeStorage(LocalDisk(), newer).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    for path, problem in [
        (used, "is in use by another node process"),
        (text, "is no storage of a node (not a database)"),
        (other, "is a database of something else"),
        (newer, "has storage version 2; this program reads and writes 1"),
        (tmp_path, "cannot be opened"),
        (tmp_path / "none" / "node.db", "cannot be written: No such file or directory"),
    ]:
        with pytest.raises(FileError) as raised:
            NodeStorage(LocalDisk(), path)
        assert str(raised.value) == f"{path}: {problem}"
    assert text.read_text().startswith("this is a text")
    storage.close()
    NodeStorage(LocalDisk(), used).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_may_not_be_written(path: Path) -> None:
    NodeStorage(LocalDisk(), path).close()
    path.chmod(0o400)
    with pytest.raises(FileError, match="cannot be written"):
        NodeStorage(LocalDisk(), path)


def test_only_the_owner_may_read_what_is_kept(path: Path) -> None:
    NodeStorage(LocalDisk(), path).close()
    assert path.stat().st_mode & 0o077 == 0


# Clients.


def test_a_named_client_finds_everything_after_a_restart(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    records = ClientRecords(storage)
    records.put_session("ann", b"session")
    queue = records.queue("ann")
    numbers = [queue.append(data) for data in (b"one", b"two", b"three")]
    records.queue("bob").append(b"for bob")
    queue.acknowledge(numbers[0])
    records.note_delivered("ann", EventId(7, 1), WALL + HOUR)
    records.note_delivered("ann", EventId(7, 2), WALL)
    storage.close()
    storage = NodeStorage(LocalDisk(), path)
    records = ClientRecords(storage)
    assert records.clients() == ["ann"] and records.session("ann") == b"session"
    assert records.session("bob") is None
    assert records.queue("ann").entries() == [(numbers[1], b"two"), (numbers[2], b"three")]
    assert records.queue("ann").entries(1) == [(numbers[1], b"two")]
    assert records.delivered("ann", WALL) == [EventId(7, 1)]
    records.end_session("ann")
    assert (records.clients(), len(records.queue("ann"))) == ([], 0)
    assert records.queue("bob").append(b"more") > numbers[2]  # numbers are never used again
    assert len(records.queue("bob")) == 2
    storage.close()


def test_what_is_kept_of_clients_has_its_bounds(path: Path) -> None:
    storage = NodeStorage(LocalDisk(), path)
    records = ClientRecords(storage, clients_max=2)
    for client in ("a", "b", "a"):
        records.put_session(client, b"")
    with pytest.raises(StoreFullError, match="sessions of 2 clients"):
        records.put_session("c", b"")
    queue = records.queue("a", 2)
    first = queue.append(b"1")
    queue.append(b"2")
    with pytest.raises(StoreFullError, match="2 entries wait for client 'a'"):
        queue.append(b"3")
    queue.acknowledge(first)
    queue.append(b"3")
    for sequence in range(DELIVERED_MAX + 10):
        records.note_delivered("a", EventId(1, sequence), WALL + sequence)
    assert len(records.delivered("a", WALL - 1)) == DELIVERED_MAX
    assert records.delivered("a", WALL - 1)[0] == EventId(1, 10)
    storage.close()


def rows(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)
    finally:
        connection.close()


@settings(max_examples=15)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["keep", "remove", "queue", "ack"]), st.integers(0, 5)),
            st.tuples(st.just("stable"), st.integers(0, 2)),
            st.tuples(st.sampled_from(["commit", "crash", "restart"]), st.just(0)),
        ),
        max_size=40,
    )
)
def test_a_crash_leaves_exactly_what_was_committed(steps: list[tuple[str, int]]) -> None:
    """Against a model in memory: the last commit, and nothing of the turn that was open."""
    with TemporaryDirectory() as folder:
        boots = 0
        path = Path(folder) / "0.db"
        disk = HeldDisk()
        storage = NodeStorage(disk, path, durability="process")
        model: tuple[dict[int, None], dict[str, bytes], list[bytes]] = ({}, {}, [])
        committed = deepcopy(model)
        for step, number in steps:
            events, stable, queue = model
            match step:
                case "keep":
                    storage.keep(event(number), HOUR, 0, WALL)
                    events.setdefault(number)
                case "remove":
                    storage.remove(EventId(7, number))
                    events.pop(number, None)
                case "queue":
                    ClientRecords(storage).queue("ann").append(bytes([number]))
                    queue.append(bytes([number]))
                case "ack":
                    for entry, _ in ClientRecords(storage).queue("ann").entries(1):
                        ClientRecords(storage).queue("ann").acknowledge(entry)
                        queue.pop(0)
                case "stable":
                    if stable.get(str(number)) != bytes([boots]):
                        storage.stable[str(number)] = stable[str(number)] = bytes([boots])
                        committed = deepcopy(model)  # durable on return, and all before it
                case "commit":
                    storage.commit()
                    committed = deepcopy(model)
                case _:
                    if step == "restart":
                        storage.close()
                        committed = deepcopy(model)
                    boots += 1
                    copy = path.with_name(f"{boots}.db")
                    for suffix in ("", "-wal"):
                        if Path(f"{path}{suffix}").exists():
                            Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
                    if step == "crash":
                        disk.crash()
                    path, model = copy, deepcopy(committed)
                    disk = HeldDisk()
                    storage = NodeStorage(disk, path, durability="process")
            assert [kept.event.sequence for kept in storage.events(WALL)] == list(model[0])
            assert dict(storage.stable) == model[1]
            assert [data for _, data in ClientRecords(storage).queue("ann").entries()] == model[2]
        storage.close()
