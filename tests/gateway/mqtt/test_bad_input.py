"""What hostile, broken and greedy clients can do: be sent away, be counted, and nothing else."""

import asyncio
import gc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateway.mqtt.harness import Client, in_loop, serving, until
from tests.gateway.mqtt.packets.test_codec import packets
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.errors import InputError
from roamcast.gateway.access import Accounts
from roamcast.gateway.mqtt.connection import Connection
from roamcast.gateway.mqtt.listener import STRANGERS_MAX, MqttListener, Strangers
from roamcast.gateway.mqtt.packets.codec import encode
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from roamcast.gateway.options import MqttOptions


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        ("36 05 0001 61 0001", ReasonCode.MALFORMED_PACKET),  # QoS 3
        ("30 ffffffff 01", ReasonCode.MALFORMED_PACKET),  # a length of five octets
        ("30 ffffff7f", ReasonCode.PACKET_TOO_LARGE),
        ("30 04 0001 23 00", ReasonCode.TOPIC_NAME_INVALID),  # publish on a wildcard
        ("30 0b 0008 24535953 2f626164 00", ReasonCode.TOPIC_NAME_INVALID),  # and on $SYS
        ("30 03 0000 00", ReasonCode.PROTOCOL_ERROR),  # no topic, no alias
        ("30 05 0001 61 8080", ReasonCode.MALFORMED_PACKET),  # properties that do not end
        ("30 06 0001 61 02 0b01", ReasonCode.PROTOCOL_ERROR),  # a subscription identifier from a client
        ("30 09 0001 61 05 08 0002 2b2f", ReasonCode.PROTOCOL_ERROR),  # a response topic with a wildcard
        ("20 03 00 00 00", ReasonCode.PROTOCOL_ERROR),  # CONNACK from a client
        ("f0 00", ReasonCode.PROTOCOL_ERROR),  # AUTH without a method
        ("82 0e 0001 00 0008 2473686172652f78 00", ReasonCode.PROTOCOL_ERROR),
        ("c1 00", ReasonCode.MALFORMED_PACKET),
    ],
)
@in_loop
async def test_a_bad_packet_ends_the_connection_with_its_reason(octets: str, reason: ReasonCode) -> None:
    async with serving() as server:
        other = await server.client("other")
        client = await server.client5()
        if octets.startswith("82"):
            share = SubscriptionRequest("$share/g/x", 0, True)  # no-local and shared
            client.say(Subscribe(1, (share,)))
        else:
            client.say_raw(bytes.fromhex(octets))
        assert (await client.expect(Disconnect)).reason == reason
        assert await client.is_closed()
        await other.hears_nothing()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\xc0\x00", b"\x10\x04\x00\x02hj", b"\x16\x03\x01"]
)
@in_loop
async def test_what_does_not_begin_with_connect_is_closed(data: bytes) -> None:
    async with serving(connect_timeout=0.1) as server:
        client = await server.opened()
        client.say_raw(data)
        assert await client.is_closed()


@in_loop
async def test_a_version_that_is_not_spoken_is_told_so() -> None:
    async with serving() as server:
        client = await server.opened()
        client.say_raw(bytes.fromhex("10 0c 0004 4d515454 06 02 0000 0000"))
        assert (await client.hear()) is not None
        assert await client.is_closed()


@in_loop
async def test_a_packet_larger_than_allowed_is_refused_before_it_is_whole() -> None:
    async with serving(packet_bytes_max=300) as server:
        client = await server.client5()
        client.say_raw(encode(Publish(topic="a", payload=b"." * 290), V5))
        await client.hears_nothing()
        client.say_raw(encode(Publish(topic="a", payload=b"." * 300), V5)[:10])
        assert (await client.expect(Disconnect)).reason == ReasonCode.PACKET_TOO_LARGE


@in_loop
async def test_who_is_slow_to_connect_or_to_end_a_packet_is_cut() -> None:
    async with serving(connect_timeout=0.05, packet_timeout=0.05) as server:
        silent = await server.opened()
        assert await silent.is_closed()
        begun = await server.opened()
        begun.say_raw(encode(Connect(version=V3_1_1, client_id="x"), V3_1_1)[:-1])
        assert await begun.is_closed()
        client = await server.client()
        await client.hears_nothing()
        client.say_raw(b"\x30\x10\x00")
        assert await client.is_closed()


