"""The adaptation layer in whole networks: adaptors over the real tables, handoffs and messages."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategy.opportunistic.documented import documented_adaptor
from tests.strategy.opportunistic.schedules import JOURNAL, play

from roamcast.errors import ScenarioError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.lab.run.runs import simulate
from roamcast.modulator import MODULATORS, Content, Modulator, guard
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.adaptation.events import Measured
from roamcast.strategy.opportunistic.adaptation.services import BrokerFacts
from roamcast.strategy.opportunistic.messages import (
    Ask,
    BecomeBroker,
    Fetch,
    Head,
    Keep,
    Reading,
    Report,
    ServerAnswer,
    StreamMessage,
    Unwatch,
    Volunteer,
    Watch,
)
from roamcast.trace import Delivered, HandedOff, LoadSampled, OverlayChanged, Transmitted
from roamcast.units import SECOND, Micros, NodeId, micros

pytestmark = pytest.mark.long


class GrowParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: int = 2_000
    cost: int = 0


class Grow(Modulator):
    """Makes events larger, at a cost."""

    def __init__(self, parameters: GrowParameters) -> None:
        self._parameters = parameters

    def process(self, event: Event) -> Content | None:
        return Content(event.attributes, bytes(len(event.payload) + self._parameters.by))

    def cost(self, event: Event) -> int:
        return self._parameters.cost


if "test_grow" not in MODULATORS.names():
    MODULATORS.add("test_grow", GrowParameters, lambda _, parameters: Grow(parameters))


def line(nodes: int, brokers: list[int], publisher: int, **changes: Any) -> dict[str, Any]:
    """Nodes in a row, each in range of the next."""
    made: dict[str, Any] = {
        "scenario": {"name": "line", "duration": 120.0, "warmup": 0.0, "seed": 1},
        "world": {
            "nodes": nodes,
            "area": [100.0 * nodes, 10.0],
            "range": 110.0,
            "mobility": {"model": "static", "positions": [[100.0 * n, 0.0] for n in range(nodes)]},
        },
        "roles": {"brokers": brokers, "publishers": [publisher], "subscribers": []},
        "workload": {"rate": 2.0, "start": 15.0, "stop": 110.0, "size": 2_000},
        "underlay": {"name": "ideal"},
        "strategy": {
            "name": "opportunistic",
            "options": {"broker_update": 5.0, "broker_discovery": 3.0, "neighbours_wanted": 2},
        },
    }
    for name, change in changes.items():
        if name == "options":
            made["strategy"]["options"].update(change)
        else:
            made[name] = {**made.get(name, {}), **change} if isinstance(change, dict) else change
    return made


def strategy_of(simulation: Simulation, node: NodeId) -> Opportunistic:
    at = simulation.nodes[node]
    assert at is not None and isinstance(at.strategy, Opportunistic)
    return at.strategy


def home_of(simulation: Simulation, client: NodeId) -> NodeId | None:
    return strategy_of(simulation, client).client.home


def delivered(simulation: Simulation, node: NodeId) -> list[tuple[NodeId, int]]:
    return [(d.publisher, d.sequence) for d in simulation.trace.of(Delivered) if d.node == node]


# Options.


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"adaptors": ["topology", "smart"]},
            "has 'smart'; allowed: broker_creation, broker_removal, complex",
        ),
        ({"adaptors": ["complex", "complex"]}, "has 'complex' twice"),
        ({"willing": "some"}, "willing"),
        ({"directory": "mine"}, "directory"),
        ({"directory": 99}, "directory.*names node 99; allowed: 0 to 3"),
        ({"willing": [1, 99]}, "willing.*names node 99; allowed: 0 to 3"),
        ({"capacities": {"4": 2.0}}, "capacities.*names node 4; allowed: 0 to 3"),
        ({"capacities": {"abc": 2.0}}, "capacities.*has 'abc'; allowed: numbers of nodes"),
    ],
)
def test_wrong_options_are_told_when_the_scenario_is_read(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        scenario_from(line(4, [1, 2], 0, options=options))


# Topology.


@pytest.mark.parametrize(("adaptors", "follows"), [(["topology"], True), (["complex"], False)])
def test_the_overlay_follows_the_network_by_the_topology_adaptor_alone(
    adaptors: list[str], follows: bool
) -> None:
    made = line(15, list(range(8)), 9, options={"adaptors": adaptors})
    made["world"] |= {"area": [600.0, 600.0], "range": 200.0}
    made["world"]["mobility"] = {"model": "random_waypoint", "speed": [10.0, 20.0], "pause": [0.0, 0.0]}
    simulation = Simulation(scenario_from(made))
    simulation.engine.run(80 * SECOND)
    changes = Counter(r.t > 15 * SECOND for r in simulation.trace.of(OverlayChanged) if r.peer is not None)
    assert changes[False] > 0  # the first overlay stands in either case
    assert (changes[True] > 10) is follows


# Placement.


def octets_of(modulator: dict[str, Any], adaptors: list[str]) -> tuple[int, Simulation]:
    """Of data frames on the air once places have settled. Producer 0, brokers 1 and 4, consumer 5."""
    workload = {"subscriptions": [{"node": 5, "modulator": modulator}]}
    simulation = Simulation(
        scenario_from(line(6, [1, 4], 0, workload=workload, options={"adaptors": adaptors}))
    )
    simulation.run()
    frames = [t for t in simulation.trace.of(Transmitted) if t.kind == "data" and t.t > 60 * SECOND]
    return sum(t.size for t in frames), simulation


def test_a_shrinking_modulator_moves_toward_the_source_and_saves_traffic() -> None:
    shrinks = {"name": "projection", "attributes": ["key"]}
    at_home, before = octets_of(shrinks, ["topology", "complex"])
    placed, after = octets_of(shrinks, ["topology", "complex", "placement"])
    # The 2,000 octets go five hops to the consumer's broker, or one to the producer's.
    assert placed < at_home / 3
    assert [h.destination for h in after.trace.of(HandedOff) if h.outcome == "moved"] == [1]
    assert (home_of(before, 5), home_of(after, 5)) == (4, 1)
    assert delivered(after, 5) == delivered(before, 5) and len(delivered(after, 5)) > 100


def test_a_growing_modulator_moves_toward_the_consumer() -> None:
    """It begins at the producer's broker, where the test has put it, and goes back by itself."""
    grows = {"name": "test_grow"}
    workload = {"subscriptions": [{"node": 5, "modulator": grows}]}
    homes = {}
    for adaptors in (["topology"], ["topology", "placement"]):
        simulation = Simulation(
            scenario_from(line(6, [1, 4], 0, workload=workload, options={"adaptors": adaptors}))
        )
        simulation.engine.run(20 * SECOND)
        broker = strategy_of(simulation, 4).broker
        assert broker is not None
        broker.clients.place(5, 1, access=4)
        simulation.run()
        frames = [t for t in simulation.trace.of(Transmitted) if t.kind == "data" and t.t > 60 * SECOND]
        homes[len(adaptors)] = home_of(simulation, 5), sum(t.size for t in frames)
        assert len(delivered(simulation, 5)) > 100
    assert (homes[1][0], homes[2][0]) == (1, 4)
    assert homes[2][1] < 0.75 * homes[1][1]  # 2,000 of 4,000 octets are saved on four of five hops


