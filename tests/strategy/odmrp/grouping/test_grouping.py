"""Global grouping: what each method makes of subscriptions, and what no method may do."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.odmrp.grouping.channels import Group, Method, group
from roamcast.strategy.odmrp.grouping.covering_graph import CoveringGraph
from roamcast.strategy.odmrp.grouping.k_means import Points, WeighedBits, cluster, iterate, noise
from roamcast.strategy.odmrp.summary.entry import SummaryEntry
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary

METHODS: list[Method] = ["least_constrained", "graph", "k_means"]


def summary(*texts: str) -> Summary:
    return Summary.of([Filter.sql(text) for text in texts])


def members(groups: list[Group]) -> list[tuple[int, ...]]:
    return [each.members for each in groups]


def three_kinds(count: int = 30) -> dict[int, Summary]:
    """Brokers that follow a player, a hole or the weather; within a kind they are alike, not equal."""
    texts = [
        "player = 'woods' AND holescore <= {}",
        "hole BETWEEN 10 AND 18 AND kind = 'board' AND rank <= {}",
        "station LIKE 'north%' AND wind > 30 AND gusts >= {}",
    ]
    return {node: summary(texts[node % 3].format(node // 3 % 2 + 4)) for node in range(count)}


KINDS = [tuple(range(kind, 30, 3)) for kind in range(3)]


@pytest.mark.parametrize("seed", range(5))
def test_k_means_finds_clusters_that_are_there(seed: int) -> None:
    assert members(group("k_means", three_kinds(), k=3, random=Random(seed))) == KINDS
    assert members(group("k_means", three_kinds(), random=Random(seed))) == KINDS  # by the heuristic


def test_k_means_keeps_outliers_out_of_the_main_group() -> None:
    """The paper's reason for K-means: subscriptions far from where most subscribers are."""
    summaries = {
        node: summary(f"player = 'woods' AND hole BETWEEN {node % 3 + 1} AND 18") for node in range(20)
    }
    summaries[99] = summary("taxi = TRUE AND seats >= 2 AND district LIKE 'west%'")
    for k in (2, None):
        groups = group("k_means", summaries, k=k, random=Random(1))
        assert (99,) in members(groups)
        digest = EventDigest.of(Event(1, 1, {"taxi": True, "seats": 3, "district": "west end"}))
        assert [each.members for each in groups if each.summary.matches(digest)] == [(99,)]


