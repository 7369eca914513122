"""What is published.

An event is immutable once it is published: brokers forward, store and hand over the same
value. What changes in transit (hop count, age, remaining destinations) belongs to the message that
carries it, because clocks of different nodes do not agree and a stored copy must hash the same
everywhere (Chapar's table consistency check compares hashes of stored events).

An application passes a `Publication`; its node numbers it, which makes it an `Event`.

An event whose content only its readers can see (Chapar, section 4.2, *encrypted events*) is an ordinary one
of the type `SEALED_TYPE` with one attribute, `IDENTIFIER`: the event identifier (EID) in hexadecimal, by
which brokers match it without reading it. Its payload is the ciphertext. Any strategy forwards it;
`sealing/content.py` makes and opens it.
"""

import math
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from roamcast.errors import EventError
from roamcast.units import NodeId

Value: TypeAlias = bool | int | float | str | None
"""An attribute's value. None is SQL's NULL, and so is an attribute that is absent."""

NAME_LENGTH_MAX = 128  # bounds without a reason beside them: chosen by us
TEXT_LENGTH_MAX = 4096
ATTRIBUTES_MAX = 256
DESTINATIONS_MAX = 1024
PAYLOAD_BYTES_MAX = 60_000  # one UDP datagram with room for headers and sealing
COUNT_MAX = 2**63 - 1
LIFETIME_MAX = 2**32 * 1_000_000  # microseconds: as MQTT's longest, 136 years; no clock overflows by it
NUMBER_BYTES = 9  # a number's largest encoded form
CONTENT_BYTES_MAX = 62_000  # payload, topic, type, attributes and destinations together
LARGE_BYTES_MAX = 16 * 1024 * 1024  # of a payload that travels in chunks (`chunks.py`)
LARGE_REST_MAX = 2_048  # of all else beside such a payload: every chunk carries it
ALONE_KNOWN_MAX = 256  # attributes that are an event's only one, as MQTT's QoS; many events have the same
TOPICS_KNOWN_MAX = 256  # topics that were checked lately; publishers use the same ones again and again

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_LENGTH_MAX)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Lifetime: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LIFETIME_MAX)]
Attributes: TypeAlias = Annotated[
    dict[Name, bool | int | float | Text | None], msgspec.Meta(max_length=ATTRIBUTES_MAX)
]
Payload: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=PAYLOAD_BYTES_MAX)]
Destinations: TypeAlias = Annotated[tuple[Count, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)]


class EventId(NamedTuple):
    """Unique: a publisher never uses a sequence number twice, not even after a crash."""

    publisher: Count
    sequence: Count


def event_ids(publisher: NodeId, sequences: Iterable[int]) -> Iterator[EventId]:
    """The identifiers of one publisher's events; each is made three times as fast as by `EventId(…)`."""
    new = tuple.__new__
    return (new(EventId, (publisher, sequence)) for sequence in sequences)


class EventClass(Enum):
    """How long an event matters (Chapar, section 2)."""

    REALTIME = "realtime"  # forgotten once dispatched
    MEMORIZED = "memorized"  # kept for its lifetime, for absent and later subscribers


class Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One published event; the field order is its wire form.

    Unknown to the garbage collector: it holds texts, numbers and octets, so no cycle can lead through it.
    """

    publisher: Count
    sequence: Count
    attributes: Attributes = {}
    payload: Payload = b""
    topic: Text = ""
    type: Name = ""  # dotted: an event of type `alarm.fire` is an `alarm`
    event_class: EventClass = EventClass.REALTIME
    lifetime: Lifetime = 0  # microseconds; 0 for real-time events
    # Explicit destinations: alone they make the event point-to-(multi)point; with `multimode` the
    # matching subscribers get it too (Chapar, equation 7).
    destinations: Destinations = ()
    multimode: bool = False
    after: Count = 0  # how many numbers back its predecessor is; 0: it has none (`broker/order.py`)

    @property
    def id(self) -> EventId:
        return tuple.__new__(EventId, (self.publisher, self.sequence))  # three times as fast as `EventId(…)`

    @property
    def wants_subscribers(self) -> bool:
        """False for point-to-point and point-to-multipoint events: only their destinations count."""
        return self.multimode or not self.destinations


class Publication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What an application publishes; the field order is its form on the local socket.

    The constructor checks it: `EventError` for anything that the decoder of another node would refuse. So
    code that is given a publication need not check it again. One that `is_large` is no event as it is: its
    payload travels in chunks (`chunks.py`), and on the local socket too.
    """

    attributes: Attributes = {}
    payload: Payload = b""
    topic: Text = ""
    type: Name = ""
    lifetime: Lifetime = 0  # microseconds; above 0 the event is memorized
    destinations: Destinations = ()
    multimode: bool = False
    sealed: bool = False  # from end to end, with the node's content key: relays cannot read it

    def __post_init__(self) -> None:
        if type(self.payload) is not bytes:
            raise EventError("payload", f"is a {_type(self.payload)}; allowed: bytes")
        size = 0
        if self.attributes:
            size += _attribute_octets(self.attributes)
        if self.topic:
            if type(self.topic) is not str:
                raise EventError("topic", f"is a {_type(self.topic)}; allowed: a text")
            size += _topic_octets(self.topic)
        if self.type:
            size += _text_octets("type", self.type, NAME_LENGTH_MAX)
        if not 0 <= self.lifetime <= LIFETIME_MAX:
            raise EventError("lifetime", f"is {self.lifetime} microseconds; allowed: 0 to {LIFETIME_MAX}")
        if self.destinations:
            size += _destination_octets(self.destinations)
        if len(self.payload) + size > PAYLOAD_BYTES_MAX:  # below that, no bound is reached
            self._check_size(size)

    def _check_size(self, rest: int) -> None:
        """`rest`: the octets of all but the payload."""
        size = len(self.payload)
        if size > LARGE_BYTES_MAX:
            raise EventError("payload", f"has {size} octets; at most {LARGE_BYTES_MAX} are allowed")
        if size > PAYLOAD_BYTES_MAX:
            if rest > LARGE_REST_MAX:
                problem = f"are {rest} octets beside a payload of more than {PAYLOAD_BYTES_MAX}"
                raise EventError(
                    "attributes, topic and type", f"{problem}; at most {LARGE_REST_MAX} are allowed"
                )
        elif size + rest > CONTENT_BYTES_MAX:
            raise EventError(
                "event", f"has {size + rest} octets in all; at most {CONTENT_BYTES_MAX} are allowed"
            )

    def without_payload(self) -> "Publication":
        return msgspec.structs.replace(self, payload=b"")

    @property
    def is_large(self) -> bool:
        """Whether its payload is more than one event carries."""
        return len(self.payload) > PAYLOAD_BYTES_MAX

    @property
    def event_class(self) -> EventClass:
        return EventClass.MEMORIZED if self.lifetime else EventClass.REALTIME

    def numbered(self, publisher: NodeId, sequence: int, after: int = 0) -> Event:
        """The event made from this publication."""
        return Event(
            publisher,
            sequence,
            _own(self.attributes),
            self.payload,
            self.topic,
            self.type,
            EventClass.MEMORIZED if self.lifetime else EventClass.REALTIME,
            self.lifetime,
            self.destinations,
            self.multimode,
            after,
        )


