"""The topology table from neighbour to neighbour (section 2.3, steps 2 and 3), with figure 3."""

from typing import Any, cast

from tests.strategy.opportunistic.station import Outgoing, PartLayer, shared_of

from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.board import BROKER, BoardEntry
from roamcast.strategy.opportunistic.messages import BROKER_ROWS, BrokerRow, Row, Rows, TopologyMessage
from roamcast.strategy.opportunistic.overlay import STARTUP, OwnState
from roamcast.testing import FakeHost
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, NodeId, micros

A, B, C, D = 1, 2, 3, 4


class Distances(Underlay):
    def __init__(self, hops: dict[NodeId, int]) -> None:
        self.hops = hops

    def distance(self, to: NodeId) -> int | None:
        return self.hops.get(to)


class One(PartLayer):
    """A broker whose messages go by hand, and whose period is over when the test says so."""

    def __init__(self, node: NodeId, hops: dict[NodeId, int]) -> None:
        self.host, self.node, self.streams = FakeHost(node), node, Outgoing()
        self.underlay = Distances(hops)
        shared = shared_of(
            self.host,
            self.underlay,
            self.streams,
            self._on_row,
            propagation="neighbours",
            broker_update=1000.0,
            registration_lifetime=10_000.0,
            neighbours_wanted=1,
            ring_max=2,
        )
        self.board, self.overlay = shared.board, shared.overlay
        self.host.attach(self)
        self.overlay.start(OwnState(lambda: 0, lambda: 0))

    def _on_row(self, kind: int, node: NodeId, entry: BoardEntry | None) -> None:
        self.overlay.on_row(node, entry)

    def hear_of(self, broker: NodeId) -> None:
        row = Row(BROKER, broker, 1 << 20, 0, BROKER_ROWS.encode(BrokerRow((), boot=1)))
        self.board.on_rows(broker, Rows((row,)))

    def period(self) -> None:
        self.overlay._look()
        self.overlay.propagate()

    def told(self) -> list[tuple[NodeId, list[NodeId]]]:
        """To whom, and of which brokers."""
        return [(to, [row.node for row in message.rows]) for to, message in self.messages()]

    def messages(self) -> list[tuple[NodeId, TopologyMessage]]:
        return [(to, message) for to, message in self.streams.written if isinstance(message, TopologyMessage)]

    def route(self, to: NodeId) -> tuple[NodeId, ...] | None:
        route = self.overlay.topology.route(to)
        return None if route is None else route.path


def deliver(brokers: dict[NodeId, One], sender: NodeId) -> None:
    messages = brokers[sender].messages()
    brokers[sender].streams.confirmed()
    for to, message in messages:
        brokers[to].overlay.on_topology(sender, message, 0)


def figure_3() -> dict[NodeId, One]:
    """A - B, B - C, B - D, and all know it."""
    near = {A: {B: 1}, B: {A: 1, C: 1, D: 1}, C: {B: 1}, D: {B: 1}}
    brokers = {node: One(node, hops) for node, hops in near.items()}
    for one in brokers.values():
        for other in near:
            if other != one.node:
                one.hear_of(other)
        one.host.advance(STARTUP + SECOND)
        one.streams.confirmed()
    for _ in range(3):
        for one in brokers.values():
            one.overlay._between._told.clear()  # type: ignore[union-attr]  # what was told before came to nobody
            one.period()
            deliver(brokers, one.node)
    assert brokers[A].route(D) == (A, B, D) and brokers[C].route(D) == (C, B, D)
    for one in brokers.values():
        one.period()
        deliver(brokers, one.node)
        one.period()
        assert one.told() == []  # nothing has changed
    return brokers


def test_figure_3_news_goes_one_step_of_the_overlay_in_each_period() -> None:
    brokers = figure_3()
    # D moves away from B and towards C, whose period comes first.
    brokers[B].underlay.hops, brokers[C].underlay.hops = {A: 1, C: 1, D: 3}, {B: 1, D: 1}
    for one in brokers.values():
        one.host.advance(SECOND)
    brokers[C].period()
    assert brokers[C].told() == [(B, [C]), (D, [A, B, C, D])]  # D is new
    deliver(brokers, C)
    assert brokers[C].route(D) == (C, D) and brokers[B].route(D) == (B, D)
    assert brokers[A].route(D) == (A, B, D)  # it has not heard
    for one in brokers.values():
        one.host.advance(SECOND)
    brokers[B].period()
    assert [(to, sorted(named)) for to, named in brokers[B].told()] == [(A, [B, C]), (C, [B, C])]
    deliver(brokers, B)
    assert brokers[A].route(D) == (A, B, C, D)
    assert brokers[D].route(A) == (D, B, A)  # outdated
    brokers[C].period()
    deliver(brokers, C)
    assert brokers[D].route(A) == (D, C, B, A)


