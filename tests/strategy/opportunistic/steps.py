"""One handoff, step by step: something happens at the very message that a test names.

Three brokers, a consumer that is moved from `SOURCE` to `DESTINATION`, and a producer at each broker. All
hear each other; a frame takes 10 ms, so every step has instants of its own. The consumer has a plain
subscription and one with a modulator whose products show every event and their order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.strategy.opportunistic.schedules import JOURNAL, sequential

from roamcast.broker.core import Delivery
from roamcast.event import EventId
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.scenario.model import FaultKind
from roamcast.scenario.workload import FaultPlan
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.messages import (
    Accepted,
    CarryMessage,
    Detour,
    Handoff,
    MovedDelivery,
    MovedMessage,
    NewHome,
    PublishMessage,
    StreamMessage,
    Switched,
    Taken,
)
from roamcast.trace import HandedOff, Published
from roamcast.units import SECOND, Micros, NodeId, micros

SOURCE, DESTINATION, THIRD, CONSUMER = 0, 1, 2, 3
PRODUCERS = {4: SOURCE, 5: DESTINATION, 6: THIRD}  # at home there
NODES = 7

STEPS: tuple[type, ...] = (Handoff, Accepted, Detour, Switched, MovedDelivery, MovedMessage, NewHome, Taken)
"""In the order of the paper's eight; the events it buffers and applies in 5, 6 and 8 come between them."""

BEGIN: Micros = 20 * SECOND  # of the handoff
EVENTS_END: Micros = 26 * SECOND


@dataclass
class Observed:
    """What the consumer got of each producer, in its order, and what became of the handoff."""

    published: dict[NodeId, list[int]]
    plain: dict[NodeId, list[int]]
    modulated: dict[NodeId, list[int]]
    lines: dict[NodeId, list[object]]
    outcomes: list[str]
    at_victim: set[EventId]  # events for the consumer that were in the victim's hands
    happened: Micros | None  # when; None: the step did not come
    seen: dict[EventId, Micros] = field(default_factory=dict)  # when the consumer got the plain event
    times: dict[EventId, Micros] = field(default_factory=dict)  # when it was published

    def lost(self) -> set[EventId]:
        return {
            EventId(producer, sequence)
            for got in (self.plain, self.modulated)
            for producer, sequences in self.published.items()
            for sequence in set(sequences) - set(got[producer])
        }

    def doubled(self) -> int:
        return sum(
            len(mine) - len(set(mine)) for got in (self.plain, self.modulated) for mine in got.values()
        )

    def reordered(self) -> int:
        return sum(
            later < earlier
            for got in (self.plain, self.modulated)
            for mine in got.values()
            for earlier, later in pairwise(mine)
        )

    def is_perfect(self) -> bool:
        """As in a run without any accident: the modulator's state and products, too."""
        return (
            self.plain == self.modulated == self.published
            and all(self.lines[producer] == sequential(mine) for producer, mine in self.published.items())
            and bool(self.published)
        )


