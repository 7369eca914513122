"""The octets: vectors written by hand from the specifications, round trips, and any bytes at all."""

import importlib.util
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roamcast.gateway.mqtt.packets.codec import (
    TABLE,
    Form,
    MalformedPacket,
    PacketReader,
    decode,
    encode,
    variable,
)
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingRequest,
    PingResponse,
    Properties,
    Publish,
    ReasonCode,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    UnsubAck,
    Unsubscribe,
    Will,
)

# Each by hand from the figures of the specification: (version, octets, packet).
VECTORS: list[tuple[int, str, Packet]] = [
    # 3.1.1, figure 3.6: user name, password, will of QoS 1, clean session, keep alive 10.
    (
        V3_1_1,
        "10 26 0004 4d515454 04 ce 000a 0003 616263 0003 772f74 0004 676f6e65 0006 72c3a4696e69 0002 0102",
        Connect(
            version=4,
            client_id="abc",
            keep_alive=10,
            will=Will("w/t", b"gone", 1),
            username="räini",
            password=b"\x01\x02",
        ),
    ),
    (
        V5,
        "10 25 0004 4d515454 05 06 003c 05 11 0000000a 0001 63 09 03 0001 78 18 00000005 0001 74 0003 627965",
        Connect(
            version=5,
            client_id="c",
            keep_alive=60,
            will=Will("t", b"bye", 0, False, Properties(will_delay=5, content_type="x")),
            properties=Properties(session_expiry=10),
        ),
    ),
    (V3_1_1, "20 02 01 00", ConnAck(True, 0)),
    (
        V5,
        "20 0b 00 00 08 21 0064 27 0000ea60",
        ConnAck(False, 0, Properties(receive_maximum=100, maximum_packet_size=60_000)),
    ),
    # 3.1.1, figure 3.11: topic a/b, packet identifier 10.
    (
        V3_1_1,
        "32 09 0003 612f62 000a 6869",
        Publish(topic="a/b", payload=b"hi", qos=1, packet_id=10),
    ),
    (
        V3_1_1,
        "3d 07 0003 612f62 000a",
        Publish(topic="a/b", qos=2, packet_id=10, duplicate=True, retain=True),
    ),
    (
        V5,
        "31 1a 0003 612f62 13 02 00000007 0b 8001 23 0002 26 0001 6b 0002 7631 21",
        Publish(
            topic="a/b",
            payload=b"!",
            retain=True,
            properties=Properties(
                message_expiry=7, topic_alias=2, user_properties=[("k", "v1")], subscription_identifiers=[128]
            ),
        ),
    ),
    (V3_1_1, "40 02 1234", Acknowledge(PacketType.PUBACK, 0x1234)),
    (V5, "40 03 1234 10", Acknowledge(PacketType.PUBACK, 0x1234, 0x10)),
    (V5, "62 02 0001", Acknowledge(PacketType.PUBREL, 1)),
    # 3.1.1, figure 3.23: a/b with QoS 1 and c/d with QoS 2.
    (
        V3_1_1,
        "82 0e 000a 0003 612f62 01 0003 632f64 02",
        Subscribe(10, (SubscriptionRequest("a/b", 1), SubscriptionRequest("c/d", 2))),
    ),
    (
        V5,
        "82 09 000a 02 0b 05 0001 23 2d",
        Subscribe(
            10, (SubscriptionRequest("#", 1, True, True, 2),), Properties(subscription_identifiers=[5])
        ),
    ),
    (V3_1_1, "90 05 000a 00 02 80", SubAck(10, (0, 2, 0x80))),
    (V5, "a2 06 0001 00 0001 61", Unsubscribe(1, ("a",), Properties())),
    (V5, "b0 04 0001 00 11", UnsubAck(1, (0x11,), Properties())),
    (V3_1_1, "b0 02 0001", UnsubAck(1)),
    (V3_1_1, "c0 00", PingRequest()),
    (V3_1_1, "d0 00", PingResponse()),
    (V3_1_1, "e0 00", Disconnect()),
    (V5, "e0 07 04 05 11 ffffffff", Disconnect(4, Properties(session_expiry=0xFFFF_FFFF))),
    (V5, "f0 00", Auth()),
]


def split(data: bytes) -> tuple[int, bytes]:
    reader = PacketReader(data, at=1)
    length, at = reader.variable("remaining length"), reader.at
    assert len(data) == at + length
    return data[0], data[at:]


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS, ids=lambda value: str(value)[:40])
def test_a_packet_is_these_octets_and_back(version: int, octets: str, packet: Packet) -> None:
    data = bytes.fromhex(octets)
    found = decode(*split(data), version)
    assert encode(found, version) == data
    assert encode(packet, version) == data


