"""Events sealed from end to end: carried and stored by nodes that cannot read them."""

from typing import Any

import pytest

from roamcast.broker.core import Delivery
from roamcast.errors import EventError
from roamcast.event import Event, EventClass, Publication, Value
from roamcast.runtime.sim.medium import Job
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.sealing.content import ContentKey, ContentKeys
from roamcast.units import SECOND, NodeId

KEYS = ContentKeys(ContentKey(bytes(range(32))))
READERS = (0, 2)  # 1 and 3 carry only


def line_of_four(strategy: str) -> Simulation:
    tables: dict[str, Any] = {
        "scenario": {"name": "sealed", "duration": 90.0},
        "world": {
            "nodes": 4,
            "area": [400.0, 100.0],
            "range": 120.0,
            "mobility": {"model": "static", "positions": [[100.0 * n, 0.0] for n in range(4)]},
        },
        "workload": {
            "subscriptions": [
                {"node": 0, "filter": "level > 2"},
                {"node": 2, "filter": "place = 'bridge' AND level > 2"},
                {"node": 3, "filter": "place = 'harbour'"},
            ],
            "publications": [],
        },
        "strategy": {"name": strategy},
    }
    return Simulation(scenario_from(tables))


class Notes:
    def __init__(self, node: NodeId, got: list[tuple[NodeId, Event]]) -> None:
        self._node, self._got = node, got

    def on_event(self, delivery: Delivery) -> None:
        self._got.append((self._node, delivery.event))


@pytest.mark.parametrize("strategy", ["chapar", "flooding", "epidemic"])
@pytest.mark.parametrize("event_class", EventClass)
def test_only_who_has_the_key_reads_and_all_carry(strategy: str, event_class: EventClass) -> None:
    simulation = line_of_four(strategy)
    got: list[tuple[NodeId, Event]] = []
    sent: list[bytes] = []
    send = simulation.medium.send

    def overhear(job: Job) -> None:
        sent.append(job.frame.payload)
        send(job)

    simulation.medium.send = overhear  # type: ignore[method-assign]

    def give_keys(_: None) -> None:
        for number, node in enumerate(simulation.nodes):
            assert node is not None
            node.broker._application = Notes(number, got)
            if number in READERS:
                node.broker.opener = node._content = KEYS

    def publish(attributes: dict[str, Value]) -> None:
        assert simulation.nodes[0] is not None
        lifetime = 60 * SECOND if event_class is EventClass.MEMORIZED else 0
        simulation.nodes[0].publish(Publication(attributes, b"SECRET", lifetime=lifetime, sealed=True))

    simulation.engine.at(SECOND, give_keys, None)
    simulation.engine.at(40 * SECOND, publish, {"place": "bridge", "level": 3})
    simulation.engine.at(45 * SECOND, publish, {"place": "bridge", "level": 1})
    simulation.run()
    assert sorted(node for node, _ in got) == [0, 2]
    for _, event in got:
        assert event.attributes == {"place": "bridge", "level": 3} and event.payload == b"SECRET"
    assert not any(secret in payload for payload in sent for secret in (b"SECRET", b"bridge"))
    for node in simulation.nodes:
        assert node is not None
        kept = node.broker.store.standing(0)
        assert all(stored.event.payload != b"SECRET" for stored in kept)
        assert bool(kept) == (event_class is EventClass.MEMORIZED) or strategy == "chapar"


def test_without_a_key_or_a_strategy_that_can_carry_it_nothing_is_published() -> None:
    for strategy, keys in (("flooding", None), ("tree", KEYS)):
        simulation = line_of_four(strategy)
        simulation.run()
        node = simulation.nodes[0]
        assert node is not None
        node._content = keys
        with pytest.raises(EventError, match="sealed"):
            node.publish(Publication({"a": 1}, sealed=True))
