"""Clients of one node: over the socket, in process, blocking; and what is refused."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.mqtt.stand_alone import StandingNode

from roamcast.client import Client, ClientError, blocking, connect
from roamcast.errors import EventError, InputError, WireError
from roamcast.event import EventId, Publication
from roamcast.filter import Filter
from roamcast.gateway.local import LocalServer, LocalSession, client_of, server
from roamcast.gateway.options import LocalOptions
from roamcast.modulator import ModulatorSpec
from roamcast.wire.local import (
    FROM_CLIENT,
    FROM_NODE,
    VERSION,
    ClientHello,
    ClientMessage,
    DeliveryMessage,
    Done,
    Failed,
    LargeEventMessage,
    MissedEvents,
    NodeMessage,
    PublishRequest,
    SubscribeRequest,
    Unframer,
    UnreadableMessageError,
    UnsubscribeRequest,
    framed,
)


@asynccontextmanager
async def served(path: Path, node: StandingNode | None = None) -> AsyncIterator[LocalServer]:
    server = LocalServer(node or StandingNode(), LocalOptions(socket=str(path)))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class RawSubscriber:
    """A client that reads only when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unframer = Unframer(FROM_NODE)
        self._messages: list[NodeMessage] = []

    @classmethod
    async def open(cls, path: Path, topic: str) -> "RawSubscriber":
        opened = cls(*await asyncio.open_unix_connection(str(path), limit=1_000))
        opened._writer.write(framed(FROM_CLIENT.encode(ClientHello("raw"))))
        opened._writer.write(framed(FROM_CLIENT.encode(SubscribeRequest(1, 1, Filter.topic(topic).encode()))))
        while Done(1) not in opened._messages:
            await opened.read(1_000)
        return opened

    async def read(self, most: int) -> None:
        self._messages += self._unframer.feed(await self._reader.read(most))

    @property
    def delivered(self) -> int:
        return sum(isinstance(message, DeliveryMessage) for message in self._messages)

    @property
    def large(self) -> int:
        return sum(isinstance(message, LargeEventMessage) for message in self._messages)

    @property
    def missed(self) -> int:
        return sum(message.events for message in self._messages if isinstance(message, MissedEvents))

    def close(self) -> None:
        self._writer.close()


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
            assert (one.node, other.node_name) == (7, "node-7")
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


def test_a_cleared_retained_topic_is_no_event_for_native_subscribers(tmp_path: Path) -> None:
    """MQTT's retained messages are marked by two attributes (`broker/retained.py`)."""

    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            for stamp, payload in ((1, b"open"), (2, b"")):
                attributes = {"mqtt": 4, "mqtt.at": stamp}
                await client.publish(topic="door", attributes=attributes, payload=payload, lifetime=60.0)
            async with client.subscribe(topic="#") as late:
                attributes = {"mqtt": 4, "mqtt.at": 3}
                await client.publish(topic="door", attributes=attributes, lifetime=60.0)
                await client.publish(topic="door", payload=b"", lifetime=60.0)  # empty, but an event
                await client.publish(topic="last")
                got = [(await late.next(5)).event for _ in range(2)]
                assert [(event.topic, event.attributes) for event in got] == [("door", {}), ("last", {})]

    run(test())


def test_a_refused_request_says_why_and_the_client_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            with pytest.raises(ClientError, match="content key"):
                await client.publish(topic="a", sealed=True)
            with pytest.raises(InputError, match="say what is wanted"):
                async with client.subscribe():
                    pass
            await client.publish(topic="a")

    run(test())