def _own(attributes: Attributes) -> Attributes:
    """A copy that no application changes; one for all events whose only attribute is the same number."""
    ((name, value),) = attributes.items() if len(attributes) == 1 else (("", None),)
    return _alone(name, value) if type(value) is int else dict(attributes)


@lru_cache(ALONE_KNOWN_MAX)
def _alone(name: str, value: int) -> Attributes:
    return {name: value}


def topic_problem(topic: str) -> str | None:
    """Why no event can be published on this topic (MQTT 5.0, section 4.7)."""
    problem = topic_text_problem(topic)
    if problem is None and ("+" in topic or "#" in topic):
        return "wildcards ('+', '#') are for filters; a topic has none"
    return problem


def topic_text_problem(text: str) -> str | None:
    """What is wrong with a text as a topic or as a topic filter (MQTT 5.0, section 4.7.3)."""
    if not text:
        return "is empty; it needs at least one character"
    if len(text) > TEXT_LENGTH_MAX:
        return f"has {len(text)} characters; at most {TEXT_LENGTH_MAX} are allowed"
    if "\0" in text:
        return "holds U+0000, which MQTT forbids"
    return None


def _attribute_octets(attributes: dict[str, Value]) -> int:
    """The octets of names and values; EventError unless an event can have them."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise EventError("attributes", f"are {len(attributes)}; at most {ATTRIBUTES_MAX} are allowed")
    size = NUMBER_BYTES * len(attributes)
    for name, value in attributes.items():
        if type(name) is str and name.isascii() and len(name) <= NAME_LENGTH_MAX:
            size += len(name)  # nearly every name
        else:
            size += _text_octets("attribute name", name, NAME_LENGTH_MAX)
        # Exact types: a subclass of these, such as numpy's numbers, cannot be encoded.
        if type(value) is str:
            size += _text_octets(f"attribute {name[:40]!r}", value, TEXT_LENGTH_MAX)
        elif type(value) is int:
            if not -(2**63) <= value < 2**64:
                raise EventError(f"attribute {name[:40]!r}", "is an integer of more than 64 bits")
        elif type(value) is float:
            if not math.isfinite(value):
                raise EventError(f"attribute {name[:40]!r}", f"is {value}; a number is finite")
        elif value is not None and type(value) is not bool:
            problem = f"is a {_type(value)}; allowed: bool, int, float, str, None"
            raise EventError(f"attribute {name[:40]!r}", problem)
    return size


@lru_cache(TOPICS_KNOWN_MAX)
def _topic_octets(topic: str) -> int:
    size = _text_octets("topic", topic, TEXT_LENGTH_MAX)
    if problem := topic_problem(topic):
        raise EventError("topic", f"is {msgspec.json.encode(topic[:80]).decode()}: {problem}")
    return size


def _destination_octets(destinations: tuple[NodeId, ...]) -> int:
    if len(destinations) > DESTINATIONS_MAX:
        raise EventError("destinations", f"are {len(destinations)}; at most {DESTINATIONS_MAX} are allowed")
    for node in destinations:
        if type(node) is not int or not 0 <= node <= COUNT_MAX:
            raise EventError("destinations", f"has {str(node)[:40]!r}; allowed: numbers of nodes")
    return NUMBER_BYTES * len(destinations)


def _text_octets(where: str, text: str, length_max: int) -> int:
    if type(text) is not str:
        raise EventError(where, f"is a {_type(text)}; allowed: a text")
    if len(text) > length_max:
        raise EventError(where, f"has {len(text)} characters; at most {length_max} are allowed")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise EventError(where, "is no text: it holds half of a surrogate pair") from None


def _type(value: object) -> str:
    return type(value).__name__


SEALED_TYPE = "roamcast.sealed"
IDENTIFIER = "eid"


def is_sealed(event: Event) -> bool:
    return event.type == SEALED_TYPE


def identifier_of(event: Event) -> bytes:
    """The EID of a sealed event; empty if it has none, which only a filter for everything selects."""
    text = event.attributes.get(IDENTIFIER)
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""
