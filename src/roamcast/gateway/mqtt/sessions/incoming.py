"""Messages of QoS 2 from clients with lasting sessions: published exactly once, across a crash of the node.

    PUBLISH ─▶ written, numbered ─▶ durable: published ─▶ durable: PUBREC
    PUBREL ─▶ deleted ─▶ durable: PUBCOMP

The event's number is chosen and written before anyone hears of the event. After a crash a message that may
not have been published is published again under the same number, and whoever had it takes it for a copy. One
for which the store has no room then waits for it, however long the node was off: it may have been
acknowledged. A message that was published leaves its packet identifier until the client releases it, because
the client may repeat the PUBLISH. Messages of other sessions, and of QoS 1, go straight to the mesh. A will
for which there is no room when it is due waits in the same way: nobody is there to be told.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import msgspec

from roamcast.broker.store import StoreFullError
from roamcast.event import PAYLOAD_BYTES_MAX
from roamcast.gateway.mqtt.mesh.exchange import ROOM_SECONDS, MeshExchange
from roamcast.gateway.mqtt.packets.codec import MalformedPacket, PacketReader, encoded_properties
from roamcast.gateway.mqtt.packets.values import PacketType, Publish, ReasonCode, Will
from roamcast.gateway.mqtt.sessions.durable import INCOMING, remaining
from roamcast.gateway.mqtt.sessions.session import MqttSession
from roamcast.gateway.node import GatewayNode
from roamcast.runtime.live.storage.clients import QUEUE_MAX, ClientRecords, Queue
from roamcast.units import Micros

ALWAYS: Micros = 2**62

OnTaken: TypeAlias = Callable[[ReasonCode], None]


class IncomingMessage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A client's message as it is stored. `packet_id`: 0 if the client has released it before it could be
    published. `until`: the end of its lifetime by the wall clock, 0 once it is published. `stamp`: of a
    retained message, reserved now, because later messages may be published before this one."""

    packet_id: int
    sequence: int
    until: int
    topic: str = ""
    payload: bytes = b""
    retain: bool = False
    properties: bytes | None = None
    stamp: int = 0
    qos: int = 2


class UnpublishedMessage(NamedTuple):
    """Of an earlier boot, which may have acknowledged it; or a will, without a session; or what a full disk
    could neither publish nor forget."""

    session: MqttSession | None
    row: int
    kept: IncomingMessage
    message: Publish
    on_taken: OnTaken = lambda reason: None


