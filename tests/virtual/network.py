"""Machines, and what is between them: datagrams that may be lost, late, doubled or overtaken, streams that
stall and break.

Machines hear each other where `Network.links` has the pair. Datagrams over a cut are lost. A stream over a
cut stalls until the link is back. When a process dies, what it had written still arrives, then its streams
break.
"""

import asyncio
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.virtual.timeline import TICK, ProcessLoop, Timeline

from roamcast.runtime.live.world import Interface, UnreadDatagrams

EVERYONE = "255.255.255.255"
HERE = 0.00005  # seconds from one program of a machine to another
RETRY = 0.2  # seconds after which a stalled stream tries again
HIGH = 65_536  # octets that a stream takes before the writer is told to wait


class Network:
    def __init__(self, timeline: Timeline, random: Random) -> None:
        timeline.network = self
        self.timeline = timeline
        self.random = random
        self.links: set[frozenset[str]] = set()  # pairs of addresses
        self.delays = (0.0005, 0.003)  # seconds, from and to
        self.loss = 0.0
        self.doubled = 0.0
        self.datagrams = 0
        self.carried = 0  # a digest of all datagrams, in their order
        self._sockets: dict[VirtualSocket, None] = {}
        self._listeners: dict[tuple[str, int], VirtualServer] = {}
        self._ends: dict[StreamEnd, None] = {}
        self._port = 40_000

    def is_linked(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) in self.links

    def delay(self, one: str, other: str) -> float:
        return HERE if one == other else self.random.uniform(*self.delays)

    def killed(self, loop: ProcessLoop) -> None:
        """All that a process had open is closed by its machine."""
        for opened in [one for one in self._sockets if one.loop is loop]:
            opened.close()
        for key in [key for key, server in self._listeners.items() if server.loop is loop]:
            del self._listeners[key]
        for end in [end for end in self._ends if end.loop is loop]:
            end.vanish()

    # Datagrams.

    def add(self, opened: "VirtualSocket") -> None:
        self._sockets[opened] = None

    def remove(self, opened: "VirtualSocket") -> None:
        self._sockets.pop(opened, None)

    def free_port(self) -> int:
        self._port += 1
        return self._port

    def carry(self, sender: "VirtualSocket", data: bytes, to: tuple[str, int]) -> None:
        self.datagrams += 1
        head = f"{sender.loop.time():.7f} {sender.address} {to}"
        self.carried = zlib.crc32(data, zlib.crc32(head.encode(), self.carried))
        for one in list(self._sockets):
            is_meant = one.port == to[1] and to[0] in (EVERYONE, one.address)
            if not is_meant or one is sender or not self.is_linked(sender.address, one.address):
                continue
            if one.address != sender.address and self.random.random() < self.loss:
                continue
            for _ in range(1 + (self.random.random() < self.doubled)):
                at = sender.loop.time() + self.delay(sender.address, one.address)
                one.loop.call_at(at, one.take, data, (sender.address, sender.port))

    # Streams.

    def listen(self, loop: ProcessLoop, factory: Any, host: Any, port: Any, sock: Any) -> "VirtualServer":
        address = loop.machine.address if sock is None else sock.address  # type: ignore[attr-defined]
        place = (address, (port or self.free_port()) if sock is None else sock.port)
        if place in self._listeners:
            raise OSError(98, "Address already in use")
        server = self._listeners[place] = VirtualServer(self, loop, factory, place)
        return server

    def unlisten(self, place: tuple[str, int]) -> None:
        self._listeners.pop(place, None)

    def has_listener(self, place: tuple[str, int]) -> bool:
        return place in self._listeners

    def connect(self, loop: ProcessLoop, sock: "VirtualSocket", protocol: asyncio.Protocol) -> "StreamEnd":
        """The socket's end of a new stream; the other end is made by who listens."""
        assert sock.connected is not None
        server = self._listeners.get(sock.connected)
        if server is None:
            raise ConnectionRefusedError
        theirs_socket = VirtualSocket(self, server.loop, server.place[0])
        theirs_socket.port = server.place[1]
        ours = StreamEnd(self, loop, sock, protocol, sock.connected)
        theirs = StreamEnd(self, server.loop, theirs_socket, server.factory(), (sock.address, sock.port))
        ours.other, theirs.other = theirs, ours
        for end in (theirs, ours):
            self._ends[end] = None
            end.loop.call_soon(end.protocol.connection_made, end)
        return ours

    def ended(self, end: "StreamEnd") -> None:
        self._ends.pop(end, None)


class VirtualServer:
    def __init__(self, network: Network, loop: ProcessLoop, factory: Any, place: tuple[str, int]) -> None:
        self.network, self.loop, self.factory, self.place = network, loop, factory, place
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.place

    def close(self) -> None:
        self.network.unlisten(self.place)

    async def wait_closed(self) -> None:
        pass


