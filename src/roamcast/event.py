"""What is published.

An event is immutable from the moment it is published: brokers carry, store and hand over the same
value. What changes on the way (hop count, age, remaining destinations) belongs to the message that
carries it, because clocks of different nodes do not agree and a stored copy must hash the same
everywhere (Chapar's table consistency check compares hashes of stored events).
"""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from roamcast.errors import EventError
from roamcast.units import Micros, NodeId

Value: TypeAlias = bool | int | float | str | None
"""An attribute's value. None is SQL's NULL, and so is an attribute that is absent."""

NAME_LENGTH_MAX = 128
TEXT_LENGTH_MAX = 4096
ATTRIBUTES_MAX = 256
DESTINATIONS_MAX = 1024
PAYLOAD_BYTES_MAX = 60_000  # one UDP datagram with room for headers and sealing
CONTENT_BYTES_MAX = 62_000  # payload, topic, type, attributes and destinations together

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_LENGTH_MAX)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class EventId(NamedTuple):
    """Unique for ever: a publisher never uses a sequence number twice, not even after a crash."""

    publisher: NodeId
    sequence: int


class EventClass(Enum):
    """How long an event matters (Chapar, section 2)."""

    REALTIME = "realtime"  # forgotten once dispatched
    MEMORIZED = "memorized"  # kept for its lifetime, for absent and later subscribers


class Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One published event; the field order is its wire form."""

    publisher: Count
    sequence: Count
    attributes: Annotated[
        dict[Name, bool | int | float | Text | None], msgspec.Meta(max_length=ATTRIBUTES_MAX)
    ] = {}
    payload: Annotated[bytes, msgspec.Meta(max_length=PAYLOAD_BYTES_MAX)] = b""
    topic: Text = ""
    type: Name = ""  # dotted: an event of type `alarm.fire` is an `alarm`
    event_class: EventClass = EventClass.REALTIME
    lifetime: Count = 0  # microseconds; 0 for real-time events
    # Explicit destinations: alone they make the event point-to-(multi)point; with `multimode` the
    # matching subscribers get it too (Chapar, equation 7).
    destinations: Annotated[tuple[Count, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)] = ()
    multimode: bool = False

    @property
    def id(self) -> EventId:
        return EventId(self.publisher, self.sequence)

    @property
    def wants_subscribers(self) -> bool:
        """False for point-to-point and point-to-multipoint events: only their destinations count."""
        return self.multimode or not self.destinations


def lifetime_ends(event: Event, published: Micros) -> Micros:
    """The last instant at which a memorized event is still handed to a late subscriber."""
    return published + event.lifetime


def check_content(
    attributes: Mapping[str, Value],
    payload: bytes,
    topic: str,
    type: str,
    destinations: tuple[NodeId, ...],
) -> None:
    """EventError unless these can be one event: what the decoder of every other node will ask for."""
    size = len(payload) + 9 * (len(destinations) + len(attributes))
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise EventError("payload", f"has {len(payload)} octets; at most {PAYLOAD_BYTES_MAX} are allowed")
    if len(destinations) > DESTINATIONS_MAX:
        raise EventError("destinations", f"are {len(destinations)}; at most {DESTINATIONS_MAX} are allowed")
    if len(attributes) > ATTRIBUTES_MAX:
        raise EventError("attributes", f"are {len(attributes)}; at most {ATTRIBUTES_MAX} are allowed")
    size += _octets("topic", topic, TEXT_LENGTH_MAX) if topic else 0
    size += _octets("type", type, NAME_LENGTH_MAX) if type else 0
    for name, value in attributes.items():
        size += _octets("attribute name", name, NAME_LENGTH_MAX)
        if isinstance(value, str):
            size += _octets(f"attribute {name[:40]!r}", value, TEXT_LENGTH_MAX)
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                raise EventError(f"attribute {name[:40]!r}", "is an integer of more than 64 bits")
        elif isinstance(value, float) and not math.isfinite(value):
            raise EventError(f"attribute {name[:40]!r}", f"is {value}; a number is finite")
    if size > CONTENT_BYTES_MAX:
        raise EventError("event", f"has {size} octets in all; at most {CONTENT_BYTES_MAX} are allowed")


def _octets(where: str, text: str, length_max: int) -> int:
    if len(text) > length_max:
        raise EventError(where, f"has {len(text)} characters; at most {length_max} are allowed")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise EventError(where, "is no text: it holds half of a surrogate pair") from None
