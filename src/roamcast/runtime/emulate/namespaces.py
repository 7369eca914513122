"""One network namespace and one TAP device per node, made with system calls and nothing else.

No namespace gets a name and no device is persistent: both live as long as a process or a descriptor holds
them, so there is nothing to clean up after any crash. Without root everything happens inside a user
namespace, in which an ordinary user has the permissions needed, if the kernel allows user namespaces.

What a node sees: a loopback, and one Ethernet-like interface with an address in 10.83.0.0/16. IPv6 is off on
it, because a kernel's own packets (router solicitations, duplicate address detection) are not to be measured.
Python 3.11 has neither `os.unshare` nor `os.setns`, hence ctypes; the interface is set up with ioctls, so
that not even `ip` is needed.
"""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roamcast.errors import InputError
from roamcast.units import NodeId

INTERFACE = "air0"
MTU = 1500
NODES_MAX = 250  # far more than a machine can run in real time; `select` takes descriptors up to 1,024
TUN_DEVICE = "/dev/net/tun"

CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000
PR_SET_PDEATHSIG = 1

TUNSETIFF = 0x4004_54CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
IFF_UP, IFF_BROADCAST, IFF_MULTICAST = 0x1, 0x2, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
SIOCSIFMTU, SIOCSIFHWADDR = 0x8922, 0x8924
ARPHRD_ETHER = 1

_libc = ctypes.CDLL(None, use_errno=True)


class CannotEmulateError(InputError):
    """This machine, or this user on it, cannot emulate: one line that says what is missing."""


@dataclass(frozen=True)
class Namespace:
    """A node's own network. Both descriptors are open; closing them, once its processes are gone, ends it."""

    node: NodeId
    network: int  # descriptor of the namespace, for `enter`
    tap: int  # descriptor of the device: what is read was sent by the node, what is written it receives


def address_of(node: NodeId) -> str:
    return f"10.83.{(node + 1) >> 8}.{(node + 1) & 255}"


def mac_of(node: NodeId) -> bytes:
    """Locally administered, unicast."""
    return b"\x02\x83" + (node + 1).to_bytes(4, "big")


def allow_namespaces() -> None:
    """Leave the machine's network for an empty one, through a user namespace if one is needed.

    Must run before anything starts a thread: a user namespace is for single-threaded processes only.
    """
    if not os.path.exists(TUN_DEVICE):
        raise CannotEmulateError(TUN_DEVICE, "is missing; emulation needs TAP devices (modprobe tun)")
    if _try(_libc.unshare, CLONE_NEWNET) is None:
        return
    user, group = os.geteuid(), os.getegid()  # before: inside, until the maps are written, we are `nobody`
    problem = _try(_libc.unshare, CLONE_NEWUSER)
    if problem is None:
        problem = _become_root_inside(user, group) or _try(_libc.unshare, CLONE_NEWNET)
    if problem is not None:
        raise CannotEmulateError(
            "network namespaces",
            f"refused by the kernel ({problem}); needed: root, or user namespaces for ordinary users"
            " (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces,"
            " kernel.apparmor_restrict_unprivileged_userns)",
        )


def make_namespaces(nodes: int) -> list[Namespace]:
    """Namespaces 0 to `nodes` - 1, each with its interface up. After `allow_namespaces`."""
    if nodes > NODES_MAX:
        raise CannotEmulateError("world.nodes", f"is {nodes}; an emulation takes at most {NODES_MAX}")
    home = _own_network()
    try:
        return [_make(node) for node in range(nodes)]
    finally:
        enter(home)
        os.close(home)


def enter(network: int) -> None:
    """Move this thread, and what it starts, to another network namespace."""
    problem = _try(_libc.setns, network, CLONE_NEWNET)
    assert problem is None, problem


def die_with_parent(parent: int, last_word: int = signal.SIGKILL) -> None:
    """For a child process just after its start: the kernel ends it when `parent` ends, however that does."""
    _libc.prctl(PR_SET_PDEATHSIG, int(last_word), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), last_word)  # the parent ended before the call above


# Private.


def _become_root_inside(user: int, group: int) -> str | None:
    """Map the user outside to root inside; outside, what it makes still belongs to that user."""
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def _make(node: NodeId) -> Namespace:
    problem = _try(_libc.unshare, CLONE_NEWNET)
    if problem is not None:
        raise CannotEmulateError("network namespaces", f"no more of them: {problem} (for node {node})")
    try:
        tap = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, TUNSETIFF, _request(struct.pack("H", IFF_TAP | IFF_NO_PI)))
    except OSError as error:
        raise CannotEmulateError(TUN_DEVICE, f"makes no TAP device: {error.strerror}") from None
    # Before the interface is up: afterwards IPv6 has sent packets already. A kernel may have no IPv6.
    with suppress(OSError):
        Path(f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6").write_text("1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as settings:
        flags = struct.pack("H", IFF_UP | IFF_BROADCAST | IFF_MULTICAST)
        for request, value in [
            (SIOCSIFHWADDR, struct.pack("H", ARPHRD_ETHER) + mac_of(node)),
            (SIOCSIFMTU, struct.pack("i", MTU)),
            (SIOCSIFADDR, _internet(address_of(node))),
            (SIOCSIFNETMASK, _internet("255.255.0.0")),
            (SIOCSIFFLAGS, flags),
        ]:
            fcntl.ioctl(settings, request, _request(value))
        fcntl.ioctl(settings, SIOCSIFFLAGS, _request(struct.pack("H", IFF_UP), "lo"))
    return Namespace(node, _own_network(), tap)


def _own_network() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _request(value: bytes, interface: str = INTERFACE) -> bytes:
    """`struct ifreq`: the interface's name, and a union of 24 octets."""
    return struct.pack("16s24s", interface.encode(), value)


def _internet(address: str) -> bytes:
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(address))


def _try(call: "ctypes._NamedFuncPointer", *arguments: int) -> str | None:
    """What went wrong, if anything."""
    if call(*arguments) == 0:
        return None
    number = ctypes.get_errno()
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