@in_loop
async def test_there_are_only_so_many_clients() -> None:
    async with serving(clients_max=2) as server:
        one, _two = await server.client("one"), await server.client("two")
        for version, reason in ((V3_1_1, 3), (V5, ReasonCode.SERVER_BUSY)):
            client = await server.opened(version)
            assert (await client.connect("three")).reason == reason
            assert await client.is_closed()
        again = await server.client("one")  # takes its own place
        assert await one.is_closed()
        await again.hears_nothing()


@in_loop
async def test_half_open_connections_do_not_shut_honest_clients_out() -> None:
    """The oldest that has not said CONNECT makes room."""
    async with serving(connect_timeout=3_600) as server:
        half_open = [await server.opened() for _ in range(2 * STRANGERS_MAX)]
        for client in half_open[STRANGERS_MAX:]:
            client.say_raw(b"\x10\x7f\x00")  # begins a CONNECT
        for number in range(20):
            honest = await server.client(f"honest {number}")
            await honest.hears_nothing()
            half_open.append(await server.opened())
        assert all(await asyncio.gather(*(client.is_closed() for client in half_open[:STRANGERS_MAX])))
        assert server.counted("mqtt_refused_total:too_many_connections") >= STRANGERS_MAX
        assert len(server.listener.strangers) <= STRANGERS_MAX


def test_the_address_with_the_most_half_open_connections_loses_the_oldest() -> None:
    class Half:
        def __init__(self, address: str) -> None:
            self.address = address

        def abandon(self) -> None:
            dropped.append(self)

    dropped: list[Half] = []
    counted: list[None] = []
    strangers = Strangers(lambda: counted.append(None), most=4)
    honest, *crowd = [Half("10.0.0.1"), *(Half("10.0.0.2") for _ in range(9))]
    for one in (honest, *crowd):
        strangers.enter(one)
    assert dropped == crowd[:6] and len(counted) == 6 and len(strangers) == 4
    strangers.leave(honest)
    strangers.leave(honest)
    assert len(strangers) == 3


@in_loop
async def test_a_connection_that_has_ended_leaves_nothing_in_memory() -> None:
    """Without a pass of the garbage collector, which a node makes over everything only every ten minutes."""
    async with serving() as server:
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                client = await server.client(f"client {number}")
                client.say_raw(b"\x82\x03\x00")
                client.drop()
                broken = await server.opened()
                broken.say_raw(b"\xff" * 20)
                assert await broken.is_closed()
            await until(lambda: not server.listener.connections)
            assert not [one for one in gc.get_objects() if isinstance(one, Connection)]
        finally:
            gc.enable()


@in_loop
async def test_more_unacknowledged_than_allowed_ends_the_connection() -> None:
    async with serving(receive_maximum=3) as server:
        client = await server.client5()
        for number in range(4):
            client.say(Publish(topic="a", qos=2, packet_id=number + 1))
        for _ in range(3):
            await client.expect(Acknowledge)
        assert (await client.expect(Disconnect)).reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


@in_loop
async def test_what_the_strategy_does_not_promise_is_refused_with_a_word() -> None:
    async with serving(node=StandAloneNode(strategy="flooding")) as server:
        client = await server.opened(V5)
        granted = (await client.connect()).properties
        assert granted is not None and granted.maximum_qos == 0
        await client.publish("a", b"", 0)
        client.say(Publish(topic="a", qos=1, packet_id=1))
        assert (await client.expect(Disconnect)).reason == ReasonCode.QOS_NOT_SUPPORTED
        older = await server.client("older", V3_1_1)
        older.say(Publish(topic="a", qos=2, packet_id=1))
        assert await older.is_closed()
        willed = await server.opened(V5)
        assert (
            await willed.connect("willed", will=Will("a", b"", qos=1))
        ).reason == ReasonCode.QOS_NOT_SUPPORTED
    async with serving(node=StandAloneNode(strategy="flooding"), qos1="realtime") as server:
        client = await server.opened(V5)
        granted = (await client.connect()).properties
        assert granted is not None and granted.maximum_qos is None
        client.say(Publish(topic="a", qos=1, packet_id=1))
        assert (await client.expect(Acknowledge)).reason < 0x80


