"""Random schedules for handoffs: events, losses, link changes, concurrent relocations; and what must hold.

A small world in `sim` over a lossy radio: some brokers, some clients. While producers publish, links are cut
and healed (the network may fall apart for a while), and clients are moved between brokers at random, several
at once, producers too. In the end everything is healed and time passes. Then every consumer must have got
every event of every producer once and in its order, and its modulator must be in the state of a run without
any of that.

`plain` leaves out what later schedules draw as well: the underlay (routes found by messages, or known), the
medium, memorized events, events for named nodes, sizes, processors of different speed. `handoff="loose"`
promises the same.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import msgspec

from roamcast.broker.core import Delivery
from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.broker import Brokerage
from roamcast.trace import HandedOff, Published
from roamcast.units import NodeId, micros

JOURNAL = "test_journal"
PRIME = 1_000_003
ARRIVAL = 60.0  # seconds that a client may be on its way when it is judged


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
    opened: int  # handoffs under way, while another began, that waited for a producers' broker
    deliveries: int
    reordered: int = 0  # deliveries behind a later event of their producer
    missing: int = 0  # of crashes: events that a subscription never got
    late: int = 0  # consumers that some broker did not know yet when the first event came: not judged


def play(
    seed: int,
    *,
    handoff: str = "strict",
    plain: bool = False,
    adapt: bool = False,
    defaults: bool = False,
    many: bool = False,
    paper: bool = False,
) -> Outcome:
    """`defaults`: no timeout is set. `many`: 32 nodes, all of them brokers, several hops apart. `paper`:
    brokers are found by ring search, links go from neighbour to neighbour, attachments trigger."""
    random = Random(f"schedule {seed}")
    nodes = 32 if many else random.choice([5, 7, 9])
    brokers = 32 if many else random.choice([3, 4]) if nodes > 5 else 3
    busy = 20.0
    moves = [  # several at the same instant, too
        (at, random.randrange(nodes), random.randrange(brokers))
        for at in (12.0 + random.random() * busy for _ in range(random.choice([3, 8, 20])))
        for _ in range(random.choice([1, 1, 3]))
    ]
    faults = _faults(random, nodes, busy, moves)
    tables = _tables(random, seed, nodes, brokers, busy, handoff, faults)
    begin = 0.0
    if not plain:
        begin = _widen(Random(f"weather {seed}"), tables, brokers)
        moves += _storm(Random(f"storm {seed}"), nodes, brokers, busy)
    if defaults:
        for name in ("handoff_timeout", "home_timeout", "registration_lifetime", "keep_realtime"):
            del tables["strategy"]["options"][name]
    if paper:
        ways = {"search": "ring", "propagation": "neighbours", "discovery": "handoff"}
        tables["strategy"]["options"].update(ways)
    if adapt:
        _adapt(Random(f"adaptors {seed}"), tables, nodes)
    simulation = Simulation(scenario_from(tables))
    got: dict[NodeId, list[Delivery]] = {node: [] for node in range(nodes)}
    for node, application in enumerate(simulation._applications):
        application.on_event = got[node].append  # type: ignore[method-assign, assignment]
    opened = [0]

    def relocate(argument: tuple[NodeId, NodeId]) -> None:
        client, to = argument
        for brokerage in _brokerages(simulation):
            opened[0] += sum(bool(one.waiting) for one in brokerage.handoffs.source._leaving.values())
            if brokerage.clients.relocate(client, to):
                return

    for at, client, to in moves:
        simulation.engine.at(micros(begin + at), relocate, (client, to))
    late: set[NodeId] = set()  # before a subscription is known, nothing is promised to it
    first = min(publication["t"] for publication in tables["workload"]["publications"])
    simulation.engine.at(micros(first) - 1, lambda _: late.update(_unknown(simulation)))
    problems = _run_until_good(
        simulation,
        lambda: _judge(simulation, {n: g for n, g in got.items() if n not in late}),
        begin + busy,
    )
    outcomes = Counter(record.outcome for record in simulation.trace.of(HandedOff))
    reordered = sum(
        later.event.sequence < earlier.event.sequence
        for wanted in _wanted(simulation, got)
        for earlier, later in pairwise(wanted.got)
    )
    return Outcome(problems, outcomes, opened[0], sum(map(len, got.values())), reordered, late=len(late))


def _unknown(simulation: Simulation) -> Iterator[NodeId]:
    """Consumers that some broker does not know: searches or registrations were lost too often."""
    brokerages = list(_brokerages(simulation))
    for number, node in enumerate(simulation.nodes):
        assert node is not None
        known = [brokerage.consumers.find(number) for brokerage in brokerages]
        if node.broker.subscriptions() and None in known:
            yield number


def _run_until_good(simulation: Simulation, judge: Callable[[], list[str]], until: float) -> list[str]:
    """Most schedules are good soon after the last event; what is good must stay so for a while. The rest get
    their time: messages that were lost on a bad way are repeated more and more rarely."""
    engine = simulation.engine
    quiet = 12.0 + until + 14.0  # after the last event and the last heal
    engine.run(micros(quiet))
    problems = judge()
    while engine.now < micros(quiet + 130.0):
        was_good = not problems
        engine.run(engine.now + micros(10.0))
        _let_clients_arrive(simulation)
        problems = judge()
        if was_good:
            return problems
    return problems


def _let_clients_arrive(simulation: Simulation) -> None:
    """Adaptors, or a broker that is as near, may move one at any time; while it is on its way, no broker has
    its modulators. Where three of ten frames are lost, one way takes several seconds."""
    until = simulation.engine.now + micros(ARRIVAL)
    while any(brokerage.handoffs.source._leaving for brokerage in _brokerages(simulation)):
        if simulation.engine.now >= until:
            return  # it is judged as it is: at home nowhere
        simulation.engine.run(simulation.engine.now + micros(0.1))


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
    columns = 3 if nodes <= 9 else 6
    places = [[20.0 + 80.0 * (n % columns), 20.0 + 80.0 * (n // columns)] for n in range(nodes)]
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


def _storm(random: Random, nodes: int, brokers: int, busy: float) -> list[tuple[float, NodeId, NodeId]]:
    """Sometimes many moves at once, brokers' own clients among them: messages to those are written twice."""
    if random.random() < 0.7:
        return []
    at, several = 12.0 + random.random() * busy, random.choice([10, 40])
    return [
        (at + random.random(), random.randrange(nodes), random.randrange(brokers)) for _ in range(several)
    ]


