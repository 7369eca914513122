"""What city block and pursue share: the streets with their buildings, the car, and a driver."""

from dataclasses import dataclass
from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import Area, Model, Range, bad, between, check_number
from roamcast.world.mobility.movement.driving import RoutePoint, drive
from roamcast.world.mobility.movement.path import PathBuilder, Piece, Point, along, distance, entered
from roamcast.world.mobility.movement.stationary import speed_in_passing
from roamcast.world.mobility.movement.streets import Streets
from roamcast.world.walls import Wall

KMH = 1 / 3.6
ACCELERATION_LEAST = (
    0.1  # m/s²: below it a car takes blocks to reach any speed, and trips have no useful bound
)
STREETS_MAX = 1000  # in one direction; chosen by us


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
        """A stationary start (see `stationary.py`), with the whole trip, its stops and its rest as the cycle.

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
