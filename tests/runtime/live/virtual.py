"""A world in memory: virtual time, sockets that hand datagrams to each other, one seed.

As much of it as shows that a live node reaches nothing but its `NodeWorld`: datagrams and TCP between nodes,
nothing lost and nothing late.
"""

import asyncio
import selectors
import socket
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.world import Interface, NodeWorld, UnreadDatagrams
from roamcast.strategy.base import MachineCounters

BEGAN_NS = 1_800_000_000 * 10**9  # wall clock when virtual time begins
DELAY = 0.001  # seconds from a `sendto` to the receiver
FIRST_NUMBER = 100_000  # of a socket; no file of this process has such a number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where nothing is due, time jumps to what comes next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting = Waiting(self)
        super().__init__(self.waiting)

    def time(self) -> float:
        return self.now

    async def create_server(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        sock.factory = factory
        return sock

    async def sock_connect(self, sock: Any, address: Any) -> None:
        sock.connect(address)

    async def create_connection(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        ours = VirtualTransport(self, sock.other, factory())
        theirs = VirtualTransport(self, sock, sock.other.factory())
        ours.other, theirs.other = theirs, ours
        for one in (theirs, ours):
            one.protocol.connection_made(one)
        return ours, ours.protocol

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def time_ns(self) -> int:
        return BEGAN_NS + self.monotonic_ns()


class VirtualTransport(asyncio.Transport):
    def __init__(self, loop: VirtualLoop, opened: Any, protocol: asyncio.Protocol) -> None:
        super().__init__({"socket": opened, "peername": (opened.address, opened.port)})
        self._loop = loop
        self._is_closing = False
        self.protocol = protocol
        self.other: VirtualTransport | None = None

    def write(self, data: Any) -> None:
        self._loop.call_later(DELAY, self._arrive, bytes(data))

    def write_eof(self) -> None:
        self._loop.call_later(DELAY, self._arrive, None)

    def _arrive(self, data: bytes | None) -> None:
        if self.other is not None and not self.other._is_closing:
            if data is None:
                self.other.protocol.eof_received()
            else:
                self.other.protocol.data_received(data)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)
            if self.other is not None:
                self._loop.call_later(DELAY, self.other.close)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Waiting(selectors.BaseSelector):
    """A selector over sockets in memory; the loop's own wake-up socket never has anything to read."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.readable: dict[int, None] = {}  # in the order in which something came

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return self._keys[number]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = [number for number in self.readable if number in self._keys]
        if not ready and timeout:
            self._loop.now += timeout
        return [(self._keys[number], selectors.EVENT_READ) for number in ready]


class Cable:
    """Connects the interfaces `eth0` of all machines on it; `sent` is every datagram, in its order."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.sockets: list[VirtualSocket] = []
        self.sent: list[tuple[float, str, bytes]] = []
        self.machines = 0

    def carry(self, sender: "VirtualSocket", data: bytes, to: tuple[str, int]) -> None:
        self.sent.append((self.loop.now, sender.address, data))
        for one in list(self.sockets):
            if one.port == to[1] and to[0] in ("255.255.255.255", one.address):
                self.loop.call_later(DELAY, one.take, data, (sender.address, sender.port))

    def machine(self, seed: int) -> NodeWorld:
        self.machines += 1
        address = f"10.0.0.{self.machines}"
        return NodeWorld(
            self.loop, self.loop, MemoryDisk(), VirtualNetwork(self, address), Unmeasured(), Random(seed)
        )


class VirtualSocket:
    def __init__(self, cable: Cable, address: str) -> None:
        self._cable = cable
        self._number = FIRST_NUMBER + len(cable.sockets)
        self._came: deque[tuple[bytes, tuple[str, int]]] = deque()
        self.address, self.port = address, 0
        self.factory: Any = None  # of a listener
        self.other: Any = None  # the listener that it is connected with
        cable.sockets.append(self)

    def connect(self, to: tuple[str, int]) -> None:
        for one in self._cable.sockets:
            if one.factory is not None and (one.address, one.port) == to:
                self.other = one
                return
        raise ConnectionRefusedError

    def take(self, data: bytes, source: tuple[str, int]) -> None:
        if self._number >= 0:
            self._came.append((data, source))
            self._cable.loop.waiting.readable[self._number] = None

    def fileno(self) -> int:
        return self._number

    def setsockopt(self, *_: object) -> None:
        pass

    def bind(self, place: tuple[str, int]) -> None:
        self.port = place[1]

    def listen(self, backlog: int) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return self.address, self.port

    def sendto(self, data: bytes, to: tuple[str, int]) -> int:
        self._cable.carry(self, data, to)
        return len(data)

    def recvfrom(self, size: int) -> tuple[bytes, tuple[str, int]]:
        if not self._came:
            self._cable.loop.waiting.readable.pop(self._number, None)
            raise BlockingIOError
        return self._came.popleft()

    def close(self) -> None:
        self._cable.loop.waiting.readable.pop(self._number, None)
        self._number = -1


class VirtualNetwork:
    def __init__(self, cable: Cable, address: str) -> None:
        self._cable = cable
        self._address = address

    def open_socket(self, family: int, kind: int, protocol: int = 0) -> Any:
        if family == socket.AF_NETLINK:
            raise OSError("no such thing here")
        return VirtualSocket(self._cable, self._address)

    def names(self) -> list[str]:
        return ["eth0"]

    def look(self, name: str) -> Interface | None:
        return Interface(name, 1, self._address, True, False, 1_500, 24) if name == "eth0" else None

    def is_hardware(self, found: Interface) -> bool:
        return True

    def is_wireless(self, name: str) -> bool:
        return False

    def unsent(self, opened: Any) -> int:
        return 0

    def unread(self, opened: Iterable[Any]) -> UnreadDatagrams:
        return UnreadDatagrams(0, 0)


class MemoryDisk(LocalDisk):
    """Databases alone."""

    def connect(self, path: Path) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None)

    def free_bytes(self, path: Path) -> int:
        return 1 << 40


class Unmeasured:
    def read(self) -> MachineCounters:
        return MachineCounters(0, None, 1, None)

    def processor_seconds(self) -> float:
        return 0.0

    def resident_bytes(self) -> int:
        return 0

    def clock_identity(self) -> str:
        return "virtual"


def run_virtual(play: Callable[[Cable], Any]) -> Cable:
    """Run a coroutine over a cable, in no time."""
    loop = VirtualLoop()
    cable = Cable(loop)
    try:
        loop.run_until_complete(play(cable))
    finally:
        loop.close()
    return cable
