"""Messages of QoS 2 from clients with lasting sessions: published exactly once, across a crash of the node.

    PUBLISH ─▶ written, numbered ─▶ durable: published, PUBREC ─▶ PUBREL ─▶ deleted ─▶ durable: PUBCOMP

The event's number is chosen and written before anyone hears of the event. After a crash a message that may
not have been published is published again under the same number, and whoever had it takes it for a copy. A
message that was published leaves its packet identifier until the client releases it, because the client may
repeat the PUBLISH. Messages of other sessions, and of QoS 1, go straight to the mesh.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from roamcast.broker.store import StoreFullError
from roamcast.event import PAYLOAD_BYTES_MAX
from roamcast.gateway.mqtt.mesh.exchange import MeshExchange
from roamcast.gateway.mqtt.packets.codec import MalformedPacket, PacketReader, encoded_properties
from roamcast.gateway.mqtt.packets.values import PacketType, Publish, ReasonCode
from roamcast.gateway.mqtt.sessions.durable import INCOMING, remaining
from roamcast.gateway.mqtt.sessions.session import MqttSession
from roamcast.gateway.node import GatewayNode
from roamcast.runtime.live.storage.clients import ClientRecords, Queue
from roamcast.units import SECOND, Micros

# A message is published again only as long as the others surely know its number (`HOLD` in `broker/seen.py`).
AGAIN_WITHIN: Micros = 60 * SECOND

OnTaken: TypeAlias = Callable[[ReasonCode], None]


class IncomingMessage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """As stored. `until`: when it is too late to publish it again, on the wall clock; 0: it was published."""

    packet_id: int
    sequence: int
    until: int
    topic: str = ""
    payload: bytes = b""
    retain: bool = False
    properties: bytes | None = None


class IncomingMessages:
    def __init__(
        self, node: GatewayNode, exchange: MeshExchange, wall: Callable[[], Micros], entries_max: int
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._wall = wall
        self._entries_max = entries_max
        self._records = None if node.storage is None else ClientRecords(node.storage)
        self._is_closed = False

    def close(self) -> None:
        """What is not published yet is published by the next boot."""
        self._is_closed = True

    def keeps(self, session: MqttSession) -> bool:
        return self._records is not None and session.is_durable

    def take(
        self,
        session: MqttSession,
        message: Publish,
        on_taken: OnTaken,
    ) -> None:
        """Write it, publish it once that is durable, and call back with the outcome."""
        packet_id = message.packet_id
        sequence = self._exchange.reserve(message.payload)
        kept = IncomingMessage(
            packet_id,
            sequence,
            self._wall() + AGAIN_WITHIN,
            message.topic,
            message.payload,
            message.retain,
            None if message.properties is None else encoded_properties(message.properties),
        )
        try:
            row = self._queue(session.client_id).append(_encoder.encode(kept))
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
            on_taken(ReasonCode.QUOTA_EXCEEDED)
            return
        session.received[packet_id] = row

        def refused(_: StoreFullError) -> None:
            self._forget(session, packet_id)
            on_taken(ReasonCode.QUOTA_EXCEEDED)

        self._node.when_durable(lambda: self._publish(session, row, sequence, message, on_taken), refused)

    def release(self, session: MqttSession, packet_id: int, then: Callable[[], None]) -> None:
        """PUBREL: the client will not repeat it. The identifier may stand for another message afterwards, so
        it is forgotten durably before the client hears of it."""
        if not self._forget(session, packet_id):
            then()
            return
        self._node.when_durable(then, lambda _: then())

    def restore(self, session: MqttSession) -> None:
        """After a restart: identifiers that are not released, and what may not have been published."""
        if self._records is None:
            return
        for row, data in self._queue(session.client_id).entries(self._entries_max):
            try:
                kept = _decoder.decode(data)
                properties = None
                if kept.properties is not None:
                    properties = PacketReader(kept.properties).properties(PacketType.PUBLISH)
            except (msgspec.DecodeError, MalformedPacket):
                self._node.counters.count("mqtt_damaged_total")
                continue
            session.received[kept.packet_id] = row
            in_time = remaining(kept.until, self._wall(), AGAIN_WITHIN) > 0
            if kept.until and in_time and not self._exchange.has_kept(kept.sequence, kept.payload):
                message = Publish(kept.topic, kept.payload, 2, kept.retain, True, kept.packet_id, properties)
                self._publish(session, row, kept.sequence, message, lambda _: None)

    def _publish(
        self,
        session: MqttSession,
        row: int,
        sequence: int,
        message: Publish,
        on_taken: OnTaken,
    ) -> None:
        if self._is_closed:
            return
        packet_id = message.packet_id

        def then(reason: ReasonCode) -> None:
            if reason >= 0x80:
                self._forget(session, packet_id)
            elif session.received.get(packet_id) == row:
                published = IncomingMessage(packet_id, sequence, 0)
                self._write(lambda: self._queue(session.client_id).replace(row, _encoder.encode(published)))
            on_taken(reason)

        if len(message.payload) > PAYLOAD_BYTES_MAX:
            self._exchange.publish_large(session, message, then, sequence)
        else:
            then(self._exchange.publish(session, message, sequence=sequence, is_admitted=True).reason)

    def _forget(self, session: MqttSession, packet_id: int) -> bool:
        """Whether something was written."""
        row = session.received.pop(packet_id, 0)
        if row:
            self._write(lambda: self._queue(session.client_id).acknowledge(row))
        return row > 0

    def _write(self, write: Callable[[], object]) -> None:
        try:
            write()
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")

    def _queue(self, client_id: str) -> Queue:
        assert self._records is not None
        return self._records.queue(INCOMING + client_id, self._entries_max)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(IncomingMessage)
