"""The world of a live node: everything it touches besides its own memory.

A node and its parts reach the loop, the clocks, the disk, the network and chance through a `NodeWorld` and
nothing else. So whole nodes can run in one process in virtual time, over other implementations of these
ports. `linux.py` has the real ones; `tests/test_architecture.py` lists who else may touch the real things.

Loop and sockets are those of asyncio and the standard library: an event loop of virtual time and sockets in
memory have the same methods. A database is a connection of `sqlite3`, opened by the disk.
"""

from asyncio import AbstractEventLoop
from collections.abc import Iterable
from io import RawIOBase
from pathlib import Path
from random import Random
from socket import socket
from sqlite3 import Connection
from typing import Literal, NamedTuple, Protocol

from roamcast.strategy.base import Machine
from roamcast.units import Micros


class MachineClock(Protocol):
    """The module `time` is one."""

    def monotonic_ns(self) -> int:
        """All nodes of a machine share it: it counts from the machine's boot, and never goes back."""

    def time_ns(self) -> int:
        """The wall clock, since 1970; it may jump, and may not be set at all."""


class NodeDisk(Protocol):
    """Files and databases. `OSError` and `sqlite3.Error` say what is wrong."""

    def connect(self, path: Path) -> Connection:
        """The database in this file, made if there is none; only its owner may read it."""

    def free_bytes(self, path: Path) -> int:
        """Octets that an ordinary user may still write where this file is."""

    def open(self, path: Path, mode: Literal["rb", "wb", "r+b"]) -> RawIOBase:
        """As Python's `open`, without a buffer: what was written is in the kernel, not on the disk."""

    def replace(self, path: Path, data: bytes) -> None:
        """The file has this content, on the disk on return; after a crash, this or the one before."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it; it may exist already."""

    def files(self, folder: Path) -> list[tuple[str, int]]:
        """Names and sizes."""

    def rename(self, path: Path, to: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file; it may be gone already."""


class Interface(NamedTuple):
    name: str
    number: int  # the kernel's index of it; a new one after it was removed and plugged in again
    address: str | None  # the first IPv4 address; None: it has none
    up: bool  # and not without a cable, or without a network where it is wireless
    loopback: bool
    mtu: int
    prefix: int = 32  # bits of the address that name the network
    link_local: str | None = None  # its IPv6 address on the link
    broadcasts: bool = True  # false: has one other end, as a tunnel


class UnreadDatagrams(NamedTuple):
    dropped: int  # since the sockets were opened
    waiting_bytes: int  # now


class NodeNetwork(Protocol):
    """The machine's interfaces and sockets. `OSError` says what is wrong."""

    def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket:
        """One that does not block, and that child processes do not get."""

    def names(self) -> list[str]:
        """The names of all interfaces."""

    def look(self, name: str) -> Interface | None:
        """An interface as it is now; None: there is none of that name."""

    def is_hardware(self, found: Interface) -> bool:
        """No bridge, tunnel or container's end; and none that is a part of a bridge and has no address."""

    def is_wireless(self, name: str) -> bool: ...

    def unsent(self, opened: socket) -> int:
        """Octets that the kernel has of us: not sent yet, or, of TCP, not acknowledged."""

    def unread(self, opened: Iterable[socket]) -> UnreadDatagrams:
        """What the kernel has for these sockets."""


class Computer(Machine, Protocol):
    """What the machine and this process have used; and which machine it is."""

    def processor_seconds(self) -> float:
        """That this process has used."""

    def resident_bytes(self) -> int:
        """The resident memory of this process, in octets."""

    def clock_identity(self) -> str:
        """A name for the monotonic clock: nodes that have the same name share it."""


class NodeWorld(NamedTuple):
    loop: AbstractEventLoop
    clock: MachineClock
    disk: NodeDisk
    network: NodeNetwork
    computer: Computer
    random: Random

    def monotonic(self) -> Micros:
        """In microseconds; it does not stand still while an input is handled, as a node's clock does."""
        return self.clock.monotonic_ns() // 1_000

    def wall(self) -> Micros:
        """The wall clock in microseconds."""
        return self.clock.time_ns() // 1_000
