"""Random schedules for handoffs: events, losses, link changes, concurrent relocations; and what must hold.

A small world in `sim` over a lossy radio: some brokers, some clients. While producers publish, links are cut
and healed (the network may fall apart for a while), and clients are moved between brokers at random, several
at once. In the end everything is healed and time passes. Then every consumer must have got every event of
every producer once and in its order, and its modulator must be in the state of a run without any of that.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from roamcast.broker.core import Delivery
from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.trace import HandedOff
from roamcast.units import NodeId, micros

JOURNAL = "test_journal"
PRIME = 1_000_003


class JournalParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cost: int = 0


class Journal(Modulator):
    """Per producer, a number that depends on every event and on their order."""

    def __init__(self, parameters: JournalParameters) -> None:
        self._cost = parameters.cost
        self.lines: dict[str, int] = {}

    def process(self, event: Event) -> Content | None:
        key = str(event.publisher)
        self.lines[key] = (self.lines.get(key, 7) * PRIME + event.sequence + 1) % (1 << 61)
        return Content({"line": self.lines[key]})

    def state(self) -> bytes:
        return msgspec.msgpack.encode(self.lines)

    def restore(self, state: bytes) -> None:
        self.lines = msgspec.msgpack.decode(state, type=dict[str, int])

    def cost(self, event: Event) -> int:
        return self._cost


if JOURNAL not in MODULATORS.names():
    MODULATORS.add(JOURNAL, JournalParameters, lambda _, parameters: Journal(parameters))


@dataclass
class Outcome:
    problems: list[str]
    outcomes: Counter[str]
    opened: int  # handoffs that went on although a producers' broker had not switched
    deliveries: int


def play(seed: int, *, handoff: str = "strict") -> Outcome:
    random = Random(f"schedule {seed}")
    nodes = random.choice([5, 7, 9])
    brokers = random.choice([3, 4]) if nodes > 5 else 3
    busy = 20.0
    moves = [  # several at the same instant, too
        (at, random.randrange(nodes), random.randrange(brokers))
        for at in (12.0 + random.random() * busy for _ in range(random.choice([3, 8, 20])))
        for _ in range(random.choice([1, 1, 3]))
    ]
    faults = _faults(random, nodes, busy, moves)
    scenario = scenario_from(_tables(random, seed, nodes, brokers, busy, handoff, faults))
    simulation = Simulation(scenario)
    got: dict[NodeId, list[Delivery]] = {node: [] for node in range(nodes)}
    for node, application in enumerate(simulation._applications):
        application.on_event = got[node].append  # type: ignore[method-assign, assignment]
    opened = [0]

    def relocate(argument: tuple[NodeId, NodeId]) -> None:
        client, to = argument
        for node in simulation.nodes[:brokers]:
            assert node is not None and isinstance(node.strategy, Opportunistic)
            brokerage = node.strategy.broker
            assert brokerage is not None
            opened[0] += len(brokerage.handoffs._open)
            if brokerage.clients.relocate(client, to):
                return

    for at, client, to in moves:
        simulation.engine.at(micros(at), relocate, (client, to))
    problems = _run_until_good(simulation, lambda: _judge(simulation, got, nodes, brokers), busy)
    outcomes = Counter(record.outcome for record in simulation.trace.of(HandedOff))
    return Outcome(problems, outcomes, opened[0], sum(map(len, got.values())))


def _run_until_good(simulation: Simulation, judge: Callable[[], list[str]], busy: float) -> list[str]:
    """Most schedules are good soon after the last event; what is good must stay so for a while. The rest get
    their time: letters that were lost on a bad way are repeated more and more rarely."""
    quiet = 12.0 + busy + 14.0  # after the last event and the last heal
    simulation.engine.run(micros(quiet))
    problems = judge()
    for step in range(1, 14):
        was_good = not problems
        simulation.engine.run(micros(quiet + 10.0 * step))
        problems = judge()
        if was_good:
            return problems
    return problems


def _tables(
    random: Random,
    seed: int,
    nodes: int,
    brokers: int,
    busy: float,
    handoff: str,
    faults: list[dict[str, Any]],
) -> dict[str, Any]:
    """Nodes on a ring of some places, so that two ways lead everywhere; the first ones are brokers."""
    places = [[100.0 + 80.0 * (n % 3), 100.0 + 80.0 * (n // 3)] for n in range(nodes)]
    end = 12.0 + busy
    publishers = random.sample(range(nodes), random.choice([1, 2, 3]))
    publications = [
        {"t": 10.0 + random.random() * (busy + 4.0), "node": publisher, "size": 20, "attributes": {"key": 1}}
        for publisher in publishers
        for _ in range(random.choice([5, 20, 40]))
    ]
    cost = random.choice([0, 0, 20_000])
    subscriptions: list[dict[str, Any]] = []
    for node in range(nodes):
        if random.random() < 0.7:
            subscriptions.append({"node": node})
        if random.random() < 0.7:
            subscriptions.append({"node": node, "modulator": {"name": JOURNAL, "cost": cost}})
    return {
        "scenario": {"name": "schedule", "duration": end + 150.0, "seed": seed},
        "world": {
            "nodes": nodes,
            "area": [500.0, 500.0],
            "range": random.choice([90.0, 120.0, 200.0]),
            "mobility": {"model": "static", "positions": places},
            "radio": {
                "model": "disk",
                "bitrate": 2_000_000,
                "delay": random.choice([0.0, 0.05]),
                "loss": random.choice([0.0, 0.1, 0.3]),
            },
        },
        "roles": {"brokers": list(range(brokers)), "publishers": publishers, "subscribers": []},
        "workload": {"publications": publications, "subscriptions": subscriptions},
        "underlay": {"name": "ideal"},
        "strategy": {
            "name": "opportunistic",
            "options": {
                "mode": random.choice(["static", "opportunistic"]),
                "broker_update": 5.0,
                "broker_discovery": 3.0,
                "handoff": handoff,
                "handoff_timeout": random.choice([1.0, 3.0, 6.0, 8.0]),
                "home_timeout": 600.0,
                "registration_lifetime": 600.0,
                "keep_realtime": 600.0,
                "neighbours_wanted": 2,
            },
        },
        "fault": faults,
    }


def _faults(
    random: Random, nodes: int, busy: float, moves: list[tuple[float, NodeId, NodeId]]
) -> list[dict[str, Any]]:
    """Links that are cut and healed. Sometimes all of one node at any time, sometimes all of the broker
    that a client is being moved to. A link is cut once, and healed."""
    pairs = [[a, b] for a in range(nodes) for b in range(a)]
    random.shuffle(pairs)
    faults: list[dict[str, Any]] = []
    cuts: list[tuple[float, float, list[list[int]]]] = []
    kind = random.choice(["none", "any", "destination", "destination"])
    if kind != "none":
        at, _, alone = random.choice(moves)
        if kind == "any":
            at, alone = 10.0 + random.random() * busy, random.randrange(nodes)
        at += random.random() * 0.5
        cuts.append((at, at + 1.0 + random.random() * 14.0, [pair for pair in pairs if alone in pair]))
        pairs = [pair for pair in pairs if alone not in pair]
    for pair in pairs[: random.choice([0, 4, 12])]:
        at = 10.0 + random.random() * busy
        cuts.append((at, at + 0.1 + random.random() * 10.0, [pair]))
    for at, until, links in cuts:
        faults.append({"at": at, "kind": "cut", "links": links})
        faults.append({"at": until, "kind": "heal", "links": links})
    return faults


def _judge(simulation: Simulation, got: dict[NodeId, list[Delivery]], nodes: int, brokers: int) -> list[str]:
    """What is lost, doubled, out of order or in a wrong state, in words."""
    published: dict[NodeId, list[int]] = {}
    for publication in simulation.trace.of(_published()):
        published.setdefault(publication.publisher, []).append(publication.sequence)
    problems: list[str] = []
    for node in range(nodes):
        at_node = simulation.nodes[node]
        assert at_node is not None
        for subscription in at_node.broker.subscriptions():
            number, is_modulated = subscription.number, subscription.modulator is not None
            for publisher, sequences in published.items():
                mine = [
                    delivery
                    for delivery in got[node]
                    if delivery.event.publisher == publisher
                    and number in delivery.subscriptions
                    and delivery.modulated == is_modulated
                ]
                where = f"{publisher} to {node}{' modulated' if is_modulated else ''}"
                if [delivery.event.sequence for delivery in mine] != sequences:
                    have = [delivery.event.sequence for delivery in mine]
                    problems.append(f"{where}: {have} instead of {sequences}")
                elif is_modulated:
                    lines = [delivery.event.attributes["line"] for delivery in mine]
                    if lines != _sequential(sequences):
                        problems.append(f"{where}: the modulator's products differ from a sequential run's")
                    elif sequences and _line(simulation, node, number, publisher, brokers) != lines[-1]:
                        problems.append(f"{where}: the modulator's state differs from a sequential run's")
    return problems


def _published() -> Any:
    from roamcast.trace import Published

    return Published


def _sequential(sequences: list[int]) -> list[int]:
    line, lines = 7, []
    for sequence in sequences:
        line = (line * PRIME + sequence + 1) % (1 << 61)
        lines.append(line)
    return lines


def _line(simulation: Simulation, client: NodeId, number: int, publisher: NodeId, brokers: int) -> int | None:
    """The state in the one broker that is the client's home."""
    homes = []
    for node in simulation.nodes[:brokers]:
        assert node is not None and isinstance(node.strategy, Opportunistic)
        assert node.strategy.broker is not None
        row = node.strategy.broker.dispatch.clients.get(client)
        if row is not None:
            modulator = row.modulators[number]
            assert isinstance(modulator, Journal)
            homes.append(modulator.lines.get(str(publisher)))
    return homes[0] if len(homes) == 1 else None
