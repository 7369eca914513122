"""Trips between destinations with a rest at each: the walk behind most models here.

The models differ in where destinations lie. A `Destinations` defines that, with the draws that a stationary
start needs.

Stationary start: the draws that put a node where a long run would have put it.

A node that begins a trip at time 0 from a uniform place is not in the long-run distribution of its own
model: for minutes its mean speed falls and the nodes gather in the middle, and a metric of that time measures
the drift. Leaving out a warm-up only makes the drift smaller. The start can be drawn exactly instead: what an
observer sees at a random *instant* is what happens per *trip*, weighted by how long it lasts (Palm
inversion), and the instant lies uniformly within it.

- A node rests with probability `E[pause] / (E[pause] + E[travel])`.
- Travel time is length over speed, and the two are independent, so the weight factorises: a leg is drawn
  with density proportional to its length, the place uniformly along it, and the speed with
  density proportional to `1/v` (slow trips last longer).
- A rest is drawn with density proportional to its duration; what is left of it is a uniform share.

W. Navidi and T. Camp, "Stationary distributions for the random waypoint mobility model", IEEE
Transactions on Mobile Computing 3(1), 2004. J.-Y. Le Boudec and M. Vojnović, "Perfect simulation and
stationarity of a class of mobility models", INFOCOM 2005, for the argument in general.
"""

import math
from random import Random
from typing import NamedTuple

from roamcast.units import Micros
from roamcast.world.mobility.model import Area, Range, between, index
from roamcast.world.mobility.path import PathBuilder, Piece, Point, along, distance


class Destinations:
    @property
    def mean_length(self) -> float:
        """Metres, averaged over trips."""
        raise NotImplementedError

    @property
    def longest(self) -> float:
        """Metres that no trip exceeds."""
        raise NotImplementedError

    def any(self, random: Random) -> Point:
        """A destination as met at the end of a trip."""
        raise NotImplementedError

    def next(self, random: Random, here: Point) -> Point:
        """Where to go next from `here`."""
        return self.any(random)

    def trip(self, random: Random) -> tuple[Point, Point]:
        """Both ends of any trip."""
        return self.any(random), self.any(random)

    def leg(self, random: Random) -> tuple[Point, Point]:
        """Both ends of a trip, drawn with probability proportional to its length: each is accepted with
        probability `length / longest`."""
        longest = self.longest
        while True:
            ends = self.trip(random)
            if random.random() * longest < distance(*ends):
                return ends


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


class Rectangle(Destinations):
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

    @property
    def longest(self) -> float:
        return distance((0.0, 0.0), self._area)

    def any(self, random: Random) -> Point:
        width, height = self._area
        return between(random, (0.0, width)), between(random, (0.0, height))


class Disc(Destinations):
    """Destinations uniform over a disc around the origin: offsets from something that moves."""

    def __init__(self, radius: float) -> None:
        self._radius = radius

    @property
    def mean_length(self) -> float:
        return 128 * self._radius / (45 * math.pi)  # of two uniform points in a disc; Mathai 1999

    @property
    def longest(self) -> float:
        return 2 * self._radius

    def any(self, random: Random) -> Point:
        x, y = in_unit_disc(random)
        return x * self._radius, y * self._radius


class FixedPlaces(Destinations):
    """A few fixed destinations; from each, every other one is equally likely.

    So trips between any two are equally frequent, in either direction; the stationary start needs only that.
    """

    def __init__(self, points: list[Point]) -> None:
        self._points = points
        self._legs = [(a, b) for a in points for b in points if a != b]

    @property
    def mean_length(self) -> float:
        return math.fsum(distance(a, b) for a, b in self._legs) / len(self._legs)

    @property
    def longest(self) -> float:
        return max(distance(a, b) for a, b in self._legs)

    def any(self, random: Random) -> Point:
        return self._points[index(random, len(self._points))]

    def next(self, random: Random, here: Point) -> Point:
        others = [point for point in self._points if point != here]
        return others[index(random, len(others))]

    def trip(self, random: Random) -> tuple[Point, Point]:
        return self._legs[index(random, len(self._legs))]


def in_unit_disc(random: Random) -> Point:
    """Uniform, by rejection: sines and cosines differ in the last digit between C libraries."""
    while True:
        x, y = between(random, (-1.0, 1.0)), between(random, (-1.0, 1.0))
        if x * x + y * y <= 1:
            return x, y


# Draws of a stationary start.


def resting_share(pause: Range, travel_seconds: float) -> float:
    """The share of time a node rests, given the mean duration of its trips."""
    rest_seconds = (pause[0] + pause[1]) / 2
    return rest_seconds / (rest_seconds + travel_seconds)


def mean_inverse_speed(speed: Range) -> float:
    """`E[1/v]` for a speed drawn uniformly per trip, seconds per metre: times a length, it gives the time."""
    low, high = speed
    if high - low <= 1e-9 * high:
        return 1 / high  # the limit of the quotient below, which loses its digits here
    return math.log(high / low) / (high - low)


def speed_in_passing(random: Random, speed: Range) -> float:
    """The speed of a trip met at a random instant: density `1/v`, by inverting its distribution."""
    low, high = speed
    # Powers may differ in the last digit between C libraries; nine decimals are the same everywhere.
    drawn = round(low * math.pow(high / low, random.random()), 9)
    return min(max(drawn, low), high)


def rest_left(random: Random, pause: Range) -> float:
    """What is left of a rest met at a random instant, seconds."""
    low, high = pause
    whole = math.sqrt(low * low + (high * high - low * low) * random.random())  # density p on [low, high]
    return whole * random.random()
