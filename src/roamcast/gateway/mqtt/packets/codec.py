"""Octets to packets and back, MQTT 3.1.1 and 5, both directions (a bridge is a client).

`decode` gets the first octet and the body of one whole packet; `transport.py` finds where it ends. It
returns a value or raises `MalformedPacket`, and never touches state.

From the smallest parts (section 1.5) over the properties (section 2.2.2: one table says what each is called,
how it is written and which packets may carry it) to whole packets. Nothing here trusts a length.
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


class PacketReader:
    """Reads the body of a packet from front to back."""

    def __init__(self, data: bytes, version: int = V5, at: int = 0) -> None:
        self.data = data
        self.version = version
        self.at = at

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def octets(self, count: int, field: str) -> bytes:
        if count > self.left:
            raise MalformedPacket(field, self.at, f"needs {count} octets, {self.left} left")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, octets: int, field: str) -> int:
        return int.from_bytes(self.octets(octets, field), "big")

    def variable(self, field: str) -> int:
        """A variable byte integer, at most four octets, in its shortest form (1.5.5)."""
        value = 0
        for count in range(4):
            octet = self.number(1, field)
            value |= (octet & 0x7F) << (7 * count)
            if octet < 0x80:
                if count and not octet:
                    raise MalformedPacket(field, self.at, "is not in its shortest form")
                return value
        raise MalformedPacket(field, self.at, "has more than 4 octets")

    def binary(self, field: str) -> bytes:
        return self.octets(self.number(2, field), field)

    def text(self, field: str) -> str:
        return decoded_text(self.binary(field), self.at, field)

    def pair(self, field: str) -> tuple[str, str]:
        return self.text(field), self.text(field)

    def flag(self, field: str) -> int:
        flag = self.number(1, field)
        if flag > 1:
            raise protocol_error(field, self.at, f"is {flag}, not 0 or 1")
        return flag

    def packet_id(self) -> int:
        packet_id = self.number(2, "packet identifier")
        if not packet_id:
            raise MalformedPacket("packet identifier", self.at, "must not be 0")
        return packet_id

    def properties(self, packet: PacketType) -> Properties | None:
        """All properties, each allowed in this packet and at most once; None before MQTT 5."""
        if self.version != V5:
            return None
        within = PacketReader(self.octets(self.variable("property length"), "properties"))
        found = Properties()
        while within.left:
            known = _BY_IDENTIFIER.get(identifier := within.variable("property"))
            if known is None:
                raise MalformedPacket("property", within.at, f"{identifier} is unknown")
            if packet not in known.packets:
                raise protocol_error(known.field, within.at, f"is not allowed in {packet.name}")
            _put(found, known, known.form.read(within, known.field), within.at)
        return found

    def end(self) -> None:
        if self.left:
            raise MalformedPacket("packet", self.at, f"has {self.left} octets too many")


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
    """How a property is read and written."""

    OCTET = (lambda reader, field: reader.number(1, field), lambda value: bytes([value]))
    FLAG = (PacketReader.flag, lambda value: bytes([value]))  # an octet that is 0 or 1
    TWO = (lambda reader, field: reader.number(2, field), lambda value: value.to_bytes(2, "big"))
    TWO_NOT_ZERO = (lambda reader, field: _not_zero(reader.number(2, field), field), TWO[1])
    FOUR = (lambda reader, field: reader.number(4, field), lambda value: value.to_bytes(4, "big"))
    FOUR_NOT_ZERO = (lambda reader, field: _not_zero(reader.number(4, field), field), FOUR[1])
    VARIABLE = (lambda reader, field: _not_zero(reader.variable(field), field), variable)
    BINARY = (PacketReader.binary, binary)
    TEXT = (PacketReader.text, text)
    PAIR = (PacketReader.pair, lambda value: text(value[0]) + text(value[1]))

    def __init__(self, read: Callable[[PacketReader, str], Any], write: Callable[[Any], bytes]) -> None:
        self.read = read
        self.write = write
        self.is_repeated = write is variable or read is PacketReader.pair


def _not_zero(number: int, field: str) -> int:
    if not number:
        raise protocol_error(field, 0, "must not be 0")
    return number


class Property(NamedTuple):
    identifier: int
    field: str
    form: Form
    packets: frozenset[PacketType]


def encoded_properties(properties: Properties | None) -> bytes:
    """The properties as octets, with their length in front."""
    parts: list[bytes] = []
    for known in TABLE if properties is not None else ():
        value = getattr(properties, known.field)
        for one in value if known.form.is_repeated else [] if value is None else [value]:
            parts += [variable(known.identifier), known.form.write(one)]
    body = b"".join(parts)
    return variable(len(body)) + body


def _put(found: Properties, known: Property, value: Any, at: int) -> None:
    before = getattr(found, known.field)
    if known.form.is_repeated:
        if len(before) >= USER_PROPERTIES_MAX:
            raise protocol_error(known.field, at, f"are more than {USER_PROPERTIES_MAX}")
        before.append(value)
    elif before is not None:
        raise protocol_error(known.field, at, "occurs twice")
    else:
        setattr(found, known.field, value)


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
    reader = PacketReader(body, version)
    packet = decoder(reader, PacketType(kind))
    reader.end()
    return packet


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
        at += 2
        packet_id = int.from_bytes(body[at - 2 : at], "big") if at <= len(body) else 0
        if not packet_id:
            raise MalformedPacket("packet identifier", at - 2, "is missing or 0")
    properties: Properties | None = None
    if version == V5:
        if at < len(body) and not body[at]:
            at += 1  # no properties: the usual case
        else:
            reader = PacketReader(body, V5, at)
            properties = reader.properties(PacketType.PUBLISH)
            at = reader.at
    return Publish(topic, body[at:], qos, first & 1 != 0, first & 8 != 0, packet_id, properties)


def _connect(reader: PacketReader, packet: PacketType) -> Connect:
    name, level = reader.text("protocol name"), reader.number(1, "protocol level")
    if (name, level) == ("MQIsdp", 3):  # MQTT 3.1, which OwnTracks speaks by default: its packets are 3.1.1's
        name, level = "MQTT", V3_1_1
    if name != "MQTT" or level not in (V3_1_1, V5):
        problem = f"is {level} of {name[:20]!r}"
        raise MalformedPacket("protocol level", reader.at, problem, ReasonCode.UNSUPPORTED_VERSION)
    reader.version = level
    flags = reader.number(1, "connect flags")
    if flags & 1:
        raise MalformedPacket("connect flags", reader.at, "have the reserved bit set")
    if level == V3_1_1 and flags & 0xC0 == 0x40:
        raise MalformedPacket("connect flags", reader.at, "have a password without a user name")
    keep_alive = reader.number(2, "keep alive")
    properties = reader.properties(packet)
    asked = properties or Properties()
    if asked.authentication_data is not None and asked.authentication_method is None:
        raise protocol_error("authentication_data", reader.at, "comes without a method")
    return Connect(
        version=level,
        client_id=reader.text("client identifier"),
        clean_start=bool(flags & 2),
        keep_alive=keep_alive,
        will=_will(reader, flags),
        username=reader.text("user name") if flags & 0x80 else None,
        password=reader.binary("password") if flags & 0x40 else None,
        properties=properties,
    )


def _will(reader: PacketReader, flags: int) -> Will | None:
    qos = (flags >> 3) & 3
    if not flags & 4:
        if flags & 0x38:
            raise MalformedPacket("connect flags", reader.at, "have will bits without a will")
        return None
    if qos == 3:
        raise MalformedPacket("will QoS", reader.at, "is 3")
    properties = reader.properties(PacketType.WILL)
    topic, payload = reader.text("will topic"), reader.binary("will payload")
    return Will(topic, payload, qos, bool(flags & 0x20), properties)


def _connack(reader: PacketReader, packet: PacketType) -> ConnAck:
    flags, reason = reader.number(1, "acknowledge flags"), reader.number(1, "reason")
    if flags > 1:
        raise MalformedPacket("acknowledge flags", 0, f"are {flags}")
    return ConnAck(bool(flags), reason, reader.properties(packet))


def _acknowledge(reader: PacketReader, packet: PacketType) -> Acknowledge:
    return Acknowledge(packet, reader.packet_id(), *_reason_and_properties(reader, packet))


def _subscribe(reader: PacketReader, packet: PacketType) -> Subscribe:
    packet_id, properties = reader.packet_id(), reader.properties(packet)
    if properties is not None and len(properties.subscription_identifiers) > 1:
        raise protocol_error("subscription_identifiers", reader.at, "occurs twice")
    requests: list[SubscriptionRequest] = []
    while reader.left:
        filter, options = reader.text("topic filter"), reader.number(1, "subscription options")
        if not _options_allowed(options, reader.version):
            raise MalformedPacket("subscription options", reader.at, f"are {options:#04x}")
        requests.append(
            SubscriptionRequest(filter, options & 3, bool(options & 4), bool(options & 8), (options >> 4) & 3)
        )
    _check_count(len(requests))
    return Subscribe(packet_id, tuple(requests), properties)


def _options_allowed(options: int, version: int) -> bool:
    if version == V5:
        return not options & 0xC0 and options & 0x03 != 3 and options & 0x30 != 0x30
    return options <= 2


def _suback(reader: PacketReader, packet: PacketType) -> SubAck:
    packet_id, properties = reader.packet_id(), reader.properties(packet)
    return SubAck(packet_id, tuple(reader.octets(reader.left, "reasons")), properties)


def _unsubscribe(reader: PacketReader, packet: PacketType) -> Unsubscribe:
    packet_id, properties = reader.packet_id(), reader.properties(packet)
    filters: list[str] = []
    while reader.left:
        filters.append(reader.text("topic filter"))
    _check_count(len(filters))
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(reader: PacketReader, packet: PacketType) -> UnsubAck:
    packet_id, properties = reader.packet_id(), reader.properties(packet)
    reasons = reader.octets(reader.left, "reasons") if reader.version == V5 else b""
    return UnsubAck(packet_id, tuple(reasons), properties)


def _ping_request(reader: PacketReader, packet: PacketType) -> PingRequest:
    return PingRequest()


def _ping_response(reader: PacketReader, packet: PacketType) -> PingResponse:
    return PingResponse()


def _disconnect(reader: PacketReader, packet: PacketType) -> Disconnect:
    return Disconnect(*_reason_and_properties(reader, packet))


def _auth(reader: PacketReader, packet: PacketType) -> Auth:
    return Auth(*_reason_and_properties(reader, packet))


def _reason_and_properties(reader: PacketReader, packet: PacketType) -> tuple[int, Properties | None]:
    """Both may be left out (3.4.2.1, 3.14.2.1); before MQTT 5 there are none."""
    if reader.version != V5 or not reader.left:
        return 0, None
    return reader.number(1, "reason"), reader.properties(packet) if reader.left else None


def _check_count(filters: int) -> None:
    if not 1 <= filters <= FILTERS_MAX:
        raise protocol_error("topic filters", 0, f"are {filters}; allowed: 1 to {FILTERS_MAX}")


_FLAGS_OF_TWO = frozenset((PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE))
_DECODERS: dict[int, Callable[[PacketReader, PacketType], Packet]] = {
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
