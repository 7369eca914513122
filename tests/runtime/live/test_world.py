"""Whole live nodes in virtual time: what a node touches is its `NodeWorld`, so a seed repeats every octet."""

from collections.abc import Callable

import pytest
from tests.virtual.nodes import VirtualWorld

from roamcast.broker.core import Delivery
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.strategy import STRATEGIES


def conversation(strategy: str, seed: int) -> tuple[int, list[tuple[float, int]]]:
    """Three nodes for two minutes; one publishes, all subscribe. A digest of what was said, and the
    arrivals."""
    arrivals: list[tuple[float, int]] = []
    with VirtualWorld(seed) as world:

        def arrival_at(number: int) -> Callable[[Delivery], None]:
            return lambda delivery: arrivals.append((world.now, number))

        machines = [world.machine(name, strategy=strategy) for name in "abc"]
        for one in machines:
            for other in machines:
                world.link(one, other)
            one.start()
        world.run(1.0)
        nodes = [machine.node for machine in machines if machine.node is not None]
        for node in nodes:
            session = node.applications.open(arrival_at(node.number))
            session.subscribe(Filter.everything())
        publisher = nodes[0].applications.open(lambda delivery: None)
        world.run(60.0)
        for _ in range(20):
            lifetime = 30_000_000 if STRATEGIES.declared(strategy).hands_over else 0
            publisher.publish(Publication({"level": 1}, lifetime=lifetime))
            world.run(3.0)
        assert [node.status().uptime > 119 for node in nodes] == 3 * [True]
        for machine in machines:
            machine.stop()
        world.check()
        return world.digest, arrivals


@pytest.mark.parametrize("strategy", ["flooding", "epidemic", "chapar"])
def test_two_minutes_of_three_nodes_take_no_time_and_repeat_to_the_octet(strategy: str) -> None:
    first, arrived = conversation(strategy, 1)
    assert len(arrived) == 60
    again, arrived_again = conversation(strategy, 1)
    assert arrived_again == arrived and again == first
    other, _ = conversation(strategy, 2)
    assert other != first, "another seed is another run"
