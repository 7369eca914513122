"""Models of cars on streets: city block and pursue, the driver of a car, and how it speeds up and brakes.

Motion here is piecewise linear, so a phase of acceleration becomes a few straight pieces whose ends lie
on the true curve; within a phase the speed rises in steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import NamedTuple

from roamcast.units import Micros, micros
from roamcast.world.mobility.model import (
    Area,
    Model,
    Range,
    bad,
    between,
    check_number,
    check_seconds,
    check_speed,
    check_trips,
    node_streams,
)
from roamcast.world.mobility.path import PathBuilder, Piece, Point, along, distance, entered
from roamcast.world.mobility.streets import Streets
from roamcast.world.mobility.waypoints import speed_in_passing
from roamcast.world.trajectory import Motion, Trajectory
from roamcast.world.walls import Wall

KMH = 1 / 3.6
ACCELERATION_LEAST = (
    0.1  # m/s²: below it a car takes blocks to reach any speed, and trips have no useful bound
)
STREETS_MAX = 1000  # in one direction; chosen by us
# Chosen by us: nearer than that a follower waits (cars do not merge), and looks again so much later.
CAUGHT_METRES = 2.0
LOOK_AGAIN_SECONDS = 1.0
RAMP_ERROR = 0.25  # metres, greatest distance of a straight piece from the curve; chosen by us


class Town(Model, frozen=True, kw_only=True):
    """The parameters of the streets and of the cars. The paper gives no numbers, so they are chosen by us."""

    block: float = 50.0  # metres from street to street; rounded so that whole blocks fill the area
    street_width: float = 10.0  # metres from building to building
    buildings: bool = True  # they block the radio; without, an open place with marked roads
    acceleration: float = 2.0  # m/s², braking too
    turn_speed: float = 10 * KMH  # m/s, at most, where the route turns

    def check(self, nodes: int, area: Area) -> None:
        check_number("block", self.block, "metres", 0.0, open_end=True)
        if max(area) / self.block > STREETS_MAX:
            raise bad(
                "block", f"is {self.block:g} m; allowed are at most {STREETS_MAX} blocks along the area"
            )
        check_number("street_width", self.street_width, "metres", 0.0, open_end=True)
        streets = self.streets(area)
        narrowest = min(streets.xs[1], streets.ys[1])
        if self.street_width >= narrowest:
            raise bad(
                "street_width",
                f"is {self.street_width:g} m; allowed is less than a block, here {narrowest:g} m",
            )
        check_number("acceleration", self.acceleration, "m/s²", ACCELERATION_LEAST)
        check_number("turn_speed", self.turn_speed, "m/s", 0.0, open_end=True)

    def streets(self, area: Area) -> Streets:
        return Streets.over(area, self.block, self.street_width)

    def walls(self, area: Area) -> list[Wall]:
        return self.streets(area).walls() if self.buildings else []


class CityBlock(Town, frozen=True, kw_only=True, tag="city_block"):
    """City block: cars on streets that cross at right angles, with buildings between them.

    Scenario 6 of the acyclic overlay (6.2.1): drive to random destinations at up to 20 km/h, rest 20 to 60 s,
    stop at random for 5 to 25 s in front of a crossing; walls stand between parallel roads. Scenario 5 is
    the same drive on an open place: `buildings = false` and `stop_probability = 0`. One model serves both
    because the paper defines the one by the other, and its left and right turns need a street grid.

    Departures: destinations are points of the streets, not of the whole area; the walls are as thick as the
    blocks; cars are points that neither queue nor collide; how often one stops is not in the paper.
    """

    speed: Range = (10 * KMH, 20 * KMH)  # m/s, cruising, drawn per trip
    pause: Range = (20.0, 60.0)  # seconds, at each destination
    stop: Range = (5.0, 25.0)  # seconds, in front of a crossing
    stop_probability: float = 0.3  # per crossing on the way

    def check(self, nodes: int, area: Area) -> None:
        Town.check(self, nodes, area)
        check_trips(self.speed, self.pause)
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


class Pursue(Town, frozen=True, kw_only=True, tag="pursue"):
    """Pursue: one criminal in the streets of a city; all other nodes follow it.

    Scenario 7 of the acyclic overlay (6.2.1): the city of scenario 6, followers at 15 km/h at most while the
    criminal does 20 km/h, so that they must cut corners instead of driving behind. Node 0 is the criminal:
    it drives to random destinations without stopping at crossings and, unless `pause` says so, without
    resting. At each crossing a follower knows where the criminal is at that moment, takes a shortest route
    there as far as the next crossing, and decides again. The random vector of the model in Camp's survey is
    here the choice among equally short routes and the speed, drawn per street.

    The criminal starts stationary. A pursuit has no known stationary distribution to draw from, so the
    followers start anywhere on the streets `lead_in` seconds before time 0, and pursue it already when the
    run begins.
    """

    speed: Range = (15 * KMH, 20 * KMH)  # m/s, of the criminal, drawn per trip
    pause: Range = (0.0, 0.0)  # seconds, of the criminal at each destination
    follower_speed: Range = (10 * KMH, 15 * KMH)  # m/s, drawn per street
    lead_in: float = 300.0  # seconds of pursuit before time 0; chosen by us

    def check(self, nodes: int, area: Area) -> None:
        Town.check(self, nodes, area)
        check_trips(self.speed, self.pause)
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


@dataclass(frozen=True)
class Driver:
    """Drives to a uniform point of the streets by a shortest route, rests there, and repeats.

    On the route it may have to stop in front of a crossing, as at a traffic light.
    """

    streets: Streets
    speed: Range  # m/s, cruising, drawn per trip
    pause: Range  # seconds, at each destination
    stop: Range  # seconds, in front of a crossing
    stop_probability: float  # per crossing
    acceleration: float
    turn_speed: float

    def path(self, until: Micros, random: Random) -> PathBuilder:
        start, pieces = self._start(random)
        path = PathBuilder(start, until)
        path.follow(pieces)
        while not path.done:
            there = self.streets.anywhere(random)
            path.follow(self._trip(path.here, there, between(random, self.speed), random))
        return path

    def _start(self, random: Random) -> tuple[Point, list[Piece]]:
        """A stationary start (see `waypoints.py`), with the whole trip, its stops and its rest as the cycle.

        Here the duration does not factorise into length and speed, so trips are drawn, accepted with
        probability proportional to their duration, and entered at a uniform instant. To reject few of them,
        the speed is drawn with density `1/v`, which is most of the weight; the rest, duration times speed,
        is bounded.
        """
        bound = self._duration_times_speed_max()
        while True:
            origin, there = self.streets.anywhere(random), self.streets.anywhere(random)
            cruise = speed_in_passing(random, self.speed)
            pieces = self._trip(origin, there, cruise, random)
            duration = sum(piece.seconds for piece in pieces)
            assert duration * cruise <= bound
            if random.random() * bound < duration * cruise:
                return entered(origin, pieces, duration * random.random())

    def _trip(self, origin: Point, there: Point, cruise: float, random: Random) -> list[Piece]:
        route = self.streets.route(origin, there, random)
        stages: list[RoutePoint] = []
        for before, here, after in zip(route, route[1:], route[2:], strict=False):
            if random.random() < self.stop_probability:
                # In front of the crossing road, not on it; a car that is too near to it does not stop.
                room = distance(before, here) - self.streets.width / 2
                seconds = between(random, self.stop)
                if room > 0:
                    stages.append(
                        RoutePoint(along(before, here, room / distance(before, here)), 0.0, seconds)
                    )
            turns = (before[0] == here[0]) != (here[0] == after[0])
            if turns:
                stages.append(RoutePoint(here, self.turn_speed, 0.0))
        stages.append(RoutePoint(there, 0.0, between(random, self.pause)))
        return drive(origin, stages, cruise, self.acceleration)

    def _duration_times_speed_max(self) -> float:
        """Metres. A stretch takes at most `v / a` longer than its length over `v`: half of that to build up
        `v` from rest, half to brake to rest. A route has two stretches per crossing, to the stop and on,
        and one to the end; it passes each street at most once, and is no longer than width plus height."""
        blocks = len(self.streets.xs) + len(self.streets.ys)
        v = self.speed[1]
        length = self.streets.xs[-1] + self.streets.ys[-1]
        standing = self.stop[1] * blocks * (self.stop_probability > 0) + self.pause[1]
        return 1.001 * (length + v * v / self.acceleration * (2 * blocks + 1) + v * standing)


class RoutePoint(NamedTuple):
    """The next point of a route: straight to `to`, passing it at most at `speed`, or standing there."""

    to: Point
    speed: float  # m/s; 0 where the car halts
    halt: float  # seconds


def drive(
    start: Point, stages: Sequence[RoutePoint], cruise: float, acceleration: float, *, entry: float = 0.0
) -> list[Piece]:
    """The pieces of a drive that begins at speed `entry` and never exceeds `cruise` or the stages' limits.

    Speed changes by at most `acceleration`, braking included, unless `entry` is beyond `cruise` or too
    fast to brake before the first limit: then the car simply begins slower.
    """
    points = [start, *(stage.to for stage in stages)]
    lengths = [distance(a, b) for a, b in pairwise(points)]
    speeds = _passing_speeds([entry, *(stage.speed for stage in stages)], lengths, cruise, acceleration)
    pieces: list[Piece] = []
    for k, stage in enumerate(stages):
        if lengths[k] > 0:
            stretch = _stretch(lengths[k], speeds[k], speeds[k + 1], cruise, acceleration)
            for seconds, metres in stretch[:-1]:
                pieces.append(Piece(seconds, along(points[k], stage.to, min(metres / lengths[k], 1.0))))
            pieces.append(Piece(stretch[-1][0], stage.to))  # exactly there, without rounding
        if stage.halt > 0:
            pieces.append(Piece(stage.halt, stage.to))
    return pieces


def reached(entry: float, length: float, acceleration: float) -> float:
    """The greatest speed after `length` metres."""
    return math.sqrt(entry * entry + 2 * acceleration * length)


def _passing_speeds(
    limits: Sequence[float], lengths: Sequence[float], cruise: float, acceleration: float
) -> list[float]:
    """The greatest speeds at the points of a route that the acceleration allows: first forwards (what
    speeding up reaches), then backwards (what leaves room to brake)."""
    speeds = [min(limit, cruise) for limit in limits]
    for k, length in enumerate(lengths):
        speeds[k + 1] = min(speeds[k + 1], reached(speeds[k], length, acceleration))
    for k in reversed(range(len(lengths))):
        speeds[k] = min(speeds[k], reached(speeds[k + 1], lengths[k], acceleration))
    return speeds


def _stretch(
    length: float, entering: float, leaving: float, cruise: float, acceleration: float
) -> list[tuple[float, float]]:
    """Speed up, go on, brake: `(seconds of this piece, metres from the beginning of the stretch)`."""
    peak = min(cruise, math.sqrt((entering * entering + leaving * leaving) / 2 + acceleration * length))
    peak = max(peak, entering, leaving)  # rounding must not turn a ramp around
    speeding = (peak * peak - entering * entering) / (2 * acceleration)
    braking = (peak * peak - leaving * leaving) / (2 * acceleration)
    going_on = max(length - speeding - braking, 0.0)
    ramp_up = _ramp(0.0, entering, peak, acceleration)
    steady = [(going_on / peak, speeding + going_on)] if going_on > 1e-9 else []  # less is rounding
    pieces = [*ramp_up, *steady, *_ramp(speeding + going_on, peak, leaving, acceleration)]
    return pieces or [(0.0, length)]


def _ramp(begin: float, entering: float, leaving: float, acceleration: float) -> list[tuple[float, float]]:
    seconds = abs(leaving - entering) / acceleration
    if seconds == 0:
        return []
    # A chord over `t` seconds of a parabola lies at most `a t² / 8` from it.
    count = math.ceil(seconds / math.sqrt(8 * RAMP_ERROR / acceleration))
    piece = seconds / count
    change = (leaving - entering) / seconds
    times = [piece * k for k in range(1, count + 1)]
    return [(piece, begin + entering * t + change * t * t / 2) for t in times]
