"""One client's session: its subscriptions and the messages for it (MQTT 5.0, sections 4.1 to 4.4).

A session outlives its connection for as long as the client asked. Messages of QoS 1 and 2 go through it:
they wait in the queue, are in flight under a packet identifier until acknowledged, and are sent again when
the client comes back. Nothing here does I/O; a `ClientLink` sends.

                 deliver                 room in flight              PUBACK, PUBCOMP
    (no session) ───────▶ waiting ─────────────────────▶ in flight ───────────────────▶ gone
                             │                               └─ PUBREC (QoS 2): released, PUBREL until PUBCOMP
                             └─ absent, or queue full: memorized ones stay in the node's store alone,
                                                       of the others the oldest is dropped
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from roamcast.broker.store import ABSENT_WAIT
from roamcast.event import EventId
from roamcast.gateway.mqtt.mesh.content import ClientFilter
from roamcast.gateway.mqtt.mesh.mapping import MeshMessage
from roamcast.gateway.mqtt.packets.values import SubscriptionRequest, Will
from roamcast.units import Micros

PACKET_IDS = 65_535
DEFERRED_MAX = 100_000  # messages for one client that are in the node's store alone; chosen by us


class TopicSubscription(NamedTuple):
    request: SubscriptionRequest
    parsed: ClientFilter
    identifier: int  # 0: none


class UnacknowledgedMessage(msgspec.Struct, eq=False, gc=False):
    """One message of QoS 1 or 2 for one client."""

    message: MeshMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    since: Micros
    packet_id: int = 0  # 0: not in flight
    is_held: bool = False  # the exchange waits for the disk before its next packet
    is_sent: bool = False  # maybe by an earlier boot
    released: bool = False  # PUBREC came: only PUBREL is sent again
    is_owed: bool = False  # the client needs it from the node's store, now or after a crash
    row: int = 0  # the durable queue's number; 0: not written


class DeferredMessage(NamedTuple):
    """A message that is in the node's store alone, for a client that is absent or whose queue is full. One
    for all clients that get it in the same form: it may wait for thousands."""

    event: EventId
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    since: Micros


class OwedEvents:
    """The memorized events that clients still need from the node's store, and how many clients need each. A
    client is not waited for longer than a node is."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        self._clock = clock
        self._clients: dict[EventId, int] = {}
        self._since: dict[EventId, Micros] = {}  # when the last of them began to need it

    def add(self, event: EventId, since: Micros) -> None:
        self._clients[event] = self._clients.get(event, 0) + 1
        self._since[event] = max(since, self._since.get(event, since))

    def remove(self, event: EventId) -> None:
        clients = self._clients.get(event, 0) - 1
        if clients > 0:
            self._clients[event] = clients
        else:
            self._clients.pop(event, None)
            self._since.pop(event, None)

    def __contains__(self, event: object) -> bool:
        since = self._since.get(event)  # type: ignore[call-overload]
        return since is not None and since > self._clock() - ABSENT_WAIT

    def __len__(self) -> int:
        return len(self._clients)


class ClientLink(Protocol):
    """The connection, as its session sees it."""

    inflight_max: int

    @property
    def is_writable(self) -> bool:
        """Whether the client reads what it is sent."""
        ...

    def send_plain(self, message: MeshMessage, retain: bool, identifiers: tuple[int, ...]) -> bool:
        """QoS 0. False if the client accepts no packet of that size."""
        ...

    def send_outgoing(self, outgoing: UnacknowledgedMessage, duplicate: bool) -> bool:
        """False if the client accepts no packet of that size: it counts as delivered (section 3.1.2.11.4)."""
        ...

    def send_release(self, packet_id: int) -> None: ...