@given(st.lists(st.tuples(st.integers(0, 4), st.sets(st.integers(0, 7), max_size=3)), max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_graph_that_follows_changes_is_the_one_that_is_built_anew(
    changes: list[tuple[int, set[int]]],
) -> None:
    texts = ["a = 1", "a IN (1, 2)", "a = 1 AND b = 1", "b = 1", "a IN (1, 2, 3)", "a = 2 AND b = 1"]
    texts += ["c = 1", "a = 3"]
    entries = [entry for text in texts for entry in Summary.of([Filter.sql(text)]).entries]
    graph: CoveringGraph[int] = CoveringGraph()
    wanted: dict[int, list[SummaryEntry]] = {}
    for owner, numbers in changes:
        wanted[owner] = [entries[number] for number in sorted(numbers)]
        graph.put(owner, wanted[owner])
    anew = CoveringGraph((owner, entry) for owner, each in wanted.items() for entry in each)
    assert graph.roots == anew.roots
    assert {one: set(below) for one, below in graph.below.items()} == {
        one: set(below) for one, below in anew.below.items()
    }
    for value in (1, 2, 3):
        digest = EventDigest.of(Event(0, 0, {"a": value, "b": 1}))
        by_hand = [owner for owner in sorted(wanted) if any(map(digest.satisfies, wanted[owner]))]
        assert graph.owners(digest) == by_hand and graph.matches(digest) == bool(by_hand)


def test_the_least_constrained_subscription_describes_the_group() -> None:
    summaries = {1: summary("player = 'woods'"), 2: summary("player = 'woods' AND hole = 3")}
    (only,) = group("least_constrained", summaries, random=Random(1))
    assert only == Group((1, 2), summary("player = 'woods'"))
    # "A subscriber who subscribes to everything causes flooding and breaks the assumption."
    (only,) = group(
        "least_constrained", {**summaries, 3: summary("hole IS NULL OR hole > 0")}, random=Random(1)
    )
    assert only.summary == Summary.of([Filter.everything()])


def test_the_graph_publishes_what_matches_at_least_one() -> None:
    summaries = {1: summary("player = 'woods'"), 2: summary("hole = 3"), 3: summary("hole = 3 AND rank < 5")}
    (only,) = group("graph", summaries, random=Random(1))
    assert only.members == (1, 2, 3) and len(only.summary.entries) == 2  # the third is covered
    assert only.summary.matches(EventDigest.of(Event(1, 1, {"player": "woods"})))
    assert only.summary.matches(EventDigest.of(Event(1, 1, {"hole": 3})))
    assert not only.summary.matches(EventDigest.of(Event(1, 1, {"player": "els"})))
    (least,) = group("least_constrained", summaries, random=Random(1))
    assert least.summary.matches(EventDigest.of(Event(1, 1, {"player": "els"})))  # coarser


def test_the_graph_keeps_the_hierarchy() -> None:
    texts = {
        "any": "player IN ('els', 'palmer', 'woods')",
        "two": "player IN ('palmer', 'woods')",
        "last": "hole = 18",
        "leader": "player IN ('palmer', 'woods') AND rank = 1",
        "both": "player IN ('palmer', 'woods') AND rank = 1 AND hole = 18",
    }
    entries = {name: summary(text).entries[0] for name, text in texts.items()}
    graph = CoveringGraph(entries.items())
    name_of = {entry: name for name, entry in entries.items()}
    assert sorted(name_of[root] for root in graph.roots) == ["any", "last"]
    below = {name: sorted(name_of[each] for each in graph.below[entry]) for name, entry in entries.items()}
    assert below == {"any": ["two"], "two": ["leader"], "leader": ["both"], "last": ["both"], "both": []}
    found = graph.owners(EventDigest.of(Event(1, 1, {"hole": 18, "rank": 1, "player": "els"})))
    assert found == ["any", "last"]
    found = graph.owners(EventDigest.of(Event(1, 1, {"hole": 18, "rank": 1, "player": "woods"})))
    assert found == sorted(texts)
    assert not graph.matches(EventDigest.of(Event(1, 1, {"hole": 17, "player": "singh"})))


def test_equal_summaries_make_one_group_and_empty_ones_none() -> None:
    summaries = {node: summary("player = 'woods'") for node in range(5)} | {9: Summary.of([])}
    for method in METHODS:
        assert members(group(method, summaries, random=Random(1))) == [(0, 1, 2, 3, 4)]
        assert group(method, {9: Summary.of([])}, random=Random(1)) == []
    assert members(group("k_means", summaries, k=3, random=Random(1))) == [(0, 1, 2, 3, 4)]


subscriptions = st.sampled_from(
    [
        *(f"player = 'p{number}'" for number in range(6)),
        *(f"hole BETWEEN {low} AND {low + 3}" for low in range(1, 15, 2)),
        "player LIKE 'p%' AND hole > 9",
        "rank < 10 OR rank > 90",
        "hole IS NULL",
    ]
)
brokers = st.dictionaries(
    st.integers(0, 200),
    st.lists(subscriptions, max_size=4).map(lambda texts: summary(*texts)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=80, deadline=None)
@given(brokers, brokers, st.sampled_from(METHODS), st.sampled_from([None, 1, 2, 3, 7]), st.integers(0, 5))
def test_no_member_is_lost_doubled_or_left_uncovered(
    before: dict[int, Summary], after: dict[int, Summary], method: Method, k: int | None, iterations: int
) -> None:
    previous = group(method, before, k=k, random=Random(1), iterations_max=iterations)
    for summaries, start in ((before, None), (after, previous)):
        groups = group(method, summaries, k=k, random=Random(2), previous=start, iterations_max=iterations)
        wanting = [node for node in sorted(summaries) if not summaries[node].is_empty]
        assert sorted(node for each in groups for node in each.members) == wanting
        assert members(groups) == sorted(members(groups)) and all(each.members for each in groups)
        for each in groups:
            assert each.members == tuple(sorted(each.members))
            assert all(each.summary.covers(summaries[node]) for node in each.members)
        if method != "k_means":
            assert len(groups) <= 1
        elif k is not None:
            assert len(groups) <= k
        again = group(method, summaries, k=k, random=Random(2), previous=start, iterations_max=iterations)
        assert again == groups


def test_a_change_moves_few() -> None:
    summaries = three_kinds()
    groups = group("k_means", summaries, random=Random(1))
    summaries[0] = summaries[1]  # changes its mind
    summaries[31] = summaries[2]  # arrives
    del summaries[3]  # leaves
    after = group("k_means", summaries, random=Random(1), previous=groups, iterations_max=1)
    before_of = {node: number for number, each in enumerate(groups) for node in each.members}
    company = [{before_of.get(node, node) for node in each.members} for each in after]
    assert len(after) == 3
    moved = [
        node for each, from_ in zip(after, company, strict=True) for node in each.members if len(from_) > 1
    ]
    assert 0 in moved  # with node 1's kind now
    kinds = [set(KINDS[0]) - {0, 3}, set(KINDS[1]) | {0}, set(KINDS[2]) | {31}]
    assert sorted(map(sorted, kinds)) == [list(each) for each in members(after)]


def test_groups_follow_when_a_kind_appears_or_vanishes() -> None:
    """The number of groups goes up and down by one at a time, from the grouping there was."""
    two = {node: each for node, each in three_kinds().items() if node % 3 < 2}
    groups = group("k_means", two, random=Random(1))
    assert members(groups) == KINDS[:2]
    groups = group("k_means", three_kinds(), random=Random(1), previous=groups)
    assert members(groups) == KINDS
    groups = group("k_means", two, random=Random(1), previous=groups)
    assert members(groups) == KINDS[:2]


def test_a_first_single_subscriber_does_not_keep_the_number_of_groups_at_one() -> None:
    summaries = three_kinds()
    groups = group("k_means", {0: summaries[0]}, random=Random(1))
    for _ in range(3):
        groups = group("k_means", summaries, random=Random(1), previous=groups)
    assert members(groups) == KINDS


def bits(*row: int) -> WeighedBits:
    return ((1, sum(bit << place for place, bit in enumerate(row))),)


def test_iterations_end_when_centroids_rest_or_the_bound_is_reached() -> None:
    rows = [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (1, 1, 1, 1, 1), (1, 1, 1, 1, 0), (1, 1, 1, 0, 1)]
    points = Points([bits(*row) for row in rows])
    poor = [(0,), (1,)]
    assert iterate(points, poor, 0) == [0, 1, 1, 1, 1]  # feasible after any iteration
    assert iterate(points, poor, 10) == [0, 0, 1, 1, 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**40 - 1), st.integers(0, 2**30 - 1)), min_size=2, max_size=9))
