"""RFC 6455 as a hostile or a careful client sees it; what MQTT over it must keep."""

import asyncio
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.mqtt.harness import in_loop, until
from tests.gateway.web.harness import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    Wire,
    frame,
    get,
    request,
    serving_web,
)

from roamcast.gateway import stream
from roamcast.gateway.mqtt.packets.codec import encode
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    PingRequest,
    PingResponse,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
)
from roamcast.gateway.options import PACKET_BYTES_MAX, MqttOptions
from roamcast.gateway.web.server import REQUEST_BYTES_MAX


def test_the_vectors_of_the_rfc_are_what_our_client_says() -> None:
    assert frame(TEXT, b"Hello") == bytes.fromhex("818537fa213d7f9f4d5158")  # section 5.7
    assert frame(PING, b"Hello") == bytes.fromhex("898537fa213d7f9f4d5158")
    assert frame(BINARY, bytes(256), mask=None)[:4] == bytes.fromhex("827e0100")
    assert frame(BINARY, bytes(65_536), mask=None)[:10] == bytes.fromhex("827f0000000000010000")


@in_loop
async def test_a_client_publishes_and_receives_over_a_websocket() -> None:
    async with serving_web() as served:
        wire = await (await served.wire()).connected()
        wire.say_packets(Subscribe(1, (SubscriptionRequest("alarm/#", 1),)))
        assert isinstance(await wire.hear(), SubAck)
        wire.say_packets(Publish(topic="alarm/fire", payload=b"third floor"))
        heard = await wire.hear()
        assert isinstance(heard, Publish) and heard.payload == b"third floor"


@in_loop
async def test_fragments_and_control_frames_between_them_are_one_stream() -> None:
    async with serving_web() as served:
        wire = await (await served.wire()).upgraded()
        data = encode(Connect(version=V5, client_id="pieces"), V5) + encode(PingRequest(), V5)
        wire.say(frame(BINARY, data[:3], fin=False))
        wire.say(frame(PING, b"between"))
        wire.say(frame(CONT, b"", fin=False))
        wire.say(frame(CONT, data[3:9], fin=False) + frame(PONG, b"unasked"))
        wire.say(frame(CONT, data[9:]))
        assert isinstance(await wire.hear(), ConnAck)
        assert isinstance(await wire.hear(), PingResponse)
        assert wire.pongs == [b"between"]


@in_loop
async def test_octets_may_come_one_by_one() -> None:
    async with serving_web() as served:
        wire = await served.wire()
        connect = frame(BINARY, encode(Connect(version=V5, client_id="slow"), V5))
        for octet in request():
            wire.say(bytes([octet]))
            await asyncio.sleep(0)
        assert (await wire.head()).status == 101
        for octet in connect:
            wire.say(bytes([octet]))
            await asyncio.sleep(0)
        assert isinstance(await wire.hear(), ConnAck)