@in_loop
async def test_a_subscriber_that_does_not_read_costs_a_bounded_amount_and_stops_nobody() -> None:
    async with serving(
        write_bytes_max=10_000, queue_messages_max=20, inflight_max=5, qos1="realtime"
    ) as server:
        stuck, reader = await server.client("stuck"), await server.client("reader")
        await stuck.subscribe("a", qos=1)
        await reader.subscribe("a", qos=0)
        writer = await server.client("writer")
        for number in range(1_000):
            await writer.publish("a", bytes(10_000), number % 2)
            assert len((await reader.receive()).payload) == 10_000
        session = server.listener.sessions.find("stuck")
        assert session is not None
        assert session.waiting <= 20 and len(session.unacknowledged()) <= 25
        assert server.counted("mqtt_dropped_total:queue_full") > 400
        assert server.counted("mqtt_dropped_total:slow") > 0  # what the sockets' own buffers did not take
        await stuck.receive()  # it still can


@in_loop
async def test_a_flood_does_not_starve_the_others() -> None:
    async with serving() as server:
        flooder, polite = await server.client("flooder"), await server.client("polite")
        flooder.say_raw(encode(Publish(topic="x", payload=bytes(20)), V3_1_1) * 20_000)
        for _ in range(20):
            await polite.hears_nothing()
        assert server.listener.exchange.published < 20_000  # it was answered in between
        await until(lambda: server.listener.exchange.published == 20_000)


@in_loop
async def test_properties_that_no_event_can_carry_are_refused() -> None:
    async with serving() as server:
        client = await server.client5()
        for pairs in ([("n" * 200, "x")], [("n", "x" * 5_000)], [(f"n{n}", "x" * 4_000) for n in range(14)]):
            answer = await client.publish("a", bytes(3_000), 1, properties=Properties(user_properties=pairs))
            assert answer is not None
            assert answer.reason in (ReasonCode.QUOTA_EXCEEDED, ReasonCode.SUCCESS)
        assert server.counted("mqtt_unpublished_total:quota_exceeded") >= 2
        await client.hears_nothing()


class Sink(asyncio.Transport):
    """Takes all and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert bytes(data) and not self.closed

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(packets() | st.binary(min_size=1, max_size=40), max_size=8),
    st.sampled_from([V3_1_1, V5]),
    st.integers(1, 50),
)
def test_no_session_ever_crashes(said: list[Packet | bytes], version: int, cut: int) -> None:
    """Any packets and any bytes, in pieces of any size, after a good CONNECT."""

    async def play() -> None:
        async with serving() as server:
            connection = server.listener.accept(Accounts({}))
            connection.connection_made(Sink())
            assert isinstance(connection, asyncio.Protocol)
            connection.data_received(encode(Connect(version=version, client_id="x"), version))
            stream = b"".join(one if isinstance(one, bytes) else encode(one, version) for one in said)
            for at in range(0, len(stream), cut):
                connection.data_received(stream[at : at + cut])
            await asyncio.sleep(0)
            connection.connection_lost(None)
            assert server.listener.sessions.find("x") is None

    asyncio.run(play())


@in_loop
async def test_a_client_learns_why_although_it_was_still_sending() -> None:
    async with serving(packet_bytes_max=300) as server:
        client = await server.client5()
        client.say_raw(encode(Publish(topic="a", payload=bytes(400)), V5))
        for _ in range(50):  # would reset a connection that was closed on unread octets
            client.say_raw(bytes(10_000))
            await asyncio.sleep(0)
        assert (await client.expect(Disconnect)).reason == ReasonCode.PACKET_TOO_LARGE
        assert await client.is_closed()


@in_loop
async def test_a_port_in_use_and_a_certificate_that_is_none_are_named() -> None:
    async with serving() as server:
        taken = MqttListener(StandAloneNode(), MqttOptions(port=server.listener.port))
        with pytest.raises(
            InputError, match=r"mqtt\.port: cannot listen on 127\.0\.0\.1, port \d+: .*in use"
        ):
            await taken.start()
    for options, key in (
        (MqttOptions(port=0, tls_certificate="/nowhere.pem"), "mqtt.tls_certificate"),
        (MqttOptions(port=0, plain=False), "mqtt.plain"),
        (MqttOptions(port=0, host="no.such.host.invalid"), "mqtt.port"),
    ):
        with pytest.raises(InputError) as caught:
            await MqttListener(StandAloneNode(), options).start()
        assert caught.value.where == key


@in_loop
async def test_a_client_that_leaves_within_a_packet_leaves_nothing() -> None:
    async with serving() as server:
        client = await Client.open(server.listener.port, V3_1_1)
        await client.connect("x")
        client.say_raw(b"\x30\x7f\x00")
        await client.drain()
        client.drop()
        await until(lambda: server.listener.sessions.find("x") is None)