def test_distances_are_euclidean_up_to_the_point_s_own_length(values: list[tuple[int, int]]) -> None:
    points = Points([((1, one << 30), (4, four)) for one, four in values])
    rows = np.array(
        [
            [one >> at & 1 for at in range(40)] + [4 * (four >> at & 1) for at in range(30)]
            for one, four in values
        ]
    )
    for centroid in [(0,), (0, 1), tuple(range(len(values)))]:
        mean = rows[list(centroid)].mean(axis=0)
        expected = [math.dist(row, mean) ** 2 - (row**2).sum() for row in rows]
        assert points.squared_distances(centroid) == pytest.approx(expected)
        nearest = points.to_the_nearest([centroid])
        assert nearest == pytest.approx([math.dist(row, mean) ** 2 for row in rows], abs=1e-6)


def test_noise_is_the_share_of_the_group_s_bits_that_a_member_lacks() -> None:
    points = Points([bits(1, 1, 0, 0), bits(1, 0, 1, 0), bits(0, 0, 0, 1)])
    assert noise(points, [0, 0, 1]) == pytest.approx((1 / 3 + 1 / 3 + 0) / 3)
    assert noise(points, [0, 0, 0]) == pytest.approx((2 / 4 + 2 / 4 + 3 / 4) / 3)


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (None, [(1, 2, 3), (4,), (5,)]),
        (0.75, [(1, 2, 3), (4,)]),
        (0.5, [(1, 2, 3), (4,)]),
        (0.49, [(1, 2, 3)]),
    ],
)
def test_k_means_excludes_who_is_distant_from_the_main_group(
    limit: float | None, left: list[tuple[int, ...]]
) -> None:
    """By hand: the centroid of 1 to 3 is (1, 1, 0, 0), of squared length 2. To 4 it is 2 / (2 + 2) = 0.5, to
    5, with nothing in common, 4 / (2 + 2) = 1."""
    vectors = {node: bits(1, 1, 0, 0) for node in (1, 2, 3)} | {4: bits(1, 0, 1, 0), 5: bits(0, 0, 1, 1)}
    assert cluster(vectors, k=3, random=Random(1), exclude_distance=limit) == left
    # When they are grouped again the excluded are in no previous group.
    assert cluster(vectors, k=3, random=Random(1), previous=left, exclude_distance=limit) == left


