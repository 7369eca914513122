"""MQTT messages as events, and back.

| MQTT | event |
|---|---|
| topic, payload | `topic`, `payload` |
| QoS and RETAIN | attribute `mqtt`: QoS, plus 4 for retained |
| user property | attribute of the same name; a text that is a number becomes one (`number_in`) |
| payload format, content type | `mqtt.format`, `mqtt.content_type` |
| response topic, correlation data | `mqtt.response_topic`, `mqtt.correlation` (base64) |
| message expiry | `mqtt.expiry`, seconds; and the lifetime of a memorized event |
| order among retained messages of a topic | `mqtt.at`, see `RetainedStamps` |

User properties have an order, may repeat, and keep their exact spelling (`1.50`). Where the attributes alone
cannot restore that, the whole list is sent too, as `mqtt.user`. An event without the attribute `mqtt` was
not published by an MQTT client: it is shown as a plain message of QoS 1, its attributes as user properties.
"""

import base64
import binascii
import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from roamcast.broker.retained import FLAGS, RETAINED
from roamcast.event import NAME_LENGTH_MAX, TEXT_LENGTH_MAX, Event, EventClass, EventId, Value
from roamcast.gateway.mqtt.packets.codec import encoded_properties, variable
from roamcast.gateway.mqtt.packets.codec import text as encoded_text
from roamcast.gateway.mqtt.packets.values import V5, Properties
from roamcast.units import SECOND, Micros
from roamcast.wire.exchange import CORRELATION, EXPIRY, OWN, PLAIN_QOS, RESPONSE_TOPIC

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_TEXT_MAX = 40  # chosen by us: longer digit strings are identifiers, not quantities
_INTEGER_MAX = 2**63


def number_in(text: str) -> int | float | None:
    """The number that a text is, in JSON's form; None for any other text (`007`, `+5`, `nan`, `1_000`).

    A user property is always text, yet `value>25` must compare numbers, on every node that runs the filter.
    So a text that is a number in plain decimal form becomes one when the event is made.
    """
    if not text or len(text) > _TEXT_MAX:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[1] is None and found[2] is None:
        integer = int(text)
        return integer if -_INTEGER_MAX <= integer < _INTEGER_MAX else None
    number = float(text)
    return number if math.isfinite(number) else None


RESERVED = "mqtt."
FORMAT = "mqtt.format"
CONTENT_TYPE = "mqtt.content_type"
USER = "mqtt.user"

_PAIRS = msgspec.json.Decoder(list[tuple[str, str]])


class TooLarge(Exception):  # noqa: N818 - an answer, not a fault: the caller turns it into a reason code
    """A property that no event can carry."""


class Origin(NamedTuple):
    """The properties of the MQTT message that an event was made from."""

    qos: int
    retained: bool
    properties: Properties | None
    expiry: int | None  # seconds


def attributes_of(qos: int, retained: bool, properties: Properties | None) -> dict[str, Value]:
    """The attributes of a message; TooLarge if an event cannot carry them."""
    attributes: dict[str, Value] = {FLAGS: qos | RETAINED if retained else qos}
    if properties is None:
        return attributes
    correlation = properties.correlation_data
    found: dict[str, Value] = {
        FORMAT: properties.payload_format or None,
        CONTENT_TYPE: properties.content_type,
        RESPONSE_TOPIC: properties.response_topic,
        CORRELATION: None if correlation is None else base64.b64encode(correlation).decode(),
        EXPIRY: properties.message_expiry,
    }
    for name, value in found.items():
        if value is not None:
            attributes[name] = _bounded(value) if isinstance(value, str) else value
    if properties.user_properties:
        _add_user_properties(attributes, properties.user_properties)
    return attributes


def origin_of(event: Event) -> Origin:
    """How an event is shown to MQTT clients. It may come from any node: nothing in it is trusted."""
    attributes = event.attributes
    flags = attributes.get(FLAGS)
    if type(flags) is not int or not 0 <= flags <= 6 or flags & 3 == 3:
        shown = [
            (name.replace("\0", ""), text_of(value))
            for name, value in attributes.items()
            if value is not None and not name.startswith(OWN)
        ]
        return Origin(PLAIN_QOS, False, Properties(user_properties=shown) if shown else None, None)
    if len(attributes) == 1:
        return Origin(flags & 3, flags >= RETAINED, None, None)
    properties = Properties(
        payload_format=1 if attributes.get(FORMAT) == 1 else None,
        content_type=_text(attributes.get(CONTENT_TYPE)),
        response_topic=_response_topic(attributes.get(RESPONSE_TOPIC)),
        correlation_data=_correlation(attributes.get(CORRELATION)),
        user_properties=_user_properties(attributes),
    )
    expiry = attributes.get(EXPIRY)
    known_expiry = expiry if type(expiry) is int and 0 <= expiry < 2**32 else None
    return Origin(flags & 3, flags >= RETAINED, properties, known_expiry)


def is_topic(topic: str) -> bool:
    """Whether this topic is valid for MQTT clients; another node's event may have any text."""
    return bool(topic) and "+" not in topic and "#" not in topic and "\0" not in topic


