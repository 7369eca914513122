"""Routes: the fewest hops to every node that neighbours and topology lead to (RFC 3626, section 10)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roamcast.wire.olsr import Address

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
            fresh = edges.get(address, NOBODY) - routes.keys()
            if fresh:
                routes.update(dict.fromkeys(fresh, OlsrRoute(routes[address].next_hop, distance)))
                found.extend(fresh)
        level = sorted(found)
        edges = topology
    del routes[own]
    return routes
