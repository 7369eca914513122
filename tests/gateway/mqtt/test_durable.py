"""What a session keeps when the node is killed: what was acknowledged survives, and nothing comes twice."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.mqtt.harness import Client, Served, in_loop, serving, until
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Will,
)
from roamcast.gateway.mqtt.sessions.durable import remaining
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.database import CLOCK_SET, NodeStorage

pytestmark = pytest.mark.realtime

LASTING = Properties(session_expiry=3_600)


class Killed:
    """A node in a process of its own; `SIGKILL` ends it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self.clients: list[Client] = []

    async def opened(self, version: int = V3_1_1) -> Client:
        client = await Client.open(self.port, version)
        self.clients.append(client)
        return client

    async def client(self, client_id: str, version: int = V3_1_1, **fields: Any) -> Client:
        client = await self.opened(version)
        assert (await client.connect(client_id, **fields)).reason == 0
        return client


@asynccontextmanager
async def killed(state: Path, **options: Any) -> AsyncIterator[Killed]:
    """A node that dies in the end without a word."""
    program = str(Path(__file__).with_name("stand_alone.py"))
    arguments = [program, "--port", "0", "--state", str(state), "--options", json.dumps(options)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    node = Killed(process, 0)
    try:
        node.port = int((await process.stdout.readline()).split()[2])
        yield node
    finally:
        process.kill()
        await process.communicate()
        for client in node.clients:
            client.close()


async def back(server: Served | Killed, version: int = V3_1_1, client_id: str = "id") -> Client:
    client = await server.opened(version)
    properties = LASTING if version == V5 else None
    connack = await client.connect(client_id, clean_start=False, properties=properties)
    assert connack.session_present
    return client


@in_loop
async def test_subscriptions_and_what_waited_survive(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    async with killed(state) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a/#?n>1", qos=1)
        await client.disconnect()
        writer = await server.client("writer", V5)
        pairs = Properties(content_type="t", user_properties=[("n", "2"), ("n", "3")])
        for payload in (b"one", b"two"):
            await writer.publish("a/b", payload, 1, properties=pairs)  # acknowledged: it is durable
    async with killed(state) as server:
        client = await back(server, V5)
        found = [await client.receive() for _ in range(2)]
        assert [one.payload for one in found] == [b"one", b"two"]
        assert found[0].properties == pairs
        await client.hears_nothing()
    async with serving(state) as server:
        assert len(server.node.node.broker.subscriptions()) == 1
        client = await back(server, V5)
        await client.hears_nothing()  # both were acknowledged


@in_loop
async def test_an_acknowledged_memorized_event_is_never_lost_and_comes_once(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    async with killed(state, qos1="memorized") as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("state/+", qos=1)
        writer = await server.client("writer")
        await writer.publish("state/a", b"had", 1, retain=True)
        assert (await client.receive()).payload == b"had"
        await client.hears_nothing()
        await writer.publish("state/a", b"sent, not acknowledged", 1, retain=True)
        await client.expect(Publish)
        await writer.publish("state/b", b"other", 1)
        await writer.publish("state/c", b"last", 2, retain=True)
    async with killed(state) as server:
        client = await back(server)
        assert await client.payloads(3) == [b"sent, not acknowledged", b"other", b"last"]
        await client.hears_nothing()
    async with serving(state) as server:
        client = await back(server)
        await client.hears_nothing()
        late = await server.client("late")
        await late.subscribe("state/a")
        assert (await late.receive()).payload == b"sent, not acknowledged"


@in_loop
async def test_a_real_time_message_in_flight_is_written_when_the_connection_breaks(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    async with killed(state) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a", qos=2)
        writer = await server.client("writer")
        await writer.publish("a", b"one", 1)
        await writer.publish("a", b"two", 2)
        first, second = await client.expect(Publish), await client.expect(Publish)
        client.say(Acknowledge(PacketType.PUBREC, second.packet_id))
        await client.answer()
        client.drop()
        for _ in range(3):
            await writer.hears_nothing()  # turns of the loop, in which it has noticed
    async with killed(state) as server:
        client = await back(server)
        release = await client.expect(Acknowledge)
        assert (release.type, release.packet_id) == (PacketType.PUBREL, second.packet_id)
        assert (await client.receive()).payload == first.payload
        await client.hears_nothing()


@in_loop
async def test_what_is_long_in_flight_is_written_while_the_client_is_connected(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    async with serving(state, qos1="realtime") as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a", qos=1)
        writer = await server.client("writer")
        await writer.publish("a", b"one", 1)
        message = await client.expect(Publish)
        session = server.listener.sessions.find("id")
        assert session is not None and server.node.storage is not None
        (outgoing,) = session.unacknowledged()
        assert outgoing.row == 0
        server.listener._notes.settle(session, outgoing.since - 1)
        assert outgoing.row == 0
        server.listener._notes.settle(session, outgoing.since)
        assert outgoing.row > 0
        queue = "SELECT count(*) FROM queued"
        assert server.node.storage.read(queue) == [(1,)]
        await client.acknowledge(message)
        await client.hears_nothing()
        assert server.node.storage.read(queue) == [(0,)]


@in_loop
async def test_sessions_that_are_over_are_forgotten_and_wills_are_published_after_a_crash(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state.db"
    async with killed(state) as server:
        short = await server.client("short", V5, properties=Properties(session_expiry=1))
        await short.subscribe("a")
        await short.disconnect()
        will = Will("will", b"gone", 1, True)
        lasting = await server.client("lasting", V5, properties=LASTING, will=will)
        await lasting.subscribe("b")
        passing = await server.client("passing")
        await passing.subscribe("c")
    async with serving(state) as server:
        assert server.listener.sessions.find("passing") is None
        assert server.listener.sessions.find("lasting") is not None
        await until(lambda: server.listener.sessions.find("short") is None)
        watcher = await server.client("watcher")
        await watcher.subscribe("will")
        assert (await watcher.receive()).payload == b"gone"
    async with serving(state) as server:
        assert len(server.listener.sessions) == 1


@in_loop
async def test_a_clean_start_forgets_the_stored_session(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    async with serving(state) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a")
        await client.disconnect()
        client = await server.client("id", clean_start=True)
        await client.hears_nothing()
    async with serving(state) as server:
        assert len(server.listener.sessions) == 0
        assert server.node.node.broker.subscriptions() == []


@in_loop
async def test_a_full_storage_refuses_what_must_be_kept_and_keeps_what_it_has(tmp_path: Path) -> None:
    storage = NodeStorage(LocalDisk(), tmp_path / "state.db", bytes_max=200_000)
    async with serving(node=StandAloneNode(storage=storage)) as server:
        client = await server.client5()
        reasons: list[int] = []
        for number in range(40):
            answer = await client.publish(f"a/{number}", bytes(20_000), 1, retain=True)
            assert answer is not None
            reasons.append(answer.reason)
        kept = reasons.count(0)
        assert 0 < kept < 20 and reasons[-1] == ReasonCode.QUOTA_EXCEEDED
        old = await server.client("old")
        old.say(Publish(topic="a/99", payload=bytes(20_000), qos=1, packet_id=1, retain=True))
        assert await old.is_closed()  # 3.1.1 cannot say no
        assert (await client.publish("a/b", b"real time", 1)) is not None
        reader = await server.client("reader")
        await reader.subscribe("a/#", qos=0)
        assert len(await reader.payloads(kept)) == kept
        await reader.hears_nothing()
    storage.close()


@in_loop
async def test_a_damaged_record_is_forgotten_and_counted(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    async with serving(state) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a")
    storage = NodeStorage(LocalDisk(), state)
    storage.write("UPDATE session SET data = ?", (b"\xc1garbage",))
    storage.close()
    async with serving(state) as server:
        assert len(server.listener.sessions) == 0
        assert server.counted("mqtt_damaged_total") == 1


def test_what_is_left_is_all_where_a_clock_was_not_set() -> None:
    hour = 3_600_000_000
    now = CLOCK_SET + 10 * hour
    assert remaining(now + hour, now, 2 * hour) == hour
    assert remaining(now - hour, now, 2 * hour) == 0
    assert remaining(now + 9 * hour, now, 2 * hour) == 2 * hour  # the clock was set back
    assert remaining(now + hour, 5, 2 * hour) == 2 * hour
    assert remaining(hour, now, 2 * hour) == 2 * hour


@in_loop
@pytest.mark.parametrize("qos1", ["realtime", "memorized"])
async def test_a_message_of_qos_2_goes_on_where_it_was_when_the_node_dies(qos1: str, tmp_path: Path) -> None:
    """The client has both messages; whether the node heard of it or not, they are no new ones."""
    state = tmp_path / "state.db"
    async with killed(state, qos1=qos1) as server:
        client = await server.client("id", V5, clean_start=False, properties=LASTING)
        await client.subscribe("a/#", qos=2)
        writer = await server.client("writer", V5)
        await writer.publish("a/1", b"heard", qos=2)
        await writer.publish("a/2", b"not heard", qos=2)
        first, second = await client.expect(Publish), await client.expect(Publish)
        client.say(Acknowledge(PacketType.PUBREC, first.packet_id))
        released = await client.expect(Acknowledge)  # the node will send this again, and nothing else
        assert (released.type, released.packet_id) == (PacketType.PUBREL, first.packet_id)
    async with killed(state, qos1=qos1) as server:
        client = await back(server, V5)
        again = [await client.hear(), await client.hear()]
        assert again[0] == released or again[1] == released
        (publish,) = [packet for packet in again if isinstance(packet, Publish)]
        assert (publish.packet_id, publish.payload, publish.duplicate) == (
            second.packet_id,
            b"not heard",
            True,
        )
        client.say(Acknowledge(PacketType.PUBCOMP, first.packet_id))
        await client.acknowledge(publish)
        await client.hears_nothing()


@in_loop
@pytest.mark.parametrize("qos1", ["realtime", "memorized"])
async def test_a_publication_of_qos_2_is_one_event_though_the_node_dies(qos1: str, tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    message = Publish(topic="a/1", payload=b"once", qos=2, packet_id=7)
    async with killed(state, qos1=qos1) as server:
        reader = await server.client("id", V5, clean_start=False, properties=LASTING)
        await reader.subscribe("a/#", qos=2)
        writer = await server.client("writer", V5, clean_start=False, properties=LASTING)
        writer.say(message)
        assert (await writer.expect(Acknowledge)).type is PacketType.PUBREC
        assert (await reader.receive()).payload == b"once"
        await reader.hears_nothing()  # what it said was handled
    async with killed(state, qos1=qos1) as server:
        reader = await back(server, V5)
        writer = await back(server, V5, "writer")
        writer.say(Publish(topic="a/1", payload=b"once", qos=2, packet_id=7, duplicate=True))
        assert (await writer.answer()).type is PacketType.PUBREC
        writer.say(Acknowledge(PacketType.PUBREL, 7))
        assert (await writer.answer()).type is PacketType.PUBCOMP
        await reader.hears_nothing()
        writer.say(message)  # the identifier is free: this is another message
        assert (await writer.answer()).type is PacketType.PUBREC
        assert (await reader.receive()).payload == b"once"


@in_loop
async def test_a_publication_of_qos_2_that_died_before_it_was_published_is_published_later(
    tmp_path: Path,
) -> None:
    """As if the node had died right after the disk had it."""
    state = tmp_path / "state.db"
    async with serving(state) as server:
        reader = await server.client5("id", expiry=3_600, clean_start=False)
        await reader.subscribe("a/#", qos=2)
        writer = await server.client5("writer", expiry=3_600, clean_start=False)
        server.listener.incoming.close()  # from here on it does no more than write
        writer.say(Publish(topic="a/1", payload=b"late", qos=2, packet_id=7))
        await until(lambda: bool(server.listener.sessions.find("writer").received))  # type: ignore[union-attr]
        await reader.hears_nothing()
    async with serving(state) as server:
        assert (await (await back(server, V5)).receive()).payload == b"late"


@in_loop
async def test_a_client_may_have_as_many_messages_of_qos_2_under_way_as_it_was_told(tmp_path: Path) -> None:
    async with serving(tmp_path / "state.db", qos1="memorized", receive_maximum=10) as server:
        writer = await server.client5("writer", expiry=3_600, clean_start=False)
        for number in range(10):
            writer.say(Publish(topic="a/1", payload=b"x", qos=2, packet_id=number + 1))
        assert [(await writer.answer()).packet_id for _ in range(10)] == list(range(1, 11))


@in_loop
async def test_what_a_client_had_before_a_restart_comes_not_again_from_a_neighbour(
    tmp_path: Path,
) -> None:
    """The node had pushed it out of its store, so it takes the neighbour's copy for new."""
    state = tmp_path / "state.db"
    async with serving(state) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a", qos=1)
        writer = await server.client("writer")
        await writer.publish("a", b"one", 1)
        message = await client.expect(Publish)
        await client.acknowledge(message)
        await client.hears_nothing()
        (stored,) = server.node.node.broker.store.standing(server.node.now())
        assert server.node.storage is not None
        server.node.storage.remove(stored.event.id)
        server.node.storage.commit()
    async with serving(state) as server:
        client = await server.client("id", clean_start=False)
        server.node.node.broker.deliver(stored.event, 1)
        server.node.applications.drain()
        await client.hears_nothing()
