"""Whole networks: overlays and homes that follow the motion, partitions, crashes, bad modulators."""

from functools import partial
from typing import Any

import pytest

from roamcast.broker.core import Delivery
from roamcast.event import Event
from roamcast.lab.league.league import FOLDER, SCENARIOS
from roamcast.lab.run.runs import simulate
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.runtime.meter import SimMeter
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import load_scenario, scenario_from
from roamcast.trace import Dropped, DropReason, HandedOff
from roamcast.underlay.base import NoOptions
from roamcast.units import SECOND


def tables(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "scenario": {"name": "walkers", "duration": 90.0, "warmup": 20.0, "seed": 3},
        "world": {
            "nodes": 30,
            "area": [600.0, 600.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [10.0, 10.0]},
        },
        "roles": {"brokers": 8, "publishers": 3, "subscribers": 15},
        "workload": {"rate": 0.5, "stop": 80.0},
        "underlay": {"name": "ideal"},
        "strategy": {
            "name": "opportunistic",
            "options": {"broker_update": 10.0, "broker_discovery": 5.0},
        },
    }
    for name, change in changes.items():
        made[name] = {**made.get(name, {}), **change} if isinstance(change, dict) else change
    return made


def line(**changes: Any) -> dict[str, Any]:
    """0 - 1 - 2 - 3: a producer, two brokers, a consumer."""
    positions = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0], [300.0, 0.0]]
    made = tables(
        scenario={"duration": 60.0, "warmup": 0.0},
        world={"nodes": 4, "area": [400.0, 10.0], "range": 110.0},
        roles={"brokers": [1, 2], "publishers": [0], "subscribers": [3]},
        workload={"rate": 1.0, "stop": 50.0, "start": 15.0},
    )
    made["world"]["mobility"] = {"model": "static", "positions": positions}
    for name, change in changes.items():
        made[name] = {**made.get(name, {}), **change} if isinstance(change, dict) else change
    return made


@pytest.mark.parametrize("mode", ["opportunistic", "static", "static-opportunistic", "best"])
def test_every_mode_delivers_everything_once_and_in_order(mode: str) -> None:
    options = {"broker_update": 10.0, "broker_discovery": 5.0, "mode": mode}
    run = simulate(scenario_from(tables(strategy={"options": options})))
    assert run.metrics["delivery_ratio_reachable"] == 1.0
    assert run.metrics["duplicates"] == run.metrics["misdelivered"] == 0
    if mode == "static":
        assert run.metrics["handoffs"] is None
    else:
        assert run.metrics["handoffs"] and run.metrics["reordered"] == run.metrics["lost_in_handoff"] == 0


def test_it_needs_no_oracle() -> None:
    """Over OLSR, whose routes are found by messages, the same protocol still delivers nearly everything."""
    run = simulate(
        scenario_from(tables(underlay={"name": "olsr"}, workload={"stop": 60.0}, scenario={"duration": 70.0}))
    )
    ratio = run.metrics["delivery_ratio_reachable"]
    assert isinstance(ratio, float) and ratio > 0.95
    assert run.metrics["duplicates"] == 0


def test_what_a_partition_holds_back_is_delivered_after_healing() -> None:
    cut = [
        {"at": 25.0, "kind": "cut", "links": [[1, 2]]},
        {"at": 40.0, "kind": "heal", "links": [[1, 2]]},
    ]
    run = simulate(scenario_from(line(fault=cut)))
    assert run.metrics["delivery_ratio"] == 1.0
    latency = run.metrics["latency_p95"]
    assert isinstance(latency, float) and latency > 5.0  # else nothing was held back


def test_a_discard_function_decides_what_waits() -> None:
    cut = [
        {"at": 25.0, "kind": "cut", "links": [[1, 2]]},
        {"at": 40.0, "kind": "heal", "links": [[1, 2]]},
    ]
    options = {"broker_update": 10.0, "broker_discovery": 5.0, "discard": "realtime"}
    run = simulate(scenario_from(line(fault=cut, strategy={"options": options})))
    ratio = run.metrics["delivery_ratio"]
    assert isinstance(ratio, float) and 0.5 < ratio < 1.0


