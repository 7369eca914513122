"""Roaming around something that moves: the part that nomadic and column share.

A member is at its reference plus an offset that walks about in a disc. It stays in the disc between
knots too: reference and member are both linear between two neighbouring knots of the member, hence so
is their difference, and a disc is convex. The same holds for the area. So it is enough that every knot
keeps the rules.
"""

from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import Area, Range
from roamcast.world.mobility.movement.path import Point, along, window
from roamcast.world.mobility.movement.waypoints import Disc, walk
from roamcast.world.trajectory import Trajectory


def roaming(
    reference: Trajectory,
    area: Area,
    radius: float,
    speed: Range,
    pause: Range,
    until: Micros,
    random: Random,
) -> Trajectory:
    """A member's path: never farther than `radius` from its reference, and never faster than the reference
    and `speed` together. The reference must be uncut (`PathBuilder.whole`)."""
    offset = walk(Disc(radius), speed, pause, until, random).whole()
    return window(around(reference, offset, area), 0, until)


def around(reference: Trajectory, offset: Trajectory, area: Area) -> Trajectory:
    """Reference plus offset, with a knot wherever one of them has one, reflected into the area.

    Mirroring at a border never makes a distance larger, and leaves the reference where it is: it breaks
    neither the radius nor the speed. (Stopping members at the border instead would line them up there.)
    """
    knots = []
    until = min(int(reference.times[-1]), int(offset.times[-1]))
    times = sorted(time for time in {*reference.times.tolist(), *offset.times.tolist()} if time <= until)
    for time, at, away in zip(times, _positions(reference, times), _positions(offset, times), strict=True):
        knots.append((time, mirrored(at[0] + away[0], area[0]), mirrored(at[1] + away[1], area[1])))
    return Trajectory.of(knots)


def mirrored(value: float, border: float) -> float:
    """`value` reflected into `[0, border]`, as often as it takes."""
    value %= 2 * border
    return max(2 * border - value, 0.0) if value > border else value


def _positions(path: Trajectory, times: list[Micros]) -> list[Point]:
    """Where `path` is at each of `times`, which increase, in one pass."""
    knots = list(zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True))
    found = []
    k = 0
    for time in times:
        while k + 1 < len(knots) and knots[k + 1][0] <= time:
            k += 1
        start, x, y = knots[k]
        if start == time:
            found.append((x, y))
        else:
            end, next_x, next_y = knots[k + 1]
            found.append(along((x, y), (next_x, next_y), (time - start) / (end - start)))
    return found
