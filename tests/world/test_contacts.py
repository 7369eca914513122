"""The contact plan's normal form."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.world.contacts import ContactPlan, joined

Row = tuple[int, int, int, int]


def rows(plan: ContactPlan) -> list[Row]:
    columns = (plan.sender, plan.receiver, plan.start, plan.end)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_touching_and_overlapping_intervals_of_a_pair_become_one() -> None:
    plan = ContactPlan.of(3, [(0, 1, 10, 20), (0, 1, 0, 10), (0, 1, 15, 18), (0, 1, 30, 40)])
    assert rows(plan) == [(0, 1, 0, 20), (0, 1, 30, 40)]


def test_an_interval_inside_an_earlier_longer_one_does_not_shorten_it() -> None:
    plan = ContactPlan.of(2, [(0, 1, 0, 100), (0, 1, 10, 20), (0, 1, 90, 95), (0, 1, 99, 120)])
    assert rows(plan) == [(0, 1, 0, 120)]


def test_a_long_interval_of_one_pair_does_not_swallow_the_next_pairs() -> None:
    plan = ContactPlan.of(3, [(0, 1, 0, 1000), (0, 2, 5, 6), (1, 2, 3, 4)])
    assert rows(plan) == [(0, 1, 0, 1000), (1, 2, 3, 4), (0, 2, 5, 6)]


def test_empty_intervals_and_links_to_oneself_are_left_out() -> None:
    assert rows(ContactPlan.of(3, [(0, 1, 5, 5), (0, 1, 9, 7), (2, 2, 0, 9)])) == []


def test_an_undirected_plan_orders_its_pairs_and_joins_both_spellings() -> None:
    assert rows(ContactPlan.of(4, [(3, 1, 0, 5), (1, 3, 5, 8)])) == [(1, 3, 0, 8)]


def test_a_directed_plan_keeps_both_directions_apart() -> None:
    plan = ContactPlan.of(4, [(3, 1, 0, 5), (1, 3, 5, 8)], directed=True)
    assert rows(plan) == [(3, 1, 0, 5), (1, 3, 5, 8)]
    assert plan.directed


def test_rows_are_sorted_by_start_sender_receiver() -> None:
    given_rows = [(1, 2, 7, 9), (0, 3, 7, 8), (0, 2, 7, 9), (2, 3, 1, 2)]
    assert rows(ContactPlan.of(4, given_rows)) == [(2, 3, 1, 2), (0, 2, 7, 9), (0, 3, 7, 8), (1, 2, 7, 9)]


def test_times_may_be_negative_or_of_any_epoch() -> None:
    epoch = 1_700_000_000_000_000
    plan = ContactPlan.of(3, [(0, 1, -9, -3), (0, 1, -3, 2), (1, 2, epoch, epoch + 5)])
    assert rows(plan) == [(0, 1, -9, 2), (1, 2, epoch, epoch + 5)]


def test_a_plan_without_rows_is_a_plan() -> None:
    plan = ContactPlan.of(2, [])
    assert len(plan) == 0


def test_the_directions_of_a_directed_plan_stay_apart() -> None:
    plan = ContactPlan.of(3, [(2, 0, 0, 10), (2, 1, 0, 10), (0, 2, 5, 10)], directed=True)
    assert rows(plan) == [(2, 0, 0, 10), (2, 1, 0, 10), (0, 2, 5, 10)]


row = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 30), st.integers(0, 30))


@settings(max_examples=200, deadline=None)
@given(st.lists(row, max_size=12), st.booleans())
def test_the_normal_form_links_the_same_pairs_at_the_same_instants(
    given_rows: list[Row], directed: bool
) -> None:
    def instants(some: list[Row]) -> list[tuple[int, int, int]]:
        links = {(a, b, t) for a, b, start, end in some for t in range(start, end) if a != b}
        return sorted(links if directed else {(min(a, b), max(a, b), t) for a, b, t in links})

    plan = ContactPlan.of(4, given_rows, directed=directed)
    assert instants(rows(plan)) == instants(given_rows)
    by_pair = sorted(rows(plan))
    for (a, b, _, end), (c, d, start, _) in pairwise(by_pair):
        assert (a, b) != (c, d) or end < start, "disjoint and not adjacent"
    again = joined(4, plan.sender, plan.receiver, plan.start, plan.end, directed=directed)
    assert rows(again) == rows(plan)
    assert all(column.dtype == np.int64 for column in (plan.sender, plan.receiver, plan.start, plan.end))


def test_joining_many_pairs_over_many_years_does_not_overflow() -> None:
    """Pairs times microseconds beyond 2**63: 400 pairs, each over a billion seconds."""
    year_like = 10**15
    rows = [(a, b, t, t + 2 * year_like) for a in range(30) for b in range(a) for t in (0, year_like)]
    plan = ContactPlan.of(2**31, rows)
    assert len(plan) == 435
    assert set(plan.start.tolist()) == {0} and set(plan.end.tolist()) == {3 * year_like}
