"""Runs start in the long-run distribution of their model: no statistic drifts after time 0.

Nodes of these models are independent, so one run with thousands of nodes stands for thousands of runs.
Seeds are fixed: a test that passes passes always, and a z beyond 4 has odds of 1 in 16,000.
"""

import math
from collections.abc import Callable
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from roamcast.units import SECOND, Micros
from roamcast.world.mobility import (
    CityBlock,
    Column,
    FixedTargets,
    Mobility,
    Nomadic,
    Pursue,
    RandomWalk,
    RandomWaypoint,
)
from roamcast.world.mobility.model import Area, Range, node_streams
from roamcast.world.mobility.waypoints import (
    Destinations,
    Disc,
    FixedPlaces,
    Rectangle,
    Start,
    mean_inverse_speed,
    rest_left,
    speed_in_passing,
    walk_on,
)
from roamcast.world.trajectory import Motion

pytestmark = pytest.mark.long

Sample = npt.NDArray[np.float64]
AREA: Area = (400.0, 200.0)
Z_MAX = 4.0


def states(motion: Motion, time: Micros) -> Sample:
    """Rows `(x, y, vx, vy)`, one per node."""
    return np.array([path.position_and_velocity(time) for path in motion.trajectories])


def statistics(state: Sample) -> dict[str, Sample]:
    x, y, vx, vy = state.T
    return {
        "distance from the centre": np.hypot(x - AREA[0] / 2, y - AREA[1] / 2),
        "x squared": (x - AREA[0] / 2) ** 2,
        "y squared": (y - AREA[1] / 2) ** 2,
        "speed": np.hypot(vx, vy),
        "rests": (np.hypot(vx, vy) == 0).astype(np.float64),
        "outwards": (x - AREA[0] / 2) * vx + (y - AREA[1] / 2) * vy,
    }


def z_of(a: Sample, b: Sample) -> float:
    spread = math.sqrt(a.var() / len(a) + b.var() / len(b))
    return float(a.mean() - b.mean()) / spread if spread > 0 else 0.0


def drift(motion: Motion, later: list[int]) -> dict[tuple[str, int], float]:
    """z of each statistic between time 0 and each later second."""
    first = statistics(states(motion, 0))
    return {
        (name, second): z_of(first[name], values)
        for second in later
        for name, values in statistics(states(motion, second * SECOND)).items()
    }