@pytest.mark.parametrize(
    ("keywords", "line"),
    [
        ({"topic": "a/#"}, "wildcards"),
        ({"attributes": {"a": float("nan")}}, "finite"),
        ({"attributes": {"a": [1, 2]}}, "is a list; allowed: bool, int, float, str, None"),
        ({"attributes": {5: 1}}, "is a int; allowed: a text"),
        ({"payload": bytes(16 * 1024 * 1024 + 1)}, "16777217 octets; at most 16777216"),
        ({"payload": bytes(70_000), "attributes": {"a": "x" * 3_000}}, "beside a payload of more than 60000"),
        ({"payload": bytes(59_000), "attributes": {"a": "x" * 4_000}}, "in all"),
        ({"payload": 5}, "is a int; allowed: bytes"),
        ({"to": [-1]}, "destinations"),
        ({"lifetime": 0.0}, "more than 0 seconds"),
    ],
)
def test_what_can_be_no_event_is_refused_before_anything_is_sent(
    tmp_path: Path, keywords: dict[str, Any], line: str
) -> None:
    async def test() -> None:
        async with served(tmp_path / "s") as server, connect(tmp_path / "s") as client:
            for publish in (client.publish, client.publish_soon):
                with pytest.raises(EventError, match=line) as caught:
                    await publish(**keywords)
                assert isinstance(caught.value, ClientError)
            await client.publish(topic="a", payload=bytearray(b"is bytes too"))
            assert server.refused == 0

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


def test_a_client_that_does_not_read_loses_events_and_is_told_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READER_TIMEOUT", 0.05)

    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            slow = await RawSubscriber.open(tmp_path / "s", "big")
            for _ in range(200):  # 12 MB; the socket, its buffer and the waiting room take less
                await client.publish(topic="big", payload=bytes(60_000))
            while not slow.missed:
                await slow.read(1 << 20)
            assert slow.delivered + slow.missed == 200
            slow.close()

    run(test())


def test_a_client_that_reads_slowly_slows_its_publisher_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READER_TIMEOUT", 60.0)  # a busy machine is not to decide this

    async def test() -> None:
        async with served(tmp_path / "s") as server, connect(tmp_path / "s") as client:
            slow = await RawSubscriber.open(tmp_path / "s", "big")
            other = await RawSubscriber.open(tmp_path / "s", "other")
            publishing = asyncio.ensure_future(_publish(client, 200, "big", bytes(60_000)))  # 12 MB
            while not any(one.is_waited_for for one in server.clients):
                await asyncio.sleep(0)
            assert not publishing.done()  # the last answers are not even written
            async with connect(tmp_path / "s") as second:
                await second.publish(topic="other")  # nobody else is held up
            while not other.delivered:
                await other.read(1000)
            while slow.delivered < 200:
                await slow.read(4_000)
            await publishing
            assert not slow.missed
            slow.close()
            other.close()

    run(test())


async def _publish(client: Client, count: int, topic: str, payload: bytes = b"") -> None:
    for _ in range(count):
        await client.publish_soon(topic=topic, payload=payload)


def test_a_burst_of_one_client_does_not_hold_up_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            served(tmp_path / "s"),
            connect(tmp_path / "s") as first,
            connect(tmp_path / "s") as second,
            connect(tmp_path / "s") as reader,
            reader.subscribe(topic="#") as events,
        ):
            await _publish(first, 1_000, "burst")  # all in the kernel before the node reads any
            await _publish(second, 1, "single")
            topics = [(await events.next(10)).event.topic for _ in range(1_001)]
            assert topics.index("single") < 900

    run(test())


def test_what_a_client_says_before_it_leaves_still_counts(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            served(tmp_path / "s"),
            connect(tmp_path / "s") as reader,
            reader.subscribe(topic="#") as events,
        ):
            async with connect(tmp_path / "s") as brief:
                await brief.open_subscription(Filter.topic("last/#"))
                await _publish(brief, 1_000, "last/words")  # what comes back finds it gone
            numbers = [(await events.next(10)).event.sequence for _ in range(1_000)]
            assert numbers == sorted(numbers)

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
        framed(b"\x63" + FROM_CLIENT.encode(ClientHello("x"))[1:]),
        framed(FROM_CLIENT.encode(PublishRequest(1, Publication()))),
        framed(FROM_CLIENT.encode(ClientHello("x"))) * 2,
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


