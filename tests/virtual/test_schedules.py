"""A hundred random schedules of whole nodes. A failure names its seed; `tests/torture` plays 20,000."""

from itertools import pairwise

import pytest
from tests.virtual.nodes import VirtualMachine, VirtualWorld
from tests.virtual.schedules import play

from roamcast.strategy import STRATEGIES

pytestmark = pytest.mark.long

BATCH = 10
# Found by schedules that were never looked at before, and mended: each with its cause.
MENDED = {
    2_047: ("chapar", "what a full disk refused was not offered again"),
    2_055: ("opportunistic", "a node confirmed what was not on its disk yet, and was killed"),
    7_056: ("tree", "what a full disk refused was not offered again"),
    7_080: (
        "odmrp",
        "a retained message of QoS 2 was stamped when it was on the disk, after later ones",
    ),
    7_114: ("opportunistic", "what a full disk refused was not offered again"),
    9_083: ("odmrp", "the first number that a full disk could not reserve ended the Join Requests"),
    9_153: ("tree", "a link that stood through a cut: offers ended while it lasted"),
    12_141: ("chapar", "a restarted node gave out a packet identifier that its client had not released"),
}
# The same, with programs on local sockets, and wills.
MENDED_WITH_PROGRAMS = {
    19: (
        "directed",
        "a clock went back, and a retained message that a kill had left stayed the newest",
    ),
    20_409: ("directed", "a message of QoS 2 whose commit failed was refused, sent again, and came twice"),
    20_866: (
        "chapar",
        "what waited in memory for an earlier event was gone with a kill, and not offered again",
    ),
    20_621: ("directed", "a client's full queue dropped what a full disk had not taken yet"),
    22_290: ("directed", "a restarted node handed out its own events before a large one that it had begun"),
    22_483: ("epidemic", "wills that waited for room had no place in the order"),
    30_157: ("epidemic", "the same, with room: another client's message was published meanwhile"),
    40_017: ("opportunistic", "who subscribed got what the strategy still held back from the others"),
    30_587: ("tree", "what a relay's full disk refused was kept later, and not offered to a link that stood"),
    31_066: (
        "epidemic",
        "what a full disk had refused was tried again, by then by a full store, which so asked for nothing",
    ),
    31_674: ("tree", "after a restart places were taken client by client, and not in the order of numbers"),
    40_929: ("odmrp", "a full disk could not forget the record of what it refused, and a kill published it"),
    43_042: ("chapar", "no loss: the model missed the will of a client that was back within its delay"),
    100_044: (
        "epidemic",
        "a retained message that a full disk had refused was tried again, by then by a full store, as above",
    ),
    100_803: ("tree", "what was published once more under its number was entered twice, and left once"),
    114_209: ("opportunistic", "the room on the disk was looked at once for all events of a commit"),
    200_136: (
        "epidemic",
        "what a full disk had kept of released messages counted for the receive maximum: the client was"
        " disconnected for ever",
    ),
    20_184: ("directed", "who subscribed after an event had come too early got it before those before it"),
}


@pytest.mark.parametrize("first", range(2_000, 2_100, BATCH))
def test_nothing_acknowledged_is_lost_and_nothing_of_qos_2_doubled(first: int) -> None:
    failures = []
    for seed in range(first, first + BATCH):
        try:
            play(seed)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)


def test_directed_loses_nothing_either() -> None:
    """It is not among those that a seed draws, so that old seeds play what they played."""
    for seed in range(7_000, 7_000 + BATCH):
        play(seed, strategy="directed")


@pytest.mark.parametrize("seed", MENDED)
def test_what_was_lost_once_is_not_lost(seed: int) -> None:
    play(seed, strategy=MENDED[seed][0], has_programs=False)


@pytest.mark.parametrize("seed", MENDED_WITH_PROGRAMS)
def test_what_a_program_missed_once_it_gets(seed: int) -> None:
    play(seed, strategy=MENDED_WITH_PROGRAMS[seed][0])


@pytest.mark.xfail(strict=True, reason="known, and not mended: docs/use/promises.md")
@pytest.mark.parametrize("seed", [123_309, 200_546, 211_965])
def test_order_holds_although_the_publishers_node_had_a_full_disk_and_was_killed(seed: int) -> None:
    play(seed)


def test_a_schedule_repeats_to_the_octet() -> None:
    first, again = play(2_001, strategy="epidemic"), play(2_001, strategy="epidemic")
    assert first == again and first.kills + first.deliveries > 0
    assert play(2_002, strategy="epidemic").digest != first.digest


def test_a_disk_that_is_full_for_a_while_after_a_kill_loses_nothing() -> None:
    """Seed 5117: a full store pushed out what it had owed to a client since it last asked, and of three full
    stores in a triangle two waited for each other (`tests/broker/test_store.py` has each alone)."""
    play(5_117, strategy="epidemic", is_swarm=False, has_programs=False)


