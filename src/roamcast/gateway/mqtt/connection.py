"""One client's connection: what each packet means (MQTT 5.0, chapter 3; 3.1.1 the same where it has it).

                CONNECT accepted                    DISCONNECT · error · silence · taken over
    opened ───────────────────────▶ connected ─────────────────────────────────────────────▶ closed
       └── refused, malformed, too slow ──────────────────────────────────────────────────────▶

Every error ends the connection with a reason code and is counted; other connections are not affected.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from roamcast.errors import WireError
from roamcast.event import PAYLOAD_BYTES_MAX, topic_problem
from roamcast.gateway.access import Accounts
from roamcast.gateway.mqtt.mesh.exchange import ACCEPTED, ROOM_SECONDS, PublishOutcome
from roamcast.gateway.mqtt.packets.codec import (
    PING_RESPONSE,
    MalformedPacket,
    decode,
    decode_publish,
    encode,
    protocol_error,
)
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    Disconnect,
    PacketType,
    PingRequest,
    Properties,
    Publish,
    ReasonCode,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    connack_return_code,
    label,
)
from roamcast.gateway.mqtt.sessions.outlet import Acknowledgements, Outlet, PendingAnswer
from roamcast.gateway.mqtt.sessions.session import MqttSession, TopicSubscription
from roamcast.gateway.mqtt.transport import RawPacket
from roamcast.gateway.stream import Turn
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.pressure import REFUSED_FROM
from roamcast.units import SECOND

if TYPE_CHECKING:
    from roamcast.gateway.mqtt.listener import MqttListener

TOPICS_KNOWN_MAX = 1_024  # topics that need not be checked again; chosen by us
KEEP_ALIVE_GRACE = 1.5  # section 3.1.2.10

_PUBLISH = int(PacketType.PUBLISH)
_PUBACK = PacketType.PUBACK << 4
_publishable: BoundedDict[str, None] = BoundedDict(TOPICS_KNOWN_MAX, unreported)  # topics
_ANSWERS = {1: PacketType.PUBACK, 2: PacketType.PUBREC}


class ConnectGrant(NamedTuple):
    """What the node has granted to a CONNECT."""

    session: MqttSession
    stood_before: bool
    properties: Properties


class Connection(Outlet):
    def __init__(self, server: "MqttListener", turn: Turn, accounts: Accounts) -> None:
        """`accounts`: who may connect by this transport; empty: everyone who can reach it."""
        options = server.options
        super().__init__(turn, options, server.exchange.now, server.count_reason)
        self.accounts = accounts
        self._server = server
        self._exchange = server.exchange
        self._options = options
        self.packet_bytes_max = options.packet_bytes_max  # less, where the transport allows less
        self.session: MqttSession | None = None
        self._opened_at = self._loop.time()
        self._within_since: float | None = None  # a packet has begun and is not whole
        self._silence_max: float | None = None  # seconds; the keep alive with its grace
        self._timer: asyncio.TimerHandle | None = None
        self._aliases_in: dict[int, str] = {}
        self._says_why = True  # the client wants reason strings
        self._obstructed_since: float | None = None  # what it publishes waits for room
        self._answers = Acknowledgements(self.send)
        self._undurable: list[PendingAnswer] = []  # those of them that wait for the next commit
        self._large = 0  # large payloads of this client whose chunks are under way
        # Packet identifiers of earlier connections, until they are used again. The receive maximum is for one
        # connection (MQTT 5.0, 3.1.2.11.3), and a full disk may have kept what its client has released.
        self._received_before: set[int] = set()

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Only now: a connection whose TLS handshake fails is never made, and its end is never told.
        super().connection_made(transport)
        self._timer = self._loop.call_later(self._options.connect_timeout, self._check_deadlines)
        self._server.opened(self)

    def close(self, *, at_once: bool = False) -> None:
        was_closing = self.is_closing
        super().close(at_once=at_once)
        if not was_closing:
            self._server.closing(self)

    def on_item(self, item: RawPacket) -> None:
        first, body = item
        kind = first >> 4
        session = self.session
        if session is None:
            self._on_connect(first, body)
        elif kind == _PUBLISH:
            self._on_publish(session, decode_publish(first, body, self.version))
        elif first == _PUBACK and len(body) == 2:  # the usual one, without a reason
            packet_id = body[0] << 8 | body[1]
            if not packet_id:
                raise MalformedPacket("packet identifier", 0, "must not be 0")
            session.on_acknowledged(packet_id, 1)
        else:
            self._on_other(session, first, body)

    def on_malformed(self, error: WireError) -> None:
        reason = error.reason if isinstance(error, MalformedPacket) else ReasonCode.MALFORMED_PACKET
        self._count("mqtt_malformed_total", label(reason))
        self.disconnect(reason, str(error))

    def on_lost(self) -> None:
        self._cancel_timer()
        self._answers.close()
        self._leave(with_will=True)
        self._server.left(self)

    def on_writable(self) -> None:
        if self.session is not None:
            self.session.pump()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_within_packet:
            self._within_since = None
        elif self._within_since is None:
            self._within_since = self._loop.time()
            if self._timer is None and not self.is_closing:
                self._check_deadlines()

    def disconnect(self, reason: ReasonCode, why: str = "", *, at_once: bool = False) -> None:
        """End the connection from our side; an MQTT 5 client gets the reason."""
        if self.is_closing:
            return
        if self.session is None:
            if reason is ReasonCode.UNSUPPORTED_VERSION:
                self.send(encode(ConnAck(False, connack_return_code(reason)), V3_1_1))
        elif self.version == V5:
            properties = Properties(reason_string=why[:200]) if why and self._says_why else None
            self.send(encode(Disconnect(reason, properties), V5))
        self._count("mqtt_disconnected_total", label(reason))
        self._leave(with_will=True)
        self._cancel_timer()
        self.close(at_once=at_once)

    # CONNECT.

    def _on_connect(self, first: int, body: bytes) -> None:
        connect = decode(first, body, V3_1_1) if first >> 4 == PacketType.CONNECT else None
        if not isinstance(connect, Connect):
            raise protocol_error("packet type", 0, f"{first >> 4} comes before CONNECT")
        asked = connect.properties or Properties()
        self.take_limits(connect.version, asked)
        self._says_why = asked.request_problem_information != 0
        accepted = self._server.admit(self, connect)
        if isinstance(accepted, ReasonCode):
            self._count("mqtt_refused_total", label(accepted))
            code = accepted if self.version == V5 else connack_return_code(accepted)
            self.send(encode(ConnAck(False, code, Properties()), self.version))
            self._cancel_timer()
            self.close()
            return
        self.session = accepted.session
        self._received_before = set(accepted.session.received)
        granted = accepted.properties.server_keep_alive
        keep_alive = connect.keep_alive if granted is None else granted
        self._silence_max = keep_alive * KEEP_ALIVE_GRACE if keep_alive else None
        self.heard_at = self._loop.time()
        self._cancel_timer()
        self._check_deadlines()
        self.send(
            encode(ConnAck(accepted.stood_before, ReasonCode.SUCCESS, accepted.properties), self.version)
        )
        self.session.resume()

    # PUBLISH from the client.

    def _on_publish(self, session: MqttSession, packet: Publish) -> None:
        if packet.topic not in _publishable or packet.properties is not None:
            packet = self._checked(packet)
        qos, packet_id = packet.qos, packet.packet_id
        self._received_before.discard(packet_id)
        if qos == 2 and packet_id in session.received:
            self._answers.give(PacketType.PUBREC, packet_id, ReasonCode.SUCCESS, self.version)  # we have it
            return
        exchange = self._exchange
        if qos:
            if qos > exchange.qos_max:
                raise MalformedPacket(
                    "QoS", 0, "is promised by no strategy here", ReasonCode.QOS_NOT_SUPPORTED
                )
            self._check_receive_maximum(session)
        is_kept = qos == 2 and self._server.incoming.keeps(session)
        is_large = len(packet.payload) > PAYLOAD_BYTES_MAX
        outcome = (exchange.admit if is_kept or is_large else exchange.publish)(session, packet)
        if outcome is ACCEPTED and not qos and not is_large:
            return  # the usual end
        if self.is_closing:
            return
        if qos and not outcome.obstacle:
            self._obstructed_since = None
        elif qos and self._must_come_again(outcome.obstacle):
            return
        if outcome.wait:
            self.slow(outcome.wait)
        if outcome.reason >= 0x80:
            self._on_refused(packet, outcome)
        elif is_kept:
            taken = self._answers.hold_back(PacketType.PUBREC, packet_id)
            self._server.incoming.take(session, packet, partial(self._on_taken, taken))
        elif is_large:
            self._publish_large(session, packet)
        elif qos:
            if qos == 2:
                session.received[packet_id] = 0
            if outcome.must_wait:
                self._answer_when_durable(_ANSWERS[qos], packet_id)
            else:
                self._answers.give(_ANSWERS[qos], packet_id, ReasonCode.SUCCESS, self.version)

    def _checked(self, packet: Publish) -> Publish:
        """With its alias resolved; an error for what a client must not publish."""
        topic, properties = packet.topic, packet.properties
        if topic:
            if problem := published_topic_problem(topic):
                raise MalformedPacket("topic name", 2, problem, ReasonCode.TOPIC_NAME_INVALID)
            _publishable[topic] = None
        if properties is not None:
            topic = self._with_properties(topic, properties)
        if not topic:
            raise protocol_error("topic name", 0, "is empty")
        return packet if packet.topic else msgspec.structs.replace(packet, topic=topic)

    def _check_receive_maximum(self, session: MqttSession) -> None:
        most = self._options.receive_maximum
        received = len(session.received) - len(self._received_before)
        # The first is never less than the second, and need not look at each.
        waiting = len(self._answers.waiting)
        if received + waiting < most or received + self._answers.unreceived < most:
            return
        if self.version == V5:
            raise MalformedPacket(
                "PUBLISH", 0, "exceeds the receive maximum", ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
            )
        if waiting:
            self.hold("answers")  # 3.1.1 has no such bound: reading resumes after the answers

    def _must_come_again(self, obstacle: str) -> bool:
        """A message of QoS 1 or 2 cannot be published now: this client is not read until it can. One of
        MQTT 5 is refused where that takes too long (3.1.1 has no such answer)."""
        now = self._loop.time()
        if self._obstructed_since is None:
            self._obstructed_since = now
            self._count("mqtt_waits_total", obstacle)
        is_long = obstacle == "mesh_busy" or now - self._obstructed_since >= REFUSED_FROM
        if self.version == V5 and is_long:
            self.slow(ROOM_SECONDS)  # a program that tries again at once would keep us busy
            return False
        self.again(ROOM_SECONDS)
        return True

    def _on_refused(self, packet: Publish, outcome: PublishOutcome) -> None:
        self._count("mqtt_unpublished_total", outcome.obstacle or label(outcome.reason))
        if not packet.qos:
            return
        if self.version == V5:
            self._answers.give(_ANSWERS[packet.qos], packet.packet_id, outcome.reason, V5)
        else:
            # In 3.1.1 a PUBLISH cannot be refused, and an acknowledgement would promise delivery.
            self.disconnect(outcome.reason)

    def _publish_large(self, session: MqttSession, packet: Publish) -> None:
        """In chunks, which take their time: the next large one of this client is read when they are out."""
        qos, packet_id = packet.qos, packet.packet_id
        answer = self._answers.hold_back(_ANSWERS[qos], packet_id) if qos else None
        if qos == 2:
            session.received[packet_id] = 0

        def then(reason: ReasonCode) -> None:
            self._large -= 1
            if answer is not None and answer in self._answers:
                if reason >= 0x80 and qos == 2:
                    session.received.pop(packet_id, None)
                self._on_taken(answer, reason)
            elif reason >= 0x80:
                self._count("mqtt_unpublished_total", label(reason))
            if not self._large:
                self.release("large")

        self._large += 1
        self._exchange.publish_large(session, packet, then)
        if self._large > 1:
            self.hold("large")

    def _with_properties(self, topic: str, properties: Properties) -> str:
        """The topic with its alias resolved; an error for properties that a client must not send."""
        if properties.subscription_identifiers:
            raise protocol_error("subscription_identifiers", 0, "is not for clients to send")
        response = properties.response_topic
        if response is not None and ("+" in response or "#" in response or not response):
            raise protocol_error("response_topic", 0, "is no topic name")
        alias = properties.topic_alias
        if alias is None:
            return topic
        if not 1 <= alias <= self._options.topic_alias_max:
            raise MalformedPacket("topic_alias", 0, f"is {alias}", ReasonCode.TOPIC_ALIAS_INVALID)
        if topic:
            self._aliases_in[alias] = topic
            return topic
        if alias not in self._aliases_in:
            raise MalformedPacket(
                "topic_alias", 0, f"{alias} stands for nothing", ReasonCode.TOPIC_ALIAS_INVALID
            )
        return self._aliases_in[alias]

    def _answer_when_durable(self, type: PacketType, packet_id: int) -> None:
        self._undurable.append(self._answers.hold_back(type, packet_id))
        if len(self._undurable) == 1:  # one call for all until the next commit
            self._server.when_durable(self._on_durable, self._on_not_durable)

    def _on_durable(self) -> None:
        answers, self._undurable = self._undurable, []
        self._answers.release(answers)
        self.release("answers")

    def _on_not_durable(self) -> None:
        """The disk refused what was to be kept: the client gets a reason code and may try again. A message of
        QoS 2 would then be here twice, so it waits."""
        answers, self._undurable = self._undurable, []
        for answer in answers:
            if answer not in self._answers:
                continue
            if answer.type is PacketType.PUBREC:
                self._exchange.when_kept(partial(self._on_kept, answer))
            else:
                self._refuse(answer, ReasonCode.QUOTA_EXCEEDED)

    def _on_kept(self, answer: PendingAnswer) -> None:
        if answer in self._answers:
            self._answers.release([answer])
            self.release("answers")

    def _on_taken(self, answer: PendingAnswer, reason: ReasonCode) -> None:
        """A QoS 2 message of a lasting session is published, or refused."""
        if reason >= 0x80:
            self._count("mqtt_unpublished_total", label(reason))
            if answer in self._answers:
                self._refuse(answer, reason)
        else:
            self._on_kept(answer)

    def _refuse(self, answer: PendingAnswer, reason: ReasonCode) -> None:
        # In 3.1.1 a PUBLISH cannot be refused, and an acknowledgement would promise delivery.
        if self.version == V5:
            self._answers.refuse(answer, reason)
        else:
            self.disconnect(reason)

    # Everything else.

    def _on_other(self, session: MqttSession, first: int, body: bytes) -> None:
        packet = decode(first, body, self.version)
        match packet:
            case Acknowledge():
                self._on_acknowledge(session, packet)
            case PingRequest():
                self.send(PING_RESPONSE)
            case Subscribe():
                self._in_slices(self._subscribe(session, packet))
            case Unsubscribe():
                self._in_slices(self._unsubscribe(session, packet))
            case Disconnect():
                self._on_disconnect(session, packet)
            case _:
                raise protocol_error("packet type", 0, f"{first >> 4} is not for clients to send here")

    def _on_acknowledge(self, session: MqttSession, packet: Acknowledge) -> None:
        packet_id = packet.packet_id
        match packet.type:
            case PacketType.PUBACK:
                session.on_acknowledged(packet_id, 1)
            case PacketType.PUBREC:
                found = session.on_received(packet_id, packet.reason)
                if packet.reason < 0x80 and not found:
                    reason = ReasonCode.PACKET_ID_NOT_FOUND
                    self._answers.give(PacketType.PUBREL, packet_id, reason, self.version)
            case PacketType.PUBREL:
                self._received_before.discard(packet_id)
                reason = (
                    ReasonCode.SUCCESS if packet_id in session.received else ReasonCode.PACKET_ID_NOT_FOUND
                )  # in 3.1.1 PUBCOMP has no reason: the exchange is over either way
                self._server.incoming.release(session, packet_id, partial(self._complete, packet_id, reason))
            case _:
                session.on_acknowledged(packet_id, 2)

    def _complete(self, packet_id: int, reason: ReasonCode) -> None:
        if not self.is_closing:
            self._answers.give(PacketType.PUBCOMP, packet_id, reason, self.version)

    def _in_slices(self, steps: Iterator[None]) -> None:
        """Handle a packet that may take long; this client's next packets wait for it, and nobody else."""

        def whole() -> Iterator[None]:
            self.hold("busy")
            try:
                for step in steps:
                    if self.is_closing:
                        return
                    yield step
            except MalformedPacket as error:
                self.on_malformed(error)
            self.release("busy")

        self._server.sessions.chores.add(whole())

    def _subscribe(self, session: MqttSession, packet: Subscribe) -> Iterator[None]:
        identifiers = [] if packet.properties is None else packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        reasons: list[int] = []
        standing: list[tuple[TopicSubscription, bool]] = []
        for request in packet.requests:
            if request.no_local and request.filter.startswith("$share/"):
                raise protocol_error("no local", 0, "is not allowed in a shared subscription")
            is_new = request.filter not in session.subscriptions
            found = self._exchange.subscribe(session, request, identifier)
            if isinstance(found, ReasonCode):
                self._count("mqtt_subscriptions_refused_total", label(found))
                reasons.append(found if self.version == V5 else ReasonCode.UNSPECIFIED)
            else:
                reasons.append(request.qos)
                standing.append((found, is_new))
            yield
        self._server.sessions.changed(session)
        self._acknowledge_later(SubAck(packet.packet_id, tuple(reasons)), session)
        for subscription, is_new in standing:
            self._exchange.show_stored(session, subscription, is_new)
            yield

    def _unsubscribe(self, session: MqttSession, packet: Unsubscribe) -> Iterator[None]:
        reasons: list[int] = []
        for filter in packet.filters:
            found = self._exchange.interests.remove(session, filter)
            reasons.append(ReasonCode.SUCCESS if found else ReasonCode.NO_SUBSCRIPTION_EXISTED)
            yield
        self._server.sessions.changed(session)
        self._acknowledge_later(UnsubAck(packet.packet_id, tuple(reasons)), session)

    def _acknowledge_later(self, packet: SubAck | UnsubAck, session: MqttSession) -> None:
        """A durable session's subscriptions are on the disk before they are acknowledged."""
        encoded = encode(packet, self.version)
        if not session.is_durable:
            self.send(encoded)
            return
        self._server.when_durable(
            lambda: None if self.is_closing else self.send(encoded),
            lambda: None if self.is_closing else self.send(encoded),  # if the disk refuses: kept in memory
        )

    def _on_disconnect(self, session: MqttSession, packet: Disconnect) -> None:
        asked = None if packet.properties is None else packet.properties.session_expiry
        if asked is not None:
            if asked and not session.expiry:
                raise protocol_error("session_expiry", 0, "must stay 0 when CONNECT said so")
            self._server.sessions.set_expiry(session, asked * SECOND)
        self._count("mqtt_disconnected_total", "by_client")
        self._leave(with_will=packet.reason != ReasonCode.SUCCESS)
        self._cancel_timer()
        self.close()

    # Private.

    def _leave(self, *, with_will: bool) -> None:
        session = self.session
        if session is not None and session.link is self:
            self._server.sessions.detach(session, with_will=with_will)

    def _check_deadlines(self) -> None:
        """End the connection if a deadline has passed; else check again at the next deadline."""
        self._timer = None
        if self.is_closing:
            return
        now = self._loop.time()
        due = [self._opened_at + self._options.connect_timeout] if self.session is None else []
        if self.session is not None and self._silence_max is not None:
            due.append(self.heard_at + self._silence_max)
        if self._within_since is not None:
            due.append(self._within_since + self._options.packet_timeout)
        if not due:
            return
        if min(due) <= now:
            self.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)
        else:
            self._timer = self._loop.call_at(min(due), self._check_deadlines)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def published_topic_problem(topic: str) -> str | None:
    """Why a client may not publish on this topic."""
    return "is the server's own" if topic.startswith(("$SYS/", "$share/")) else topic_problem(topic)
