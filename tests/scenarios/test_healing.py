"""How soon a cut is got round and a healed one used, and how many of the connected are served, with the
presets that are made for live nodes. The same scenarios are emulated by `benchmarks/emulation.py`."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from roamcast.lab.run.runs import RunResult, simulate
from roamcast.lab.run.tables import records
from roamcast.scenario import read_tables, scenario_from
from roamcast.trace import Delivered, Published
from roamcast.units import SECOND, NodeId, micros, seconds

EXAMPLES = Path(__file__).parents[2] / "examples" / "emulate"
STRATEGIES = ("chapar", "tree")
CONTACT = ((3.0, "cut"), (13.0, "heal"), (16.2, "cut"))


def run(example: str, strategy: str, *settings: tuple[str, Any]) -> RunResult:
    path = EXAMPLES / f"{example}.toml"
    chosen = [("strategy.name", strategy), ("strategy.options.preset", "prompt"), *settings]
    return simulate(scenario_from(read_tables(path), path.parent, chosen))


def first_arrival(result: RunResult, since: float, publisher: NodeId, receiver: NodeId) -> float:
    """Seconds from an instant until an event published after it is there; infinite if none is."""
    begin = micros(since)
    published = {
        event.sequence
        for event in records(result.tables, Published)
        if event.publisher == publisher and begin <= event.t < begin + 3 * SECOND
    }
    arrivals = (
        seconds(delivery.t - begin)
        for delivery in records(result.tables, Delivered)
        if delivery.publisher == publisher and delivery.node == receiver and delivery.sequence in published
    )
    return min(arrivals, default=float("inf"))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_way_round_a_ring_is_used_within_a_second(strategy: str, seed: int) -> None:
    result = run("ring", strategy, ("scenario.seed", seed), ("scenario.duration", 13.0))
    assert first_arrival(result, 10.0, 0, 1) < 1.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_new_events_cross_a_healed_link_within_a_second(strategy: str) -> None:
    cuts = [5.0 + 6.0 * number for number in range(5)]
    faults = [{"at": at, "kind": "cut", "links": [[2, 3]]} for at in cuts]
    faults += [{"at": at + 3.0, "kind": "heal", "links": [[2, 3]]} for at in cuts]
    workload = {"size": 200, "rate": 10.0, "class": "realtime"}
    result = run("line", strategy, ("fault", faults), ("scenario.duration", 36.0), ("workload", workload))
    assert median(first_arrival(result, at + 3.0, 0, 4) for at in cuts) < 1.0
    assert median(first_arrival(result, at + 3.0, 4, 0) for at in cuts) < 1.0


@pytest.mark.parametrize("strategy", ["epidemic", "tree", "directed"])
def test_a_contact_of_three_seconds_hands_over_hundreds_of_events(strategy: str) -> None:
    """0 and 2 each memorize 50 events a second while 2 and 3 are apart for ten."""
    faults = [{"at": at, "kind": kind, "links": [[2, 3]]} for at, kind in CONTACT]
    workload = {"size": 200, "rate": 50.0, "class": "memorized", "lifetime": 60.0, "stop": 13.0}
    settings = [("fault", faults), ("scenario.duration", 17.0), ("workload", workload)]
    options = {"preset": "prompt"} if strategy == "tree" else {}
    chosen = [("strategy", {"name": strategy, "options": options}), ("roles.publishers", [0, 2]), *settings]
    path = EXAMPLES / "line.toml"
    result = simulate(scenario_from(read_tables(path), path.parent, chosen))
    handed = [
        delivery
        for delivery in records(result.tables, Delivered)
        if delivery.node == 3 and 13 * SECOND <= delivery.t < 16.2 * SECOND
    ]
    assert len(handed) > 600
    assert handed[0].t < 13.5 * SECOND
    for publisher in (0, 2):
        sequences = [each.sequence for each in handed if each.publisher == publisher]
        assert sequences == sorted(sequences)
    assert result.metrics["duplicates"] == 0


@pytest.mark.parametrize(("mobility", "least"), [("walking", 0.97), ("driving", 0.94)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pairs_that_are_connected_are_served(strategy: str, mobility: str, least: float) -> None:
    metrics = run(mobility, strategy, ("scenario.duration", 70.0)).metrics
    served = metrics["delivery_ratio_reachable"]
    assert served is not None and served >= least
    assert metrics["duplicates"] == 0
