"""Whole networks under `epidemic`, against outcomes counted by hand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.broker.core import Broker, Delivery
from roamcast.lab.run.runs import RunResult, simulate
from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.epidemic import Epidemic, EpidemicOptions
from roamcast.testing import FakeHost, Network
from roamcast.testing import line as network_line
from roamcast.trace import Delivered, Dropped, Published, Trace, Transmitted
from roamcast.underlay.base import NoUnderlay
from roamcast.underlay.beacons import CODEC as BEACONS
from roamcast.underlay.beacons import LadenBeacon
from roamcast.units import SECOND


def run(**tables: Any) -> RunResult:
    tables.setdefault("strategy", {"name": "epidemic"})
    return simulate(scenario_from(tables))


def line(nodes: int, **radio: Any) -> dict[str, Any]:
    return {
        "nodes": nodes,
        "area": [1000.0, 1000.0],
        "range": 120.0,
        "mobility": {"model": "static", "positions": [[100.0 * n, 0.0] for n in range(nodes)]},
        "radio": radio or {"model": "ideal"},
    }


def test_on_a_line_everyone_gets_it_once_and_the_far_end_need_not_speak() -> None:
    metrics = run(
        scenario={"name": "line", "duration": 20.0},
        world=line(5),
        workload={"publications": [{"t": 10.0, "node": 0}]},
    ).metrics
    assert (metrics["expected"], metrics["delivered"], metrics["duplicates"]) == (4, 4, 0)
    assert metrics["data_messages"] == 4  # node 4 knows that its only neighbour has it


def test_in_a_full_mesh_one_broadcast_is_enough() -> None:
    world = line(6) | {"range": 1000.0}
    metrics = run(
        scenario={"name": "mesh", "duration": 20.0},
        world=world,
        workload={"publications": [{"t": 10.0, "node": 0}]},
    ).metrics
    assert (metrics["delivered"], metrics["data_messages"]) == (5, 1)


CUT = [{"at": 5.0, "kind": "cut", "links": [[1, 2]]}, {"at": 30.0, "kind": "heal", "links": [[1, 2]]}]


@pytest.mark.parametrize("event_class", ["memorized", "realtime"])
def test_what_is_memorized_crosses_a_healed_cut_and_what_is_not_does_not(event_class: str) -> None:
    result = run(
        scenario={"name": "cut", "duration": 40.0},
        world=line(4),
        workload={
            "class": event_class,
            "lifetime": 60.0,
            "publications": [{"t": 10.0, "node": 0}, {"t": 11.0, "node": 3}],
        },
        fault=CUT,
    )
    metrics = result.metrics
    assert (metrics["expected"], metrics["duplicates"]) == (6, 0)
    assert metrics["delivered"] == (6 if event_class == "memorized" else 2)


def around_a_restart(strategy: str, crashed: int) -> Trace:
    """Nodes in a line, 0 publishes twice a second, and one of them is down from 20 to 26 s."""
    tables: dict[str, Any] = {
        "scenario": {"name": "restart", "duration": 35.0},
        "world": line(4),
        "workload": {"publications": [{"t": 12.25 + 0.5 * n, "node": 0} for n in range(40)]},
        "strategy": {"name": strategy},
        "fault": [
            {"at": 20.0, "kind": "crash", "nodes": [crashed]},
            {"at": 26.0, "kind": "restart", "nodes": [crashed]},
        ],
    }
    return Simulation(scenario_from(tables)).run().trace


@pytest.mark.parametrize("strategy", ["epidemic", "directed"])
def test_nobody_hands_a_restarted_node_what_it_must_refuse(strategy: str) -> None:
    trace = around_a_restart(strategy, 3)
    assert not trace.of(Dropped)
    boot = 26 * SECOND
    late = {one.sequence for one in trace.of(Published) if one.t > boot}
    handed = {sent.sequence for sent in trace.of(Transmitted) if sent.message == "handed"}
    assert handed <= late
    assert {one.sequence for one in trace.of(Delivered) if one.node == 3 and one.t > boot} == late


@pytest.mark.parametrize("strategy", ["epidemic", "directed"])
def test_a_restarted_node_takes_old_events_to_those_who_miss_them_for_its_absence(strategy: str) -> None:
    trace = around_a_restart(strategy, 1)
    for node in (2, 3):
        assert len({one.sequence for one in trace.of(Delivered) if one.node == node}) == 40


def on_a_lossy_line(strategy: str) -> float:
    metrics = run(
        scenario={"name": "lossy", "duration": 60.0, "seed": 3},
        world=line(6, model="disk", loss=0.3),
        roles={"publishers": 2},
        workload={"rate": 1.0, "stop": 50.0, "start": 5.0},
        strategy={"name": strategy},
    ).metrics
    assert metrics["duplicates"] == 0
    ratio = metrics["delivery_ratio_reachable"]
    assert ratio is not None
    return ratio


def test_what_a_lossy_radio_lost_is_mended() -> None:
    # Nearly three frames in ten are lost, on each of up to five hops, and only five seconds are left to
    # mend that: not everything comes in time.
    assert on_a_lossy_line("epidemic") > 0.95
    assert on_a_lossy_line("flooding") < 0.8


@pytest.mark.parametrize("seed", range(4))
def test_walkers_carry_memorized_events_to_everyone_they_meet(seed: int) -> None:
    """With long contacts and enough time nobody is left out, whatever the partitions on the way."""
    metrics = run(
        scenario={"name": "carry", "duration": 400.0, "seed": seed},
        world={
            "nodes": 8,
            "area": [300.0, 300.0],
            "range": 60.0,
            "mobility": {"model": "random_waypoint", "speed": [3.0, 6.0], "pause": [0.0, 0.0]},
            "radio": {"model": "csma"},
        },
        roles={"publishers": 4},
        workload={"rate": 0.2, "class": "memorized", "lifetime": 400.0, "stop": 100.0},
    ).metrics
    assert metrics["reachable_ratio"] != 1.0
    assert metrics["delivery_ratio"] == 1.0 and metrics["duplicates"] == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_node_that_restarts_before_its_neighbour_notices_is_told_what_it_missed(seed: int) -> None:
    """Found live: nobody met anybody, and the next unchanged digest came after up to five seconds. Now: a
    beacon, a digest with empty hands, and one in return after at most an interval."""
    result = run(
        scenario={"name": "restart", "duration": 30.0, "seed": seed},
        world=line(2),
        workload={"class": "memorized", "lifetime": 60.0, "publications": [{"t": 20.5, "node": 0}]},
        fault=[
            {"at": 20.0, "kind": "crash", "nodes": [1]},
            {"at": 21.5, "kind": "restart", "nodes": [1]},
        ],
    )
    (delivered_at,) = result.tables["deliveries"].column("t").to_pylist()
    assert 21.5 * SECOND < delivered_at < 23.6 * SECOND


class Ignores:
    def on_event(self, delivery: Delivery) -> None:
        pass


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_octets_are_handled_or_counted(payloads: list[bytes]) -> None:
    host = FakeHost(node=1)
    layer = Epidemic(StrategyContext(host, Broker(host, Ignores()), NoUnderlay()), EpidemicOptions())
    host.attach(layer)
    layer.on_start()
    for payload in payloads:
        layer.on_receive(2, b"\x01" + payload)
    host.advance(5_000_000)
    assert all(isinstance(record, Dropped) for record in host.records)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_member_that_claims_to_cover_all_and_passes_nothing_on_only_costs_time(seed: int) -> None:
    """On the line 0 – 1 – 2 – 3, node 4 is near 0, 1 and 2, says that it hears all and holds the same."""
    network = Network(4, "epidemic", links=network_line(4), seed=seed)
    for node in range(4):
        network.subscribe(node)

    def lie(seconds: int) -> None:
        for _ in range(seconds):
            for node in range(3):
                strategy = network.node(node).strategy
                assert isinstance(strategy, Epidemic)
                held = strategy.repair.holdings.fingerprint(network.engine.now, 0)
                network.node(node).underlay.on_receive(4, BEACONS.encode(LadenBeacon((0, 1, 2, 3), held)))
            network.run(1.0)

    lie(5)
    network.publish(0)
    network.run(0.09)
    assert len(network.delivered) == 1, "4 was named in the place of 1"
    lie(6)
    assert {arrival.node for arrival in network.delivered} == {1, 2, 3}
