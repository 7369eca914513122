"""How requests, replies and receipts travel: as topics and attributes of ordinary events.

| what | is an event with |
|---|---|
| request | `mqtt.response_topic`, `mqtt.correlation`: what MQTT 5 has (section 4.10), for MQTT clients too |
| reply | the response topic as its topic, and the same `mqtt.correlation` |
| publication that wants receipts | `roamcast.receipt`: a `ReceiptWanted` |
| receipt | a reply, with the name of the node that confirms and how many applications it served |
| end of receipts | what the publication had, but in `roamcast.receipt` the publication's sequence number |

A topic `$reply/NODE/TOKEN` belongs to the node: what is published there is addressed to that node alone, so
nobody subscribes to it. The token (63 random bits, hexadecimal) says which open request it answers.
"""

import base64
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from roamcast.errors import WireError
from roamcast.event import COUNT_MAX, TEXT_LENGTH_MAX, Count, Event, Name, Publication, Value
from roamcast.units import NodeId

FLAGS = "mqtt"  # attribute: the QoS, plus 4 for retained (`broker/retained.py`)
PLAIN_QOS = 1  # of an event that no MQTT client published
RESPONSE_TOPIC = "mqtt.response_topic"
CORRELATION = "mqtt.correlation"  # base64
EXPIRY = "mqtt.expiry"  # seconds
RECEIPT = "roamcast.receipt"
NODE_NAME = "roamcast.node"
APPLICATIONS = "roamcast.applications"
OWN = "roamcast."  # what our own attributes begin with

REPLY = "$reply/"
TOKEN_BITS = 63  # a `Count`
NAMED_MAX = 64  # nodes whose receipt one publication can ask for by name; chosen by us

_REPLY_TOPIC = re.compile(r"\$reply/([0-9]{1,19})/([0-9a-f]{16})", re.ASCII)


class ReplyAddress(NamedTuple):
    node: NodeId
    token: int


class ReceiptWanted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nodes that hand the event over shall say so, within so many microseconds of its publication.

    `count`: so many receipts are enough; 0: those of the named nodes, by name or number, are wanted.
    """

    token: Count
    within: Count
    count: Count
    named: Annotated[tuple[Name, ...], msgspec.Meta(max_length=NAMED_MAX)] = ()


_WANTED = msgspec.json.Decoder(ReceiptWanted)


def of_applications(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The attributes without those that MQTT and our own answers add."""
    return {
        name: value
        for name, value in attributes.items()
        if not name.startswith((OWN, f"{FLAGS}.")) and name != FLAGS
    }


def reply_topic(address: ReplyAddress) -> str:
    return f"{REPLY}{address.node}/{address.token:016x}"


def reply_address(topic: str) -> ReplyAddress | None:
    """The node and token that a reply topic names; None for any other topic."""
    found = _REPLY_TOPIC.fullmatch(topic)
    if found is None or int(found[1]) > COUNT_MAX:
        return None
    return ReplyAddress(int(found[1]), int(found[2], 16))


def addressed(publication: Publication) -> Publication:
    """A publication on a reply topic is for the node that the topic names, and for no subscriber."""
    address = reply_address(publication.topic)
    if address is None:
        return publication
    return msgspec.structs.replace(publication, destinations=(address.node,), multimode=False)


def response_topic(event: Event) -> str:
    """Where a request wants its replies; "" for an event that is no request."""
    topic = event.attributes.get(RESPONSE_TOPIC)
    usable = isinstance(topic, str) and not any(sign in topic for sign in "+#\0")
    return topic if usable and isinstance(topic, str) else ""


def correlation(token: int) -> str:
    return base64.b64encode(token.to_bytes(8, "big")).decode()


def encode_wanted(wanted: ReceiptWanted) -> str:
    return msgspec.json.encode(wanted).decode()


def wanted_of(event: Event) -> ReceiptWanted:
    """WireError for an attribute that is no such wish; it may come from anywhere."""
    text = event.attributes.get(RECEIPT)
    if not isinstance(text, str) or len(text) > TEXT_LENGTH_MAX:
        raise WireError(RECEIPT, 0, "is no text")
    try:
        return _WANTED.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(RECEIPT, 0, f"cannot be read: {error}") from None
