"""Octets to packets and back, MQTT 3.1.1 and 5, both directions (a bridge is a client).

`decode` gets the first octet and the body of one whole packet; `transport.py` finds where it ends. It
returns a value or raises `MalformedPacket`, and never touches state.

From the smallest parts (section 1.5) over the properties (section 2.2.2: one table says what each is called,
how it is written and which packets may carry it) to whole packets. Every reader takes the octets and a
position and returns a value with the position after it. Nothing here trusts a length.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from roamcast.errors import WireError
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
from roamcast.kit.tables import BoundedDict, unreported

VARIABLE_MAX = 268_435_455  # four octets of seven bits
TEXT_BYTES_MAX = 65_535


class MalformedPacket(WireError):  # noqa: N818 - the specification's own term
    """Octets from a client that are no packet, or one that is not allowed here; `reason` is for its
    DISCONNECT."""

    def __init__(
        self, field: str, octet: int, problem: str, reason: ReasonCode = ReasonCode.MALFORMED_PACKET
    ) -> None:
        super().__init__(field, octet, problem)
        self.reason = reason


def protocol_error(field: str, octet: int, problem: str) -> MalformedPacket:
    """Well formed, and still not allowed (section 4.13)."""
    return MalformedPacket(field, octet, problem, ReasonCode.PROTOCOL_ERROR)


def read_octet(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at >= len(data):
        raise MalformedPacket(field, at, "is missing")
    return data[at], at + 1


def read_two(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at + 2 > len(data):
        raise MalformedPacket(field, at, f"needs 2 octets, {max(0, len(data) - at)} left")
    return (data[at] << 8) | data[at + 1], at + 2


def read_four(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at + 4 > len(data):
        raise MalformedPacket(field, at, f"needs 4 octets, {max(0, len(data) - at)} left")
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def read_variable(data: bytes, at: int, field: str) -> tuple[int, int]:
    """A variable byte integer, at most four octets, in its shortest form (1.5.5)."""
    value = 0
    for count in range(4):
        if at + count >= len(data):
            raise MalformedPacket(field, at, "ends within its number")
        octet = data[at + count]
        value |= (octet & 0x7F) << (7 * count)
        if octet < 0x80:
            if count and not octet:
                raise MalformedPacket(field, at, "is not in its shortest form")
            return value, at + count + 1
    raise MalformedPacket(field, at, "has more than 4 octets")


def read_binary(data: bytes, at: int, field: str) -> tuple[bytes, int]:
    length, at = read_two(data, at, field)
    if at + length > len(data):
        raise MalformedPacket(field, at, f"needs {length} octets, {len(data) - at} left")
    return data[at : at + length], at + length


def read_text(data: bytes, at: int, field: str) -> tuple[str, int]:
    raw, after = read_binary(data, at, field)
    return decoded_text(raw, at + 2, field), after


def decoded_text(raw: bytes, at: int, field: str) -> str:
    """UTF-8 without surrogates and without U+0000 (1.5.4)."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket(field, at, "is not UTF-8") from None
    if "\0" in text:
        raise MalformedPacket(field, at, "holds U+0000")
    return text


def variable(value: int) -> bytes:
    """A variable byte integer in its shortest form."""
    if value < 0x80:
        return _ONE_OCTET[value]
    assert value <= VARIABLE_MAX, value
    octets = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        octets.append(low | 0x80 if value else low)
        if not value:
            return bytes(octets)


def binary(value: bytes) -> bytes:
    assert len(value) <= TEXT_BYTES_MAX, len(value)
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    return binary(value.encode())


_ONE_OCTET = [bytes([value]) for value in range(0x80)]


USER_PROPERTIES_MAX = 256  # of one packet: an event cannot have more attributes


class Form(Enum):
    OCTET = 1
    FLAG = 2  # an octet that is 0 or 1
    TWO = 3
    TWO_NOT_ZERO = 4
    FOUR = 5
    FOUR_NOT_ZERO = 6
    VARIABLE = 7
    BINARY = 8
    TEXT = 9
    PAIR = 10


class Property(NamedTuple):
    identifier: int
    field: str
    form: Form
    packets: frozenset[PacketType]


def read_properties(data: bytes, at: int, packet: PacketType) -> tuple[Properties, int]:
    """The property length and all properties, each allowed in this packet and at most once."""
    length, at = read_variable(data, at, "property length")
    end = at + length
    if end > len(data):
        raise MalformedPacket("properties", at, f"need {length} octets, {len(data) - at} left")
    found = Properties()
    if not length:
        return found, at
    within = data[:end]
    while at < end:
        identifier, after = read_variable(within, at, "property")
        known = _BY_IDENTIFIER.get(identifier)
        if known is None:
            raise MalformedPacket("property", at, f"{identifier} is unknown")
        if packet not in known.packets:
            raise protocol_error(known.field, at, f"is not allowed in {packet.name}")
        value, after = _read_value(within, after, known)
        _put(found, known, value, at)
        at = after
    return found, end


