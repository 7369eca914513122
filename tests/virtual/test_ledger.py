"""Losses are counted where they happen. Every schedule checks it too (`VirtualWorld.check`)."""

import pytest
from tests.virtual.ledger import problems
from tests.virtual.nodes import VirtualWorld

BURST = 4_000


@pytest.mark.parametrize(
    ("loss", "options", "everything"),
    [(0.0, {}, True), (0.1, {}, False), (0.1, {"recent_max": 2 * BURST}, True)],
)
def test_a_burst_of_qos_0_adds_up_on_both_nodes(
    loss: float, options: dict[str, int], everything: bool
) -> None:
    """Of what the air lost the publisher's node can repeat so much as it remembers; what it let go before
    anyone could ask is counted there. Ten thousand in a second lost 2 % that way, of 5 % on the air, and
    nothing where it remembers as many."""
    with VirtualWorld(1) as world:
        here, there = world.machine("a", options=options), world.machine("b", options=options)
        world.link(here, there)
        here.start()
        there.start()
        subscriber, publisher = world.client(there, "sub"), world.client(here, "pub")
        subscriber.subscribe("t/#", 0)
        away = world.client(there, "away")
        away.subscribe("t/#", 0)
        world.run(10.0)
        away.leave()
        world.run(1.0)
        world.network.loss = loss
        for number in range(BURST):
            publisher.publish("t/x", 0)
            if number % 20 == 0:
                world.run(0.001)
        world.network.loss = 0.0
        world.run(40.0)
        world.check()
        assert here.node is not None and there.node is not None
        published = here.node.counters.reading("events_published_total")
        reached = there.node.counters.reading("mqtt_delivered")
        assert published == BURST and reached == world.model.deliveries
        assert there.node.counters.reading("mqtt_dropped_total") == reached, "the client that was away"
        lost = BURST - world.model.deliveries
        assert (lost == 0) is everything
        let_go = here.node.counters.total("table_evictions_total")
        assert lost <= let_go, "nobody says who let them go"
        assert not options or let_go == 0


def test_a_message_that_nobody_counts_is_found() -> None:
    with VirtualWorld(1) as world:
        machine = world.machine("a")
        machine.start()
        client = world.client(machine, "sub")
        client.subscribe("t/#")
        world.run(3.0)
        client.publish("t/x", 0)
        client.publish("t/x", 1)
        world.run(3.0)
        assert machine.node is not None and machine.listener is not None
        assert problems("a", machine.node.counters) == []
        machine.listener.exchange.published += 1
        assert len(problems("a", machine.node.counters)) == 1
