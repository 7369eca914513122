"""Network interfaces, as far as a node needs them: existence, state, IPv4 address and MTU.

Read by the ioctl calls of netdevice(7): they need neither a library nor a permission, and each takes about a
microsecond, so a running node can look every second.
"""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import InputError

NAME_BYTES_MAX = 15
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK, _SIOCGIFMTU = 0x8913, 0x8915, 0x891B, 0x8921
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8


class Interface(NamedTuple):
    name: str
    number: int  # the kernel's index of it; a new one after it was removed and plugged in again
    address: str | None  # the first IPv4 address; None: it has none
    up: bool
    loopback: bool
    mtu: int
    prefix: int = 32  # bits of the address that name the network


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
    return Interface(name, index, address, bool(flags & _IFF_UP), bool(flags & _IFF_LOOPBACK), mtu, prefix)


def named(name: str, key: str) -> Interface:
    """The interface that a configuration names, if it can be used; otherwise a one-line `InputError`."""
    found = look(name)
    if found is None:
        raise InputError(key, f"is {name!r}, which does not exist; here are {', '.join(_names())}")
    return _fit(found, key)


def with_address(address: str, key: str) -> Interface:
    """The interface that has an address."""
    try:
        wanted = str(ipaddress.IPv4Address(address))
    except ValueError:
        raise InputError(key, f"is {address!r}; allowed: an IPv4 address of this machine") from None
    for found in _all():
        if found.address == wanted:
            return _fit(found, key)
    here = ", ".join(f"{found.address} ({found.name})" for found in _all() if found.address)
    raise InputError(key, f"is {address!r}, which no interface has as its first; here are {here or 'none'}")


def chosen(key: str) -> Interface:
    """Where the user names none: a wireless interface first, then any other, then the loopback."""
    usable = [found for found in _all() if found.up and found.address is not None]
    if not usable:
        raise InputError(key, "is not given and no interface is up with an IPv4 address; name one")
    return min(usable, key=lambda found: (found.loopback, not _is_wireless(found.name), found.number))


def _fit(found: Interface, key: str) -> Interface:
    if not found.up:
        raise InputError(key, f"is {found.name!r}, which is down; `ip link set {found.name} up` first")
    if found.address is None:
        raise InputError(
            key,
            f"is {found.name!r}, which has no IPv4 address; give it one, link-local will do: "
            f"`ip address add 169.254.1.1/16 dev {found.name}`",
        )
    return found


def _is_wireless(name: str) -> bool:
    return Path("/sys/class/net", name, "wireless").exists()


def _names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _all() -> list[Interface]:
    return [found for name in _names() if (found := look(name)) is not None]


@contextmanager
def _socket() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        yield asked.fileno()


def _ioctl(number: int, request: int, name: bytes) -> bytes:
    return fcntl.ioctl(number, request, struct.pack("16s240x", name))