class Watcher(Protocol):
    """Gets the outcomes of messages: the durable side of a session and its counters. Every message for a
    client has `reached` it, is dropped with a reason, or still here: so the counters of a node add up."""

    matched: int
    reached: int
    absent: int  # of QoS 0, for clients that were away: dropped too, and as many as there are sessions

    def on_waiting(self, session: "MqttSession", outgoing: UnacknowledgedMessage) -> None:
        """The message waits: written down if the session is durable."""
        ...

    def before_step(
        self, session: "MqttSession", outgoing: UnacknowledgedMessage, then: Callable[[], None]
    ) -> None:
        """A QoS 2 exchange is about to send PUBLISH or PUBREL: `then`, once the step survives a crash."""
        ...

    def on_done(
        self, session: "MqttSession", message: MeshMessage, outgoing: UnacknowledgedMessage | None
    ) -> None:
        """The client has it, or will never get it."""
        ...

    def on_dropped(self, reason: str) -> None: ...

    def stored(self, event: EventId) -> MeshMessage | None:
        """A memorized event, as long as the node's store has it."""
        ...

    def is_stored(self, event: EventId) -> bool: ...

    def is_coming(self, event: EventId) -> bool:
        """The store had no room for it yet, and the node takes it as new when it comes again."""
        ...


