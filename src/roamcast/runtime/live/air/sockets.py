"""The sockets of one node on one interface: the shared port for broadcasts, and the node's own port.

Two UDP sockets. The *shared* one is bound to the air's port, and every node of a machine has one: the kernel
gives each of them a copy of a broadcast. The node's *own* one sends everything and receives what is for this
node alone; on the same port number the node accepts TCP links. So the source of any datagram is the complete
address of its sender, and no port has to be announced.

All sockets are tied to the interface (SO_BINDTODEVICE, which needs no permission since Linux 5.7) and to no
address. They survive that the interface goes down, comes up or changes its address. Only an interface that
was removed and plugged in again (a USB adapter) needs new sockets, and gets them.
"""

import asyncio
import errno
import fcntl
import logging
import os
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from roamcast.errors import InputError
from roamcast.runtime.live.air.interface import Interface, look
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.settings import AirMode, AirSettings

logger = logging.getLogger("roamcast.air")

Endpoint: TypeAlias = tuple[str, int]
"""An IPv4 address and a port."""

RECEIVED_PER_TURN_MAX = 64  # of one socket; then timers and other sockets have a turn
DATAGRAM_BYTES_MAX = 65_507  # of UDP over IPv4
HEADERS_BYTES = 28  # IPv4 and UDP
# Chosen by us.
WAITING_MAX = 1_024  # datagrams that the kernel has no room for yet
BUFFER_BYTES = 4 * 1024 * 1024  # asked of the kernel, for bursts; it may give less
WATCH_SECONDS = 1.0  # between two looks at the interface
OWN_PORTS_TRIED = 16
LINKS_BACKLOG = 64
BROADCAST, LOOPBACK_BROADCAST = "255.255.255.255", "127.255.255.255"

# The interface is missing, down or without an address. It may come back, so these errors are not fatal.
_AWAY = {
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENODEV,
    errno.ENXIO,
    errno.EADDRNOTAVAIL,
    errno.EINVAL,
}


class UnreadDatagrams(NamedTuple):
    dropped: int  # since the sockets were opened
    waiting_bytes: int  # now


