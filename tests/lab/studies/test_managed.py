"""The strategy of the thesis's tables: events as objects of the overlay manager."""

from typing import Any

from roamcast.lab.run.runs import simulate
from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.strategy.tree.overlay.manager import OBJECTS, SpreadObject
from roamcast.strategy.tree.overlay.messages import (
    CODEC,
    Purpose,
    ReplyStage,
    RouteReply,
    RouteRequest,
    StatedLabel,
)
from roamcast.trace import Delivered, Dropped, OverlayChanged


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


def test_a_message_counts_for_its_requester_where_it_is_received_and_a_reply_for_all_in_range() -> None:
    """Table 6.2: bytes received for own control traffic; all control messages are broadcasts (5.2.3)."""
    simulation = Simulation(scenario_from(line(publications=[])))
    simulation.run()
    node = simulation.nodes[1]
    assert node is not None
    handled = simulation.trace.of(OverlayChanged)
    label = StatedLabel(1, 9, 0, 0)
    request = RouteRequest(1, 7, label, 3, 1, False, Purpose.REPAIR)
    reply = RouteReply(0, 7, 3, label, 1, ReplyStage.FAR, False, 0, 0)
    counts = []
    for message in (request, reply):
        before = len(handled)
        node.strategy.on_receive(2, CODEC.encode(message))
        of_message = [one for one in handled[before:] if one.change == "handled"]
        octets = len(CODEC.encode(message))
        counts.append([(one.role, (one.value or 0) / octets) for one in of_message])
    assert counts == [[("own", 1), ("others", 0)], [("own", 0), ("others", 2)]]  # 2 has 1 and 3 in range