class MqttSession:
    def __init__(
        self,
        client_id: str,
        watcher: Watcher,
        clock: Callable[[], Micros],
        owed: OwedEvents,
        *,
        queue_messages_max: int,
        queue_bytes_max: int,
    ) -> None:
        self.client_id = client_id
        self.username: str | None = None
        self.subscriptions: dict[str, TopicSubscription] = {}  # by the client's text
        self.no_local: set[str] = set()  # those of them that leave out the client's own messages
        self.link: ClientLink | None = None
        self.expiry: Micros = 0  # after the connection ends; 0: at once
        self.expires_at: Micros | None = None  # while it is absent
        self.is_ended = False  # what still comes is ignored
        self.had: set[EventId] = (
            set()
        )  # memorized events of before a restart; neighbours may offer them again
        self.will: Will | None = None
        self.will_due: Micros | None = None  # while it is absent
        self.received: dict[
            int, int
        ] = {}  # QoS 2 from the client, not yet released; with their rows (`incoming.py`)
        self._watcher = watcher
        self._clock = clock
        self._owed = owed
        self._queue: deque[UnacknowledgedMessage] = deque()
        self._queue_bytes = 0
        self._deferred: deque[DeferredMessage] = deque()
        self._queue_messages_max = queue_messages_max
        self._queue_bytes_max = queue_bytes_max
        self._inflight: dict[int, UnacknowledgedMessage] = {}  # by packet identifier, in the order of sending
        self.last_packet_id = 0

    # Questions.

    @property
    def is_durable(self) -> bool:
        """Outlives its connection."""
        return self.expiry > 0

    @property
    def readiness(self) -> int:
        """For the choice of a member of a share group: 2 reads, 1 is connected, 0 is absent."""
        if self.link is None:
            return 0
        return 2 if self.link.is_writable else 1

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._deferred)

    @property
    def in_flight(self) -> int:
        return len(self._inflight)

    def unacknowledged(self) -> list[UnacknowledgedMessage]:
        """All that the client may not have, oldest first."""
        return [*self._inflight.values(), *self._queue]

    def awaited(self) -> set[EventId]:
        """The memorized events that the client still has to get."""
        messages = (one.message for one in self.unacknowledged())
        return {one.event for one in self._deferred} | {one.memorized[0] for one in messages if one.memorized}

    # Inputs.

    def deliver(
        self, message: MeshMessage, granted_qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """A message for this client, at the lower of its own QoS and the subscription's."""
        link = self.link
        qos = message.qos if message.qos < granted_qos else granted_qos
        watcher = self._watcher
        if not qos:
            watcher.matched += 1
            if link is None:
                watcher.absent += 1  # QoS 0 messages are not queued
                return
            if link.is_writable:
                if link.send_plain(message, retain, identifiers):
                    watcher.reached += 1
                else:
                    watcher.on_dropped("packet_too_large")
                if message.memorized is not None:
                    self._watcher.on_done(self, message, None)
            else:
                watcher.on_dropped("slow")
            return
        if self.had and message.memorized is not None and message.memorized[0] in self.had:
            return
        watcher.matched += 1
        outgoing = UnacknowledgedMessage(message, qos, retain, identifiers, self._clock())
        if link is not None and not self._queue and self._has_room(link):
            self._send(link, outgoing)
        else:
            self._enqueue(outgoing)

    def end(self) -> None:
        """Nothing is needed for this client any more."""
        self.is_ended = True
        for outgoing in self.unacknowledged():
            self._disown(outgoing)
            self._watcher.on_dropped("session_ended")
        for deferred in self._deferred:
            self._owed.remove(deferred.event)
            self._watcher.on_dropped("session_ended")
        self._inflight.clear()
        self._queue.clear()
        self._deferred.clear()

    def restore(self, outgoing: UnacknowledgedMessage) -> None:
        """A message of an earlier boot of this node; it is already stored."""
        self._own(outgoing)
        self._watcher.matched += 1
        if outgoing.packet_id:
            self._inflight[outgoing.packet_id] = outgoing
            return
        self._queue.append(outgoing)
        self._queue_bytes += outgoing.message.size

    def restore_released(self, packet_id: int) -> None:
        """A QoS 2 message whose PUBREL was on its way."""
        self._watcher.matched += 1
        self._inflight[packet_id] = UnacknowledgedMessage(
            MeshMessage("", b"", 2), 2, False, (), self._clock(), packet_id, is_sent=True, released=True
        )

    def resume(self) -> None:
        """The client is back: what is in flight is sent again, in order, then what waits (section 4.4)."""
        link = self.link
        assert link is not None
        for outgoing in list(self._inflight.values()):
            if outgoing.is_held:
                continue  # it is sent when it is durable
            if outgoing.released:
                link.send_release(outgoing.packet_id)
            elif self._is_over(outgoing.message) and not (outgoing.qos == 2 and outgoing.is_sent):
                # One that the client may have begun to receive goes on (section 4.3.3).
                self._watcher.on_dropped("expired")
                self._finish(outgoing)
            else:
                self._transmit(link, outgoing)
        self.pump()

    def pump(self) -> None:
        """Send what waits while there is room in flight and the client reads."""
        link = self.link
        queue = self._queue
        while link is not None and self._has_room(link) and (queue or self._refill()):
            outgoing = queue.popleft()
            self._queue_bytes -= outgoing.message.size
            if self._is_over(outgoing.message):
                self._watcher.on_dropped("expired")
                self._done(outgoing)
            else:
                self._send(link, outgoing)

    def on_acknowledged(self, packet_id: int, qos: int) -> bool:
        """PUBACK (QoS 1) or PUBCOMP (QoS 2); False if nothing of that kind is in flight."""
        outgoing = self._inflight.get(packet_id)
        if outgoing is None or outgoing.qos != qos:
            return False
        self._watcher.reached += 1
        self._finish(outgoing)
        if self._queue or self._deferred:
            self.pump()
        return True

    def on_received(self, packet_id: int, reason: int) -> bool:
        """PUBREC: from now on only PUBREL; a refusal ends it. False if it is not in flight with QoS 2."""
        outgoing = self._inflight.get(packet_id)
        if outgoing is None or outgoing.qos != 2:
            return False
        if reason >= 0x80:
            return self.on_acknowledged(packet_id, 2)
        if not outgoing.released:
            outgoing.released = True
            outgoing.is_held = True
            self._watcher.before_step(self, outgoing, lambda: self._on_durable(outgoing))
        elif not outgoing.is_held and self.link is not None:
            self.link.send_release(packet_id)
        return True

    # Private.

    def _has_room(self, link: ClientLink) -> bool:
        return len(self._inflight) < link.inflight_max and link.is_writable

    def _send(self, link: ClientLink, outgoing: UnacknowledgedMessage) -> None:
        packet_id = self.last_packet_id % PACKET_IDS + 1
        while packet_id in self._inflight:
            packet_id = packet_id % PACKET_IDS + 1
        self.last_packet_id = outgoing.packet_id = packet_id
        self._inflight[packet_id] = outgoing
        self._own(outgoing)
        if outgoing.qos == 2:
            outgoing.is_held = True
            self._watcher.before_step(self, outgoing, lambda: self._on_durable(outgoing))
        else:
            self._transmit(link, outgoing)

    def _on_durable(self, outgoing: UnacknowledgedMessage) -> None:
        """The next packet of a QoS 2 exchange may be sent; without a connection it is, by `resume`."""
        outgoing.is_held = False
        link = self.link
        if link is None or self._inflight.get(outgoing.packet_id) is not outgoing:
            return
        if outgoing.released:
            link.send_release(outgoing.packet_id)
        else:
            self._transmit(link, outgoing)

    def _transmit(self, link: ClientLink, outgoing: UnacknowledgedMessage) -> None:
        if link.send_outgoing(outgoing, outgoing.is_sent):
            outgoing.is_sent = True
        else:
            self._watcher.on_dropped("packet_too_large")
            self._finish(outgoing)

    def _finish(self, outgoing: UnacknowledgedMessage) -> None:
        del self._inflight[outgoing.packet_id]
        self._done(outgoing)

    def _done(self, outgoing: UnacknowledgedMessage) -> None:
        self._disown(outgoing)
        self._watcher.on_done(self, outgoing.message, outgoing)

    def _own(self, outgoing: UnacknowledgedMessage) -> None:
        memorized = outgoing.message.memorized
        if memorized is not None and self.is_durable and not outgoing.is_owed:
            outgoing.is_owed = True
            self._owed.add(memorized[0], outgoing.since)

    def _disown(self, outgoing: UnacknowledgedMessage) -> None:
        if outgoing.is_owed and outgoing.message.memorized is not None:
            outgoing.is_owed = False
            self._owed.remove(outgoing.message.memorized[0])

    def _enqueue(self, outgoing: UnacknowledgedMessage) -> None:
        if self.is_ended:
            self._watcher.on_dropped("session_ended")
            return
        size = outgoing.message.size
        if (self.link is None or self._deferred or self._is_full(size)) and self._defer(outgoing):
            return
        self._queue.append(outgoing)
        self._queue_bytes += size
        self._own(outgoing)
        self._watcher.on_waiting(self, outgoing)
        while self._is_full(0) and len(self._queue) > 1:
            # One that the node's store has by now, or will have, is left to it; else the oldest is lost.
            for excess in reversed(self._queue):
                if self._defer(excess, in_front=True):
                    break
            else:
                excess = self._queue[0]
                self._watcher.on_dropped("queue_full")
                self._done(excess)
            self._queue.remove(excess)
            self._queue_bytes -= excess.message.size

    def _is_full(self, more_bytes: int) -> bool:
        """Whether the queue is over its bounds, or would be with one more message."""
        return (
            len(self._queue) + (more_bytes > 0) > self._queue_messages_max
            or self._queue_bytes + more_bytes > self._queue_bytes_max
        )

    def _defer(self, outgoing: UnacknowledgedMessage, *, in_front: bool = False) -> bool:
        """Leave a message to the node's store. False if that does not have it."""
        memorized, watcher = outgoing.message.memorized, self._watcher
        if memorized is None or not (
            # The store may not have the event yet, so the queue is safer; where the queue is full, the event
            # is still not lost.
            watcher.is_stored(memorized[0])
            or (watcher.is_coming(memorized[0]) and self._is_full(outgoing.message.size))
        ):
            return False
        while self._deferred and not (
            watcher.is_stored(self._deferred[0].event) or watcher.is_coming(self._deferred[0].event)
        ):
            self._owed.remove(self._deferred.popleft().event)  # expired
            self._watcher.on_dropped("expired")
        if len(self._deferred) >= DEFERRED_MAX:
            self._owed.remove(self._deferred.popleft().event)
            self._watcher.on_dropped("queue_full")
        form = (memorized[0], outgoing.qos, outgoing.retain, outgoing.identifiers)
        deferred = outgoing.message.deferred
        if deferred is None or deferred[:4] != form:
            deferred = outgoing.message.deferred = DeferredMessage(*form, outgoing.since)
        (self._deferred.appendleft if in_front else self._deferred.append)(deferred)
        self._disown(outgoing)
        self._owed.add(memorized[0], outgoing.since)
        return True

    def _refill(self) -> bool:
        """Fetch what was left to the node's store. Whether there is something."""
        for _ in range(len(self._deferred)):
            if self._is_full(1):
                break
            event, qos, retain, identifiers, since = deferred = self._deferred.popleft()
            message = self._watcher.stored(event)
            if message is None and self._watcher.is_coming(event):
                self._deferred.append(deferred)
                continue
            self._owed.remove(event)
            if message is None:
                self._watcher.on_dropped("expired")
                continue
            outgoing = UnacknowledgedMessage(message, qos, retain, identifiers, since)
            self._own(outgoing)
            self._queue.append(outgoing)
            self._queue_bytes += message.size
        return bool(self._queue)

    def _is_over(self, message: MeshMessage) -> bool:
        return message.expires_at is not None and message.expires_at <= self._clock()
