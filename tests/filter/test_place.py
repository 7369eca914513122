"""WITHIN: a circle on the earth, checked against the haversine formula, which the code does not use."""

import math
from random import Random

import pytest

from roamcast.errors import FilterError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.filter.place import EARTH_RADIUS

ZURICH = (47.3769, 8.5417)
PLACES = [
    ZURICH,
    (0.0, 180.0),
    (0.0, -180.0),
    (-17.7, 179.99),  # Fiji: the date line
    (65.0, -179.999),
    (89.9999, 10.0),
    (-89.99, -120.0),
    (90.0, 0.0),
    (-90.0, 77.0),
    (78.2, 15.6),
    (0.0, 0.0),
]


def haversine(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Metres (Sinnott, "Virtues of the haversine", 1984), with an arc tangent that is exact far away too."""
    north, east = math.radians(b[0] - a[0]), math.radians(b[1] - a[1])
    share = math.sin(north / 2) ** 2
    share += math.cos(math.radians(a[0])) * math.cos(math.radians(b[0])) * math.sin(east / 2) ** 2
    return 2 * EARTH_RADIUS * math.atan2(math.sqrt(share), math.sqrt(max(0.0, 1 - share)))


def beside(place: tuple[float, float], metres: float, bearing: float) -> tuple[float, float]:
    """Where one arrives after so many metres in a direction, as latitude and longitude in range."""
    north, east, arc = math.radians(place[0]), math.radians(place[1]), metres / EARTH_RADIUS
    sine = math.sin(north) * math.cos(arc) + math.cos(north) * math.sin(arc) * math.cos(bearing)
    latitude = math.asin(max(-1.0, min(1.0, sine)))
    turn = math.atan2(
        math.sin(bearing) * math.sin(arc) * math.cos(north), math.cos(arc) - math.sin(north) * sine
    )
    return math.degrees(latitude), (math.degrees(east + turn) + 540) % 360 - 180


def at(latitude: Value, longitude: Value, **more: Value) -> Event:
    return Event(1, 1, {"lat": latitude, "lon": longitude, **more})


def within(place: tuple[float, float], metres: float) -> Filter:
    return Filter.sql(f"WITHIN(lat, lon, {place[0]}, {place[1]}, {metres})")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("metres", [0.5, 500.0, 60_000.0, 3_000_000.0, 19_000_000.0])
def test_a_circle_has_what_an_independent_distance_says_at_the_date_line_and_the_poles_too(
    place: tuple[float, float], metres: float
) -> None:
    random = Random(f"{place} {metres}")
    wanted = within(place, metres)
    counts = {True: 0, False: 0}
    for _ in range(150):
        share = random.choice([0.0, 0.5, 0.99, 0.999999, 1.000001, 1.01, 1.5])
        other = beside(place, min(share * metres, 20_000_000.0), random.uniform(0, 2 * math.pi))
        apart = haversine(place, other)
        if abs(apart - metres) < 1e-7 * metres + 1e-6:
            continue  # nearer to the edge than degrees as floats can tell
        inside = apart < metres
        counts[inside] += 1
        assert wanted.matches(at(*other)) is inside, (other, apart)
    assert counts[True] > 30 and counts[False] > 20


@pytest.mark.parametrize(
    ("place", "other", "metres"),
    [
        ((0, 0), (0, 1), 111_195.08),  # a degree of a great circle: 2 pi R / 360
        ((0, 179.5), (0, -179.5), 111_195.08),
        ((60, 0), (60, 180), 60 * 111_195.08),  # over the pole
        ((0, 0), (90, 0), 90 * 111_195.08),
        ((0, 0), (0, 180), 180 * 111_195.08),
    ],
)
def test_circles_by_hand(place: tuple[float, float], other: tuple[float, float], metres: float) -> None:
    assert within(place, metres + 1).matches(at(*other))
    assert not within(place, metres - 1).matches(at(*other))


@pytest.mark.parametrize(
    ("latitude", "longitude"),
    [(None, 8.5), (47.4, "8.5"), (True, 8.5), (math.nan, 8.5), (91, 8.5), (47.4, 181), (2**63, 8.5)],
)
def test_what_is_no_position_is_neither_within_nor_not_within(latitude: Value, longitude: Value) -> None:
    event = at(latitude, longitude)
    assert not Filter.sql("WITHIN(lat, lon, 47, 8, 20000000)").matches(event)
    assert not Filter.sql("NOT WITHIN(lat, lon, 47, 8, 1)").matches(event)
    assert Filter.sql("NOT WITHIN(lat, lon, 47, 8, 1)").matches(at(47.4, 8.5))


def test_the_normal_form_has_the_box_as_ranges_and_lets_circles_exclude_each_other() -> None:
    assert (
        str(within(ZURICH, 500)) == "lat <= 47.381397 AND lat >= 47.372403 AND lon <= 8.548341"
        " AND lon >= 8.535059 AND WITHIN(lat, lon, 47.3769, 8.5417, 500)"
    )
    date_line = str(within((0.0, 180.0), 1000))
    assert "(lon <= -179.991006 AND lon >= -180 OR lon <= 180 AND lon >= 179.991006)" in date_line
    assert str(within(ZURICH, 500) & within((48.0, 8.5417), 500)) == "FALSE"
    assert str(within(ZURICH, 500) & Filter.sql("lat > 50")) == "FALSE"


def test_a_circle_covers_those_inside_it_and_a_range_covers_its_box() -> None:
    wide, narrow = within(ZURICH, 1000), within(beside(ZURICH, 300, 1.0), 600)
    assert wide.covers(narrow) and not narrow.covers(wide)
    assert not wide.covers(within(beside(ZURICH, 500, 1.0), 600))
    assert Filter.sql("lat > 47 AND lon < 9").covers(narrow)
    assert not narrow.covers(Filter.sql("lat > 47.37 AND lat < 47.38 AND lon > 8.54 AND lon < 8.55"))
    assert Filter.sql("NOT WITHIN(lat, lon, 47, 8, 10)").covers(Filter.sql("NOT WITHIN(lat, lon, 47, 8, 20)"))
    assert not Filter.sql("NOT WITHIN(lat, lon, 47, 8, 20)").covers(
        Filter.sql("NOT WITHIN(lat, lon, 47, 8, 10)")
    )
    assert not wide.covers(Filter.sql("WITHIN(y, x, 47.3769, 8.5417, 10)"))


def test_covering_is_sound_for_random_circles() -> None:
    random = Random(7)
    covered = 0
    for _ in range(400):
        place = random.choice(PLACES)
        other = beside(place, random.uniform(0, 2000), random.uniform(0, 2 * math.pi))
        wide, narrow = (
            within(place, random.uniform(1, 5000)),
            within(other, radius := random.uniform(1, 2000)),
        )
        if wide.covers(narrow):
            covered += 1
            for _ in range(5):
                inside = at(*beside(other, radius * random.choice([0, 0.9, 1]), random.uniform(0, 7)))
                assert wide.matches(inside) or not narrow.matches(inside)
    assert covered > 50


def test_the_index_finds_the_circles_that_a_loop_finds() -> None:
    random = Random(3)
    filters = [
        within(beside(random.choice(PLACES), random.uniform(0, 3e5), random.uniform(0, 7)), 100_000)
        for _ in range(300)
    ]
    index: MatchingIndex[int] = MatchingIndex()
    for key, each in enumerate(filters):
        index.add(key, each)
    found = 0
    for _ in range(200):
        event = at(*beside(random.choice(PLACES), random.uniform(0, 3e5), random.uniform(0, 7)))
        expected = [key for key, each in enumerate(filters) if each.matches(event)]
        assert index.match(event) == expected
        found += len(expected)
    assert found > 500


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("WITHIN(lat, lon, 47, 8)", "takes five values"),
        ("WITHIN(lat, lon, 47, '8', 5)", "the last three values are numbers"),
        ("WITHIN(lat, lon, 47, TRUE, 5)", "the last three values are numbers"),
        ("WITHIN(47, lon, 47, 8, 5)", "an attribute's name must stand here"),
        ("WITHIN(lat, lat, 47, 8, 5)", "needs two attributes"),
        ("WITHIN(lat, lon, 90.5, 8, 5)", "a latitude from -90"),
        ("WITHIN(lat, lon, 8, -180.5, 5)", "a latitude from -90"),
        ("WITHIN(lat, lon, 47, 8, 0)", "above 0, at most 20037508"),
        ("WITHIN(lat, lon, 47, 8, 3e7)", "above 0, at most 20037508"),
        ("NEAR(lat, lon, 47, 8, 5)", "functions are not allowed"),
    ],
)
def test_what_is_no_circle_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(FilterError, match=problem):
        Filter.sql(text)