def encoded_properties(properties: Properties | None) -> bytes:
    """With their length in front."""
    if properties is None:
        return b"\0"
    parts: list[bytes] = []
    for known in TABLE:
        value = getattr(properties, known.field)
        if value is None:
            continue
        head = variable(known.identifier)
        if known.form is Form.PAIR:
            parts += [head + text(name) + text(content) for name, content in value]
        elif known.form is Form.VARIABLE:
            parts += [head + variable(number) for number in value]
        else:
            parts += [head, _WRITERS[known.form](value)]
    body = b"".join(parts)
    return variable(len(body)) + body


def _put(found: Properties, known: Property, value: Any, at: int) -> None:
    if known.form is Form.PAIR:
        if len(found.user_properties) >= USER_PROPERTIES_MAX:
            raise protocol_error(known.field, at, f"are more than {USER_PROPERTIES_MAX}")
        found.user_properties.append(value)
    elif known.form is Form.VARIABLE:
        if len(found.subscription_identifiers) >= USER_PROPERTIES_MAX:
            raise protocol_error(known.field, at, f"are more than {USER_PROPERTIES_MAX}")
        found.subscription_identifiers.append(value)
    elif getattr(found, known.field) is not None:
        raise protocol_error(known.field, at, "occurs twice")
    else:
        setattr(found, known.field, value)


def _read_value(data: bytes, at: int, known: Property) -> tuple[Any, int]:
    name = known.field
    match known.form:
        case Form.OCTET:
            return read_octet(data, at, name)
        case Form.FLAG:
            flag, after = read_octet(data, at, name)
            if flag > 1:
                raise protocol_error(name, at, f"is {flag}, not 0 or 1")
            return flag, after
        case Form.TWO:
            return read_two(data, at, name)
        case Form.TWO_NOT_ZERO | Form.FOUR_NOT_ZERO | Form.VARIABLE:
            reader = {Form.TWO_NOT_ZERO: read_two, Form.FOUR_NOT_ZERO: read_four}.get(
                known.form, read_variable
            )
            number, after = reader(data, at, name)
            if not number:
                raise protocol_error(name, at, "must not be 0")
            return number, after
        case Form.FOUR:
            return read_four(data, at, name)
        case Form.BINARY:
            return read_binary(data, at, name)
        case Form.TEXT:
            return read_text(data, at, name)
        case Form.PAIR:
            first, after = read_text(data, at, name)
            second, after = read_text(data, after, name)
            return (first, second), after


_WRITERS: dict[Form, Callable[[Any], bytes]] = {
    Form.OCTET: lambda value: bytes([value]),
    Form.FLAG: lambda value: bytes([value]),
    Form.TWO: lambda value: int(value).to_bytes(2, "big"),
    Form.TWO_NOT_ZERO: lambda value: int(value).to_bytes(2, "big"),
    Form.FOUR: lambda value: int(value).to_bytes(4, "big"),
    Form.FOUR_NOT_ZERO: lambda value: int(value).to_bytes(4, "big"),
    Form.BINARY: binary,
    Form.TEXT: text,
}


def _property(identifier: int, field: str, form: Form, *packets: PacketType) -> Property:
    return Property(identifier, field, form, frozenset(packets))


_P = PacketType
_ACKNOWLEDGEMENTS = (_P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP, _P.SUBACK, _P.UNSUBACK)
_REASONED = (_P.CONNACK, *_ACKNOWLEDGEMENTS, _P.DISCONNECT, _P.AUTH)

TABLE = (  # section 2.2.2.2, table 2-4
    _property(1, "payload_format", Form.FLAG, _P.PUBLISH, _P.WILL),
    _property(2, "message_expiry", Form.FOUR, _P.PUBLISH, _P.WILL),
    _property(3, "content_type", Form.TEXT, _P.PUBLISH, _P.WILL),
    _property(8, "response_topic", Form.TEXT, _P.PUBLISH, _P.WILL),
    _property(9, "correlation_data", Form.BINARY, _P.PUBLISH, _P.WILL),
    _property(11, "subscription_identifiers", Form.VARIABLE, _P.PUBLISH, _P.SUBSCRIBE),
    _property(17, "session_expiry", Form.FOUR, _P.CONNECT, _P.CONNACK, _P.DISCONNECT),
    _property(18, "assigned_client_id", Form.TEXT, _P.CONNACK),
    _property(19, "server_keep_alive", Form.TWO, _P.CONNACK),
    _property(21, "authentication_method", Form.TEXT, _P.CONNECT, _P.CONNACK, _P.AUTH),
    _property(22, "authentication_data", Form.BINARY, _P.CONNECT, _P.CONNACK, _P.AUTH),
    _property(23, "request_problem_information", Form.FLAG, _P.CONNECT),
    _property(24, "will_delay", Form.FOUR, _P.WILL),
    _property(25, "request_response_information", Form.FLAG, _P.CONNECT),
    _property(26, "response_information", Form.TEXT, _P.CONNACK),
    _property(28, "server_reference", Form.TEXT, _P.CONNACK, _P.DISCONNECT),
    _property(31, "reason_string", Form.TEXT, *_REASONED),
    _property(33, "receive_maximum", Form.TWO_NOT_ZERO, _P.CONNECT, _P.CONNACK),
    _property(34, "topic_alias_maximum", Form.TWO, _P.CONNECT, _P.CONNACK),
    _property(35, "topic_alias", Form.TWO, _P.PUBLISH),  # 0 has a reason code of its own
    _property(36, "maximum_qos", Form.FLAG, _P.CONNACK),
    _property(37, "retain_available", Form.FLAG, _P.CONNACK),
    _property(
        38,
        "user_properties",
        Form.PAIR,
        *(_P.CONNECT, _P.PUBLISH, _P.WILL, _P.SUBSCRIBE, _P.UNSUBSCRIBE),
        *_REASONED,
    ),
    _property(39, "maximum_packet_size", Form.FOUR_NOT_ZERO, _P.CONNECT, _P.CONNACK),
    _property(40, "wildcards_available", Form.FLAG, _P.CONNACK),
    _property(41, "subscription_identifiers_available", Form.FLAG, _P.CONNACK),
    _property(42, "shared_subscriptions_available", Form.FLAG, _P.CONNACK),
)
_BY_IDENTIFIER = {known.identifier: known for known in TABLE}


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