@pytest.mark.parametrize(
    ("said", "code", "counted"),
    [
        (frame(BINARY, b"\x10\x00", mask=None), 1002, "protocol_error"),
        (frame(BINARY, b"x", rsv=4), 1002, "protocol_error"),
        (frame(0x3, b"x"), 1002, "protocol_error"),
        (frame(0xB, b"x"), 1002, "protocol_error"),
        (frame(CONT, b"x"), 1002, "protocol_error"),
        (frame(BINARY, b"", fin=False) + frame(BINARY, b""), 1002, "protocol_error"),
        (frame(PING, bytes(126)), 1002, "protocol_error"),
        (frame(PING, b"", fin=False), 1002, "protocol_error"),
        (frame(CLOSE, b"\x03"), 1002, "protocol_error"),
        (frame(CLOSE, (1005).to_bytes(2, "big")), 1002, "protocol_error"),
        (frame(CLOSE, (999).to_bytes(2, "big")), 1002, "protocol_error"),
        (frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff"), 1007, "invalid_data"),
        (frame(TEXT, b"text is not for MQTT"), 1003, "unsupported_data"),
        (frame(TEXT, b"\xff", fin=False), 1003, "unsupported_data"),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big"), 1009, "message_too_big"),
        (b"\x82\xff" + (1 << 63).to_bytes(8, "big"), 1009, "message_too_big"),
        (
            frame(BINARY, bytes(700), fin=False) + frame(CONT, bytes(700)),
            1009,
            "message_too_big",
        ),
    ],
)  # fmt: skip
def test_what_the_rfc_forbids_ends_the_connection_with_its_code(said: bytes, code: int, counted: str) -> None:
    @in_loop
    async def run() -> None:
        async with serving_web(message_bytes_max=1_024) as served:
            wire = await (await served.wire()).upgraded()
            wire.say(said)
            assert await wire.close_code() == code
            assert served.counted(f"web_socket_errors_total:{counted}") == 1
            await until(lambda: not served.server.connections)
            assert not served.mqtt.connections

    run()


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
def test_a_close_is_answered_with_its_own_code(code: int) -> None:
    @in_loop
    async def run() -> None:
        async with serving_web() as served:
            wire = await (await served.wire()).connected()
            wire.say(frame(CLOSE, code.to_bytes(2, "big") + b"bye"))
            assert await wire.close_code() == code
            assert not served.node.counters.counts["web_socket_errors_total:protocol_error"]

    run()


@pytest.mark.parametrize(
    ("asked", "status", "counted"),
    [
        (request(Origin="http://elsewhere.example"), 403, "origin"),
        (request(Origin="null"), 403, "origin"),
        (request(Origin="http://[bad"), 403, "origin"),
        (request(Host="rebound.example", Origin="http://rebound.example"), 421, "host"),
        (request(Host="evil.local:8747", Origin="http://evil.local:8747"), 421, "host"),
        (request(Host="127.0.0.1:x"), 421, "host"),
        (request(Host="127.0.0.1:8747", Origin="https://127.0.0.1:8747"), 403, "origin"),
        (request(Host="127.0.0.1:8747", Origin="file://127.0.0.1:8747"), 403, "origin"),
        (request(Host="127.0.0.1:8747", Origin="http://user@127.0.0.1:8747"), 403, "origin"),
        (request(Sec_WebSocket_Key="short"), 400, "handshake"),
        (request(Sec_WebSocket_Key=None), 400, "handshake"),
        (request(Sec_WebSocket_Version="8"), 400, "handshake"),
        (request(Sec_WebSocket_Protocol="chat"), 400, "handshake"),
        (request(Sec_WebSocket_Protocol=None), 400, "handshake"),
        (request(Upgrade=None), 426, "handshake"),
        (request(method="POST"), 405, "handshake"),
        (request("/elsewhere"), 404, "path"),
        (b"GET / HTTP/2.0\r\n\r\n", 400, "malformed"),
        (b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\r\n\r\n", 400, "malformed"),
        (b"GET /" + b"x" * REQUEST_BYTES_MAX, 431, "too_long"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3_000, 431, "too_long"),
    ],
)
def test_a_handshake_that_must_not_succeed_gets_a_status(asked: bytes, status: int, counted: str) -> None:
    @in_loop
    async def run() -> None:
        async with serving_web() as served:
            assert (await served.asked(asked)).status == status
            assert served.counted(f"web_refused_total:{counted}") == 1
            assert not served.mqtt.connections

    run()


@pytest.mark.parametrize(
    "asked",
    [
        get("/") * 2,
        get("/") + request(),
        get("/nothing") + b"\x82\x05hello",
        request() * 2,
        request() + frame(BINARY, b"hello", mask=None),
        request() + b"\xf2\x80",
        request() + frame(CLOSE) + frame(PING),
        request() + frame(TEXT, b"x") + frame(PING) + frame(BINARY, b"x"),
        request(Origin="null") + request(),
    ],
)
def test_what_comes_behind_a_request_in_one_segment_raises_nothing(asked: bytes) -> None:
    @in_loop
    async def run() -> None:
        raised: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        async with serving_web() as served:
            wire = await served.wire()
            wire.say(asked)
            assert (await wire.head()).status in (101, 200, 403, 404)
            wire.say(b"more")
            wire.end()
            await until(lambda: not served.server.connections)
        assert not raised

    run()


@in_loop
async def test_a_page_of_an_allowed_origin_may_connect() -> None:
    async with serving_web(origins=("https://map.example",), hosts=("device.example", "pi.local")) as served:
        await (await served.wire()).upgraded(Host="pi.local:8747", Origin="http://pi.local:8747")
        await (await served.wire()).upgraded(Origin="https://map.example")
        await (await served.wire()).upgraded(Host="device.example:8747", Origin="http://device.example:8747")
        await (await served.wire()).upgraded(Host="[::1]:8747", Origin="http://[::1]:8747")


@in_loop
async def test_a_slow_handshake_and_a_silent_socket_expire() -> None:
    options = MqttOptions(connect_timeout=0.05)
    async with serving_web(mqtt=options) as served:
        silent = await (await served.wire()).upgraded()
        served.be_impatient(0.05)
        slow = await served.wire()
        slow.say(request()[:40])
        assert (await slow.answer()).status == 408
        assert await silent.close_code() == 1000
        assert served.counted("web_refused_total:slow") == 1
        await until(lambda: not served.server.connections)


@in_loop
async def test_connections_that_ask_nothing_are_bounded_and_clients_do_not_count() -> None:
    async with serving_web(connections_max=2) as served:
        client = await (await served.wire()).connected()
        idle = [await served.wire(), await served.wire()]
        await until(lambda: len(served.server.connections) == 3)
        refused = await served.wire()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await refused.reader.readexactly(1)
        assert served.counted("web_refused_total:too_many_connections") == 1
        client.say_packets(PingRequest())
        assert isinstance(await client.hear(), PingResponse)
        for wire in idle:
            wire.end()
        await until(lambda: len(served.server.connections) == 1)
        await (await served.wire()).connected("another")


@in_loop
async def test_a_client_that_pings_and_never_reads_is_not_read_from() -> None:
    async with serving_web(mqtt=MqttOptions(write_bytes_max=1_024)) as served:
        wire = await (await served.wire()).connected()
        (opened,) = served.server.connections
        flood = frame(PING, bytes(125)) * 60  # about as many as are read in a turn
        for _ in range(10_000):
            if opened.is_held:
                break
            wire.say(flood)
            await asyncio.sleep(0)
        assert opened.is_held
        assert opened.unsent < 1_000_000
        other = await (await served.wire()).connected("other")
        other.say_packets(PingRequest())
        assert isinstance(await other.hear(), PingResponse)


@in_loop
async def test_the_end_of_the_node_is_told_and_a_dropped_client_leaves_nothing() -> None:
    async with serving_web() as served:
        dropped = await (await served.wire()).connected("dropped")
        dropped._writer.transport.abort()
        await until(lambda: not served.mqtt.connections)
        wire = await (await served.wire()).connected("stays")
        await served.server.stop()
        opcode, data = await wire.frame()
        assert (opcode, data[:1]) == (BINARY, b"\xe0")  # DISCONNECT
        assert (await wire.frame())[0] == CLOSE


@in_loop
async def test_users_are_those_of_the_page_and_a_wrong_password_is_refused() -> None:
    async with serving_web(users={"ada": "engine-1843"}) as served:
        for name, password in (("ada", b"guess"), ("eve", b"engine-1843"), (None, None)):
            wire = await (await served.wire()).upgraded()
            wire.say_packets(Connect(version=V5, client_id="c", username=name, password=password))
            answer = await wire.hear()
            assert isinstance(answer, ConnAck) and answer.reason == 0x86
            assert await wire.close_code() == 1000
        await (await served.wire()).connected(username="ada", password=b"engine-1843")


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=400), st.binary(max_size=200)), min_size=6, max_size=6))
def test_any_octets_end_in_an_answer_or_a_close_and_others_are_served(
    said: list[tuple[bytes, bytes]],
) -> None:
    @in_loop
    async def run() -> None:
        async with serving_web(mqtt=MqttOptions(connect_timeout=0.01)) as served:
            for _, tail in said:
                opened = await (await served.wire()).upgraded()
                opened.say(tail)
            served.be_impatient(0.01)
            for head, _ in said:
                raw = await served.wire()
                raw.say(head)
            await until(lambda: not served.server.connections)
            assert not served.mqtt.connections

    # None of these clients closes.
    with mock.patch.object(stream, "LINGER", 0.1):
        run()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_stream_of_packets_means_the_same_however_it_is_cut(data: st.DataObject) -> None:
    packets = [
        Connect(version=V5, client_id="cut"),
        Subscribe(1, (SubscriptionRequest("a/#", 0),)),
        *(Publish(topic=f"a/{at}", payload=bytes([at])) for at in range(5)),
    ]
    stream = b"".join(encode(packet, V5) for packet in packets)  # type: ignore[arg-type]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    begins = [True, *(data.draw(st.booleans()) for _ in pieces[1:])]

    @in_loop
    async def run() -> None:
        async with serving_web() as served:
            wire: Wire = await (await served.wire()).upgraded()
            for at, piece in enumerate(pieces):
                ends = at + 1 == len(pieces) or begins[at + 1]
                wire.say(frame(BINARY if begins[at] else CONT, piece, fin=ends))
            assert isinstance(await wire.hear(), ConnAck)
            assert isinstance(await wire.hear(), SubAck)
            heard = [await wire.hear() for _ in range(5)]
            assert [one.payload for one in heard if isinstance(one, Publish)] == [
                bytes([n]) for n in range(5)
            ]

    run()


