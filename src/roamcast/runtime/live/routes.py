"""This machine's routing table and the numbers of the nodes in it, for the underlay `kernel`."""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import InputError
from roamcast.runtime.live.air.air import Air
from roamcast.runtime.live.air.peers import Peers
from roamcast.underlay.addresses import (
    NO_ADDRESS,
    Address,
    Addresses,
    HostRoute,
    Subnet,
    parse_dotted,
    parse_proc_arp,
    parse_proc_route,
)
from roamcast.underlay.base import IpRoute
from roamcast.units import NodeId

ROUTES = Path("/proc/net/route")
LINK = Path("/proc/net/arp")


class KernelRoutes:
    """`/proc/net/route`, and hosts on the link that answer ARP: a routing daemon need not have those."""

    def routes(self) -> list[HostRoute]:
        try:
            routes = parse_proc_route(ROUTES.read_text())
            on_link = parse_proc_arp(LINK.read_text())
        except OSError:
            return []
        known = {route.destination for route in routes}
        return routes + [HostRoute(address, None, 1) for address in on_link if address not in known]


def numbers_of_hosts(own: NodeId, air: Air, peers: Peers) -> Addresses:
    """If this node's address is its number + 1 in its network (node 6 is 10.0.0.7), all nodes are assumed to
    be numbered so, and the ends of multi-hop routes are known. Otherwise only heard nodes are known. Both
    are about IPv4 only: a neighbour that is reached by IPv6 has no address here."""
    if air.ipv4 is not None:
        address, prefix = parse_dotted(air.ipv4.address or "0.0.0.0"), air.ipv4.prefix
        network = address >> (32 - prefix) << (32 - prefix)
        if prefix < 31 and address - network == own + 1:
            return Subnet(network, prefix)
    return HeardAddresses(own, air, peers)


class HeardAddresses:
    """Node numbers by the addresses from which their datagrams came; only one-hop neighbours are known."""

    def __init__(self, own: NodeId, air: Air, peers: Peers) -> None:
        self._own = own
        self._air = air
        self._peers = peers

    def address(self, node: NodeId) -> Address:
        if node == self._own:
            main = self._air.ipv4
            return parse_dotted((None if main is None else main.address) or "0.0.0.0")
        peer = self._peers.get(node)
        return 0 if peer is None or peer.endpoint.is_ipv6 else parse_dotted(peer.endpoint.address)

    def node(self, address: Address) -> NodeId | None:
        for peer in self._peers.values():
            if not peer.endpoint.is_ipv6 and parse_dotted(peer.endpoint.address) == address:
                return peer.number
        return None


class NumberedAddresses:
    """Any 31-bit node number as an address that OLSR's packets may hold, and back. Small numbers begin at
    10.0.0.1, as in a simulation; beyond 10.0.0.0/8 it goes on with the first octets 11, 12, … but 127.
    Nothing is ever sent to these addresses: frames go to the address from which a node was heard."""

    def address(self, node: NodeId) -> Address:
        if not 0 <= node < 2**31:
            return NO_ADDRESS
        return FIRST_OCTETS[(node + 1) >> 24] << 24 | (node + 1) & 0xFF_FFFF

    def node(self, address: Address) -> NodeId | None:
        block = _BLOCKS.get(address >> 24)
        return None if block is None else (block << 24 | address & 0xFF_FFFF) - 1


FIRST_OCTETS = [octet for octet in range(10, 224) if octet != 127]
_BLOCKS = {octet: block for block, octet in enumerate(FIRST_OCTETS)}


FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
KEY = "underlay.options.kernel_routes"
PROTOCOL = 74  # who wrote a route (`ip route show proto 74`); chosen by us, unassigned in rtnetlink.h

# <linux/netlink.h> and <linux/rtnetlink.h>.
NETLINK_ROUTE = 0
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_REPLACE, NLM_F_CREATE = 0x100, 0x400
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY = 1, 4, 5, 6
RT_TABLE_MAIN, RTN_UNICAST = 254, 1
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RT_SCOPE_NOWHERE = 0, 253, 255
RTNH_F_ONLINK = 4

HEADER = struct.Struct("=IHHII")  # nlmsghdr
ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg
ATTRIBUTE = struct.Struct("=HH")
ANSWER_BYTES_MAX = 65_536


class WrittenRoute(NamedTuple):
    network: Address
    prefix: int
    metric: int
    gateway: Address | None = None
    interface: int = 0  # the kernel's number; 0: any


