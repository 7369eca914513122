"""Properties of MQTT 5 packets (section 2.2.2): one table says what each is called, how it is written and
which packets may carry it.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import msgspec

from roamcast.gateway.mqtt.packets.primitives import (
    MalformedPacket,
    binary,
    protocol_error,
    read_binary,
    read_four,
    read_octet,
    read_text,
    read_two,
    read_variable,
    text,
    variable,
)

USER_PROPERTIES_MAX = 256  # of one packet: an event cannot have more attributes


class PacketType(IntEnum):
    """Section 2.1.2. WILL is no packet: the will's properties inside CONNECT are a set of their own."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Properties(msgspec.Struct, kw_only=True):
    """The properties of one packet; None and empty mean absent."""

    payload_format: int | None = None
    message_expiry: int | None = None  # seconds
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: list[int] = []
    session_expiry: int | None = None  # seconds
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None  # seconds
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay: int | None = None  # seconds
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: list[tuple[str, str]] = []
    maximum_packet_size: int | None = None
    wildcards_available: int | None = None
    subscription_identifiers_available: int | None = None
    shared_subscriptions_available: int | None = None


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