class Handover:
    """One run. `at` names the step, `when` the instant: its message is written, or has just been handled."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.simulation = Simulation(scenario_from(_tables(seed, options)))
        self._got: list[Delivery] = []
        self._seen: dict[EventId, Micros] = {}
        self.simulation._applications[CONSUMER].on_event = self._on_event  # type: ignore[method-assign]
        self._at: type | None = None
        self._when = ""
        self._then: Callable[[], None] = lambda: None
        self._happened: Micros | None = None
        self._victim: NodeId | None = None
        self._at_victim: set[EventId] = set()
        engine = self.simulation.engine
        engine.at(SECOND, lambda _: self._prepare(), None)
        for number, (producer, home) in enumerate(PRODUCERS.items()):
            engine.at((6 + 2 * number) * SECOND, lambda pair: self.relocate(*pair), (producer, home))
        engine.at(BEGIN, lambda _: self.relocate(CONSUMER, DESTINATION), None)

    def at(self, step: type, when: str, victim: NodeId, then: Callable[[], None]) -> None:
        assert when in ("written", "handled")
        self._at, self._when, self._victim, self._then = step, when, victim, then
        if step is MovedDelivery:  # there must be something that the consumer has not confirmed
            engine = self.simulation.engine
            engine.at(BEGIN - SECOND // 10, lambda _: self.cut_off(CONSUMER, SECOND // 2), None)

    def relocate(self, client: NodeId, to: NodeId) -> None:
        for broker in (SOURCE, DESTINATION, THIRD):
            if self.simulation.nodes[broker] is not None:
                brokerage = self.strategy(broker).broker
                assert brokerage is not None
                brokerage.clients.relocate(client, to)

    def crash(self, node: NodeId, restart_after: Micros | None) -> None:
        self._fault(FaultKind.CRASH, node)
        if restart_after is not None:
            engine = self.simulation.engine
            engine.at(engine.now + restart_after, lambda _: self._restart(node), None)

    def cut_off(self, node: NodeId, for_: Micros) -> None:
        """All links of a node are down for a while."""
        engine = self.simulation.engine
        others = [other for other in range(NODES) if other != node]
        for other in others:
            self._fault(FaultKind.CUT, node, other)

        def heal(_: None) -> None:
            for other in others:
                self._fault(FaultKind.HEAL, node, other)

        engine.at(engine.now + for_, heal, None)

    def run(self, until: float) -> Observed:
        self.simulation.engine.run(micros(until))
        published: dict[NodeId, list[int]] = {}
        times: dict[EventId, Micros] = {}
        for record in self.simulation.trace.of(Published):
            published.setdefault(record.publisher, []).append(record.sequence)
            times[EventId(record.publisher, record.sequence)] = record.t
        mine = {
            (producer, is_modulated): [
                delivery
                for delivery in self._got
                if delivery.modulated == is_modulated and delivery.event.publisher == producer
            ]
            for producer in published
            for is_modulated in (False, True)
        }
        return Observed(
            published,
            {producer: [d.event.sequence for d in mine[producer, False]] for producer in published},
            {producer: [d.event.sequence for d in mine[producer, True]] for producer in published},
            {
                producer: [d.event.attributes.get("line") for d in mine[producer, True]]
                for producer in published
            },
            [
                record.outcome
                for record in self.simulation.trace.of(HandedOff)
                if record.node == CONSUMER and record.t >= BEGIN
            ],
            self._at_victim,
            self._happened,
            self._seen,
            times,
        )

    def strategy(self, node: NodeId) -> Opportunistic:
        at_node = self.simulation.nodes[node]
        assert at_node is not None and isinstance(at_node.strategy, Opportunistic)
        return at_node.strategy

    def home(self) -> NodeId | None:
        return self.strategy(CONSUMER).client.home

    # Private.

    def _on_event(self, delivery: Delivery) -> None:
        self._got.append(delivery)
        if not delivery.modulated:
            self._seen.setdefault(delivery.event.id, self.simulation.engine.now)

    def _prepare(self) -> None:
        for node in range(NODES):
            self._tap(node)

    def _restart(self, node: NodeId) -> None:
        self._fault(FaultKind.RESTART, node)
        self._tap(node)

    def _tap(self, node: NodeId) -> None:
        """Watch the messages of one node."""
        strategy = self.strategy(node)
        streams = strategy._streams
        write, on_message = streams.write, strategy.on_message

        def tapped_write(to: NodeId, message: StreamMessage) -> bool:
            self._check(message, "written")
            return write(to, message)

        def tapped_message(sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None:
            if node == self._victim and self._happened is None:
                self._note(message)
            on_message(sender, message, hops, held)
            self._check(message, "handled")

        streams.write = tapped_write  # type: ignore[method-assign]
        strategy.on_message = tapped_message  # type: ignore[method-assign]

    def _note(self, message: StreamMessage) -> None:
        if isinstance(message, PublishMessage | CarryMessage):
            self._at_victim.add(message.event.id)
        elif isinstance(message, MovedDelivery):
            self._at_victim.add(message.delivery.event.id)

    def _check(self, message: StreamMessage, when: str) -> None:
        if self._at is None or not isinstance(message, self._at) or when != self._when:
            return
        is_ours = isinstance(message, NewHome) or getattr(message, "consumer", None) == CONSUMER
        engine = self.simulation.engine
        if self._happened is None and engine.now >= BEGIN and is_ours:
            self._happened = engine.now
            engine.at(engine.now, lambda _: self._then(), None)

    def _fault(self, kind: FaultKind, node: NodeId, peer: NodeId | None = None) -> None:
        self.simulation.playback.happen(FaultPlan(self.simulation.engine.now, kind, node, peer))


def _tables(seed: int, options: dict[str, Any]) -> dict[str, Any]:
    places = [[100.0 + 10.0 * n, 100.0] for n in range(NODES)]
    step = (EVENTS_END - 18 * SECOND) / SECOND / 60
    publications = [
        {"t": 18.0 + step * (n + 0.1 * producer), "node": producer, "size": 20, "attributes": {"key": 1}}
        for n in range(60)
        for producer in PRODUCERS
    ]
    publications += [{"t": 3.0, "node": producer} for producer in PRODUCERS]  # they look for a home then
    subscriptions = [{"node": CONSUMER}, {"node": CONSUMER, "modulator": {"name": JOURNAL, "cost": 2_000}}]
    return {
        "scenario": {"name": "steps", "duration": 1_000.0, "seed": seed},
        "world": {
            "nodes": NODES,
            "area": [500.0, 500.0],
            "range": 300.0,
            "mobility": {"model": "static", "positions": places},
            "radio": {"model": "disk", "bitrate": 2_000_000, "delay": 0.01, "loss": 0.0},
        },
        "roles": {"brokers": [SOURCE, DESTINATION, THIRD], "publishers": list(PRODUCERS), "subscribers": []},
        "workload": {"publications": publications, "subscriptions": subscriptions},
        "underlay": {"name": "ideal"},
        "strategy": {
            "name": "opportunistic",
            "options": {
                "broker_update": 5.0,
                "broker_discovery": 5.0,
                "handoff_timeout": 3.0,
                "neighbours_wanted": 2,
                "keep_realtime": 600.0,
                "adaptors": ["topology"],  # brokers move nobody by themselves
                **options,
            },
        },
    }
