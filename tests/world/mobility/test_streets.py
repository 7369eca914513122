"""City block and pursue: streets, ways along them, driving, and what the buildings hide."""

import itertools
import math
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from tests.world.sight import blocked

from roamcast.units import SECOND
from roamcast.world.mobility import CityBlock, Pursue
from roamcast.world.mobility.cars import RoutePoint, drive
from roamcast.world.mobility.path import Piece, Point
from roamcast.world.mobility.streets import Streets
from roamcast.world.trajectory import Motion
from roamcast.world.walls import segments

AREA = (300.0, 300.0)
KMH = 1 / 3.6


def test_streets_are_spread_evenly_from_border_to_border() -> None:
    streets = Streets.over((300.0, 100.0), 70.0, 10.0)
    assert streets.xs == (0.0, 75.0, 150.0, 225.0, 300.0)
    assert streets.ys == (0.0, 100.0)
    assert streets.walls()[0] == (5.0, 5.0, 70.0, 95.0)
    assert len(streets.walls()) == 4


def test_anywhere_is_uniform_over_the_length_of_the_streets() -> None:
    streets = Streets.over((300.0, 100.0), 100.0, 10.0)
    random = Random(1)
    points = [streets.anywhere(random) for _ in range(10_000)]
    assert all(streets.contains(point) for point in points)
    north = [x for x, y in points if y not in streets.ys]
    assert len(north) == pytest.approx(10_000 * 400 / 1000, abs=200)
    assert min(Counter(north).values()) > 850  # of 1000, on each of four


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(20.0, 150.0))
def test_routes_run_along_streets_and_none_is_shorter(seed: int, block: float) -> None:
    random = Random(seed)
    streets = Streets.over((300.0, 200.0), block, 5.0)
    origin, destination = streets.anywhere(random), streets.anywhere(random)
    route = streets.route(origin, destination, random)
    assert (route[0], route[-1]) == (origin, destination)
    for a, b in itertools.pairwise(route):
        assert (a[0] == b[0] and a[0] in streets.xs) or (a[1] == b[1] and a[1] in streets.ys)
    assert all(x in streets.xs and y in streets.ys for x, y in route[1:-1])
    length = sum(math.dist(a, b) for a, b in itertools.pairwise(route))
    assert length == pytest.approx(shortest(streets, origin, destination))


def shortest(streets: Streets, origin: Point, destination: Point) -> float:
    """The same by Dijkstra over crossings and both ends, joined to their neighbours on each street."""
    points = sorted({origin, destination, *itertools.product(streets.xs, streets.ys)})
    lines = [[p for p in points if p[0] == x] for x in streets.xs]
    lines += [[p for p in points if p[1] == y] for y in streets.ys]
    edges = [
        (points.index(a), points.index(b), math.dist(a, b))
        for line in lines
        for a, b in itertools.pairwise(line)
    ]
    rows, columns, lengths = zip(*edges, strict=True)
    graph = coo_array((lengths, (rows, columns)), shape=(len(points), len(points)))
    found = dijkstra(graph, directed=False, indices=[points.index(origin)])
    return float(found[0, points.index(destination)])


def test_all_staircases_are_equally_likely() -> None:
    streets = Streets.over((300.0, 300.0), 150.0, 5.0)
    random = Random(1)
    ways = Counter(tuple(streets.route((0.0, 0.0), (300.0, 300.0), random)) for _ in range(6000))
    assert len(ways) == 6
    assert all(abs(count - 1000) < 130 for count in ways.values())


def seconds(pieces: list[Piece]) -> float:
    return sum(piece.seconds for piece in pieces)


def test_a_drive_builds_up_speed_cruises_and_brakes() -> None:
    pieces = drive((0.0, 0.0), [RoutePoint((100.0, 0.0), 0.0, 0.0)], 5.0, 2.5)
    # 2 s and 5 m to reach 5 m/s, 90 m at 5 m/s, 2 s and 5 m to stop.
    assert seconds(pieces) == pytest.approx(22.0)
    assert pieces[-1].to == (100.0, 0.0)
    steady = max(pieces, key=lambda piece: piece.seconds)
    assert steady.seconds == pytest.approx(18.0)
    assert steady.to == pytest.approx((95.0, 0.0))


def test_a_drive_too_short_to_reach_its_speed_peaks_below_it() -> None:
    assert seconds(drive((0.0, 0.0), [RoutePoint((0.0, 4.9), 0.0, 7.0)], 5.0, 2.5)) == pytest.approx(
        2.8 + 7.0
    )


def test_a_drive_slows_down_for_a_turn() -> None:
    stages = [RoutePoint((50.0, 0.0), 3.0, 0.0), RoutePoint((50.0, 50.0), 0.0, 0.0)]
    # Either half: 2 s from or to rest (5 m), 0.8 s between 3 and 5 m/s (3.2 m), the rest at 5 m/s.
    assert seconds(drive((0.0, 0.0), stages, 5.0, 2.5)) == pytest.approx(2 * (2.0 + 0.8 + 41.8 / 5))


