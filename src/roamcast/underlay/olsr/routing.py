"""Routes: the fewest hops to every node that neighbours and topology lead to (RFC 3626, section 10), and to
the networks behind gateways (section 12.6.1)."""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from roamcast.underlay.addresses import prefix_of
from roamcast.underlay.base import IpRoute
from roamcast.underlay.olsr.topology import Gateway
from roamcast.wire.olsr import Address

HOST = 32  # the prefix of a single address
Network: TypeAlias = tuple[Address, Address]
"""An address and a netmask."""

NOBODY: frozenset[Address] = frozenset()


class OlsrRoute(NamedTuple):
    next_hop: Address  # main address of a symmetric neighbour
    distance: int  # hops


def shortest_routes(
    own: Address,
    neighbours: Iterable[Address],
    reached: Mapping[Address, frozenset[Address]],
    topology: Mapping[Address, frozenset[Address]],
) -> dict[Address, OlsrRoute]:
    """Routes by main address, nearest first, found breadth first.

    `reached`: for each neighbour that relays, its own symmetric neighbours. `topology`: for each relay,
    those that chose it. Of several shortest routes the one whose last relay has the lowest address is
    taken.
    """
    routes = {own: OlsrRoute(own, 0)}
    level = sorted(neighbours)
    for address in level:
        routes[address] = OlsrRoute(address, 1)
    edges = reached
    distance = 1
    while level:
        distance += 1
        found: list[Address] = []
        for address in level:
            fresh = edges.get(address, NOBODY).difference(routes)  # of a view of keys all would be copied
            if fresh:
                routes.update(dict.fromkeys(fresh, OlsrRoute(routes[address].next_hop, distance)))
                found.extend(fresh)
        level = sorted(found)
        edges = topology
    del routes[own]
    return routes


def network_routes(
    routes: Mapping[Address, OlsrRoute], gateways: Iterable[Gateway], own: Container[Network] = ()
) -> dict[Network, OlsrRoute]:
    """Networks by their nearest gateway; of equally near ones the first. Those that this node leads to itself
    are left out, and netmasks with holes."""
    nearest: dict[Network, OlsrRoute] = {}
    for gateway in gateways:
        route = routes.get(gateway.node)
        if route is None or prefix_of(gateway.netmask) is None:
            continue
        network = gateway.network & gateway.netmask, gateway.netmask
        if network in own:
            continue
        if network not in nearest or route.distance < nearest[network].distance:
            nearest[network] = route
    return nearest


def host_routes(
    routes: Mapping[Address, OlsrRoute],
    networks: Mapping[Network, OlsrRoute],
    ways: Mapping[Address, tuple[Address, Address]],
) -> list[IpRoute]:
    """Both as the host's own table wants them. `ways`: for each neighbour, by main address, our interface and
    the neighbour's. A network of prefix 32 never takes the place of a node's own route."""
    wanted = [(address, HOST, route) for address, route in routes.items()]
    for (network, netmask), route in networks.items():
        prefix = prefix_of(netmask)
        if prefix is not None and not (prefix == HOST and network in routes):
            wanted.append((network, prefix, route))
    found: list[IpRoute] = []
    for network, prefix, route in sorted(wanted):
        if route.next_hop in ways:
            interface, gateway = ways[route.next_hop]
            on_link = prefix == HOST and network == gateway
            found.append(IpRoute(network, prefix, None if on_link else gateway, interface, route.distance))
    return found
