"""Forty walkers on one shared channel that loses 5% of the frames, while their homes follow them."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.strategy.opportunistic.schedules import JOURNAL, sequential

from roamcast.broker.core import Delivery
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.trace import HandedOff, Published
from roamcast.units import NodeId, micros

NODES, BROKERS, CONSUMERS, PRODUCERS = 40, 8, range(8, 28), range(28, 32)
FIRST, LAST, END = 20.0, 80.0, 130.0  # seconds: events from the first to the last


class Walked(NamedTuple):
    expected: int
    lost: int
    doubled: int
    reordered: int
    wrong: int  # products that differ from those of a run without handoffs
    moved: int
    handoff_ms: list[float]


def walk(seed: int, *, area: float = 400.0, loss: float = 0.05) -> Walked:
    simulation = Simulation(scenario_from(_tables(seed, area, loss)))
    got: dict[NodeId, list[Delivery]] = {node: [] for node in range(NODES)}
    for node, application in enumerate(simulation._applications):
        application.on_event = got[node].append  # type: ignore[method-assign, assignment]
    simulation.engine.run(micros(END))
    published: dict[NodeId, list[int]] = {}
    for record in simulation.trace.of(Published):
        published.setdefault(record.publisher, []).append(record.sequence)
    expected = lost = doubled = reordered = wrong = 0
    for had, wanted in _pairs(published, got):
        sequences = [delivery.event.sequence for delivery in had]
        expected += len(wanted)
        lost += len(set(wanted) - set(sequences))
        doubled += len(sequences) - len(set(sequences))
        reordered += sum(b < a for a, b in itertools.pairwise(sequences))
        lines = [delivery.event.attributes["line"] for delivery in had]
        wrong += sum(a != b for a, b in zip(lines, sequential(sequences), strict=True))
    moved = [one for one in simulation.trace.of(HandedOff) if one.outcome == "moved"]
    times = sorted((one.t - one.started) / 1_000 for one in moved)
    return Walked(expected, lost, doubled, reordered, wrong, len(moved), times)


def _pairs(
    published: dict[NodeId, list[int]], got: dict[NodeId, list[Delivery]]
) -> Iterator[tuple[list[Delivery], list[int]]]:
    for consumer in CONSUMERS:
        for publisher, wanted in published.items():
            yield [one for one in got[consumer] if one.event.publisher == publisher], wanted


def _tables(seed: int, area: float, loss: float) -> dict[str, Any]:
    return {
        "scenario": {"name": "walkers", "duration": END, "seed": seed},
        "world": {
            "nodes": NODES,
            "area": [area, area],
            "range": 150.0,
            "mobility": {"model": "random_waypoint", "speed": [0.5, 2.0], "pause": [0.0, 30.0]},
            "radio": {"model": "csma", "loss": loss},
        },
        "roles": {"brokers": list(range(BROKERS)), "publishers": list(PRODUCERS), "subscribers": []},
        "workload": {
            "rate": 1.0,
            "size": 256,
            "start": FIRST,
            "stop": LAST,
            "subscriptions": [{"node": node, "modulator": {"name": JOURNAL}} for node in CONSUMERS],
        },
        "strategy": {"name": "opportunistic", "options": {"broker_discovery": 5.0}},
    }
