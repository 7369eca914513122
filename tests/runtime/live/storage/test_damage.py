"""A database that lost its log, was cut or has flipped bits: it is said, and no number comes twice."""

import logging
import shutil
import sqlite3
from pathlib import Path
from random import Random

import pytest

from roamcast.errors import FileError
from roamcast.event import Event, EventClass
from roamcast.kit.numbers import StableCounter
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.clients import ClientRecords
from roamcast.runtime.live.storage.database import NodeStorage, UnwritableError

WALL = 1_800_000_000_000_000
DAY = 86_400_000_000


def used(folder: Path) -> tuple[Path, int]:
    """A database as a killed node leaves it, after some hundred events; and the first number not yet used."""
    live = folder / "live"
    live.mkdir()
    storage = NodeStorage(LocalDisk(), live / "state.db")
    numbers = StableCounter(storage.stable, "sequence", 100)
    for _ in range(300):
        event = Event(1, numbers.take(), payload=bytes(300), event_class=EventClass.MEMORIZED, lifetime=DAY)
        storage.keep(event, DAY, 0, WALL)
    ClientRecords(storage).put_session("ann", b"a session")
    storage.commit()
    killed = folder / "killed"
    shutil.copytree(live, killed)
    storage.close()
    return killed / "state.db", numbers.next


def opened(path: Path) -> tuple[NodeStorage, int]:
    storage = NodeStorage(LocalDisk(), path)
    return storage, StableCounter(storage.stable, "sequence", 100).take()


def test_an_intact_one_says_nothing(tmp_path: Path) -> None:
    path, following = used(tmp_path)
    storage, number = opened(path)
    assert storage.lost == "" and len(storage.events(WALL)) == 300 and number >= following
    storage.close()
    storage, again = opened(path)  # after a stop in good order, without a log
    assert storage.lost == "" and len(storage.events(WALL)) == 300 and again > number
    storage.close()


def test_a_schema_that_is_no_text_is_damage_too(tmp_path: Path) -> None:
    """SQLite's own message about it cannot be decoded: the node ended in a traceback."""
    path, following = used(tmp_path)
    storage, _ = opened(path)
    storage.close()
    octets = path.read_bytes()
    at = octets.index(b"CREATE TABLE session")
    path.write_bytes(octets[: at - 12] + b"\xec" * 10 + octets[at - 2 :])
    storage, number = opened(path)
    assert "damaged" in storage.lost and number >= following
    storage.close()


@pytest.mark.parametrize("kind", ["log", "all", "emptied", "short", "header", "backup"])
def test_what_is_lost_is_said_and_no_number_comes_twice(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, following = used(tmp_path)
    log = path.with_name("state.db-wal")
    if kind == "backup":  # the file alone, from before: the log was not copied
        log.unlink()
        path.write_bytes(b"")
    elif kind == "log":
        log.unlink()
    else:
        storage, _ = opened(path)
        storage.close()  # all is in one file now
        content = path.read_bytes()
        cut = {"all": b"", "emptied": b"", "short": content[: len(content) // 2]}
        path.write_bytes(cut.get(kind, bytes(100) + content[100:]))
        if kind == "all":
            path.unlink()
    with caplog.at_level(logging.ERROR):
        storage, number = opened(path)
    assert storage.lost and storage.events(WALL) == [] and number >= following
    assert len([line for line in caplog.messages if "lost" in line]) == 1
    storage.close()
    storage, again = opened(path)
    assert storage.lost == "" and again > number, "the new one is whole"
    storage.close()


def test_flipped_bits_are_found_or_harmless(tmp_path: Path) -> None:
    path, following = used(tmp_path)
    storage, _ = opened(path)
    storage.close()
    random = Random(1)
    whole, silent = path.read_bytes(), 0
    mark = path.with_name("state.db.mark").read_bytes()
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(random.randrange(1, 40)):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(content)
        path.with_name("state.db.mark").write_bytes(mark)
        storage, number = opened(path)
        events = storage.events(WALL)
        ClientRecords(storage).clients()
        assert number >= following
        silent += len(events) < 300 and not storage.lost
        storage.close()
    assert not silent, "events were lost without a word"


def test_a_stranger_s_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"a letter, and no database" * 100)
    with pytest.raises(FileError, match="not a database"):
        NodeStorage(LocalDisk(), path)
    assert path.read_bytes().startswith(b"a letter")


class FullDisk(LocalDisk):
    def replace(self, path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")


def test_a_mark_that_cannot_be_written_is_trouble_and_no_end(tmp_path: Path) -> None:
    storage = NodeStorage(FullDisk(), tmp_path / "state.db")
    storage.stable["a"] = b"1"
    assert "mark" in storage.trouble
    storage.close()


def test_a_disk_that_takes_nothing_is_told_from_a_wrong_file(tmp_path: Path) -> None:
    class ReadOnly(LocalDisk):
        def connect(self, path: Path) -> sqlite3.Connection:
            raise OSError(30, "Read-only file system")

    with pytest.raises(UnwritableError, match="Read-only"):
        NodeStorage(ReadOnly(), tmp_path / "state.db")


def test_a_log_that_is_lost_after_all_numbers_were_in_the_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    storage = NodeStorage(LocalDisk(), path)
    storage.stable["a"] = b"1"
    storage.read("PRAGMA wal_checkpoint(TRUNCATE)")
    storage.keep(Event(1, 1, event_class=EventClass.MEMORIZED, lifetime=DAY), DAY, 0, WALL)
    storage.commit()
    shutil.copytree(tmp_path, tmp_path / "killed", ignore=shutil.ignore_patterns("*-wal", "killed"))
    storage.close()
    lacking = NodeStorage(LocalDisk(), tmp_path / "killed" / "state.db")
    assert "log" in lacking.lost and lacking.stable["a"] == b"1"
    lacking.close()


def test_an_older_copy_in_its_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for number in range(2):
        storage = NodeStorage(LocalDisk(), path)
        storage.stable["boots"] = b"%d" % number
        storage.close()
        shutil.copy(path, tmp_path / f"copy{number}")
    shutil.copy(tmp_path / "copy0", path)
    older = NodeStorage(LocalDisk(), path)
    assert "written last" in older.lost and older.stable["boots"] == b"1"
    older.close()
