"""Open OLSR on real interfaces: plain packets on UDP port 698, beside foreign daemons.

One socket per interface, tied to it as those of the sealed air are. Nothing here is authenticated: whoever
can send a datagram on the link can send a packet. What a packet says only affects the underlay (routes and
neighbours); the traffic of strategies goes through the sealed air.
"""

import logging
import socket
from asyncio import TimerHandle
from collections.abc import Callable, Sequence

from roamcast.errors import InputError
from roamcast.host import Channel, Frame
from roamcast.runtime.live.air.air import WATCH_SECONDS
from roamcast.runtime.live.air.interface import named
from roamcast.runtime.live.air.sockets import (
    BROADCAST,
    DATAGRAM_BYTES_MAX,
    LOOPBACK_BROADCAST,
    RECEIVED_PER_TURN_MAX,
)
from roamcast.runtime.live.inputs import Inputs
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.routes import RouteWriter
from roamcast.runtime.live.world import Interface, NodeWorld
from roamcast.underlay.addresses import Address, dotted, netmask_of, parse_dotted, parse_network
from roamcast.underlay.base import IpRoute, OpenOptions
from roamcast.wire.olsr import PORT

logger = logging.getLogger("roamcast.air")

ROUTES_MAX = 4_096  # written, the nearest first; chosen by us: each costs the kernel some microseconds

OnPacket = Callable[[Address, Address, bytes], None]


class LiveOpenAir:
    """`roamcast.underlay.base.OpenAir`. Open between `open` and `close`."""

    def __init__(
        self,
        world: NodeWorld,
        options: OpenOptions,
        main: Interface,
        inputs: Inputs,
        journal: NodeJournal,
        on_packet: OnPacket,
    ) -> None:
        """`on_packet` gets the interface, the source and the octets of each packet, as an input."""
        self._world = world
        self._loop = world.loop
        self._inputs = inputs
        self._journal = journal
        self._counters = journal.counters
        self._on_packet = on_packet
        names = options.interfaces
        others = [named(world.network, name, "underlay.options.interfaces") for name in names]
        self._by_address = {_address(interface): interface for interface in (main, *others)}
        if len(self._by_address) <= len(others):
            raise InputError("underlay.options.interfaces", "names an interface twice, or the air's own")
        self.interfaces: tuple[Address, ...] = tuple(self._by_address)
        self._sockets: dict[Address, socket.socket] = {}
        self._watch: TimerHandle | None = None
        self._writer = RouteWriter() if options.kernel_routes else None
        # Anybody can announce a route to anywhere. Those written lead into these networks only.
        self._believed = [parse_network(text) for text in options.networks_accepted]
        self._believed += [_network(interface) for interface in self._by_address.values()]
        self._unbelieved = 0
        self._counters.gauge("routes_unbelieved", lambda: self._unbelieved)

    def open(self) -> None:
        """Open the sockets; `InputError` if that fails."""
        for address in self.interfaces:
            self._open_socket(address)
        if self._writer is not None:
            self._writer.open()
        self._watch = self._loop.call_later(WATCH_SECONDS, self._on_watch)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for address in list(self._sockets):
            self._close_socket(address)
        if self._writer is not None:
            self._writer.close()

    # For the underlay.

    def send(self, interface: Address, frame: Frame) -> None:
        opened = self._sockets.get(interface)
        if opened is None:
            self._counters.count("datagrams_unsent_total", reason="away")
            return
        everyone = LOOPBACK_BROADCAST if self._by_address[interface].loopback else BROADCAST
        try:
            opened.sendto(frame.payload, (everyone, PORT))
        except OSError as error:
            self._counters.count("datagrams_unsent_total", reason=error.strerror or "unknown")
            return
        self._journal.transmitted(Channel.UNDERLAY, frame, None, len(frame.payload), 1)

    def write_routes(self, routes: Sequence[IpRoute]) -> None:
        if self._writer is None:
            return
        believed = [route for route in routes if self._is_believed(route)]
        self._unbelieved = len(routes) - len(believed)
        nearest = sorted(believed, key=lambda route: route.hops)[:ROUTES_MAX]
        numbers = {address: interface.number for address, interface in self._by_address.items()}
        for problem in self._writer.write(nearest, numbers):
            self._counters.count("routes_refused_total", error=problem)

    def _is_believed(self, route: IpRoute) -> bool:
        return any(
            route.network & netmask == network and route.prefix >= netmask.bit_count()
            for network, netmask in self._believed
        )

    # Receiving.

    def _on_readable(self, interface: Address) -> None:
        opened = self._sockets[interface]
        for _ in range(RECEIVED_PER_TURN_MAX):
            try:
                data, (sender, _) = opened.recvfrom(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._counters.count("receive_errors_total", error=error.strerror or "unknown")
                return
            source = parse_dotted(sender)
            if source not in self._by_address:  # the kernel gives us our own broadcasts too
                self._inputs.handle(self._on_packet, interface, source, data)
            if opened.fileno() < 0:
                return

    # The interfaces.

    def _on_watch(self) -> None:
        """An interface that was plugged in again needs a new socket; one with another address needs a new
        start of the node, because OLSR knows nodes by their addresses."""
        self._watch = self._loop.call_later(WATCH_SECONDS, self._on_watch)
        for address, before in list(self._by_address.items()):
            now = self._world.network.look(before.name)
            if now is None or not now.up or now.address is None:
                continue
            if _address(now) != address:
                if address in self._sockets:
                    logger.error(
                        "interface %s changed its address from %s to %s; for OLSR restart the node",
                        now.name,
                        before.address,
                        now.address,
                    )
                    self._close_socket(address)
            elif now.number != before.number or address not in self._sockets:
                self._close_socket(address)
                self._by_address[address] = now
                try:
                    self._open_socket(address)
                except InputError as error:
                    logger.warning("%s; trying again", error)

    def _open_socket(self, address: Address) -> None:
        interface = self._by_address[address]
        opened = self._world.network.open_socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode())
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
            opened.bind(("", PORT))
        except OSError as error:
            opened.close()
            raise InputError(
                "underlay.options.open",
                f"needs UDP port {PORT} on {interface.name} ({dotted(address)}): {error.strerror}",
            ) from None
        self._sockets[address] = opened
        self._loop.add_reader(opened, self._on_readable, address)

    def _close_socket(self, address: Address) -> None:
        opened = self._sockets.pop(address, None)
        if opened is not None:
            self._loop.remove_reader(opened)
            opened.close()


def _address(interface: Interface) -> Address:
    return parse_dotted(interface.address or "0.0.0.0")


def _network(interface: Interface) -> tuple[Address, Address]:
    netmask = netmask_of(interface.prefix)
    return _address(interface) & netmask, netmask
