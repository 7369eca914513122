"""A machine's disk: databases and small files of which only what was synced survives.

A database is a real SQLite database in memory. Each commit is a sync: what was committed is what a later
process finds. A process that dies loses its connection and everything since. Each write, commit and replaced
file is a numbered *point*; `kill_at` is the point at which the process dies, before (even numbers) or after
(odd numbers) it took effect.

The disk can be slow (each sync blocks its process), full for a while (commits and new files fail), and
damaged (`damage`: flipped bits, pages of an older image, a cut end).

What it cannot find: faults of SQLite itself, of its log and of the file system under it (a write that was
synced and is torn all the same shows as damage, which `tests/runtime/live/storage` does to real files).
"""

import io
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

from tests.virtual.timeline import Killed, ProcessLoop

WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
PAGE = 4_096


class VirtualDisk:
    """Of one machine. `process`: the one that uses it now."""

    def __init__(self) -> None:
        self.databases: dict[str, bytes] = {}  # images, as synced by processes that are gone
        self.before: dict[str, bytes] = {}  # the images that the last process found
        self.committed: dict[str, DiskConnection] = {}  # by whom, since those images
        self.files_kept: dict[str, bytes] = {}
        self.process: ProcessLoop | None = None
        self.points = 0  # that were passed, of all processes
        self.kill_at: int | None = None
        self.on_point: Callable[[str], None] = lambda what: None
        self.slow: Callable[[], float] = lambda: 0.0  # seconds of one sync
        self.is_full = False
        self.commits = 0

    # Of `NodeDisk`.

    def connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, factory=DiskConnection)
        self.settle(str(path))
        if image := self.databases.get(str(path)):
            self.before[str(path)] = image
            connection.deserialize(image)
        connection.belongs_to(self, str(path), self.process)
        return connection

    def free_bytes(self, path: Path) -> int:
        return 0 if self.is_full else 1 << 40

    def replace(self, path: Path, data: bytes) -> None:
        self.check_room()
        self.point("replace")
        self.sync()
        self.files_kept[str(path)] = data
        self.point("replaced")

    def open(self, path: Path, mode: Literal["rb", "wb", "r+b"]) -> Any:
        if mode == "rb":
            if str(path) not in self.files_kept:
                raise FileNotFoundError(2, "No such file or directory")
            return io.BytesIO(self.files_kept[str(path)])
        self.check_room()
        return _VirtualFile(self, str(path), self.files_kept.get(str(path), b"") if mode == "r+b" else b"")

    def make_folder(self, path: Path) -> None:
        pass

    def files(self, folder: Path) -> list[tuple[str, int]]:
        sizes = {name: len(data) for name, data in {**self.files_kept, **self.databases}.items()}
        sizes |= {name: connection.size() for name, connection in self.committed.items()}
        sizes |= {f"{name}-wal": 0 for name in self.databases.keys() | self.committed.keys()}
        return [(Path(name).name, size) for name, size in sizes.items() if Path(name).parent == folder]

    def settle(self, name: str) -> None:
        """The process that has used this database is gone, or has closed it: what it committed stays."""
        connection = self.committed.pop(name, None)
        if connection is not None:
            self.databases[name] = connection.image()

    def rename(self, path: Path, to: Path) -> None:
        self.settle(str(path))
        for kept in (self.files_kept, self.databases):
            if str(path) in kept:
                kept[str(to)] = kept.pop(str(path))

    def remove(self, path: Path) -> None:
        self.committed.pop(str(path), None)
        self.files_kept.pop(str(path), None)
        self.databases.pop(str(path), None)

    # Faults.

    def point(self, what: str) -> None:
        """Something is about to take effect, or has."""
        if self.process is None or self.process.is_dead:
            raise Killed  # what still runs of a dead process does nothing
        number = self.points
        self.points += 1
        self.on_point(what)
        if number == self.kill_at:
            self.process.is_dead = True
            raise Killed

    def sync(self) -> None:
        self.commits += 1
        if self.process is not None and (wait := self.slow()):
            self.process.block(wait)

    def check_room(self) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")

    def damage(self, random: Random, path: str | None = None) -> str:
        """Something of a synced database changes. What was done."""
        name = path or sorted(self.databases.keys() | self.committed.keys())[0]
        self.settle(name)
        image = bytearray(self.databases[name])
        kind = random.choice(("flips", "torn", "cut", "emptied"))
        if kind == "flips":
            for _ in range(random.randrange(1, 40)):
                image[random.randrange(len(image))] ^= 1 << random.randrange(8)
        elif kind == "torn":
            older = self.before.get(name, b"")
            for page in range(0, min(len(older), len(image)), PAGE):
                if random.random() < 0.5:
                    image[page : page + PAGE] = older[page : page + PAGE]
        else:
            del image[random.randrange(len(image)) if kind == "cut" else 0 :]
        self.databases[name] = bytes(image)
        return kind


class DiskConnection(sqlite3.Connection):
    _disk: VirtualDisk
    _path: str
    _process: ProcessLoop | None
    _changes = 0  # that are committed

    def belongs_to(self, disk: VirtualDisk, path: str, process: ProcessLoop | None) -> None:
        self._disk, self._path, self._process = disk, path, process

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        self._check_alive()
        if sql == "COMMIT":
            return self._commit()
        if sql.startswith(WRITES):
            self._disk.point(sql)
        elif sql == "PRAGMA journal_mode = WAL":
            sql = "PRAGMA journal_mode = MEMORY"  # an image has no log beside it
        return super().execute(sql, *arguments)

    def executescript(self, sql: str) -> sqlite3.Cursor:
        self._disk.point("script")
        done = super().executescript(sql)
        self._keep()
        self._disk.point("script done")
        return done

    def __exit__(self, kind: Any, *_: Any) -> Literal[False]:
        if kind is None:
            self.execute("COMMIT")
        elif self.in_transaction:
            super().execute("ROLLBACK")
        return False

    def _commit(self) -> sqlite3.Cursor:
        self._disk.point("commit")
        if self._disk.is_full and self.total_changes > self._changes:
            super().execute("ROLLBACK")
            self._changes = self.total_changes
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        done = super().execute("COMMIT")
        self._changes = self.total_changes
        self._disk.sync()
        self._keep()
        self._disk.point("committed")
        return done

    def image(self) -> bytes:
        if self.in_transaction:
            super().execute("ROLLBACK")
        return self.serialize()

    def size(self) -> int:
        return int(super().execute("PRAGMA page_count").fetchone()[0]) * PAGE

    def close(self) -> None:
        if self._disk.committed.get(self._path) is self:
            self._disk.settle(self._path)
        super().close()

    def _keep(self) -> None:
        self._disk.committed[self._path] = self

    def _check_alive(self) -> None:
        if self._process is None or self._process.is_dead or self._disk.process is not self._process:
            raise Killed


class _VirtualFile(io.BytesIO):
    """Written through: what was written is there for the next process."""

    def __init__(self, disk: VirtualDisk, name: str, content: bytes) -> None:
        super().__init__(content)
        self._disk, self._name = disk, name

    def write(self, data: Any) -> int:
        self._disk.check_room()
        count = super().write(data)
        self._disk.files_kept[self._name] = self.getvalue()
        return count
