"""What every strategy owes its users, on networks where nothing is lost: one suite for all of them.

What a strategy promises beyond this, and what it costs, is in `tests/scenarios/` under its name.
"""

import msgspec
import pytest

from roamcast.broker.core import Delivery
from roamcast.event import Event, Publication
from roamcast.filter import Filter
from roamcast.host import Channel, Frame, Kind
from roamcast.lab.run.runs import simulate
from roamcast.node import Node, NodeConfig
from roamcast.scenario import scenario_from
from roamcast.strategy import STRATEGIES, Strategy, StrategyContext
from roamcast.testing import FakeHost
from roamcast.testing.contract import StrategyContract
from roamcast.units import SECOND, Micros, NodeId

for _name in STRATEGIES.own_names():
    globals()[f"Test{_name.title()}"] = type(f"Test{_name.title()}", (StrategyContract,), {"strategy": _name})


def test_who_should_get_what_is_known_without_asking_a_strategy() -> None:
    apart = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0], [800.0, 0.0], [900.0, 0.0]]
    mobility = {"model": "static", "positions": apart}
    tables = {
        "scenario": {"name": "contract", "duration": 10.0},
        "world": {"nodes": 5, "area": [1000.0, 1000.0], "range": 120.0, "mobility": mobility},
        "workload": {"publications": [{"t": 1.0, "node": 0}, {"t": 2.0, "node": 3}]},
        "strategy": {"name": "flooding"},
    }
    metrics = simulate(scenario_from(tables)).metrics
    assert (metrics["expected"], metrics["reachable_ratio"], metrics["delivered"]) == (8, 3 / 8, 3)


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


@pytest.mark.parametrize("strategy", STRATEGIES.own_names())
def test_copies_of_an_own_event_are_not_new_to_the_broker(strategy: str) -> None:
    hosts = {channel: FakeHost(node=1) for channel in Channel}
    node = Node(NodeConfig(strategy), hosts.__getitem__, Inbox())
    assert not node.broker.observe(node.publish(Publication()).id)
