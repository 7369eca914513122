"""Octets to packets, MQTT 3.1.1 and 5, both directions (the tests' client reads what a server sends).

`decode` gets the first octet and the body of one whole packet; `transport.py` finds where it ends. It
returns a value or raises `MalformedPacket`, and never touches state.
"""

from collections.abc import Callable

from roamcast.gateway.mqtt.packets.primitives import (
    MalformedPacket,
    decoded_text,
    protocol_error,
    read_binary,
    read_octet,
    read_text,
    read_two,
)
from roamcast.gateway.mqtt.packets.properties import PacketType, Properties, read_properties
from roamcast.gateway.mqtt.packets.reasons import ReasonCode
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingRequest,
    PingResponse,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    UnsubAck,
    Unsubscribe,
    Will,
)
from roamcast.kit.tables import BoundedDict, unreported

# Chosen by us.
FILTERS_MAX = 1024  # of one SUBSCRIBE or UNSUBSCRIBE
TOPICS_KNOWN_MAX = 1024  # decoded ones; most messages come on the topics of the last ones

_topics: BoundedDict[bytes, str] = BoundedDict(TOPICS_KNOWN_MAX, unreported)


def decode(first: int, body: bytes, version: int) -> Packet:
    """One packet. `version` is what CONNECT said; it does not matter for CONNECT itself."""
    kind = first >> 4
    if kind == PacketType.PUBLISH:
        return decode_publish(first, body, version)
    decoder = _DECODERS.get(kind)
    if decoder is None or (kind == PacketType.AUTH and version != V5):
        raise MalformedPacket("packet type", 0, f"{kind} is reserved")
    wanted_flags = 2 if kind in _FLAGS_OF_TWO else 0
    if first & 0x0F != wanted_flags:
        raise MalformedPacket("flags", 0, f"are {first & 0x0F}, must be {wanted_flags} here")
    return decoder(kind, body, version)


def decode_publish(first: int, body: bytes, version: int) -> Publish:
    """The most frequent packet: its usual parts are read here, without a call for each."""
    qos = (first >> 1) & 3
    if qos == 3:
        raise MalformedPacket("QoS", 0, "is 3")
    if first & 0x08 and not qos:
        raise MalformedPacket("DUP", 0, "must not be set with QoS 0")
    if len(body) < 2:
        raise MalformedPacket("topic name", 0, f"needs 2 octets, {len(body)} left")
    at = 2 + (body[0] << 8 | body[1])
    if at > len(body):
        raise MalformedPacket("topic name", 2, f"needs {at - 2} octets, {len(body) - 2} left")
    raw = body[2:at]
    topic = _topics.get(raw)
    if topic is None:
        topic = _topics[raw] = decoded_text(raw, 2, "topic name")
    packet_id = 0
    if qos:
        packet_id, at = _packet_id(body, at)
    properties: Properties | None = None
    if version == V5:
        if at < len(body) and not body[at]:
            at += 1  # no properties: the usual case
        else:
            properties, at = read_properties(body, at, PacketType.PUBLISH)
    return Publish(topic, body[at:], qos, first & 1 != 0, first & 8 != 0, packet_id, properties)


def _connect(kind: int, body: bytes, version: int) -> Connect:
    name, at = read_text(body, 0, "protocol name")
    level, at = read_octet(body, at, "protocol level")
    if name != "MQTT":
        raise MalformedPacket("protocol name", 0, f"is {name[:20]!r}", ReasonCode.UNSUPPORTED_VERSION)
    if level not in (V3_1_1, V5):
        raise MalformedPacket("protocol level", at - 1, f"is {level}", ReasonCode.UNSUPPORTED_VERSION)
    flags, at = read_octet(body, at, "connect flags")
    if flags & 1:
        raise MalformedPacket("connect flags", at - 1, "have the reserved bit set")
    keep_alive, at = read_two(body, at, "keep alive")
    properties: Properties | None = None
    if level == V5:
        properties, at = read_properties(body, at, PacketType.CONNECT)
        if properties.authentication_data is not None and properties.authentication_method is None:
            raise protocol_error("authentication_data", at, "comes without a method")
    client_id, at = read_text(body, at, "client identifier")
    will, at = _will(body, at, flags, level)
    username: str | None = None
    password: bytes | None = None
    if flags & 0x80:
        username, at = read_text(body, at, "user name")
    if flags & 0x40:
        if level == V3_1_1 and not flags & 0x80:
            raise MalformedPacket("connect flags", at, "have a password without a user name")
        password, at = read_binary(body, at, "password")
    _at_end(body, at)
    return Connect(
        version=level,
        client_id=client_id,
        clean_start=bool(flags & 2),
        keep_alive=keep_alive,
        will=will,
        username=username,
        password=password,
        properties=properties,
    )


def _will(body: bytes, at: int, flags: int, level: int) -> tuple[Will | None, int]:
    qos = (flags >> 3) & 3
    if not flags & 4:
        if flags & 0x38:
            raise MalformedPacket("connect flags", at, "have will bits without a will")
        return None, at
    if qos == 3:
        raise MalformedPacket("will QoS", at, "is 3")
    properties: Properties | None = None
    if level == V5:
        properties, at = read_properties(body, at, PacketType.WILL)
    topic, at = read_text(body, at, "will topic")
    payload, at = read_binary(body, at, "will payload")
    return Will(topic, payload, qos, bool(flags & 0x20), properties), at