def test_two_full_stores_with_events_for_each_other_come_through() -> None:
    with VirtualWorld(1) as world:
        one, other = (world.machine(name, events_max=5) for name in "ab")
        one.start()
        other.start()
        clients = [world.client(machine, machine.name) for machine in (one, other)]
        for client in clients:
            client.subscribe("t/#")
        world.run(5.0)
        for client in clients:
            for _ in range(10):
                client.publish("t/x", 1)
        world.run(5.0)
        full = [len(machine.node.node.broker.store) for machine in (one, other) if machine.node is not None]
        assert full == [5, 5], "else the rest proves little"
        world.link(one, other)
        world.run(60.0)
        assert world.model.acknowledged_count >= 20, "refused ones are sent again"
        world.check()


HANDING_OVER = STRATEGIES.names_with(lambda declared: declared.hands_over)


@pytest.mark.parametrize("strategy", HANDING_OVER)
def test_a_message_whose_number_was_reserved_arrives_after_later_numbers(strategy: str) -> None:
    """A message of QoS 2 has its number before its record is on the disk, and is published afterwards:
    `opportunistic` took it for a second copy of an event that it had sent."""
    with VirtualWorld(1) as world:
        one, other = (world.machine(name, strategy=strategy) for name in "ab")
        world.link(one, other)
        one.disk.slow = lambda: 0.05
        one.start()
        other.start()
        subscriber = world.client(other, "sub")
        subscriber.subscribe("t/#")
        publishers = [world.client(one, f"pub{number}") for number in range(2)]
        world.run(20.0)
        for size in (0, 3_000, 70_000, 0):
            for publisher, qos in zip(publishers, (2, 1), strict=True):
                publisher.publish("t/x", qos, size=size)
        world.run(20.0)
        assert world.model.acknowledged_count == 8
        world.check()


@pytest.mark.parametrize("strategy", HANDING_OVER)
def test_a_large_message_that_a_full_disk_refuses_half_way_comes_whole(strategy: str) -> None:
    """It is published once more under its numbers: `tree` raised an error when the first ones expired."""
    with VirtualWorld(1) as world:
        one, other = (world.machine(name, strategy=strategy) for name in "ab")
        world.link(one, other)
        one.start()
        other.start()
        subscriber, publisher = world.client(other, "sub"), world.client(one, "pub")
        subscriber.subscribe("t/#")
        world.run(20.0)
        publisher.publish("t/x", 2, size=200_000)
        world.run(0.2)
        one.disk.is_full = True
        world.run(5.0)
        assert publisher.sent, "else nothing is tried"
        one.disk.is_full = False
        for _ in range(20):
            publisher.publish("t/y", 1)
            world.run(3.0)
        assert world.model.acknowledged_count == 21
        world.check()


@pytest.mark.parametrize("strategy", HANDING_OVER)
def test_a_subscribers_node_that_dies_at_a_write_lacks_nothing_afterwards(strategy: str) -> None:
    """`chapar` noted durably that it had handed an event over, before the event itself was on the disk."""
    for point in range(8):
        with VirtualWorld(point) as world:
            one, other = (world.machine(name, strategy=strategy) for name in "ab")
            world.link(one, other)
            one.start()
            other.start()
            subscriber, publisher = world.client(other, "sub"), world.client(one, "pub")
            subscriber.subscribe("t/#")
            world.run(15.0)
            other.disk.kill_at = other.disk.points + 2 * point + 1

            def revive(machine: VirtualMachine = other) -> None:
                machine.disk.kill_at = None
                world.call_later(1.0, machine.start)

            other.on_died = revive
            for number in range(6):
                publisher.publish("t/x", 1 + number % 2)
                world.run(0.05)
            world.run(40.0)
            other.on_died = lambda: None
            assert other.boots == 2, "else nothing is tried"
            world.check()


@pytest.mark.parametrize("strategy", HANDING_OVER)
def test_a_large_payload_comes_whole_to_a_node_that_was_killed_within_it(strategy: str) -> None:
    """`chapar` had acknowledged what waited in memory for an earlier chunk."""
    for after in (0.6, 1.0, 1.8):
        with VirtualWorld(3) as world:
            machines = [world.machine(name, strategy=strategy) for name in "abc"]
            for one, other in pairwise(machines):
                world.link(one, other)
            for machine in machines:
                machine.start()
            subscribers = [world.client(machine, f"sub {machine.name}") for machine in machines[::2]]
            for subscriber in subscribers:
                subscriber.subscribe("t/#")
            publisher = world.client(machines[1], "pub")
            world.run(20.0)
            publisher.publish("t/x", 1, size=70_000)
            publisher.publish("t/x", 2, size=200_000)
            world.run(after)
            machines[2].kill()
            world.run(7.0)
            machines[2].start()
            world.run(100.0)
            assert world.model.acknowledged_count == 2
            world.check()


