"""Exact contacts: hand-computed cases, an exact rational reference, dense sampling, symmetries."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from math import lcm

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import ScenarioError
from roamcast.units import SECOND
from roamcast.world import candidates
from roamcast.world.contacts import ContactPlan
from roamcast.world.crossings import contact_plan, pair_intervals
from roamcast.world.trajectory import Motion, Pieces, Trajectory

Row = tuple[int, int, int, int]
Knot = tuple[float, float, float]  # seconds, metres, metres
Interval = tuple[int, int]


def rows(plan: ContactPlan) -> list[Row]:
    columns = (plan.sender, plan.receiver, plan.start, plan.end)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def path(*knots: Knot, gaps: tuple[int, ...] = ()) -> Trajectory:
    straight = Trajectory.of([(round(t * SECOND), x, y) for t, x, y in knots])
    gap = straight.gap.copy()
    gap[list(gaps)] = True
    return Trajectory(straight.times, straight.x, straight.y, gap)


def still(x: float, y: float, until: float = 1000.0) -> Trajectory:
    return path((0, x, y), (until, x, y))


def plan_of(*paths: Trajectory, reach: float | list[float], seconds: float) -> list[Row]:
    return rows(contact_plan(Motion(list(paths)), reach, round(seconds * SECOND)))


# Computed by hand -----------------------------------------------------------------------------------


def test_a_node_that_passes_another_is_in_range_for_a_chord() -> None:
    # On y = 6 at 2 m/s, range 10: the chord reaches from x = -8 to x = 8, i.e. 6 s to 14 s.
    passing = path((0, -20, 6), (20, 20, 6))
    assert plan_of(still(0, 0), passing, reach=10, seconds=20) == [(0, 1, 6_000_000, 14_000_001)]


def test_two_nodes_that_meet_head_on_close_at_the_sum_of_their_speeds() -> None:
    # 100 m apart, 3 + 1 m/s, range 10: 22.5 s to 27.5 s.
    one, other = path((0, 0, 0), (50, 150, 0)), path((0, 100, 0), (50, 50, 0))
    assert plan_of(one, other, reach=10, seconds=50) == [(0, 1, 22_500_000, 27_500_001)]


def test_crossing_times_between_two_microseconds_round_up_at_both_ends() -> None:
    # 3 m/s from x = -20, range 10: 10/3 s = 3 333 333.3 µs to 10 s, where the distance is still 10.
    assert plan_of(still(0, 0), path((0, -20, 0), (20, 40, 0)), reach=10, seconds=20) == [
        (0, 1, 3_333_334, 10_000_001)
    ]
    assert plan_of(still(0, 0), path((0, 20, 0), (20, -40, 0)), reach=10, seconds=20) == [
        (0, 1, 3_333_334, 10_000_001)
    ]
    assert plan_of(still(0, 0), path((0, -1, 0), (20, 59, 0)), reach=10, seconds=20) == [(0, 1, 0, 3_666_667)]


def test_a_tangent_touches_for_one_microsecond() -> None:
    assert plan_of(still(0, 0), path((0, -20, 10), (20, 20, 10)), reach=10, seconds=20) == [
        (0, 1, 10_000_000, 10_000_001)
    ]
    assert plan_of(still(0, 0), path((0, -20, 10.001), (20, 20, 10.001)), reach=10, seconds=20) == []
    # The tangent point exactly at a knot, at the first instant and at the last but one.
    knot = path((0, -20, 10), (10, 0, 10), (20, 20, 10))
    assert plan_of(still(0, 0), knot, reach=10, seconds=20) == [(0, 1, 10_000_000, 10_000_001)]
    assert plan_of(still(0, 0), path((0, 0, 10), (9, 20, 10)), reach=10, seconds=20) == [(0, 1, 0, 1)]
    assert plan_of(still(0, 0), knot, reach=10, seconds=10) == []


def test_a_tangent_in_rounded_numbers_is_no_long_contact() -> None:
    # 81.1 times the 3-4-5 triangle, the velocity at right angles to the distance: they touch at the start
    # and part. Rounding makes both the distance to the circle and the closing speed tiny, not zero.
    leaving = path((0, 243.29999999999998, 324.4), (59, 243.29999999999998 + 72, 324.4 - 54))
    pieces = Pieces.of(Motion([still(0, 0), leaving]), 59 * SECOND)
    speeds = np.array([1.2203389830508474e-06]), np.array([-9.152542372881356e-07])
    rounded = Pieces(pieces.node[1:], pieces.start[1:], pieces.end[1:], pieces.x[1:], pieces.y[1:], *speeds)
    start, end = pair_intervals(pieces.take(np.array([0])), rounded, 405.5)
    assert (start.tolist(), end.tolist()) == ([0], [1])


def test_an_absence_of_one_microsecond_parts_two_contacts() -> None:
    blinking = Trajectory(
        np.array([0, 500, 501, 1000]), np.zeros(4), np.zeros(4), np.array([False, True, False])
    )
    assert plan_of(still(0, 0), blinking, reach=1, seconds=1) == [(0, 1, 0, 500), (0, 1, 501, 1000)]


def test_a_contact_too_short_for_any_sampling_is_found() -> None:
    # 1 mm inside the range of 10 m at 20 m/s: a chord of 2 sqrt(10² - 9.999²) = 0.282836 m.
    fast = path((0, -20, 9.999), (2, 20, 9.999))
    ((_, _, start, end),) = plan_of(still(0, 0), fast, reach=10, seconds=2)
    half = (100 - 9.999**2) ** 0.5 / 20 * 1e6
    assert (start, end) == (int(1e6 - half) + 1, int(1e6 + half) + 1)
    assert end - start == pytest.approx(14_142, abs=2)


def test_parallel_nodes_keep_their_link_or_never_have_it() -> None:
    def beside(distance: float) -> Trajectory:
        return path((3, 30, distance), (40, 400, distance))

    walker = path((0, 0, 0), (7, 70, 0), (50, 500, 0))
    assert plan_of(walker, beside(9), reach=10, seconds=100) == [(0, 1, 3_000_000, 40_000_000)]
    assert plan_of(walker, beside(10), reach=10, seconds=100) == [(0, 1, 3_000_000, 40_000_000)]
    assert plan_of(walker, beside(10.0001), reach=10, seconds=100) == []


def test_oblique_parallel_paths_at_exactly_the_range_do_not_flicker() -> None:
    # 3-4-5: the distance vector (4, -3) is 5 m long and at right angles to the common velocity. One of
    # the two paths has many knots whose coordinates are rounded.
    one = path((0, 0.1, 0.7), (100, 30.1, 40.7))
    other = path(*[(t, 4.1 + 0.3 * t, -2.3 + 0.4 * t) for t in range(1, 99)])
    assert plan_of(one, other, reach=5, seconds=100) == [(0, 1, SECOND, 98 * SECOND)]


def test_nodes_at_rest_at_exactly_the_range_are_linked_for_all_time() -> None:
    assert plan_of(still(0, 0), still(3, 4), reach=5, seconds=60) == [(0, 1, 0, 60_000_000)]
    assert plan_of(still(0, 0), still(3, 4), reach=4.99999, seconds=60) == []
    assert plan_of(still(7, 7), still(7, 7), reach=0, seconds=1) == [(0, 1, 0, 1_000_000)]


def test_a_link_lasts_through_a_pause_and_across_knots_without_holes() -> None:
    # In at 10 s (x = -10), pause at x = 0 from 20 s to 50 s, out after 60 s (x = 10), at 1 m/s.
    visitor = path((0, -20, 0), (20, 0, 0), (50, 0, 0), (80, 30, 0))
    assert plan_of(still(0, 0), visitor, reach=10, seconds=80) == [(0, 1, 10_000_000, 60_000_001)]


def test_a_pause_exactly_on_the_circle_is_a_link() -> None:
    visitor = path((0, 20, 0), (10, 10, 0), (15, 10, 0), (25, 20, 0))
    assert plan_of(still(0, 0), visitor, reach=10, seconds=25) == [(0, 1, 10_000_000, 15_000_001)]


def test_absent_nodes_have_no_links() -> None:
    # Present from 5 s to 10 s, from 20 s to 30 s, and from 40 s on; the knot at 35 s is an instant.
    comes_and_goes = path(
        (5, 1, 0), (10, 1, 0), (20, 1, 0), (30, 1, 0), (35, 1, 0), (40, 1, 0), (45, 1, 0), gaps=(1, 3, 4)
    )
    expected = [(5, 10), (20, 30), (40, 45)]
    assert plan_of(still(0, 0), comes_and_goes, reach=10, seconds=100) == [
        (0, 1, start * SECOND, end * SECOND) for start, end in expected
    ]
    assert plan_of(still(0, 0), path((5, 1, 0)), reach=10, seconds=100) == []


def test_a_plan_ends_with_its_horizon_and_begins_at_zero() -> None:
    early = Trajectory.of([(-10 * SECOND, 0.0, 0.0), (60 * SECOND, 0.0, 0.0)])
    assert plan_of(early, early, reach=1, seconds=30) == [(0, 1, 0, 30_000_000)]
    assert plan_of(early, early, reach=1, seconds=0) == []


def test_the_sender_with_the_longer_range_is_heard_farther() -> None:
    # 1 m/s head-on past node 0: |x| <= 20 from 10 s to 50 s, |x| <= 10 from 20 s to 40 s.
    passing = path((0, -30, 0), (60, 30, 0))
    plan = contact_plan(Motion([still(0, 0), passing]), [20, 10], 60 * SECOND)
    assert plan.directed
    assert rows(plan) == [(0, 1, 10_000_000, 50_000_001), (1, 0, 20_000_000, 40_000_001)]


def test_equal_ranges_in_a_list_give_the_undirected_plan() -> None:
    motion = random_motion(seed=5, nodes=6)
    plan = contact_plan(motion, [150.0] * 6, 60 * SECOND)
    assert not plan.directed and len(plan) > 0
    assert rows(plan) == rows(contact_plan(motion, 150, 60 * SECOND))


def test_impossible_ranges_walls_and_durations_are_named() -> None:
    pair = Motion([still(0, 0), still(1, 0)])
    with pytest.raises(ScenarioError, match=r"world\.range: 3 ranges for 2 nodes"):
        contact_plan(pair, [1, 2, 3], SECOND)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ScenarioError, match=r"world\.range: .*allowed"):
            contact_plan(pair, [1.0, wrong], SECOND)
    with pytest.raises(ScenarioError, match=r"world\.walls: .*rows x1"):
        contact_plan(pair, 1, SECOND, np.zeros((2, 3)))
    with pytest.raises(ScenarioError, match=r"scenario\.duration"):
        contact_plan(pair, 1, -1)


def test_no_nodes_or_one_node_give_an_empty_plan() -> None:
    assert rows(contact_plan(Motion([]), 10, SECOND)) == []
    assert rows(contact_plan(Motion([still(0, 0)]), 10, SECOND)) == []


def test_the_building_block_answers_row_by_row() -> None:
    motion = Motion([still(0, 0), path((0, -20, 6), (20, 20, 6)), path((0, 50, 0), (20, 90, 0))])
    pieces = Pieces.of(motion, 100 * SECOND)
    at_rest, passing, leaving = (np.flatnonzero(pieces.node == node) for node in range(3))
    first = pieces.take(np.concatenate((at_rest, passing, at_rest)))
    second = pieces.take(np.concatenate((passing, at_rest, leaving)))
    start, end = pair_intervals(first, second, 10.0)
    assert start[:2].tolist() == [6_000_000] * 2 and end[:2].tolist() == [14_000_001] * 2
    assert start[2] >= end[2]
    start, end = pair_intervals(first, second, np.array([6.0, 10.0, 60.0]))
    assert start.tolist() == [10_000_000, 6_000_000, 0]
    assert end.tolist() == [10_000_001, 14_000_001, 5_000_001]


def test_pieces_of_different_times_never_meet() -> None:
    early, late = path((0, 0, 0), (10, 5, 0)), path((10, 0, 0), (20, 5, 0), (90, 6, 0))
    pieces = Pieces.of(Motion([early, late]), 100 * SECOND)
    start, end = pair_intervals(pieces.take(np.array([0, 0])), pieces.take(np.array([1, 2])), 1000.0)
    assert np.all(start >= end)


# Walls, by hand --------------------------------------------------------------------------------------


def walled(*paths: Trajectory, reach: float, seconds: float, walls: Sequence[Sequence[float]]) -> list[Row]:
    plan = contact_plan(
        Motion(list(paths)), reach, round(seconds * SECOND), np.array(walls, dtype=np.float64)
    )
    return rows(plan)


def test_a_wall_throws_a_shadow() -> None:
    # The lamp at the origin, the wall at x = 10 for |y| <= 5, the walker on x = 20 at 1 m/s: the shadow
    # there is |y| < 10, i.e. 10 s to 30 s; the range 25 holds for |y| <= 15, i.e. 5 s to 35 s.
    walker = path((0, 20, -20), (40, 20, 20))
    wall = (10.0, -5.0, 10.0, 5.0)
    expected = [(0, 1, 5_000_000, 10_000_000), (0, 1, 30_000_000, 35_000_001)]
    assert walled(still(0, 0), walker, reach=25, seconds=40, walls=[wall]) == expected
    turned = (10.0, 5.0, 10.0, -5.0)
    assert walled(walker, still(0, 0), reach=25, seconds=40, walls=[turned, wall]) == expected


def test_a_shadow_between_two_moving_nodes() -> None:
    # On x = -10 and x = 10, both up at 1 and 3 m/s from y = -20: the line crosses x = 0 at y = -20 + 2 t.
    # The wall on x = 0 from y = 0 to y = 10 stands between them from 10 s to 15 s.
    one, other = path((0, -10, -20), (30, -10, 10)), path((0, 10, -20), (30, 10, 70))
    assert walled(one, other, reach=1000, seconds=30, walls=[(0, 0, 0, 10)]) == [
        (0, 1, 0, 10_000_000),
        (0, 1, 15_000_000, 30_000_000),
    ]


def test_a_sight_line_that_swings_about_a_point() -> None:
    # A goes right on y = 0, B left on y = 20, so the line always passes (0, 10). With s = 20 s - t, B is
    # at x = s and the line crosses y = 12 at x = s / 5. A wall there from x = 1 to x = 3 is in the way
    # for s from 15 down to 5, i.e. 5 s to 15 s; its mirror image from 25 s to 35 s.
    a, b = path((0, -20, 0), (40, 20, 0)), path((0, 20, 20), (40, -20, 20))
    right, left = (1, 12, 3, 12), (-3, 12, -1, 12)
    assert walled(a, b, reach=1000, seconds=40, walls=[right]) == [
        (0, 1, 0, 5_000_000),
        (0, 1, 15_000_000, 40_000_000),
    ]
    assert walled(a, b, reach=1000, seconds=40, walls=[right, left]) == [
        (0, 1, 0, 5_000_000),
        (0, 1, 15_000_000, 25_000_000),
        (0, 1, 35_000_000, 40_000_000),
    ]


def test_walking_through_a_wall_opens_the_view() -> None:
    # From x = 20 to x = 0 at 1 m/s; the wall is at x = 10.
    walker = path((0, 20, 0), (20, 0, 0))
    assert walled(still(0, 0), walker, reach=100, seconds=20, walls=[(10, -5, 10, 5)]) == [
        (0, 1, 10_000_000, 20_000_000)
    ]


def test_walls_that_share_a_corner_have_no_slit() -> None:
    # The corner is passed at 20 s exactly; and a sight line at rest through two corners of a building.
    walker = path((0, 20, -20), (40, 20, 20))
    meeting = [(10.0, -9.0, 10.0, 0.0), (10.0, 0.0, 11.0, 9.0)]
    assert walled(still(0, 0), walker, reach=1000, seconds=40, walls=meeting) == [
        (0, 1, 0, 2_000_000),
        (0, 1, 20 * SECOND + round(9 / 11 * 20 * SECOND) + 1, 40_000_000),
    ]
    building = [(1, 1, 2, 1), (2, 1, 2, 2), (2, 2, 1, 2), (1, 2, 1, 1)]
    assert walled(still(0, 0), still(3, 3), reach=100, seconds=9, walls=building) == []
    assert walled(still(0, 3), still(3, 0), reach=100, seconds=9, walls=building) == []


def test_a_sight_line_that_moves_along_itself_past_a_walls_end_does_not_flicker() -> None:
    # Both nodes walk on one oblique line that goes through the end of the wall, up to rounding. The end is
    # on the line, so it counts as left of it: a wall to the left is only touched, one to the right hides.
    def on_line(share: float) -> tuple[float, float]:
        return 0.1 + 7.3 * share, 0.7 + 3.1 * share

    back = path(*[(t, *on_line(0.01 * t)) for t in range(0, 100, 7)])
    ahead = path(*[(t, *on_line(20 + 0.03 * t)) for t in range(0, 100, 9)])
    x, y = on_line(10.3)
    both = min(98, 99) * SECOND
    assert walled(back, ahead, reach=1e4, seconds=200, walls=[(x, y, x, y + 50)]) == [(0, 1, 0, both)]
    assert walled(back, ahead, reach=1e4, seconds=200, walls=[(x, y, x, y - 50)]) == []


def test_nodes_along_a_wall_or_beside_it_see_each_other() -> None:
    assert len(walled(still(0, 0), still(9, 0), reach=100, seconds=9, walls=[(2, 0, 5, 0)])) == 1
    assert len(walled(still(0, 1), still(9, 1), reach=100, seconds=9, walls=[(2, 0, 5, 0)])) == 1
    assert len(walled(still(0, 1), still(9, -1), reach=100, seconds=9, walls=[(2, 0, 5, 0)])) == 0


def test_a_node_that_leans_on_a_wall_is_on_one_side_of_it() -> None:
    leaning, above, below = still(5, 0), still(5, 3), still(4, -3)
    wall = (0.0, 0.0, 9.0, 0.0)
    seen = walled(leaning, above, below, reach=100, seconds=9, walls=[wall])
    assert seen == [(0, 1, 0, 9_000_000)]


# An exact reference -------------------------------------------------------------------------------


def random_motion(seed: int, nodes: int, seconds: int = 60, side: float = 500.0) -> Motion:
    """Legs at 1-20 m/s, pauses, gaps, nodes that come late or leave early."""
    random = np.random.default_rng(seed)
    paths = []
    for _ in range(nodes):
        time = int(random.integers(-5, 10)) * SECOND
        until = int(random.integers(seconds // 2, seconds + 10)) * SECOND
        x, y = random.uniform(0, side, 2)
        times, xs, ys, gap = [time], [x], [y], []
        while time < until:
            kind = random.random()
            if kind < 0.7:
                target_x, target_y = random.uniform(0, side, 2)
                distance = ((target_x - x) ** 2 + (target_y - y) ** 2) ** 0.5
                time += max(1, round(distance / random.uniform(1, 20) * SECOND))
                x, y = target_x, target_y
            else:
                time += int(random.integers(1, 10 * SECOND))
            times.append(time)
            xs.append(x)
            ys.append(y)
            gap.append(kind > 0.9)
        paths.append(
            Trajectory(
                np.array(times, dtype=np.int64), np.array(xs), np.array(ys), np.array(gap, dtype=np.bool_)
            )
        )
    return Motion(paths)


class Exact:
    """The squared distance of two paths in rational numbers, from the knots as they are."""

    def __init__(self, one: Trajectory, other: Trajectory) -> None:
        self._paths = (one, other)

    def squared(self, time: int) -> Fraction | None:
        """None while one of the two is absent; pieces are closed-open."""
        curve = self._curve(time)
        return None if curve is None else curve[2]

    def intervals(self, reach: float, duration: int) -> list[Interval]:
        """By integer bisection: between two knots the squared distance is convex."""
        times = {int(t) for p in self._paths for t in p.times if 0 < t < duration}
        found: list[Interval] = []
        for begin, end in pairwise(sorted({0, duration} | times)):
            curve = self._curve(begin)
            if curve is None:
                continue
            square, twice, constant = whole([*curve[:2], curve[2] - Fraction(reach) ** 2])

            def outside(
                time: int, begin: int = begin, curve: tuple[int, ...] = (square, twice, constant)
            ) -> bool:
                since = time - begin
                return (curve[0] * since + curve[1]) * since + curve[2] > 0

            lowest = begin if square == 0 else begin + -twice // (2 * square)
            around = [min(max(time, begin), end - 1) for time in (lowest, lowest + 1)]
            inside = [time for time in around if not outside(time)]
            if not inside:
                continue
            start, stop = bisected(begin - 1, inside[0], outside), bisected(end, inside[0], outside)
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], stop + 1)
            else:
                found.append((start, stop + 1))
        return found

    def _curve(self, time: int) -> tuple[Fraction, Fraction, Fraction] | None:
        """The coefficients of t², t and 1, where t counts from `time`."""
        lines = []
        for trajectory in self._paths:
            k = int(np.searchsorted(trajectory.times, time, side="right")) - 1
            if k < 0 or k >= len(trajectory.gap) or trajectory.gap[k]:
                return None
            start, end = int(trajectory.times[k]), int(trajectory.times[k + 1])
            for axis in (trajectory.x, trajectory.y):
                here, there = Fraction(float(axis[k])), Fraction(float(axis[k + 1]))
                speed = (there - here) / (end - start)
                lines.append((here + speed * (time - start), speed))
        (ax, avx), (ay, avy), (bx, bvx), (by, bvy) = lines
        x, y, vx, vy = bx - ax, by - ay, bvx - avx, bvy - avy
        return vx * vx + vy * vy, 2 * (x * vx + y * vy), x * x + y * y


def whole(numbers: list[Fraction]) -> list[int]:
    """The same ratios in integers, whose comparisons are fast."""
    common = lcm(*(number.denominator for number in numbers))
    return [int(number * common) for number in numbers]


def bisected(far: int, near: int, outside: Callable[[int], bool]) -> int:
    """The integer nearest to `far` that is not outside; `near` is not, `far` itself does not count."""
    while abs(far - near) > 1:
        middle = (far + near) // 2
        far, near = (middle, near) if outside(middle) else (far, middle)
    return near


SLACK = 1e-7  # metres: 40 m/s for a few nanoseconds, and the rounding of coordinates


def assert_same(
    found: list[Interval], expected: list[Interval], exact: Exact, reach: float, note: object
) -> None:
    """Equal, but for instants at which the distance is within `SLACK` of the range."""
    marks = sorted({t for interval in found + expected for t in interval})
    for begin, end in pairwise(marks):
        linked = [any(s <= begin < e for s, e in some) for some in (found, expected)]
        if linked[0] == linked[1]:
            continue
        for time in (begin, end - 1):
            squared = exact.squared(time)
            assert squared is not None, (note, begin, end, linked)
            assert abs(float(squared) ** 0.5 - reach) < SLACK, (note, begin, end, linked)


def of_pair(plan: ContactPlan, sender: int, receiver: int) -> list[Interval]:
    return [(start, end) for a, b, start, end in rows(plan) if (a, b) == (sender, receiver)]


@pytest.mark.parametrize("seed", range(12))
def test_random_motion_agrees_with_rational_arithmetic(seed: int) -> None:
    motion, reach = random_motion(seed, nodes=6), 150.0
    plan = contact_plan(motion, reach, 60 * SECOND)
    assert len(plan) > 2
    for i, j in combinations(range(6), 2):
        exact = Exact(motion.trajectories[i], motion.trajectories[j])
        expected = exact.intervals(reach, 60 * SECOND)
        found = of_pair(plan, i, j)
        assert len(found) == len(expected)
        assert_same(found, expected, exact, reach, (seed, i, j))


def test_random_motion_with_own_ranges_agrees_with_rational_arithmetic() -> None:
    motion = random_motion(seed=77, nodes=5)
    reach = [50.0, 100.0, 150.0, 200.0, 300.0]
    plan = contact_plan(motion, reach, 60 * SECOND)
    for i, j in ((i, j) for i in range(5) for j in range(5) if i != j):
        exact = Exact(motion.trajectories[i], motion.trajectories[j])
        assert_same(of_pair(plan, i, j), exact.intervals(reach[i], 60 * SECOND), exact, reach[i], (i, j))


def lattice_path(times: list[int], places: list[tuple[int, int]], gaps: list[bool]) -> Trajectory:
    knots = list(zip(np.cumsum(times).tolist(), places, strict=False))
    straight = Trajectory.of([(t * SECOND, float(x), float(y)) for t, (x, y) in knots])
    return Trajectory(
        straight.times, straight.x, straight.y, np.array(gaps[: len(knots) - 1], dtype=np.bool_)
    )


# Small whole numbers make ties common: tangents, pauses on the circle, equal velocities, knots at the
# same instant. Gaps are rare enough to leave something to meet.
lattice_paths = st.integers(1, 6).flatmap(
    lambda knots: st.builds(
        lattice_path,
        st.lists(st.integers(1, 6), min_size=knots, max_size=knots),
        st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=knots, max_size=knots),
        st.lists(st.sampled_from([False, False, False, True]), min_size=knots, max_size=knots),
    )
)


@settings(max_examples=100, deadline=None)
@given(lattice_paths, lattice_paths, st.integers(0, 10))
def test_motion_on_a_lattice_agrees_with_rational_arithmetic(
    one: Trajectory, other: Trajectory, reach: int
) -> None:
    plan = contact_plan(Motion([one, other]), reach, 30 * SECOND)
    exact = Exact(one, other)
    assert_same(of_pair(plan, 0, 1), exact.intervals(reach, 30 * SECOND), exact, reach, None)


# Dense sampling: finds what both the formula and the search for candidates might lose -------------------

Array = npt.NDArray[np.float64]
STEP = 10_000


def sampled(motion: Motion, times: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Positions, `nodes × times`; NaN while absent."""
    x, y = (np.full((motion.nodes, len(times)), np.nan) for _ in range(2))
    for node, trajectory in enumerate(motion.trajectories):
        for k in np.flatnonzero(~trajectory.gap):
            span = slice(*np.searchsorted(times, trajectory.times[k : k + 2]))
            ends = trajectory.times[k : k + 2].astype(np.float64)
            x[node, span] = np.interp(times[span], ends, trajectory.x[k : k + 2])
            y[node, span] = np.interp(times[span], ends, trajectory.y[k : k + 2])
    return x, y


