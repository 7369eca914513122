"""The strategy of the thesis's tables: events as objects of the overlay manager."""

from typing import Any

from roamcast.lab.run.runs import simulate
from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.strategy.tree.overlay.manager import OBJECTS, SpreadObject
from roamcast.trace import Delivered, Dropped


def line(**workload: Any) -> dict[str, Any]:
    return {
        "scenario": {"name": "managed", "duration": 30.0, "modules": ["roamcast.lab.studies.managed"]},
        "world": {
            "nodes": 4,
            "area": [400.0, 10.0],
            "range": 110.0,
            "mobility": {"model": "static", "positions": [[100.0 * node, 0.0] for node in range(4)]},
        },
        "workload": workload,
        "strategy": {"name": "managed", "options": {"preset": "driving"}},
    }


def test_an_object_reaches_all_who_want_it_once_and_its_hops_are_counted() -> None:
    made = line(
        subscriptions=[{"node": 1, "filter": "a = 1"}, {"node": 3, "filter": "a = 1"}],
        publications=[{"t": 20.0, "node": 0, "attributes": {"a": value}} for value in (1, 2)],
    )
    result = simulate(scenario_from(made))
    assert result.metrics["delivery_ratio"] == 1.0 and result.metrics["duplicates"] == 0
    simulation = Simulation(scenario_from(made))
    simulation.run()
    assert [(d.node, d.sequence, d.hops) for d in simulation.trace.of(Delivered)] == [(1, 0, 1), (3, 0, 3)]


def test_an_object_that_is_no_event_is_dropped_and_traced() -> None:
    simulation = Simulation(scenario_from(line(publications=[])))
    simulation.run()
    node = simulation.nodes[1]
    assert node is not None
    from roamcast.lab.studies.managed import (
        Managed,  # here: as a plug-in it is known once a scenario names it
    )

    assert isinstance(node.strategy, Managed)
    for payload in (b"no object", OBJECTS.encode(SpreadObject(9, 1, 0, b"no event"))):
        node.strategy._tree.on_data(0, payload)
    assert [drop.message for drop in simulation.trace.of(Dropped)] == ["object", "object"]