class VirtualSocket:
    def __init__(self, network: Network, loop: ProcessLoop, address: str) -> None:
        self._network = network
        self.loop = loop
        self._came: deque[tuple[bytes, tuple[str, int]]] = deque()
        self._is_open = True
        self._is_woken = False
        self.address, self.port = address, 0
        self.connected: tuple[str, int] | None = None
        self.end: StreamEnd | None = None
        network.add(self)

    def connect(self, to: tuple[str, int]) -> None:
        linked = self._network.is_linked(self.address, to[0])
        if not linked or not self._network.has_listener((to[0], to[1])):
            raise ConnectionRefusedError
        self.connected = (to[0], to[1])

    def take(self, data: bytes, source: tuple[str, int]) -> None:
        if self._is_open:
            self._came.append((data, source))
            self.wake()

    def wake(self) -> None:
        """As long as something waits, its reader is called in every pass of the loop."""
        if self._came and not self._is_woken and self in self.loop.readers:
            self._is_woken = True
            self.loop.call_soon(self._on_readable)

    def _on_readable(self) -> None:
        self._is_woken = False
        reader = self.loop.readers.get(self)
        if reader is not None:
            reader()
            self.wake()

    def fileno(self) -> int:
        return 1_000 if self._is_open else -1

    def setsockopt(self, *_: object) -> None:
        pass

    def getsockopt(self, *_: object) -> bytes:
        raise OSError(92, "Protocol not available")

    def bind(self, place: tuple[str, int]) -> None:
        self.port = place[1] or self._network.free_port()

    def listen(self, backlog: int) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return self.address, self.port

    def sendto(self, data: bytes, to: tuple[str, int]) -> int:
        self._network.carry(self, data, to)
        return len(data)

    def recvfrom(self, size: int) -> tuple[bytes, tuple[str, int]]:
        if not self._came:
            raise BlockingIOError
        return self._came.popleft()

    def close(self) -> None:
        self._is_open = False
        self._network.remove(self)


class StreamEnd(asyncio.Transport):
    """One end of a stream: what it writes arrives at the other in order, unless one of them is gone."""

    def __init__(
        self,
        network: Network,
        loop: ProcessLoop,
        opened: VirtualSocket,
        protocol: Any,
        peer: tuple[str, int],
    ) -> None:
        super().__init__({"socket": opened, "peername": peer})
        self._network = network
        self.loop = loop
        self._socket = opened
        self.protocol = protocol
        self.other: StreamEnd | None = None
        self._coming: deque[tuple[float, bytes | Exception | None]] = deque()  # None: end of file
        self._coming_bytes = 0
        self._last_at = 0.0
        opened.end = self
        self._is_closing = False
        self._is_over = False
        self._reads = True
        self._is_stalling = False  # the writer was told to wait
        self._high = HIGH

    # The transport.

    def write(self, data: Any) -> None:
        if data and not self._is_closing and self.other is not None:
            self.other._send(self, bytes(data))
            if not self._is_stalling and self.other._coming_bytes > self._high:
                self._is_stalling = True
                self.protocol.pause_writing()

    def write_eof(self) -> None:
        if self.other is not None:
            self.other._send(self, None)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if self.other is not None:
                self.other._send(self, None)
            self.loop.call_soon(self._end, None)

    def abort(self) -> None:
        if not self._is_over:
            self._is_closing = True
            if self.other is not None:
                self.other._send(self, ConnectionResetError())
            self.loop.call_soon(self._end, None)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        if self._coming:
            self.loop.call_soon(self._arrive)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        return self.other._coming_bytes if self._is_stalling and self.other is not None else 0

    # The way.

    @property
    def underway(self) -> int:
        """Octets that the other end has not got yet."""
        return 0 if self.other is None else self.other._coming_bytes

    def vanish(self) -> None:
        """The process of this end is gone. What it wrote is still under way."""
        self._is_over = self._is_closing = True
        self._socket.close()
        self._network.ended(self)
        if self.other is not None:
            self.other._send(self, ConnectionResetError())

    def _send(self, sender: "StreamEnd", data: bytes | Exception | None) -> None:
        if self._is_over or self.loop.is_dead:
            return
        delay = self._network.delay(sender._socket.address, self._socket.address)
        self._last_at = max(self._last_at, sender.loop.time() + delay)
        self._coming.append((self._last_at, data))
        self._coming_bytes += len(data) if isinstance(data, bytes) else 0
        self.loop.call_at(self._last_at, self._arrive)

    def _arrive(self) -> None:
        """What has come by now."""
        now = self.loop.time() + TICK
        while self._coming and self._coming[0][0] <= now and self._reads and not self._is_over:
            if self.other is not None and not self._network.is_linked(
                self._socket.address, self.other._socket.address
            ):
                self.loop.call_later(RETRY, self._arrive)
                return
            data = self._coming.popleft()[1]
            if isinstance(data, bytes):
                self._on_data(data)
            elif data is None:
                if not self._is_closing and not self.protocol.eof_received():
                    self.close()
            else:
                self._is_closing = True
                self._end(data)

    def _on_data(self, data: bytes) -> None:
        self._coming_bytes -= len(data)
        if not self._is_closing:
            self.protocol.data_received(data)
        other = self.other
        if other is not None and other._is_stalling and self._coming_bytes <= other._high // 4:
            other._is_stalling = False
            other.loop.call_soon(other._resume_writing)

    def _resume_writing(self) -> None:
        if not self._is_over:
            self.protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._socket.close()
            self._network.ended(self)
            self.protocol.connection_lost(error)


class VirtualNetwork:
    """`NodeNetwork` of one process."""

    def __init__(
        self, network: Network, loop: ProcessLoop, address: str, is_plugged: Callable[[], bool]
    ) -> None:
        self._network = network
        self._loop = loop
        self._address = address
        self._is_plugged = is_plugged

    def open_socket(self, family: int, kind: int, protocol: int = 0) -> Any:
        if family == socket.AF_NETLINK:
            raise OSError("no such thing here")
        return VirtualSocket(self._network, self._loop, self._address)

    def names(self) -> list[str]:
        return ["eth0"]

    def look(self, name: str) -> Interface | None:
        is_up = self._is_plugged()
        return Interface(name, 1, self._address, is_up, False, 1_500, 24) if name == "eth0" else None

    def is_hardware(self, found: Interface) -> bool:
        return True

    def is_wireless(self, name: str) -> bool:
        return False

    def unsent(self, opened: Any) -> int:
        return 0 if opened.end is None else opened.end.underway

    def unread(self, opened: Iterable[Any]) -> UnreadDatagrams:
        return UnreadDatagrams(0, 0)
