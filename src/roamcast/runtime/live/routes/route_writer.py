"""Routes into the host's own table, for a node that is a router to others (open OLSR).

Written by rtnetlink(7), marked with a protocol number of their own, so that nothing but our own routes is
ever changed, and what a crash left behind is found again. Needs CAP_NET_ADMIN.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import InputError
from roamcast.underlay.addresses import Address
from roamcast.underlay.base import IpRoute

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
