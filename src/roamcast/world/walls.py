"""Walls: what stands between two nodes and blocks their radio, and when it does so for nodes that move.

A link is blocked while the straight line between its two nodes crosses a wall. Nodes are outside the walls
(the street models keep them on streets), so two segments can represent a whole rectangle.

The line between nodes A and B crosses the wall PQ while P and Q lie on different sides of AB, and A and
B on different sides of PQ. The side of a point is the sign of an orientation (twice a signed triangle
area). While A and B move on straight lines, those of (A, B, P) and (A, B, Q) are quadratics in time,
those of (P, Q, A) and (P, Q, B) are linear: at most six instants at which anything can change. Between
two of them nothing changes, so it is enough to test the middle of each interval.

On the integer grid a change at a real time counts from the first microsecond that is not before it. A
point exactly on a line counts as on its left side. So walls that share a corner have no gap between
them, and a node exactly on a wall is on one side of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.world.trajectory import Metres, Numbers, Pieces

Flags = npt.NDArray[np.bool_]
Segments = npt.NDArray[np.float64]
"""Rows `(x1, y1, x2, y2)`, metres: the form in which contact plans take walls."""

# Microseconds: a change this close to the grid is on it (as in `crossings.py`).
TIE = 1e-3
# An orientation below this share of the product of its two arms is rounding: the point is on the line.
FLAT = 1e-12
# Pairs of a link and a wall that are computed at once; chosen by us: memory against numpy's cost per call.
CHUNK_ROWS = 1 << 18


class Wall(NamedTuple):
    """A rectangle along the axes, in metres: a building, or a thin wall where two sides coincide."""

    left: float
    bottom: float
    right: float
    top: float


def segments(walls: Sequence[Wall]) -> Segments:
    """The line segments that block the same lines of sight as `walls`, shape `(k, 4)`.

    A building counts by its two diagonals instead of its four sides: a line through a rectangle has
    one corner on one side and three on the other, or two and two; either way the two ends of some
    diagonal lie on different sides, so the line crosses that diagonal inside the rectangle. This
    holds as long as both nodes are outside the rectangle, and it halves the work per link.
    """
    rows: list[tuple[float, float, float, float]] = []
    for wall in walls:
        rows.append((wall.left, wall.bottom, wall.right, wall.top))
        if wall.left != wall.right and wall.bottom != wall.top:
            rows.append((wall.left, wall.top, wall.right, wall.bottom))
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


# Nodes that move on straight lines.


def in_sight(
    first: Pieces, second: Pieces, start: Numbers, end: Numbers, walls: Metres
) -> tuple[Numbers, Numbers, Numbers]:
    """The parts of the intervals `[start, end)` without a wall between `first` and `second`.

    One interval per row of `first` and `second`, inside the time that both pieces last. The answer is
    `(row, start, end)` for each part that remains, by row and time; a row may have none or several.
    """
    hidden = [(np.arange(len(start)), start, start), (np.arange(len(start)), end, end)]
    step = max(1, CHUNK_ROWS // max(1, len(walls)))
    for begin in range(0, len(start), step):
        rows = np.arange(begin, min(begin + step, len(start)))
        row, wall = _near(first, second, start, end, rows, walls)
        hidden.append(_hidden(first, second, start, end, row, walls[wall]))
    return _remainder(*(np.concatenate(column) for column in zip(*hidden, strict=True)))


def _near(
    first: Pieces, second: Pieces, start: Numbers, end: Numbers, rows: Numbers, walls: Metres
) -> tuple[Numbers, Numbers]:
    """`(row, wall)` where the wall's bounding box meets that of everything the sight line sweeps."""
    corners = [piece.take(rows).at(time[rows]) for piece in (first, second) for time in (start, end)]
    x, y = np.array([corner[0] for corner in corners]), np.array([corner[1] for corner in corners])
    meets = (
        (x.min(axis=0)[:, None] <= np.maximum(walls[:, 0], walls[:, 2]))
        & (x.max(axis=0)[:, None] >= np.minimum(walls[:, 0], walls[:, 2]))
        & (y.min(axis=0)[:, None] <= np.maximum(walls[:, 1], walls[:, 3]))
        & (y.max(axis=0)[:, None] >= np.minimum(walls[:, 1], walls[:, 3]))
    )
    row, wall = np.nonzero(meets)
    return rows[row], wall


