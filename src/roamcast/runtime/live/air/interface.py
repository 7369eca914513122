"""Network interfaces, as far as a node needs them: existence, state, addresses and MTU.

Read by the ioctl calls of netdevice(7) and from /proc/net/if_inet6: they need neither a library nor a
permission, and each takes some microseconds, so a running node can look every second.
"""

import asyncio
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import InputError

NAME_BYTES_MAX = 15
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK, _SIOCGIFMTU = 0x8913, 0x8915, 0x891B, 0x8921
_IFF_BROADCAST, _IFF_LOOPBACK = 0x2, 0x8
_WORKING = 0x41  # IFF_UP and IFF_RUNNING
_SCOPE_LINK, _NOT_USABLE = 0x20, 0x48  # of if_inet6: the link's own; tentative, or found to be a duplicate
_IF_INET6 = Path("/proc/net/if_inet6")
_CLASS = Path("/sys/class/net")


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


def look(name: str) -> Interface | None:
    """The interface as it is now; None: there is none of that name."""
    request = name.encode()
    if not 0 < len(request) <= NAME_BYTES_MAX:
        return None
    with _socket() as number:
        try:
            index = socket.if_nametoindex(name)
            flags = struct.unpack_from("H", _ioctl(number, _SIOCGIFFLAGS, request), 16)[0]
            mtu = struct.unpack_from("i", _ioctl(number, _SIOCGIFMTU, request), 16)[0]
        except OSError:
            return None
        try:
            address = socket.inet_ntoa(_ioctl(number, _SIOCGIFADDR, request)[20:24])
            mask = _ioctl(number, _SIOCGIFNETMASK, request)[20:24]
        except OSError:
            address, mask = None, bytes(4)
    prefix = int.from_bytes(mask, "big").bit_count()
    return Interface(
        name,
        index,
        address,
        flags & _WORKING == _WORKING,
        bool(flags & _IFF_LOOPBACK),
        mtu,
        prefix,
        _link_local(name),
        bool(flags & _IFF_BROADCAST),
    )


def named(name: str, key: str) -> Interface:
    """The interface that a configuration names, with an IPv4 address; otherwise a one-line `InputError`."""
    found = look(name)
    if found is None:
        raise InputError(key, f"is {name!r}, which does not exist; here are {', '.join(names())}")
    if not found.up:
        raise InputError(key, f"is {found.name!r}, which is down; `ip link set {found.name} up` first")
    if found.address is None:
        raise InputError(
            key,
            f"is {found.name!r}, which has no IPv4 address; give it one, link-local will do: "
            f"`ip address add 169.254.1.1/16 dev {found.name}`",
        )
    return found


def with_address(address: str, key: str) -> Interface:
    """The interface that has an address."""
    try:
        wanted = str(ipaddress.ip_address(address))
    except ValueError:
        raise InputError(key, f"is {address!r}; allowed: an address of this machine") from None
    for found in _all():
        if wanted in (found.address, found.link_local):
            return found
    here = ", ".join(f"{found.address} ({found.name})" for found in _all() if found.address)
    raise InputError(key, f"is {address!r}, which no interface has as its first; here are {here or 'none'}")


def chosen() -> list[Interface]:
    """Where the user names none: all Ethernet and Wi-Fi of this machine, cables first. A machine without any
    that is up (a container, a test) takes the first other interface, or else the loopback."""
    usable = [found for found in _all() if found.up and (found.address or found.link_local)]
    hardware = [found for found in usable if is_hardware(found)]
    if hardware:
        return sorted(hardware, key=lambda one: (is_wireless(one.name), one.number))
    others = sorted(usable, key=lambda found: (found.loopback, found.address is None, found.number))
    return others[:1]


def is_hardware(found: Interface) -> bool:
    """No bridge, tunnel or container's end; and none that is a part of a bridge and has no address."""
    folder = _CLASS / found.name
    is_part = (folder / "master").exists() and found.address is None
    return (folder / "device").exists() and found.broadcasts and not is_part


def is_wireless(name: str) -> bool:
    return (_CLASS / name / "wireless").exists()


def names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


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


def _all() -> list[Interface]:
    return [found for name in names() if (found := look(name)) is not None]


@contextmanager
def _socket() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        yield asked.fileno()


def _ioctl(number: int, request: int, name: bytes) -> bytes:
    return fcntl.ioctl(number, request, struct.pack("16s240x", name))


RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
MESSAGE_BYTES = 65_536


class InterfaceWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Without a permission for it (a container may refuse), the look of every second has to do."""
        with suppress(OSError):
            kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            opened = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
            try:
                opened.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))
            except OSError:
                opened.close()
                raise
            self._socket = opened
            self._loop.add_reader(opened, self._on_readable, opened)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _on_readable(self, opened: socket.socket) -> None:
        with suppress(OSError):  # nothing more to read; or messages were lost, which is a change as well
            while True:
                opened.recv(MESSAGE_BYTES)
        self._on_change()
