"""Plain HTTP, for `curl` and scripts: a request is an MQTT client of the node for as long as it lasts.

    POST /publish?topic=alarm/fire&level=5      the body is the payload; other parameters are attributes
    GET /subscribe?topic=alarm/%23              one line of JSON for each message, until the client goes

So rights, bounds, waiting and durability are those of `gateway/mqtt`; here are the words of HTTP for them.
"""

import asyncio
import base64
import re
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote

import msgspec

from roamcast.errors import InputError
from roamcast.gateway.mqtt.connection import Connection
from roamcast.gateway.mqtt.mesh.mapping import number_in
from roamcast.gateway.mqtt.packets.codec import decode, encode
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
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
    label,
)
from roamcast.gateway.mqtt.transport import PacketFramer
from roamcast.gateway.options import PACKET_BYTES_MAX

EVENT_STREAM = "text/event-stream"  # as pages ask for it
FILTERS_MAX = 50  # of one request; chosen by us
ALLOWED = {"qos": re.compile("[01]"), "retain": re.compile("[01]"), "expiry": re.compile("[1-9][0-9]{0,8}")}

_STATUS = {
    ReasonCode.SUCCESS: HTTPStatus.OK,
    ReasonCode.BAD_USER_OR_PASSWORD: HTTPStatus.UNAUTHORIZED,
    ReasonCode.NOT_AUTHORIZED: HTTPStatus.FORBIDDEN,
    ReasonCode.CONNECTION_RATE_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
    ReasonCode.PACKET_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ReasonCode.QUOTA_EXCEEDED: HTTPStatus.SERVICE_UNAVAILABLE,
    ReasonCode.SERVER_BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    ReasonCode.SERVER_SHUTTING_DOWN: HTTPStatus.SERVICE_UNAVAILABLE,
}


class PlainRequest(msgspec.Struct, frozen=True):
    """What a query asks for."""

    topics: list[str] = []
    qos: int | None = None  # None: 1, where the node's strategy promises it
    retain: bool = False
    expiry: int | None = None  # seconds
    attributes: list[tuple[str, str]] = []

    @classmethod
    def of_query(cls, query: str, most: int) -> "PlainRequest":
        """`InputError` for what cannot be asked. A `+` stands for itself. `most`: topics."""
        known: dict[str, str] = {}
        topics: list[str] = []
        attributes: list[tuple[str, str]] = []
        for part in filter(None, query.split("&")):
            try:
                name, _, value = (unquote(text, errors="strict") for text in part.partition("="))
            except UnicodeDecodeError:
                raise InputError("the query", f"has {part[:40]!r}; allowed: UTF-8") from None
            if name == "topic":
                topics.append(value)
            elif name in ALLOWED:
                if name in known or ALLOWED[name].fullmatch(value) is None:
                    raise InputError(name, f"is {value[:20]!r}; allowed: {ALLOWED[name].pattern}, once")
                known[name] = value
            else:
                attributes.append((name, value))
        if not 1 <= len(topics) <= most:
            problem = f"is given {len(topics)} times; allowed: 1 to {most}, as in ?topic=alarm/fire"
            raise InputError("topic", problem)
        qos, expiry = known.get("qos"), known.get("expiry")
        return cls(
            topics,
            None if qos is None else int(qos),
            known.get("retain") == "1",
            None if expiry is None else int(expiry),
            attributes,
        )


class PlainClient:
    """The MQTT client that a request is. `answer` gets a status and a line; `begin` is called before the
    first message of a stream, `line` gets each."""

    def __init__(
        self,
        mqtt: Connection,
        answer: Callable[[HTTPStatus, str], None],
        begin: Callable[[], None],
        line: Callable[[bytes], None],
    ) -> None:
        self._mqtt = mqtt
        self._answer = answer
        self._begin = begin
        self._line = line
        self._framer = PacketFramer(PACKET_BYTES_MAX + 1_000)
        self._asked = PlainRequest()
        self._payload: bytes | None = None  # None: it subscribes

    def open(
        self,
        asked: PlainRequest,
        payload: bytes | None,
        user: tuple[str, bytes] | None,
        transport: asyncio.Transport,
    ) -> None:
        self._asked, self._payload = asked, payload
        self._mqtt.connection_made(transport)
        name, password = user or (None, None)
        self._say(Connect(version=V5, client_id="", username=name, password=password))

    def take(self, data: bytes) -> None:
        """Handle what the node sends to this client."""
        self._framer.push(data)
        while (raw := self._framer.pop()) is not None:
            self._on_packet(decode(*raw, V5))

    # Private.

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case ConnAck(reason=0):
                self._say(*self._wishes(packet.properties or Properties()))
            case SubAck():
                if refused := [reason for reason in packet.reasons if reason >= 0x80]:
                    self._end(refused[0])
                else:
                    self._begin()
            case Publish():
                self._line(msgspec.json.encode(shown_message(packet)))
                if packet.qos:
                    self._say(Acknowledge(PacketType.PUBACK, packet.packet_id))
            case PingResponse():
                self._end(ReasonCode.SUCCESS)
            case ConnAck() | Acknowledge() | Disconnect():
                self._end(packet.reason, packet.properties)

    def _wishes(self, granted: Properties) -> list[Packet]:
        asked = self._asked
        best = 1 if granted.maximum_qos is None else min(granted.maximum_qos, 1)
        qos = best if asked.qos is None else asked.qos
        if self._payload is None:
            return [Subscribe(1, tuple(SubscriptionRequest(one, qos) for one in asked.topics))]
        properties = Properties(user_properties=asked.attributes, message_expiry=asked.expiry)
        message = Publish(
            asked.topics[0], self._payload, qos, asked.retain, packet_id=qos, properties=properties
        )
        return [message] if qos else [message, PingRequest()]

    def _say(self, *packets: Packet) -> None:
        self._mqtt.data_received(b"".join(encode(packet, V5) for packet in packets))

    def _end(self, reason: int, properties: Properties | None = None) -> None:
        known = ReasonCode(reason) if reason in set(ReasonCode) else ReasonCode.UNSPECIFIED
        status = HTTPStatus.OK if reason < 0x80 else _STATUS.get(known, HTTPStatus.BAD_REQUEST)
        why = (properties.reason_string if properties else None) or label(reason).replace("_", " ")
        self._answer(status, "" if status is HTTPStatus.OK else f"{why}\n")


def shown_message(packet: Publish) -> dict[str, object]:
    """A message as one line of JSON has it. A payload that is no text is in base64."""
    shown: dict[str, object] = {"topic": packet.topic}
    try:
        shown["payload"] = packet.payload.decode()
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(packet.payload).decode()
    if packet.properties is not None and packet.properties.user_properties:
        pairs = packet.properties.user_properties
        shown["attributes"] = {
            name: text if (number := number_in(text)) is None else number for name, text in pairs
        }
    if packet.retain:
        shown["retained"] = True
    return shown
