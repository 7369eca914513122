"""MQTT messages above the bound of one event: in chunks through the mesh, whole to the clients."""

from pathlib import Path

import pytest
from tests.gateway.mqtt.harness import Client, Served, in_loop, serving, until

from roamcast.event import LARGE_BYTES_MAX, Publication
from roamcast.gateway import stream
from roamcast.gateway.mqtt.mesh import exchange
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
)
from roamcast.gateway.options import PACKET_BYTES_MAX

LARGE = bytes(range(256)) * 800  # 50 chunks


def coming(server: Served) -> int:
    """Large packets that are not whole yet."""
    assert server.listener.turn is not None
    return server.listener.turn.receiving


@in_loop
async def test_a_large_message_of_each_qos_comes_whole_and_once() -> None:
    async with serving() as server:
        for version in ("client", "client5"):
            subscriber = await getattr(server, version)(f"reader {version}")
            await subscriber.subscribe(f"{version}/#", qos=2)
            writer = await getattr(server, version)(f"writer {version}")
            for qos in (0, 1, 2):
                await writer.publish(f"{version}/map", LARGE, qos)
                assert (await subscriber.receive()).payload == LARGE
            await writer.publish(f"{version}/small", b"after", 1)
            assert (await subscriber.receive()).payload == b"after"
        assert not server.node.applications.assembler.unfinished


@in_loop
async def test_connack_says_what_is_taken_and_more_is_refused() -> None:
    async with serving() as server:
        client = await server.opened(V5)
        granted = (await client.connect()).properties
        assert granted is not None and granted.maximum_packet_size == PACKET_BYTES_MAX > LARGE_BYTES_MAX
        client.say_raw(b"\x30\xff\xff\xff\x7f")  # 256 MB
        assert (await client.expect(Disconnect)).reason == ReasonCode.PACKET_TOO_LARGE
        with_much_beside = await server.client5("beside")
        properties = Properties(user_properties=[("a", "x" * 3_000)])
        with_much_beside.say(Publish(topic="map", payload=LARGE, qos=1, packet_id=5, properties=properties))
        answer = await with_much_beside.expect(Acknowledge)
        assert answer.type is PacketType.PUBACK and answer.reason == ReasonCode.QUOTA_EXCEEDED


@in_loop
async def test_a_client_that_takes_small_packets_gets_no_large_one_and_goes_on() -> None:
    async with serving() as server:
        client = await server.client5(properties=Properties(maximum_packet_size=1_000))
        await client.subscribe("#", qos=1)
        writer = await server.client5("writer")
        await writer.publish("map", LARGE, 1)
        await writer.publish("map", b"small", 1)
        assert (await client.receive()).payload == b"small"
        assert server.counted("mqtt_dropped_total:packet_too_large") == 1


@in_loop
async def test_a_retained_large_message_is_for_later_subscribers_and_the_newest_stands() -> None:
    async with serving() as server:
        writer = await server.client5("writer")
        await writer.publish("map", LARGE, 1, retain=True)
        await writer.publish("map", LARGE + b"newer", 1, retain=True)
        reader = await server.client5("reader")
        await reader.subscribe("map", qos=1)
        message = await reader.receive()
        assert message.payload == LARGE + b"newer" and message.retain
        await reader.hears_nothing()
        await writer.publish("map", b"", 1, retain=True)
        third = await server.client5("third")
        await third.subscribe("map", qos=1)
        await third.hears_nothing()


@in_loop
async def test_a_program_of_the_node_and_an_mqtt_client_get_the_same() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.subscribe("map", qos=1)
        session = server.node.applications.open(lambda delivery: None)
        session.publish(Publication({"level": 5}, LARGE, "map"))
        message = await client.receive()
        assert message.payload == LARGE and message.properties is not None
        assert message.properties.user_properties == [("level", "5")]  # and no chunk's


@in_loop
async def test_an_absent_session_gets_a_large_message_when_it_is_back(tmp_path: Path) -> None:
    async with serving(tmp_path / "state.db") as server:
        reader = await server.client5("reader", 60)
        await reader.subscribe("map", qos=2)
        reader.drop()
        writer = await server.client5("writer", 60)
        await writer.publish("map", LARGE, 2)
        reader = await server.client5("reader", 60, clean_start=False)
        assert (await reader.receive()).payload == LARGE
        await reader.hears_nothing()


@in_loop
async def test_hostile_clients_share_the_room_for_large_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "INCOMING_BYTES_MAX", 500_000)
    async with serving() as server:
        begun: list[Client] = []
        for number in range(2):
            client = await server.client5(f"slow {number}")
            client.say_raw(b"\x30\x80\x8b\x0c" + bytes(100))  # a PUBLISH of 198,016 octets that never ends
            begun.append(client)
        await until(lambda: coming(server) == 2)
        third = await server.client5("third")
        third.say_raw(b"\x30\x80\x8b\x0c" + bytes(100))
        assert (await third.expect(Disconnect)).reason == ReasonCode.QUOTA_EXCEEDED
        begun[0].drop()
        await until(lambda: coming(server) == 1)
        fourth = await server.client5("fourth")
        await fourth.publish("map", LARGE[:150_000], 1)


@in_loop
async def test_no_more_payloads_wait_for_their_turn_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "LARGE_WAITING_MAX", 100_000)
    async with serving() as server:
        writer = await server.client5("writer")
        writer.say(Publish(topic="map", payload=LARGE, qos=1, packet_id=7))
        assert (await writer.expect(Acknowledge)).reason == ReasonCode.QUOTA_EXCEEDED
        await writer.publish("map", LARGE[:90_000], 1)