PING_RESPONSE = b"\xd0\x00"
_ACKNOWLEDGED = {type: bytes((type << 4 | (2 if type is PacketType.PUBREL else 0), 2)) for type in PacketType}


def encode(packet: Packet, version: int) -> bytes:
    """One whole packet for a client or server of this version."""
    match packet:
        case Connect():
            return _framed(PacketType.CONNECT << 4, _encoded_connect(packet))
        case ConnAck(session_present, reason, properties):
            body = bytes([session_present, reason]) + _encoded(properties, version)
            return _framed(PacketType.CONNACK << 4, body)
        case Publish():
            return encode_publish(packet, version)
        case Acknowledge(type, packet_id, reason, properties):
            flags = 2 if type is PacketType.PUBREL else 0
            return _framed(type << 4 | flags, _id(packet_id) + _reasoned(reason, properties, version))
        case Subscribe(packet_id, requests, properties):
            parts = [_id(packet_id), _encoded(properties, version)]
            for request in requests:
                options = request.qos | request.no_local << 2 | request.retain_as_published << 3
                parts += [text(request.filter), bytes([options | request.retain_handling << 4])]
            return _framed(PacketType.SUBSCRIBE << 4 | 2, b"".join(parts))
        case SubAck(packet_id, reasons, properties):
            body = _id(packet_id) + _encoded(properties, version) + bytes(reasons)
            return _framed(PacketType.SUBACK << 4, body)
        case Unsubscribe(packet_id, filters, properties):
            parts = [_id(packet_id), _encoded(properties, version), *map(text, filters)]
            return _framed(PacketType.UNSUBSCRIBE << 4 | 2, b"".join(parts))
        case UnsubAck(packet_id, reasons, properties):
            more = _encoded(properties, version) + bytes(reasons) if version == V5 else b""
            return _framed(PacketType.UNSUBACK << 4, _id(packet_id) + more)
        case PingRequest():
            return b"\xc0\x00"
        case PingResponse():
            return PING_RESPONSE
        case Disconnect(reason, properties):
            return _framed(PacketType.DISCONNECT << 4, _reasoned(reason, properties, version))
        case Auth(reason, properties):
            return _framed(PacketType.AUTH << 4, _reasoned(reason, properties, version))


def encode_publish(packet: Publish, version: int) -> bytes:
    first = PacketType.PUBLISH << 4 | packet.duplicate << 3 | packet.qos << 1 | packet.retain
    identifier = _id(packet.packet_id) if packet.qos else b""
    properties = _encoded(packet.properties, version)
    return _framed(first, b"".join((text(packet.topic), identifier, properties, packet.payload)))


def acknowledgement(type: PacketType, packet_id: int) -> bytes:
    """The short form of success: the same four octets in both versions."""
    return _ACKNOWLEDGED[type] + packet_id.to_bytes(2, "big")


def _encoded_connect(packet: Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    parts = [text("MQTT"), bytes([packet.version, flags]), packet.keep_alive.to_bytes(2, "big")]
    parts += [_encoded(packet.properties, packet.version), text(packet.client_id)]
    if will is not None:
        parts += [_encoded(will.properties, packet.version), text(will.topic), binary(will.payload)]
    if packet.username is not None:
        parts.append(text(packet.username))
    if packet.password is not None:
        parts.append(binary(packet.password))
    return b"".join(parts)


def _reasoned(reason: int, properties: Properties | None, version: int) -> bytes:
    if version != V5 or (not reason and properties is None):
        return b""  # success without properties may be left out (3.4.2.1, 3.14.2.1)
    return bytes([reason]) + (b"" if properties is None else encoded_properties(properties))


def _encoded(properties: Properties | None, version: int) -> bytes:
    return encoded_properties(properties) if version == V5 else b""


def _id(packet_id: int) -> bytes:
    return packet_id.to_bytes(2, "big")


def _framed(first: int, body: bytes) -> bytes:
    return bytes([first]) + variable(len(body)) + body