def test_braking_begins_stages_ahead() -> None:
    """A limit of 1 m/s after 1 m is out of reach of a car at 5 m/s: it must have slowed down before."""
    stages = [
        RoutePoint((50.0, 0.0), 5.0, 0.0),
        RoutePoint((51.0, 0.0), 1.0, 0.0),
        RoutePoint((60.0, 0.0), 0.0, 0.0),
    ]
    merged = [RoutePoint((51.0, 0.0), 1.0, 0.0), RoutePoint((60.0, 0.0), 0.0, 0.0)]
    assert seconds(drive((0.0, 0.0), stages, 5.0, 2.5)) == pytest.approx(
        seconds(drive((0.0, 0.0), merged, 5.0, 2.5))
    )


def speeds(motion: Motion, node: int) -> tuple[np.ndarray, np.ndarray]:
    path = motion.trajectories[node]
    spans = np.diff(path.times) / SECOND
    return spans, np.hypot(np.diff(path.x), np.diff(path.y)) / spans


@pytest.mark.parametrize("model", [CityBlock(), Pursue()], ids=["city_block", "pursue"])
def test_nodes_are_always_on_a_street_and_never_in_a_wall(model: CityBlock | Pursue) -> None:
    motion = model.motion(10, AREA, 600 * SECOND, Random(1))
    streets, walls = model.streets(AREA), model.walls(AREA)
    for path in motion.trajectories:
        for time in range(0, 600 * SECOND, 1_234_567):
            x, y = path.position(time) or (-1.0, -1.0)
            assert streets.contains((x, y)), (time, x, y)
            assert not any(w.left <= x <= w.right and w.bottom <= y <= w.top for w in walls)


def test_cars_speed_up_and_brake_within_their_acceleration() -> None:
    model = CityBlock()
    motion = model.motion(10, AREA, 600 * SECOND, Random(1))
    for node in range(10):
        spans, driven = speeds(motion, node)
        middles = (spans[1:] + spans[:-1]) / 2  # between the middles of two pieces, where means hold
        change = np.abs(np.diff(driven))
        assert (change <= model.acceleration * middles * (1 + 1e-6) + 1e-3).all()
        assert driven.max() <= model.speed[1] + 1e-9


def test_cars_stop_in_front_of_crossings_and_rest_elsewhere() -> None:
    model = CityBlock(pause=(30.0, 60.0), stop=(5.0, 25.0))
    motion = model.motion(20, AREA, 900 * SECOND, Random(1))
    streets = model.streets(AREA)
    stops = rests = 0
    for node, path in enumerate(motion.trajectories):
        spans, driven = speeds(motion, node)
        for k in np.flatnonzero(driven == 0).tolist():
            if k in (0, len(spans) - 1):
                continue
            nearest = [
                min(abs(line - at) for line in lines)
                for lines, at in ((streets.xs, path.x[k]), (streets.ys, path.y[k]))
            ]
            if spans[k] <= 25.1:
                stops += 1
                assert spans[k] >= 5
                assert sorted(nearest) == pytest.approx([0, model.street_width / 2])
            else:
                rests += 1
    assert stops > 50
    assert rests > 50


def test_the_open_place_has_no_walls_and_no_stops() -> None:
    model = CityBlock(buildings=False, stop_probability=0.0)
    assert model.walls(AREA) == []
    motion = model.motion(10, AREA, 600 * SECOND, Random(1))
    for node in range(10):
        spans, driven = speeds(motion, node)
        assert (spans[1:-1][driven[1:-1] == 0] >= 20).all()


def test_one_sees_along_a_street_but_not_through_a_block_nor_around_its_corner() -> None:
    standing = segments(CityBlock(block=50.0, street_width=10.0).walls(AREA))
    for street in (0.0, 50.0, 300.0):
        assert not blocked(standing, street, 0.0, street, 300.0)
        assert not blocked(standing, 300.0, street, 3.0, street)
    assert blocked(standing, 50.0, 75.0, 100.0, 75.0)  # parallel streets, a block between
    assert not blocked(standing, 50.0, 100.0, 100.0, 100.0)  # the same two, along the crossing street
    # Around the corner at (50, 50): the building's own corner is at (55, 55), on the line x + y = 110.
    assert blocked(standing, 50.0, 61.0, 61.0, 50.0)
    assert not blocked(standing, 50.0, 59.0, 59.0, 50.0)


def test_the_criminal_is_faster_and_the_followers_are_on_its_heels() -> None:
    model = Pursue()
    near, anywhere = [], []
    for seed in range(5):
        motion = model.motion(10, AREA, 300 * SECOND, Random(seed))
        assert 15 * KMH < speeds(motion, 0)[1].max() <= 20 * KMH + 1e-9
        random = Random(seed)
        for node in range(1, 10):
            assert speeds(motion, node)[1].max() <= 15 * KMH + 1e-9
        for time in range(0, 300 * SECOND, 30 * SECOND):
            criminal, *others = [path.position(time) or (0.0, 0.0) for path in motion.trajectories]
            near += [math.dist(criminal, other) for other in others]
            anywhere += [math.dist(criminal, model.streets(AREA).anywhere(random)) for _ in others]
    assert np.mean(near) < 0.6 * np.mean(anywhere)


def test_followers_wait_beside_a_criminal_who_rests() -> None:
    motion = Pursue(pause=(1000.0, 1000.0), lead_in=0.0).motion(4, AREA, 900 * SECOND, Random(12))
    criminal, *others = [path.position(900 * SECOND) or (0.0, 0.0) for path in motion.trajectories]
    assert len(motion.trajectories[0].times) == 2  # this seed finds it at rest for the whole run
    assert all(math.dist(criminal, other) <= 2.0 for other in others)
