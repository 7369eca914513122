"""A scripted conversation of about 200 packets, with a node that may die at a numbered write of its disk."""

from typing import NamedTuple

from tests.virtual.nodes import VirtualWorld


class Conversation(NamedTuple):
    digest: int
    points: int  # where the node can die
    deliveries: int


def converse(*, kill_at: int | None = None, off: float = 1.0, events_max: int = 10_000) -> Conversation:
    """Messages of every QoS from one client to another on one node, both with lasting sessions; the
    subscriber is away for a while. `kill_at`: the write at which the node dies; it is back after `off`
    seconds."""
    with VirtualWorld(1) as world:
        machine = world.machine("a", events_max=events_max)
        machine.disk.kill_at = kill_at

        def revive() -> None:
            machine.disk.kill_at = None
            world.call_later(off, machine.start)

        machine.on_died = revive
        machine.start()
        subscriber, publisher = world.client(machine, "sub"), world.client(machine, "pub")
        subscriber.subscribe("t/#")
        world.run(3.0)
        for number in range(40):
            if number == 15:
                subscriber.leave()
            if number == 30:
                subscriber.come()
            publisher.publish("t/x", number % 3, size=70_000 if number == 20 else 0)
            world.run(0.002)
        world.run(off + 20.0)
        machine.on_died = lambda: None
        world.check()
        return Conversation(world.digest, machine.disk.points, world.model.deliveries)