class RouteWriter:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._sequence = 0
        self._written: set[WrittenRoute] = set()

    def open(self) -> None:
        """`InputError` where this host cannot be a router."""
        if FORWARDING.read_text().strip() != "1":
            raise InputError(
                KEY,
                "is true, but this host does not forward: `sysctl net.ipv4.ip_forward=1`, or set it to false",
            )
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE)
        self._socket.bind((0, 0))
        # A route to ourselves that does not exist: only the permission to remove it is asked for.
        refused = self._change(RTM_DELROUTE, 0, WrittenRoute(0, 32, 1))
        if refused in (errno.EPERM, errno.EACCES):
            raise InputError(KEY, f"is true, which needs CAP_NET_ADMIN: {os.strerror(refused)}")
        for left in self._left_behind():
            self._change(RTM_DELROUTE, 0, left)

    def close(self) -> None:
        if self._socket is not None:
            self.write((), {})
            self._socket.close()
            self._socket = None

    def write(self, routes: Sequence[IpRoute], numbers: Mapping[Address, int]) -> list[str]:
        """Make the host's table hold these routes of ours and no others; the errors of those refused."""
        if self._socket is None:
            return []
        wanted = {
            WrittenRoute(route.network, route.prefix, route.hops, route.gateway, numbers[route.interface])
            for route in routes
        }
        problems: list[str] = []
        places = {(route.network, route.prefix, route.metric) for route in wanted}
        for route in sorted(wanted - self._written, key=_on_link_first):
            refused = self._change(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route)
            if refused:
                problems.append(os.strerror(refused))
                wanted.discard(route)  # tried again with the next change
        for route in self._written - wanted:
            if (route.network, route.prefix, route.metric) not in places:  # else it was replaced
                self._change(RTM_DELROUTE, 0, route)
        self._written = wanted
        return problems

    def _change(self, message: int, flags: int, route: WrittenRoute) -> int:
        """Ask the kernel; 0, or the number of the error that it answers with."""
        scope = RT_SCOPE_LINK if route.gateway is None else RT_SCOPE_UNIVERSE
        if message == RTM_DELROUTE:
            scope = RT_SCOPE_NOWHERE  # whatever it has
        # The gateway is on the link because its HELLOs say so, whatever our own netmask says.
        on_link = 0 if route.gateway is None or message == RTM_DELROUTE else RTNH_F_ONLINK
        body = ROUTE.pack(
            socket.AF_INET, route.prefix, 0, 0, RT_TABLE_MAIN, PROTOCOL, scope, RTN_UNICAST, on_link
        )
        body += _attribute(RTA_DST, struct.pack("!I", route.network))
        body += _attribute(RTA_PRIORITY, struct.pack("=I", route.metric))
        if route.gateway is not None:
            body += _attribute(RTA_GATEWAY, struct.pack("!I", route.gateway))
        if route.interface:
            body += _attribute(RTA_OIF, struct.pack("=I", route.interface))
        self._ask(message, flags | NLM_F_ACK, body)
        for kind, answer in self._answers():
            if kind == NLMSG_ERROR:
                return -int(struct.unpack_from("=i", answer)[0])
        return 0

    def _left_behind(self) -> list[WrittenRoute]:
        """Our routes in the table, of a node that could not clear up."""
        self._ask(RTM_GETROUTE, NLM_F_DUMP, ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0))
        found: list[WrittenRoute] = []
        for kind, answer in self._answers():
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                break
            prefix, table, protocol = answer[1], answer[4], answer[5]
            if (table, protocol) == (RT_TABLE_MAIN, PROTOCOL):
                attributes = dict(_attributes(answer[ROUTE.size :]))
                network = int.from_bytes(attributes.get(RTA_DST, bytes(4)), "big")
                metric = int(struct.unpack("=I", attributes.get(RTA_PRIORITY, bytes(4)))[0])
                found.append(WrittenRoute(network, prefix, metric))
        return found

    def _ask(self, message: int, flags: int, body: bytes) -> None:
        assert self._socket is not None
        self._sequence += 1
        size = HEADER.size + len(body)
        self._socket.send(HEADER.pack(size, message, NLM_F_REQUEST | flags, self._sequence, 0) + body)

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        """The kernel answers at once: nothing here waits for anybody else."""
        assert self._socket is not None
        while True:
            data = self._socket.recv(ANSWER_BYTES_MAX)
            at = 0
            while at < len(data):
                size, kind, _, sequence, _ = HEADER.unpack_from(data, at)
                if sequence == self._sequence:
                    yield kind, data[at + HEADER.size : at + size]
                    if kind in (NLMSG_DONE, NLMSG_ERROR):
                        return
                at += (size + 3) // 4 * 4


def _on_link_first(route: WrittenRoute) -> tuple[bool, int]:
    return route.gateway is not None, route.metric


def _attribute(kind: int, value: bytes) -> bytes:
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        size, kind = ATTRIBUTE.unpack_from(data, at)
        if size < ATTRIBUTE.size:
            return
        yield kind, data[at + ATTRIBUTE.size : at + size]
        at += (size + 3) // 4 * 4
