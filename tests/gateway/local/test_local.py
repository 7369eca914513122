"""Clients of one node: over the socket, in process, blocking; and what is refused."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.applications import Applications
from roamcast.client import Client, ClientError, blocking, connect
from roamcast.errors import InputError, WireError
from roamcast.event import EventId
from roamcast.filter import Filter
from roamcast.gateway.local import LocalServer, LocalSession, client_of
from roamcast.gateway.local.server import LocalOptions
from roamcast.host import Channel, Host
from roamcast.modulator import ModulatorSpec
from roamcast.node import Node, NodeConfig
from roamcast.testing import FakeHost
from roamcast.units import Micros
from roamcast.wire.local import (
    FROM_CLIENT,
    FROM_NODE,
    Delivered,
    Done,
    Hello,
    Missed,
    NodeMessage,
    Publish,
    Subscribe,
    Unframer,
    framed,
)


class StandingNode:
    """A node without a radio, whose disk is written when the test says so."""

    number = 7
    name = "seven"

    def __init__(self, *, durable_at_once: bool = True) -> None:
        hosts = {channel: FakeHost(node=7) for channel in Channel}
        self._host = hosts[Channel.STRATEGY]
        self.applications = Applications(self)
        self.unwritten: list[Callable[[], None]] = []
        self._durable_at_once = durable_at_once

        def host(channel: Channel) -> Host:
            return hosts[channel]

        self.applications.bind(Node(NodeConfig("flooding"), host, self.applications))

    def enter(self) -> None:
        pass

    def now(self) -> Micros:
        return self._host.now()

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self._durable_at_once:
            callback()
        else:
            self.unwritten.append(callback)


@asynccontextmanager
async def served(path: Path, node: StandingNode | None = None) -> AsyncIterator[LocalServer]:
    server = LocalServer(node or StandingNode(), LocalOptions(socket=str(path)))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def talk(one: Client, other: Client) -> None:
    async with other.subscribe(topic="alarm/#", sql="level > 3") as alarms:
        await one.publish(topic="alarm/fire", attributes={"level": 2})
        sent = await one.publish(topic="alarm/fire", attributes={"level": 5}, payload="smoke")
        message = await alarms.next(5)
    assert message.event.id == sent
    assert (message.event.attributes, message.event.payload, message.hops) == ({"level": 5}, b"smoke", 0)


def test_two_clients_talk_over_the_socket(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        async with served(path), connect(path) as one, connect(path, name="other") as other:
            assert (one.node, other.node_name) == (7, "seven")
            await talk(one, other)

    run(test())


def test_a_modulator_that_nobody_would_run_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            with pytest.raises(ClientError, match="modulator: is 'projection', but this node's"):
                await client.open_subscription(Filter.everything(), modulator=ModulatorSpec.of("projection"))

    run(test())


def test_a_client_in_process_and_one_on_the_socket_talk(tmp_path: Path) -> None:
    async def test() -> None:
        node = StandingNode()
        path = tmp_path / "s"
        async with served(path, node), connect(path) as one, await client_of(node) as other:
            await talk(one, other)
            await talk(other, one)

    run(test())


def test_the_blocking_client_does_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"):
            await asyncio.to_thread(use_blocking, tmp_path / "s")

    def use_blocking(path: Path) -> None:
        with blocking.connect(path, addressed=True) as client, client.subscribe(topic="a") as events:
            sent = client.publish(topic="a")
            assert events.next(5).event.id == sent
            addressed = client.publish(to=(7,))
            assert client.addressed.next(5).event.id == addressed
            with pytest.raises(TimeoutError):
                events.next(0.01)

    run(test())


def test_a_memorized_event_is_acknowledged_only_when_it_is_on_disk(tmp_path: Path) -> None:
    async def test() -> None:
        node = StandingNode(durable_at_once=False)
        async with served(tmp_path / "s", node), connect(tmp_path / "s") as client:
            kept = asyncio.ensure_future(client.publish(topic="a", lifetime=60.0))
            await asyncio.sleep(0)  # let it be sent
            await client.publish(topic="b")  # by now the node has handled the first one too
            assert len(node.unwritten) == 1 and not kept.done()
            node.unwritten[0]()
            assert await kept == EventId(7, 0)

    run(test())


def test_a_late_client_gets_what_is_memorized_and_an_ended_subscription_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as one:
            sent = await one.publish(topic="a", lifetime=60.0)
            async with connect(tmp_path / "s") as late, late.subscribe(topic="a") as events:
                assert (await events.next(5)).event.id == sent
                await events.close()
                await one.publish(topic="a")
                assert [message async for message in events] == []

    run(test())


def test_a_refused_request_says_why_and_the_client_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            with pytest.raises(ClientError, match="wildcards"):
                await client.publish(topic="a/#")
            with pytest.raises(ClientError, match="finite"):
                await client.publish(attributes={"a": float("nan")})
            with pytest.raises(InputError, match="more than 0 seconds"):
                await client.publish(lifetime=0.0)
            with pytest.raises(InputError, match="say what is wanted"):
                async with client.subscribe():
                    pass
            await client.publish(topic="a")

    run(test())


def test_a_node_that_goes_ends_what_its_clients_wait_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s") as server, connect(tmp_path / "s") as client:
            subscription = await client.open_subscription(Filter.everything())
            await server.stop()
            with pytest.raises(ClientError, match="node"):
                await subscription.next(5)
            with pytest.raises(ClientError, match="node"):
                await client.publish(topic="a")
        with pytest.raises(ClientError, match="no node answers"):
            async with connect(tmp_path / "s"):
                pass

    run(test())


def test_a_client_that_reconnects_gets_each_event_once_through_restarts_of_its_node(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        first = StandingNode()
        async with served(path, first) as server, connect(path, reconnect=True) as client:
            everything = await client.open_subscription(Filter.everything())
            had = await client.publish(topic="a", lifetime=60.0)
            assert (await everything.next(5)).event.id == had
            await server.stop()
            with pytest.raises(ClientError):
                await client.publish(topic="b")
            async with served(path, first):  # it still keeps the event, and does not know who had it
                again = await published_when_back(client)
                assert (await everything.next(5)).event.id == again
        with pytest.raises(ClientError, match="closed"):
            await everything.next(5)

    async def published_when_back(client: Client) -> EventId:
        while True:
            try:
                return await client.publish(topic="c")
            except ClientError:
                await asyncio.sleep(0.01)

    run(test())


def test_two_subscriptions_of_one_client_each_get_what_is_memorized(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            kept = await client.publish(topic="a", lifetime=60.0)
            for _ in range(2):
                subscription = await client.open_subscription(Filter.topic("a"))
                assert (await subscription.next(5)).event.id == kept

    run(test())


def test_a_client_that_does_not_read_loses_events_and_is_told_how_many(tmp_path: Path) -> None:
    async def test() -> None:
        node = StandingNode()
        async with served(tmp_path / "s", node), connect(tmp_path / "s") as client:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"), limit=1000)
            writer.write(framed(FROM_CLIENT.encode(Hello("slow"))))
            writer.write(framed(FROM_CLIENT.encode(Subscribe(1, 1, Filter.topic("big").encode()))))
            unframer = Unframer(FROM_NODE)
            messages: list[NodeMessage] = []
            while Done(1) not in messages:
                messages += unframer.feed(await reader.read(1000))
            for _ in range(200):  # 12 MB; the socket, its buffer and the waiting room take less
                await client.publish(topic="big", payload=bytes(60_000))
            while not isinstance(messages[-1], Missed):
                messages += unframer.feed(await reader.read(1 << 20))
            delivered = sum(isinstance(message, Delivered) for message in messages)
            missed = sum(message.events for message in messages if isinstance(message, Missed))
            assert missed > 0 and delivered + missed == 200
            writer.close()

    run(test())


def test_two_nodes_cannot_have_one_socket_and_a_left_over_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def test() -> None:
        async with served(path):
            with pytest.raises(InputError, match="another node is listening"):
                await LocalServer(StandingNode(), LocalOptions(socket=str(path))).start()
        left_over = socket.socket(socket.AF_UNIX)
        left_over.bind(str(path))
        left_over.close()
        assert path.exists()
        async with served(path):
            pass
        path.write_text("precious")
        with pytest.raises(InputError, match="not a socket"):
            await LocalServer(StandingNode(), LocalOptions(socket=str(path))).start()
        assert path.read_text() == "precious"
        with pytest.raises(InputError, match="folder does not exist"):
            await LocalServer(StandingNode(), LocalOptions(socket=str(tmp_path / "none" / "s"))).start()

    run(test())


@pytest.mark.parametrize(
    "octets",
    [
        struct.pack("!I", 1 << 30),
        framed(b"\x01\xc1"),
        framed(b"\x63" + FROM_CLIENT.encode(Hello("x"))[1:]),
        framed(FROM_CLIENT.encode(Publish(1, {}))),
        framed(FROM_CLIENT.encode(Hello("x"))) * 2,
    ],
    ids=["too long", "no message", "another version", "no hello", "two hellos"],
)
def test_a_client_that_talks_nonsense_is_cut_off_and_the_others_go_on(tmp_path: Path, octets: bytes) -> None:
    async def test() -> None:
        async with served(tmp_path / "s") as server, connect(tmp_path / "s") as client:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(octets)
            await reader.read()  # to its end
            writer.close()
            assert server.refused == 1
            await client.publish(topic="a")

    run(test())


def test_more_clients_than_allowed_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        server = LocalServer(StandingNode(), LocalOptions(socket=str(tmp_path / "s"), clients_max=1))
        await server.start()
        async with connect(tmp_path / "s") as client:
            with pytest.raises(ClientError):
                async with connect(tmp_path / "s"):
                    pass
            await client.publish(topic="a")
        await server.stop()

    run(test())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 50))
def test_messages_survive_any_cutting_of_the_stream(sizes: list[int], step: int) -> None:
    sent = [Publish(number, {"n": number}, bytes(size)) for number, size in enumerate(sizes)]
    stream = b"".join(framed(FROM_CLIENT.encode(message)) for message in sent)
    unframer = Unframer(FROM_CLIENT)
    got = [m for at in range(0, len(stream), step) for m in unframer.feed(stream[at : at + step])]
    assert got == sent


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_any_octets_are_messages_or_a_wire_error(data: bytes) -> None:
    answers: list[NodeMessage] = []
    session = LocalSession(StandingNode(), answers.append)
    session.on_message(Hello(""))
    unframer = Unframer(FROM_CLIENT)
    try:
        for message in unframer.feed(framed(b"\x01" + data)):
            session.on_message(message)
    except WireError:
        pass
