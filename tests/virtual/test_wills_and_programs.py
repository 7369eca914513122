"""Wills, programs on the local socket and receipts: single cases. The schedules have them too."""

from itertools import pairwise
from typing import Any

import pytest
from tests.virtual.clients import V5, WillPlan
from tests.virtual.nodes import VirtualMachine, VirtualWorld
from tests.virtual.schedules import DRAWN

from roamcast.gateway.mqtt.packets.values import ReasonCode
from roamcast.strategy import STRATEGIES

HANDING_OVER = STRATEGIES.names_with(lambda declared: declared.hands_over)


def two(world: VirtualWorld, **settings: Any) -> tuple[VirtualMachine, VirtualMachine]:
    one, other = (world.machine(name, has_programs=True, **settings) for name in "ab")
    world.link(one, other)
    one.start()
    other.start()
    return one, other


def came(world: VirtualWorld, whose: str) -> list[int]:
    """How often `sub` has had each will of this client."""
    wills = [message for message in world.model.messages if message.client == whose]
    return [world.model.times("sub", will) for will in wills]


@pytest.mark.parametrize("qos", [1, 2])
def test_the_will_of_a_client_that_said_nothing_else_survives_a_kill(qos: int) -> None:
    """The session was written before its will was known, and not again until something changed."""
    with VirtualWorld(1) as world:
        one, other = two(world)
        world.client(other, "sub").subscribe("t/#")
        world.run(5.0)
        world.client(one, "silent", will=WillPlan("t/x", qos))
        world.run(5.0)
        one.kill()
        world.run(1.0)
        one.start()
        world.run(20.0)
        world.check()
        assert came(world, "silent") == [1, 0]


def test_a_client_that_is_back_after_a_crash_within_the_delay_leaves_no_will() -> None:
    with VirtualWorld(1) as world:
        one, other = two(world)
        world.client(other, "sub").subscribe("t/#")
        client = world.client(one, "late", will=WillPlan("t/x", 1, delay=10))
        world.run(5.0)
        one.kill()
        world.run(1.0)
        one.start()
        world.run(20.0)
        assert came(world, "late") == [0, 0]
        client.leave(politely=False)
        world.run(5.0)
        one.kill()
        world.run(1.0)
        one.start()
        world.run(2.0)
        assert came(world, "late") == [0, 0]
        world.run(20.0)
        assert came(world, "late") == [0, 1], "and one that stays away leaves it, when it was due"
        world.check()


def test_a_client_that_was_back_within_the_delay_and_says_goodbye_then_leaves_no_will() -> None:
    """Seed 43042: the model took it for one that had stayed away, and missed its will (section 3.1.3.2.2)."""
    with VirtualWorld(1) as world:
        one, other = two(world)
        world.client(other, "sub").subscribe("t/#")
        client = world.client(one, "hasty", will=WillPlan("t/x", 2, delay=3))
        world.run(5.0)
        client.drop()
        world.run(2.0)
        client.leave()
        world.run(10.0)
        world.check()
        assert came(world, "hasty") == [0, 0]


def test_the_model_misses_a_will_that_a_restart_has_forgotten() -> None:
    with VirtualWorld(1) as world:
        one, other = two(world)
        world.client(other, "sub").subscribe("t/#")
        client = world.client(one, "willing", will=WillPlan("t/x", 1, delay=10))
        world.run(5.0)
        client.leave(politely=False)
        world.run(1.0)
        one.kill()
        world.run(1.0)
        one.start()
        world.run(1.0)
        assert one.listener is not None
        session = one.listener.sessions.find("willing")
        assert session is not None
        session.will = None
        world.run(30.0)
        with pytest.raises(AssertionError, match="sub has not got willing's will"):
            world.check()


@pytest.mark.parametrize("ends", ["kill", "stop", "not"])
def test_a_will_for_which_a_full_store_has_no_room_waits_on_the_disk(ends: str) -> None:
    with VirtualWorld(1) as world:
        one, other = two(world, events_max=5)
        world.client(other, "sub").subscribe("t/#")
        publisher = world.client(one, "pub")
        client = world.client(one, "willing", will=WillPlan("t/w", 2))
        world.run(5.0)
        world.link(one, other, is_up=False)
        for _ in range(8):
            publisher.publish("t/x", 1)
        world.run(5.0)
        assert one.node is not None and len(one.node.node.broker.store) == 5, "else nothing is tried"
        client.leave(politely=False)
        world.run(5.0)
        if ends != "not":
            (one.kill if ends == "kill" else one.stop)()
            world.run(1.0)
            one.start()
        world.run(5.0)
        world.link(one, other)
        world.run(60.0)
        world.check()
        assert came(world, "willing") == [1]


