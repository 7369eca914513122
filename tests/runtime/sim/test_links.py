from random import Random

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from roamcast.runtime.sim.links import RadioLinks


def test_cuts_and_crashes_hide_planned_links_and_give_them_back() -> None:
    links = RadioLinks(3)
    assert links.plan(0, 1, True) and links.plan(1, 0, True)
    assert links.neighbours(0) == [1]
    assert links.cut(0, 1, True)
    assert links.reach[0] == 0 and links.neighbours(1) == []
    assert links.cut(0, 1, False)
    links.crash(1)
    assert not links.hears(0, 1) and links.linked(0, 1)
    links.restart(1)
    assert links.neighbours(0) == [1]


def test_a_planned_change_under_a_cut_is_no_change_yet() -> None:
    links = RadioLinks(2)
    links.cut(0, 1, True)
    assert not links.plan(0, 1, True)
    assert links.cut(0, 1, False) and links.hears(0, 1)


def test_a_one_way_link_is_heard_but_makes_no_neighbours() -> None:
    links = RadioLinks(2)
    links.plan(0, 1, True)
    assert links.hears(0, 1) and links.neighbours(0) == links.neighbours(1) == []


@pytest.mark.parametrize("seed", range(10))
def test_distances_agree_with_scipy_and_next_hops_lead_there(seed: int) -> None:
    random = Random(seed)
    nodes = 25
    matrix = np.zeros((nodes, nodes))
    links = RadioLinks(nodes)
    for a in range(nodes):
        for b in range(a):
            if random.random() < 0.1:
                links.plan(a, b, True)
                links.plan(b, a, True)
                matrix[a, b] = matrix[b, a] = 1
    truth = shortest_path(matrix, unweighted=True)
    for a in range(nodes):
        for b in range(nodes):
            found = links.distance(a, b)
            assert (found if found is not None else np.inf) == truth[a, b], f"seed {seed}"
            at, hops = a, 0
            while found and at != b:
                following = links.next_hop(at, b)
                assert following is not None and matrix[at, following], f"seed {seed}"
                at, hops = following, hops + 1
            assert not found or hops == found, f"seed {seed}"
