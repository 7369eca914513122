"""MQTT messages as events, and back.

| MQTT | event |
|---|---|
| topic, payload | `topic`, `payload` |
| QoS and RETAIN | attribute `mqtt`: QoS, plus 4 for retained |
| user property | attribute of the same name; a text that is a number becomes one (`numerals.py`) |
| payload format, content type | `mqtt.format`, `mqtt.content_type` |
| response topic, correlation data | `mqtt.response_topic`, `mqtt.correlation` (base64) |
| message expiry | `mqtt.expiry`, seconds; and the lifetime of a memorized event |
| order among retained messages of a topic | `mqtt.at`, see `retained.py` |

User properties have an order, may repeat, and keep their exact spelling (`1.50`). Where the attributes alone
cannot restore that, the whole list is sent too, as `mqtt.user`. An event without the attribute `mqtt` was
not published by an MQTT client: it is shown as a plain message of QoS 1, its attributes as user properties.
"""

import base64
import binascii
from typing import NamedTuple

import msgspec

from roamcast.broker.retained import FLAGS, RETAINED
from roamcast.event import NAME_LENGTH_MAX, TEXT_LENGTH_MAX, Event, Value
from roamcast.gateway.mqtt.packets.numerals import number_in
from roamcast.gateway.mqtt.packets.properties import Properties
from roamcast.wire.exchange import CORRELATION, EXPIRY, OWN, PLAIN_QOS, RESPONSE_TOPIC

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
    if properties.payload_format:
        attributes[FORMAT] = properties.payload_format
    if properties.content_type is not None:
        attributes[CONTENT_TYPE] = _bounded(properties.content_type)
    if properties.response_topic is not None:
        attributes[RESPONSE_TOPIC] = _bounded(properties.response_topic)
    if properties.correlation_data is not None:
        attributes[CORRELATION] = _bounded(base64.b64encode(properties.correlation_data).decode())
    if properties.message_expiry is not None:
        attributes[EXPIRY] = properties.message_expiry
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