def text_of(value: Value) -> str:
    """An attribute as a user property."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace("\0", "")


def _add_user_properties(attributes: dict[str, Value], pairs: list[tuple[str, str]]) -> None:
    is_exact = True
    added: set[str] = set()
    for name, content in pairs:
        if name in added or name == FLAGS or name.startswith(RESERVED) or not name:
            is_exact = False
            continue
        if len(name) > NAME_LENGTH_MAX:
            raise TooLarge(f"the user property {name[:40]!r} has a name of more than {NAME_LENGTH_MAX}")
        added.add(name)
        number = number_in(content)
        is_exact = is_exact and (number is None or str(number) == content)
        attributes[name] = _bounded(content) if number is None else number
    if not is_exact:
        attributes[USER] = _bounded(msgspec.json.encode(pairs).decode())


def _user_properties(attributes: dict[str, Value]) -> list[tuple[str, str]]:
    exact = attributes.get(USER)
    if isinstance(exact, str):
        try:
            return [(n.replace("\0", ""), v.replace("\0", "")) for n, v in _PAIRS.decode(exact)]
        except (msgspec.DecodeError, RecursionError):
            pass  # not ours; the attributes are still there
    return [
        (name.replace("\0", ""), text_of(value))
        for name, value in attributes.items()
        if value is not None and name != FLAGS and not name.startswith((RESERVED, OWN))
    ]


def _bounded(content: str) -> str:
    if len(content) > TEXT_LENGTH_MAX:
        raise TooLarge(f"a property of {len(content)} characters; at most {TEXT_LENGTH_MAX} are carried")
    return content


def _text(value: Value) -> str | None:
    return value.replace("\0", "") if isinstance(value, str) else None


def _response_topic(value: Value) -> str | None:
    """Only a valid topic name: any other value would make a client close the connection."""
    topic = _text(value)
    return topic if topic and "+" not in topic and "#" not in topic else None


def _correlation(value: Value) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


_PUBLISH = 0x30
_ONE_OR_TWO = [variable(length) for length in range(0x4000)]  # nearly every packet's remaining length
TOPICS_KNOWN_MAX = 256  # encoded ones; most messages come on the topics of the last ones
text = lru_cache(TOPICS_KNOWN_MAX)(encoded_text)


class MeshMessage(msgspec.Struct, eq=False, gc=False):
    """One message for clients: made once per event, encoded once per form that clients need."""

    topic: str
    payload: bytes
    qos: int
    retained: bool = False
    properties: bytes = b""  # those that are the same for every client, encoded, without their length
    expires_at: Micros | None = None  # on the listener's clock
    # The memorized event and the end of its lifetime, to note to which clients it was delivered.
    memorized: tuple[EventId, Micros] | None = None
    forms: dict[int, bytes] | None = None  # QoS 0 packets that were made, by version and RETAIN
    deferred: Any = None  # its entry in the queues of absent clients, while it is handed out

    @classmethod
    def of_event(cls, event: Event, now: Micros, lives_until: Micros | None = None) -> "MeshMessage":
        """`lives_until` is given for a stored event; an event that has just come has its whole lifetime."""
        origin = origin_of(event)
        properties = b""
        if origin.properties is not None:
            properties = _without_length(encoded_properties(origin.properties))
        memorized = None
        if event.event_class is EventClass.MEMORIZED:
            if lives_until is None:
                lives_until = now + event.lifetime
            memorized = (event.id, lives_until)
        expires_at = None
        if origin.expiry is not None:
            expires_at = lives_until if memorized is not None else now + origin.expiry * SECOND
        return cls(
            event.topic,
            event.payload,
            origin.qos,
            retained=origin.retained,
            properties=properties,
            expires_at=expires_at,
            memorized=memorized,
        )

    @property
    def size(self) -> int:
        """Octets that this message holds while it waits, roughly."""
        return len(self.payload) + len(self.topic) + len(self.properties) + 200

    def plain(self, version: int, retain: bool) -> bytes:
        """The QoS 0 packet that is the same for many clients: no alias, no identifiers, no expiry."""
        form = version << 1 | retain
        forms = self.forms = self.forms or {}
        packet = forms.get(form)
        if packet is None:
            packet = forms[form] = self.packet(version, retain)
        return packet

    def packet(
        self, version: int, flags: int, packet_id: int = 0, own: bytes = b"", with_topic: bool = True
    ) -> bytes:
        """The PUBLISH for one client. `flags` as in its first octet; `own`: properties for this client."""
        head = text(self.topic) if with_topic else b"\0\0"
        if packet_id:
            head += packet_id.to_bytes(2, "big")
        if version == V5:
            properties = self.properties + own
            head += variable(len(properties)) + properties
        size = len(head) + len(self.payload)
        length = _ONE_OR_TWO[size] if size < 0x4000 else variable(size)
        return b"%c%b%b%b" % (_PUBLISH | flags, length, head, self.payload)

    def seconds_left(self, now: Micros) -> int:
        """The message expiry to send (MQTT 5.0, section 3.3.2.3.3); 0 after it has passed."""
        assert self.expires_at is not None
        return min(max(0, -(-(self.expires_at - now) // SECOND)), 0xFFFF_FFFF)


def _without_length(encoded: bytes) -> bytes:
    at = 0
    while encoded[at] & 0x80:
        at += 1
    return encoded[at + 1 :]
