"""Chapar's encrypted events on a line of nodes: relays match by EID and read nothing (section 4.2)."""

from typing import Any

import pytest

from roamcast.broker.core import Delivery
from roamcast.event import Event, EventClass, Publication
from roamcast.runtime.sim.medium import Job
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.sealing.content import ContentKey, ContentKeys
from roamcast.strategy.chapar import Chapar
from roamcast.units import SECOND, Micros, NodeId

KEYS = ContentKeys(ContentKey(bytes(range(32))))
OTHERS = ContentKeys(ContentKey(bytes(32)))
SECRET = b"the bridge is down"


class Line:
    """Node 0 publishes, node 1 relays and has no key, node 2 has it and subscribes, as node 3 does, whose
    filter nothing matches."""

    def __init__(self) -> None:
        scenario: dict[str, Any] = {
            "scenario": {"name": "sealed", "duration": 90.0},
            "world": {
                "nodes": 4,
                "area": [400.0, 100.0],
                "range": 120.0,
                "mobility": {"model": "static", "positions": [[100.0 * n, 0.0] for n in range(4)]},
            },
            "workload": {
                "subscriptions": [
                    {"node": 2, "filter": "place = 'bridge' AND level > 2"},
                    {"node": 3, "filter": "place = 'harbour'"},
                ],
                "publications": [],
            },
            "strategy": {"name": "chapar", "options": {"consistency_interval": 10.0}},
        }
        self.simulation = Simulation(scenario_from(scenario))
        self.frames: list[Job] = []
        self.got: list[tuple[NodeId, Event]] = []
        send = self.simulation.medium.send

        def overhear(job: Job) -> None:
            self.frames.append(job)
            send(job)

        self.simulation.medium.send = overhear  # type: ignore[method-assign]
        self.simulation.engine.at(SECOND, self._give_keys)

    def chapar(self, node: NodeId) -> Chapar:
        stack = self.simulation.nodes[node]
        assert stack is not None and isinstance(stack.strategy, Chapar)
        return stack.strategy

    def publish(
        self, at: Micros, attributes: dict[str, Any], event_class: EventClass, payload: bytes
    ) -> None:
        self.simulation.engine.at(at, self._publish, (attributes, event_class, payload))

    def carried(self) -> list[tuple[NodeId, NodeId | None]]:
        """Who sent an event to whom."""
        return [(job.sender, job.to) for job in self.frames if job.frame.event is not None]

    def _give_keys(self, _: None) -> None:
        self.chapar(2).open_with(KEYS)
        self.chapar(3).open_with(OTHERS)
        for number, node in enumerate(self.simulation.nodes):
            assert node is not None
            node.broker._application = _Notes(self, number)

    def _publish(self, plan: tuple[dict[str, Any], EventClass, bytes]) -> None:
        attributes, event_class, payload = plan
        node = self.simulation.nodes[0]
        assert node is not None
        lifetime = 60 * SECOND if event_class is EventClass.MEMORIZED else 0
        clear = node.broker.create(Publication(attributes, payload, lifetime=lifetime))
        node.strategy.publish(KEYS.seal(clear, self.chapar(0).seal_id(clear)))


class _Notes:
    def __init__(self, line: Line, node: NodeId) -> None:
        self._line = line
        self._node = node

    def on_event(self, delivery: Delivery) -> None:
        self._line.got.append((self._node, delivery.event))


@pytest.mark.parametrize("event_class", EventClass)
def test_a_relay_without_the_key_forwards_what_only_the_subscriber_can_read(event_class: EventClass) -> None:
    line = Line()
    line.publish(40 * SECOND, {"place": "bridge", "level": 3}, event_class, SECRET)
    line.publish(50 * SECOND, {"place": "bridge", "level": 1}, event_class, SECRET)  # EID matches, filter not
    line.simulation.run()
    [(node, event)] = line.got
    assert node == 2
    assert event.attributes == {"place": "bridge", "level": 3} and event.payload == SECRET
    events = [job for job in line.frames if job.frame.event is not None]
    assert any(job.sender == 1 for job in events)  # through the relay
    for job in line.frames:
        assert SECRET not in job.frame.payload and b"bridge" not in job.frame.payload


def test_what_no_filter_selects_by_its_identifier_is_not_forwarded() -> None:
    line = Line()
    line.publish(40 * SECOND, {"place": "mill"}, EventClass.REALTIME, SECRET)
    line.simulation.run()
    assert line.got == []
    assert line.carried() == [(0, 1)]  # to the publisher's broker, and no further


def test_a_subscriber_with_another_key_gets_nothing_and_its_relay_still_forwards() -> None:
    line = Line()
    line.publish(40 * SECOND, {"place": "harbour"}, EventClass.REALTIME, SECRET)
    line.simulation.run()
    assert line.got == []
    assert line.carried() == [(0, 1), (1, 2), (2, 3)]
