"""Between clients and the mesh: publications in, deliveries out, stored events shown to new subscribers.

The listener has one session on the node. Publications and subscriptions of all clients go through it;
`ClientInterests` knows which client wants what. A publication is delivered to local clients before `publish`
returns.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from roamcast.applications import Admission, AdmissionOutcome
from roamcast.broker.core import Delivery
from roamcast.broker.retained import AT, FLAGS, RETAINED, is_retained, order_of, stamp_of
from roamcast.broker.seen import event_key
from roamcast.broker.store import StoredEvent, StoreFullError
from roamcast.chunks import count_of
from roamcast.errors import EventError, FilterError, InputError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, EventId, Publication, Value
from roamcast.filter import Filter
from roamcast.filter.expression import Compare, Operator
from roamcast.gateway.access import rights_of
from roamcast.gateway.mqtt.mesh.content import parse_client_filter
from roamcast.gateway.mqtt.mesh.mapping import MeshMessage, TooLarge, attributes_of, is_topic
from roamcast.gateway.mqtt.mesh.members import JsonMembers
from roamcast.gateway.mqtt.packets.values import Publish, ReasonCode, SubscriptionRequest, Will
from roamcast.gateway.mqtt.sessions.durable import Notes
from roamcast.gateway.mqtt.sessions.interests import ClientInterests
from roamcast.gateway.mqtt.sessions.session import MqttSession, TopicSubscription
from roamcast.gateway.node import GatewayNode
from roamcast.gateway.options import MqttOptions
from roamcast.kit.tables import BoundedDict, OnEvicted, unreported
from roamcast.units import SECOND, Micros, micros

ALL_RETAINED = Filter(Compare(FLAGS, Operator.GREATER_OR_EQUAL, RETAINED))

# Chosen by us.
LARGE_WAITING_MAX = 64 * 1024 * 1024  # octets of large payloads under way from all clients
ROOM_SECONDS = 0.1  # until a store that had no room is asked again
OWN_KEPT = 1_000  # events whose publisher is remembered until they are delivered here

_PLAIN: tuple[dict[str, Value], ...] = tuple({FLAGS: qos} for qos in range(3))


class PublishOutcome(NamedTuple):
    reason: ReasonCode = ReasonCode.SUCCESS
    must_wait: bool = False  # the acknowledgement waits until the publication is durable
    wait: float = 0.0  # seconds until the client's next message is read
    obstacle: str = ""  # nothing was published, and it may be tried again: why, as a label


ACCEPTED = PublishOutcome()
ACCEPTED_WHEN_DURABLE = PublishOutcome(must_wait=True)
TOO_LARGE = PublishOutcome(ReasonCode.QUOTA_EXCEEDED)
NOT_KEPT = PublishOutcome(ReasonCode.QUOTA_EXCEEDED)
NOT_ALLOWED = PublishOutcome(ReasonCode.NOT_AUTHORIZED)
REFUSALS = {
    AdmissionOutcome.WAIT: PublishOutcome(ReasonCode.QUOTA_EXCEEDED, obstacle="store_full"),
    AdmissionOutcome.SHED: PublishOutcome(ReasonCode.SERVER_BUSY),
    AdmissionOutcome.REFUSED: PublishOutcome(ReasonCode.QUOTA_EXCEEDED, obstacle="mesh_busy"),
}


class MeshExchange:
    def __init__(
        self,
        node: GatewayNode,
        options: MqttOptions,
        notes: Notes,
        clock: Callable[[], Micros],
        wall: Callable[[], Micros],
    ) -> None:
        self._node = node
        self._options = options
        self._notes = notes
        self._clock = clock
        self._wall = wall
        self._retained_lifetime = micros(options.retained_lifetime)
        self._qos1_lifetime = micros(options.qos1_lifetime)
        self.keeps_qos1 = options.qos1 != "realtime"  # until every node has had it
        # Above QoS 0 MQTT promises what not every strategy does; `qos1 = "realtime"` promises nothing.
        self.qos_max = 0 if self.keeps_qos1 and node.applications.node.unpromised else 2
        self._shows_qos1 = options.qos1 == "memorized"  # to later subscribers too
        self._session = session = node.applications.open(self._on_delivery)
        self.interests = ClientInterests(session)
        self._stamps = RetainedStamps(
            self._held, lambda *_: node.counters.count("table_evictions_total", table="mqtt retained stamps")
        )
        self._number = node.number
        # Who published an event, where that decides who gets it (no local).
        self._own: BoundedDict[EventId, MqttSession] = BoundedDict(OWN_KEPT, unreported)
        self._large_bytes = 0  # of payloads that wait for the turn of their chunks
        self._members = JsonMembers(
            options.json, lambda reason: node.counters.count("mqtt_json_total", 1, reason=reason)
        )
        self.published = 0  # messages from clients, and what was shed of them

    def close(self) -> None:
        self._session.close()

    def now(self) -> Micros:
        return self._clock()

    def reserve(self, payload: bytes) -> int:
        """The number of an event that is published later."""
        return self._session.reserve_for(payload)

    def stamp(self, message: Publish | Will) -> Micros:
        """Its place among the retained messages of its topic: as it came, whenever it is published."""
        return self._stamps.next(message.topic, self._wall()) if message.retain else 0

    def lifetime_of(self, message: Publish | Will) -> Micros:
        """0: real-time. A message that clears a topic outlives all that it clears."""
        retain = message.retain
        if not (retain or (message.qos and self.keeps_qos1)):
            return 0
        default = self._retained_lifetime if retain else self._qos1_lifetime
        expiry = None if message.properties is None else message.properties.message_expiry
        if expiry is None or (retain and not message.payload):
            return default
        return max(1, min(expiry * SECOND, self._retained_lifetime) if retain else expiry * SECOND)

    def has_kept(self, sequence: int, payload: bytes) -> bool:
        """Whether the event of this number of ours, or the last of its chunks, is in the store."""
        return (
            EventId(self._number, sequence + _chunks(payload) - 1)
            in self._node.applications.node.broker.store
        )

    def take_place(self, message: Publish, sequence: int, stamp: Micros) -> None:
        """What is published meanwhile comes after this message, which has its number."""
        if message.retain:
            self._stamps.on_stamp(message.topic, stamp)
            return
        frame = Publication(_PLAIN[message.qos], topic=message.topic, lifetime=self.lifetime_of(message))
        order = self._node.applications.node.broker.order
        order.begin(frame, sequence, _chunks(message.payload), self._node.now())

    def give_place_up(self, sequence: int, payload: bytes) -> None:
        """The message will not be published under its reserved number."""
        self._node.applications.node.broker.order.give_up(sequence, _chunks(payload))

    # From clients.

    def objection(self, will: Will) -> ReasonCode | None:
        """Why a will is not accepted: when it is due, nobody is there to be told."""
        if will.qos > self.qos_max:
            return ReasonCode.QOS_NOT_SUPPORTED
        publication = self._publication(None, will, stamp=1)
        if isinstance(publication, PublishOutcome):
            return publication.reason
        refused = publication.lifetime and self._node.applications.node.strategy.refuses(publication)
        return ReasonCode.PACKET_TOO_LARGE if refused or len(will.payload) > PAYLOAD_BYTES_MAX else None

    def admit(self, session: MqttSession | None, message: Publish) -> PublishOutcome:
        """Whether a message may be published now; `publish` then gets it as one that was admitted."""
        publication = self._publication(session, message)
        if isinstance(publication, PublishOutcome):
            return publication
        admission = self._session.admit(publication, message.qos > 0)
        return self._outcome(admission, publication)

    def publish(
        self,
        session: MqttSession | None,
        message: Publish | Will,
        *,
        sequence: int | None = None,
        stamp: Micros = 0,
        is_admitted: bool = False,
    ) -> PublishOutcome:
        """Publish a client's message, or its will (without a session), in the mesh. `sequence` and `stamp`:
        those of the event, if they were reserved."""
        publication = self._publication(session, message, stamp)
        if isinstance(publication, PublishOutcome):
            return publication
        own = None
        if session is not None and session.no_local:
            broker = self._node.applications.node.broker
            own = EventId(self._number, broker.next_number if sequence is None else sequence)
            self._own[own] = session
        self._notes.wrote = False
        try:
            admission = self._session.publish(
                publication, sequence, must_arrive=message.qos > 0, is_admitted=is_admitted
            )
        except StoreFullError:
            return NOT_KEPT
        except InputError:
            return TOO_LARGE  # all else was checked when the packet was decoded
        finally:
            if own is not None:  # local clients have it by now, or it was not published
                self._own.pop(own, None)
        if admission.published is None or admission.wait:
            return self._outcome(admission, publication)
        self.published += 1
        notes = self._notes
        return ACCEPTED_WHEN_DURABLE if notes.is_kept and (notes.wrote or publication.lifetime) else ACCEPTED

    def publish_large(
        self,
        session: MqttSession | None,
        message: Publish,
        then: Callable[[ReasonCode], None],
        sequence: int | None = None,
        stamp: Micros = 0,
    ) -> None:
        """The same for an admitted payload above the bound of an event: in chunks, each in its turn. `then`
        gets the outcome when the last one is in the mesh, and durable where the event is memorized."""
        payload = message.payload
        publication = self._publication(session, message, stamp)
        if isinstance(publication, PublishOutcome):
            then(publication.reason)
            return
        if self._large_bytes + len(payload) > LARGE_WAITING_MAX:
            then(ReasonCode.QUOTA_EXCEEDED)
            return

        def on_end(error: Exception | None) -> None:
            self._large_bytes -= len(payload)
            if error is not None:
                then(ReasonCode.QUOTA_EXCEEDED)
                return
            self.published += 1
            self.when_kept(lambda: then(ReasonCode.SUCCESS))

        self._large_bytes += len(payload)
        try:
            sequence = self.reserve(payload) if sequence is None else sequence
            if session is not None and session.no_local:
                self._own[EventId(self._number, sequence)] = session
            self._session.begin_whole(publication, sequence, on_end, is_admitted=True)
        except (InputError, StoreFullError) as error:
            on_end(error)

    def when_kept(self, then: Callable[[], None]) -> None:
        """What has just been published is durable. It is in the mesh, so a disk that refuses it now is waited
        for: a client that hears of a refusal would send it once more."""
        self._node.when_durable(
            then, lambda _: asyncio.get_running_loop().call_later(ROOM_SECONDS, self.when_kept, then)
        )

    def _outcome(self, admission: Admission, publication: Publication) -> PublishOutcome:
        outcome = admission.outcome
        if outcome is not AdmissionOutcome.ACCEPTED:
            self.published += outcome is AdmissionOutcome.SHED
            return REFUSALS[outcome]
        self.published += admission.published is not None
        must_wait = self._notes.is_kept and (self._notes.wrote or publication.lifetime > 0)
        return PublishOutcome(must_wait=must_wait, wait=admission.wait)

    def _publication(
        self, session: MqttSession | None, message: Publish | Will, stamp: Micros = 0
    ) -> Publication | PublishOutcome:
        """What a message becomes, or why it is refused."""
        topic, payload, qos, retain = message.topic, message.payload, message.qos, message.retain
        properties = message.properties
        if self._options.rights and session is not None and not self._may(session, topic):
            return NOT_ALLOWED
        lifetime = self.lifetime_of(message)
        attributes = _PLAIN[qos]
        if retain or properties is not None:
            try:
                attributes = attributes_of(qos, retain, properties)
            except TooLarge:
                return TOO_LARGE
            if retain:
                attributes[AT] = stamp or self.stamp(message)
        if self._options.json and (lifted := self._members.of(topic, payload)):
            try:
                return Publication({**lifted, **attributes}, payload, topic, lifetime=lifetime)
            except EventError:
                pass  # without them it may fit
        try:
            return Publication(attributes, payload, topic, lifetime=lifetime)
        except EventError:
            return TOO_LARGE

    def _may(self, session: MqttSession, topic: str) -> bool:
        rights = rights_of(self._options.rights, session.username or "")
        return rights is None or rights.may_publish(topic)

    def subscribe(
        self, session: MqttSession, request: SubscriptionRequest, identifier: int
    ) -> TopicSubscription | ReasonCode:
        """The subscription, or the reason why it was refused."""
        try:
            parsed = parse_client_filter(request.filter, self._options.content_filters)
        except FilterError:
            return ReasonCode.TOPIC_FILTER_INVALID
        if request.filter in self._options.refused_filters:
            return ReasonCode.UNSPECIFIED
        rights = rights_of(self._options.rights, session.username or "")
        if rights is not None and not rights.may_subscribe(parsed.topic_filter):
            return ReasonCode.NOT_AUTHORIZED
        is_new = request.filter not in session.subscriptions
        if is_new and len(session.subscriptions) >= self._options.subscriptions_max:
            return ReasonCode.QUOTA_EXCEEDED
        return self.interests.add(session, request, parsed, identifier)

    def show_stored(self, session: MqttSession, subscription: TopicSubscription, is_new: bool) -> None:
        """Deliver stored events to a new subscriber: retained messages, as it asked, and memorized events
        that it did not get by its other subscriptions."""
        request, parsed, identifier = subscription
        if parsed.share:
            return  # section 4.8.2: none for shared subscriptions
        identifiers = (identifier,) if identifier else ()
        wants_retained = request.retain_handling == 0 or (request.retain_handling == 1 and is_new)
        notes_what_is_done = self._notes.is_kept and session.is_durable
        # Without what came since the subscription stands: it is on its way already.
        for entry in self._shown(parsed.on_topic, session.awaited()):
            event = entry.event
            # MQTT: a message that is not retained is only for those who had subscribed before it.
            is_for_others = is_kept_message(event) and not self._shows_qos1
            if (is_for_others and not notes_what_is_done) or not parsed.wanted.matches(event):
                continue
            message = self._message(entry)
            if message.retained:
                if wants_retained:
                    session.deliver(message, request.qos, True, identifiers)
                else:
                    self._notes.on_done(session, message, None)
            elif is_for_others:
                self._notes.on_done(session, message, None)
            elif is_new and not any(
                other.parsed.wanted.matches(event)
                for other in session.subscriptions.values()
                if other != subscription
            ):
                session.deliver(message, request.qos, False, identifiers)

    def show_missed(self, session: MqttSession, delivered: set[EventId]) -> None:
        """After a restart: deliver the stored events of a kept session that are not noted as delivered."""
        shown: set[EventId] = set()
        for subscription in list(session.subscriptions.values()):
            request, parsed, identifier = subscription
            identifiers = (identifier,) if identifier else ()
            if parsed.share:
                continue
            for entry in self._shown(parsed.on_topic, delivered):
                event = entry.event
                if event.id not in shown and parsed.wanted.matches(event):
                    shown.add(event.id)
                    session.deliver(self._message(entry), request.qos, False, identifiers)

    # From the mesh.

    def _on_delivery(self, delivery: Delivery) -> None:
        event = delivery.event
        if event.publisher != self._number and not is_topic(event.topic):
            self._notes.matched += 1
            self._notes.on_dropped("topic_name_invalid")  # a client would take it for a protocol error
            return
        attributes = event.attributes
        flags = attributes.get(FLAGS)
        # Fast path for the usual message without properties.
        if type(flags) is int and 0 <= flags <= 2 and len(attributes) == 1:
            memorized = (event.id, self._clock() + event.lifetime) if event.lifetime else None
            message = MeshMessage(event.topic, event.payload, flags, memorized=memorized)
        else:
            if is_retained(event):
                self._stamps.on_event(event)
            message = MeshMessage.of_event(event, self._clock())
        targets, groups = self.interests.plan(delivery.subscriptions)
        if groups:
            picked = [target for group in groups if (target := group.pick()) is not None]
            targets = (*targets, *picked)
        publisher = self._own.pop(event.id, None) if self._own else None
        retained = message.retained
        for target in targets:
            chosen = target.own if target.session is publisher else target
            if chosen is None:
                continue  # its own message, and all its subscriptions say no-local
            session, qos, identifiers, retain_as_published, _ = chosen
            session.deliver(message, qos, retained and retain_as_published, identifiers)

    # Private.

    def _shown(self, on_topic: Filter, without: set[EventId]) -> Iterator[StoredEvent]:
        """Stored events on these topics, of retained ones only the newest, without those that are held back
        for their order."""
        stored, held_back = self._session.stored(on_topic), self._node.applications.node.broker.held_back
        newest = {entry.event.id for entry in newest_retained(stored)}
        for entry in stored:
            event = entry.event
            if (
                is_topic(event.topic)
                and event.id not in without
                and event_key(*event.id) not in held_back
                and (not is_retained(event) or event.id in newest)
            ):
                yield entry

    def _message(self, entry: StoredEvent) -> MeshMessage:
        now = self._clock()
        return MeshMessage.of_event(entry.event, now, now + entry.expires_at - self._node.now())

    def _held(self) -> Iterator[Event]:
        return (entry.event for entry in self._session.stored(ALL_RETAINED))


def _chunks(payload: bytes) -> int:
    return count_of(len(payload)) if len(payload) > PAYLOAD_BYTES_MAX else 1


def is_kept_message(event: Event) -> bool:
    """Whether it is an MQTT message of QoS 1 or 2 that is not retained."""
    flags = event.attributes.get(FLAGS)
    return type(flags) is int and 1 <= flags <= 2


# Both chosen by us.
TOPICS_MAX = 10_000  # whose last stamp is remembered; beyond, the least recently used is forgotten
SCAN_INTERVAL: Micros = SECOND


class RetainedStamps:
    """Retained messages: the newest message of each topic, on a mesh without a central broker.

    A retained message is a memorized event, which replaces the older ones of its topic in the store of
    every node that it reaches (`broker/retained.py`). New subscribers get the newest that their node has. A
    retained message without payload clears the topic; it is memorized too, so it also clears the topic on
    nodes that come back later.

    "Newest" must be the same on every node. Each retained message carries a stamp `mqtt.at`: the publishing
    node's clock in microseconds, moved past every stamp on that topic that the node has seen or holds (a
    hybrid logical clock). So a message is newer than all that its publisher had seen, whatever the clocks
    say; messages of publishers that had not seen each other's are ordered by clock, then by node and
    sequence number.

    Here are the stamps for those that are published on this node. `held`: the retained events that the node
    holds, also for others; they are searched when a topic is unknown, at most once per `SCAN_INTERVAL`."""

    def __init__(self, held: Callable[[], Iterable[Event]], on_evicted: OnEvicted[str, Micros]) -> None:
        self._held = held
        # By topic, least recently used first.
        self._last: BoundedDict[str, Micros] = BoundedDict(TOPICS_MAX, on_evicted)
        self._scanned_at: Micros | None = None

    def on_event(self, event: Event) -> None:
        """A retained event was delivered here."""
        self.on_stamp(event.topic, stamp_of(event))

    def on_stamp(self, topic: str, stamp: Micros) -> None:
        """One that another message of the topic has, or will have."""
        self._last.renew(topic, max(stamp, self._last.get(topic, 0)))

    def next(self, topic: str, now: Micros) -> Micros:
        """The stamp for a message that is about to be published; `now` on the wall clock."""
        if (self._scanned_at is None or topic not in self._last) and not self._has_scanned(now):
            for event in self._held():
                self.on_event(event)
        stamp = max(now, self._last.get(topic, 0) + 1)
        self._last.renew(topic, stamp)
        return stamp

    def __len__(self) -> int:
        return len(self._last)

    def _has_scanned(self, now: Micros) -> bool:
        if self._scanned_at is not None and 0 <= now - self._scanned_at < SCAN_INTERVAL:
            return True
        self._scanned_at = now
        return False


def newest_retained(stored: Iterable[StoredEvent]) -> list[StoredEvent]:
    """The newest retained event of each topic, cleared topics left out, oldest arrival first."""
    newest: dict[str, StoredEvent] = {}
    for entry in stored:
        event = entry.event
        if not is_retained(event):
            continue
        other = newest.get(event.topic)
        if other is None or order_of(other.event) < order_of(event):
            newest[event.topic] = entry
    return [entry for entry in newest.values() if entry.event.payload]
