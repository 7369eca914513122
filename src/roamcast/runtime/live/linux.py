"""This machine as the world of a live node (`world.py`). Linux only.

Interfaces are read by the ioctl calls of netdevice(7) and from /proc/net/if_inet6: they need neither a
library nor a permission, and each takes some microseconds, so a running node can look every second.
"""

import asyncio
import fcntl
import ipaddress
import os
import secrets
import socket
import sqlite3
import struct
import termios
import time
from collections.abc import Iterable
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from random import SystemRandom
from typing import Any, Literal

from roamcast.runtime.live.world import Interface, NodeWorld, UnreadDatagrams
from roamcast.strategy.base import MachineCounters
from roamcast.units import SECOND, Micros

NAME_BYTES_MAX = 15
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK, _SIOCGIFMTU = 0x8913, 0x8915, 0x891B, 0x8921
_IFF_BROADCAST, _IFF_LOOPBACK = 0x2, 0x8
_WORKING = 0x41  # IFF_UP and IFF_RUNNING
_SCOPE_LINK, _NOT_USABLE = 0x20, 0x48  # of if_inet6: the link's own; tentative, or found to be a duplicate
_IF_INET6 = Path("/proc/net/if_inet6")
_CLASS = Path("/sys/class/net")
_STATISTICS = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_IDLE = (3, 4)  # columns of /proc/stat: doing nothing, and waiting for a disk
_COLUMNS = 8  # those behind are parts of others (proc(5): guest time is in user time)


def this_machine() -> NodeWorld:
    """The world of this machine, with the event loop that runs now."""
    return NodeWorld(
        asyncio.get_running_loop(), time, LocalDisk(), LinuxNetwork(), LinuxMachine(), SystemRandom()
    )


class NodeConnection(sqlite3.Connection):
    """Reads damaged texts too, with signs in place of the octets that are no UTF-8."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text_factory = lambda text: text.decode(errors="replace")


class LocalDisk:
    """The disk of this machine."""

    def connect(self, path: Path) -> sqlite3.Connection:
        path.touch(mode=0o600)
        return sqlite3.connect(path, timeout=0.0, isolation_level=None, factory=NodeConnection)

    def free_bytes(self, path: Path) -> int:
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize

    def open(self, path: Path, mode: Literal["rb", "wb", "r+b"]) -> RawIOBase:
        return open(path, mode, buffering=0)

    def replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(path.name + ".new")
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def files(self, folder: Path) -> list[tuple[str, int]]:
        return [(entry.name, entry.stat().st_size) for entry in os.scandir(folder)]

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class LinuxNetwork:
    """The interfaces and sockets of this machine."""

    def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return socket.socket(family, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)

    def names(self) -> list[str]:
        return [name for _, name in socket.if_nameindex()]

    def look(self, name: str) -> Interface | None:
        request = name.encode()
        if not 0 < len(request) <= NAME_BYTES_MAX:
            return None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
            try:
                index = socket.if_nametoindex(name)
                flags = struct.unpack_from("H", _ioctl(asked, _SIOCGIFFLAGS, request), 16)[0]
                mtu = struct.unpack_from("i", _ioctl(asked, _SIOCGIFMTU, request), 16)[0]
            except OSError:
                return None
            try:
                address = socket.inet_ntoa(_ioctl(asked, _SIOCGIFADDR, request)[20:24])
                mask = _ioctl(asked, _SIOCGIFNETMASK, request)[20:24]
            except OSError:
                address, mask = None, bytes(4)
        return Interface(
            name,
            index,
            address,
            flags & _WORKING == _WORKING,
            bool(flags & _IFF_LOOPBACK),
            mtu,
            int.from_bytes(mask, "big").bit_count(),
            _link_local(name),
            bool(flags & _IFF_BROADCAST),
        )

    def is_hardware(self, found: Interface) -> bool:
        folder = _CLASS / found.name
        is_part = (folder / "master").exists() and found.address is None
        return (folder / "device").exists() and found.broadcasts and not is_part

    def is_wireless(self, name: str) -> bool:
        return (_CLASS / name / "wireless").exists()

    def unsent(self, opened: socket.socket) -> int:
        """SIOCOUTQ, tcp(7) and udp(7)."""
        octets: int = struct.unpack("i", fcntl.ioctl(opened, termios.TIOCOUTQ, bytes(4)))[0]
        return octets

    def unread(self, opened: Iterable[socket.socket]) -> UnreadDatagrams:
        """proc(5)."""
        ours = {str(os.fstat(one.fileno()).st_ino) for one in opened}
        dropped = waiting = 0
        for file in _STATISTICS:
            try:
                lines = file.read_text().splitlines()[1:]
            except OSError:  # a kernel without that family
                continue
            for row in map(str.split, lines):
                if len(row) > 12 and row[9] in ours:
                    dropped += int(row[12])
                    waiting += int(row[4].partition(":")[2], 16)
        return UnreadDatagrams(dropped, waiting)


class LinuxMachine:
    """What this machine has done and has left, as Linux counts it. Elsewhere nobody can tell what other
    processes do, and what memory there is."""

    def __init__(self) -> None:
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def read(self) -> MachineCounters:
        process = time.process_time_ns() // 1_000
        return MachineCounters(process, self._busy(), self._processors, _available())

    def processor_seconds(self) -> float:
        return time.process_time()

    def resident_bytes(self) -> int:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def clock_identity(self) -> str:
        """Linux's boot identifier, else one for this process alone."""
        with suppress(OSError):
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return secrets.token_hex(16)

    def _busy(self) -> Micros | None:
        try:
            with open("/proc/stat", "rb") as file:
                ticks = [int(number) for number in file.readline().split()[1 : 1 + _COLUMNS]]
        except (OSError, ValueError):
            return None
        busy = sum(number for column, number in enumerate(ticks) if column not in _IDLE)
        return busy * SECOND // self._ticks


def _available() -> int | None:
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1_024
    except (OSError, ValueError):
        pass
    return None


def _link_local(name: str) -> str | None:
    """proc(5): address, index, prefix, scope, flags, name."""
    try:
        rows = [line.split() for line in _IF_INET6.read_text().splitlines()]
    except OSError:  # a kernel without IPv6
        return None
    for row in rows:
        is_ours = len(row) == 6 and row[5] == name and int(row[3], 16) == _SCOPE_LINK
        if is_ours and not int(row[4], 16) & _NOT_USABLE:
            return str(ipaddress.IPv6Address(bytes.fromhex(row[0])))
    return None


def _ioctl(asked: socket.socket, request: int, name: bytes) -> bytes:
    return fcntl.ioctl(asked, request, struct.pack("16s240x", name))
