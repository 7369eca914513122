"""Modulators on the move (section 3.4): across, up and down the way of events; and how long events wait."""

from typing import Any

import pytest
from tests.strategy.opportunistic.schedules import JOURNAL, play, sequential

from roamcast.broker.core import Delivery
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.broker import Brokerage
from roamcast.trace import HandedOff, Published, Transmitted
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

PRODUCER, A, B, C, CONSUMER = range(5)


class Line:
    """0 - 1 - 2 - 3 - 4: a producer, three brokers in a row, a consumer."""

    def __init__(
        self,
        times: list[float],
        modulator: dict[str, Any],
        *,
        size: int = 20,
        delay: float = 0.0,
        **options: Any,
    ) -> None:
        publications = [{"t": t, "node": PRODUCER, "size": size, "attributes": {"key": 1}} for t in times]
        tables: dict[str, Any] = {
            "scenario": {"name": "row", "duration": 200.0, "seed": 1},
            "world": {
                "nodes": 5,
                "area": [500.0, 100.0],
                "range": 110.0,
                "mobility": {"model": "static", "positions": [[100.0 * n, 50.0] for n in range(5)]},
                "radio": {"model": "disk", "bitrate": 100_000_000, "delay": delay, "loss": 0.0},
            },
            "roles": {"brokers": [A, B, C], "publishers": [PRODUCER], "subscribers": []},
            "workload": {
                "publications": publications,
                "subscriptions": [{"node": CONSUMER, "modulator": modulator}],
            },
            "underlay": {"name": "ideal"},
            "strategy": {
                "name": "opportunistic",
                "options": {"broker_update": 5.0, "broker_discovery": 5.0, "neighbours_wanted": 1, **options},
            },
        }
        self.simulation = Simulation(scenario_from(tables))
        self.got: list[tuple[Micros, Delivery]] = []
        application = self.simulation._applications[CONSUMER]
        application.on_event = lambda delivery: self.got.append((self.engine.now, delivery))  # type: ignore[method-assign]

    @property
    def engine(self) -> Any:
        return self.simulation.engine

    def broker(self, number: NodeId) -> Brokerage:
        node = self.simulation.nodes[number]
        assert node is not None and isinstance(node.strategy, Opportunistic)
        assert node.strategy.broker is not None
        return node.strategy.broker

    def homes(self) -> list[NodeId]:
        return [n for n in (A, B, C) if CONSUMER in self.broker(n).homes.clients]

    def home_of_consumer(self) -> NodeId | None:
        node = self.simulation.nodes[CONSUMER]
        assert node is not None and isinstance(node.strategy, Opportunistic)
        return node.strategy.client.home

    def lines(self) -> list[object]:
        return [delivery.event.attributes["line"] for _, delivery in self.got]

    def data_frames(self, since: float, until: float) -> list[Transmitted]:
        return [
            record
            for record in self.simulation.trace.of(Transmitted)
            if record.kind == "data" and since * SECOND <= record.t < until * SECOND
        ]


def test_a_modulator_goes_up_to_the_source_and_down_again_with_its_state() -> None:
    """Step by step, and it stays where it was put although the client says every period who is nearest."""
    row = Line([15.0 + 0.5 * n for n in range(170)], {"name": JOURNAL})
    row.engine.run(30 * SECOND)  # by now C has heard where producers are
    assert row.homes() == [C]
    assert not row.broker(C).clients.downstream(CONSUMER)  # it is there
    for second, expected in ((30, B), (42, A)):
        row.engine.run(second * SECOND)
        assert row.broker(row.homes()[0]).clients.upstream(CONSUMER)
        row.engine.run((second + 11) * SECOND)  # two discovery periods later
        assert row.homes() == [expected]
        assert row.broker(expected).homes.clients[CONSUMER].access == C
    assert not row.broker(A).clients.upstream(CONSUMER)  # nobody is nearer to the producer
    for second, expected in ((54, B), (66, C)):
        row.engine.run(second * SECOND)
        assert row.broker(row.homes()[0]).clients.downstream(CONSUMER)
        row.engine.run((second + 11) * SECOND)
        assert row.homes() == [expected]
    assert row.broker(C).homes.clients[CONSUMER].access is None
    row.engine.run(120 * SECOND)
    assert row.lines() == sequential(list(range(170)))
    assert [record.outcome for record in row.simulation.trace.of(HandedOff)] == ["moved"] * 4


def test_a_modulator_that_shrinks_events_saves_traffic_where_it_is_near_the_source() -> None:
    """1,000 octets come in, a few go out: from A on three hops carry little instead of much."""
    row = Line([20.2 + 0.5 * n for n in range(60)], {"name": "projection", "attributes": ["key"]}, size=1_000)
    row.engine.run(30 * SECOND)
    for _ in range(2):
        assert row.broker(row.homes()[0]).clients.upstream(CONSUMER)
        row.engine.run(row.engine.now + 3 * SECOND)
    row.engine.run(60 * SECOND)
    assert row.homes() == [A] and len(row.got) == 60
    before = sum(frame.size for frame in row.data_frames(20, 30)) / 20
    after = sum(frame.size for frame in row.data_frames(40, 49.9)) / 20
    assert 3_000 < before < 3_600  # 3 long hops and a short one, with headers
    assert 1_000 < after < 0.5 * before  # 1 and 3


def test_many_clients_change_places_between_two_brokers_at_once() -> None:
    """All of one broker go to the other while all of the other come, over and over."""
    row = Crossing(clients=8)
    row.run()
    for client, mine in row.got.items():
        assert [d.event.sequence for d in mine] == list(range(60)), client
        assert [d.event.attributes["line"] for d in mine] == sequential(list(range(60))), client
    outcomes = [record.outcome for record in row.simulation.trace.of(HandedOff)]
    assert outcomes.count("moved") >= 8 * 5 and set(outcomes) <= {"moved", "aborted", "refused"}


