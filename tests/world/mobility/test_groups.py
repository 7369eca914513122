"""Nomadic and column: the bounds that tie a member to its reference hold at every instant."""

from itertools import pairwise
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.units import SECOND
from roamcast.world.mobility import Column, Nomadic
from roamcast.world.mobility.groups import around, follow, mirrored
from roamcast.world.trajectory import Trajectory

AREA = (120.0, 120.0)
DURATION = 600 * SECOND


def apart(a: Trajectory, b: Trajectory) -> npt.NDArray[np.float64]:
    """Distances at every tenth of a second and at every knot."""
    times = np.unique(np.concatenate((np.arange(0, DURATION + 1, SECOND // 10), a.times, b.times)))
    times = times[times <= DURATION]
    x = np.interp(times, a.times, a.x) - np.interp(times, b.times, b.x)
    y = np.interp(times, a.times, a.y) - np.interp(times, b.times, b.y)
    return np.hypot(x, y)


@pytest.mark.parametrize("seed", range(3))
def test_nomads_stay_within_fifty_metres_of_the_chief(seed: int) -> None:
    chief, *members = Nomadic().motion(10, AREA, DURATION, Random(seed)).trajectories
    distances = [apart(chief, member) for member in members]
    assert max(away.max() for away in distances) <= 50 + 1e-9
    assert max(away.max() for away in distances) > 40  # else the bound is not what keeps them
    assert len({path.x[0] for path in members}) == len(members)


@pytest.mark.parametrize("seed", range(3))
def test_the_column_stays_within_five_metres_of_its_reference_points(seed: int) -> None:
    model = Column(pause=(0.0, 10.0))
    references = model.references(10, AREA, DURATION, Random(seed))
    paths = model.motion(10, AREA, DURATION, Random(seed)).trajectories
    for reference, path in zip(references[1:], paths[1:], strict=True):
        assert 4 < apart(reference, path).max() <= 5 + 1e-9
    assert apart(references[0], paths[0]).max() < 1e-6  # the leader is its own reference
    for ahead, behind in pairwise(references):
        away = apart(ahead, behind)
        assert away.max() <= 30 + 1e-3  # 30 m of trail: on a straight stretch 30 m, at a turn less
        assert np.median(away) > 25


def test_the_column_goes_where_the_leader_went() -> None:
    leader = Trajectory.of(
        [(0, 0.0, 0.0), (10 * SECOND, 10.0, 0.0), (15 * SECOND, 10.0, 0.0), (20 * SECOND, 10.0, 10.0)]
    )
    past = [(0.0, -2.0), (0.0, -8.0)]
    second = follow(leader, past, 4.0)
    # Twice before the leader's corner at (10, 0); then the leader rests, turns and doubles its speed.
    assert second.position(0) == (0.0, -4.0)
    assert second.position(4 * SECOND) == pytest.approx((0.0, 0.0))
    assert second.position(10 * SECOND) == pytest.approx((6.0, 0.0))
    assert second.position(15 * SECOND) == pytest.approx((6.0, 0.0))
    assert second.position(17 * SECOND) == pytest.approx((10.0, 0.0))
    assert second.position(20 * SECOND) == pytest.approx((10.0, 6.0))
    assert follow(leader, past, 8.0).position(20 * SECOND) == pytest.approx((10.0, 2.0))


def test_a_member_is_thrown_back_at_the_border() -> None:
    reference = Trajectory.of([(0, 10.0, 50.0), (10, 20.0, 50.0)])
    offset = Trajectory.of([(0, -30.0, 0.0), (5, 0.0, 60.0), (20, 0.0, 0.0)])
    path = around(reference, offset, (100.0, 100.0))
    assert path.times.tolist() == [0, 5, 10]
    assert path.x.tolist() == [20.0, 15.0, 20.0]
    assert path.y.tolist() == [50.0, 90.0, 90.0]


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(0.1, 1e3), st.floats(0.0, 1.0))
def test_mirroring_stays_inside_and_brings_nothing_farther_apart(
    value: float, border: float, share: float
) -> None:
    inside = mirrored(value, border)
    assert 0 <= inside <= border
    at = share * border
    assert abs(inside - at) <= abs(value - at) + 1e-9
    assert mirrored(at, border) == at
