"""Fixed targets: random waypoint between a few places that all nodes share.

Scenario 2 of the acyclic overlay (6.2.1): five points, fixed at random before the run, where users do some
task for 20 to 60 s. The paper lets a user choose among the five; here the next place is always another
one, since choosing the same again is only a longer rest.
"""

from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import (
    Area,
    Model,
    Range,
    bad,
    check_point,
    check_seconds,
    check_speed,
    node_streams,
    stream,
)
from roamcast.world.mobility.movement.path import Point
from roamcast.world.mobility.movement.waypoints import FixedPlaces, Rectangle, walk
from roamcast.world.trajectory import Motion

TARGETS_MAX = 1000  # chosen by us: the stationary start computes a weight for every pair of targets


class FixedTargets(Model, frozen=True, kw_only=True, tag="fixed_targets"):
    speed: Range = (0.5, 1.5)  # m/s, drawn per trip
    pause: Range = (20.0, 60.0)  # seconds, at each target
    targets: int | tuple[Point, ...] = 5  # how many (placed by the seed), or their positions in metres

    def check(self, nodes: int, area: Area) -> None:
        check_speed("speed", self.speed)
        check_seconds("pause", self.pause)
        count = self.targets if isinstance(self.targets, int) else len(self.targets)
        if not 2 <= count <= TARGETS_MAX:
            raise bad("targets", f"has {count} targets; allowed are 2 to {TARGETS_MAX}")
        if not isinstance(self.targets, int):
            for k, (x, y) in enumerate(self.targets):
                check_point(f"targets[{k}]", x, y, area)
                if (x, y) in self.targets[:k]:
                    raise bad(f"targets[{k}]", f"is [{x:g}, {y:g}], as an earlier one; targets must differ")

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        places = FixedPlaces(self.places(area, stream(random)))
        paths = (walk(places, self.speed, self.pause, duration, own) for own in node_streams(random, nodes))
        return Motion([path.trajectory() for path in paths])

    def places(self, area: Area, random: Random) -> list[Point]:
        if not isinstance(self.targets, int):
            return list(self.targets)
        anywhere = Rectangle(area)
        return [anywhere.any(random) for _ in range(self.targets)]
