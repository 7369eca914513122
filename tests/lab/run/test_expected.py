import json
import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.lab.run.expected import expected, sample_paths
from roamcast.lab.run.graph import ContactGraph, links_up, nodes_up
from roamcast.lab.run.tables import Expected
from roamcast.trace import (
    FaultHappened,
    LinkChanged,
    PathsSampled,
    Published,
    Record,
    Subscribed,
    Trace,
)
from roamcast.units import SECOND


def published(t: int, publisher: int, sequence: int = 0, **others: object) -> Published:
    fields: dict[str, object] = {
        "event_class": "realtime",
        "lifetime": 0,
        "size": 10,
        "topic": "",
        "type": "",
        "attributes": json.dumps({"level": 5}),
        "destinations": (),
        "multimode": False,
    }
    return Published(t, publisher, sequence, **(fields | others))  # type: ignore[arg-type]


def wants(node: int, text: str = "level > 3", t: int = 0, number: int = 0) -> Subscribed:
    return Subscribed(t, node, number, text, True)


def ends(node: int, t: int, number: int = 0) -> Subscribed:
    return Subscribed(t, node, number, "", False)


def link(t: int, a: int, b: int, up: bool = True, both: bool = True) -> LinkChanged:
    return LinkChanged(t, a, b, both, up)


def truth(*records: Record) -> list[Expected]:
    trace = Trace()
    for record in records:
        trace.add(record)
    return expected(trace)


def nodes(rows: list[Expected]) -> list[int]:
    return [row.node for row in rows]


def test_matching_subscribers_are_expected_once_and_the_publisher_never() -> None:
    rows = truth(
        wants(0),
        wants(1),
        wants(1, "level = 5", number=1),
        wants(2, "level > 5"),
        published(10, 0),
        link(0, 0, 1),
    )
    assert rows == [Expected(0, 0, 1, 10, True, 1)]


def test_a_realtime_event_expects_what_stands_when_it_is_published() -> None:
    rows = truth(
        wants(1, t=10),  # at the instant itself: stands
        wants(2, t=11),
        wants(3, t=0),
        ends(3, t=10),  # ended at the instant: does not stand
        wants(4, t=0),
        ends(4, t=11),
        published(10, 0),
    )
    assert nodes(rows) == [1, 4]


def test_a_memorized_event_expects_later_subscriptions_within_its_lifetime() -> None:
    memorized = published(10, 0, event_class="memorized", lifetime=5)
    rows = truth(wants(1), wants(2, t=15), wants(3, t=16), wants(4, t=2), ends(4, t=9), memorized)
    assert [(row.node, row.since) for row in rows] == [(1, 10), (2, 15)]


def test_explicit_destinations_are_expected_always_and_alone_unless_multimode() -> None:
    assert nodes(truth(wants(1), published(10, 0, destinations=(3, 0)))) == [3]
    assert nodes(truth(wants(1), published(10, 0, destinations=(3,), multimode=True))) == [1, 3]


def test_a_subscription_made_again_under_its_number_replaces_the_first() -> None:
    rows = truth(wants(1), wants(1, "level > 9", t=5), published(4, 0, 0), published(6, 0, 1))
    assert [(row.sequence, row.node) for row in rows] == [(0, 1)]


def test_topics_and_attributes_decide_each_for_its_own_event() -> None:
    low = published(10, 0, 1, attributes='{"level": 1}')
    assert [row.sequence for row in truth(wants(1), published(10, 0, 0), low)] == [0]


def test_reach_and_hops_are_those_of_the_instant_of_publication() -> None:
    rows = truth(
        *(wants(n) for n in (1, 2, 3)),
        link(0, 0, 1),
        link(0, 1, 2),
        link(20, 1, 2, up=False),
        link(20, 2, 3),
        published(19, 0, 0),
        published(20, 0, 1),  # the change of the same instant comes first
    )
    assert [(r.sequence, r.node, r.reachable, r.hops) for r in rows] == [
        (0, 1, True, 1),
        (0, 2, True, 2),
        (0, 3, False, None),
        (1, 1, True, 1),
        (1, 2, False, None),
        (1, 3, False, None),
    ]


def test_one_way_links_are_followed_one_way() -> None:
    rows = truth(wants(0), wants(1), link(0, 0, 1, both=False), published(1, 0), published(1, 1))
    assert [(r.publisher, r.node, r.reachable) for r in rows] == [(0, 1, True), (1, 0, False)]