def test_an_older_item_changes_nothing_and_a_forged_one_about_us_is_outbid() -> None:
    brokers = figure_3()
    one = brokers[A]
    old = one.overlay._between._items[B]  # type: ignore[union-attr]
    forged = BROKER_ROWS.encode(BrokerRow((D, 1), 1, boot=1))
    one.overlay.on_topology(B, TopologyMessage((Row(BROKER, B, old.version, 0, forged),)), 0)
    assert one.route(D) == (A, B, D)
    own = one.overlay._between._items[A].version  # type: ignore[union-attr]
    one.overlay.on_topology(B, TopologyMessage((Row(BROKER, A, own + 9, 0, forged),)), 0)
    assert one.route(D) == (A, B, D)
    one.period()
    ((to, message),) = one.messages()
    assert to == B and [(row.node, row.version) for row in message.rows] == [(A, own + 10)]


def test_what_a_neighbour_did_not_confirm_is_told_again_once_and_as_it_is_now() -> None:
    brokers = figure_3()
    one = brokers[C]
    for hops in (2, 1, 2):
        one.underlay.hops = {B: hops}
        one.host.advance(SECOND)
        one.period()
    ((_, message),) = one.messages()
    (row,) = message.rows
    assert BROKER_ROWS.decode(row.body).links == (B, 2)
    one.underlay.hops = {}
    one.period()  # B is out of reach, but still says that it is a neighbour
    one.overlay.on_row(B, None)
    brokers[B].overlay.on_reset(C)
    brokers[B].period()
    assert [(to, sorted(named)) for to, named in brokers[B].told()] == [(C, [A, B, C, D])]


def test_links_of_an_earlier_start_do_not_count() -> None:
    brokers = figure_3()
    one = brokers[A]
    again = Row(BROKER, B, 3 << 20, 0, BROKER_ROWS.encode(BrokerRow((), boot=2)))
    one.board.on_rows(B, Rows((again,)))
    row = one.overlay.topology.row(B)
    assert row is not None and row.boot == 2 and row.links == ()


def test_brokers_of_a_grid_know_the_whole_overlay_in_the_end_and_no_node_passes_links_on() -> None:
    """The same links as with flooded rows, after as many periods as the overlay is wide."""
    views: dict[str, Any] = {}
    for propagation in ("flood", "neighbours"):
        simulation = Simulation(
            scenario_from(
                {
                    "scenario": {"name": "grid", "duration": 60.0, "seed": 3},
                    "world": {
                        "nodes": 25,
                        "area": [500.0, 500.0],
                        "range": 110.0,
                        "mobility": {
                            "model": "static",
                            "positions": [[100.0 * (n % 5), 100.0 * (n // 5)] for n in range(25)],
                        },
                    },
                    "roles": {"brokers": 9, "publishers": [0], "subscribers": [24]},
                    "workload": {"rate": 0.1},
                    "underlay": {"name": "ideal"},
                    "strategy": {
                        "name": "opportunistic",
                        "options": {"propagation": propagation, "broker_update": 5.0},
                    },
                }
            )
        )
        simulation.engine.run(micros(60.0))
        strategies = [cast(Opportunistic, node.strategy) for node in simulation.nodes if node is not None]
        overlays = [one.broker.overlay for one in strategies if one.broker is not None]
        assert len(overlays) == 9
        first = overlays[0]
        links = {one.own: first.topology.linked(one.own) for one in overlays}
        for one in overlays:
            assert {broker: one.topology.linked(broker) for broker in links} == links
        views[propagation] = links
        rows = [strategy._shared.overlay.topology.row(first.own) for strategy in strategies]
        knowing = sum(bool(row and row.links) for row in rows)
        assert knowing == (25 if propagation == "flood" else 9)  # clients hear that it is a broker
    assert views["flood"] == views["neighbours"]
