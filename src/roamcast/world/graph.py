"""Generated networks with the structure of an internet: Waxman's and Barabási–Albert's, grown as in BRITE.

Nodes lie uniformly in a plane and join one after the other; each newcomer links to `links` earlier nodes.
Waxman: a node at distance d is chosen in proportion to α e^(-d / (β L)), L being the plane's diagonal (B. M.
Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988). Barabási–Albert: in proportion to how many
links it has already ("Emergence of scaling in random networks", Science 286, 1999). The plane of 1000 x 1000,
two links per newcomer, α = 0.15 and β = 0.2 are BRITE's own defaults (A. Medina et al., "BRITE: an approach
to universal topology generation", MASCOTS 2001). Growth makes every network connected.

A link's cost is its length as a whole number, so that the costs of different paths compare exactly.

`walk` moves a host over such a network, from one access point to the next, with a stay at each, by one of the
four behaviours of the opportunistic channels' simulation (section 3.3). The paper does not say how often the
last two deviate from their habits ("sometimes", "occasionally"): that is `roam`, chosen by us.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from random import Random
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Generator: TypeAlias = Literal["waxman", "barabasi_albert"]
Behaviour: TypeAlias = Literal["random", "travelling_salesman", "pop_up", "fixed"]
Point: TypeAlias = tuple[float, float]

ALPHA, BETA = 0.15, 0.2
UNITS_PER_METRE = 100  # of cost


class GraphEdge(NamedTuple):
    a: int
    b: int
    cost: int


class Graph:
    """Places and links; every question is answered from them."""

    def __init__(self, places: list[Point], links: list[GraphEdge]) -> None:
        self.places = places
        self.links = links

    @property
    def nodes(self) -> int:
        return len(self.places)

    @cached_property
    def neighbours(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.places]
        for a, b, _ in self.links:
            found[a].append(b)
            found[b].append(a)
        return [sorted(row) for row in found]

    @cached_property
    def distances(self) -> npt.NDArray[np.int64]:
        """The cost of the shortest path between each pair, by Dijkstra's algorithm."""
        from scipy.sparse import coo_array  # here: a scenario without such a network never loads it
        from scipy.sparse.csgraph import dijkstra

        a, b, cost = (np.array(column) for column in zip(*self.links, strict=True))
        weights = coo_array((cost.astype(np.float64), (a, b)), shape=(self.nodes, self.nodes))
        return np.rint(dijkstra(weights.tocsr(), directed=False)).astype(np.int64)


def generated(
    generator: Generator, nodes: int, area: tuple[float, float], random: Random, links: int = 2
) -> Graph:
    """The same arguments give the same network, on any machine."""
    assert nodes >= 2 and links >= 1
    places: list[Point] = []
    made: list[GraphEdge] = []
    degrees = [0] * nodes
    for newcomer in range(nodes):
        place = (area[0] * random.random(), area[1] * random.random())
        if newcomer:
            if generator == "waxman":
                weights = _waxman_weights(place, places, area)
            else:
                # The first node has no link yet, but must have a chance to be chosen.
                weights = [max(degree, 1) for degree in degrees[:newcomer]]
            for other in _chosen(weights, min(links, newcomer), random):
                made.append(GraphEdge(other, newcomer, cost_between(places[other], place)))
                degrees[other] += 1
                degrees[newcomer] += 1
        places.append(place)
    return Graph(places, made)


def cost_between(a: Point, b: Point) -> int:
    """The cost of a link: at least 1, also for two nodes at the same place."""
    return max(1, round(UNITS_PER_METRE * math.sqrt((b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2)))


def _waxman_weights(place: Point, others: list[Point], area: tuple[float, float]) -> list[int]:
    """Whole numbers: the last digits of an exponential differ between machines and must not matter."""
    diagonal = UNITS_PER_METRE * math.sqrt(area[0] ** 2 + area[1] ** 2)
    return [
        1 + round(1e9 * ALPHA * math.exp(-cost_between(place, other) / (BETA * diagonal))) for other in others
    ]


def _chosen(weights: list[int], count: int, random: Random) -> list[int]:
    """`count` different ones, each drawn in proportion to its weight among those left."""
    left = dict(enumerate(weights))
    chosen = []
    for _ in range(count):
        number = _drawn(left, random)
        chosen.append(number)
        del left[number]
    return chosen


def _drawn(weights: dict[int, int], random: Random) -> int:
    mark = int(random.random() * sum(weights.values()))
    for number, weight in weights.items():
        mark -= weight
        if mark < 0:
            return number
    raise AssertionError("the mark lies below the sum")


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