# Brokers that come and go.


def crowd(**options: Any) -> dict[str, Any]:
    """Broker 0 in the middle of eight consumers within its range, whose modulators take twice its capacity
    while producer 9 publishes five times per second, from second 20 to second 80."""
    places = [[150.0, 150.0]] + [[150.0 + dx, 150.0 + dy] for dx in (-50, 0, 50) for dy in (-50, 0, 50)]
    made = line(
        10,
        [0],
        9,
        scenario={"duration": 200.0},
        world={"area": [300.0, 300.0], "range": 120.0},
        workload={
            "rate": 5.0,
            "start": 20.0,
            "stop": 80.0,
            "size": 20,
            "subscriptions": [
                {"node": node, "modulator": {"name": JOURNAL, "cost": 50_000}} for node in range(1, 9)
            ],
        },
        options={
            "adaptors": ["topology", "complex", "load_balancing", "broker_creation", "broker_removal"],
            "willing": [3, 6, 7],
            "idle_time": 10.0,
            **options,
        },
    )
    made["world"]["mobility"] = {"model": "static", "positions": places}
    return made


def test_an_overloaded_broker_that_found_nobody_looks_again_when_the_topology_changes() -> None:
    """It would rest for a minute; the broker that it asked for has come long before."""
    adaptors = ["topology", "load_balancing", "broker_creation"]
    simulation = Simulation(scenario_from(crowd(adaptation_rest=60.0, adaptors=adaptors)))
    simulation.engine.run(40 * SECOND)
    made = next(r for r in simulation.trace.of(OverlayChanged) if r.change == "role_on" and r.t > 0)
    given = list(simulation.trace.of(HandedOff))
    assert given and given[0].destination == made.node and given[0].started - made.t < 5 * SECOND


