"""Streets: a grid of roads that cross at right angles, the routes along it, and the buildings between.

Streets are lines. A point is on a street exactly if its x is that of a street that runs north, or its y
that of one that runs east, to the last digit: the models move one coordinate at a time, so nothing
rounds the other.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random
from typing import TypeAlias

from roamcast.world.mobility.model import Area, between
from roamcast.world.mobility.path import Point
from roamcast.world.walls import Wall

Crossing: TypeAlias = tuple[int, int]
"""The numbers of the two streets that meet."""


@dataclass(frozen=True)
class Streets:
    xs: tuple[float, ...]  # metres, of the streets that run north, increasing
    ys: tuple[float, ...]  # metres, of the streets that run east
    width: float  # metres, from building to building

    @staticmethod
    def over(area: Area, block: float, width: float) -> "Streets":
        """A grid with about `block` metres from street to street, the outermost on the area's borders."""
        return Streets(_spread(area[0], block), _spread(area[1], block), width)

    def anywhere(self, random: Random) -> Point:
        """Uniform over the length of all streets."""
        north, east = len(self.xs) * self.ys[-1], len(self.ys) * self.xs[-1]
        at = (north + east) * random.random()
        if at < north:
            return self.xs[int(at / self.ys[-1])], between(random, (0.0, self.ys[-1]))
        street = min(int((at - north) / self.xs[-1]), len(self.ys) - 1)
        return between(random, (0.0, self.xs[-1])), self.ys[street]

    def contains(self, point: Point) -> bool:
        x, y = point
        inside = 0 <= x <= self.xs[-1] and 0 <= y <= self.ys[-1]
        return inside and (_is_one_of(self.xs, x) or _is_one_of(self.ys, y))

    def route(self, origin: Point, destination: Point, random: Random) -> list[Point]:
        """A shortest route: both ends and each crossing between them; all shortest ones equally likely."""
        if origin == destination:
            return [origin]
        if origin[0] == destination[0] and _is_one_of(self.xs, origin[0]):
            return [(origin[0], y) for y in _way(self.ys, origin[1], destination[1])]
        if origin[1] == destination[1] and _is_one_of(self.ys, origin[1]):
            return [(x, origin[1]) for x in _way(self.xs, origin[0], destination[0])]

        def length(ends: tuple[Crossing, Crossing]) -> float:
            a, b = self._at(ends[0]), self._at(ends[1])
            return _blocks(origin, a) + _blocks(a, b) + _blocks(b, destination)

        # Two choices are equally short only from a crossing; `min` then takes the first, west before east.
        first, last = min(product(self._ends(origin), self._ends(destination)), key=length)
        between_ends = [self._at(crossing) for crossing in _staircase(first, last, random)]
        whole = [origin, *between_ends, destination]
        return [whole[0], *(b for a, b in pairwise(whole) if a != b)]

    def walls(self) -> list[Wall]:
        """One building per block, half a street's width away from the lines on which nodes move."""
        half = self.width / 2
        return [
            Wall(west + half, south + half, east - half, north - half)
            for west, east in pairwise(self.xs)
            for south, north in pairwise(self.ys)
        ]

    def _at(self, crossing: Crossing) -> Point:
        return self.xs[crossing[0]], self.ys[crossing[1]]

    def _ends(self, point: Point) -> list[Crossing]:
        """The crossings at the two ends of the block on which `point` lies; one, if it is on a crossing."""
        x, y = point
        i, j = bisect_left(self.xs, x), bisect_left(self.ys, y)
        on_north, on_east = _is_one_of(self.xs, x), _is_one_of(self.ys, y)
        assert on_north or on_east, f"{point} is on no street"
        if on_north and on_east:
            return [(i, j)]
        return [(i, j - 1), (i, j)] if on_north else [(i - 1, j), (i, j)]


def _spread(extent: float, block: float) -> tuple[float, ...]:
    blocks = max(1, round(extent / block))
    return (*(extent * k / blocks for k in range(blocks)), extent)


def _is_one_of(lines: tuple[float, ...], value: float) -> bool:
    k = bisect_left(lines, value)
    return k < len(lines) and lines[k] == value


def _way(lines: tuple[float, ...], a: float, b: float) -> list[float]:
    """From `a` to `b` past the lines strictly between, in the order of passing."""
    passed = [line for line in lines if min(a, b) < line < max(a, b)]
    return [a, *(passed if a < b else reversed(passed)), b]


def _staircase(first: Crossing, last: Crossing, random: Random) -> list[Crossing]:
    """A shortest route over the grid. Each step is drawn in proportion to the blocks left in each direction,
    which makes every shortest route equally likely."""
    (i, j), way = first, [first]
    while (i, j) != last:
        east, north = abs(last[0] - i), abs(last[1] - j)
        if random.random() * (east + north) < east:
            i += 1 if last[0] > i else -1
        else:
            j += 1 if last[1] > j else -1
        way.append((i, j))
    return way


def _blocks(a: Point, b: Point) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])
