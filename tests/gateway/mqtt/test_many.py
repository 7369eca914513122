"""Thousands of subscriptions and many clients at once: the others have their turn. At length:
`benchmarks/clients.py`."""

import asyncio

from tests.gateway.mqtt.harness import Served, in_loop, serving, until

from roamcast.gateway.mqtt.packets.values import (
    V5,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    UnsubAck,
    Unsubscribe,
)

MANY = 3_000


def asking(first: int, count: int) -> Subscribe:
    return Subscribe(5, tuple(SubscriptionRequest(f"site/{n}/value", 1) for n in range(first, first + count)))


async def echoes_until(server: Served, is_over: asyncio.Event) -> int:
    """How often another client could publish to itself meanwhile."""
    witness = await server.client("witness")
    await witness.subscribe("witness")
    count = 0
    while not is_over.is_set():
        await witness.publish("witness", b"", 0)
        await witness.receive()
        count += 1
    return count


@in_loop
async def test_others_have_their_turn_while_a_packet_with_many_topics_is_handled() -> None:
    async with serving() as server:
        many = await server.client("many", V5)
        is_over = asyncio.Event()
        echoes = asyncio.create_task(echoes_until(server, is_over))
        await until(lambda: server.listener.sessions.find("witness") is not None)
        for first in range(0, MANY, 1_000):
            many.say(asking(first, 1_000))
        many.say(Unsubscribe(6, ("site/0/value", "site/none")))
        for _ in range(MANY // 1_000):
            acknowledged = await many.expect(SubAck)
            assert acknowledged.reasons == (1,) * 1_000
        assert (await many.expect(UnsubAck)).reasons == (0, 0x11)  # in the order of the packets
        is_over.set()
        assert await echoes > 3
        await many.publish("site/2999/value", b"found", 0)
        assert (await many.receive()).payload == b"found"


@in_loop
async def test_a_client_with_many_subscriptions_leaves_without_a_trace() -> None:
    async with serving() as server:
        interests = server.listener.exchange.interests
        many = await server.client("many", V5)
        many.say(asking(0, 1_000))
        await many.expect(SubAck)
        assert len(interests) == 1_000
        many.say(asking(1_000, 1_000))
        await until(lambda: len(interests) > 1_000)
        many.drop()  # in the middle of the second packet, or just behind it
        await until(lambda: server.listener.sessions.find("many") is None)
        again = await server.client("many", V5)  # the name is free at once
        await again.subscribe("site/1/value", qos=0)
        writer = await server.client("writer")
        await writer.publish("site/1/value", b"once", 1)
        assert await again.payloads(1) == [b"once"]
        await until(lambda: len(interests) == 1)
        assert server.node.node.broker.has_subscriptions


@in_loop
async def test_many_clients_come_and_go_at_once() -> None:
    async with serving() as server:
        clients = await asyncio.gather(*(server.client(f"client-{number}") for number in range(100)))
        await asyncio.gather(*(client.subscribe("all", f"own/{n}") for n, client in enumerate(clients)))
        writer = await server.client("writer")
        await writer.publish("all", b"hello", 0)
        assert [(await client.receive()).payload for client in clients] == [b"hello"] * 100
        for client in clients:
            client.drop()
        await until(lambda: not len(server.listener.exchange.interests))
        assert not server.node.node.broker.has_subscriptions