def test_a_broker_asks_where_its_client_is_and_the_server_knows_where_brokers_are() -> None:
    """CIT and information server with places and memory: brokers 1 and 4, client 5, the server on 2."""
    simulation = Simulation(scenario_from(line(6, [1, 4], 0, options={"directory": 2})))
    simulation.engine.run(5 * SECOND)
    adaptation, heard = strategy_of(simulation, 4).adaptation, list[Measured]()
    adaptation._channel.subscribe(Measured, heard.append, lambda e: e.kind == "location" and e.node == 5)
    adaptation.monitor.watch(5, "location", "x > 400")
    adaptation.monitor.watch(5, "location", "x > 500")
    facts: list[BrokerFacts | None] = []
    simulation.engine.run(30 * SECOND)
    assert heard and all((e.values["x"], e.values["y"]) == (500, 0) for e in heard) and len(heard) <= 3
    assert adaptation._central is not None
    adaptation._central.about(1, facts.append)
    simulation.engine.run(31 * SECOND)
    (fact,) = facts
    assert fact is not None and fact.location == (100, 0) and 0 < (fact.memory or 0) <= 64_000_000


@pytest.mark.parametrize("directory", ["own", 2])
def test_brokers_are_made_where_none_has_room_and_end_when_idle(directory: str | int) -> None:
    simulation = Simulation(scenario_from(crowd(directory=directory)))
    simulation.engine.run(75 * SECOND)
    roles = [r for r in simulation.trace.of(OverlayChanged) if r.change.startswith("role")]
    made = [r.node for r in roles if r.change == "role_on" and r.t > 0]
    assert made and set(made) <= {3, 6, 7}
    loads = {n: strategy_of(simulation, n).broker.homes.processor.load() for n in (0, *made)}  # type: ignore[union-attr]
    assert max(loads.values()) <= 90 and min(loads.values()) > 20  # twice the capacity, over at least three
    assert any(home_of(simulation, node) == node for node in made)  # their own clients came home to them
    simulation.run()
    ended = [r.node for r in simulation.trace.of(OverlayChanged) if r.change == "role_off"]
    assert sorted(ended) == sorted(made)
    assert all(strategy_of(simulation, node).broker is None for node in made)
    assert {home_of(simulation, node) for node in range(1, 10)} == {0}
    for node in range(1, 9):
        got = delivered(simulation, node)
        assert got == [(9, sequence) for sequence in range(len(got))] and len(got) > 250
    # A broker that ended is nobody's neighbour, and no message waits for it.
    broker = strategy_of(simulation, 0).broker
    assert broker is not None and broker.overlay.topology.reachable() == []


