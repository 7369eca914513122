"""How long a link will last, from positions and velocities (ODMRP draft, mobility prediction).

Two nodes that keep their velocities and hear each other within `range` stay connected for

    D = (-(ab + cd) + sqrt((a² + c²) r² - (ad - bc)²)) / (a² + c²)

with a, c the differences of velocity and b, d those of position along x and y.
"""

import math
from typing import Protocol

from roamcast.strategy.odmrp.mesh.messages import UNLIMITED
from roamcast.units import SECOND, Micros

SQUARED_SPEED_MAX = 1e12
"""(m/s)²: a thousand kilometres per second. Chosen by us: anything faster is a false claim."""


class Moving(Protocol):
    """A position with its velocity, our own or one from a message."""

    @property
    def x(self) -> float: ...
    @property
    def y(self) -> float: ...
    @property
    def vx(self) -> float: ...
    @property
    def vy(self) -> float: ...


def link_lifetime(one: Moving, other: Moving, range: float) -> Micros:
    """Until the link breaks, or `UNLIMITED`; 0 if they are out of range already or a number is NaN."""
    a, b = one.vx - other.vx, one.x - other.x
    c, d = one.vy - other.vy, one.y - other.y
    squared_speed = a * a + c * c
    # Written so that NaN fails it too: positions from messages are not to be trusted.
    if not (squared_speed <= SQUARED_SPEED_MAX and b * b + d * d <= range * range):
        return 0
    if squared_speed == 0:
        return UNLIMITED
    # Never negative while they are in range, except by rounding at the edge.
    across = a * d - b * c
    discriminant = max(squared_speed * range * range - across * across, 0.0)
    lasts = (math.sqrt(discriminant) - (a * b + c * d)) / squared_speed
    return UNLIMITED if lasts >= UNLIMITED / SECOND else max(0, int(lasts * SECOND))
