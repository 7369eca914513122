"""One scripted conversation, and a node that dies at each of its writes: nothing acknowledged is lost."""

import pytest
from tests.virtual.conversation import converse
from tests.virtual.nodes import VirtualWorld

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def points() -> int:
    """The writes of the conversation."""
    return converse().points


def test_the_conversation_repeats_to_the_octet(points: int) -> None:
    assert converse().digest == converse().digest
    assert points > 300, "else the next test tries little"


# A stride that is prime to the writes of one message; `tests/torture` tries every write.
@pytest.mark.parametrize("events_max", [5, 10_000], ids=["a full store", "a large store"])
@pytest.mark.parametrize("off", [1.0, 63.0], ids=["a second", "a minute"])
def test_nothing_acknowledged_is_lost_whichever_write_the_node_dies_at(
    off: float, events_max: int, points: int
) -> None:
    for point in range(int(off) % 5, points, 5):
        converse(kill_at=point, off=off, events_max=events_max)


def test_a_message_of_qos_2_is_on_no_air_before_its_record_is_on_the_disk() -> None:
    """While a slow disk stops the node, a copy that is to be passed on and a message come. The commit of the
    message would be behind the frame that has both, and its client repeats what it takes for lost."""
    points = speaks_while_it_relays(None)
    assert points > 20, "else little is tried"
    for point in range(points):
        speaks_while_it_relays(point)


def speaks_while_it_relays(kill_at: int | None) -> int:
    """The number of writes of the node in the middle; it dies at one of them."""
    with VirtualWorld(1) as world:
        node, there, talker = (world.machine(name) for name in "abc")
        for other in (there, talker):
            world.link(node, other)
        for machine in world.machines:
            machine.start()
        subscriber, busy = world.client(there, "sub"), world.client(talker, "busy")
        publisher, another = (world.client(node, name, inflight_max=1) for name in ("pub", "another"))
        subscriber.subscribe("t/#")
        world.run(6.0)
        node.disk.slow = lambda: 0.05
        begin = node.disk.points
        node.disk.kill_at = None if kill_at is None else begin + kill_at

        def revive() -> None:
            node.disk.kill_at = None
            world.call_later(1.0, node.start)

        node.on_died = revive
        for number in range(15):
            if number % 5 == 0:
                publisher.publish("t/x", 2)
            if number % 5 == 3:
                another.publish("t/z", 1)
            busy.publish("t/y", 0)
            world.run(0.013)
        world.run(20.0)
        node.on_died = lambda: None
        world.check()
        return node.disk.points - begin