class IncomingMessages:
    def __init__(
        self, node: GatewayNode, exchange: MeshExchange, wall: Callable[[], Micros], entries_max: int
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._wall = wall
        self._entries_max = entries_max
        self._records = None if node.storage is None else ClientRecords(node.storage)
        self.unpublished: deque[UnpublishedMessage] = deque()  # that wait for room
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._wills: deque[Will] = deque()  # that are due, on a disk that takes nothing

    def close(self) -> None:
        """Stop; messages that are not published yet are published by the next boot."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()

    def keeps(self, session: MqttSession) -> bool:
        return self._records is not None and session.is_durable

    def take(
        self,
        session: MqttSession,
        message: Publish,
        on_taken: OnTaken,
    ) -> None:
        """Write it, publish it once that is durable, and call back when the event is durable too, or
        refused. One that is written, and that a full disk can neither publish nor forget, waits for room."""
        packet_id = message.packet_id
        try:
            kept = self._numbered(message)
            row = self._queue(session).append(_encoder.encode(kept))
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
            on_taken(ReasonCode.QUOTA_EXCEEDED)
            return
        session.received[packet_id] = row
        self._exchange.take_place(message, kept.sequence, kept.stamp)

        def is_forgotten() -> bool:
            self._exchange.give_place_up(kept.sequence, kept.payload)
            if session.received.get(packet_id) != row:
                return True
            del session.received[packet_id]
            return self._forget(session, row)

        def published(reason: ReasonCode) -> None:
            if reason < 0x80:
                on_taken(reason)
                return
            # A client that hears of the refusal may send the message anew. Before that, it must be certain
            # that a restart does not publish this one.
            if is_forgotten():
                self._node.when_durable(lambda: on_taken(reason), lambda _: wait())
            else:
                wait()

        def wait() -> None:
            session.received.setdefault(packet_id, row)
            self._exchange.take_place(message, kept.sequence, kept.stamp)
            self._wait_for_room(UnpublishedMessage(session, row, kept, message, on_taken))

        def not_written() -> None:
            is_forgotten()
            on_taken(ReasonCode.QUOTA_EXCEEDED)

        self._node.when_durable(
            lambda: self._publish(session, row, kept, message, published), lambda _: not_written()
        )

    def publish_will(self, will: Will) -> None:
        """It is due. One of QoS 0 may be shed. They go in the order in which they are due."""
        if will.qos == 0 and not will.retain:
            self._exchange.publish(None, will)
        elif self._wills or not self._takes_will(will):
            if self._is_closed or len(self._wills) >= QUEUE_MAX:
                self._node.counters.count("mqtt_unpublished_total", reason="will")
                return
            self._wills.append(will)
            if len(self._wills) == 1:
                asyncio.get_running_loop().call_later(ROOM_SECONDS, self._publish_wills)

    def _publish_wills(self) -> None:
        while self._wills and self._takes_will(self._wills[0]):
            self._wills.popleft()
        if self._wills and not self._is_closed:
            asyncio.get_running_loop().call_later(ROOM_SECONDS, self._publish_wills)

    def _takes_will(self, will: Will) -> bool:
        """Publish it, or write it down; False if neither can be done now."""
        if not self.unpublished and self._exchange.publish(None, will, is_admitted=True).reason < 0x80:
            return True
        properties = will.properties and msgspec.structs.replace(will.properties, will_delay=None)
        message = Publish(will.topic, will.payload, will.qos, will.retain, properties=properties)
        try:
            kept = self._numbered(message)
            row = 0 if self._records is None else self._queue(None).append(_encoder.encode(kept))
        except StoreFullError:
            return False
        self._exchange.take_place(message, kept.sequence, kept.stamp)
        self._wait_for_room(UnpublishedMessage(None, row, kept, message))
        return True

    def _wait_for_room(self, message: UnpublishedMessage) -> None:
        self.unpublished.append(message)
        if len(self.unpublished) == 1 and not self._is_closed:
            self._try_later()

    def _numbered(self, message: Publish) -> IncomingMessage:
        lifetime = self._exchange.lifetime_of(message)
        return IncomingMessage(
            message.packet_id,
            self._exchange.reserve(message.payload),
            self._wall() + lifetime if lifetime else ALWAYS,
            message.topic,
            message.payload,
            message.retain,
            None if message.properties is None else encoded_properties(message.properties),
            self._exchange.stamp(message),
            message.qos,
        )

    def release(self, session: MqttSession, packet_id: int, then: Callable[[], None]) -> None:
        """PUBREL: the client will not repeat it. The identifier may stand for another message afterwards, so
        it is forgotten durably before the client hears of it."""
        row = session.received.pop(packet_id, 0)
        if not row:
            then()
            return
        unpublished = next((one for one in self.unpublished if one.row == row), None)
        if unpublished is None:
            self._forget(session, row)
        else:
            unpublished.kept.packet_id = 0
            self._replace(session, row, unpublished.kept)
        self._node.when_durable(then, lambda _: then())

    def outlive(self, session: MqttSession) -> None:
        """The session ends, and its rows with it. What waits for room may have been acknowledged: it goes on
        as wills do, without a session."""
        for at, one in enumerate(self.unpublished):
            if one.session is session:
                one.kept.packet_id = 0
                with suppress(StoreFullError):
                    row = self._queue(None).append(_encoder.encode(one.kept))
                    self.unpublished[at] = one._replace(session=None, row=row)

    def restore(self, sessions: Iterable[MqttSession | None]) -> None:
        """After a restart: identifiers that are not released, and what may not have been published, in the
        order of the numbers, whoever has sent it. Of these sessions; None: wills."""
        unpublished: list[UnpublishedMessage] = []
        for session in () if self._records is None else sessions:
            for row, data in self._queue(session).entries(
                QUEUE_MAX if session is None else self._entries_max
            ):
                try:
                    kept = _decoder.decode(data)
                    properties = None
                    if kept.properties is not None:
                        properties = PacketReader(kept.properties).properties(PacketType.PUBLISH)
                except (msgspec.DecodeError, MalformedPacket):
                    self._node.counters.count("mqtt_damaged_total")
                    continue
                if kept.packet_id and session is not None:
                    session.received[kept.packet_id] = row
                if not kept.until or self._exchange.has_kept(kept.sequence, kept.payload):
                    if not kept.packet_id:
                        self._forget(session, row)
                    continue
                qos, packet_id = kept.qos, kept.packet_id
                message = Publish(kept.topic, kept.payload, qos, kept.retain, True, packet_id, properties)
                unpublished.append(UnpublishedMessage(session, row, kept, message))
        self.unpublished.extend(sorted(unpublished, key=lambda one: one.kept.sequence))
        for _, _, kept, message, _ in self.unpublished:
            self._exchange.take_place(message, kept.sequence, kept.stamp)

    def publish_unpublished(self) -> None:
        """What earlier boots may not have published, oldest first, each when there is room for it."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        while self.unpublished and not self._is_closed:
            session, row, kept, message, on_taken = self.unpublished[0]
            if remaining(kept.until, self._wall(), ALWAYS):
                if self._exchange.admit(session, message).obstacle:
                    self._try_later()
                else:
                    self._publish(session, row, kept, message, self._on_unpublished)
                return
            self._exchange.give_place_up(kept.sequence, kept.payload)
            self._forget(session, row)  # its lifetime is over
            self.unpublished.popleft()
            on_taken(ReasonCode.SUCCESS)

    def _on_unpublished(self, reason: ReasonCode) -> None:
        if reason is ReasonCode.QUOTA_EXCEEDED:  # by the disk
            self._try_later()
            return
        session, row, kept, _, on_taken = self.unpublished.popleft()
        if reason >= 0x80 or not kept.packet_id:
            if session is not None:
                session.received.pop(kept.packet_id, 0)
            self._forget(session, row)
        on_taken(reason)
        self.publish_unpublished()

    def _try_later(self) -> None:
        self._retry = asyncio.get_running_loop().call_later(ROOM_SECONDS, self.publish_unpublished)

    def _publish(
        self, session: MqttSession | None, row: int, kept: IncomingMessage, message: Publish, then: OnTaken
    ) -> None:
        if self._is_closed:
            return

        def published(reason: ReasonCode) -> None:
            if reason >= 0x80:
                then(reason)
                return
            settle()

        def settle() -> None:
            if self._is_closed:
                return
            # In one transaction with the event. It is in the mesh, so a disk that refuses now is waited for:
            # a client that repeats its message under another number would double it.
            self._replace(session, row, IncomingMessage(kept.packet_id, kept.sequence, 0))
            self._node.when_durable(
                lambda: then(ReasonCode.SUCCESS),
                lambda _: asyncio.get_running_loop().call_later(ROOM_SECONDS, settle),
            )

        if len(message.payload) > PAYLOAD_BYTES_MAX:
            self._exchange.publish_large(session, message, published, kept.sequence, kept.stamp)
        else:
            outcome = self._exchange.publish(
                session, message, sequence=kept.sequence, stamp=kept.stamp, is_admitted=True
            )
            published(outcome.reason)

    def _forget(self, session: MqttSession | None, row: int) -> bool:
        return self._write(lambda: self._queue(session).acknowledge(row))

    def _replace(self, session: MqttSession | None, row: int, kept: IncomingMessage) -> None:
        self._write(lambda: self._queue(session).replace(row, _encoder.encode(kept)))

    def _write(self, write: Callable[[], object]) -> bool:
        """Whether the disk has not refused it at once."""
        try:
            if self._records is not None:
                write()
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
            return False
        return True

    def _queue(self, session: MqttSession | None) -> Queue:
        """The queue of a client; wills have the empty name, which no client has."""
        assert self._records is not None
        if session is None:
            return self._records.queue(INCOMING)
        return self._records.queue(INCOMING + session.client_id, self._entries_max)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(IncomingMessage)