def test_the_main_group_excludes_a_member_of_its_own_that_is_distant() -> None:
    """By hand: the centroid is (2, 1, 1, 1) / 3, of squared length 7/9. Squared distances over sums of
    squared lengths: 7/9 of 25/9 is 0.28, 4/9 of 16/9 is 0.25, 13/9 of 25/9 is 0.52."""
    vectors = {1: bits(1, 1, 0, 0), 2: bits(1, 0, 0, 0), 3: bits(0, 0, 1, 1)}
    for limit, left in [(0.53, [(1, 2, 3)]), (0.51, [(1, 2)]), (0.27, [(2,)]), (0.24, [])]:
        assert cluster(vectors, k=1, random=Random(1), exclude_distance=limit) == left


def test_of_two_main_groups_the_one_with_the_lowest_member_counts() -> None:
    vectors = {1: bits(0, 1), 2: bits(1, 0), 3: bits(1, 0), 4: bits(0, 1)}
    assert cluster(vectors, k=2, random=Random(1), exclude_distance=0.5) == [(1, 4)]


def test_k_means_is_as_good_as_trying_every_partition_on_a_small_case() -> None:
    """All 2-partitions of 9 vectors by brute force: the least sum of squared distances to centroids."""
    random = Random(7)
    base = [[random.randrange(2) for _ in range(40)] for _ in range(2)]
    rows = [[bit ^ (random.random() < 0.1) for bit in base[node % 2]] for node in range(9)]
    vectors = {node: bits(*row) for node, row in enumerate(rows)}

    def cost(groups: list[tuple[int, ...]]) -> float:
        total = 0.0
        for each in groups:
            own = np.array([rows[node] for node in each], float)
            total += float(((own - own.mean(axis=0)) ** 2).sum())
        return total

    best = min(
        cost(
            [tuple(n for n in range(9) if chosen >> n & 1), tuple(n for n in range(9) if not chosen >> n & 1)]
        )
        for chosen in range(1, 2**8)
    )
    assert cost(cluster(vectors, k=2, random=Random(1))) == pytest.approx(best)