@pytest.mark.parametrize(
    ("value", "octets"),
    # MQTT 5.0, table 1-1: the bounds of each length.
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_variable_byte_integers(value: int, octets: str) -> None:
    assert variable(value).hex() == octets
    reader = PacketReader(bytes.fromhex(octets))
    assert (reader.variable("number"), reader.left) == (value, 0)


@pytest.mark.parametrize(
    ("version", "octets", "reason"),
    [
        (V3_1_1, "10 0c 0004 4d515454 04 03 0000 0000", ReasonCode.MALFORMED_PACKET),  # the reserved flag
        (V3_1_1, "10 0c 0004 4d515454 03 02 0000 0000", ReasonCode.UNSUPPORTED_VERSION),
        (V3_1_1, "10 0e 0006 4d5149736470 04 02 0000 0000", ReasonCode.UNSUPPORTED_VERSION),
        (V3_1_1, "10 0c 0004 4d515454 04 42 0000 0000", ReasonCode.MALFORMED_PACKET),  # password, no user
        (V3_1_1, "36 05 0001 61 0001", ReasonCode.MALFORMED_PACKET),  # QoS 3
        (V3_1_1, "32 05 0001 61 0000", ReasonCode.MALFORMED_PACKET),  # packet identifier 0
        (V3_1_1, "38 03 0001 61", ReasonCode.MALFORMED_PACKET),  # DUP with QoS 0
        (V3_1_1, "30 04 0002 c328", ReasonCode.MALFORMED_PACKET),  # not UTF-8
        (V3_1_1, "30 05 0003 eda080", ReasonCode.MALFORMED_PACKET),  # half a surrogate pair
        (V3_1_1, "30 03 0001 00", ReasonCode.MALFORMED_PACKET),  # U+0000
        (V3_1_1, "30 03 0009 61", ReasonCode.MALFORMED_PACKET),  # a text longer than the packet
        (V3_1_1, "80 06 0001 0001 61 00", ReasonCode.MALFORMED_PACKET),  # flags of SUBSCRIBE
        (V3_1_1, "82 02 0001", ReasonCode.PROTOCOL_ERROR),  # no filter
        (V3_1_1, "82 06 0001 0001 61 03", ReasonCode.MALFORMED_PACKET),  # QoS 3
        (V3_1_1, "82 06 0001 0001 61 04", ReasonCode.MALFORMED_PACKET),  # no-local in 3.1.1
        (V3_1_1, "c0 01 00", ReasonCode.MALFORMED_PACKET),  # PINGREQ has no body
        (V3_1_1, "f0 00", ReasonCode.MALFORMED_PACKET),  # AUTH in 3.1.1
        (V3_1_1, "00 00", ReasonCode.MALFORMED_PACKET),
        (V5, "30 06 0001 61 02 01 02", ReasonCode.PROTOCOL_ERROR),  # payload format 2
        (V5, "30 08 0001 61 04 01 01 01 01", ReasonCode.PROTOCOL_ERROR),  # twice
        (V5, "30 09 0001 61 05 11 00000001", ReasonCode.PROTOCOL_ERROR),  # a property of CONNECT
        (V5, "30 06 0001 61 02 7e 00", ReasonCode.MALFORMED_PACKET),  # no such property
        (V5, "30 05 0001 61 03 01", ReasonCode.MALFORMED_PACKET),  # properties longer than the packet
        (V5, "30 06 0001 61 8000 01", ReasonCode.MALFORMED_PACKET),  # a length that is not the shortest
        (V5, "82 0a 0001 02 0b 00 0001 61 00", ReasonCode.PROTOCOL_ERROR),  # subscription identifier 0
        (V5, "82 07 0001 00 0001 61 30", ReasonCode.MALFORMED_PACKET),  # retain handling 3
    ],
)
def test_what_is_no_packet_has_a_reason(version: int, octets: str, reason: ReasonCode) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(MalformedPacket) as caught:
        decode(data[0], data[2:], version)
    assert caught.value.reason is reason


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_VALUES: dict[Form, st.SearchStrategy[Any]] = {
    Form.OCTET: st.integers(0, 255),
    Form.FLAG: st.integers(0, 1),
    Form.TWO: st.integers(0, 0xFFFF),
    Form.TWO_NOT_ZERO: st.integers(1, 0xFFFF),
    Form.FOUR: st.integers(0, 0xFFFF_FFFF),
    Form.FOUR_NOT_ZERO: st.integers(1, 0xFFFF_FFFF),
    Form.VARIABLE: st.lists(st.integers(1, 268_435_455), max_size=1),
    Form.BINARY: st.binary(max_size=20),
    Form.TEXT: texts,
    Form.PAIR: st.lists(st.tuples(texts, texts), max_size=3),
}


def properties_of(packet: PacketType) -> st.SearchStrategy[Properties]:
    fields = {known.field: _VALUES[known.form] for known in TABLE if packet in known.packets}
    return st.fixed_dictionaries({}, optional=fields).map(lambda found: Properties(**found))


@st.composite
def packets(draw: st.DrawFn, kinds: tuple[PacketType, ...] = tuple(PacketType)[1:]) -> Packet:
    """Any packet of MQTT 5."""
    p = PacketType
    kind = draw(st.sampled_from(kinds))
    properties = draw(properties_of(kind)) if kind not in (p.PINGREQ, p.PINGRESP) else Properties()
    identifier = draw(st.integers(1, 65_535))
    reason = draw(st.integers(0, 255))
    match kind:
        case p.CONNECT:
            if properties.authentication_data is not None and properties.authentication_method is None:
                properties.authentication_method = "m"
            will = None
            if draw(st.booleans()):
                qos, retain = draw(st.integers(0, 2)), draw(st.booleans())
                payload = draw(st.binary(max_size=10))
                will = Will(draw(texts), payload, qos, retain, draw(properties_of(p.WILL)))
            return Connect(
                version=V5,
                client_id=draw(texts),
                clean_start=draw(st.booleans()),
                keep_alive=draw(st.integers(0, 65_535)),
                will=will,
                username=draw(st.none() | texts),
                password=draw(st.none() | st.binary(max_size=10)),
                properties=properties,
            )
        case p.CONNACK:
            return ConnAck(draw(st.booleans()), reason, properties)
        case p.PUBLISH:
            qos = draw(st.integers(0, 2))
            return Publish(
                topic=draw(texts),
                payload=draw(st.binary(max_size=300)),
                qos=qos,
                retain=draw(st.booleans()),
                duplicate=bool(qos) and draw(st.booleans()),
                packet_id=identifier if qos else 0,
                properties=None if properties == Properties() else properties,
            )
        case p.PUBACK | p.PUBREC | p.PUBREL | p.PUBCOMP:
            return Acknowledge(kind, identifier, reason, properties)
        case p.SUBSCRIBE:
            request = st.builds(
                SubscriptionRequest,
                texts,
                st.integers(0, 2),
                st.booleans(),
                st.booleans(),
                st.integers(0, 2),
            )
            return Subscribe(identifier, tuple(draw(st.lists(request, min_size=1, max_size=3))), properties)
        case p.SUBACK:
            return SubAck(identifier, tuple(draw(st.binary(max_size=4))), properties)
        case p.UNSUBSCRIBE:
            return Unsubscribe(identifier, tuple(draw(st.lists(texts, min_size=1, max_size=3))), properties)
        case p.UNSUBACK:
            return UnsubAck(identifier, tuple(draw(st.binary(max_size=4))), properties)
        case p.PINGREQ:
            return PingRequest()
        case p.PINGRESP:
            return PingResponse()
        case p.DISCONNECT:
            return Disconnect(reason, properties)
        case _:
            return Auth(reason, properties)


@settings(max_examples=300)
@given(packets())
def test_every_packet_comes_back_as_it_was(packet: Packet) -> None:
    assert decode(*split(encode(packet, V5)), V5) == packet


@settings(max_examples=500)
@given(st.integers(0, 255), st.binary(max_size=64), st.sampled_from([V3_1_1, V5]))
def test_any_bytes_are_a_packet_or_malformed(first: int, body: bytes, version: int) -> None:
    with suppress(MalformedPacket):
        packet = decode(first, body, version)
        again = encode(packet, packet.version if isinstance(packet, Connect) else version)
        assert decode(*split(again), version) == packet


@settings(max_examples=300)
@given(packets(), st.data())
def test_a_packet_with_octets_changed_is_a_packet_or_malformed(packet: Packet, data: st.DataObject) -> None:
    first, body = split(encode(packet, V5))
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    with suppress(MalformedPacket):
        decode(first, bytes(changed[:cut]), V5)


without_oracle = pytest.mark.skipif(
    importlib.util.find_spec("mqtt5") is None, reason="the oracle mqtt5 is not installed"
)


def through_the_oracle(packet: Packet) -> bytes:
    """Our octets read and written again by an independent codec."""
    oracle: Any = importlib.import_module("mqtt5")
    ours = encode(packet, V5)
    theirs, used = oracle.read(ours)
    assert used == len(ours)
    return bytes(theirs.write())


@without_oracle
@settings(max_examples=200)
@given(packets(kinds=(PacketType.PUBLISH,)))
def test_an_independent_codec_reads_our_publish_and_writes_the_same(packet: Packet) -> None:
    assert isinstance(packet, Publish)
    properties = packet.properties or Properties()
    assume(packet.topic and properties.topic_alias != 0)
    again = decode(*split(through_the_oracle(packet)), V5)
    assert isinstance(again, Publish)
    if properties.payload_format == 0:
        properties.payload_format = None  # the default, which it leaves out
    assert (again.properties or Properties()) == properties
    assert msgspec.structs.replace(again, properties=packet.properties) == packet


@without_oracle
@pytest.mark.parametrize(
    "packet",
    [packet for version, _, packet in VECTORS if version == V5 and not isinstance(packet, Publish | Auth)],
    ids=str,
)
def test_an_independent_codec_reads_our_other_packets(packet: Packet) -> None:
    assert encode(decode(*split(through_the_oracle(packet)), V5), V5) == encode(packet, V5)