class Crossing:
    """Brokers 0 and 1, a producer, and clients that all change places every second."""

    def __init__(self, clients: int) -> None:
        nodes = 3 + clients
        publications = [{"t": 15.0 + 0.1 * n, "node": 2} for n in range(60)]
        tables: dict[str, Any] = {
            "scenario": {"name": "crossing", "duration": 100.0, "seed": 4},
            "world": {
                "nodes": nodes,
                "area": [100.0, 100.0],
                "range": 200.0,
                "mobility": {"model": "static", "positions": [[5.0 * n, 50.0] for n in range(nodes)]},
                "radio": {"model": "disk", "bitrate": 2_000_000, "delay": 0.005, "loss": 0.2},
            },
            "roles": {"brokers": [0, 1], "publishers": [2], "subscribers": []},
            "workload": {
                "publications": publications,
                "subscriptions": [{"node": node, "modulator": {"name": JOURNAL}} for node in range(3, nodes)],
            },
            "underlay": {"name": "ideal"},
            "strategy": {"name": "opportunistic", "options": {"mode": "static", "handoff_timeout": 3.0}},
        }
        self.simulation = Simulation(scenario_from(tables))
        self.got: dict[NodeId, list[Delivery]] = {node: [] for node in range(3, nodes)}
        for node, mine in self.got.items():
            self.simulation._applications[node].on_event = mine.append  # type: ignore[method-assign, assignment]
        for second in range(14, 22):
            self.simulation.engine.at(second * SECOND, self._exchange, second)

    def run(self) -> None:
        self.simulation.engine.run(50 * SECOND)

    def _exchange(self, second: int) -> None:
        for number in (0, 1):
            node = self.simulation.nodes[number]
            assert node is not None and isinstance(node.strategy, Opportunistic)
            brokerage = node.strategy.broker
            assert brokerage is not None
            for client in sorted(brokerage.homes.clients):
                if client in self.got and (second > 14 or client % 2):
                    brokerage.clients.relocate(client, 1 - number)


@pytest.mark.parametrize("capacity", [1.0, 0.5, 4.0])
def test_queueing_delay_is_a_quantity_of_the_model(capacity: float) -> None:
    """Five events at one instant, 20 ms of work each: the n-th comes n times 20 ms / capacity later."""
    row = Line(
        [15.0] + [20.0] * 5, {"name": JOURNAL, "cost": 20_000}, capacities={str(C): capacity}, capacity=9.0
    )
    row.engine.run(30 * SECOND)
    assert row.homes() == [C]
    published = row.simulation.trace.of(Published)[1].t  # the first one only finds its producer a home
    work = int(20 * MILLISECOND / capacity)
    waits = [at - published for at, _ in row.got[1:]]
    assert len(waits) == 5
    for number, wait in enumerate(waits, start=1):
        assert 0 <= wait - number * work < 2 * MILLISECOND, waits  # the radio's share is small
    assert row.broker(C).homes.processor.load() == round(100 * 5 * work / (10 * SECOND))


def test_the_capacity_of_one_node_is_not_another_s() -> None:
    row = Line([20.0], {"name": JOURNAL}, capacities={str(B): 3.0}, capacity=2.0)
    row.engine.run(21 * SECOND)
    assert [row.broker(n).homes.processor.capacity for n in (A, B, C)] == [2.0, 3.0, 2.0]


def test_a_loose_handoff_keeps_the_order_too() -> None:
    moved = 0
    for seed in range(6):
        loose = play(seed, handoff="loose")
        assert not loose.problems, f"schedule {seed}: {loose.problems[0]}"
        moved += loose.outcomes["moved"]
    assert moved > 40


def test_a_loose_handoff_asks_nobody() -> None:
    """It takes one message to the destination and one back; the strict one waits for every broker."""
    durations = {}
    for kind in ("loose", "strict"):
        row = Line([15.0], {"name": JOURNAL}, delay=0.01, handoff=kind)
        row.engine.run(20 * SECOND)
        row.broker(C).clients.relocate(CONSUMER, B)
        row.engine.run(25 * SECOND)
        (record,) = row.simulation.trace.of(HandedOff)
        assert record.outcome == "moved" and row.homes() == [B]
        durations[kind] = record.t - record.started
    assert 20 * MILLISECOND <= durations["loose"] < 25 * MILLISECOND
    assert 2 * durations["loose"] <= durations["strict"] < 100 * MILLISECOND


def test_a_loose_handoff_to_a_broker_that_is_not_there_ends_with_another_home() -> None:
    """After twice the handoff's patience, and a discovery period, the client has asked and chosen again."""
    row = Line(
        [15.0 + 0.5 * n for n in range(80)],
        {"name": JOURNAL},
        handoff="loose",
        handoff_timeout=3.0,
        home_timeout=6.0,
        keep_realtime=600.0,
    )
    row.engine.run(20 * SECOND)
    assert row.homes() == [C]
    row.simulation.on_crash(B)  # events have to pass B: nobody gets any, but the client has a home
    row.broker(C).clients.relocate(CONSUMER, A)
    row.engine.run((20 + 2 * 3 + 5 + 2) * SECOND)
    assert row.home_of_consumer() == C and CONSUMER in row.broker(C).homes.clients
    row.simulation.on_restart(B)
    row.engine.run(120 * SECOND)
    sequences = [delivery.event.sequence for _, delivery in row.got]
    assert sorted(sequences) == list(range(80))