def test_what_a_broker_was_given_to_keep_outlives_it_as_a_broker() -> None:
    """Node 3 publishes while it is a broker, and at home in itself; a node that subscribes after its end gets
    that all the same."""
    made = crowd(willing=[3])
    publications = [
        {"t": 20.0 + 0.2 * n, "node": 9, "size": 20, "attributes": {"tick": n}} for n in range(250)
    ]
    kept = {"node": 3, "size": 20, "attributes": {"kept": 1}, "class": "memorized", "lifetime": 900.0}
    publications.append({"t": 60.0, **kept})
    for subscription in made["workload"]["subscriptions"]:
        subscription["filter"] = "tick >= 0"
    made["workload"]["subscriptions"].append({"node": 9, "filter": "kept = 1", "from": 150.0})
    made["workload"]["publications"] = publications
    simulation = Simulation(scenario_from(made))
    simulation.engine.run(61 * SECOND)
    assert home_of(simulation, 3) == 3
    simulation.engine.run(149 * SECOND)
    assert strategy_of(simulation, 3).broker is None
    simulation.run()
    assert delivered(simulation, 9) == [(3, 0)]


def test_without_willing_nodes_the_broker_stays_alone_and_overloaded() -> None:
    simulation = Simulation(scenario_from(crowd(willing="none")))
    simulation.engine.run(75 * SECOND)
    broker = strategy_of(simulation, 0).broker
    assert broker is not None and broker.homes.processor.load() > 150
    assert not [r for r in simulation.trace.of(OverlayChanged) if r.change == "role_on" and r.t > 0]


# Readings.


def test_readings_of_another_node_come_by_a_filter_that_is_applied_there() -> None:
    workload = {"subscriptions": [{"node": 5, "modulator": {"name": "test_grow", "cost": 100_000}}]}
    radio = {"model": "disk", "bitrate": 2_000_000, "delay": 0.01}
    simulation = Simulation(scenario_from(line(6, [1, 4], 0, workload=workload, world={"radio": radio})))
    simulation.engine.run(12 * SECOND)
    watcher = strategy_of(simulation, 1).adaptation
    heard: list[Measured] = []
    watcher._channel.subscribe(Measured, heard.append, lambda event: event.node != 1)
    for kind, condition in (
        ("load", "load > 0.15"),
        ("load", "load > 0.5"),
        ("modulator", "took > 0"),
        ("memory", "octets > 0"),
        ("latency", "micros > 0"),
    ):
        watcher.monitor.watch(4, kind, condition)
    watcher.monitor.watch(5, "distance", "hops = 1")  # of a client
    simulation.run()
    kinds = Counter((event.node, event.kind) for event in heard)
    assert set(kinds) == {(4, "load"), (4, "modulator"), (4, "memory"), (4, "latency"), (5, "distance")}
    # Twice 0.1 s per second: readings over 0.15 came every second, none over 0.5.
    assert 60 < kinds[4, "load"] < 110
    assert all(0.15 < event.values["load"] < 0.5 for event in heard if event.kind == "load")
    (_, reading, *_) = [event.values for event in heard if event.kind == "modulator"]
    assert reading["client"] == 5 and reading["octets_out"] > 1.8 * reading["octets_in"] > 0
    assert reading["took"] == pytest.approx(10 * 2 * 100_000, rel=0.3)


class Stopwatch:
    """Functions take 0.1 s of a live node's processor, whatever they say."""

    def run(self, call: Callable[[], guard.Answer], modelled: Micros) -> tuple[guard.Answer, Micros]:
        return call(), 100_000

    def check(self, modelled: Micros) -> None:
        pass


def test_measured_time_is_load_too() -> None:
    workload = {"subscriptions": [{"node": 5, "modulator": {"name": "test_grow"}}]}
    simulation = Simulation(scenario_from(line(6, [1, 4], 0, workload=workload)))
    simulation._meter = Stopwatch()  # type: ignore[assignment]
    simulation.engine.run(60 * SECOND)
    broker = strategy_of(simulation, 4).broker
    assert broker is not None
    assert broker.load() == pytest.approx(20, abs=5) == broker.homes.processor.load()


