"""Generated networks and the walks over them."""

import itertools
from random import Random

import numpy as np
import pytest
from scipy.sparse.csgraph import floyd_warshall

from roamcast.world.graph import Generator, Graph, GraphEdge, generated, walk

GENERATORS: list[Generator] = ["waxman", "barabasi_albert"]
AREA = (1000.0, 1000.0)
# A square with one diagonal: 0-1-2-3-0 and 0-2.
SQUARE = Graph(
    [(0.0, 0.0)] * 4,
    [GraphEdge(0, 1, 5), GraphEdge(1, 2, 5), GraphEdge(2, 3, 1), GraphEdge(0, 3, 2), GraphEdge(0, 2, 4)],
)


def test_distances_are_the_shortest_ways_by_hand() -> None:
    assert SQUARE.distances.tolist() == [[0, 5, 3, 2], [5, 0, 5, 6], [3, 5, 0, 1], [2, 6, 1, 0]]


@pytest.mark.parametrize("generator", GENERATORS)
def test_networks_are_connected_with_two_links_per_newcomer_that_cost_their_length(
    generator: Generator,
) -> None:
    graph = generated(generator, 100, AREA, Random(3))
    assert len(graph.links) == 1 + 2 * 98
    matrix = np.full((100, 100), np.inf)
    for a, b, cost in graph.links:
        (x, y), (u, v) = graph.places[a], graph.places[b]
        assert a != b and cost == round(100 * ((x - u) ** 2 + (y - v) ** 2) ** 0.5)
        matrix[a, b] = matrix[b, a] = cost
    assert np.isfinite(graph.distances).all()
    assert (graph.distances == floyd_warshall(matrix)).all()


def test_waxman_prefers_the_near_and_barabasi_albert_the_well_linked() -> None:
    lengths, degrees = [], []
    for generator in GENERATORS:
        graphs = [generated(generator, 100, AREA, Random(seed)) for seed in range(10)]
        lengths.append(np.mean([link.cost for graph in graphs for link in graph.links]))
        degrees.append(np.mean([max(len(row) for row in graph.neighbours) for graph in graphs]))
    assert lengths[0] < 0.8 * lengths[1] and degrees[0] < 0.8 * degrees[1]


def test_the_same_seed_gives_the_same_network() -> None:
    first, again = (generated("waxman", 30, AREA, Random(1)) for _ in range(2))
    assert first.links == again.links != generated("waxman", 30, AREA, Random(2)).links


def test_the_salesman_goes_to_neighbours_and_stays_last_as_long_as_said() -> None:
    graph = generated("waxman", 40, AREA, Random(1))
    stays = list(itertools.islice(walk(graph, "travelling_salesman", Random(5)), 4_000))
    for before, after in itertools.pairwise(stays):
        assert after.place in graph.neighbours[before.place]
    lengths = [stay.length for stay in stays]
    assert np.mean(lengths) == pytest.approx(1, abs=0.06) and np.std(lengths) == pytest.approx(1, abs=0.1)


def test_the_fixed_model_is_mostly_at_its_two_places_and_the_random_one_everywhere() -> None:
    graph = generated("waxman", 40, AREA, Random(1))
    fixed = [stay.place for stay in itertools.islice(walk(graph, "fixed", Random(5)), 2_000)]
    often = sorted((fixed.count(place) for place in set(fixed)), reverse=True)
    assert sum(often[:2]) / 2_000 == pytest.approx(1 / 1.1, abs=0.03)  # one move of ten leads away
    roams = [stay.place for stay in itertools.islice(walk(graph, "random", Random(5)), 2_000)]
    assert set(roams) == set(range(40)) and all(a != b for a, b in itertools.pairwise(roams))


def test_the_pop_up_model_is_a_salesman_who_sometimes_is_far_away() -> None:
    graph = generated("waxman", 40, AREA, Random(1))
    places = [stay.place for stay in itertools.islice(walk(graph, "pop_up", Random(5)), 3_000)]
    far = sum(b not in graph.neighbours[a] for a, b in itertools.pairwise(places))
    assert 0.06 < far / 3_000 < 0.11  # a tenth, less those that pop up next door
