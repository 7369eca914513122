"""Trips between destinations with a rest at each: the walk behind most models here.

The models differ in where destinations lie. A `Destinations` defines that, with the draws that a stationary
start needs (see `stationary.py`).
"""

import math
from collections.abc import Iterator
from random import Random
from typing import NamedTuple, Protocol

from roamcast.units import Micros
from roamcast.world.mobility.model import Area, Range, between, index
from roamcast.world.mobility.movement.path import PathBuilder, Piece, Point, along, distance
from roamcast.world.mobility.movement.stationary import (
    mean_inverse_speed,
    rest_left,
    resting_share,
    speed_in_passing,
)


class Destinations(Protocol):
    @property
    def mean_length(self) -> float:
        """Metres, averaged over trips."""
        ...

    def any(self, random: Random) -> Point:
        """A destination as met at the end of a trip."""
        ...

    def next(self, random: Random, here: Point) -> Point:
        """Where to go from `here`."""
        ...

    def leg(self, random: Random) -> tuple[Point, Point]:
        """Both ends of a trip, drawn with probability proportional to its length."""
        ...


class Start(NamedTuple):
    """A node in the middle of its walk: where it is, where it came from, and what it does next."""

    here: Point
    origin: Point | None  # None while it rests
    pieces: list[Piece]


def walk(
    destinations: Destinations, speed: Range, pause: Range, until: Micros, random: Random
) -> PathBuilder:
    """A walk over `[0, until]` from a stationary start."""
    return walk_on(
        stationary_start(destinations, speed, pause, random), destinations, speed, pause, until, random
    )


def walk_on(
    start: Start, destinations: Destinations, speed: Range, pause: Range, until: Micros, random: Random
) -> PathBuilder:
    path = PathBuilder(start.here, until)
    path.follow(start.pieces)
    while not path.done:
        there = destinations.next(random, path.here)
        path.move(Piece(distance(path.here, there) / between(random, speed), there))
        path.move(Piece(between(random, pause), there))
    return path


def stationary_start(destinations: Destinations, speed: Range, pause: Range, random: Random) -> Start:
    travel_seconds = destinations.mean_length * mean_inverse_speed(speed)
    if random.random() < resting_share(pause, travel_seconds):
        here = destinations.any(random)
        return Start(here, None, [Piece(rest_left(random, pause), here)])
    origin, there = destinations.leg(random)
    here = along(origin, there, random.random())
    seconds = distance(here, there) / speed_in_passing(random, speed)
    return Start(here, origin, [Piece(seconds, there), Piece(between(random, pause), there)])


class Rectangle:
    """Destinations uniform over the area."""

    def __init__(self, area: Area) -> None:
        self._area = area

    @property
    def mean_length(self) -> float:
        """The mean distance of two uniform points in a rectangle, in closed form (0.5214 for the unit
        square); A. M. Mathai, "An introduction to geometrical probability", 1999."""
        a, b = self._area
        if max(a, b) > 1e4 * min(a, b):
            return max(a, b) / 3  # a line; the terms below would cancel each other's digits
        d = math.sqrt(a * a + b * b)
        near = (a**3 / b**2 + b**3 / a**2 + d * (3 - a**2 / b**2 - b**2 / a**2)) / 15
        return near + (b**2 / a * math.acosh(d / b) + a**2 / b * math.acosh(d / a)) / 6

    def any(self, random: Random) -> Point:
        width, height = self._area
        return between(random, (0.0, width)), between(random, (0.0, height))

    def next(self, random: Random, here: Point) -> Point:
        return self.any(random)

    def leg(self, random: Random) -> tuple[Point, Point]:
        return _by_length(self._pairs(random), distance((0.0, 0.0), self._area), random)

    def _pairs(self, random: Random) -> Iterator[tuple[Point, Point]]:
        while True:
            yield self.any(random), self.any(random)


class Disc:
    """Destinations uniform over a disc around the origin: offsets from something that moves."""

    def __init__(self, radius: float) -> None:
        self._radius = radius

    @property
    def mean_length(self) -> float:
        return 128 * self._radius / (45 * math.pi)  # of two uniform points in a disc; Mathai 1999

    def any(self, random: Random) -> Point:
        x, y = in_unit_disc(random)
        return x * self._radius, y * self._radius

    def next(self, random: Random, here: Point) -> Point:
        return self.any(random)

    def leg(self, random: Random) -> tuple[Point, Point]:
        return _by_length(self._pairs(random), 2 * self._radius, random)

    def _pairs(self, random: Random) -> Iterator[tuple[Point, Point]]:
        while True:
            yield self.any(random), self.any(random)


class FixedPlaces:
    """A few fixed destinations; from each, every other one is equally likely.

    So trips between any two are equally frequent, in either direction; the stationary start needs only that.
    """

    def __init__(self, points: list[Point]) -> None:
        self._points = points
        self._legs = [(a, b) for a in points for b in points if a != b]

    @property
    def mean_length(self) -> float:
        return math.fsum(distance(a, b) for a, b in self._legs) / len(self._legs)

    def any(self, random: Random) -> Point:
        return self._points[index(random, len(self._points))]

    def next(self, random: Random, here: Point) -> Point:
        others = [point for point in self._points if point != here]
        return others[index(random, len(others))]

    def leg(self, random: Random) -> tuple[Point, Point]:
        return _by_length(self._pairs(random), max(distance(a, b) for a, b in self._legs), random)

    def _pairs(self, random: Random) -> Iterator[tuple[Point, Point]]:
        while True:
            yield self._legs[index(random, len(self._legs))]


def in_unit_disc(random: Random) -> Point:
    """Uniform, by rejection: sines and cosines differ in the last digit between C libraries."""
    while True:
        x, y = between(random, (-1.0, 1.0)), between(random, (-1.0, 1.0))
        if x * x + y * y <= 1:
            return x, y


def _by_length(pairs: Iterator[tuple[Point, Point]], longest: float, random: Random) -> tuple[Point, Point]:
    """The first pair that is accepted; each is accepted with probability `length / longest`."""
    return next(pair for pair in pairs if random.random() * longest < distance(*pair))
