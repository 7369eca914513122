"""The Broker Topology Table and the routes on it, against figure 3 and an independent search."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from roamcast.strategy.opportunistic.messages import BrokerRow
from roamcast.strategy.opportunistic.overlay import Topology

A, B, C, D = 1, 2, 3, 4


class Said(NamedTuple):
    broker: int
    row: BrokerRow


def said(broker: int, links: tuple[int, ...], ring: int = 0, load: int = 0, *, is_over: bool = False) -> Said:
    return Said(broker, BrokerRow(links, ring, load, is_over=is_over))


def view_of(own: int, *rows: Said) -> Topology:
    view = Topology(own)
    for row in rows:
        view.update(*row, 0)
    return view


def test_figure_3_a_new_link_is_propagated_and_shortens_the_way() -> None:
    first = [said(A, (B, 1)), said(B, (A, 1, C, 2, D, 2)), said(C, (B, 2)), said(D, (B, 2))]
    views = {own: view_of(own, *first) for own in (A, B, C, D)}
    assert views[C].route(D) == ((C, B, D), 4)
    # C's period comes first: it finds D, and B and D hear of it.
    for one in (B, C, D):
        views[one].update(*said(C, (B, 2, D, 3)), 1)
    assert views[C].route(D) == ((C, D), 3) and views[A].route(D) == ((A, B, D), 3)
    # Then B's: it has lost D, and A and C hear of that and of what C had said.
    for one in (A, B, C):
        views[one].update(*said(C, (B, 2, D, 3)), 1)
        views[one].update(*said(B, (A, 1, C, 2), ring=2), 3)
    assert views[A].route(D) == ((A, B, C, D), 6)
    # D's view is outdated until it is told.
    assert views[D].route(A) == ((D, B, A), 3)


def test_the_later_word_of_two_counts_unless_it_did_not_look_so_far() -> None:
    view = view_of(A, said(A, (B, 3), ring=3))
    view.update(*said(B, (C, 1), ring=1), 1)  # B looked one hop far and cannot have seen A
    assert view.route(B) == ((A, B), 3)
    view.update(*said(B, (C, 1), ring=3), 2)  # now it has looked
    assert view.route(B) is None
    view.update(*said(A, (B, 2), ring=2), 3)
    assert view.route(B) == ((A, B), 2)


def test_a_broker_that_is_forgotten_has_no_links() -> None:
    view = view_of(A, said(A, (B, 1)), said(B, (A, 1, C, 1)), said(C, (B, 1)))
    view.forget(B)
    assert view.row(B) is None and view.brokers() == [A, C]
    assert view.route(C) == ((A, B, C), 2)  # by what the others say of it
    view.update(*said(C, (), ring=3), 9)
    assert view.route(C) is None


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
            said(node, tuple(number for pair in sorted(others.items()) for number in pair))
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


def reference_links(rows: dict[int, tuple[BrokerRow, int]]) -> dict[tuple[int, int], int]:
    """The overlay from all rows and the times they were made, by the rule as it is written."""
    links = {}
    for one in range(8):
        for other in range(one + 1, 8):
            words = []  # what each end says, the later one first
            for here, there in ((one, other), (other, one)):
                if here in rows:
                    row, made_at = rows[here]
                    ring = -2 if row.is_over else row.ring
                    words.append((made_at, here, row.neighbours().get(there), ring))
            words.sort(reverse=True)
            if any(ring == -2 for _, _, _, ring in words):
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
    rows: dict[int, tuple[BrokerRow, int]] = {}
    for step in steps:
        if isinstance(step, int):
            view.forget(step)
            rows.pop(step, None)
        else:
            broker, neighbours, ring, made_at = step
            flat = tuple(n for other, hops in neighbours.items() if other != broker for n in (other, hops))
            row = BrokerRow(flat, 0 if ring == 5 else ring, is_over=ring == 5)
            view.update(broker, row, made_at)
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
    view = view_of(A, said(A, (B, 1)), said(B, (A, 1, C, 1)), said(C, (B, 1)))
    route = view.route(C)
    view.update(*said(B, (A, 1, C, 1), load=50), 1)
    assert view.route(C) is route
    view.update(*said(B, (A, 1, C, 2), load=50), 2)
    assert view.route(C) == ((A, B, C), 3)


def test_a_row_that_names_its_own_broker_links_it_to_nobody() -> None:
    view = view_of(A, said(A, (A, 1, B, 1)), said(B, (B, 2, A, 1)))
    assert view.reachable() == [B] and view.route(B) == ((A, B), 1)
    view.update(*said(B, (B, 1), ring=1), 1)
    assert view.reachable() == [] and view.connected_without(A, None) == {A}
