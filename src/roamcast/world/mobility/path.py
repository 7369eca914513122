"""One node's path: built from pieces, with knots on the integer microsecond grid."""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from roamcast.units import SECOND, Micros
from roamcast.world.trajectory import Trajectory

Point: TypeAlias = tuple[float, float]

FOR_EVER: Micros = 2**60  # the longest piece, for a trip at almost no speed


class Piece(NamedTuple):
    """Be at `to` after `seconds`, in a straight line at constant speed (standing still if already there)."""

    seconds: float
    to: Point


class PathBuilder:
    """Collects pieces until the end of the run.

    The time of a piece is rounded up to the next microsecond. A node is thus never faster than asked, two
    knots never share an instant, and the rounding of one piece leaves the next as long as it was.
    """

    def __init__(self, start: Point, until: Micros) -> None:
        self._knots: list[tuple[Micros, float, float]] = [(0, *start)]
        self._until = until

    @property
    def time(self) -> Micros:
        return self._knots[-1][0]

    @property
    def here(self) -> Point:
        _, x, y = self._knots[-1]
        return x, y

    @property
    def done(self) -> bool:
        return self.time >= self._until

    def move(self, piece: Piece) -> None:
        span = math.ceil(min(piece.seconds * SECOND, FOR_EVER))
        if span == 0 and piece.to != self.here:
            span = 1  # a distance so small that its time underflowed
        if span > 0:
            self._knots.append((self.time + span, *piece.to))

    def follow(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self.move(piece)

    def trajectory(self, since: Micros = 0) -> Trajectory:
        """The path between `since` and the end of the run, on a clock that starts at `since`."""
        return window(self.whole(), since, self._until)

    def whole(self) -> Trajectory:
        """With the last piece uncut: a path computed from this one does not depend on when the run ends."""
        assert self.done
        return Trajectory.of(self._knots)


def standing(place: Point, duration: Micros) -> Trajectory:
    """The path of a node that never moves."""
    path = PathBuilder(place, duration)
    path.move(Piece(duration / SECOND, place))
    return path.trajectory()


def window(path: Trajectory, since: Micros, until: Micros) -> Trajectory:
    """The part of `path` in `[since, until]`, with a knot at either end; `since` is the new time 0."""
    knots = [
        (time - since, x, y)
        for time, x, y in zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True)
        if since < time < until
    ]
    first = (0, *place_at(path, since))
    return Trajectory.of(
        [first, *knots, (until - since, *place_at(path, until))] if since < until else [first]
    )


def entered(start: Point, pieces: Sequence[Piece], elapsed: float) -> tuple[Point, list[Piece]]:
    """The position `elapsed` seconds after leaving `start`, and the pieces that remain."""
    here = start
    for k, piece in enumerate(pieces):
        if elapsed < piece.seconds:
            now = along(here, piece.to, elapsed / piece.seconds)
            return now, [Piece(piece.seconds - elapsed, piece.to), *pieces[k + 1 :]]
        elapsed -= piece.seconds
        here = piece.to
    return here, []


def along(a: Point, b: Point, share: float) -> Point:
    """The point at `share` (0 to 1) of the segment from `a` to `b`, never beyond either end."""
    return _between(a[0], b[0], share), _between(a[1], b[1], share)


def distance(a: Point, b: Point) -> float:
    """By the square root, which is rounded alike on every machine; `math.hypot` differs between Pythons."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    return math.sqrt(dx * dx + dy * dy)


def _between(a: float, b: float, share: float) -> float:
    value = a + (b - a) * share
    return min(max(value, min(a, b)), max(a, b))  # rounding must not carry a node over the border


def place_at(path: Trajectory, time: Micros) -> Point:
    """As `Trajectory.position`, but never beyond the two knots around `time`."""
    assert path.times[0] <= time <= path.times[-1]
    k = int(np.searchsorted(path.times, time, side="right")) - 1
    here = float(path.x[k]), float(path.y[k])
    start = int(path.times[k])
    if start == time:
        return here
    span = int(path.times[k + 1]) - start
    return along(here, (float(path.x[k + 1]), float(path.y[k + 1])), (time - start) / span)
