"""Random schedules in which brokers crash: what may be lost is stated, and no more may be.

Clients re-home by themselves. An event may be missing at a consumer only if it was in the hands of a broker
when that crashed: received in the last moments, held back for a client on the move, or not yet confirmed by
whom it was sent to. None may come twice. Events of the last seconds, when all is quiet again, must come to
everyone.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.strategy.opportunistic.schedules import JOURNAL, Outcome

from roamcast.broker.core import Delivery
from roamcast.event import EventId
from roamcast.node import Node
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.broker import Brokerage
from roamcast.strategy.opportunistic.messages import (
    CarryMessage,
    MovedDelivery,
    PublishMessage,
    Salvaged,
    StreamMessage,
)
from roamcast.trace import FaultHappened, HandedOff, Published
from roamcast.units import SECOND, Micros, NodeId, micros

NODES, BROKERS = 9, 4
BEGIN, BUSY, QUIET = 30.0, 20.0, 30.0
JUST_NOW: Micros = SECOND // 10


def play_crashes(seed: int) -> Outcome:
    random = Random(f"crashes {seed}")
    simulation = Simulation(scenario_from(_tables(random, seed)))
    got: dict[NodeId, list[Delivery]] = {node: [] for node in range(NODES)}
    for node, application in enumerate(simulation._applications):
        application.on_event = got[node].append  # type: ignore[method-assign, assignment]
    hands = Hands(simulation)
    for _ in range(random.choice([0, 3, 8])):
        move = (random.randrange(BROKERS, NODES), random.randrange(BROKERS))
        simulation.engine.at(micros(BEGIN + random.random() * BUSY), hands.relocate, move)
    simulation.engine.run(micros(BEGIN + BUSY + QUIET + 30.0))
    problems, missing = _judge(simulation, got, hands.lost)
    outcomes = Counter(record.outcome for record in simulation.trace.of(HandedOff))
    crashes = sum(record.kind == "crash" for record in simulation.trace.of(FaultHappened))
    return Outcome(problems, outcomes, crashes, sum(map(len, got.values())), missing=missing)


class Hands:
    """Knows what each broker has in its hands, and takes note when it crashes."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._received: dict[NodeId, dict[EventId, Micros]] = {node: {} for node in range(BROKERS)}
        self.lost: set[EventId] = set()
        boot, crash = simulation._simulated._boot, simulation.on_crash

        def tapped_boot(number: NodeId) -> Node:
            node = boot(number)
            if number < BROKERS:
                self._tap(number)
            return node

        def tapped_crash(number: NodeId) -> None:
            self._take_note(number)
            crash(number)

        simulation._simulated._boot = tapped_boot  # type: ignore[method-assign]
        simulation.on_crash = tapped_crash  # type: ignore[method-assign]

    def relocate(self, move: tuple[NodeId, NodeId]) -> None:
        client, to = move
        for number in range(BROKERS):
            node = self._simulation.nodes[number]
            if (
                node is not None
                and isinstance(node.strategy, Opportunistic)
                and node.strategy.broker is not None
            ):
                node.strategy.broker.clients.relocate(client, to)

    def _strategy(self, number: NodeId) -> Opportunistic:
        node = self._simulation.nodes[number]
        assert node is not None and isinstance(node.strategy, Opportunistic)
        return node.strategy

    def _tap(self, number: NodeId) -> None:
        strategy = self._strategy(number)
        on_message = strategy.on_message
        received = self._received[number] = {}

        def tapped(sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None:
            event = event_of(message)
            if event is not None:
                received[event] = self._simulation.engine.now
            on_message(sender, message, hops, held)

        strategy.on_message = tapped  # type: ignore[method-assign]

    def _take_note(self, number: NodeId) -> None:
        now = self._simulation.engine.now
        self.lost |= {event for event, at in self._received[number].items() if now - at < JUST_NOW}
        streams = self._strategy(number)._streams
        for peer in list(streams._outgoing):
            for message in streams.unconfirmed(peer):
                event = event_of(message)
                if event is not None:
                    self.lost.add(event)
        broker = self._strategy(number).broker
        if broker is not None:
            self.lost |= set(_held_back(broker))


def _held_back(broker: Brokerage) -> Iterator[EventId]:
    """For clients on the move."""
    for coming in broker.handoffs.destination._coming.values():
        yield from (held.carry.event.id for held in coming.carries)
        yield from (delivery.event.id for delivery in coming.deliveries)


def event_of(message: StreamMessage) -> EventId | None:
    match message:
        case MovedDelivery() | Salvaged():
            return message.delivery.event.id
        case PublishMessage() | CarryMessage():
            return message.event.id
    event = getattr(message, "event", None)
    return None if event is None else event.id


def _judge(
    simulation: Simulation, got: dict[NodeId, list[Delivery]], may_miss: set[EventId]
) -> tuple[list[str], int]:
    problems: list[str] = []
    missed = 0
    published = {EventId(r.publisher, r.sequence): r.t for r in simulation.trace.of(Published)}
    quiet = micros(BEGIN + BUSY + QUIET - 5.0)
    for number in range(NODES):
        node = simulation.nodes[number]
        for subscription in [] if node is None else node.broker.subscriptions():
            mine = Counter(
                delivery.event.id
                for delivery in got[number]
                if subscription.number in delivery.subscriptions and delivery.event.id in published
            )
            doubled = [event for event, count in mine.items() if count > 1]
            if doubled:
                problems.append(f"{number} got {doubled} more than once")
            missing = [event for event in published if event not in mine]
            missed += len(missing)
            wrong = [e for e in missing if e not in may_miss or published[e] > quiet]
            if wrong:
                problems.append(f"{number} never got {wrong}; in the hands of none that crashed")
    return problems, missed


def _tables(random: Random, seed: int) -> dict[str, Any]:
    """Nodes on a grid, the first ones brokers; clients publish and subscribe."""
    places = [[100.0 + 80.0 * (n % 3), 100.0 + 80.0 * (n // 3)] for n in range(NODES)]
    random.shuffle(places)
    publishers = random.sample(range(BROKERS, NODES), 2)
    publications = [
        {"t": at, "node": publisher, "size": 20}
        for publisher in publishers
        for at in [BEGIN + BUSY * n / 40 for n in range(40)]
        + [BEGIN + BUSY + QUIET - 4.0 + 0.5 * n for n in range(8)]
    ]
    subscriptions: list[dict[str, Any]] = [{"node": node} for node in range(BROKERS, NODES)]
    subscriptions += [
        {"node": node, "modulator": {"name": JOURNAL}}
        for node in range(BROKERS, NODES)
        if random.random() < 0.5
    ]
    faults: list[dict[str, Any]] = []
    for victim in random.sample(range(BROKERS), random.choice([1, 1, 2])):
        at = BEGIN + random.random() * BUSY
        faults.append({"at": at, "kind": "crash", "nodes": [victim]})
        if random.random() < 0.5:
            faults.append({"at": at + random.choice([0.2, 2.0, 15.0]), "kind": "restart", "nodes": [victim]})
    return {
        "scenario": {"name": "crashes", "duration": BEGIN + BUSY + QUIET + 60.0, "seed": seed},
        "world": {
            "nodes": NODES,
            "area": [500.0, 500.0],
            "range": random.choice([170.0, 250.0]),
            "mobility": {"model": "static", "positions": places},
            "radio": {"model": "disk", "bitrate": 2_000_000, "loss": random.choice([0.0, 0.1, 0.2])},
        },
        "roles": {"brokers": list(range(BROKERS)), "publishers": publishers, "subscribers": []},
        "workload": {"publications": publications, "subscriptions": subscriptions},
        "underlay": {"name": random.choice(["ideal", "olsr"])},
        "strategy": {
            "name": "opportunistic",
            "options": {
                "broker_update": 5.0,
                "broker_discovery": 4.0,
                "handoff_timeout": random.choice([1.0, 3.0]),
                "home_timeout": 8.0,
                "neighbours_wanted": 2,
            },
        },
        "fault": sorted(faults, key=lambda fault: float(fault["at"])),
    }
