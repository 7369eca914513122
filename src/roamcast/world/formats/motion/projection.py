"""Latitude and longitude to metres on a local plane.

Equirectangular around an origin, with the WGS 84 ellipsoid's two radii of curvature there: exact in scale
at the origin; a distance measured d metres north or south of it is off by about d · tan(latitude) / 6371 km
in its east-west part: 0.12 % at 10 km and 0.36 % at 30 km for San Francisco. A GPS fix is off by more. Not
for continents, not for the poles.
"""

import math
from dataclasses import dataclass

import numpy as np

from roamcast.errors import InputError
from roamcast.world.trajectory import Metres

# WGS 84: the equatorial radius in metres and the flattening.
_EQUATOR = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_LATITUDE_MAX = 89.0


@dataclass(frozen=True)
class MapProjection:
    """Metres east (x) and north (y) of an origin given in degrees."""

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


def _wrapped(degrees: Metres) -> Metres:
    turned: Metres = degrees - 360.0 * np.round(degrees / 360.0)
    return turned
