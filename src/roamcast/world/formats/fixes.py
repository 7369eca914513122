"""Fixes: what a recording is made of, and how they become motion; degrees to metres.

Parsing and assembling are separate on purpose: each format's parser is a generator over lines that a Spark
task can run on its share of the files; only assembling needs all fixes of a node.
"""

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.errors import FileError, InputError
from roamcast.units import Micros
from roamcast.world.formats.text import name_order, seconds_text
from roamcast.world.trajectory import Metres, Motion, Trajectory

# WGS 84: the equatorial radius in metres and the flattening.
_EQUATOR = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_LATITUDE_MAX = 89.0

# What to do with two fixes of one node at one time and different places: refuse, or believe the later row.
Conflict: TypeAlias = Literal["error", "last"]


@dataclass(frozen=True)
class MapProjection:
    """Latitude and longitude to metres on a local plane: metres east (x) and north (y) of an origin.

    Equirectangular around the origin, with the WGS 84 ellipsoid's two radii of curvature there: exact in
    scale at the origin; a distance measured d metres north or south of it is off by about d · tan(latitude) /
    6371 km in its east-west part: 0.12 % at 10 km and 0.36 % at 30 km for San Francisco. A GPS fix is off by
    more. Not for continents, not for the poles.
    """

    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        latitude, longitude = self.latitude, self.longitude
        if not (abs(latitude) <= _LATITUDE_MAX and abs(longitude) <= 180.0):
            raise InputError(
                "origin",
                f"is ({latitude}, {longitude}); latitude is -{_LATITUDE_MAX:g} to {_LATITUDE_MAX:g} degrees, "
                "longitude -180 to 180",
            )

    def to_metres(self, latitude: Metres, longitude: Metres) -> tuple[Metres, Metres]:
        """Degrees to metres; longitudes wrap, so a track may cross the 180th meridian."""
        squared = _FLATTENING * (2 - _FLATTENING)  # the eccentricity, squared
        sine = math.sin(math.radians(self.latitude))
        bend = 1 - squared * sine * sine
        meridian = _EQUATOR * (1 - squared) / bend**1.5
        parallel = _EQUATOR / math.sqrt(bend) * math.cos(math.radians(self.latitude))
        east = _wrapped(longitude - self.longitude) * (math.radians(1) * parallel)
        north = (latitude - self.latitude) * (math.radians(1) * meridian)
        return east, north

    @staticmethod
    def around(latitude: Metres, longitude: Metres) -> "MapProjection":
        """The mean of all fixes as origin. Longitudes are averaged about the first one."""
        first = float(longitude[0])
        mean_latitude = math.fsum(latitude.tolist()) / len(latitude)
        beyond = math.fsum(_wrapped(longitude - first).tolist()) / len(longitude)
        mean_longitude = (first + beyond + 180.0) % 360.0 - 180.0
        return MapProjection(mean_latitude, mean_longitude)


class Fix(NamedTuple):
    """One node, one instant, one place. Geographic formats put longitude in `x` and latitude in `y`."""

    node: str
    time: Micros
    x: float
    y: float
    line: int = 0
    # The node was absent between its fix before and this one (a new GPX segment, a vehicle that came back).
    returns: bool = False


class FixStream(NamedTuple):
    """The fixes of one file, to be read before the next stream is asked for."""

    where: str  # for messages
    fixes: Iterable[Fix]
    geographic: bool = False


@dataclass(frozen=True)
class MotionOptions:
    """How to read motion: `read_motion` fills in each format's defaults."""

    max_gap: Micros | None = None  # fixes further apart leave a gap; None: never
    conflict: Conflict = "error"
    geographic: bool = False  # FCD only: x and y are longitude and latitude
    origin: MapProjection | None = None  # None: the mean of the fixes
    duration: Micros | None = None  # ns-2 only: how long nodes at least stay


class Tracks:
    """Fixes by node, as flat arrays: about 33 bytes a fix."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._geographic = False

    def collect(self, stream: FixStream) -> None:
        self._geographic = stream.geographic
        tracks = self._tracks
        for fix in stream.fixes:
            track = tracks.get(fix.node)
            if track is None:
                track = tracks[fix.node] = _Track(stream.where)
            track.times.append(fix.time)
            track.x.append(fix.x)
            track.y.append(fix.y)
            track.lines.append(fix.line)
            track.returns.append(fix.returns)

    def motion(self, where: str, options: MotionOptions) -> Motion:
        """All tracks as trajectories, numbered in the order of their names."""
        if not self._tracks:
            raise FileError(where, "holds no fix")
        names = sorted(self._tracks, key=name_order)
        paths = [self._tracks[name].trajectory(name, options) for name in names]
        if self._geographic:
            origin = options.origin or _mean_place(paths, where)
            paths = [Trajectory(p.times, *origin.to_metres(p.y, p.x), p.gap) for p in paths]
        return Motion(paths, names)


def _mean_place(paths: list[Trajectory], where: str) -> MapProjection:
    try:
        return MapProjection.around(
            np.concatenate([p.y for p in paths]), np.concatenate([p.x for p in paths])
        )
    except InputError as problem:
        raise FileError(where, f"has its mean place near a pole; the {problem}") from problem


@dataclass
class _Track:
    where: str
    times: "array[int]" = field(default_factory=lambda: array("q"))
    x: "array[float]" = field(default_factory=lambda: array("d"))
    y: "array[float]" = field(default_factory=lambda: array("d"))
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    returns: "array[int]" = field(default_factory=lambda: array("b"))

    def trajectory(self, name: str, options: MotionOptions) -> Trajectory:
        # Stable: rows of the same time stay in the file's order, so the last row of the file counts.
        times = np.array(self.times, dtype=np.int64)
        order = np.argsort(times, kind="stable")
        times = times[order]
        x, y = np.array(self.x)[order], np.array(self.y)[order]
        same = times[1:] == times[:-1]
        conflicts = np.flatnonzero(same & ((x[1:] != x[:-1]) | (y[1:] != y[:-1])))
        if options.conflict == "error" and len(conflicts):
            k = int(conflicts[0])
            before, here = self.lines[int(order[k])], self.lines[int(order[k + 1])]
            raise FileError(
                f"{self.where}:{here}",
                f"node {name} is at two places at {seconds_text(int(times[k]))} s (see line {before}); "
                "one place per node and microsecond",
            )
        first = np.flatnonzero(np.append(True, ~same))
        last = np.append(first[1:], len(times)) - 1
        returns = np.logical_or.reduceat(np.array(self.returns, dtype=np.bool_)[order], first)
        times = times[first]
        gap: npt.NDArray[np.bool_] = returns[1:]
        if options.max_gap is not None:
            gap = gap | (np.diff(times) > options.max_gap)
        return Trajectory(times, x[last], y[last], gap)


def _wrapped(degrees: Metres) -> Metres:
    turned: Metres = degrees - 360.0 * np.round(degrees / 360.0)
    return turned
