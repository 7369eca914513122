"""The sockets of one node on one interface and in one family: the shared port, and the node's own port.

Two UDP sockets. The *shared* one is bound to the air's port, and every node of a machine has one: the kernel
gives each of them a copy of a broadcast. The node's *own* one sends everything and receives what is for this
node alone; on the same port number the node accepts TCP links. So the source of any datagram is the complete
address of its sender, and no port has to be announced.

All sockets are tied to the interface (SO_BINDTODEVICE, which needs no permission since Linux 5.7) and to no
address. They survive that the interface goes down, comes up or changes its address. Only an interface that
was removed and plugged in again (a USB adapter) needs new sockets, and gets them (`air.py`).

IPv6 has no broadcasts: everyone is a multicast group on the link, or rather two. A node that has only IPv6
sends to the first one and hears both. A node that has both families hears the first one only, and sends to
the second one while it hears somebody on the first. So no frame goes out twice for the sake of nodes that
have IPv4 anyway, and nodes of one family and of both hear each other without a setting.
"""

import errno
import ipaddress
import logging
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from roamcast.errors import InputError
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.settings import AirMode, AirSettings
from roamcast.runtime.live.world import Interface, NodeWorld

if TYPE_CHECKING:  # it imports this module
    from roamcast.runtime.live.air.air import Air

logger = logging.getLogger("roamcast.air")

RECEIVED_PER_TURN_MAX = 64  # of one socket; then timers and other sockets have a turn
DATAGRAM_BYTES_MAX = 65_507  # of UDP over IPv4
HEADERS_BYTES, HEADERS_BYTES_IPV6 = 28, 48  # IP and UDP
# Chosen by us.
WAITING_MAX = 1_024  # datagrams that the kernel has no room for yet
BUFFER_BYTES = 4 * 1024 * 1024  # asked of the kernel, for bursts; it may give less
OWN_PORTS_TRIED = 16
LINKS_BACKLOG = 64
BROADCAST, LOOPBACK_BROADCAST = "255.255.255.255", "127.255.255.255"
IPV6_MULTICAST_ALL = 29  # <linux/in6.h>: off, a socket gets the groups that it joined itself, and no others

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


