"""Which interfaces of a machine a node uses, what it hears of their changes, and where others are reached."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from roamcast.errors import InputError
from roamcast.runtime.live.world import Interface, NodeNetwork, NodeWorld

RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
MESSAGE_BYTES = 65_536


class Endpoint(NamedTuple):
    """Where a node is reached, or was heard: an address, a port, and by which interface of ours."""

    address: str  # IPv4, or IPv6 of the link's own scope
    port: int
    interface: str

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.address

    @property
    def host(self) -> str:
        """For people. The same link-local address may be another device on another interface."""
        return f"{self.address}%{self.interface}" if self.is_ipv6 else self.address

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.address}:{self.port}"


class InterfaceWatch:
    """Hears from the kernel that something about the interfaces or their addresses has changed
    (rtnetlink(7)).

    The content of a message is not read: whoever is told looks at the interfaces. So no message has to be
    understood, and a lost one does little harm, because there is a look every second anyway.
    """

    def __init__(self, world: NodeWorld, on_change: Callable[[], None]) -> None:
        self._world = world
        self._on_change = on_change
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Without a permission for it (a container may refuse), the look of every second has to do."""
        with suppress(OSError):
            opened = self._world.network.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            try:
                opened.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))
            except OSError:
                opened.close()
                raise
            self._socket = opened
            self._world.loop.add_reader(opened, self._on_readable, opened)

    def close(self) -> None:
        if self._socket is not None:
            self._world.loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _on_readable(self, opened: socket.socket) -> None:
        with suppress(OSError):  # nothing more to read; or messages were lost, which is a change as well
            while True:
                opened.recv(MESSAGE_BYTES)
        self._on_change()


def named(network: NodeNetwork, name: str, key: str) -> Interface:
    """The interface that a configuration names, with an IPv4 address; otherwise a one-line `InputError`."""
    found = network.look(name)
    if found is None:
        raise InputError(key, f"is {name!r}, which does not exist; here are {', '.join(network.names())}")
    if not found.up:
        raise InputError(key, f"is {found.name!r}, which is down; `ip link set {found.name} up` first")
    if found.address is None:
        raise InputError(
            key,
            f"is {found.name!r}, which has no IPv4 address; give it one, link-local will do: "
            f"`ip address add 169.254.1.1/16 dev {found.name}`",
        )
    return found


def with_address(network: NodeNetwork, address: str, key: str) -> Interface:
    """The interface that has an address."""
    try:
        wanted = str(ipaddress.ip_address(address))
    except ValueError:
        raise InputError(key, f"is {address!r}; allowed: an address of this machine") from None
    for found in _all(network):
        if wanted in (found.address, found.link_local):
            return found
    here = ", ".join(f"{found.address} ({found.name})" for found in _all(network) if found.address)
    raise InputError(key, f"is {address!r}, which no interface has as its first; here are {here or 'none'}")


def chosen(network: NodeNetwork) -> list[Interface]:
    """Where the user names none: all Ethernet and Wi-Fi of this machine, cables first. A machine without any
    that is up (a container, a test) takes the first other interface, or else the loopback."""
    usable = [found for found in _all(network) if found.up and (found.address or found.link_local)]
    hardware = [found for found in usable if network.is_hardware(found)]
    if hardware:
        return sorted(hardware, key=lambda one: (network.is_wireless(one.name), one.number))
    others = sorted(usable, key=lambda found: (found.loopback, found.address is None, found.number))
    return others[:1]


def left_out(network: NodeNetwork, used: Sequence[str]) -> list[str]:
    """Interfaces that could be used and are not: where there is no hardware, one of several is chosen."""
    usable = (one for one in _all(network) if one.up and (one.address or one.link_local) and not one.loopback)
    return [one.name for one in usable if one.name not in used]


def _all(network: NodeNetwork) -> list[Interface]:
    return [found for name in network.names() if (found := network.look(name)) is not None]
