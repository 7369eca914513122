"""City block: cars on streets that cross at right angles, with buildings between them.

Scenario 6 of the acyclic overlay (6.2.1): drive to random destinations at up to 20 km/h, rest 20 to 60 s,
stop at random for 5 to 25 s in front of a crossing; walls stand between parallel roads. Scenario 5 is
the same drive on an open place: `buildings = false` and `stop_probability = 0`. One model serves both
because the paper defines the one by the other, and its left and right turns need a street grid.

Departures: destinations are points of the streets, not of the whole area; the walls are as thick as the
blocks; cars are points that neither queue nor collide; how often one stops is not in the paper.
"""

from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import Area, Range, bad, check_seconds, check_speed, node_streams
from roamcast.world.mobility.movement.town import KMH, Driver, Town
from roamcast.world.trajectory import Motion


class CityBlock(Town, frozen=True, kw_only=True, tag="city_block"):
    speed: Range = (10 * KMH, 20 * KMH)  # m/s, cruising, drawn per trip
    pause: Range = (20.0, 60.0)  # seconds, at each destination
    stop: Range = (5.0, 25.0)  # seconds, in front of a crossing
    stop_probability: float = 0.3  # per crossing on the way

    def check(self, nodes: int, area: Area) -> None:
        Town.check(self, nodes, area)
        check_speed("speed", self.speed)
        check_seconds("pause", self.pause)
        check_seconds("stop", self.stop)
        if not 0 <= self.stop_probability <= 1:
            raise bad("stop_probability", f"is {self.stop_probability:g}; allowed is 0 to 1")

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        driver = Driver(
            self.streets(area),
            self.speed,
            self.pause,
            self.stop,
            self.stop_probability,
            self.acceleration,
            self.turn_speed,
        )
        return Motion([driver.path(duration, own).trajectory() for own in node_streams(random, nodes)])