@in_loop
async def test_a_message_is_as_large_as_a_packet_and_connack_says_what_holds() -> None:
    async with serving_web() as served:
        wire = await (await served.wire()).upgraded()
        wire.say(frame(BINARY, encode(Connect(version=V5, client_id="js"), V5)))
        granted = await wire.hear()
        assert isinstance(granted, ConnAck) and granted.properties is not None
        assert granted.properties.maximum_packet_size == PACKET_BYTES_MAX
        large = Publish(topic="js/big", payload=bytes(300_000), qos=1, packet_id=1)
        wire.say(frame(BINARY, encode(large, V5)))
        assert isinstance(await wire.hear(), Acknowledge)
    async with serving_web(message_bytes_max=100_000) as served:
        wire = await (await served.wire()).upgraded()
        wire.say(frame(BINARY, encode(Connect(version=V5, client_id="js"), V5)))
        granted = await wire.hear()
        assert isinstance(granted, ConnAck) and granted.properties is not None
        assert granted.properties.maximum_packet_size == 100_000


@in_loop
async def test_of_a_stranger_little_is_kept() -> None:
    async with serving_web() as served:
        wire = await (await served.wire()).upgraded()
        wire.say(frame(BINARY, bytes(200_000), fin=False))
        assert await wire.close_code() == 1009
        assert served.counted("web_socket_errors_total:message_too_big") == 1
