"""Random waypoint: walk straight to a uniform point of the area, rest, repeat.

Scenario 1 of the acyclic overlay (6.2.1), there with rests of 20 to 60 s. Left out: in the paper two users
who collide stop and change direction; here nodes are points and pass through each other.
"""

from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import Area, Model, Range, check_seconds, check_speed, node_streams
from roamcast.world.mobility.movement.waypoints import Rectangle, walk
from roamcast.world.trajectory import Motion


class RandomWaypoint(Model, frozen=True, kw_only=True, tag="random_waypoint"):
    speed: Range = (0.5, 1.5)  # m/s, drawn per trip; the paper says "walking" and gives no number
    pause: Range = (20.0, 60.0)  # seconds, at each destination

    def check(self, nodes: int, area: Area) -> None:
        check_speed("speed", self.speed)
        check_seconds("pause", self.pause)

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        destinations = Rectangle(area)
        paths = (
            walk(destinations, self.speed, self.pause, duration, own) for own in node_streams(random, nodes)
        )
        return Motion([path.trajectory() for path in paths])
