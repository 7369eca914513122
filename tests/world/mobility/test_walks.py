"""Random waypoint, fixed targets and random walk: where they go and how fast."""

import itertools
from random import Random

import numpy as np
import pytest

from roamcast.units import SECOND
from roamcast.world.mobility import FixedTargets, RandomWalk, RandomWaypoint
from roamcast.world.mobility.model import stream
from roamcast.world.mobility.path import PathBuilder, Piece, entered, window
from roamcast.world.mobility.walks import reflected
from roamcast.world.trajectory import Trajectory

AREA = (120.0, 120.0)


def legs(path: Trajectory) -> list[tuple[float, float]]:
    """`(seconds, metres per second)` of each stretch between two knots."""
    seconds = np.diff(path.times) / SECOND
    metres = np.hypot(np.diff(path.x), np.diff(path.y))
    return list(zip(seconds.tolist(), (metres / seconds).tolist(), strict=True))


def test_pieces_become_knots_on_the_grid_and_the_last_is_cut() -> None:
    path = PathBuilder((0.0, 0.0), 10 * SECOND)
    path.follow([Piece(2.0, (4.0, 0.0)), Piece(0.0, (4.0, 0.0)), Piece(0.0000001, (4.0, 1e-9))])
    assert (path.time, path.here, path.done) == (2 * SECOND + 1, (4.0, 1e-9), False)
    path.follow([Piece(3.0, (4.0, 1e-9)), Piece(10.0, (14.0, 1e-9))])
    cut = path.trajectory()
    assert cut.times.tolist() == [0, 2_000_000, 2_000_001, 5_000_001, 10_000_000]
    assert cut.x.tolist() == pytest.approx([0.0, 4.0, 4.0, 4.0, 8.999999])
    assert path.trajectory(since=SECOND).times.tolist() == [0, 1_000_000, 1_000_001, 4_000_001, 9_000_000]
    assert path.trajectory(since=SECOND).x[0] == 2.0
    assert window(path.whole(), 2 * SECOND, 2 * SECOND).x.tolist() == [4.0]


def test_entering_a_way_leaves_the_rest_of_it() -> None:
    way = [Piece(2.0, (4.0, 0.0)), Piece(1.0, (4.0, 0.0)), Piece(2.0, (4.0, 2.0))]
    assert entered((0.0, 0.0), way, 0.5) == ((1.0, 0.0), [Piece(1.5, (4.0, 0.0)), *way[1:]])
    assert entered((0.0, 0.0), way, 2.25) == ((4.0, 0.0), [Piece(0.75, (4.0, 0.0)), way[2]])
    assert entered((0.0, 0.0), way, 5.0) == ((4.0, 2.0), [])


def test_random_waypoint_walks_and_rests_in_turn_within_its_bounds() -> None:
    motion = RandomWaypoint(speed=(0.5, 1.5), pause=(20.0, 60.0)).motion(20, AREA, 2000 * SECOND, Random(1))
    for path in motion.trajectories:
        whole = legs(path)[1:-1]  # the first is entered in the middle, the last is cut
        assert len(whole) > 10
        for (_, before), (_, after) in itertools.pairwise(whole):
            assert (before == 0) != (after == 0)
        for seconds, speed in whole:
            assert 20 <= seconds <= 60.000001 if speed == 0 else 0.5 - 1e-6 <= speed <= 1.5 + 1e-9


def test_without_rests_and_with_one_speed_every_leg_has_it() -> None:
    motion = RandomWaypoint(speed=(2.0, 2.0), pause=(0.0, 0.0)).motion(20, AREA, 500 * SECOND, Random(1))
    for path in motion.trajectories:
        assert [speed for _, speed in legs(path)] == pytest.approx([2.0] * len(legs(path)), abs=1e-4)


def test_fixed_targets_rest_only_at_the_targets_and_visit_all() -> None:
    model = FixedTargets(pause=(20.0, 60.0))
    motion = model.motion(10, AREA, 3000 * SECOND, Random(4))
    targets = model.places(AREA, stream(Random(4)))
    assert len(targets) == 5
    visited = set()
    for path in motion.trajectories:
        rests = [k for k, (_, speed) in enumerate(legs(path)) if speed == 0]
        stays = [(float(path.x[k]), float(path.y[k])) for k in rests]
        visited.update(stays)
        assert all(a != b for a, b in itertools.pairwise(stays))
    assert visited == set(targets)


def test_given_targets_are_the_only_ones() -> None:
    motion = FixedTargets(targets=((0.0, 0.0), (120.0, 0.0)), pause=(0.0, 0.0)).motion(
        4, AREA, 900 * SECOND, Random(4)
    )
    for path in motion.trajectories:
        assert set(path.x[1:-1].tolist()) == {0.0, 120.0}
        assert not path.y.any()


def test_the_borders_throw_back_at_the_same_angle() -> None:
    assert reflected((8.0, 1.0), (1.0, 0.25), 6.0, (10.0, 5.0)) == [
        Piece(2.0, (10.0, 1.5)),
        Piece(4.0, (6.0, 2.5)),
    ]
    corner = reflected((9.0, 4.0), (1.0, 1.0), 3.0, (10.0, 5.0))
    assert corner == [Piece(1.0, (10.0, 5.0)), Piece(2.0, (8.0, 3.0))]
    assert reflected((1.0, 1.0), (0.0, 0.0), 3.0, (10.0, 5.0)) == [Piece(3.0, (1.0, 1.0))]
    assert reflected((0.0, 1.0), (-2.0, 0.0), 3.0, (10.0, 5.0))[-1].to == (6.0, 1.0)


def test_a_random_walk_keeps_its_speed_for_a_step() -> None:
    motion = RandomWalk(speed=(0.5, 1.5), step=10.0).motion(10, (1000.0, 1000.0), 200 * SECOND, Random(2))
    bounced = 0
    for path in motion.trajectories:
        walked = legs(path)
        inside = [k for k, (seconds, _) in enumerate(walked) if abs(seconds - 10) < 1e-5]
        bounced += len(walked) - len(inside) - 2
        assert all(0.5 - 1e-4 <= speed <= 1.5 + 1e-9 for _, speed in walked)
        assert len(inside) >= 15
    assert bounced < 20
