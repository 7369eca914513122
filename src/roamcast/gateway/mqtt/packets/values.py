"""The packets as values, with their reason codes and properties. `codec.py` makes them from octets, and
octets from them."""

from enum import IntEnum
from typing import TypeAlias

import msgspec


class ReasonCode(IntEnum):
    SUCCESS = 0x00  # also: normal disconnection, granted QoS 0
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARDS_NOT_SUPPORTED = 0xA2


def label(reason: int) -> str:
    """The code's name for a counter, e.g. `packet_too_large`; an unknown code is written in hex."""
    return ReasonCode(reason).name.lower() if reason in _KNOWN else f"{reason:#04x}"


def connack_return_code(reason: ReasonCode) -> int:
    """A refused CONNECT in 3.1.1 (section 3.2.2.3): five codes for everything."""
    return _RETURN_CODES.get(reason, 3)


_KNOWN = frozenset(int(reason) for reason in ReasonCode)
_RETURN_CODES = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_VERSION: 1,
    ReasonCode.CLIENT_ID_NOT_VALID: 2,
    ReasonCode.BAD_USER_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
}


V3_1_1 = 4  # the protocol level that CONNECT carries
V5 = 5


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


class Will(msgspec.Struct, frozen=True):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0  # seconds; 0: none
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties | None = None  # None in 3.1.1, here and below


class ConnAck(msgspec.Struct, frozen=True):
    session_present: bool
    reason: int  # in 3.1.1 the return code
    properties: Properties | None = None


class Publish(msgspec.Struct, frozen=True, gc=False):
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0  # 0 with QoS 0
    properties: Properties | None = None  # None: none, in MQTT 5 too


class Acknowledge(msgspec.Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    type: PacketType
    packet_id: int
    reason: int = 0
    properties: Properties | None = None


class SubscriptionRequest(msgspec.Struct, frozen=True):
    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0  # 0: send retained messages; 1: only for a new subscription; 2: never


class Subscribe(msgspec.Struct, frozen=True):
    packet_id: int
    requests: tuple[SubscriptionRequest, ...]
    properties: Properties | None = None


class SubAck(msgspec.Struct, frozen=True):
    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties | None = None


class UnsubAck(msgspec.Struct, frozen=True):
    packet_id: int
    reasons: tuple[int, ...] = ()  # none in 3.1.1
    properties: Properties | None = None


class PingRequest(msgspec.Struct, frozen=True):
    pass


class PingResponse(msgspec.Struct, frozen=True):
    pass


class Disconnect(msgspec.Struct, frozen=True):
    reason: int = 0
    properties: Properties | None = None


class Auth(msgspec.Struct, frozen=True):
    reason: int = 0
    properties: Properties | None = None


Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | Acknowledge
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingRequest
    | PingResponse
    | Disconnect
    | Auth
)
