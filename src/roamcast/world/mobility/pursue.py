"""Pursue: one criminal in the streets of a city; all other nodes follow it.

Scenario 7 of the acyclic overlay (6.2.1): the city of scenario 6, followers at 15 km/h at most while the
criminal does 20 km/h, so that they must cut corners instead of driving behind. Node 0 is the criminal:
it drives to random destinations without stopping at crossings and, unless `pause` says so, without
resting. At each crossing a follower knows where the criminal is at that moment, takes a shortest route
there as far as the next crossing, and decides again. The random vector of the model in Camp's survey is
here the choice among equally short routes and the speed, drawn per street.

The criminal starts stationary. A pursuit has no known stationary distribution to draw from, so the
followers start anywhere on the streets `lead_in` seconds before time 0, and pursue it already when the run
begins.
"""

from random import Random

from roamcast.units import Micros, micros
from roamcast.world.mobility.model import (
    Area,
    Range,
    between,
    check_number,
    check_seconds,
    check_speed,
    node_streams,
)
from roamcast.world.mobility.movement.driving import RoutePoint, drive, reached
from roamcast.world.mobility.movement.path import PathBuilder, Piece, Point, distance
from roamcast.world.mobility.movement.streets import Streets
from roamcast.world.mobility.movement.town import KMH, Driver, Town
from roamcast.world.trajectory import Motion, Trajectory

# Both chosen by us.
CAUGHT_METRES = 2.0  # nearer than that a follower waits: cars do not merge
LOOK_AGAIN_SECONDS = 1.0


class Pursue(Town, frozen=True, kw_only=True, tag="pursue"):
    speed: Range = (15 * KMH, 20 * KMH)  # m/s, of the criminal, drawn per trip
    pause: Range = (0.0, 0.0)  # seconds, of the criminal at each destination
    follower_speed: Range = (10 * KMH, 15 * KMH)  # m/s, drawn per street
    lead_in: float = 300.0  # seconds of pursuit before time 0; chosen by us

    def check(self, nodes: int, area: Area) -> None:
        Town.check(self, nodes, area)
        check_speed("speed", self.speed)
        check_seconds("pause", self.pause)
        check_speed("follower_speed", self.follower_speed)
        check_number("lead_in", self.lead_in, "seconds", 0.0)

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        streets, since = self.streets(area), micros(self.lead_in)
        own, *others = node_streams(random, nodes)
        driver = Driver(streets, self.speed, self.pause, (0.0, 0.0), 0.0, self.acceleration, self.turn_speed)
        criminal = driver.path(since + duration, own)
        hunted = criminal.trajectory()
        followers = [self._pursuit(streets, hunted, since + duration, follower) for follower in others]
        return Motion([path.trajectory(since) for path in (criminal, *followers)])

    def _pursuit(self, streets: Streets, hunted: Trajectory, until: Micros, random: Random) -> PathBuilder:
        path = PathBuilder(streets.anywhere(random), until)
        entry, before = 0.0, path.here  # the speed at which it arrives, and from where
        while not path.done:
            here, seen = path.here, hunted.position(path.time)
            assert seen is not None
            route = streets.route(here, seen, random)
            if len(route) <= 2 and distance(here, seen) < CAUGHT_METRES:
                path.move(Piece(LOOK_AGAIN_SECONDS, here))
                entry, before = 0.0, here
                continue
            there = route[1]
            if _turns_back(before, here, there):
                entry = 0.0
            # At a crossing it may have to turn; where the criminal was seen, it stops and looks again.
            leave = 0.0 if there == seen else self.turn_speed
            cruise = between(random, self.follower_speed)
            path.follow(drive(here, [RoutePoint(there, leave, 0.0)], cruise, self.acceleration, entry=entry))
            entry = min(leave, cruise, reached(entry, distance(here, there), self.acceleration))
            before = here
        return path


def _turns_back(before: Point, here: Point, there: Point) -> bool:
    """Whether going on to `there` means turning round."""
    return (here[0] - before[0]) * (there[0] - here[0]) + (here[1] - before[1]) * (there[1] - here[1]) < 0
