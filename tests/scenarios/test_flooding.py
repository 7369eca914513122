"""Whole networks that flood, against outcomes counted by hand."""

from typing import Any

import pytest

from roamcast.lab.run.runs import RunResult, simulate
from roamcast.scenario import scenario_from


def run(**tables: Any) -> RunResult:
    tables.setdefault("strategy", {"name": "flooding"})
    return simulate(scenario_from(tables))


def static(positions: list[tuple[float, float]], reach: float = 120.0, **world: Any) -> dict[str, Any]:
    return {
        "nodes": len(positions),
        "area": [1000.0, 1000.0],
        "range": reach,
        "mobility": {"model": "static", "positions": [list(p) for p in positions]},
        **world,
    }


LINE = [(100.0 * n, 0.0) for n in range(5)]


def test_on_a_line_of_five_every_event_reaches_everyone_once_and_hops_are_as_counted() -> None:
    result = run(
        scenario={"name": "line", "duration": 10.0},
        world=static(LINE),
        workload={"publications": [{"t": 1.0, "node": 0}, {"t": 2.0, "node": 2}, {"t": 3.0, "node": 4}]},
    )
    metrics = result.metrics
    assert metrics["published"] == 3
    assert metrics["expected"] == metrics["delivered"] == 12
    assert metrics["duplicates"] == metrics["misdelivered"] == 0
    # From an end 1 + 2 + 3 + 4, from the middle 2 + 1 + 1 + 2.
    assert metrics["hops_mean"] == (10 + 6 + 10) / 12
    # Every node sends every event once.
    assert metrics["data_messages"] == 15
    assert metrics["control_messages"] == 0
    # Paths on a line of five: 4 of length 1, 3 of 2, 2 of 3, 1 of 4.
    assert metrics["path_hops_network"] == (4 * 1 + 3 * 2 + 2 * 3 + 1 * 4) / 10


def test_in_two_partitions_delivery_is_the_share_inside_and_all_of_the_reachable() -> None:
    left = [(0.0, 0.0), (100.0, 0.0), (200.0, 0.0)]
    right = [(800.0, 0.0), (900.0, 0.0)]
    result = run(
        scenario={"name": "partitions", "duration": 10.0},
        world=static(left + right),
        workload={"publications": [{"t": 1.0, "node": 0}, {"t": 2.0, "node": 3}]},
    )
    metrics = result.metrics
    assert metrics["expected"] == 8
    assert metrics["delivered"] == 3  # two beside node 0, one beside node 3
    assert metrics["delivery_ratio"] == metrics["reachable_ratio"] == 3 / 8
    assert metrics["delivery_ratio_reachable"] == 1.0


def test_a_memorized_event_waits_for_a_later_subscription_within_its_lifetime() -> None:
    result = run(
        scenario={"name": "memorized", "duration": 60.0},
        world=static(LINE),
        workload={
            "subscriptions": [{"node": 2, "from": 20.0}, {"node": 3, "from": 50.0}],
            "publications": [{"t": 1.0, "node": 0, "class": "memorized", "lifetime": 30.0}],
        },
    )
    assert result.metrics["expected"] == result.metrics["delivered"] == 1
    assert result.metrics["latency_p50"] == pytest.approx(19.0)


def test_the_hop_limit_ends_a_flood() -> None:
    result = run(
        scenario={"name": "limit", "duration": 10.0},
        world=static(LINE),
        workload={"publications": [{"t": 1.0, "node": 0}]},
        strategy={"name": "flooding", "options": {"hop_limit": 2}},
    )
    assert result.metrics["delivered"] == 2
    assert result.tables["drops"].select(["node", "reason"]).to_pylist() == [{"node": 2, "reason": "expired"}]


def test_a_crash_loses_what_is_volatile_and_a_restart_comes_back_with_its_subscriptions() -> None:
    result = run(
        scenario={"name": "crash", "duration": 20.0},
        world=static(LINE),
        workload={"publications": [{"t": float(t), "node": 0} for t in (1, 6, 11)]},
        fault=[
            {"at": 5.0, "kind": "crash", "nodes": [2]},
            {"at": 10.0, "kind": "restart", "nodes": [2]},
        ],
    )
    assert result.metrics["expected"] == 12
    assert result.metrics["delivered"] == 4 + 1 + 4  # only node 1 while node 2 is down
    assert result.metrics["reachable_ratio"] == 9 / 12
    assert result.metrics["delivery_ratio_reachable"] == 1.0


