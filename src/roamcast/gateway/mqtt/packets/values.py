"""The packets as values. `decode.py` makes them from octets, `encode.py` octets from them."""

from typing import TypeAlias

import msgspec

from roamcast.gateway.mqtt.packets.properties import PacketType, Properties

V3_1_1 = 4  # the protocol level that CONNECT carries
V5 = 5


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


class Publish(msgspec.Struct, frozen=True):
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