@pytest.mark.parametrize("strategy", HANDING_OVER)
def test_a_cut_that_is_too_short_to_be_noticed_loses_nothing(strategy: str) -> None:
    """The link stands all the time, so nothing is new to anybody when the cut ends."""
    for cut in (0.5, 1.5, 2.5, 4.0, 6.0):
        with VirtualWorld(int(10 * cut)) as world:
            one, other = (world.machine(name, strategy=strategy) for name in "ab")
            world.link(one, other)
            one.start()
            other.start()
            subscriber, publisher = world.client(other, "sub"), world.client(one, "pub")
            subscriber.subscribe("t/#")
            world.run(15.0)
            world.link(one, other, is_up=False)
            for number in range(6):
                publisher.publish("t/x", 1 + number % 2, size=3_000 * (number % 3))
                world.run(cut / 6)
            world.link(one, other)
            world.run(60.0)
            assert world.model.acknowledged_count == 6
            world.check()


@pytest.mark.parametrize("strategy", HANDING_OVER)
def test_who_subscribes_to_what_is_stored_has_the_disk_synced_a_few_times(strategy: str) -> None:
    """Seed 40007: `chapar` noted durably that an event is handed over, one after the other, and a slow disk
    stopped its node for twenty seconds."""
    with VirtualWorld(1) as world:
        machine = world.machine("a", strategy=strategy, has_programs=True)
        machine.start()
        publisher, program = world.client(machine, "pub"), world.program(machine, "program")
        world.run(3.0)
        for _ in range(50):
            publisher.publish("t/x", 1)
        world.run(3.0)
        synced = machine.disk.commits
        program.subscribe("t/#")
        world.run(3.0)
        assert world.model.deliveries == 50 and machine.disk.commits - synced < 10
        world.check()


@pytest.mark.parametrize("after", [0.001, 0.002, 0.005, 0.01])
def test_a_client_that_subscribes_again_has_not_had_what_waits_for_it(after: float) -> None:
    """As many programs do whenever they connect. All that the store had was noted as from before the
    subscription, what still waited for the client too, and a kill lost it."""
    with VirtualWorld(1) as world:
        machine = world.machine("a")
        machine.start()
        subscriber = world.client(machine, "sub", receive_maximum=1)
        publisher = world.client(machine, "pub")
        subscriber.subscribe("t/#")
        world.run(3.0)
        subscriber.leave()
        for number in range(10):
            publisher.publish("t/x", 1 + number % 2)
        world.run(3.0)
        assert world.model.acknowledged_count == 10
        subscriber.come()
        subscriber.subscribe("t/#")
        world.run(after)
        machine.kill()
        machine.start()
        world.run(10.0)
        world.check()


def test_what_waits_for_room_outlives_the_session_of_its_publisher() -> None:
    """Two messages are written down, the node dies, and has room for one. The client hears that both are
    there, and ends its session: a second kill lost what still waited for room."""
    with VirtualWorld(1) as world:
        machine = world.machine("a", events_max=3)
        disk = machine.disk
        machine.start()
        subscriber, publisher = world.client(machine, "sub"), world.client(machine, "pub")
        subscriber.subscribe("t/#")
        world.run(3.0)
        subscriber.leave()
        for _ in range(2):
            publisher.publish("t/x", 2)
            world.run(1.0)

        def on_point(what: str) -> None:
            if what.startswith("INSERT INTO queued"):
                disk.kill_at = disk.points + 3  # when the commit of both records is done

        disk.on_point = on_point
        for _ in range(2):
            publisher.publish("t/x", 2)
        world.run(1.0)
        disk.kill_at, disk.on_point = None, lambda what: None
        assert not machine.is_up, "else nothing is tried"
        machine.start()
        world.run(5.0)
        assert machine.listener is not None and len(machine.listener.incoming.unpublished) == 1
        assert world.model.acknowledged_count == 4 and publisher.is_idle
        publisher.lasting = False
        publisher.drop()
        world.run(3.0)
        machine.kill()
        machine.start()
        subscriber.come()
        world.run(20.0)
        world.check()


def test_chapar_refuses_what_it_would_not_keep() -> None:
    with VirtualWorld(1) as world:
        machine = world.machine("a", strategy="chapar")
        machine.start()
        client = world.client(machine, "pub")
        world.run(3.0)
        client.publish("t/x", 1, size=20_000)  # a larger one, of 60,001 octets and more, travels in chunks
        client.publish("t/x", 1, size=70_000)
        world.run(3.0)
        assert client.refused > 0 and world.model.acknowledged_count == 1