def raw_publication(request: int, *, topic: str = "a", attributes: object = None, payload: int = 0) -> bytes:
    """As a client of another make may write it."""
    publication = [attributes or {}, bytes(payload), topic, "", 0, [], False, False]
    return framed(bytes([VERSION]) + msgspec.msgpack.encode([2, request, publication]))


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (raw_publication(7, topic="a/#"), "wildcards"),
        (raw_publication(7, attributes={"a": [1, 2]}), "Expected `bool | int | float | str | null`"),
        (raw_publication(7, payload=60_001), "length <= 60000"),
        (raw_publication(7, payload=65_000), "length <= 60000"),
        (raw_publication(7, payload=70_000), "octets, at most 65507 are allowed"),
        (raw_publication(7, payload=5_000_000), "octets, at most 65507 are allowed"),
    ],
    ids=["wildcard", "list", "60,001 octets", "65,000 octets", "70 kB", "5 MB"],
)
def test_an_impossible_publication_is_answered_and_the_next_one_is_taken(
    tmp_path: Path, octets: bytes, problem: str
) -> None:
    async def test() -> None:
        async with served(tmp_path / "s") as server:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(framed(FROM_CLIENT.encode(ClientHello("raw"))) + octets + raw_publication(300))
            unframer = Unframer(FROM_NODE)
            answers: list[NodeMessage] = []
            while len(answers) < 3:
                answers += unframer.feed(await reader.read(10_000))
            assert isinstance(answers[1], Failed) and answers[1].request == 7, answers
            assert problem in answers[1].problem
            assert isinstance(answers[2], Done) and answers[2].request == 300
            assert server.refused == 1
            writer.close()

    run(test())


@given(st.binary(max_size=40), st.integers(1, 7))
def test_any_octets_are_messages_or_unreadable_or_the_end(data: bytes, step: int) -> None:
    unframer: Unframer[ClientMessage] = Unframer(FROM_CLIENT)
    framed_data = framed(bytes([VERSION]) + data) + framed(FROM_CLIENT.encode(UnsubscribeRequest(1, 1)))
    seen: list[object] = []
    for at in range(0, len(framed_data), step):
        unframer.push(framed_data[at : at + step])
        while True:
            try:
                message = unframer.pop()
            except UnreadableMessageError as error:
                message = UnsubscribeRequest(error.request, 0)
            if message is None:
                break
            seen.append(message)
    assert len(seen) == 2 and seen[1] == UnsubscribeRequest(1, 1)


def test_more_clients_than_allowed_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        server = LocalServer(StandingNode(), LocalOptions(socket=str(tmp_path / "s"), clients_max=1))
        await server.start()
        async with connect(tmp_path / "s") as client:
            for _ in range(20):
                with pytest.raises(ClientError, match=r"has 1 local clients already \(clients.clients_max\)"):
                    async with connect(tmp_path / "s"):
                        pass
            await client.publish(topic="a")
        async with connect(tmp_path / "s", reconnect=True) as client:  # there is room again
            await client.publish(topic="a")
        await server.stop()

    run(test())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 50))
def test_messages_survive_any_cutting_of_the_stream(sizes: list[int], step: int) -> None:
    sent = [
        PublishRequest(number, Publication({"n": number}, bytes(size))) for number, size in enumerate(sizes)
    ]
    stream = b"".join(framed(FROM_CLIENT.encode(message)) for message in sent)
    unframer = Unframer(FROM_CLIENT)
    got = [m for at in range(0, len(stream), step) for m in unframer.feed(stream[at : at + step])]
    assert got == sent


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_any_octets_are_messages_or_a_wire_error(data: bytes) -> None:
    answers: list[NodeMessage] = []
    session = LocalSession(StandingNode(), answers.append)
    session.on_message(ClientHello(""))
    unframer = Unframer(FROM_CLIENT)
    try:
        for message in unframer.feed(framed(b"\x01" + data)):
            session.on_message(message)
    except WireError:
        pass