def _widen(random: Random, tables: dict[str, Any], brokers: int) -> float:
    """How much later everything begins: until routes are found and all are at home somewhere."""
    underlay = random.choice(["ideal"] * 6 + ["olsr", "beacons"])
    tables["underlay"]["name"] = underlay
    if underlay == "beacons":
        tables["world"]["range"] = 300.0 if brokers < 32 else 700.0  # it knows no routes beyond one hop
    if random.random() < 0.1:
        radio = tables["world"]["radio"]
        tables["world"]["radio"] = {"model": "csma", "bitrate": 2_000_000, "loss": min(radio["loss"], 0.1)}
    memorized, addressed = random.choice([0.0, 0.0, 0.3, 1.0]), random.choice([0.0, 0.0, 0.2])
    size = random.choice([20, 20, 1_000])
    homes = sorted({one["node"] for one in tables["workload"]["subscriptions"]} | set(range(brokers)))
    for publication in tables["workload"]["publications"]:
        publication["size"] = size
        if random.random() < memorized:
            publication |= {"class": "memorized", "lifetime": 900.0}
        if random.random() < addressed:
            publication["to"] = sorted(random.sample(homes, 2))
    options = tables["strategy"]["options"]
    if random.random() < 0.3:
        options["capacities"] = {str(n): random.choice([0.5, 1.0, 4.0]) for n in range(brokers)}
    begin = 0.0
    if underlay != "ideal" or tables["world"]["radio"]["model"] != "disk":
        begin = 30.0
        options["mode"] = "opportunistic"  # a static overlay may miss a broker whose routes came too late
    tables["scenario"]["duration"] += begin
    for publication in tables["workload"]["publications"]:
        publication["t"] += begin
    for fault in tables["fault"]:
        fault["at"] += begin
    return begin