def _connack(kind: int, body: bytes, version: int) -> ConnAck:
    flags, at = read_octet(body, 0, "acknowledge flags")
    if flags > 1:
        raise MalformedPacket("acknowledge flags", 0, f"are {flags}")
    reason, at = read_octet(body, at, "reason")
    properties, at = _properties(body, at, version, PacketType.CONNACK)
    _at_end(body, at)
    return ConnAck(bool(flags), reason, properties)


def _acknowledge(kind: int, body: bytes, version: int) -> Acknowledge:
    packet_id, at = _packet_id(body, 0)
    reason, properties = 0, None
    if version == V5 and at < len(body):  # both may be left out (3.4.2.1)
        reason, at = read_octet(body, at, "reason")
        if at < len(body):
            properties, at = read_properties(body, at, PacketType(kind))
    _at_end(body, at)
    return Acknowledge(PacketType(kind), packet_id, reason, properties)


def _subscribe(kind: int, body: bytes, version: int) -> Subscribe:
    packet_id, at = _packet_id(body, 0)
    properties, at = _properties(body, at, version, PacketType.SUBSCRIBE)
    if properties is not None and len(properties.subscription_identifiers) > 1:
        raise protocol_error("subscription_identifiers", at, "occurs twice")
    requests: list[SubscriptionRequest] = []
    while at < len(body):
        filter, at = read_text(body, at, "topic filter")
        options, at = read_octet(body, at, "subscription options")
        if not _options_allowed(options, version):
            raise MalformedPacket("subscription options", at - 1, f"are {options:#04x}")
        requests.append(
            SubscriptionRequest(filter, options & 3, bool(options & 4), bool(options & 8), (options >> 4) & 3)
        )
    _some(requests, at)
    return Subscribe(packet_id, tuple(requests), properties)


def _options_allowed(options: int, version: int) -> bool:
    if version == V5:
        return not options & 0xC0 and options & 0x03 != 3 and options & 0x30 != 0x30
    return options <= 2


def _suback(kind: int, body: bytes, version: int) -> SubAck:
    packet_id, at = _packet_id(body, 0)
    properties, at = _properties(body, at, version, PacketType.SUBACK)
    return SubAck(packet_id, tuple(body[at:]), properties)


def _unsubscribe(kind: int, body: bytes, version: int) -> Unsubscribe:
    packet_id, at = _packet_id(body, 0)
    properties, at = _properties(body, at, version, PacketType.UNSUBSCRIBE)
    filters: list[str] = []
    while at < len(body):
        filter, at = read_text(body, at, "topic filter")
        filters.append(filter)
    _some(filters, at)
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(kind: int, body: bytes, version: int) -> UnsubAck:
    packet_id, at = _packet_id(body, 0)
    properties, at = _properties(body, at, version, PacketType.UNSUBACK)
    if version != V5:
        _at_end(body, at)
    return UnsubAck(packet_id, tuple(body[at:]), properties)


def _ping_request(kind: int, body: bytes, version: int) -> PingRequest:
    _at_end(body, 0)
    return PingRequest()


def _ping_response(kind: int, body: bytes, version: int) -> PingResponse:
    _at_end(body, 0)
    return PingResponse()


def _disconnect(kind: int, body: bytes, version: int) -> Disconnect:
    if version != V5:
        _at_end(body, 0)
        return Disconnect()
    return Disconnect(*_reason_and_properties(body, PacketType.DISCONNECT))


def _auth(kind: int, body: bytes, version: int) -> Auth:
    return Auth(*_reason_and_properties(body, PacketType.AUTH))


def _reason_and_properties(body: bytes, packet: PacketType) -> tuple[int, Properties | None]:
    if not body:
        return 0, None
    reason, at = read_octet(body, 0, "reason")
    properties: Properties | None = None
    if at < len(body):
        properties, at = read_properties(body, at, packet)
    _at_end(body, at)
    return reason, properties


def _properties(body: bytes, at: int, version: int, packet: PacketType) -> tuple[Properties | None, int]:
    return read_properties(body, at, packet) if version == V5 else (None, at)


def _packet_id(body: bytes, at: int) -> tuple[int, int]:
    packet_id, after = read_two(body, at, "packet identifier")
    if not packet_id:
        raise MalformedPacket("packet identifier", at, "must not be 0")
    return packet_id, after


def _some(items: list[str] | list[SubscriptionRequest], at: int) -> None:
    if not items:
        raise protocol_error("topic filters", at, "are missing; there must be at least one")
    if len(items) > FILTERS_MAX:
        raise protocol_error("topic filters", at, f"are more than {FILTERS_MAX}")


def _at_end(body: bytes, at: int) -> None:
    if at != len(body):
        raise MalformedPacket("packet", at, f"has {len(body) - at} octets too many")


_FLAGS_OF_TWO = frozenset((PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE))
_DECODERS: dict[int, Callable[[int, bytes, int], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _acknowledge,
    PacketType.PUBREC: _acknowledge,
    PacketType.PUBREL: _acknowledge,
    PacketType.PUBCOMP: _acknowledge,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: _ping_request,
    PacketType.PINGRESP: _ping_response,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
