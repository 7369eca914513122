"""A host's own routing table, as the `kernel` underlay sees it, and how Linux writes it down.

The functions parse text and touch nothing; the runtime reads `/proc/net/route` and `/proc/net/arp`, or
calls `ip -json route`. The formats are those of Linux: proc(5) and ip-route(8).
"""

import json
from typing import NamedTuple, Protocol

from roamcast.errors import InputError
from roamcast.underlay.addresses import Address, dotted, parse_dotted

FLAG_UP, FLAG_GATEWAY = 0x1, 0x2  # RTF_UP and RTF_GATEWAY of <linux/route.h>
ARP_COMPLETE = 0x2  # ATF_COM of <linux/if_arp.h>
HOST_PREFIX = 32


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


def parse_ip_route(text: str) -> list[HostRoute]:
    """The output of `ip -json route`: a list of objects with `dst`, `gateway`, `metric`. Routes to whole
    networks are left out."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise InputError("ip -json route", f"is not JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("ip -json route", "is not a list of objects")
    return [route for row in rows if (route := _ip_route(row)) is not None]


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


def format_route(route: HostRoute) -> str:
    """As people write it, for messages and tests."""
    way = "on the link" if route.gateway is None else f"via {dotted(route.gateway)}"
    return f"{dotted(route.destination)} {way} metric {route.metric}"


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


def _ip_route(row: dict[str, object]) -> HostRoute | None:
    destination, gateway, metric = row.get("dst"), row.get("gateway"), row.get("metric", 0)
    if destination == "default" or not isinstance(destination, str):
        return None
    host, _, prefix = destination.partition("/")
    if prefix not in ("", str(HOST_PREFIX)):
        return None
    try:
        way = None if gateway is None else parse_dotted(str(gateway))
        return HostRoute(parse_dotted(host), way, int(str(metric)))
    except ValueError as error:
        raise InputError("ip -json route", f"has a route that cannot be read: {error}") from None
