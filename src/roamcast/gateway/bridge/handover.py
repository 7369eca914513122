"""What the nodes of a bridge tell each other, and the session on the broker that moves from one to the next.

Notes are payloads of events on a topic of their own. A `Carrying` note is sent each second by the node that
is connected, and at once when that changes. `Handover` is the last word of a carrier whose uplink has ended.
`CarriedEvents` says which events the broker has, so that nobody carries them again; it is memorized, for
nodes that are away.
"""

import zlib
from typing import Annotated

import msgspec

from roamcast.event import Count, EventId
from roamcast.gateway.mqtt.packets.values import Publish

CARRIED_MAX = 500  # events in one note; chosen by us
EXCHANGES_MAX = 1_000


class Carrying(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """`version`: of the session's state; the highest is the newest."""

    version: Count


class UpExchange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An event on its way to the broker; `released`: the broker has it, and only PUBREL is sent again."""

    packet_id: Count
    publisher: Count
    sequence: Count
    released: bool

    @property
    def event(self) -> EventId:
        return EventId(self.publisher, self.sequence)


class Handover(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    version: Count
    up: Annotated[tuple[UpExchange, ...], msgspec.Meta(max_length=EXCHANGES_MAX)]
    # Packets of the broker that are in the mesh already: of QoS 2; and the last of QoS 1, with a checksum.
    down: Annotated[tuple[Count, ...], msgspec.Meta(max_length=EXCHANGES_MAX)]
    acknowledged: Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=EXCHANGES_MAX)]


class CarriedEvents(msgspec.Struct, frozen=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """Publisher and sequence of each, one after the other."""

    events: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * CARRIED_MAX)]


BridgeNote = Carrying | Handover | CarriedEvents

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BridgeNote)


def encode_note(note: BridgeNote) -> bytes:
    return _encoder.encode(note)


def decode_note(payload: bytes) -> BridgeNote | None:
    """The note in a payload; None for anything else, which any member may send."""
    try:
        note: BridgeNote = _decoder.decode(payload)
        return note
    except msgspec.DecodeError:
        return None


PACKET_IDS = 65_000  # those above are for SUBSCRIBE


class BrokerSession:
    """The session on the broker, as its carrier knows it: QoS 2 in both directions (MQTT 5.0, section 4.3.3).
    Its version grows with each carrier."""

    def __init__(self) -> None:
        self.version = 0
        self.up: dict[int, UpExchange] = {}  # by packet identifier, in the order of sending
        self.down: set[int] = set()  # of QoS 2: in the mesh, not released by the broker
        # Of QoS 1, with a checksum of their content: the broker may not have heard our last acknowledgements.
        # It then repeats those messages with DUP. A new message may have the identifier of an old one, but
        # has another content.
        self._acknowledged: dict[int, int] = {}
        self._events: dict[EventId, int] = {}
        self._last = 0

    def begin(self, event: EventId) -> UpExchange:
        """An event goes up under a packet identifier of its own."""
        while True:
            self._last = self._last % PACKET_IDS + 1
            if self._last not in self.up:
                break
        exchange = self.up[self._last] = UpExchange(self._last, *event, False)
        self._events[event] = self._last
        return exchange

    def under_way(self, event: EventId) -> int:
        """Its packet identifier; 0: it is not."""
        return self._events.get(event, 0)

    def on_received(self, packet_id: int) -> bool:
        """PUBREC. False: nothing of that kind is under way."""
        exchange = self.up.get(packet_id)
        if exchange is None:
            return False
        self.up[packet_id] = UpExchange(packet_id, exchange.publisher, exchange.sequence, True)
        return True

    def end(self, packet_id: int) -> EventId | None:
        """PUBCOMP, or a refusal: the event whose exchange is over."""
        exchange = self.up.pop(packet_id, None)
        if exchange is None:
            return None
        self._events.pop(exchange.event, None)
        return exchange.event

    def is_repeated(self, message: Publish) -> bool:
        """Whether the mesh has this message of the broker. Else it is noted."""
        packet_id = message.packet_id
        if message.qos == 2:
            is_known = packet_id in self.down
            self.down.add(packet_id)
            return is_known
        if message.qos == 0:
            return False
        content = zlib.crc32(message.payload, zlib.crc32(message.topic.encode()))
        is_known = message.duplicate and self._acknowledged.pop(packet_id, None) == content
        self._acknowledged[packet_id] = content
        while len(self._acknowledged) > EXCHANGES_MAX:
            del self._acknowledged[next(iter(self._acknowledged))]
        return is_known

    def handover(self) -> Handover:
        return Handover(
            self.version,
            tuple(self.up.values()),
            tuple(sorted(self.down))[:EXCHANGES_MAX],
            tuple(self._acknowledged.items()),
        )

    def adopt(self, handover: Handover) -> None:
        """Another carrier's state takes the place of ours."""
        self.version = handover.version
        self.up = {exchange.packet_id: exchange for exchange in handover.up}
        self.down = set(handover.down)
        self._acknowledged = dict(handover.acknowledged)
        self._events = {exchange.event: exchange.packet_id for exchange in handover.up}
        self._last = max(self.up, default=self._last)

    def forget(self) -> None:
        """The broker has a new session, or another node goes on with this one."""
        self.up.clear()
        self.down.clear()
        self._acknowledged.clear()
        self._events.clear()
