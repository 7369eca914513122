"""Pub/Sub ODMRP on whole networks: figures 2 and 5, soft state, exactly once, every loss explained."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from roamcast.errors import ScenarioError
from roamcast.lab.run.expected import expected
from roamcast.lab.run.runs import RunResult, simulate
from roamcast.lab.why.answer import LossReason
from roamcast.lab.why.inquest import explain
from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.strategy.odmrp import Odmrp
from roamcast.trace import Delivered, OverlayChanged, Transmitted
from roamcast.units import SECOND

TIMEOUT = 25 * SECOND


def tables(
    positions: Sequence[tuple[float, float]], *, duration: float = 60.0, **others: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "scenario": {"name": "odmrp", "duration": duration, "seed": others.pop("seed", 1)},
        "world": {
            "nodes": len(positions),
            "area": [2000.0, 2000.0],
            "range": 120.0,
            "mobility": {"model": "static", "positions": [list(place) for place in positions]},
            "radio": others.pop("radio", {"model": "disk"}),
        },
        "strategy": {"name": "odmrp", "options": others.pop("options", {})},
        "workload": others,
    }
    if "fault" in others:
        made["fault"] = others.pop("fault")
    return made


def played(made: dict[str, Any]) -> Simulation:
    simulation = Simulation(scenario_from(made))
    simulation.run()
    return simulation


def forwarding(simulation: Simulation) -> dict[int, list[tuple[int, str]]]:
    """When each node entered and left the forwarding group; nodes that never did are absent."""
    changes: dict[int, list[tuple[int, str]]] = {}
    for change in simulation.trace.of(OverlayChanged):
        if change.role == "forwarding":
            changes.setdefault(change.node, []).append((change.t, change.change))
    return changes


def deliveries(simulation: Simulation) -> set[tuple[int, int, int]]:
    """Who got what; each once, and only what it wanted."""
    found = [(d.publisher, d.sequence, d.node) for d in simulation.trace.of(Delivered) if d.matched]
    assert len(found) == len(set(found)) == len(simulation.trace.of(Delivered))
    return set(found)


def sent(simulation: Simulation, message: str, node: int) -> list[int]:
    return [t.t for t in simulation.trace.of(Transmitted) if t.message == message and t.node == node]


def strategy_of(simulation: Simulation, node: int) -> Odmrp:
    stack = simulation.nodes[node]
    assert stack is not None and isinstance(stack.strategy, Odmrp)
    return stack.strategy


# Figure 2. 0 is the source, 3 and 5 are receivers; 1 and 2 lead to 3, 4 and 6 lead nowhere.
#
#    6       4
#    |       |
#    0 - 1 - 2 - 3
#    |
#    5
FIGURE_2 = [(200, 200), (300, 200), (400, 200), (500, 200), (400, 300), (200, 100), (200, 300)]


def figure_2(**others: Any) -> dict[str, Any]:
    return tables(
        FIGURE_2,
        options={"grouping": "none"},
        subscriptions=[{"node": 3}, {"node": 5}],
        publications=[{"t": t, "node": 0} for t in (1.0, 2.0, 3.0)],
        **others,
    )


def test_figure_2_the_forwarding_group_is_what_lies_between_source_and_receivers() -> None:
    simulation = played(figure_2())
    assert set(forwarding(simulation)) == {1, 2}
    assert deliveries(simulation) == {(0, number, node) for number in range(3) for node in (3, 5)}
    frames = simulation.trace.of(Transmitted)
    assert {frame.node for frame in frames if frame.message == "data"} == {0, 1, 2}
    # Requests are flooded: everybody passes them on.
    assert {frame.node for frame in frames if frame.message == "join_request"} == set(range(7))


def test_figure_2_it_ends_a_timeout_after_the_last_request_and_leaves_nothing() -> None:
    simulation = played(figure_2(duration=90.0))
    for relay, upstream in ((1, 0), (2, 1)):
        (on, started), (off, ended) = forwarding(simulation)[relay]
        assert (started, ended) == ("role_on", "role_off")
        last = [t for t in simulation.trace.of(Transmitted) if t.message == "join_request"]
        heard = [t.t for t in last if t.node == upstream and t.received >> relay & 1]
        # Between the transmission and its reception lie airtime and the disk model's delay.
        assert 0 < off - (heard[-1] + TIMEOUT) < 5_000
        assert on < heard[-1]
    # The source stopped asking once it had been silent for a timeout.
    requests = sent(simulation, "join_request", 0)
    assert requests[-1] <= 3 * SECOND + TIMEOUT
    for node in range(7):
        strategy = strategy_of(simulation, node)
        assert len(strategy.routes) == len(strategy.forwarding) == len(strategy.context) == 0
        assert len(strategy.publisher) == len(strategy.tables) == 0 and strategy.member_table == {}


# Figure 5. P publishes; S matches, NR (non-matching) subscribes to something else.
#
#    NR - 2 - P - 1 - S
P, ONE, TWO, S, NR = range(5)
FIGURE_5 = [(500, 200), (600, 200), (400, 200), (700, 200), (300, 200)]
PLAYERS = [{"node": S, "filter": "player = 'woods'"}, {"node": NR, "filter": "player = 'palmer'"}]


def figure_5(*players: str, **others: Any) -> dict[str, Any]:
    publications = [
        {"t": 1.0 + n, "node": P, "attributes": {"player": player}} for n, player in enumerate(players)
    ]
    return tables(FIGURE_5, subscriptions=[*PLAYERS], publications=publications, **others)


@pytest.mark.parametrize("grouping", ["least_constrained", "graph", "k_means"])
def test_figure_5_only_the_way_to_the_matching_subscriber_becomes_forwarding_group(grouping: str) -> None:
    simulation = played(figure_5("woods", "woods", options={"grouping": grouping}))
    assert set(forwarding(simulation)) == {ONE}
    assert strategy_of(simulation, NR).member_table == {}
    assert sent(simulation, "data", TWO) == [] and len(sent(simulation, "data", ONE)) == 2
    assert sent(simulation, "join_table", NR) == sent(simulation, "join_table", TWO) == []


def test_figure_5_an_event_for_the_other_brings_it_in_and_each_gets_its_own() -> None:
    made = figure_5("woods", "palmer", "woods", "palmer", options={"grouping": "k_means"})
    result = simulate(scenario_from(made))
    assert result.metrics["delivered"] == result.metrics["expected"] == 4
    rows = [row for row in result.tables["transmissions"].to_pylist() if row["message"] == "data"]
    assert {(row["node"], row["sequence"] % 2) for row in rows if row["node"] != P} == {(ONE, 0), (TWO, 1)}


def test_figure_5_a_subscriber_that_leaves_stops_answering_and_its_branch_ends() -> None:
    made = figure_5(*["woods"] * 60, duration=70.0)
    made["workload"]["subscriptions"][0] = PLAYERS[0] | {"until": 10.0}
    simulation = played(made)
    (_, _), (off, ended) = forwarding(simulation)[ONE]
    assert ended == "role_off" and off - 2 * SECOND > 10 * SECOND
    heard = [t for t in sent(simulation, "join_request", P) if t < 10 * SECOND]
    assert abs(off - (heard[-1] + TIMEOUT)) < 10_000
    # The publisher is still active; its requests find no one, and no data is sent for nobody.
    assert sent(simulation, "join_request", P)[-1] > 50 * SECOND
    assert sent(simulation, "data", P)[-1] < off + SECOND


@pytest.mark.parametrize(
    ("exclusion", "channels"), [({}, [(S,), (NR,)]), ({"exclude_distance": 0.05}, [(S,)])]
)
def test_groups_become_channels_and_an_event_goes_over_its_own(
    exclusion: dict[str, float], channels: list[tuple[int]]
) -> None:
    """Two crowds behind two relays. Without branch filters the channels alone keep them apart. Whom K-means
    excludes has no channel, and gets its events and no others all the same."""
    made = tables(
        FIGURE_5,
        options={"grouping": "k_means", "k": 2, "relay_filter": "channel", **exclusion},
        subscriptions=PLAYERS,
        publications=[
            {"t": 1.0 + n, "node": P, "attributes": {"player": ("woods", "palmer")[n % 2]}} for n in range(30)
        ],
    )
    simulation = Simulation(scenario_from(made))
    simulation.engine.run(20 * SECOND)
    assert sorted(strategy_of(simulation, P).publisher.channels()) == channels
    simulation.run()
    assert deliveries(simulation) == {(P, n, (S, NR)[n % 2]) for n in range(30)}
    late = [t for t in simulation.trace.of(Transmitted) if t.message == "data" and t.t > 8 * SECOND]
    assert {(t.node, t.sequence % 2) for t in late if t.node != P and t.sequence is not None} == {
        (ONE, 0),
        (TWO, 1),
    }
    counts = [c.value for c in simulation.trace.of(OverlayChanged) if c.change == "grouped" and c.node == P]
    assert counts[0] in (1.0, 2.0) and counts[-1] == len(channels)


# What the core asks of every strategy.


def test_destinations_memorized_events_and_late_subscribers() -> None:
    made = tables(
        FIGURE_2,
        subscriptions=[
            {"node": 3, "filter": "a = 1"},
            {"node": 4, "filter": "a = 1", "from": 30.0},
            {"node": 6, "filter": "a = 2", "from": 30.0},
        ],
        publications=[
            {"t": 1.0, "node": 0, "attributes": {"a": 7}, "to": [5]},
            {"t": 2.0, "node": 0, "attributes": {"a": 1}, "to": [6], "multimode": True},
            {"t": 3.0, "node": 0, "attributes": {"a": 1}, "class": "memorized", "lifetime": 50.0},
            {"t": 4.0, "node": 0, "attributes": {"a": 2}, "class": "memorized", "lifetime": 50.0},
        ],
        duration=60.0,
    )
    result = simulate(scenario_from(made))
    got = sorted((d["sequence"], d["node"]) for d in result.tables["deliveries"].to_pylist())
    assert got == [(0, 5), (1, 3), (1, 6), (2, 3), (2, 4), (3, 6)]


@pytest.mark.parametrize("advertisement", [False, True])
def test_a_crash_of_publisher_and_relay_is_survived(advertisement: bool) -> None:
    made = tables(
        FIGURE_2,
        options={"advertisement": advertisement},
        subscriptions=[{"node": 3, "filter": "a > 0"}],
        publications=[{"t": float(t), "node": 0, "attributes": {"a": t}} for t in range(1, 50)],
        fault=[
            {"at": 10.5, "kind": "crash", "nodes": [0]},
            {"at": 12.5, "kind": "restart", "nodes": [0]},
            {"at": 20.5, "kind": "crash", "nodes": [2]},
            {"at": 22.5, "kind": "restart", "nodes": [2]},
        ],
    )
    result = simulate(scenario_from(made))
    assert result.metrics["duplicates"] == 0
    events = {p["sequence"]: p["t"] // SECOND for p in result.tables["publications"].to_pylist()}
    assert len(events) == 47  # at 11 and 12 s nobody was there to publish
    got = {events[d["sequence"]] for d in result.tables["deliveries"].to_pylist()}
    # From 21 s on the way is broken, until the round after the relay's return (at most 5.5 s) is answered.
    assert got >= set(range(1, 11)) | set(range(13, 21)) | set(range(29, 50))


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_on_a_network_at_rest_everyone_gets_everything_once_and_nothing_stays(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 12))
    seed = data.draw(st.integers(0, 10_000))
    grouping = data.draw(st.sampled_from(["least_constrained", "graph", "k_means", "none"]))
    relay_filter = data.draw(st.sampled_from(["branch", "channel"]))
    made = {
        "scenario": {"name": "rest", "duration": 80.0, "seed": seed},
        "world": {
            "nodes": nodes,
            "area": [300.0, 300.0],
            "range": 130.0,
            "mobility": {"model": "static"},
            "radio": {"model": data.draw(st.sampled_from(["ideal", "disk"]))},
        },
        "roles": {"publishers": data.draw(st.integers(1, min(3, nodes))), "subscribers": "all"},
        "workload": {
            "rate": data.draw(st.sampled_from([0.15, 0.5, 2.0])),
            "match": data.draw(st.sampled_from([0.2, 0.6, 1.0])),
            "stop": 20.0,
        },
        "strategy": {
            "name": "odmrp",
            "options": {
                "grouping": grouping,
                "relay_filter": relay_filter,
                "advertisement": data.draw(st.booleans()),
            },
        },
    }
    simulation = played(made)
    wanted = {(e.publisher, e.sequence, e.node) for e in expected(simulation.trace) if e.reachable}
    assert deliveries(simulation) == wanted, made
    assert all(changes[-1][1] == "role_off" for changes in forwarding(simulation).values())
    for node in range(nodes):
        strategy = strategy_of(simulation, node)
        assert len(strategy.routes) == len(strategy.forwarding) == len(strategy.publisher) == 0
        assert len(strategy.context) == len(strategy.tables) == 0 and strategy.member_table == {}


@given(st.integers(0, 10_000), st.sampled_from(["graph", "k_means", "none"]), st.booleans(), st.booleans())
@settings(max_examples=5, deadline=None, phases=[Phase.generate])  # a run takes too long to shrink
def test_whatever_happens_no_event_comes_twice_and_the_mesh_ends(
    seed: int, grouping: str, advertisement: bool, adapt: bool
) -> None:
    options = {"grouping": grouping, "advertisement": advertisement, "adapt_refresh": adapt}
    made = {
        "scenario": {"name": "weather", "duration": 75.0, "seed": seed},
        "world": {
            "nodes": 15,
            "area": [500.0, 500.0],
            "range": [120.0, 200.0],  # one-way links exist
            "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [0.0, 5.0]},
            "radio": {"model": "csma", "loss": 0.1},
        },
        "roles": {"publishers": 4, "subscribers": 10},
        "workload": {"rate": 1.0, "match": 0.4, "stop": 15.0},
        "strategy": {"name": "odmrp", "options": options | {"refresh_interval_max": 5.0}},
        "fault": [
            {"at": 4.0, "kind": "crash", "nodes": [1, 2, 3]},
            {"at": 7.0, "kind": "restart", "nodes": [2, 3]},
            {"at": 9.0, "kind": "cut", "nodes": [5, 6, 7]},
            {"at": 12.0, "kind": "heal", "nodes": [5, 6, 7]},
        ],
    }
    simulation = played(made)
    deliveries(simulation)
    # The last event at 15 s, active until 40 s, the last request's mesh until 65 s.
    for node, changes in forwarding(simulation).items():
        t, change = changes[-1]
        crashed_with_it = node in (1, 2, 3) and t < 4 * SECOND
        assert change == "role_off" or crashed_with_it, (made, changes)
    for stack in simulation.nodes:
        if stack is not None:
            strategy = stack.strategy
            assert isinstance(strategy, Odmrp)
            assert len(strategy.routes) == len(strategy.forwarding) == len(strategy.publisher) == 0
            assert len(strategy.context) == len(strategy.tables) == 0 and strategy.member_table == {}


MOVING: dict[str, Any] = {
    "scenario": {"name": "moving", "duration": 20.0},
    "world": {
        "nodes": 40,
        "area": [800.0, 800.0],
        "range": 200.0,
        "mobility": {"model": "random_waypoint", "speed": [10.0, 10.0], "pause": [0.0, 0.0]},
        "radio": {"model": "csma"},
    },
    "roles": {"publishers": 4, "subscribers": 20},
    "workload": {"rate": 1.0, "match": 0.5},
    "strategy": {"name": "odmrp"},
}
SPARSE = {**MOVING, "world": {**MOVING["world"], "area": [1600.0, 1600.0]}}
FAULTY = {
    **MOVING,
    "world": {**MOVING["world"], "radio": {"model": "disk", "loss": 0.3, "bitrate": 200_000}},
    "strategy": {"name": "odmrp", "options": {"hop_limit": 4, "adapt_refresh": True}},
    "fault": [
        {"at": 6.0, "kind": "crash", "nodes": [1, 2, 3, 5, 8, 13, 21]},
        {"at": 12.0, "kind": "restart", "nodes": [1, 2, 3]},
    ],
}


@pytest.mark.parametrize("scenario", [MOVING, SPARSE, FAULTY], ids=["moving", "sparse", "faulty"])
def test_every_missing_delivery_is_explained(scenario: dict[str, Any]) -> None:
    result: RunResult = simulate(scenario_from(scenario))
    found = explain(result.tables, result.info)
    missing = int(result.metrics["expected"] or 0) - int(result.metrics["delivered"] or 0)
    assert len(found) == missing > 10
    assert not {explanation.reason for explanation in found} & {LossReason.UNKNOWN, LossReason.FILTERED}
    assert result.metrics["duplicates"] == result.metrics["misdelivered"] == 0


# Advertisements (section 3.5.1) and clients without a broker (sections 3.5 and 4).

LINE = [(200 + 100 * number, 200) for number in range(6)]


def test_an_advertised_type_has_its_mesh_before_the_first_event() -> None:
    made = tables(
        LINE,
        advertisements=[{"node": 0, "type": "score", "from": 1.0, "until": 30.0}],
        subscriptions=[{"node": 5, "type": "score"}, {"node": 3, "type": "weather"}],
        publications=[{"t": 20.0, "node": 0, "type": "score"}],
        duration=80.0,
    )
    simulation = played(made)
    assert all(changes[0][0] < 5 * SECOND for changes in forwarding(simulation).values())
    assert set(forwarding(simulation)) == {1, 2, 3, 4}
    (delivered,) = simulation.trace.of(Delivered)
    assert (delivered.node, delivered.publisher) == (5, 0) and delivered.t < 20.5 * SECOND
    # Withdrawn at 30 s, and the last event is older than a timeout: nobody is asked any more.
    assert max(sent(simulation, "join_request", 0)) < 20 * SECOND + TIMEOUT
    for node in range(6):
        assert strategy_of(simulation, node).publisher.members() == []


def test_an_advertiser_that_restarts_advertises_again() -> None:
    made = tables(
        LINE[:3],
        advertisements=[{"node": 0, "type": "score"}],
        subscriptions=[{"node": 2, "type": "score"}],
        publications=[],
        fault=[{"at": 10.0, "kind": "crash", "nodes": [0]}, {"at": 50.0, "kind": "restart", "nodes": [0]}],
        duration=60.0,
    )
    simulation = played(made)
    assert strategy_of(simulation, 0).publisher.members() == [2]


@pytest.mark.parametrize("grouping", ["k_means", "graph", "none"])
def test_clients_without_a_broker_publish_and_get_events_through_one(grouping: str) -> None:
    """Brokers are 1 and 4. 0 and 5 are clients a hop away from one; 2 and 3 relay, and want nothing."""
    made = tables(
        LINE,
        options={"grouping": grouping},
        subscriptions=[
            {"node": 5, "filter": "player = 'woods'"},
            {"node": 0, "filter": "player = 'palmer'"},
            {"node": 4, "filter": "player = 'woods'"},
        ],
        publications=[
            {"t": 5.0 + number, "node": node, "attributes": {"player": player}}
            for number, (node, player) in enumerate(
                [(0, "woods"), (5, "palmer"), (1, "palmer"), (0, "woods")]
            )
        ],
        duration=20.0,
    )
    made["roles"] = {"brokers": [1, 4]}
    simulation = played(made)
    assert deliveries(simulation) == {(0, 0, 5), (0, 0, 4), (0, 1, 5), (0, 1, 4), (5, 0, 0), (1, 0, 0)}
    first, last = strategy_of(simulation, 0).client, strategy_of(simulation, 5).client
    assert first is not None and first.home == 1 and last is not None and last.home == 4
    # The mesh is one of brokers: no client is a member, and a broker's summary has what its clients want.
    assert strategy_of(simulation, 1).publisher.members() == [4]
    assert strategy_of(simulation, 4).publisher.members() == [1]


def test_a_client_finds_a_broker_two_hops_away_and_a_named_client_is_reached() -> None:
    made = tables(
        LINE[:4],
        subscriptions=[{"node": 0, "filter": "a = 1"}],
        publications=[
            {"t": 5.0, "node": 3, "attributes": {"a": 1}},
            {"t": 6.0, "node": 3, "to": [0]},
            {"t": 7.0, "node": 3, "attributes": {"a": 2}},
        ],
        duration=20.0,
    )
    made["roles"] = {"brokers": [2, 3]}
    simulation = played(made)
    assert deliveries(simulation) == {(3, 0, 0), (3, 1, 0)}


def test_a_client_whose_broker_crashes_takes_another() -> None:
    """1 and 2 are brokers in range of the client 0; 3 publishes."""
    made = tables(
        [(200, 200), (280, 160), (280, 240), (360, 200)],
        subscriptions=[{"node": 0}],
        publications=[{"t": float(t), "node": 3} for t in (5, 20, 30, 40)],
        duration=45.0,
    )
    made["roles"] = {"brokers": [1, 2, 3]}
    first = played(made)
    client = strategy_of(first, 0).client
    assert client is not None and client.home in (1, 2)
    made["fault"] = [{"at": 10.0, "kind": "crash", "nodes": [client.home]}]
    simulation = played(made)
    moved = strategy_of(simulation, 0).client
    assert moved is not None and moved.home == 3 - client.home
    assert deliveries(simulation) == {(3, number, 0) for number in range(4)}


def test_a_full_broker_passes_the_search_of_a_client_on() -> None:
    """The clients 0 and 2 hear broker 1, which takes one; broker 3 is behind it."""
    made = tables(
        [(200, 200), (300, 200), (300, 300), (400, 200)],
        options={"clients_max": 1},
        subscriptions=[{"node": 0}, {"node": 2, "from": 5.0}],
        publications=[{"t": float(t), "node": 3} for t in range(10, 20)],
        duration=25.0,
    )
    made["roles"] = {"brokers": [1, 3]}
    simulation = played(made)
    homes = [strategy_of(simulation, node).client for node in (0, 2)]
    assert [client and client.home for client in homes] == [1, 3]
    assert deliveries(simulation) == {(3, number, node) for number in range(10) for node in (0, 2)}


def test_a_memorized_event_of_a_client_waits_for_later_clients_of_other_brokers() -> None:
    made = tables(
        LINE[:4],
        subscriptions=[{"node": 3, "from": 20.0}],
        publications=[{"t": 5.0, "node": 0, "class": "memorized", "lifetime": 60.0}],
        duration=40.0,
    )
    made["roles"] = {"brokers": [1, 2]}
    assert deliveries(played(made)) == {(0, 0, 3)}


def test_an_advertisement_with_another_strategy_is_refused() -> None:
    made = tables(LINE[:2], advertisements=[{"node": 0, "type": "score"}])
    made["strategy"] = {"name": "flooding"}
    with pytest.raises(ScenarioError, match=r"workload\.advertisements\[0\]: is given; allowed: .* odmrp"):
        scenario_from(made)


def test_channels_announced_after_a_restart_are_not_taken_for_those_of_before() -> None:
    """Publisher 0 reboots with other members while relay 1 is away, and relay 7 leaves later. Epochs that
    began anew would look to relay 1 like those it knows, and it would keep the old channels."""
    places = [(10, 100), (110, 150), (200, 90), (200, 95), (200, 100), (200, 105), (200, 110), (110, 50)]
    low, high = "x < 10", "x > 90"
    away = [[1, node] for node in (0, 2, 3, 4, 5, 6, 7)]
    made = tables(
        places,
        duration=80.0,
        options={"advertisement": True},
        subscriptions=[
            {"node": 2, "filter": low, "until": 38.5},
            {"node": 3, "filter": low},
            {"node": 4, "filter": high},
            {"node": 5, "filter": high},
            {"node": 6, "filter": high, "from": 38.5},
        ],
        publications=[
            {"t": float(at), "node": 0, "attributes": {"x": 5 if at % 2 else 95}}
            for at in (*range(1, 38), *range(41, 75))
        ],
        fault=[
            {"at": 37.5, "kind": "cut", "links": away},
            {"at": 38.0, "kind": "crash", "nodes": [0]},
            {"at": 40.0, "kind": "restart", "nodes": [0]},
            {"at": 44.0, "kind": "heal", "links": away},
            {"at": 50.0, "kind": "cut", "links": [[7, node] for node in range(7)]},
        ],
    )
    simulation = played(made)
    got = {(d.t // SECOND, d.node) for d in simulation.trace.of(Delivered)}
    assert got >= {(at, node) for at in range(58, 75) for node in ((3,) if at % 2 else (4, 5, 6))}
