"""Disks that are full, read-only or damaged when a node starts, and clocks that are wrong then."""

from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.virtual.nodes import STATE, VirtualMachine, VirtualWorld

from roamcast.event import LIFETIME_MAX, Event, EventClass, Publication
from roamcast.gateway.mqtt.packets.values import V3_1_1, V5
from roamcast.runtime.live.settings import TraceSettings

DAY_NS = 86_400 * 10**9


def with_events(world: VirtualWorld, count: int = 20, **settings: object) -> VirtualMachine:
    """A node whose absent client waits for some acknowledged messages."""
    machine = world.machine("a", **settings)
    machine.start()
    subscriber, publisher = world.client(machine, "sub"), world.client(machine, "pub")
    subscriber.subscribe("t/#")
    world.run(3.0)
    subscriber.leave()
    world.run(1.0)
    for _ in range(count):
        publisher.publish("t/x", 1)
    world.run(3.0)
    assert world.model.acknowledged_count == count
    return machine


def test_a_full_disk_does_not_keep_a_node_down_and_nothing_kept_is_lost() -> None:
    with VirtualWorld(1) as world:
        machine = with_events(world)
        machine.kill()
        machine.disk.is_full = True
        machine.start()
        world.run(5.0)
        assert machine.node is not None and machine.node.storage is not None
        assert any("refused" in one.text for one in machine.node.status().problems)
        listener = world.client(machine, "listener", lasting=False)
        listener.subscribe("live/#", 0)
        world.run(1.0)
        before = world.model.deliveries
        world.clients[1].publish("live/x", 0)
        world.run(1.0)
        assert world.model.deliveries == before + 1, "real-time messages are carried"
        machine.disk.is_full = False
        world.clients[0].come()
        world.run(10.0)
        world.check()


def test_what_a_full_disk_could_not_keep_waits_for_an_absent_client_all_the_same() -> None:
    """Seed 6238 of epidemic: such messages waited in a short queue in memory, and the oldest were dropped."""
    with VirtualWorld(1) as world:
        one, other = world.machine("a"), world.machine("b", mqtt={"queue_messages_max": 1})
        world.link(one, other)
        one.start()
        other.start()
        publisher, subscriber = world.client(one, "pub"), world.client(other, "sub")
        subscriber.subscribe("t/#")
        world.run(5.0)
        subscriber.leave()
        world.run(1.0)
        other.disk.is_full = True
        for number in range(9):
            publisher.publish("t/x", 1 + number % 2)
        world.run(5.0)
        assert world.model.acknowledged_count == 9
        assert other.node is not None and len(other.node.node.broker.store) == 0, "else nothing is tried"
        subscriber.come()
        world.run(5.0)
        other.disk.is_full = False
        world.run(60.0)
        world.check()


@pytest.mark.parametrize(("version", "lasting"), [(V5, True), (V5, False), (V3_1_1, True)])
def test_what_a_disk_refuses_for_a_moment_is_not_refused_and_there_all_the_same(
    version: int, lasting: bool
) -> None:
    """Of QoS 2: a large one, and one of a client without a lasting session, were refused though they were in
    the mesh, if the disk took what came next. So the client sent them again, and they came twice."""
    points = says_all_to_a_disk_that_refuses(None, version, lasting)
    for point in range(*points):
        says_all_to_a_disk_that_refuses(point, version, lasting)


def says_all_to_a_disk_that_refuses(full_at: int | None, version: int, lasting: bool) -> tuple[int, int]:
    """The writes while two clients talk; at one of them the disk is full, until other processes' turn."""
    with VirtualWorld(1) as world:
        machine = world.machine("a")
        disk = machine.disk

        def on_point(_: str) -> None:
            if disk.points - 1 == full_at:
                disk.is_full = True
                world.call_later(0.0, setattr, disk, "is_full", False)

        disk.on_point = on_point
        machine.start()
        world.run(2.0)
        subscriber = world.client(machine, "sub")
        publisher = world.client(machine, "pub", version=version, lasting=lasting)
        subscriber.subscribe("t/#")
        world.run(3.0)
        before = disk.points
        for size in (0, 70_000, 0):
            publisher.publish("t/x", 2, size=size)
            world.run(0.05)
        world.run(10.0)
        world.check()
        assert world.model.acknowledged_count == 3
        return before, disk.points


def test_a_disk_that_cannot_be_read_or_written_does_not_keep_a_node_down() -> None:
    class ReadOnly:
        def __call__(self, path: Path) -> None:
            raise OSError(30, "Read-only file system")

    with VirtualWorld(1) as world:
        trace = TraceSettings(folder="trace")
        machine = world.machine("a", trace=trace)
        machine.disk.connect = ReadOnly()  # type: ignore[method-assign, assignment]
        machine.disk.is_full = True
        machine.start()
        world.run(5.0)
        assert machine.node is not None and machine.node.storage is None
        assert any("kept over a restart" in one.text for one in machine.node.status().problems)
        world.check()


def numbers_of(world: VirtualWorld, machine: VirtualMachine) -> int:
    """The number of an event that this node makes now."""
    assert machine.node is not None
    made = machine.node.node.broker.create(Publication({}, topic="t/y", lifetime=10**9))
    world.run(1.0)
    return made.sequence


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_database_is_said_and_no_number_comes_twice(seed: int) -> None:
    with VirtualWorld(1) as world:
        machine = with_events(world)
        last = numbers_of(world, machine)
        machine.kill()
        world.model.forgiven |= {"sub", "pub"}
        kind = machine.disk.damage(Random(seed), str(STATE))
        machine.start()
        world.run(5.0)
        assert machine.node is not None and machine.node.storage is not None
        lost = len(machine.node.node.broker.store) < 21
        problems = [one.text for one in machine.node.status().problems]
        is_said = any("lost" in text or "read" in text for text in problems)
        # Whole pages of one commit earlier can be a whole database: what is gone then, nobody can tell.
        assert is_said or not lost or kind == "torn"
        assert numbers_of(world, machine) > last
        world.check()


def test_a_clock_that_is_ahead_at_one_boot_deletes_nothing_for_good() -> None:
    with VirtualWorld(1) as world:
        machine = with_events(world)
        machine.kill()
        machine.wall_ahead_ns = 2 * DAY_NS
        machine.start()
        world.run(5.0)
        assert machine.node is not None and len(machine.node.node.broker.store) == 0
        machine.kill()
        machine.wall_ahead_ns = 0
        machine.start()
        world.run(5.0)
        assert machine.node is not None and len(machine.node.node.broker.store) == 20


def test_the_longest_lifetime_is_kept_and_a_longer_one_is_no_event() -> None:
    with VirtualWorld(1) as world:
        machine = world.machine("a")
        machine.start()
        world.run(2.0)
        assert machine.node is not None
        session = machine.node.applications.open(lambda delivery: None)
        session.publish(Publication({}, topic="a", lifetime=LIFETIME_MAX))
        world.run(1.0)
        machine.kill()
        machine.start()
        world.run(2.0)
        assert machine.node is not None and len(machine.node.node.broker.store) == 1
        world.check()
    with pytest.raises(ValueError, match="lifetime"):
        Publication({}, topic="a", lifetime=LIFETIME_MAX + 1)
    too_long = Event(1, 1, event_class=EventClass.MEMORIZED, lifetime=LIFETIME_MAX + 1)
    with pytest.raises(msgspec.ValidationError, match=f"<= {LIFETIME_MAX}"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(too_long), type=Event)
