"""Driving: acceleration and braking along a route with speed limits at some points.

Motion here is piecewise linear, so a phase of acceleration becomes a few straight pieces whose ends lie
on the true curve; within a phase the speed rises in steps.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from roamcast.world.mobility.movement.path import Piece, Point, along, distance

RAMP_ERROR = 0.25  # metres, greatest distance of a straight piece from the curve; chosen by us


class RoutePoint(NamedTuple):
    """The next point of a route: straight to `to`, passing it at most at `speed`, or standing there."""

    to: Point
    speed: float  # m/s; 0 where the car halts
    halt: float  # seconds


def drive(
    start: Point, stages: Sequence[RoutePoint], cruise: float, acceleration: float, *, entry: float = 0.0
) -> list[Piece]:
    """The pieces of a drive that begins at speed `entry` and never exceeds `cruise` or the stages' limits.

    Speed changes by at most `acceleration`, braking included, unless `entry` is beyond `cruise` or too
    fast to brake before the first limit: then the car simply begins slower.
    """
    points = [start, *(stage.to for stage in stages)]
    lengths = [distance(a, b) for a, b in pairwise(points)]
    speeds = _passing_speeds([entry, *(stage.speed for stage in stages)], lengths, cruise, acceleration)
    pieces: list[Piece] = []
    for k, stage in enumerate(stages):
        if lengths[k] > 0:
            stretch = _stretch(lengths[k], speeds[k], speeds[k + 1], cruise, acceleration)
            for seconds, metres in stretch[:-1]:
                pieces.append(Piece(seconds, along(points[k], stage.to, min(metres / lengths[k], 1.0))))
            pieces.append(Piece(stretch[-1][0], stage.to))  # exactly there, without rounding
        if stage.halt > 0:
            pieces.append(Piece(stage.halt, stage.to))
    return pieces


def reached(entry: float, length: float, acceleration: float) -> float:
    """The greatest speed after `length` metres."""
    return math.sqrt(entry * entry + 2 * acceleration * length)


def _passing_speeds(
    limits: Sequence[float], lengths: Sequence[float], cruise: float, acceleration: float
) -> list[float]:
    """The greatest speeds at the points of a route that the acceleration allows: first forwards (what
    speeding up reaches), then backwards (what leaves room to brake)."""
    speeds = [min(limit, cruise) for limit in limits]
    for k, length in enumerate(lengths):
        speeds[k + 1] = min(speeds[k + 1], reached(speeds[k], length, acceleration))
    for k in reversed(range(len(lengths))):
        speeds[k] = min(speeds[k], reached(speeds[k + 1], lengths[k], acceleration))
    return speeds


def _stretch(
    length: float, entering: float, leaving: float, cruise: float, acceleration: float
) -> list[tuple[float, float]]:
    """Speed up, go on, brake: `(seconds of this piece, metres from the beginning of the stretch)`."""
    peak = min(cruise, math.sqrt((entering * entering + leaving * leaving) / 2 + acceleration * length))
    peak = max(peak, entering, leaving)  # rounding must not turn a ramp around
    speeding = (peak * peak - entering * entering) / (2 * acceleration)
    braking = (peak * peak - leaving * leaving) / (2 * acceleration)
    going_on = max(length - speeding - braking, 0.0)
    ramp_up = _ramp(0.0, entering, peak, acceleration)
    steady = [(going_on / peak, speeding + going_on)] if going_on > 1e-9 else []  # less is rounding
    pieces = [*ramp_up, *steady, *_ramp(speeding + going_on, peak, leaving, acceleration)]
    return pieces or [(0.0, length)]


def _ramp(begin: float, entering: float, leaving: float, acceleration: float) -> list[tuple[float, float]]:
    seconds = abs(leaving - entering) / acceleration
    if seconds == 0:
        return []
    # A chord over `t` seconds of a parabola lies at most `a t² / 8` from it.
    count = math.ceil(seconds / math.sqrt(8 * RAMP_ERROR / acceleration))
    piece = seconds / count
    change = (leaving - entering) / seconds
    times = [piece * k for k in range(1, count + 1)]
    return [(piece, begin + entering * t + change * t * t / 2) for t in times]
