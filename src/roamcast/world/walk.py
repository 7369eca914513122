"""How a host moves over a network: from one access point to the next, staying a while at each.

The four behaviours of the opportunistic channels' simulation (section 3.3). The paper does not say how often
the last two deviate from their habits ("sometimes", "occasionally"): that is `roam`, chosen by us.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from roamcast.world.graph import Graph

Behaviour: TypeAlias = Literal["random", "travelling_salesman", "pop_up", "fixed"]


class Stay(NamedTuple):
    place: int
    length: float  # in units of the mean stay


def walk(graph: Graph, behaviour: Behaviour, random: Random, roam: float = 0.1) -> Iterator[Stay]:
    """An endless sequence of stays, the first at the host's home; exponential lengths with mean 1."""
    home = _index(random, graph.nodes)
    second = _other(random, graph.nodes, home)
    here = home
    while True:
        yield Stay(here, -math.log(1.0 - random.random()))
        here = _next(graph, behaviour, here, (home, second), random, roam)


def _next(
    graph: Graph, behaviour: Behaviour, here: int, fixed: tuple[int, int], random: Random, roam: float
) -> int:
    if behaviour == "random":
        return _other(random, graph.nodes, here)
    if behaviour == "travelling_salesman" or (behaviour == "pop_up" and random.random() >= roam):
        return graph.neighbours[here][_index(random, len(graph.neighbours[here]))]
    if behaviour == "pop_up":
        return _other(random, graph.nodes, here)
    if graph.nodes > 2 and random.random() < roam:
        while True:
            away = _other(random, graph.nodes, here)
            if away not in fixed:
                return away
    if here in fixed:
        return fixed[1] if here == fixed[0] else fixed[0]
    return fixed[_index(random, 2)]


def _index(random: Random, count: int) -> int:
    return int(random.random() * count)


def _other(random: Random, count: int, than: int) -> int:
    """Uniform among all but one."""
    number = _index(random, count - 1)
    return number + (number >= than)
