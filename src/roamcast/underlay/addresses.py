"""Node numbers and IPv4 addresses: protocols of the Internet name nodes by address, Roamcast by number.

In a simulation the numbers come first and a subnet gives them addresses. A live node has addresses
already; its runtime gives the layers a mapping of its own that answers the same two questions. An address
outside the mapping belongs to a foreign router: it may forward traffic, but it is no node of ours.

Below them: the host's own routing table, as the `kernel` underlay sees it and as Linux writes it down
(proc(5)). The functions parse text and touch nothing; the runtime reads `/proc/net/route` and
`/proc/net/arp`.
"""

from typing import NamedTuple, Protocol, TypeAlias

from roamcast.errors import InputError
from roamcast.units import NodeId

Address: TypeAlias = int
"""An IPv4 address as a 32-bit number."""


NO_ADDRESS: Address = 0
"""0.0.0.0, which nobody has: of a number that has no place in the mapping. Others may send such numbers."""


class Addresses(Protocol):
    def address(self, node: NodeId) -> Address: ...

    def node(self, address: Address) -> NodeId | None:
        """None for an address that is not part of this network."""
        ...


class Subnet:
    """Node n has the address `network` + n + 1; by default 10.0.0.0/8, so that node 0 is 10.0.0.1."""

    def __init__(self, network: Address = 10 << 24, prefix: int = 8) -> None:
        self._first = network + 1
        self._hosts = (1 << (32 - prefix)) - 2  # without the network's and the broadcast address

    def address(self, node: NodeId) -> Address:
        return self._first + node if 0 <= node < self._hosts else NO_ADDRESS

    def node(self, address: Address) -> NodeId | None:
        number = address - self._first
        return number if 0 <= number < self._hosts else None


def dotted(address: Address) -> str:
    return ".".join(str(octet) for octet in address.to_bytes(4, "big"))


def parse_dotted(text: str) -> Address:
    """The address in a dotted quad; `ValueError` for anything else."""
    parts = text.split(".")
    octets = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) <= 3]
    if len(parts) != 4 or len(octets) != 4 or max(octets) > 255:
        raise ValueError(f"{text!r} is no IPv4 address")
    return int.from_bytes(bytes(octets), "big")


def parse_network(text: str) -> tuple[Address, Address]:
    """Network and netmask of `10.9.0.0/16`; `ValueError` for anything else, bits below the mask included."""
    host, slash, prefix = text.partition("/")
    if not slash or not prefix.isascii() or not prefix.isdigit() or len(prefix) > 2 or int(prefix) > 32:
        raise ValueError(f"{text!r}, no IPv4 network; allowed: address/prefix, such as 10.9.0.0/16")
    network, netmask = parse_dotted(host), netmask_of(int(prefix))
    if network & ~netmask:
        raise ValueError(f"{text!r}, with bits beyond its prefix")
    return network, netmask


def netmask_of(prefix: int) -> Address:
    return 0xFFFF_FFFF << (32 - prefix) & 0xFFFF_FFFF


def prefix_of(netmask: Address) -> int | None:
    """The number of leading ones; None where others follow."""
    prefix = netmask.bit_count()
    return prefix if netmask_of(prefix) == netmask else None


# The host's own routing table.

FLAG_UP, FLAG_GATEWAY = 0x1, 0x2  # RTF_UP and RTF_GATEWAY of <linux/route.h>
ARP_COMPLETE = 0x2  # ATF_COM of <linux/if_arp.h>


class HostRoute(NamedTuple):
    """A route to one host. `gateway` is None where the host itself is on the link."""

    destination: Address
    gateway: Address | None
    metric: int  # routing daemons write the number of hops here


class RoutingTable(Protocol):
    """What a runtime gives to the `kernel` underlay."""

    def routes(self) -> list[HostRoute]:
        """The routes to single hosts, as they are now."""
        ...


def parse_proc_route(text: str) -> list[HostRoute]:
    """`/proc/net/route`: one line per route, addresses in hexadecimal as the (little-endian) processor
    keeps them. Routes to whole networks are left out."""
    rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
    return [route for number, row in enumerate(rows, 2) if (route := _proc_route(number, row)) is not None]


def parse_proc_arp(text: str) -> list[Address]:
    """`/proc/net/arp`: the addresses on the link that have answered, increasing."""
    answered: list[Address] = []
    for number, line in enumerate(text.splitlines()[1:], 2):
        fields = line.split()
        if not fields:
            continue
        try:
            if int(fields[2], 16) & ARP_COMPLETE:
                answered.append(parse_dotted(fields[0]))
        except (IndexError, ValueError):
            raise InputError(f"/proc/net/arp:{number}", "is no line of the ARP table") from None
    return sorted(answered)


def _proc_route(number: int, row: list[str]) -> HostRoute | None:
    try:
        destination, gateway, flags, metric, mask = (
            _little_endian(row[1]),
            _little_endian(row[2]),
            int(row[3], 16),
            int(row[6]),
            _little_endian(row[7]),
        )
    except (IndexError, ValueError):
        raise InputError(f"/proc/net/route:{number}", "is no line of the routing table") from None
    if not flags & FLAG_UP or mask != 0xFFFF_FFFF:
        return None
    return HostRoute(destination, gateway if flags & FLAG_GATEWAY else None, metric)


def _little_endian(text: str) -> Address:
    return int.from_bytes(bytes.fromhex(text.rjust(8, "0"))[:4], "little")
