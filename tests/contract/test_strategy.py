"""What every strategy owes its users, on networks where nothing is lost: one suite for all of them.

What a strategy promises beyond this, and what it costs, is in `tests/scenarios/` under its name.
"""

from typing import Any

import msgspec
import pytest

from roamcast.broker.core import Delivery
from roamcast.event import Event, Publication
from roamcast.filter import Filter
from roamcast.host import Channel, Frame, Kind
from roamcast.lab.run.runs import RunResult, simulate
from roamcast.node import Node, NodeConfig
from roamcast.scenario import scenario_from
from roamcast.strategy import Strategy, StrategyContext, names
from roamcast.testing import FakeHost
from roamcast.units import SECOND, Micros, NodeId

FORMED = 60.0
"""Seconds until trees, routes, home brokers and tables stand, whatever the strategy."""
LINE = [[100.0 * node, 0.0] for node in range(5)]

every_strategy = pytest.mark.parametrize("strategy", names())


def run(strategy: str, duration: float, positions: list[list[float]], **tables: Any) -> RunResult:
    world = {
        "nodes": len(positions),
        "area": [1000.0, 1000.0],
        "range": 120.0,
        "mobility": {"model": "static", "positions": positions},
    }
    general = {"name": "contract", "duration": duration, "warmup": FORMED}
    return simulate(
        scenario_from({"scenario": general, "world": world, "strategy": {"name": strategy}, **tables})
    )


def deliveries(result: RunResult) -> list[tuple[int, int, int]]:
    """Publisher, sequence number, who got it."""
    rows = result.tables["deliveries"].select(["publisher", "sequence", "node"]).to_pylist()
    return sorted((row["publisher"], row["sequence"], row["node"]) for row in rows)


@every_strategy
def test_everyone_who_wants_everything_gets_everything_once(strategy: str) -> None:
    publications = [{"t": FORMED + 1 + node, "node": node} for node in range(5)]
    result = run(strategy, FORMED + 20, LINE, workload={"publications": publications})
    assert deliveries(result) == [(a, 0, b) for a in range(5) for b in range(5) if a != b]
    assert result.metrics["expected"] == 20


@every_strategy
def test_filters_decide_who_gets_an_event_and_nobody_else_does(strategy: str) -> None:
    subscriptions = [
        {"node": 1, "filter": "level > 3"},
        {"node": 2, "filter": "level > 3 AND zone = 'north'"},
        {"node": 3, "filter": "zone IN ('north', 'west')"},
        {"node": 4, "filter": "level IS NULL"},
        {"node": 4, "topic": "alarms/#"},
    ]
    publications = [
        {"t": FORMED + 1, "node": 0, "attributes": {"level": 5, "zone": "north"}},  # 1, 2, 3
        {"t": FORMED + 2, "node": 0, "attributes": {"level": 3, "zone": "west"}},  # 3
        {"t": FORMED + 3, "node": 0, "attributes": {"zone": "south"}},  # 4
        {"t": FORMED + 4, "node": 1, "attributes": {"level": 9}},  # nobody: 1 is the publisher
        {"t": FORMED + 5, "node": 0, "attributes": {"level": 0}, "topic": "alarms/fire"},  # 4
        {"t": FORMED + 6, "node": 4, "topic": "alarms"},  # a topic's own name is below `alarms/#`: 4 itself
    ]
    workload = {"subscriptions": subscriptions, "publications": publications}
    result = run(strategy, FORMED + 20, LINE, workload=workload)
    assert deliveries(result) == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 3), (0, 2, 4), (0, 3, 4)]
    assert result.metrics["misdelivered"] == 0


@every_strategy
def test_subscriptions_count_while_they_stand(strategy: str) -> None:
    workload = {
        "subscriptions": [{"node": 4, "from": FORMED + 5, "until": FORMED + 40}],
        "publications": [{"t": FORMED + t, "node": 0} for t in (1.0, 30.0, 70.0)],
    }
    result = run(strategy, FORMED + 80, LINE, workload=workload)
    assert deliveries(result) == [(0, 1, 4)]


@every_strategy
def test_destinations_get_their_event_and_multimode_adds_subscribers(strategy: str) -> None:
    workload = {
        "subscriptions": [{"node": 1}],
        "publications": [
            {"t": FORMED + 1, "node": 0, "to": [3, 4]},
            {"t": FORMED + 2, "node": 0, "to": [3], "multimode": True},
        ],
    }
    result = run(strategy, FORMED + 20, LINE, workload=workload)
    assert deliveries(result) == [(0, 0, 3), (0, 0, 4), (0, 1, 1), (0, 1, 3)]
    assert result.metrics["misdelivered"] == 0


@every_strategy
def test_a_memorized_event_waits_for_a_later_subscription_within_its_lifetime(strategy: str) -> None:
    workload = {
        "subscriptions": [{"node": 2, "from": FORMED + 20}, {"node": 3, "from": FORMED + 50}],
        "publications": [{"t": FORMED + 1, "node": 0, "class": "memorized", "lifetime": 30.0}],
    }
    result = run(strategy, FORMED + 60, LINE, workload=workload)
    assert deliveries(result) == [(0, 0, 2)]
    assert result.metrics["expected"] == 1


@every_strategy
def test_in_two_partitions_everyone_within_reach_gets_it(strategy: str) -> None:
    apart = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0], [800.0, 0.0], [900.0, 0.0]]
    workload = {"publications": [{"t": FORMED + 1, "node": 0}, {"t": FORMED + 2, "node": 3}]}
    result = run(strategy, FORMED + 20, apart, workload=workload)
    assert deliveries(result) == [(0, 0, 1), (0, 0, 2), (3, 0, 4)]
    assert result.metrics["reachable_ratio"] == 3 / 8


class Inbox:
    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def on_event(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)


class Forgetful(Strategy):
    """Sends its own events and whatever is new to it, and keeps no account of what it published."""

    def __init__(self, context: StrategyContext) -> None:
        self._host, self._broker = context.host, context.broker

    def publish(self, event: Event) -> None:
        self._send(event)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        event = msgspec.msgpack.decode(payload, type=Event)
        if self._broker.observe(event.id, event.lifetime):
            self._broker.deliver(event, 1)
            self._send(event)

    def _send(self, event: Event) -> None:
        self._host.broadcast(Frame(msgspec.msgpack.encode(event), Kind.DATA, "event", event.id))


@pytest.mark.parametrize("lifetime", [0, 600 * SECOND])
def test_a_strategy_need_not_remember_what_its_own_node_published(lifetime: Micros) -> None:
    host, got = FakeHost(node=1), Inbox()
    node = Node(NodeConfig("flooding"), lambda channel: host, got)
    node.strategy = strategy = Forgetful(StrategyContext(host, node.broker, node.underlay))
    node.subscribe(1, Filter.everything())
    event = node.publish(Publication(lifetime=lifetime))
    (sent,) = host.sent
    strategy.on_receive(2, sent.frame.payload)  # a neighbour sends it on, and we hear that
    assert [delivery.event for delivery in got.deliveries] == [event]
    assert host.sent == [sent]  # nor is it sent again


@every_strategy
def test_copies_of_an_own_event_are_not_new_to_the_broker(strategy: str) -> None:
    hosts = {channel: FakeHost(node=1) for channel in Channel}
    node = Node(NodeConfig(strategy), hosts.__getitem__, Inbox())
    assert not node.broker.observe(node.publish(Publication()).id)