def _adapt(random: Random, tables: dict[str, Any], nodes: int) -> None:
    """Adaptors move clients for reasons of their own, and brokers come and go while all else happens."""
    for subscription in tables["workload"]["subscriptions"]:
        if "modulator" in subscription:
            subscription["modulator"]["cost"] = 20_000
    adaptors = ["complex", "load_balancing", "placement", "broker_creation", "broker_removal"]
    random.shuffle(adaptors)
    tables["strategy"]["options"] |= {
        "mode": "opportunistic",
        "adaptors": ["topology", *adaptors],
        "overload_threshold": random.choice([0.03, 0.1]),
        "monitor_period": random.choice([0.5, 1.0]),
        "adaptation_rest": random.choice([0.0, 2.0]),
        "placement_gain": random.choice([0.0, 0.1]),
        "willing": _willing(random, tables, nodes),
        "idle_load": random.choice([0.02, 1.0]),
        "idle_time": random.choice([1.0, 4.0]),
        "directory": random.choice(["own", "own", random.randrange(nodes)]),
    }


def _willing(random: Random, tables: dict[str, Any], nodes: int) -> str | list[NodeId]:
    chosen = random.choice(["all", sorted(random.sample(range(nodes), 3))])
    brokers = tables["roles"]["brokers"]
    return chosen if chosen == "all" else [node for node in chosen if node not in brokers]  # type: ignore


def _brokerages(simulation: Simulation) -> Iterator[Brokerage]:
    """Of all nodes that are brokers now."""
    for node in simulation.nodes:
        assert node is not None and isinstance(node.strategy, Opportunistic)
        if node.strategy.broker is not None:
            yield node.strategy.broker


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


def _judge(simulation: Simulation, got: dict[NodeId, list[Delivery]]) -> list[str]:
    """What is lost, doubled, out of order or in a wrong state, in words."""
    problems: list[str] = []
    for wanted in _wanted(simulation, got):
        have = [delivery.event.sequence for delivery in wanted.got]
        if have != wanted.sequences:
            problems.append(f"{wanted.where}: {have} instead of {wanted.sequences}")
        elif wanted.is_modulated:
            lines = [delivery.event.attributes["line"] for delivery in wanted.got]
            if lines != sequential(have):
                problems.append(f"{wanted.where}: the modulator's products differ from a sequential run's")
            elif lines:
                problems.extend(_differences(simulation, wanted, sequential(have)[-1]))
    return problems


class Wanted(NamedTuple):
    """What one subscription, or a node by its name, shall have of one producer, and what it has."""

    node: NodeId
    number: int | None  # of the subscription; None: addressed
    publisher: NodeId
    is_modulated: bool
    sequences: list[int]
    got: list[Delivery]

    @property
    def where(self) -> str:
        how = "addressed" if self.number is None else "modulated" if self.is_modulated else "plain"
        return f"{self.publisher} to {self.node} {how}"


def _wanted(simulation: Simulation, got: dict[NodeId, list[Delivery]]) -> Iterator[Wanted]:
    published: dict[NodeId, list[Published]] = {}
    for record in simulation.trace.of(Published):
        published.setdefault(record.publisher, []).append(record)
    for node in got:
        at_node = simulation.nodes[node]
        assert at_node is not None
        for publisher, records in published.items():
            theirs = [delivery for delivery in got[node] if delivery.event.publisher == publisher]
            for subscription in at_node.broker.subscriptions():
                number, is_modulated = subscription.number, subscription.modulator is not None
                mine = [
                    delivery
                    for delivery in theirs
                    if number in delivery.subscriptions and delivery.modulated == is_modulated
                ]
                sequences = [record.sequence for record in records if not record.destinations]
                yield Wanted(node, number, publisher, is_modulated, sequences, mine)
            mine = [delivery for delivery in theirs if not delivery.subscriptions]
            named = [record.sequence for record in records if node in record.destinations]
            yield Wanted(node, None, publisher, False, named, mine)


def sequential(sequences: list[int]) -> list[int]:
    line, lines = 7, []
    for sequence in sequences:
        line = (line * PRIME + sequence + 1) % (1 << 61)
        lines.append(line)
    return lines


def _differences(simulation: Simulation, wanted: Wanted, line: int) -> Iterator[str]:
    """Of the state in the one broker that is the client's home."""
    homes = []
    for brokerage in _brokerages(simulation):
        row = brokerage.homes.clients.get(wanted.node)
        if row is not None:
            assert wanted.number is not None
            modulator = row.modulators[wanted.number]
            assert isinstance(modulator, Journal)
            homes.append(modulator.lines.get(str(wanted.publisher)))
    if len(homes) != 1:
        yield f"{wanted.where}: the client is at home in {len(homes)} brokers"
    elif homes != [line]:
        yield f"{wanted.where}: the modulator's state differs from a sequential run's"
