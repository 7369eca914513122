"""What of a session survives a crash of the node.

- The session itself: subscriptions, expiry, will.
- Messages of QoS 2 in flight, with their packet identifiers, and whether the client has confirmed them. They
  are written before PUBLISH and before PUBREL are sent, so that after a crash the exchange goes on where it
  was and the client gets the message once (section 4.3.3). What clients send: `incoming.py`.
- Real-time messages of QoS 1 that wait for an absent or slow client. One in flight to a connected client is
  written after a second, or when the connection ends: most are acknowledged long before and never cost a
  write.
- Which memorized events were delivered to the client. The events themselves are in the node's store; after a
  restart the client gets those that match and are not noted as delivered.

So a SIGKILL loses no memorized event, and of real-time messages at most those sent to a connected client
within the last second. Without storage, or if the disk refuses, sessions live in memory alone.
"""

from collections.abc import Callable

import msgspec

from roamcast.broker.store import StoreFullError
from roamcast.event import EventId
from roamcast.gateway.mqtt.mesh.mapping import MeshMessage
from roamcast.gateway.mqtt.packets.values import SubscriptionRequest, Will
from roamcast.gateway.mqtt.sessions.session import PACKET_IDS, MqttSession, UnacknowledgedMessage
from roamcast.gateway.node import GatewayNode
from roamcast.runtime.live.storage.clients import ClientRecords
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.units import Micros

PREFIX = "mqtt:"
INCOMING = "mqtt-in:"  # rows of `incoming.py`
SETTLE: Micros = 1_000_000  # a message in flight for this long is written; chosen by us: loss against writes