def test_a_will_that_a_full_disk_refuses_comes_when_there_is_room() -> None:
    with VirtualWorld(1) as world:
        one, other = two(world)
        world.client(other, "sub").subscribe("t/#")
        client = world.client(one, "willing", will=WillPlan("t/w", 1))
        world.run(5.0)
        one.disk.is_full = True
        client.leave(politely=False)
        world.run(10.0)
        assert came(world, "willing") == [0]
        one.disk.is_full = False
        world.run(20.0)
        world.check()
        assert came(world, "willing") == [1]


@pytest.mark.parametrize(("strategy", "size"), [("epidemic", 61_000), ("chapar", 20_000)])
def test_a_will_that_could_not_be_kept_is_refused_at_once(strategy: str, size: int) -> None:
    with VirtualWorld(1) as world:
        machine = world.machine("a", strategy=strategy)
        machine.start()
        refused: list[int] = []
        world.model.refused_connection = lambda name, reason: refused.append(reason)  # type: ignore[method-assign]
        world.run(2.0)
        client = world.client(machine, "pub", version=V5, will=WillPlan("t/x", 1, size=size))
        world.run(1.0)
        client.leave()
        assert set(refused) == {ReasonCode.PACKET_TOO_LARGE}


def test_a_program_hears_that_its_publication_is_not_on_the_disk() -> None:
    """It was never answered: the disk refused the commit, not the write."""
    with VirtualWorld(1) as world:
        machine = world.machine("a", has_programs=True)
        machine.start()
        program = world.program(machine, "program")
        world.run(3.0)
        machine.disk.free_bytes = lambda path: 1 << 40  # type: ignore[method-assign]
        machine.disk.is_full = True
        program.publish("t/x", lifetime=60.0)
        world.run(0.3)
        assert program.refused == 1
        machine.disk.is_full = False
        world.run(5.0)
        assert program.is_idle and world.model.acknowledged_count == 1, "the same again, as another message"


@pytest.mark.parametrize("strategy", DRAWN)
def test_receipts_come_from_every_node_with_a_subscriber_and_from_no_other(strategy: str) -> None:
    with VirtualWorld(1) as world:
        machines = [world.machine(name, strategy=strategy, has_programs=True) for name in "abcd"]
        for one, other in pairwise(machines):
            world.link(one, other)
        for machine in machines:
            machine.start()
        world.program(machines[1], "near").subscribe("t/#")
        world.client(machines[3], "sub").subscribe("t/#")
        asking = world.program(machines[0], "asking")
        world.run(40.0)
        for lifetime in (0.0, 60.0) if strategy in HANDING_OVER else (0.0,):
            asking.publish("t/x", lifetime=lifetime, receipts=3)
            world.run(30.0)
            assert sorted(asking.asked[-1].nodes) == [machines[1].number, machines[3].number]
            assert asking.asked[-1].is_over
        world.check()


def test_a_will_that_is_written_down_waits_for_room_on_a_disk_that_is_full_at_the_restart() -> None:
    """The store has room for it before the disk has. Nobody repeats a will."""
    with VirtualWorld(1) as world:
        machine = world.machine("a", events_max=5)
        machine.start()
        subscriber, publisher = world.client(machine, "sub"), world.client(machine, "pub")
        gone = world.client(machine, "gone", will=WillPlan("t/will", 1))
        subscriber.subscribe("t/#")
        world.run(5.0)
        subscriber.leave()
        world.run(1.0)
        for _ in range(5):
            publisher.publish("t/x", 1)
        world.run(3.0)
        gone.leave(politely=False)
        world.run(3.0)
        assert machine.listener is not None and machine.listener.incoming.unpublished, "the store is full"
        machine.kill()
        machine.disk.is_full = True
        machine.start()
        world.run(2.0)
        subscriber.come()
        world.run(10.0)
        assert world.model.deliveries == 5, "the will waits"
        machine.disk.is_full = False
        world.run(20.0)
        world.check()