def test_a_crashed_publisher_starts_again_with_fresh_sequence_numbers() -> None:
    result = run(
        scenario={"name": "crash", "duration": 20.0},
        world=static(LINE),
        workload={"publications": [{"t": float(t), "node": 0} for t in (1, 6, 11)]},
        fault=[{"at": 5.0, "kind": "crash", "nodes": [0]}, {"at": 10.0, "kind": "restart", "nodes": [0]}],
    )
    published = result.tables["publications"]["sequence"].to_pylist()
    assert len(published) == 2 and len(set(published)) == 2  # down at 6: nothing published
    assert result.metrics["delivered"] == 8


def test_a_cut_splits_and_a_heal_joins() -> None:
    result = run(
        scenario={"name": "cut", "duration": 20.0},
        world=static(LINE),
        workload={"publications": [{"t": float(t), "node": 0} for t in (1, 6, 11)]},
        fault=[
            {"at": 5.0, "kind": "cut", "links": [[1, 2]]},
            {"at": 10.0, "kind": "heal", "links": [[1, 2]]},
        ],
    )
    assert result.metrics["delivered"] == 4 + 1 + 4
    assert result.metrics["delivery_ratio_reachable"] == 1.0


def test_one_way_links_carry_one_way() -> None:
    """Node 1 reaches node 0 with its range of 200 m, node 0 does not reach back with 100 m."""
    seeds = [
        run(
            scenario={"name": "one-way", "duration": 5.0, "seed": seed},
            world=static([(0.0, 0.0), (150.0, 0.0)]) | {"range": [100.0, 200.0]},
            workload={"publications": [{"t": 1.0, "node": 0}, {"t": 2.0, "node": 1}]},
        )
        for seed in range(12)
    ]
    outcomes = {tuple(sorted(row["publisher"] for row in r.tables["deliveries"].to_pylist())) for r in seeds}
    assert {(0,), (1,)} <= outcomes, "some seed must give a link in one direction only"
    for result in seeds:
        assert result.metrics["delivery_ratio"] == result.metrics["reachable_ratio"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_mean_physical_path_of_100_walkers_is_that_of_the_opportunistic_overlay_paper(seed: int) -> None:
    """Section 4.1 there: 100 nodes, 1000 x 1000 m, 250 m, 1-20 m/s, pause 10 s, 600 s: 2.36 hops."""
    result = run(
        scenario={"name": "paths", "duration": 600.0, "seed": seed},
        world={
            "nodes": 100,
            "area": [1000.0, 1000.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [10.0, 10.0]},
        },
        roles={"brokers": 40, "publishers": 0},
    )
    assert result.metrics["path_hops_network"] == pytest.approx(2.36, abs=0.15)


def crowded(side: float, duration: float) -> RunResult:
    return run(
        scenario={"name": "crowded", "duration": duration},
        world={
            "nodes": 50,
            "area": [side, side],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [5.0, 5.0], "pause": [0.0, 0.0]},
            "radio": {"model": "csma"},
        },
        roles={"publishers": 10, "subscribers": "all"},
        workload={"rate": 2.0, "size": 256},
    )


def test_on_the_shared_medium_flooding_delivers_most_and_collides() -> None:
    result = crowded(1000.0, 100.0)
    assert 0.85 <= float(result.metrics["delivery_ratio"] or 0) <= 1.0
    assert result.metrics["duplicates"] == result.metrics["misdelivered"] == 0


def test_on_four_times_the_area_partitions_are_the_limit() -> None:
    metrics = crowded(2000.0, 100.0).metrics
    ratio, reachable = float(metrics["delivery_ratio"] or 0), float(metrics["reachable_ratio"] or 0)
    assert ratio < 0.5
    assert reachable < 0.5
    assert float(metrics["delivery_ratio_reachable"] or 0) > 0.85
