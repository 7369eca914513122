"""Models in which each node walks for itself: static, random waypoint, fixed targets, random walk."""

import math
from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import (
    Area,
    Model,
    Range,
    bad,
    between,
    check_number,
    check_point,
    check_range,
    check_seconds,
    check_trips,
    node_streams,
    stream,
)
from roamcast.world.mobility.path import PathBuilder, Piece, Point, standing
from roamcast.world.mobility.waypoints import (
    Destinations,
    FixedPlaces,
    Rectangle,
    in_unit_disc,
    rest_left,
    resting_share,
    walk,
)
from roamcast.world.trajectory import Motion, Trajectory

TARGETS_MAX = 1000  # chosen by us: the stationary start computes a weight for every pair of targets
BOUNCES_MAX = 1000  # of one step; beyond, the speed or the step is a typing error


class Static(Model, frozen=True, kw_only=True, tag="static"):
    """Static: nodes that never move, at given places or wherever the seed puts them."""

    positions: tuple[Point, ...] | None = None  # metres, one per node; without it: uniform in the area

    def check(self, nodes: int, area: Area) -> None:
        if self.positions is None:
            return
        if len(self.positions) != nodes:
            raise bad("positions", f"has {len(self.positions)} points; allowed is one per node, {nodes}")
        for k, (x, y) in enumerate(self.positions):
            check_point(f"positions[{k}]", x, y, area)

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        anywhere = Rectangle(area)
        places = self.positions or [anywhere.any(own) for own in node_streams(random, nodes)]
        return Motion([standing(place, duration) for place in places])


class RandomWaypoint(Model, frozen=True, kw_only=True, tag="random_waypoint"):
    """Random waypoint: walk straight to a uniform point of the area, rest, repeat.

    Scenario 1 of the acyclic overlay (6.2.1), there with rests of 20 to 60 s. Left out: in the paper two
    users who collide stop and change direction; here nodes are points and pass through each other.
    """

    speed: Range = (0.5, 1.5)  # m/s, drawn per trip; the paper says "walking" and gives no number
    pause: Range = (20.0, 60.0)  # seconds, at each destination

    def check(self, nodes: int, area: Area) -> None:
        check_trips(self.speed, self.pause)

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        return _walked(self, Rectangle(area), nodes, duration, random)


class FixedTargets(Model, frozen=True, kw_only=True, tag="fixed_targets"):
    """Fixed targets: random waypoint between a few places that all nodes share.

    Scenario 2 of the acyclic overlay (6.2.1): five points, fixed at random before the run, where users do
    some task for 20 to 60 s. The paper lets a user choose among the five; here the next place is always
    another one, since choosing the same again is only a longer rest.
    """

    speed: Range = (0.5, 1.5)  # m/s, drawn per trip
    pause: Range = (20.0, 60.0)  # seconds, at each target
    targets: int | tuple[Point, ...] = 5  # how many (placed by the seed), or their positions in metres

    def check(self, nodes: int, area: Area) -> None:
        check_trips(self.speed, self.pause)
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
        return _walked(self, FixedPlaces(self.places(area, stream(random))), nodes, duration, random)

    def places(self, area: Area, random: Random) -> list[Point]:
        if not isinstance(self.targets, int):
            return list(self.targets)
        anywhere = Rectangle(area)
        return [anywhere.any(random) for _ in range(self.targets)]


def _walked(
    model: RandomWaypoint | FixedTargets,
    destinations: Destinations,
    nodes: int,
    duration: Micros,
    random: Random,
) -> Motion:
    sources = node_streams(random, nodes)
    paths = (walk(destinations, model.speed, model.pause, duration, own) for own in sources)
    return Motion([path.trajectory() for path in paths])


class RandomWalk(Model, frozen=True, kw_only=True, tag="random_walk"):
    """Random walk: a uniform direction and speed for a while, then new ones; the borders reflect.

    T. Camp, J. Boleng, V. Davies, "A survey of mobility models for ad hoc network research", Wireless
    Communications and Mobile Computing 2(5), 2002, section 2.1, in the form with steps of constant time.

    The start is stationary: a billiard in a rectangle keeps the uniform distribution of places and
    directions, and since a step lasts equally long at every speed, the speed met at a random instant is as
    drawn per step. Only the time into the step (or rest) must be drawn. A minimum speed of 0 is fine here
    for the same reason.
    """

    speed: Range = (0.5, 1.5)  # m/s, drawn per step
    pause: Range = (0.0, 0.0)  # seconds, after each step
    step: float = 10.0  # seconds in one direction

    def check(self, nodes: int, area: Area) -> None:
        check_range("speed", self.speed, "m/s", above_zero=False)
        check_seconds("pause", self.pause)
        check_number("step", self.step, "seconds", 0.001)
        if self.speed[1] * self.step > BOUNCES_MAX * min(area):
            raise bad(
                "step",
                f"is {self.step:g} s; at this speed allowed are up to {BOUNCES_MAX} widths of the area",
            )

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        return Motion([self._path(area, duration, own) for own in node_streams(random, nodes)])

    def _path(self, area: Area, until: Micros, random: Random) -> Trajectory:
        path = PathBuilder(Rectangle(area).any(random), until)
        if random.random() < resting_share(self.pause, self.step):
            path.move(Piece(rest_left(random, self.pause), path.here))
        else:
            self._step(path, area, self.step * random.random(), random)
        while not path.done:
            self._step(path, area, self.step, random)
        return path.trajectory()

    def _step(self, path: PathBuilder, area: Area, seconds: float, random: Random) -> None:
        x, y = _direction(random)
        speed = between(random, self.speed)
        path.follow(reflected(path.here, (x * speed, y * speed), seconds, area))
        path.move(Piece(between(random, self.pause), path.here))


def reflected(start: Point, velocity: Point, seconds: float, area: Area) -> list[Piece]:
    """A straight path of `seconds` that is reflected at the borders: one piece up to each border it meets,
    and one for the rest."""
    (x, y), (vx, vy) = start, velocity
    pieces = []
    while seconds > 0:
        until_x, until_y = _until_border(x, vx, area[0]), _until_border(y, vy, area[1])
        stretch = min(until_x, until_y, seconds)
        x = min(max(x + vx * stretch, 0.0), area[0])
        y = min(max(y + vy * stretch, 0.0), area[1])
        pieces.append(Piece(stretch, (x, y)))
        if until_x == stretch:
            vx = -vx
        if until_y == stretch:
            vy = -vy
        seconds -= stretch
    return pieces


def _until_border(at: float, speed: float, border: float) -> float:
    if speed > 0:
        return max((border - at) / speed, 0.0)
    return max(at / -speed, 0.0) if speed < 0 else math.inf


def _direction(random: Random) -> Point:
    """A uniform direction: that of a uniform point in the disc (the centre itself has none)."""
    while True:
        x, y = in_unit_disc(random)
        length = math.sqrt(x * x + y * y)
        if length > 0:
            return x / length, y / length