def test_nothing_passes_a_crashed_node_until_it_is_back() -> None:
    rows = truth(
        wants(2),
        link(0, 0, 1),
        link(0, 1, 2),
        FaultHappened(10, "crash", 1),
        FaultHappened(20, "restart", 1),
        *(published(t, 0, t) for t in (9, 10, 19, 20)),
    )
    assert [(r.sequence, r.hops) for r in rows] == [(9, 2), (10, None), (19, None), (20, 2)]


def test_paths_of_a_line_are_counted_by_hand() -> None:
    links = [link(0, 0, 1), link(0, 1, 2), link(0, 2, 3)]
    # Ordered pairs of {0, 2, 3}: 0-2 two hops, 0-3 three, 2-3 one, each in both directions.
    assert sample_paths(links, [], [0, 2, 3], 5, 0, SECOND) == [PathsSampled(0, "network", 6, 12)]


def test_paths_are_sampled_once_a_second_but_at_most_120_times() -> None:
    def instants(warmup: int, duration: int) -> list[int]:
        return [s.t for s in sample_paths([], [], [0], 1, warmup, duration)]

    assert instants(2 * SECOND, 5 * SECOND) == [2 * SECOND, 3 * SECOND, 4 * SECOND]
    many = instants(30 * SECOND, 600 * SECOND)
    assert len(many) == 120 and many[0] == 30 * SECOND and many[-1] < 600 * SECOND
    assert len({b - a for a, b in pairwise(many)}) == 1
    assert len(instants(0, 121 * SECOND + 7)) <= 120
    assert instants(0, 0) == [0]


def test_samples_see_the_links_of_their_instant() -> None:
    links = [link(0, 0, 1), link(SECOND, 0, 1, up=False)]
    assert [s.pairs for s in sample_paths(links, [], [0, 1], 2, 0, 2 * SECOND)] == [2, 0]
    assert [
        s.pairs for s in sample_paths(links[:1], [FaultHappened(5, "crash", 1)], [0, 1], 2, 0, 2 * SECOND)
    ] == [
        2,
        0,
    ]


@given(st.integers(1, 70), st.floats(0.0, 0.15), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_every_search_agrees_with_floyd_and_warshall(size: int, density: float, seed: int) -> None:
    source = random.Random(seed)
    arcs = [(a, b) for a in range(size) for b in range(size) if a != b and source.random() < density]
    far = size + 1
    distance = [[0 if a == b else far for b in range(size)] for a in range(size)]
    for a, b in arcs:
        distance[a][b] = 1
    for k in range(size):
        for a in range(size):
            for b in range(size):
                distance[a][b] = min(distance[a][b], distance[a][k] + distance[k][b])
    graph = ContactGraph([link(0, a, b, both=False) for a, b in arcs], [])
    graph.advance(0)
    brokers = source.sample(range(size), source.randint(0, size))
    lengths = [distance[a][b] for a in brokers for b in brokers if a != b and distance[a][b] < far]
    assert graph.path_lengths(brokers, size) == (len(lengths), sum(lengths))
    origin = source.randrange(size)
    assert graph.distances(origin) == {
        n: distance[origin][n] for n in range(size) if distance[origin][n] < far
    }
    for node, parent in graph.parents(1 << origin).items():
        assert distance[origin][parent] + 1 == distance[origin][node]


def test_history_answers_for_any_instant() -> None:
    links = [link(5, 0, 1), link(10, 0, 1, up=False), link(12, 0, 1), link(20, 0, 1, up=False, both=False)]
    of_links = links_up(links)
    nodes = nodes_up([FaultHappened(7, "crash", 1), FaultHappened(9, "restart", 1)])
    assert of_links.down_since((0, 1), 4) == -1
    assert of_links.down_since((0, 1), 5) is None
    assert of_links.down_since((1, 0), 11) == 10
    assert of_links.down_since((1, 0), 25) is None
    assert of_links.first_down((0, 1), 5, 9) is None
    assert of_links.first_down((0, 1), 5, 10) == 10
    assert of_links.first_down((0, 1), 21, 22) == 21
    assert [nodes.down_since(1, t) for t in (6, 7, 8, 9)] == [None, 7, 7, None]
    assert nodes.first_down(1, 0, 6) is None
    assert nodes.first_down(1, 0, 7) == 7
    assert nodes.up_in(1, 7, 8) is False
    assert nodes.up_in(1, 7, 9) is True
