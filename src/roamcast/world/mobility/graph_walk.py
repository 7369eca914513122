"""Graph walk: hosts that move over a generated network from one access point to the next.

The world of the opportunistic channels' simulation (section 3.3), for any strategy. The first nodes are the
network (`world/graph.py`) and do not move; the last `walkers` are hosts that stay at one of them for an
exponential time, then go to the next. The links are those of the network and one from each
host to the node where it stays, whatever their length: this model gives contacts, and `world.range` is not
used. While a host moves, straight and at constant speed, it hears nobody.

This is the one model without a stationary start: hosts begin at home, as in the paper. With one more node the
network is another one, so all paths change.
"""

from random import Random
from typing import ClassVar

from roamcast.units import SECOND, Micros
from roamcast.world.contacts import ContactPlan
from roamcast.world.graph import Behaviour, Generator, Graph, generated, walk
from roamcast.world.mobility.model import Area, Model, bad, check_number, stream
from roamcast.world.mobility.path import PathBuilder, Piece, standing
from roamcast.world.trajectory import Motion


class GraphWalk(Model, frozen=True, kw_only=True, tag="graph_walk"):
    HAS_CONTACTS: ClassVar[bool] = True
    generator: Generator = "waxman"
    behaviour: Behaviour = "random"
    walkers: int = 1
    stay: float = 60.0  # seconds, the mean of an exponential distribution
    travel: float = 1.0  # seconds from one access point to the next
    roam: float = 0.1  # share of the moves in which `pop_up` and `fixed` deviate from their habits

    def check(self, nodes: int, area: Area) -> None:
        if not 1 <= self.walkers <= nodes - 3:
            raise bad(
                "walkers", f"is {self.walkers}; allowed: 1 to {nodes - 3}, three nodes fewer than there are"
            )
        check_number("stay", self.stay, "seconds", 0.001)
        check_number("travel", self.travel, "seconds", 0.0, open_end=True)
        if not 0 <= self.roam <= 1:
            raise bad("roam", f"is {self.roam:g}; allowed: a share, 0 to 1")

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        graph, visits = self._walks(nodes, area, duration, random)
        paths = [standing(place, duration) for place in graph.places]
        for visited in visits:
            path = PathBuilder(graph.places[visited[0][0]], duration)
            for node, arrival, departure in visited:
                path.move(Piece((arrival - path.time) / SECOND, graph.places[node]))
                path.move(Piece((departure - path.time) / SECOND, graph.places[node]))
            paths.append(path.trajectory())
        return Motion(paths)

    def contacts(self, nodes: int, area: Area, duration: Micros, random: Random) -> ContactPlan:
        """The contacts of the walks; the same random source as for `motion` gives the same walks."""
        graph, visits = self._walks(nodes, area, duration, random)
        rows = [(a, b, 0, duration) for a, b, _ in graph.links]
        for number, visited in enumerate(visits):
            host = graph.nodes + number
            rows += [(node, host, since, min(until, duration)) for node, since, until in visited]
        return ContactPlan.of(nodes, rows)

    def _walks(
        self, nodes: int, area: Area, duration: Micros, random: Random
    ) -> tuple[Graph, list[list[tuple[int, Micros, Micros]]]]:
        """Per host its places, each from when until when; the last stay ends after the run."""
        graph = generated(self.generator, nodes - self.walkers, area, stream(random))
        travel = max(round(self.travel * SECOND), 1)
        visits = []
        for _ in range(self.walkers):
            visited: list[tuple[int, Micros, Micros]] = []
            time: Micros = 0
            for stay in walk(graph, self.behaviour, stream(random), self.roam):
                leaves = time + max(round(stay.length * self.stay * SECOND), 1)
                visited.append((stay.place, time, leaves))
                time = leaves + travel
                if leaves > duration:
                    break
            visits.append(visited)
        return graph, visits