class Air:
    """Open between `open` and `close`. What arrives goes to `on_datagram`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: AirSettings,
        interface: Interface,
        counters: Counters,
        on_datagram: Callable[[bytes, Endpoint], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._counters = counters
        self._on_datagram = on_datagram
        self.interface = interface
        self.port = 0  # the node's own, UDP and TCP
        self.listener: socket.socket | None = None
        self.on_closing: Callable[[], None] = lambda: None  # to stop using the listener
        self.on_reopened: Callable[[], None] = lambda: None
        self._shared: socket.socket | None = None
        self._own: socket.socket | None = None
        self._waiting: deque[tuple[bytes, Endpoint]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self.is_away = False
        self._source: Endpoint = ("", 0)  # of our own datagrams
        self._everyone: Endpoint = (_everyone(settings, interface), settings.port)

    @property
    def datagram_bytes(self) -> int:
        """How many octets fit a datagram without fragmentation."""
        return min(self.interface.mtu - HEADERS_BYTES, DATAGRAM_BYTES_MAX)

    def open(self) -> None:
        """Open the sockets; `InputError` if that fails."""
        self._open_sockets()
        self._watch = self._loop.call_later(WATCH_SECONDS, self._on_watch)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._close_sockets()

    def broadcast(self, data: bytes) -> None:
        self.send(data, self._everyone)

    def send(self, data: bytes, to: Endpoint) -> None:
        """Hand a datagram to the kernel; what it has no room for waits, up to a bound."""
        if self._waiting:
            self._wait(data, to)
            return
        if self._own is None:
            self._counters.count("datagrams_unsent_total", reason="away")
            return
        try:
            self._own.sendto(data, to)
        except (BlockingIOError, InterruptedError):
            self._wait(data, to)
            self._loop.add_writer(self._own, self._on_writable)
        except OSError as error:
            self._on_send_error(error)

    def dropped_by_kernel(self) -> int:
        """Datagrams that came faster than we read them, since the sockets were opened."""
        return self.unread().dropped

    def unread(self) -> UnreadDatagrams:
        """What the kernel says of our sockets (proc(5))."""
        ours = {str(os.fstat(opened.fileno()).st_ino) for opened in (self._shared, self._own) if opened}
        try:
            rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
        except OSError:
            return UnreadDatagrams(0, 0)
        of_ours = [row for row in rows if len(row) > 12 and row[9] in ours]
        return UnreadDatagrams(
            sum(int(row[12]) for row in of_ours), sum(int(row[4].partition(":")[2], 16) for row in of_ours)
        )

    def unsent(self) -> int:
        """Octets that the kernel has of us and the interface has not taken yet (SIOCOUTQ, udp(7))."""
        if self._own is None:
            return 0
        try:
            answer = fcntl.ioctl(self._own.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0
        octets: int = struct.unpack("i", answer)[0]
        return octets + sum(len(data) for data, _ in self._waiting)

    # Receiving.

    def _on_readable(self, source: socket.socket) -> None:
        for _ in range(RECEIVED_PER_TURN_MAX):
            try:
                data, sender = source.recvfrom(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # e.g. ENETDOWN, reported once when the interface goes
                self._counters.count("receive_errors_total", error=_code(error))
                return
            if sender != self._source:  # the kernel gives us our own broadcasts too
                self._on_datagram(data, sender)
            if source.fileno() < 0:
                return  # closed by what the datagram caused

    # Sending.

    def _wait(self, data: bytes, to: Endpoint) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._counters.count("datagrams_unsent_total", reason="queue_full")
            return
        self._waiting.append((data, to))

    def _on_writable(self) -> None:
        assert self._own is not None
        while self._waiting:
            data, to = self._waiting.popleft()
            try:
                self._own.sendto(data, to)
            except (BlockingIOError, InterruptedError):
                self._waiting.appendleft((data, to))
                return
            except OSError as error:
                self._on_send_error(error)
        self._loop.remove_writer(self._own)

    def _on_send_error(self, error: OSError) -> None:
        self._counters.count("datagrams_unsent_total", reason=_code(error))
        if error.errno in _AWAY:
            if not self.is_away:
                self.is_away = True
                logger.warning("interface %s: %s; waiting for it", self.interface.name, error.strerror)
        elif error.errno != errno.EPERM:  # refused by a firewall: counted, not logged each time
            logger.warning("interface %s: cannot send: %s", self.interface.name, error.strerror)

    # The interface.

    def _on_watch(self) -> None:
        self._watch = self._loop.call_later(WATCH_SECONDS, self._on_watch)
        before, now = self.interface, look(self.interface.name)
        if now is None or not now.up or now.address is None:
            if not self.is_away:
                self.is_away = True
                logger.warning("interface %s is away or without an address; waiting for it", before.name)
            self._counters.count("interface_away_seconds_total", WATCH_SECONDS)
            return
        if self._own is None or now.number != before.number:
            self._reopen(now)
        elif now.address != before.address:
            logger.warning(
                "interface %s changed its address from %s to %s", now.name, before.address, now.address
            )
            self._counters.count("interface_changes_total")
            self._take_note(now)
            if self._settings.mode is AirMode.MULTICAST:
                self._reopen(now)
        elif self.is_away:
            logger.warning("interface %s is back", now.name)
            self._counters.count("interface_changes_total")
            self._take_note(now)
            # The kernel leaves a multicast group when the interface goes down; joining needs a new socket.
            if self._settings.mode is AirMode.MULTICAST:
                self._reopen(now)
        self.is_away = False

    def _reopen(self, interface: Interface) -> None:
        self._close_sockets()
        self._take_note(interface)
        try:
            self._open_sockets()
        except InputError as error:
            self._close_sockets()
            logger.warning("%s; trying again", error)
            return
        self._counters.count("interface_reopened_total")
        self.on_reopened()

    def _take_note(self, interface: Interface) -> None:
        self.interface = interface
        self._source = (interface.address or "", self.port)

    # Sockets.

    def _open_sockets(self) -> None:
        try:
            self._shared = self._shared_socket()
            self._own, self.listener = self._own_sockets()
        except OSError as error:
            raise InputError("air", f"cannot be opened: {error.strerror}") from None
        self._source = (self.interface.address or "", self.port)
        for opened in (self._shared, self._own):
            self._loop.add_reader(opened, self._on_readable, opened)

    def _close_sockets(self) -> None:
        self.on_closing()
        for opened in (self._shared, self._own):
            if opened is not None:
                self._loop.remove_reader(opened)
                self._loop.remove_writer(opened)
                opened.close()
        if self.listener is not None:
            self.listener.close()
        self._shared = self._own = self.listener = None
        self._waiting.clear()

    def _shared_socket(self) -> socket.socket:
        opened = self._socket(socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        multicast = self._settings.mode is AirMode.MULTICAST
        self._bind(opened, self._everyone if multicast else ("", self._settings.port), "air.port")
        if multicast:
            member = struct.pack(
                "4s4si", socket.inet_aton(self._settings.group), bytes(4), self.interface.number
            )
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        return opened

    def _own_sockets(self) -> tuple[socket.socket, socket.socket]:
        """A UDP and a TCP socket of the same number: as configured, or the next after the air's, or any."""
        fixed = self._settings.own_port or self.port  # after a reopening: the port that neighbours know
        tries = [fixed] if fixed else [self._settings.port + 1, *([0] * OWN_PORTS_TRIED)]
        for number, port in enumerate(tries, 1):
            try:
                return self._own_sockets_at(port)
            except InputError:
                if number == len(tries):
                    raise
        raise AssertionError

    def _own_sockets_at(self, port: int) -> tuple[socket.socket, socket.socket]:
        own = self._socket(socket.SOCK_DGRAM)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if self._settings.mode is AirMode.MULTICAST:
            through = struct.pack("4s4si", bytes(4), bytes(4), self.interface.number)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, through)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        self._bind(own, ("", port), "air.own_port")
        chosen: int = own.getsockname()[1]
        listener = self._socket(socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._bind(listener, ("", chosen), "air.own_port")
            listener.listen(LINKS_BACKLOG)
        except (InputError, OSError):
            own.close()
            listener.close()
            raise InputError("air.own_port", f"is {chosen}, which another program uses") from None
        self.port = chosen
        return own, listener

    def _socket(self, kind: socket.SocketKind) -> socket.socket:
        opened = socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.interface.name.encode())
        except PermissionError:
            opened.close()
            raise InputError(
                "air.interface", f"is {self.interface.name!r}: no permission to bind to it (CAP_NET_RAW)"
            ) from None
        if kind is socket.SOCK_DGRAM:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        return opened

    def _bind(self, opened: socket.socket, to: Endpoint, key: str) -> None:
        try:
            opened.bind(to)
        except OSError as error:
            opened.close()
            if error.errno == errno.EADDRINUSE:
                raise InputError(key, f"is {to[1]}, which another program uses") from None
            if error.errno == errno.EACCES:
                raise InputError(key, f"is {to[1]}: no permission for ports below 1024") from None
            raise InputError(key, f"is {to[1]}, which cannot be bound: {error.strerror}") from None


def _everyone(settings: AirSettings, interface: Interface) -> str:
    if settings.mode is AirMode.MULTICAST:
        return settings.group
    # On the loopback the kernel would give a datagram to 255.255.255.255 another interface's source address.
    return LOOPBACK_BROADCAST if interface.loopback else BROADCAST


def _code(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown").lower()