class KeptSession(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A session as stored; times are on the wall clock, in microseconds."""

    username: str | None
    expiry: int
    expires_at: int  # if the client does not come back; for a connected one, counted from this writing
    subscriptions: list[tuple[SubscriptionRequest, int]]
    received: list[int]
    released: list[int]
    will: Will | None
    will_due: int | None


class KeptMessage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    topic: str
    payload: bytes
    message_qos: int
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    properties: bytes
    expires_at: int | None  # on the wall clock
    expires_in: int  # what was left when it was written
    packet_id: int = 0  # of a QoS 2 exchange that has begun
    released: bool = False  # PUBREC came; the content is left out
    memorized: tuple[int, int, int] | None = (
        None  # publisher, sequence, end of the lifetime on the wall clock
    )


def remaining(kept_at: Micros, wall: Micros, at_most: Micros) -> Micros:
    """The time left until an instant on the wall clock, at most `at_most`. A device without a battery for its
    clock starts in 1970. Until its clock is set, nobody knows how long it was off, so the whole time counts
    as left."""
    if kept_at < CLOCK_SET or wall < CLOCK_SET:
        return at_most
    return min(max(0, kept_at - wall), at_most)


class Notes:
    """The `Watcher` of all sessions."""

    def __init__(
        self, node: GatewayNode, clock: Callable[[], Micros], wall: Callable[[], Micros], queue_max: int
    ) -> None:
        self._node = node
        self._clock = clock
        self._wall = wall
        self._queue_max = queue_max
        self._records = None if node.storage is None else ClientRecords(node.storage)
        self.is_kept = self._records is not None
        self.matched = self.reached = self.absent = 0
        self.wrote = False  # something that is not durable yet; `MeshExchange.publish` resets and reads it

    # The watcher.

    def on_waiting(self, session: MqttSession, outgoing: UnacknowledgedMessage) -> None:
        if self._records is None or not session.is_durable:
            return
        if outgoing.message.memorized is None and not outgoing.row:  # else the node's store has it, or we
            self._write(self._records, session, outgoing)

    def before_step(
        self, session: MqttSession, outgoing: UnacknowledgedMessage, then: Callable[[], None]
    ) -> None:
        if self._records is None or not session.is_durable:
            then()
            return
        self._write(self._records, session, outgoing)
        self._node.when_durable(then, lambda _: then())  # if the disk refuses: in memory alone

    def on_done(
        self, session: MqttSession, message: MeshMessage, outgoing: UnacknowledgedMessage | None
    ) -> None:
        if self._records is None or not session.is_durable:
            return
        client = PREFIX + session.client_id
        try:
            if outgoing is not None and outgoing.row:
                self._records.queue(client).acknowledge(outgoing.row)
                outgoing.row = 0
            elif message.memorized is None:
                return
            if message.memorized is not None:
                event, lives_until = message.memorized
                self._records.note_delivered(client, event, self._on_wall(lives_until))
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
        self._commit()

    def on_dropped(self, reason: str) -> None:
        self._node.counters.count("mqtt_dropped_total", reason=reason)

    def any_packet_id(self) -> int:
        """For the first message after a restart. A client may still wait for the release of a message that a
        full disk could not record, and would take a new message with that identifier for a copy of it."""
        return self._node.world.random.randrange(PACKET_IDS)

    def on_evicted(self) -> None:
        self._node.counters.count("table_evictions_total", table="mqtt sessions")

    def stored(self, event: EventId) -> MeshMessage | None:
        applications, now = self._node.applications, self._node.now()
        broker = applications.node.broker
        found = broker.store.find(event)
        whole = None if found is None else applications.assembler.whole(found, now)
        if whole is None or whole.expires_at <= now:
            return None
        lives_until = self._clock() + whole.expires_at - now
        return MeshMessage.of_event(broker.readable(whole.event), self._clock(), lives_until)

    def is_stored(self, event: EventId) -> bool:
        found = self._node.applications.node.broker.store.find(event)
        return found is not None and found.expires_at > self._node.now()

    def is_coming(self, event: EventId) -> bool:
        return self._node.applications.node.broker.is_unkept(event)

    # Sessions.

    def save(self, session: MqttSession) -> None:
        """Write a session that outlives its connection, with the messages that the client may not have."""
        if self._records is None or not session.is_durable:
            return
        for outgoing in session.unacknowledged():
            if not outgoing.released:
                self.on_waiting(session, outgoing)
        now, wall = self._clock(), self._wall()
        kept = KeptSession(
            session.username,
            session.expiry,
            wall + (session.expiry if session.expires_at is None else session.expires_at - now),
            [(found.request, found.identifier) for found in session.subscriptions.values()],
            sorted(packet_id for packet_id, row in session.received.items() if not row),
            [
                outgoing.packet_id
                for outgoing in session.unacknowledged()
                if outgoing.released and not outgoing.row
            ],
            session.will,
            None if session.will_due is None else wall + session.will_due - now,
        )
        try:
            self._records.put_session(PREFIX + session.client_id, _encoder.encode(kept))
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
        self._commit()

    def settle(self, session: MqttSession, older_than: Micros) -> None:
        """Write what has been in flight to a connected client since before `older_than`."""
        if self._records is None or not session.is_durable:
            return
        self.wrote = False
        for outgoing in session.unacknowledged():
            if not outgoing.row and not outgoing.released and outgoing.since <= older_than:
                self.on_waiting(session, outgoing)
        if self.wrote:
            self._commit()

    def end(self, session: MqttSession) -> None:
        """The session is over: delete everything about it."""
        if self._records is None or self._records.session(PREFIX + session.client_id) is None:
            return
        try:
            for prefix in (PREFIX, INCOMING):
                self._records.end_session(prefix + session.client_id)
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
        self._commit()

    def kept_sessions(self) -> list[tuple[str, KeptSession]]:
        """The sessions of earlier boots; a damaged record is deleted and counted."""
        if self._records is None:
            return []
        found: list[tuple[str, KeptSession]] = []
        for client in self._records.clients():
            data = self._records.session(client) if client.startswith(PREFIX) else None
            if data is None:
                continue
            try:
                found.append((client.removeprefix(PREFIX), _sessions.decode(data)))
            except msgspec.DecodeError:
                self._node.counters.count("mqtt_damaged_total")
                self._records.end_session(client)
        return found

    def kept_messages(self, client_id: str) -> list[UnacknowledgedMessage]:
        if self._records is None:
            return []
        now, wall = self._clock(), self._wall()
        found: list[UnacknowledgedMessage] = []
        for row, data in self._records.queue(PREFIX + client_id).entries(self._queue_max):
            try:
                kept = _messages.decode(data)
            except msgspec.DecodeError:
                self._node.counters.count("mqtt_damaged_total")
                continue
            expires_at = None
            if kept.expires_at is not None:
                expires_at = now + remaining(kept.expires_at, wall, kept.expires_in)
            memorized = None
            if kept.memorized is not None:
                publisher, sequence, until = kept.memorized
                memorized = (EventId(publisher, sequence), now + max(0, until - wall))
            message = MeshMessage(
                kept.topic,
                kept.payload,
                kept.message_qos,
                properties=kept.properties,
                expires_at=expires_at,
                memorized=memorized,
            )
            found.append(
                UnacknowledgedMessage(
                    message,
                    kept.qos,
                    kept.retain,
                    kept.identifiers,
                    now,
                    packet_id=kept.packet_id,
                    is_sent=kept.packet_id > 0,
                    released=kept.released,
                    row=row,
                )
            )
        return found

    def delivered(self, client_id: str) -> set[EventId]:
        if self._records is None:
            return set()
        return set(self._records.delivered(PREFIX + client_id, self._wall()))

    # Private.

    def _write(self, records: ClientRecords, session: MqttSession, outgoing: UnacknowledgedMessage) -> None:
        queue = records.queue(PREFIX + session.client_id, self._queue_max)
        data = _encoder.encode(self._kept(outgoing))
        try:
            if outgoing.row:
                queue.replace(outgoing.row, data)
            else:
                outgoing.row = queue.append(data)
        except StoreFullError:
            self._node.counters.count("mqtt_storage_refusals_total")
        self.wrote = True

    def _kept(self, outgoing: UnacknowledgedMessage) -> KeptMessage:
        message = outgoing.message
        is_whole = not outgoing.released
        return KeptMessage(
            message.topic if is_whole else "",
            message.payload if is_whole else b"",
            message.qos,
            outgoing.qos,
            outgoing.retain,
            outgoing.identifiers,
            message.properties if is_whole else b"",
            None if message.expires_at is None else self._on_wall(message.expires_at),
            0 if message.expires_at is None else max(0, message.expires_at - self._clock()),
            outgoing.packet_id,
            outgoing.released,
            None
            if message.memorized is None
            else (*message.memorized[0], self._on_wall(message.memorized[1])),
        )

    def _on_wall(self, at: Micros) -> Micros:
        return self._wall() + at - self._clock()

    def _commit(self) -> None:
        self.wrote = True
        self._node.when_durable(_nothing)  # a turn is committed at once only if someone waits for it


def _nothing() -> None:
    pass


_encoder = msgspec.msgpack.Encoder()
_sessions = msgspec.msgpack.Decoder(KeptSession)
_messages = msgspec.msgpack.Decoder(KeptMessage)
