"""Who writes into a folder: one at a time. Others are told who that is, and since when.

A claim is a small file in `claim/`. No store can be asked to create a file only if no other is there, so each
writes its own and looks afterwards: whoever sees another live claim gives way. Of two that begin at the same
moment both may give way, but never both go on, where a list shows what was written before it was asked for
(disks, HDFS, S3, Google).

A claim is written anew every few seconds, with a number that grows. Whether it lives is told by that, and by
no clock but our own: machines' clocks differ. One whose number stands still for `STALE_SECONDS` is taken
over; one of a process of this machine that has ended, at once.
"""

import getpass
import os
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname

import msgspec

from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.lab.storage.sealed import CLAIM
from roamcast.lab.storage.storage import Storage

BEAT_SECONDS = 5.0  # chosen by us, as is the next: a busy machine may skip some beats
STALE_SECONDS = 60.0


class Claimant(msgspec.Struct):
    """What a claim says."""

    who: str
    machine: str
    process: int
    since: str
    beats: int = 0

    def has_ended(self) -> bool:
        """Whether the owner has ended for certain: it was a process of this machine, and is gone."""
        if self.machine != _machine():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # somebody else's, so there is one
        return False


class FolderClaim:
    """Held from its making to `release`; an `InputError` if somebody else holds the folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._file = f"{CLAIM}/{uuid.uuid4().hex}.json"
        since = datetime.now(UTC).isoformat(" ", "seconds")
        self._mine = Claimant(f"{_user()} on {gethostname()}", _machine(), os.getpid(), since)
        self._ended = threading.Event()
        self._is_lost = False
        self._write()
        self._thread = threading.Thread(target=self._beat, name="folder-claim", daemon=True)
        self._thread.start()
        try:
            for file in storage.files(CLAIM):
                if file != self._file:
                    self._outlive(file)
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        """An error if somebody took the folder over, because nothing was heard of this process."""
        if self._is_lost or not self._storage.exists(self._file):
            waited = f"nothing was heard of this process for {STALE_SECONDS:.0f} s"
            raise RoamcastError(f"{self._storage}: was taken over by another process: {waited}")

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        self._storage.delete(self._file)
        if self._storage.path is not None:
            with suppress(OSError):  # somebody else's is in it
                (self._storage.path / CLAIM).rmdir()

    def _write(self) -> None:
        self._storage.write(self._file, msgspec.json.encode(self._mine))

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            with suppress(FileError):  # a store that does not answer now may answer the next time
                if not self._storage.exists(self._file):
                    self._is_lost = True
                    return
                self._mine.beats += 1
                self._write()

    def _outlive(self, file: str) -> None:
        """Wait until the claim goes, or is seen to be a dead one's."""
        first = self._storage.read_if_there(file)
        until = time.monotonic() + STALE_SECONDS
        while first is not None and time.monotonic() < until:
            try:
                other = msgspec.json.decode(first, type=Claimant)
            except msgspec.MsgspecError:
                break  # nobody's
            if other.has_ended():
                break
            time.sleep(min(BEAT_SECONDS / 5, 1.0))
            now = self._storage.read_if_there(file)
            if now is None:
                return
            if now != first:
                raise InputError(
                    str(self._storage),
                    f"is written by {other.who} (process {other.process}) since {other.since}; allowed: "
                    f"to wait for its end. A claim of which nothing is heard for {STALE_SECONDS:.0f} s is "
                    "taken over",
                )
        self._storage.delete(file)


def _machine() -> str:
    """Where process numbers mean the same: not in another container, and not after the next start."""
    found = [gethostname()]
    for file in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            found.append(os.readlink(file) if "ns" in file else Path(file).read_text().strip())
    return " ".join(found)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, in a container
        return f"user {os.getuid()}"
