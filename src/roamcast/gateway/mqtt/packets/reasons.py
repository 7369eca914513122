"""Reason codes: why a server or client refuses (MQTT 5.0, section 2.4), and what 3.1.1 has instead."""

from enum import IntEnum


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