def _hidden(
    first: Pieces, second: Pieces, start: Numbers, end: Numbers, row: Numbers, wall: Metres
) -> tuple[Numbers, Numbers, Numbers]:
    """`(row, from, until)`: when the wall next to a row stands between its two nodes."""
    a, b, begin = first.take(row), second.take(row), start[row]
    # The same instants must come out of the same pieces whatever part of them is asked for, so time
    # counts from the first instant that both pieces share.
    zero = np.maximum(a.start, b.start)
    sight = _SightLine(*a.at(zero), *b.at(zero), a.vx, a.vy, b.vx, b.vy, wall)
    earliest, latest = (begin - zero).astype(np.float64), (end[row] - zero).astype(np.float64)
    changes = np.array([earliest, *sight.changes(), latest])
    changes = np.where(np.isfinite(changes), changes, earliest)
    changes = np.sort(np.minimum(np.maximum(changes, earliest), latest), axis=0)
    blocked = sight.blocked((changes[:-1] + changes[1:]) / 2)
    grid = zero + np.ceil(changes - TIE).astype(np.int64)
    since, until = grid[:-1], grid[1:]
    stretch, which = np.nonzero(blocked & (since < until))
    return row[which], since[stretch, which], until[stretch, which]


class _SightLine:
    """The lines between two moving nodes, each beside one wall; columns of equal length."""

    def __init__(
        self,
        ax: Metres,
        ay: Metres,
        bx: Metres,
        by: Metres,
        avx: Metres,
        avy: Metres,
        bvx: Metres,
        bvy: Metres,
        wall: Metres,
    ) -> None:
        self._a, self._b = (ax, ay, avx, avy), (bx, by, bvx, bvy)
        self._p, self._q = (wall[:, 0], wall[:, 1]), (wall[:, 2], wall[:, 3])

    def changes(self) -> list[Metres]:
        """The times at which an end of the wall or of the line changes sides; not finite where none."""
        return [
            *self._passes(*self._p),
            *self._passes(*self._q),
            self._meets(*self._a),
            self._meets(*self._b),
        ]

    def blocked(self, time: Metres) -> Flags:
        ax, ay = _moved(*self._a, time)
        bx, by = _moved(*self._b, time)
        (px, py), (qx, qy) = self._p, self._q
        wall_apart: Flags = _left(ax, ay, bx, by, px, py) != _left(ax, ay, bx, by, qx, qy)
        nodes_apart: Flags = _left(px, py, qx, qy, ax, ay) != _left(px, py, qx, qy, bx, by)
        return wall_apart & nodes_apart

    def _passes(self, px: Metres, py: Metres) -> tuple[Metres, Metres]:
        """When the line through both nodes passes the point: (A - P) × (B - P) = 0."""
        (ax, ay, avx, avy), (bx, by, bvx, bvy) = self._a, self._b
        ax, ay, bx, by = ax - px, ay - py, bx - px, by - py
        square = avx * bvy - avy * bvx
        half = (ax * bvy - ay * bvx + avx * by - avy * bx) / 2
        constant = ax * by - ay * bx
        return _solutions(square, half, constant)

    def _meets(self, x: Metres, y: Metres, vx: Metres, vy: Metres) -> Metres:
        """When the node comes to the line through the wall."""
        (px, py), (qx, qy) = self._p, self._q
        away = (qx - px) * (y - py) - (qy - py) * (x - px)
        speed = (qx - px) * vy - (qy - py) * vx
        with np.errstate(divide="ignore", invalid="ignore"):
            return -away / speed


def _solutions(square: Metres, half: Metres, constant: Metres) -> tuple[Metres, Metres]:
    """Of `square t² + 2 half t + constant = 0`; not finite where there is none."""
    discriminant = half * half - square * constant
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(discriminant)
        sum_ = -(half + np.where(half < 0.0, -root, root))
        return sum_ / square, constant / sum_


def _moved(x: Metres, y: Metres, vx: Metres, vy: Metres, time: Metres) -> tuple[Metres, Metres]:
    return x + vx * time, y + vy * time


def _left(ax: Metres, ay: Metres, bx: Metres, by: Metres, px: Metres, py: Metres) -> Flags:
    """Is P left of the line from A to B, or on it?"""
    one, other = (bx - ax) * (py - ay), (by - ay) * (px - ax)
    return one - other >= -FLAT * (np.abs(one) + np.abs(other))


def _remainder(row: Numbers, since: Numbers, until: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """What hidden stretches leave between them, per row; empty ones mark where a row begins and ends."""
    order = np.lexsort((until, since, row))
    row, since, until = row[order], since[order], until[order]
    if len(row) == 0:
        return row, since, until
    # A running maximum per row: the offset keeps one row's times above those of the rows before.
    low = int(since.min())
    offset = row * (int(until.max()) - low + 1) - low
    reached = np.maximum.accumulate(until + offset) - offset
    free = np.flatnonzero((row[1:] == row[:-1]) & (reached[:-1] < since[1:]))
    return row[free], reached[free], since[free + 1]