def test_loads_are_sampled_into_the_trace_and_the_metrics() -> None:
    workload = {"subscriptions": [{"node": 5, "modulator": {"name": "test_grow", "cost": 100_000}}]}
    run = simulate(scenario_from(line(6, [1, 4], 0, workload=workload, scenario={"warmup": 30.0})))
    assert run.metrics["broker_load_max"] == pytest.approx(0.2, abs=0.08)
    assert run.metrics["broker_load_mean"] == pytest.approx(
        0.09, abs=0.02
    )  # the other broker has nothing to do
    rows = run.tables["loads"].to_pylist()
    assert {row["node"] for row in rows} == {1, 4} and len(rows) == 24
    assert LoadSampled.TABLE == "loads" and micros(10.0) == rows[0]["span"]


def test_the_adaptor_of_the_documentation_runs_in_a_network() -> None:
    """Broker 4 has hardly any memory: its client's modulator goes to broker 1."""
    workload = {"subscriptions": [{"node": 5, "modulator": {"name": "test_grow"}}]}
    with documented_adaptor():
        options = {"adaptors": ["topology", "low_memory"], "memory": 15_000_000}
        simulation = Simulation(scenario_from(line(6, [1, 4], 0, workload=workload, options=options)))
        simulation.engine.run(30 * SECOND)
    (first, *_) = [h for h in simulation.trace.of(HandedOff) if h.outcome == "moved"]
    assert (first.node, first.source, first.destination) == (5, 4, 1)


# Strangers.


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(range(12)), st.integers(0, 2**63 - 1)), max_size=30)
)
def test_messages_of_strangers_stop_nobody(said: list[tuple[int, int, int]]) -> None:
    """Any node may say anything to any other; deliveries go on."""
    workload = {"subscriptions": [{"node": 5}], "stop": 20.0}
    options = {
        "adaptors": ["topology", "complex", "load_balancing", "placement", "broker_creation"],
        "directory": 1,
    }
    simulation = Simulation(
        scenario_from(line(6, [1, 4], 0, workload=workload, options=options, scenario={"duration": 30.0}))
    )
    simulation.engine.run(12 * SECOND)
    for to, which, number in said:
        strategy_of(simulation, 3)._streams.write(to, STRANGE[which](number))
    simulation.run()
    got = delivered(simulation, 5)
    assert got == [(0, sequence) for sequence in range(len(got))] and len(got) >= 9
    assert all(strategy_of(simulation, node).broker is None for node in (0, 2, 3, 5))  # nobody was willing


STRANGE: tuple[Callable[[int], StreamMessage], ...] = (
    lambda n: Watch(n, "load", b"\xff\x00"),
    lambda n: Watch(n, "", Filter.sql("load > 0").encode()),
    lambda n: Unwatch(n),
    lambda n: Reading(n, "modulator", ("client", "access"), (float("nan"), float("inf"))),
    lambda n: Report(n % 1_000_001, True, (n, n, n)),
    lambda n: Volunteer(),
    lambda n: Ask(n, n % 1_000_001),
    lambda n: ServerAnswer(n, n),
    lambda n: BecomeBroker(),
    lambda n: Fetch(n % 6, n % 2 == 0, n % 6, n, n, n, (b"\xff",)),
    lambda n: Head(n % 5, n % 2 == 0, n % 6, n, False),
    lambda n: Keep(Event(3, n % 1000, {}), n, 3),
)


# Guarantees.


@pytest.mark.parametrize("first", [0, 10, 20])
def test_nothing_is_lost_doubled_or_reordered_while_adaptors_act(first: int) -> None:
    """Clients are moved by the schedule and by all adaptors at once; brokers come and go."""
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + 10):
        outcome = play(seed, adapt=True)
        assert not outcome.problems, f"schedule {seed}: {outcome.problems[0]}"
        outcomes += outcome.outcomes
    assert outcomes["moved"] > 100 and outcomes["refused"]  # else the above proves nothing