def test_clients_of_a_crashed_broker_find_another_home() -> None:
    """Consumer 3 hears 1 and 2; 2 is its home or 1 is; whichever crashes, the other takes over."""
    made = line(fault=[{"at": 25.0, "kind": "crash", "nodes": [2]}])
    made["world"]["range"] = 210.0
    run = simulate(scenario_from(made))
    ratio = run.metrics["delivery_ratio"]
    assert isinstance(ratio, float) and ratio > 0.7
    late = [row for row in run.tables["deliveries"].to_pylist() if row["t"] > 45_000_000]
    assert late


class Bad(Modulator):
    def __init__(self, how: str) -> None:
        self._how = how

    def process(self, event: Event) -> Content | None:
        if event.sequence < 3:
            return Content({"seen": event.sequence})
        if self._how == "raises":
            raise ZeroDivisionError("as asked")
        if self._how == "hangs":
            while True:
                pass
        return "rubbish"  # type: ignore[return-value]


def make_bad(how: str, context: None, parameters: NoOptions) -> Bad:
    return Bad(how)


for _how in ("raises", "hangs", "returns rubbish"):
    if f"test {_how}" not in MODULATORS.names():
        MODULATORS.add(f"test {_how}", NoOptions, partial(make_bad, _how))


@pytest.mark.parametrize("how", ["raises", "hangs", "returns rubbish"])
def test_a_bad_modulator_is_cut_off_and_its_owner_told_and_others_go_on(how: str) -> None:
    subscriptions = [
        {"node": 3, "modulator": {"name": f"test {how}"}},
        {"node": 3, "modulator": {"name": "projection", "attributes": ["key"]}},
        {"node": 2},
    ]
    simulation = Simulation(scenario_from(line(workload={"rate": 1.0, "subscriptions": subscriptions})))
    simulation._meter = SimMeter(SECOND, hang_limit=SECOND // 5)
    got: list[Delivery] = []
    others: list[Delivery] = []
    simulation._applications[3].on_event = got.append  # type: ignore[method-assign, assignment]
    simulation._applications[2].on_event = others.append  # type: ignore[method-assign, assignment]
    result = simulation.run()
    drops = [d for d in result.trace.of(Dropped) if d.reason is DropReason.MODULATOR]
    assert len(drops) == 1 and drops[0].to == 3 and drops[0].detail
    assert [d.event.type for d in got if d.event.publisher == 3] == ["roamcast.modulator_failed"]
    assert [d.event.sequence for d in got if d.subscriptions == (0,) and d.modulated] == [0, 1, 2]
    published = sum(1 for d in others)
    assert published > 20 and len([d for d in got if d.subscriptions == (1,)]) == published


def test_a_loose_handoff_moves_clients_too() -> None:
    options = {"broker_update": 10.0, "broker_discovery": 5.0, "handoff": "loose"}
    run = simulate(scenario_from(tables(strategy={"options": options})))
    assert run.metrics["handoffs"] and run.metrics["duplicates"] == 0
    assert {row["outcome"] for row in run.tables[HandedOff.TABLE].to_pylist()} == {"moved"}


def test_on_a_slow_channel_what_is_asked_for_does_not_come_several_times_over() -> None:
    """Seed 215 of the league's `narrowband`. Two parts meet, and answers take longer than the first wait:
    asked for again after the same time, they filled the channel, and 0.57 of the pairs were served."""
    settings = ["strategy.name=opportunistic", "limit.events=0"]
    run = simulate(load_scenario(FOLDER / SCENARIOS / "narrowband.toml", 215, settings))
    assert (run.metrics["delivery_ratio_reachable"] or 0) >= 0.99
