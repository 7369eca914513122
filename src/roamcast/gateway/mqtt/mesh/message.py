"""One message for clients: made once per event, encoded once per form that clients need."""

from functools import lru_cache

from roamcast.event import Event, EventClass, EventId
from roamcast.gateway.mqtt.mesh.mapping import origin_of
from roamcast.gateway.mqtt.packets.primitives import text as encoded_text
from roamcast.gateway.mqtt.packets.primitives import variable
from roamcast.gateway.mqtt.packets.properties import encoded_properties
from roamcast.gateway.mqtt.packets.values import V5
from roamcast.units import SECOND, Micros

_PUBLISH = 0x30
_ONE_OR_TWO = [variable(length) for length in range(0x4000)]  # nearly every packet's remaining length
TOPICS_KNOWN_MAX = 256  # encoded ones; most messages come on the topics of the last ones
text = lru_cache(TOPICS_KNOWN_MAX)(encoded_text)


class MeshMessage:
    """`expires_at` is on the listener's clock; `properties` are those that are the same for every client,
    encoded, without their length."""

    __slots__ = (
        "_plain",
        "expires_at",
        "memorized",
        "payload",
        "properties",
        "qos",
        "retained",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        *,
        retained: bool = False,
        properties: bytes = b"",
        expires_at: Micros | None = None,
        memorized: tuple[EventId, Micros] | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retained = retained
        self.properties = properties
        self.expires_at = expires_at
        # The memorized event and the end of its lifetime, to note to which clients it was delivered.
        self.memorized = memorized
        self._plain: dict[int, bytes] = {}

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
        packet = self._plain.get(form)
        if packet is None:
            packet = self._plain[form] = self.packet(version, retain)
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
