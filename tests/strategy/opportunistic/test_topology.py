"""The Broker Topology Table and the routes on it, against figure 3 and an independent search."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from roamcast.strategy.opportunistic.rows import WITHDRAWN, Row, RowChange
from roamcast.strategy.opportunistic.topology import Topology
from roamcast.units import SECOND

A, B, C, D = 1, 2, 3, 4


def view_of(own: int, *rows: Row) -> Topology:
    view = Topology(own)
    for row in rows:
        view.update(row, 0)
    return view


def test_figure_3_a_new_link_is_propagated_and_shortens_the_way() -> None:
    first = [Row(A, 1, (B, 1)), Row(B, 1, (A, 1, C, 2, D, 2)), Row(C, 1, (B, 2)), Row(D, 1, (B, 2))]
    views = {own: view_of(own, *first) for own in (A, B, C, D)}
    assert views[C].route(D) == ((C, B, D), 4)
    # C's period comes first: it finds D, and tells B and D.
    views[C].update(Row(C, 2, (B, 2, D, 3)), 1)
    told = views[C].news({A: 1, B: 1, C: 1, D: 1})
    assert [row.broker for row in told] == [C]
    for receiver in (B, D):
        assert all(views[receiver].update(row, 2) for row in told)
    assert views[C].route(D) == ((C, D), 3) and views[A].route(D) == ((A, B, D), 3)
    # Then B's: it has lost D, and tells A and C that and what C had told.
    views[B].update(Row(B, 2, (A, 1, C, 2), ring=2), 3)
    told = views[B].news({A: 1, B: 1, C: 1, D: 1})
    assert [row.broker for row in told] == [B, C]
    for row in told:
        views[A].update(row, 4)
    assert views[A].route(D) == ((A, B, C, D), 6)
    # D's view is outdated until C or its own period tells it.
    assert views[D].route(A) == ((D, B, A), 3)


def test_the_later_word_of_two_counts_unless_it_did_not_look_so_far() -> None:
    view = view_of(A, Row(A, 1, (B, 3), ring=3))
    view.update(Row(B, 1, (C, 1), ring=1), 1)  # B looked one hop far and cannot have seen A
    assert view.route(B) == ((A, B), 3)
    view.update(Row(B, 2, (C, 1), ring=3), 2)  # now it has looked
    assert view.route(B) is None
    view.update(Row(A, 2, (B, 2), ring=2), 3)
    assert view.route(B) == ((A, B), 2)


def test_only_news_counts_and_only_once() -> None:
    view = view_of(A, Row(B, 5, (A, 1)))
    assert not view.update(Row(B, 5, ()), 0) and not view.update(Row(B, 4, ()), 0)
    assert view.news({B: 5}) == []
    assert view.update(Row(B, 6, ()), 0)
    assert view.news({B: 5}) == [Row(B, 6, ())] == view.news({}) and view.news({B: 6}) == []
    assert view.brokers() == []


def test_a_broker_that_is_silent_for_long_is_forgotten() -> None:
    view = view_of(A, Row(A, 1, (B, 1)), Row(B, 1, (A, 1, C, 1)))
    view.update(Row(C, 1, (B, 1)), 5 * SECOND)
    view.forget_silent(SECOND)
    assert [row.broker for row in view.rows()] == [A, C]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5)), max_size=30))
def test_routes_are_as_short_as_an_independent_search_says(links: list[tuple[int, int, int]]) -> None:
    distances = np.full((10, 10), np.inf)
    stated: dict[int, dict[int, int]] = {node: {} for node in range(10)}
    for one, other, distance in links:
        if one != other:
            stated[one][other] = distance
    for one, others in stated.items():
        for other, distance in others.items():
            # All rows are heard at once, in the order of their numbers: nobody's word is later.
            distances[one, other] = distances[other, one] = distance
    view = view_of(
        0,
        *(
            Row(node, 1, tuple(number for pair in sorted(others.items()) for number in pair))
            for node, others in stated.items()
        ),
    )
    lengths = shortest_path(distances, directed=False)[0]
    for node in range(1, 10):
        route = view.route(node)
        if route is None:
            assert np.isinf(lengths[node])
        else:
            assert route.hops == lengths[node]
            assert sum(distances[a, b] for a, b in pairwise(route.path)) == route.hops


def reference_links(rows: dict[int, tuple[Row, int]]) -> dict[tuple[int, int], int]:
    """The overlay from all rows and the times they were made, by the rule as it is written."""
    links = {}
    for one in range(8):
        for other in range(one + 1, 8):
            words = []  # what each end says, the later one first
            for here, there in ((one, other), (other, one)):
                if here in rows:
                    row, made_at = rows[here]
                    words.append((made_at, here, dict(row.neighbours()).get(there), row.ring))
            words.sort(reverse=True)
            if any(ring == WITHDRAWN for _, _, _, ring in words):
                continue
            stated = [word for word in words if word[2] is not None]
            if len(stated) == 1 and len(words) == 2:
                (speaker,), (silent,) = stated, [word for word in words if word[2] is None]
                assert speaker[2] is not None
                if silent[0] > speaker[0] and silent[3] >= speaker[2]:
                    continue
            if stated and stated[0][2] is not None:
                links[one, other] = stated[0][2]
    return links


NODES = st.integers(0, 7)
SAID = st.tuples(NODES, st.dictionaries(NODES, st.integers(0, 4), max_size=5), st.integers(0, 5), NODES)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(SAID, st.integers(0, 7)), max_size=25))
def test_links_kept_row_by_row_are_those_of_all_rows(
    steps: list[tuple[int, dict[int, int], int, int] | int],
) -> None:
    view = Topology(0)
    rows: dict[int, tuple[Row, int]] = {}
    for sequence, step in enumerate(steps):
        if isinstance(step, int):
            view.forget_silent(step)
            rows = {broker: kept for broker, kept in rows.items() if kept[1] >= step or broker == 0}
        else:
            broker, neighbours, ring, made_at = step
            flat = tuple(n for other, hops in neighbours.items() if other != broker for n in (other, hops))
            row = Row(broker, sequence, flat, WITHDRAWN if ring == 5 else ring)
            view.update(row, made_at)
            rows[broker] = (row, made_at)
        links = reference_links(rows)
        distances = np.full((8, 8), np.inf)
        for (one, other), distance in links.items():
            distances[one, other] = distances[other, one] = distance
        lengths = shortest_path(distances, directed=False)
        for one in range(8):
            for other in range(8):
                found = view.length(one, other)
                assert (np.inf if found is None else found) == lengths[one, other]
        assert view.reachable() == [node for node in range(1, 8) if lengths[0, node] < np.inf]


def test_a_row_that_changes_no_link_leaves_the_routes_as_they_are() -> None:
    view = view_of(A, Row(A, 1, (B, 1)), Row(B, 1, (A, 1, C, 1)), Row(C, 1, (B, 1)))
    route = view.route(C)
    view.update(Row(B, 2, (A, 1, C, 1), load=50), 1)
    assert view.route(C) is route
    view.update(Row(B, 3, (A, 1, C, 2), load=50), 2)
    assert view.route(C) == ((A, B, C), 3)


def test_a_row_costs_the_links_that_changed_since_a_row_that_is_remembered() -> None:
    view = view_of(A)
    rows = [Row(B, n, (4, 1, 5, n, 6, 1, 7, 1)) for n in range(1, 10)]
    for row in rows:
        view.update(row, 0)
    assert view.change(rows[8], 8) == RowChange(B, 8, 1, (5, 9), 0, 0, 0)
    assert view.change(rows[8], 5) == RowChange(B, 5, 4, (5, 9), 0, 0, 0)
    assert view.change(rows[8], 4) is None  # too long ago
    view.update(Row(B, 10, (8, 1)), 0)
    assert view.change(Row(B, 10, (8, 1)), 9) is None  # the row itself is shorter


LINKS = st.dictionaries(st.integers(0, 9), st.integers(1, 5), max_size=8)


@given(LINKS, LINKS)
def test_a_change_makes_of_the_earlier_row_the_later(before: dict[int, int], after: dict[int, int]) -> None:
    earlier, later = (
        Row(B, sequence, tuple(n for pair in sorted(links.items()) for n in pair), 2, 3, 4)
        for sequence, links in ((7, before), (9, after))
    )
    change = later.change_from(earlier)
    if change is not None:
        assert change.row(earlier) == later and len(change.links) < len(later.links)