@pytest.mark.parametrize(
    ("model", "nodes", "later"),
    [
        (RandomWaypoint(speed=(0.5, 10.0), pause=(0.0, 40.0)), 3000, [20, 150, 400]),
        (RandomWaypoint(speed=(1.0, 20.0), pause=(0.0, 0.0)), 3000, [20, 150, 400]),
        (RandomWaypoint(speed=(4.0, 4.0), pause=(30.0, 30.0)), 3000, [20, 150, 400]),
        (FixedTargets(speed=(0.5, 10.0), pause=(0.0, 40.0)), 3000, [20, 150, 400]),
        (RandomWalk(speed=(0.0, 10.0), pause=(0.0, 8.0), step=10.0), 2000, [3, 15, 150]),
        (CityBlock(pause=(5.0, 15.0), stop_probability=0.5), 1000, [10, 100]),
        (CityBlock(pause=(0.0, 0.0), speed=(0.5, 10.0), stop_probability=0.0), 1000, [10, 100]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_nothing_drifts(model: Mobility, nodes: int, later: list[int]) -> None:
    motion = model.motion(nodes, AREA, (later[-1] + 1) * SECOND, Random(7))
    worst = max(drift(motion, later).items(), key=lambda item: abs(item[1]))
    assert abs(worst[1]) < Z_MAX, worst


def test_the_check_above_sees_the_drift_of_a_start_with_a_fresh_trip() -> None:
    speed, pause, until = (0.5, 10.0), (0.0, 40.0), 1001 * SECOND
    destinations = Rectangle(AREA)
    paths = [
        walk_on(Start(destinations.any(own), None, []), destinations, speed, pause, until, own).trajectory()
        for own in node_streams(Random(7), 1500)
    ]
    seen = drift(Motion(paths), [1000])
    for name in ("distance from the centre", "speed", "rests"):
        assert abs(seen[name, 1000]) > 1.5 * Z_MAX, name


@pytest.mark.parametrize("pause", [(0.0, 40.0), (25.0, 25.0)])
def test_random_waypoint_starts_with_the_shares_of_the_closed_form(pause: Range) -> None:
    low, high = 1.0, 8.0
    motion = RandomWaypoint(speed=(low, high), pause=pause).motion(6000, AREA, SECOND // 1000, Random(11))
    speeds = statistics(states(motion, 0))["speed"]
    length = mean_distance(lambda: np.random.default_rng(5).random((2, 400_000, 2)) * AREA)
    rest = sum(pause) / 2
    share = rest / (rest + length * math.log(high / low) / (high - low))
    assert (speeds == 0).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 6000))
    moving = speeds[speeds > 0]
    # The mean over time of a speed that is uniform per trip; far from (low + high) / 2.
    mean = (high - low) / math.log(high / low)
    assert moving.mean() == pytest.approx(mean, abs=4 * moving.std() / math.sqrt(len(moving)))


def mean_distance(pairs: Callable[[], Sample]) -> float:
    first, second = pairs()
    return float(np.hypot(*(first - second).T).mean())


def test_mean_lengths_are_those_of_random_pairs() -> None:
    rng = np.random.default_rng(3)
    for area in ((1.0, 1.0), (400.0, 200.0), (1.0, 50.0)):
        drawn = mean_distance(lambda area=area: rng.random((2, 400_000, 2)) * area)  # type: ignore[misc]
        assert Rectangle(area).mean_length == pytest.approx(drawn, rel=4e-3)
    assert Rectangle((1.0, 1.0)).mean_length == pytest.approx(0.52140543316, abs=1e-10)
    assert Rectangle((1.0, 1e5)).mean_length == pytest.approx(1e5 / 3, rel=1e-6)
    assert FixedPlaces([(0, 0), (3, 0), (3, 4)]).mean_length == pytest.approx((3 + 4 + 5) / 3)
    random = Random(1)
    disc = Disc(2.0)
    points = np.array([[disc.any(random), disc.any(random)] for _ in range(40_000)]).transpose(1, 0, 2)
    assert disc.mean_length == pytest.approx(mean_distance(lambda: points), rel=1e-2)


@pytest.mark.parametrize("destinations", [Rectangle(AREA), Disc(10.0), FixedPlaces([(0, 0), (3, 0), (3, 4)])])
def test_legs_are_drawn_by_their_length(destinations: Destinations) -> None:
    """Then `E[1 / length]` is `1 / mean length`: each leg's weight cancels."""
    random = Random(1)
    lengths = np.array([math.dist(*destinations.leg(random)) for _ in range(20_000)])
    inverse = 1 / lengths
    error = 4 * inverse.std() / math.sqrt(len(inverse))
    assert inverse.mean() == pytest.approx(1 / destinations.mean_length, abs=error)


def test_the_speed_in_passing_has_density_one_over_v() -> None:
    random = Random(1)
    drawn = [speed_in_passing(random, (0.5, 20.0)) for _ in range(5000)]
    assert stats.kstest(drawn, stats.loguniform(0.5, 20.0).cdf).pvalue > 1e-4
    assert stats.kstest(drawn, stats.uniform(0.5, 19.5).cdf).pvalue < 1e-9
    assert speed_in_passing(random, (3.0, 3.0)) == 3.0
    assert mean_inverse_speed((3.0, 3.0)) == 1 / 3


def test_what_is_left_of_a_rest_has_the_density_of_its_survival_function() -> None:
    low, high = 20.0, 60.0

    def cumulative(left: float) -> float:
        """The integral of `P(pause > t) / E[pause]`."""
        beyond = max(left - low, 0.0)
        return (min(left, low) + beyond - beyond**2 / (2 * (high - low))) / ((low + high) / 2)

    random = Random(1)
    drawn = [rest_left(random, (low, high)) for _ in range(5000)]
    assert stats.kstest(drawn, np.vectorize(cumulative)).pvalue > 1e-4
    assert rest_left(random, (0.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("model", "runs", "later"),
    [
        (Nomadic(speed=(0.5, 10.0), roam_speed=(0.2, 5.0), pause=(0.0, 20.0)), 800, 150),
        (Column(speed=(1.0, 10.0), pause=(0.0, 20.0), roam_speed=(0.1, 1.0)), 800, 150),
        (Pursue(lead_in=200.0), 250, 60),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else "",
)
def test_groups_do_not_drift_either(model: Mobility, runs: int, later: int) -> None:
    """Here the runs are independent, not the nodes: the leader and the last node of each."""
    random = Random(3)
    until = (later + 1) * SECOND
    motions = [model.motion(3, AREA, until, Random(random.getrandbits(64))) for _ in range(runs)]
    for node in (0, 2):
        ones = Motion([motion.trajectories[node] for motion in motions])
        worst = max(drift(ones, [later]).items(), key=lambda item: abs(item[1]))
        assert abs(worst[1]) < Z_MAX, (node, worst)
    apart = [
        np.hypot(*np.array([states(m, t)[2, :2] - states(m, t)[0, :2] for m in motions]).T)
        for t in (0, later * SECOND)
    ]
    assert abs(z_of(apart[0], apart[1])) < Z_MAX
