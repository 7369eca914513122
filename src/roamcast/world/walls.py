"""Walls: what stands between two nodes and blocks their radio.

A link is blocked while the straight line between its two nodes crosses a wall. Nodes are outside the walls
(the street models keep them on streets), so two segments can represent a whole rectangle.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Segments = npt.NDArray[np.float64]
"""Rows `(x1, y1, x2, y2)`, metres: the form in which contact plans take walls."""


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


def blocked(standing: Segments, x1: float, y1: float, x2: float, y2: float) -> bool:
    """Does the straight line between two nodes cross or touch one of the segments?"""
    left, bottom, right, top = standing[:, 0], standing[:, 1], standing[:, 2], standing[:, 3]
    # Each line must have the other's two ends on different sides (or on itself).
    ends = _side(x1, y1, x2, y2, left, bottom) * _side(x1, y1, x2, y2, right, top) <= 0
    nodes = _side(left, bottom, right, top, x1, y1) * _side(left, bottom, right, top, x2, y2) <= 0
    # On one common line all four sides are zero; only then do the extents decide.
    apart = (
        (np.maximum(left, right) < min(x1, x2))
        | (np.minimum(left, right) > max(x1, x2))
        | (np.maximum(bottom, top) < min(y1, y2))
        | (np.minimum(bottom, top) > max(y1, y2))
    )
    return bool(np.any(ends & nodes & ~apart))


Coordinate = float | npt.NDArray[np.float64]


def _side(
    x1: Coordinate, y1: Coordinate, x2: Coordinate, y2: Coordinate, x: Coordinate, y: Coordinate
) -> npt.NDArray[np.float64]:
    """Positive where `(x, y)` is to the left of the line from the first point to the second."""
    return np.sign((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1))