class InterfaceSockets:
    """Open between `open` and `close`."""

    def __init__(
        self,
        world: NodeWorld,
        settings: AirSettings,
        interface: Interface,
        counters: Counters,
        owner: "Air",
        *,
        is_ipv6: bool,
    ) -> None:
        self._loop = world.loop
        self._network = world.network
        self._settings = settings
        self._counters = counters
        self._owner = owner
        self.interface = interface
        self.is_ipv6 = is_ipv6
        self.is_alone = False  # the only family of its interface; of IPv6, set by `stand_alone`
        self.is_away = False
        self.is_deaf = False  # without an address it could hear, and not answer
        self.spoken_until = 0.0  # of IPv6 beside IPv4: somebody there has IPv6 only
        self.port = 0  # the node's own, UDP and TCP
        self.listener: socket.socket | None = None
        first = ipaddress.IPv6Address(settings.group_ipv6)
        self._groups = (str(first), str(first + 1))
        self._shared: socket.socket | None = None
        self._own: socket.socket | None = None
        self._waiting: deque[tuple[bytes, Endpoint | None]] = deque()

    @property
    def is_open(self) -> bool:
        return self._own is not None

    @property
    def address(self) -> str:
        return (self.interface.link_local if self.is_ipv6 else self.interface.address) or ""

    @property
    def datagram_bytes(self) -> int:
        """How many octets fit a datagram without fragmentation."""
        headers = HEADERS_BYTES_IPV6 if self.is_ipv6 else HEADERS_BYTES
        return min(self.interface.mtu - headers, DATAGRAM_BYTES_MAX)

    @property
    def is_multicast(self) -> bool:
        return self.is_ipv6 or self._settings.mode is AirMode.MULTICAST

    def open(self) -> None:
        """Open the sockets; `InputError` if that fails."""
        try:
            self._shared = self._shared_socket()
            self._own, self.listener = self._own_sockets()
        except (OSError, InputError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            raise InputError("air", f"cannot be opened: {error.strerror}") from None
        for opened in self.opened():
            self._loop.add_reader(opened, self._on_readable, opened)

    def close(self) -> None:
        for opened in self.opened():
            self._loop.remove_reader(opened)
            self._loop.remove_writer(opened)
            opened.close()
        if self.listener is not None:
            self.listener.close()
        self._shared = self._own = self.listener = None
        self._waiting.clear()

    def stand_alone(self, is_alone: bool) -> None:
        """Of IPv6: whether this interface has no IPv4 besides."""
        if self._shared is not None and is_alone is not self.is_alone:
            change = socket.IPV6_JOIN_GROUP if is_alone else socket.IPV6_LEAVE_GROUP
            try:
                self._shared.setsockopt(socket.IPPROTO_IPV6, change, self._member(self._groups[1]))
            except OSError:  # just removed; the next look opens new ones
                self.close()
        self.is_alone = is_alone

    def send(self, data: bytes, to: Endpoint | None) -> None:
        """Hand a datagram to the kernel, for a node or for everyone; what it has no room for waits, up to a
        bound."""
        if self._waiting:
            self._wait(data, to)
            return
        if self._own is None:
            self._counters.count("datagrams_unsent_total", reason="away")
            return
        try:
            self._own.sendto(data, self._socket_address(to))
        except (BlockingIOError, InterruptedError):
            self._wait(data, to)
            self._loop.add_writer(self._own, self._on_writable)
        except OSError as error:
            self._on_send_error(error, to)

    def opened(self) -> Iterator[socket.socket]:
        """The open sockets for datagrams."""
        return (one for one in (self._shared, self._own) if one is not None)

    def unsent(self) -> int:
        """Octets that are not on the air yet: those in the kernel's send queue, and those that wait here."""
        with suppress(OSError):
            if self._own is not None:
                return self._network.unsent(self._own) + sum(len(data) for data, _ in self._waiting)
        return 0

    # Receiving.

    def _on_readable(self, source: socket.socket) -> None:
        owner, name = self._owner, self.interface.name
        for _ in range(RECEIVED_PER_TURN_MAX):
            try:
                data, sender = source.recvfrom(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # e.g. ENETDOWN, reported once when the interface goes
                self._counters.count("receive_errors_total", error=_code(error))
                return
            if not self.is_deaf and not owner.is_own(sender[0], sender[1]):
                owner.on_datagram(data, Endpoint(sender[0], sender[1], name))
            if source.fileno() < 0:
                return  # closed by what the datagram caused

    # Sending.

    def _socket_address(self, to: Endpoint | None) -> tuple[str, int] | tuple[str, int, int, int]:
        if not self.is_ipv6:
            return (self._everyone(), self._settings.port) if to is None else to[:2]
        host, port = (self._groups[not self.is_alone], self._settings.port) if to is None else to[:2]
        return host, port, 0, self.interface.number

    def _everyone(self) -> str:
        if self._settings.mode is AirMode.MULTICAST:
            return self._settings.group
        # On the loopback the kernel would give a datagram to 255.255.255.255 another interface's source.
        return LOOPBACK_BROADCAST if self.interface.loopback else BROADCAST

    def _wait(self, data: bytes, to: Endpoint | None) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._counters.count("datagrams_unsent_total", reason="queue_full")
            return
        self._waiting.append((data, to))

    def _on_writable(self) -> None:
        assert self._own is not None
        while self._waiting:
            data, to = self._waiting.popleft()
            try:
                self._own.sendto(data, self._socket_address(to))
            except (BlockingIOError, InterruptedError):
                self._waiting.appendleft((data, to))
                return
            except OSError as error:
                self._on_send_error(error, to)
        self._loop.remove_writer(self._own)

    def _on_send_error(self, error: OSError, to: Endpoint | None) -> None:
        self._counters.count("datagrams_unsent_total", reason=_code(error))
        if error.errno in _AWAY:
            self._owner.on_unreachable(self, to)
        elif error.errno != errno.EPERM:  # refused by a firewall: counted, not logged each time
            logger.warning("interface %s: cannot send: %s", self.interface.name, error.strerror)

    # Opening.

    def _shared_socket(self) -> socket.socket:
        opened = self._socket(socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        in_group = self.is_multicast and not self.is_ipv6
        self._bind(opened, self._settings.group if in_group else "", self._settings.port, "air.port")
        if self.is_ipv6:
            opened.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
            for group in self._groups[: 1 + self.is_alone]:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, self._member(group))
        elif in_group:
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self._member(self._settings.group))
        return opened

    def _member(self, group: str) -> bytes:
        if self.is_ipv6:
            return struct.pack("16sI", socket.inet_pton(socket.AF_INET6, group), self.interface.number)
        return struct.pack("4s4si", socket.inet_aton(group), bytes(4), self.interface.number)

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
        if self.is_ipv6:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self.interface.number)
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
        elif self.is_multicast:
            through = struct.pack("4s4si", bytes(4), bytes(4), self.interface.number)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, through)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        self._bind(own, "", port, "air.own_port")
        chosen: int = own.getsockname()[1]
        listener = self._socket(socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._bind(listener, "", chosen, "air.own_port")
            listener.listen(LINKS_BACKLOG)
        except (InputError, OSError):
            own.close()
            listener.close()
            raise InputError("air.own_port", f"is {chosen}, which another program uses") from None
        self.port = chosen
        return own, listener

    def _socket(self, kind: socket.SocketKind) -> socket.socket:
        family = socket.AF_INET6 if self.is_ipv6 else socket.AF_INET
        opened = self._network.open_socket(family, kind)
        if self.is_ipv6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
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

    def _bind(self, opened: socket.socket, host: str, port: int, key: str) -> None:
        try:
            opened.bind((host, port))
        except OSError as error:
            opened.close()
            if error.errno == errno.EADDRINUSE:
                raise InputError(key, f"is {port}, which another program uses") from None
            if error.errno == errno.EACCES:
                raise InputError(key, f"is {port}: no permission for ports below 1024") from None
            raise InputError(key, f"is {port}, which cannot be bound: {error.strerror}") from None


def _code(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown").lower()