def linked_at(plan: ContactPlan, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    linked = np.zeros((plan.nodes, plan.nodes, len(times)), dtype=np.bool_)
    for a, b, start, end in rows(plan):
        linked[a, b, slice(*np.searchsorted(times, [start, end]))] = True
    return linked


def crosses(ax: Array, ay: Array, bx: Array, by: Array, wall: Array) -> Array:
    """1 where AB crosses the wall, 0 where not, NaN where it is too close to tell.

    By solving A + s (B - A) = P + u (Q - P), unlike the orientations in the code under test.
    """
    px, py, qx, qy = wall
    dx, dy, wx, wy = bx - ax, by - ay, qx - px, qy - py
    cross = dx * wy - dy * wx
    s = ((px - ax) * wy - (py - ay) * wx) / cross
    u = ((px - ax) * dy - (py - ay) * dx) / cross
    inside = np.minimum(np.minimum(s, 1 - s), np.minimum(u, 1 - u))
    answer: Array = np.where(np.abs(inside) < 1e-8, np.nan, inside > 0)
    return answer


@pytest.mark.parametrize("seed", range(3))
def test_every_sample_of_a_crowd_agrees_with_the_plan(seed: int) -> None:
    motion, reach, duration = random_motion(100 + seed, nodes=40, side=1500.0), 120.0, 60 * SECOND
    plan = contact_plan(motion, reach, duration)
    times = np.arange(0, duration, STEP)
    x, y = sampled(motion, times)
    linked = linked_at(plan, times)
    for i, j in combinations(range(motion.nodes), 2):
        distance = np.sqrt((x[i] - x[j]) ** 2 + (y[i] - y[j]) ** 2)
        clear = ~(np.abs(distance - reach) < SLACK)
        assert np.array_equal((distance <= reach)[clear], linked[i, j][clear]), (seed, i, j)


@pytest.mark.parametrize("seed", range(6))
def test_every_sample_behind_walls_agrees_with_the_plan(seed: int) -> None:
    motion, reach, duration = random_motion(200 + seed, nodes=8), 300.0, 60 * SECOND
    random = np.random.default_rng(seed)
    begins = random.uniform(50, 450, (12, 2))
    walls = np.concatenate((begins, begins + random.uniform(-100, 100, (12, 2))), axis=1)
    plan = contact_plan(motion, reach, duration, walls)
    open_plan = contact_plan(motion, reach, duration)
    # Beside the regular samples: just inside and just outside of every change.
    changes = np.concatenate((plan.start, plan.end))
    times = np.unique(np.concatenate((np.arange(0, duration, STEP), changes, changes - 1)))
    times = times[(times >= 0) & (times < duration)]
    x, y = sampled(motion, times)
    linked, in_range = linked_at(plan, times), linked_at(open_plan, times)
    hidden = 0
    for i, j in combinations(range(motion.nodes), 2):
        with np.errstate(invalid="ignore", divide="ignore"):
            blocked = np.array([crosses(x[i], y[i], x[j], y[j], wall) for wall in walls]).max(axis=0)
        clear = ~in_range[i, j] | ~np.isnan(blocked)
        assert np.mean(clear) > 0.9
        seen = in_range[i, j] & (blocked == 0)
        assert np.array_equal(seen[clear], linked[i, j][clear]), (seed, i, j)
        hidden += int(np.sum(in_range[i, j] & (blocked == 1)))
    assert hidden > 1000, "else the walls proved nothing"


def test_walls_hide_both_directions_of_a_link_alike() -> None:
    motion = random_motion(seed=9, nodes=8)
    walls = np.array([[100.0, 100.0, 400.0, 420.0], [50.0, 400.0, 450.0, 60.0]])
    duration = 60 * SECOND
    directed = contact_plan(motion, [300.0] * 7 + [299.0], duration, walls)
    undirected = contact_plan(motion, 300.0, duration, walls)
    assert len(undirected) > 10 and rows(undirected) != rows(contact_plan(motion, 300.0, duration))
    there = [row for row in rows(directed) if row[0] < row[1] < 7]
    back = sorted((b, a, start, end) for a, b, start, end in rows(directed) if b < a < 7)
    assert sorted(there) == back == sorted(row for row in rows(undirected) if row[1] < 7)


# Symmetries ------------------------------------------------------------------------------------------

WALLS = np.array([[120.0, 130.0, 380.0, 400.0], [60.0, 410.0, 440.0, 90.0], [250.0, 0.0, 240.0, 200.0]])
MOVED = random_motion(seed=31, nodes=12)
HORIZON = 60 * SECOND


def reference() -> ContactPlan:
    return contact_plan(MOVED, 200.0, HORIZON, WALLS)


def mapped(x_from: tuple[float, float], y_from: tuple[float, float]) -> tuple[Motion, Array]:
    """The same world with `(x, y)` replaced by linear forms of both."""
    matrix = np.array([x_from, y_from])
    paths = []
    for trajectory in MOVED.trajectories:
        x, y = matrix[:, :1] * trajectory.x + matrix[:, 1:] * trajectory.y
        paths.append(Trajectory(trajectory.times, x, y, trajectory.gap))
    walls = np.concatenate((WALLS[:, :2] @ matrix.T, WALLS[:, 2:] @ matrix.T), axis=1)
    return Motion(paths), walls


def test_the_numbering_of_the_nodes_does_not_matter() -> None:
    order = [5, 2, 11, 0, 7, 9, 1, 10, 3, 8, 6, 4]
    renumbered = Motion([MOVED.trajectories[node] for node in order])
    plan = contact_plan(renumbered, 200.0, HORIZON, WALLS)
    back = [(order[a], order[b], start, end) for a, b, start, end in rows(plan)]
    assert rows(ContactPlan.of(12, back)) == rows(reference())


def test_turned_mirrored_and_doubled_worlds_have_the_same_plan() -> None:
    # Signs, the exchange of axes and powers of two are exact in binary, so these are equal to the bit.
    expected = rows(reference())
    assert len(expected) > 40
    for matrix, scale in ((((0, -1), (1, 0)), 1.0), (((-1, 0), (0, 1)), 1.0), (((2, 0), (0, 2)), 2.0)):
        motion, walls = mapped(*matrix)
        assert rows(contact_plan(motion, 200.0 * scale, HORIZON, walls)) == expected


def assert_close(found: ContactPlan, expected: list[Row]) -> None:
    """The same contacts, each end at most a microsecond off."""
    found_rows, expected = sorted(rows(found)), sorted(expected)
    assert [row[:2] for row in found_rows] == [row[:2] for row in expected]
    for row, other in zip(found_rows, expected, strict=True):
        assert abs(row[2] - other[2]) <= 1 and abs(row[3] - other[3]) <= 1, (row, other)


def test_a_translated_world_has_the_same_plan() -> None:
    paths = [Trajectory(p.times, p.x + 4096.5, p.y - 1000.25, p.gap) for p in MOVED.trajectories]
    walls = WALLS + np.array([4096.5, -1000.25] * 2)
    assert_close(contact_plan(Motion(paths), 200.0, HORIZON, walls), rows(reference()))


def test_a_world_run_backwards_has_the_mirrored_plan() -> None:
    paths = [
        Trajectory(HORIZON - p.times[::-1], p.x[::-1].copy(), p.y[::-1].copy(), p.gap[::-1].copy())
        for p in MOVED.trajectories
    ]
    mirrored = [(a, b, HORIZON - end, HORIZON - start) for a, b, start, end in rows(reference())]
    assert_close(contact_plan(Motion(paths), 200.0, HORIZON, WALLS), mirrored)


def test_a_later_clock_gives_the_same_plan_later() -> None:
    day = 86_400 * SECOND
    late = contact_plan(MOVED.shifted(day), 200.0, HORIZON + day, WALLS)
    whole = contact_plan(MOVED.shifted(10 * SECOND), 200.0, HORIZON + 10 * SECOND, WALLS)
    shifted_back = [(a, b, start - day, end - day) for a, b, start, end in rows(late)]
    assert shifted_back == [(a, b, s - 10 * SECOND, e - 10 * SECOND) for a, b, s, e in rows(whole)]


# Knots, windows, chunks: how the work is cut must not show ----------------------------------------------


def split(trajectory: Trajectory, parts: int) -> Trajectory:
    """The same path with each leg cut into `parts`."""
    times, x, y, gap = [], [], [], []
    for k in range(len(trajectory.gap)):
        start, end = int(trajectory.times[k]), int(trajectory.times[k + 1])
        pieces = 1 if trajectory.gap[k] else min(parts, end - start)
        for part in range(pieces):
            time = start + (end - start) * part // pieces
            share = (time - start) / (end - start)
            times.append(time)
            x.append(float(trajectory.x[k] + (trajectory.x[k + 1] - trajectory.x[k]) * share))
            y.append(float(trajectory.y[k] + (trajectory.y[k + 1] - trajectory.y[k]) * share))
            gap.append(bool(trajectory.gap[k]))
    times.append(int(trajectory.times[-1]))
    x.append(float(trajectory.x[-1]))
    y.append(float(trajectory.y[-1]))
    return Trajectory(
        np.array(times, dtype=np.int64), np.array(x), np.array(y), np.array(gap, dtype=np.bool_)
    )


@pytest.mark.parametrize("parts", [2, 7, 60])
def test_knots_on_a_straight_leg_change_nothing(parts: int) -> None:
    cut = Motion([split(trajectory, parts) for trajectory in MOVED.trajectories])
    assert_close(contact_plan(cut, 200.0, HORIZON, WALLS), rows(reference()))


def test_knots_with_exact_coordinates_change_nothing_at_all() -> None:
    visitor = path((0, -64, 3), (64, 64, 3))
    cut = path(*[(k / 4, k / 2 - 64, 3) for k in range(257)])
    whole = plan_of(still(0, 0), visitor, reach=48, seconds=64)
    assert plan_of(still(0, 0), cut, reach=48, seconds=64) == whole
    # x² + 9 = 48²: x = ±47.906158, t = 32 ± 23.953079 s.
    root = (48**2 - 9) ** 0.5 / 2 * 1e6
    expected = [(0, 1, int(32e6 - root) + 1, int(32e6 + root) + 1)]
    assert whole == expected


@pytest.mark.parametrize(("length", "chunk"), [(200_000, 1 << 17), (3_333_333, 7), (10**9, 50)])
def test_windows_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, length: int, chunk: int) -> None:
    expected = rows(reference())
    monkeypatch.setattr(candidates, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(candidates, "window_length", lambda *_: length)
    assert rows(reference()) == expected


def test_strips_of_a_tall_area_lose_and_repeat_nothing() -> None:
    # 200 nodes in an area of 40 ranges by 40: many strips; the reference compares every pair.
    motion, reach, duration = random_motion(3, nodes=200, seconds=30, side=2000.0), 50.0, 30 * SECOND
    pieces = Pieces.of(motion, duration)
    i, j = np.triu_indices(len(pieces), 1)
    different = pieces.node[i] != pieces.node[j]
    first, second = pieces.take(i[different]), pieces.take(j[different])
    start, end = pair_intervals(first, second, reach)
    start, end = np.maximum(start, 0), np.minimum(end, duration)
    met = start < end
    every = np.stack((first.node, second.node, start, end), axis=1)[met]
    plan = contact_plan(motion, reach, duration)
    assert len(plan) > 200
    assert rows(plan) == rows(ContactPlan.of(200, [tuple(row) for row in every.tolist()]))
