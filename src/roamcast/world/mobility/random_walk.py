"""Random walk: a uniform direction and speed for a while, then new ones; the borders reflect.

T. Camp, J. Boleng, V. Davies, "A survey of mobility models for ad hoc network research", Wireless
Communications and Mobile Computing 2(5), 2002, section 2.1, in the form with steps of constant time.

The start is stationary: a billiard in a rectangle keeps the uniform distribution of places and
directions, and since a step lasts equally long at every speed, the speed met at a random instant is as
drawn per step. Only the time into the step (or rest) must be drawn. A minimum speed of 0 is fine here
for the same reason.
"""

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
    check_range,
    check_seconds,
    node_streams,
)
from roamcast.world.mobility.movement.path import PathBuilder, Piece, Point
from roamcast.world.mobility.movement.stationary import rest_left, resting_share
from roamcast.world.mobility.movement.waypoints import Rectangle, in_unit_disc
from roamcast.world.trajectory import Motion, Trajectory

BOUNCES_MAX = 1000  # of one step; beyond, the speed or the step is a typing error


class RandomWalk(Model, frozen=True, kw_only=True, tag="random_walk"):
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
    """Straight on for `seconds`, thrown back by the borders, with a piece for each stretch between two."""
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
