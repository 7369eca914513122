"""A publisher on one node, a subscriber on the other, both with lasting sessions; nodes die at random."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.daemon.programs import network_on_loopback
from tests.gateway.mqtt.lasting import LastingClient

EVERY_SECONDS = 0.004  # between two messages
TRIED_SECONDS = 0.2  # between two messages, while it is not known that a node is back
ARRIVED_WITHIN = 180.0  # after the last kill; a busy machine is no failure


class KillingCounts(NamedTuple):
    sent: int
    lost: int
    doubled_exactly_once: int  # QoS 2
    doubled_confirmed: int  # QoS 1, sent once by the publisher and confirmed by the subscriber
    doubled_in_doubt: int  # QoS 1, as it allows: unacknowledged at one of the kills
    refused: int  # for want of room, and sent again
    kills: int


async def kill_at_random(
    folder: Path, seed: int, rounds: int, *, events_max: int = 0, burst: int = 40
) -> KillingCounts:
    """In each round one of the nodes, or both, die at a random moment while messages flow. `events_max`: what
    the store of a node takes, if not as by default; `burst`: messages of one round, about."""
    random = Random(seed)
    # On a busy machine the rounds take longer than messages are kept by default.
    nodes = network_on_loopback(folder, "alice", "bob", mqtt="qos1_lifetime = 86400")
    if events_max:
        for node in nodes:
            text = node.config.read_text()
            node.config.write_text(text.replace("[node]", f"[node]\nevents_max = {events_max}"))
    alice, bob = nodes
    clients: list[LastingClient] = []
    sent = 0
    kills = 0

    def flow() -> None:
        nonlocal sent
        if publisher.unacknowledged < 50:
            qos = 1 + sent % 2
            publisher.publish("site/load", b"%d:%d" % (qos, sent), qos)
            sent += 1

    try:
        for node in nodes:
            node.start()
        subscriber = LastingClient(bob.mqtt_port, "sub", subscribe="site/#")
        publisher = LastingClient(alice.mqtt_port, "pub")
        clients = [subscriber, publisher]
        await subscriber.settled.wait()
        await publisher.settled.wait()
        for _ in range(rounds):
            before = sum(subscriber.arrived.values())
            async with asyncio.timeout(ARRIVED_WITHIN):
                while sum(subscriber.arrived.values()) <= before:  # something flows again
                    flow()
                    await asyncio.sleep(TRIED_SECONDS)
            for _ in range(random.randrange(burst)):
                flow()
                await asyncio.sleep(random.random() * 2 * EVERY_SECONDS)
            victims = random.choice([[alice], [bob], [alice, bob]])
            for node in victims:
                node.kill()
                kills += 1
            if random.random() < 0.3:  # some messages come while it is away
                for _ in range(burst // 4):
                    flow()
                    await asyncio.sleep(EVERY_SECONDS)
            for node in victims:
                node.start()
        wanted = {b"%d:%d" % (1 + number % 2, number) for number in range(sent)}
        try:
            async with asyncio.timeout(ARRIVED_WITHIN):
                while publisher.unacknowledged or not wanted <= subscriber.arrived.keys():
                    await asyncio.sleep(0.05)
                await asyncio.sleep(1.0)  # for what might come twice
        except TimeoutError:
            pass  # the counts say it
        return _counts(wanted, subscriber, publisher, kills)
    finally:
        for client in clients:
            await client.stop()
        for node in nodes:
            node.kill()


def _counts(
    wanted: set[bytes], subscriber: LastingClient, publisher: LastingClient, kills: int
) -> KillingCounts:
    arrived: Counter[bytes] = subscriber.arrived
    twice = [payload for payload, count in arrived.items() if count > 1]
    exactly = [payload for payload in twice if payload.startswith(b"2")]
    confirmed = [
        payload for payload in set(subscriber.again_after_confirmed) if payload not in publisher.repeated
    ]
    return KillingCounts(
        len(wanted),
        len(wanted - arrived.keys()),
        len(exactly),
        len(confirmed),
        len(twice) - len(exactly) - len(confirmed),
        publisher.refused,
        kills,
    )
