"""Whole networks that route by content over the acyclic overlay."""

from typing import Any

import pytest

from roamcast.lab.run.runs import RunResult, simulate
from roamcast.scenario import scenario_from

FORMED = 20.0  # seconds; by then the tree stands and the tables are told


def run(**tables: Any) -> RunResult:
    tables.setdefault("strategy", {"name": "tree"})
    return simulate(scenario_from(tables))


def static(positions: list[tuple[float, float]], reach: float = 120.0, **world: Any) -> dict[str, Any]:
    return {
        "nodes": len(positions),
        "area": [1000.0, 1000.0],
        "range": reach,
        "mobility": {"model": "static", "positions": [list(p) for p in positions]},
        **world,
    }


def messages(result: RunResult, name: str) -> list[dict[str, Any]]:
    return [row for row in result.tables["transmissions"].to_pylist() if row["message"] == name]


LINE = [(100.0 * n, 0.0) for n in range(5)]
GRID = [(100.0 * (n % 4), 100.0 * (n // 4)) for n in range(16)]
RING = [(100.0, 0.0), (200.0, 0.0), (250.0, 87.0), (200.0, 174.0), (100.0, 174.0), (50.0, 87.0)]


def test_on_a_line_every_event_reaches_everyone_once() -> None:
    """One frame for each node that has someone to pass an event on to: four from the ends, else three."""
    result = run(
        scenario={"name": "line", "duration": 40.0, "warmup": FORMED},
        world=static(LINE),
        workload={"publications": [{"t": 30.0 + n, "node": n} for n in range(5)]},
    )
    metrics = result.metrics
    assert metrics["expected"] == metrics["delivered"] == 20
    assert metrics["duplicates"] == metrics["misdelivered"] == 0
    assert metrics["data_messages"] == 17
    # From the ends 1 + 2 + 3 + 4, beside them 1 + 1 + 2 + 3, from the middle 2 + 1 + 1 + 2.
    assert metrics["hops_mean"] == (2 * 10 + 2 * 7 + 6) / 20


@pytest.mark.parametrize("radio", [{"model": "ideal"}, {"model": "csma"}])
@pytest.mark.parametrize("seed", [1, 2])
def test_on_a_grid_everyone_who_wants_an_event_gets_it_once(radio: dict[str, Any], seed: int) -> None:
    result = run(
        scenario={"name": "grid", "duration": 60.0, "warmup": FORMED, "seed": seed},
        world=static(GRID, radio=radio),
        roles={"publishers": 4, "subscribers": 8},
        workload={"rate": 1.0, "size": 64, "match": 0.3},
    )
    metrics = result.metrics
    assert metrics["expected"]
    assert metrics["delivery_ratio"] == 1.0
    assert metrics["duplicates"] == metrics["misdelivered"] == 0


def test_events_travel_only_towards_those_who_want_them() -> None:
    result = run(
        scenario={"name": "filters", "duration": 40.0, "warmup": FORMED},
        world=static(LINE),
        workload={
            "subscriptions": [
                {"node": 1, "filter": "level > 3"},
                {"node": 2, "filter": "level > 3 AND zone = 'north'"},
                {"node": 4, "topic": "alarms/#"},
            ],
            "publications": [
                {"t": 30.0, "node": 0, "attributes": {"level": 5, "zone": "north"}},  # 1, 2: two links
                {"t": 31.0, "node": 0, "attributes": {"level": 5, "zone": "south"}},  # 1: one link
                {"t": 32.0, "node": 0, "attributes": {"level": 1}},  # nobody
                {"t": 33.0, "node": 3, "topic": "alarms/fire"},  # 4: one link
            ],
        },
    )
    delivered = result.tables["deliveries"].select(["node", "sequence"]).to_pylist()
    assert sorted((row["node"], row["sequence"]) for row in delivered) == [(1, 0), (1, 1), (2, 0), (4, 0)]
    assert result.metrics["expected"] == result.metrics["delivered"] == 4
    assert result.metrics["data_messages"] == 4


def test_a_memorized_event_is_fetched_by_a_later_subscription_far_away() -> None:
    result = run(
        scenario={"name": "memorized", "duration": 120.0},
        world=static(LINE),
        workload={
            "subscriptions": [{"node": 4, "from": 60.0}, {"node": 3, "from": 100.0}],
            "publications": [{"t": 30.0, "node": 0, "class": "memorized", "lifetime": 50.0}],
        },
    )
    assert result.metrics["expected"] == result.metrics["delivered"] == 1
    assert 30.0 <= float(result.metrics["latency_p50"] or 0) <= 31.0


def test_a_memorized_event_crosses_to_a_partition_that_comes_back() -> None:
    result = run(
        scenario={"name": "partition", "duration": 90.0},
        world=static(LINE),
        workload={
            "publications": [{"t": 40.0, "node": 0, "class": "memorized", "lifetime": 60.0}],
        },
        fault=[
            {"at": 30.0, "kind": "cut", "links": [[1, 2]]},
            {"at": 60.0, "kind": "heal", "links": [[1, 2]]},
        ],
    )
    assert result.metrics["expected"] == result.metrics["delivered"] == 4
    assert result.metrics["duplicates"] == 0
    late = [row["t"] / 1e6 for row in result.tables["deliveries"].to_pylist() if row["node"] >= 2]
    assert len(late) == 3 and all(60.0 < t < 90.0 for t in late)


def test_on_a_ring_a_cut_link_is_replaced_and_nothing_is_lost() -> None:
    """Whichever link of the ring is not in the tree takes over; the events of the gap come late, once."""
    result = run(
        scenario={"name": "ring", "duration": 80.0, "warmup": FORMED},
        world=static(RING, reach=101.0),
        workload={"publications": [{"t": 25.0 + n / 4, "node": n % 6} for n in range(160)]},
        fault=[
            {"at": 30.0, "kind": "cut", "links": [[0, 1]]},
            {"at": 40.0, "kind": "heal", "links": [[0, 1]]},
            {"at": 45.0, "kind": "cut", "links": [[3, 4]]},
            {"at": 55.0, "kind": "heal", "links": [[3, 4]]},
        ],
    )
    metrics = result.metrics
    assert metrics["expected"] == metrics["delivered"] == 160 * 5
    assert metrics["duplicates"] == metrics["misdelivered"] == 0
    assert float(metrics["link_breaks_per_s"] or 0) > 0


def test_after_the_tree_has_formed_steady_traffic_costs_a_few_digests_and_no_table_changes() -> None:
    result = run(
        scenario={"name": "steady", "duration": 60.0, "warmup": FORMED},
        world=static(GRID),
        roles={"publishers": 4, "subscribers": "all"},
        workload={"rate": 1.0},
    )
    for name in ("subscription", "acknowledge", "request", "recovery"):
        assert [row["t"] for row in messages(result, name) if row["t"] > FORMED * 1e6] == [], name
    assert len(messages(result, "digest")) < 1.5 * len(messages(result, "event"))


def test_a_crashed_dispatcher_comes_back_and_events_flow_again() -> None:
    result = run(
        scenario={"name": "crash", "duration": 120.0, "warmup": FORMED},
        world=static(LINE),
        workload={"publications": [{"t": float(t), "node": 0} for t in (25, 50, 110)]},
        fault=[
            {"at": 30.0, "kind": "crash", "nodes": [2]},
            {"at": 70.0, "kind": "restart", "nodes": [2]},
        ],
    )
    assert result.metrics["delivered"] == 4 + 1 + 4
    assert result.metrics["duplicates"] == 0


def test_on_a_lossy_radio_everything_arrives_once() -> None:
    result = run(
        scenario={"name": "lossy", "duration": 90.0, "warmup": 30.0},
        world=static(GRID, radio={"model": "disk", "loss": 0.1}),
        roles={"publishers": 3, "subscribers": 8},
        workload={"rate": 0.5, "size": 64},
    )
    assert float(result.metrics["delivery_ratio"] or 0) > 0.99
    assert result.metrics["duplicates"] == result.metrics["misdelivered"] == 0


@pytest.mark.parametrize("recovery", ["none", "push"])
def test_among_walkers_most_events_arrive_and_recovery_brings_the_rest(recovery: str) -> None:
    metrics = run(
        scenario={"name": "walkers", "duration": 90.0, "warmup": FORMED},
        world={
            "nodes": 20,
            "area": [700.0, 700.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 5.0], "pause": [5.0, 5.0]},
            "radio": {"model": "csma"},
        },
        roles={"publishers": 4, "subscribers": 10},
        workload={"rate": 1.0, "size": 128, "match": 0.5},
        strategy={"name": "tree", "options": {"recovery": recovery}},
    ).metrics
    assert float(metrics["delivery_ratio"] or 0) > (0.99 if recovery == "push" else 0.85)
    assert metrics["duplicates"] == metrics["misdelivered"] == 0


def test_a_dense_network_that_moves_carries_twenty_publishers() -> None:
    """The setting of `odmrp/mobility` at 10 m/s, in short: before overheard events counted as arrivals, the
    tree's own recovery and tables overloaded the radio, and two of five pairs were served."""
    metrics = run(
        scenario={"name": "load", "duration": 16.0, "warmup": 10.0},
        world={
            "nodes": 100,
            "area": [1000.0, 1000.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [10.0, 10.0], "pause": [0.0, 0.0]},
            "radio": {"model": "csma"},
        },
        roles={"publishers": 20, "subscribers": 50},
        workload={"rate": 0.5, "match": 0.6, "start": 5.0, "stop": 13.0},
    ).metrics
    assert float(metrics["delivery_ratio"] or 0) > 0.93
    assert metrics["duplicates"] == metrics["misdelivered"] == 0
