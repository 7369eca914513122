"""Places: whether a position lies within a circle on the earth, and the box around the circle.

The earth is a sphere of the mean radius (IUGG: 6,371,008.8 m), and distances go along great circles. A real
distance differs by up to 0.5 %.

The box makes circles as cheap as ranges: it is written into the normal form, so the index, covering and the
summaries of every strategy narrow by it before a distance is computed.
"""

from collections.abc import Callable
from functools import lru_cache
from math import asin, cos, degrees, dist, floor, pi, radians, sin
from typing import TypeAlias

from roamcast.event import Value
from roamcast.filter.expression import And, Compare, Expression, Operator, Or, Within, is_number

EARTH_RADIUS = 6_371_008.8  # metres
METRES_MAX = 20_037_508.0  # half the equator: every place is within it
LATITUDE_MAX, LONGITUDE_MAX = 90, 180  # degrees; other positions are none

# A box is rounded outwards to millionths of a degree (0.11 m), and at least by a hundredth of that: the box
# must never leave out what the circle has.
_STEPS = 1e6
_SLACK = 0.01
# Nearer than this to a pole (in degrees) a circle counts as around it: the box's sides are not exact there.
_POLAR = 1e-6
_COVER_MARGIN = 0.1  # metres: a circle that covers another is larger by more than rounding can do


Vector: TypeAlias = tuple[float, float, float]


@lru_cache(maxsize=256, typed=True)  # one event is compared with many circles; typed, because TRUE is no 1
def direction(latitude: Value, longitude: Value) -> Vector | None:
    """The unit vector from the centre of the earth to a position; None where it is no position."""
    if not (is_number(latitude) and is_number(longitude)):
        return None
    if abs(latitude) > LATITUDE_MAX or abs(longitude) > LONGITUDE_MAX:
        return None
    north, east = radians(latitude), radians(longitude)
    return cos(north) * cos(east), cos(north) * sin(east), sin(north)


def place_test(place: Within) -> Callable[[Value, Value], bool | None]:
    """A function of a latitude and a longitude; None, as UNKNOWN, where these are no position."""
    x, y, z, most = circle(place)

    def test(latitude: Value, longitude: Value) -> bool | None:
        found = direction(latitude, longitude)
        if found is None:
            return None
        east, north, up = found
        return (east - x) * (east - x) + (north - y) * (north - y) + (up - z) * (up - z) <= most

    return test


def squared_chord(metres: float) -> float:
    """The squared chord of the unit sphere over this distance. Chords grow with distances, so comparing
    chords compares distances; a difference of coordinates is exact to nanometres, at the poles too."""
    return 4 * sin(min(metres / (2 * EARTH_RADIUS), pi / 2)) ** 2


def circle(place: Within) -> tuple[float, float, float, float]:
    """The direction of its centre, and the squared chord of its radius."""
    center = direction(place.center_latitude, place.center_longitude)
    assert center is not None, "`validity.py` refuses it"
    return *center, squared_chord(place.metres)


def place_covers(wide: Within, narrow: Within) -> bool:
    """True only if every position of `narrow` is one of `wide`."""
    if (wide.latitude, wide.longitude) != (narrow.latitude, narrow.longitude):
        return False
    apart = 2 * EARTH_RADIUS * asin(min(1.0, dist(circle(wide)[:3], circle(narrow)[:3]) / 2))
    return wide == narrow or apart + narrow.metres + _COVER_MARGIN <= wide.metres


def box_around(place: Within) -> list[Expression]:
    """Conditions on the latitude and on the longitude that hold for every position in the circle."""
    reach = degrees(place.metres / EARTH_RADIUS)
    south, north = place.center_latitude - reach, place.center_latitude + reach
    if south <= _POLAR - LATITUDE_MAX or north >= LATITUDE_MAX - _POLAR:  # a pole has all longitudes
        west, east = -float(LONGITUDE_MAX), float(LONGITUDE_MAX)
    else:
        aside = degrees(asin(sin(radians(reach)) / cos(radians(place.center_latitude))))
        west, east = place.center_longitude - aside, place.center_longitude + aside
        west, east = _down(west), -_down(-east)
    return [
        _between(place.latitude, max(_down(south), -LATITUDE_MAX), min(-_down(-north), LATITUDE_MAX)),
        _eastwards(place.longitude, west, east),
    ]


def _down(value: float) -> float:
    return floor(value * _STEPS - _SLACK) / _STEPS


def _between(attribute: str, low: float, high: float) -> Expression:
    return And(
        (
            Compare(attribute, Operator.GREATER_OR_EQUAL, low),
            Compare(attribute, Operator.LESS_OR_EQUAL, high),
        )
    )


def _eastwards(attribute: str, west: float, east: float) -> Expression:
    """From `west` on to `east`; over the date line these are two ranges."""
    if west < -LONGITUDE_MAX:
        west += 2 * LONGITUDE_MAX
    elif east > LONGITUDE_MAX:
        east -= 2 * LONGITUDE_MAX
    else:
        return _between(attribute, west, east)
    return Or((_between(attribute, west, LONGITUDE_MAX), _between(attribute, -LONGITUDE_MAX, east)))
