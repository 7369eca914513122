"""Who carries, and what: events of the mesh up to the broker, messages of the broker down into the mesh.

                  nobody carries, or the carrier is silent          connected: notes each second
    standing by ─────────────────────────────────────────▶ connecting ───────────▶ carrying
         ▲                                                     │ refused, silent      │ uplink ends: Handover
         └───────────────────── a pause ◀──────────────────────┴──────────────────────┘

Every node of the bridge holds the events that are to go up, until a note says that the broker has them. So
the next carrier has them too. What came from the broker is marked and never goes up again by the same
bridge; what went up is not sent back, because the session is one (no local).
"""

import asyncio
import logging
import ssl
from pathlib import Path
from random import SystemRandom

from roamcast.broker.core import Delivery
from roamcast.broker.retained import AT
from roamcast.broker.seen import SeenEvents, event_key
from roamcast.broker.store import StoreFullError
from roamcast.errors import FileError, FilterError, InputError, WireError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, EventId, Publication
from roamcast.filter import Filter
from roamcast.gateway.bridge.handover import (
    CARRIED_MAX,
    BridgeNote,
    BrokerSession,
    CarriedEvents,
    Carrying,
    Handover,
    decode_note,
    encode_note,
)
from roamcast.gateway.mqtt.mesh.content import parse_client_filter
from roamcast.gateway.mqtt.mesh.mapping import TooLarge, attributes_of, is_topic, origin_of
from roamcast.gateway.mqtt.packets.codec import decode, encode
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingRequest,
    PingResponse,
    Properties,
    Publish,
    ReasonCode,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    label,
)
from roamcast.gateway.mqtt.transport import PacketStream, RawPacket
from roamcast.gateway.node import GatewayNode
from roamcast.gateway.options import BridgeOptions
from roamcast.gateway.stream import Turn
from roamcast.runtime.live.storage.clients import ClientRecords
from roamcast.units import SECOND, NodeId, micros

logger = logging.getLogger("roamcast.bridge")

BRIDGE = "bridge"  # attribute of what came from a broker: the bridge's name
SUBSCRIBE_ID = 65_500
# Chosen by us, in seconds.
TICK = 0.25
NOTE_EVERY = 1.0
SILENT = 4.0  # without a note of the carrier: it is gone
STATE_WITHIN = 3.0  # for the last carrier to say how far its exchanges were
UNHEARD_WITHIN = 0.7  # for a node that may have carried without our knowing
PAUSE = 3.0  # after our uplink has ended: others go first
PAUSE_MAX = 30.0
NOTES_LIVE = 600.0
CARRIED_KEPT = 3_600  # seconds


class Bridge:
    def __init__(self, node: GatewayNode, options: BridgeOptions, base: Path = Path()) -> None:
        """File names in the options are relative to `base`."""
        self._node = node
        self._options = options
        self._base = base
        self._client = f"bridge:{options.name}"
        self._topic = f"$bridge/{options.name}"
        self._session = BrokerSession()
        self._uplink: Uplink | None = None
        self._is_up = False
        self._waits_for_state = False
        self._inflight_max = 1
        self._waiting: dict[EventId, Event] = {}  # to go up, oldest first
        self._carried = SeenEvents(hold=CARRIED_KEPT * SECOND)
        self._to_tell: list[EventId] = []
        self._carrier: tuple[NodeId, float] | None = None  # another one, and when it was heard
        self._version_heard = 0
        self._pause = PAUSE
        self._try_at = 0.0
        self._noted_at = 0.0
        self._settled_at = 0.0
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._random = SystemRandom()
        self._records = None if node.storage is None else ClientRecords(node.storage)
        self._password: bytes | None = None
        self._context: ssl.SSLContext | None = None

    # The service.

    async def start(self) -> None:
        """InputError if a filter or a file cannot be used; a broker that is away is no error."""
        self._loop = asyncio.get_running_loop()
        self._turn = Turn(self._loop)
        wanted = [self._filter(text) for text in self._options.up]
        self._read_files()
        if self._records is not None:
            for event in self._records.delivered(self._client, self._node.world.wall()):
                self._carried.observe(event_key(*event), self._node.world.monotonic())
        applications = self._node.applications
        self._notes = applications.open(self._on_note)
        self._notes.subscribe(Filter.topic(self._topic))
        self._mesh = applications.open(self._on_event)
        for one in wanted:
            self._mesh.subscribe(one)
        counters = self._node.counters
        counters.gauge("bridge_carrying", lambda: int(self._is_up))
        counters.gauge("bridge_waiting", lambda: len(self._waiting))
        self._try_at = self._loop.time() + self._random.random()
        self._tick()

    async def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._uplink is not None:
            self._uplink.end("this node stops")
            await asyncio.sleep(0)  # the hand-over is published before the node stops
        self._flush_carried()

    # From the mesh.

    def _on_event(self, delivery: Delivery) -> None:
        event = delivery.event
        if event.attributes.get(BRIDGE) == self._options.name or not is_topic(event.topic):
            return
        if event.id in self._waiting or event_key(*event.id) in self._carried:
            return
        if len(event.payload) > PAYLOAD_BYTES_MAX:  # thousands may wait here, each in memory
            self._node.counters.count("bridge_dropped_total", reason="too_large")
            return
        if len(self._waiting) >= self._options.waiting_max:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._node.counters.count("bridge_dropped_total", reason="waiting_full")
        self._waiting[event.id] = event
        begun = self._session.under_way(event.id)
        if begun and self._is_up and not self._waits_for_state:
            self._send(begun, event, is_repeated=True)  # the last carrier began it, before we had it
        self._pump()

    def _on_note(self, delivery: Delivery) -> None:
        sender = delivery.event.publisher
        if sender == self._node.number:
            return
        note = decode_note(delivery.event.payload)
        match note:
            case Carrying(version):
                self._on_carrying(sender, version)
            case Handover():
                self._on_handover(note)
            case CarriedEvents(events):
                for publisher, sequence in zip(events[::2], events[1::2], strict=False):
                    self._on_carried(EventId(publisher, sequence))
            case None:
                self._node.counters.count("bridge_dropped_total", reason="note")

    def _on_carrying(self, sender: NodeId, version: int) -> None:
        if version < self._version_heard:
            return
        self._version_heard = version
        if self._is_up and version <= self._session.version:
            return  # it is about to be disconnected: the broker has us
        self._carrier = (sender, self._loop.time())
        if version > self._session.version:
            self._session.forget()  # it goes on with the exchanges, ours among them

    def _on_handover(self, handover: Handover) -> None:
        if handover.version < self._version_heard or (self._is_up and not self._waits_for_state):
            return  # of an earlier carrier
        self._version_heard = handover.version
        self._carrier = None
        if handover.version > self._session.version:
            self._session.adopt(handover)
            if self._waits_for_state:
                self._go_on()
        self._try_at = min(self._try_at, self._loop.time() + self._random.random())

    def _on_carried(self, event: EventId) -> None:
        self._waiting.pop(event, None)
        self._carried.observe(event_key(*event), self._node.world.monotonic())
        if self._records is not None:
            try:
                self._records.note_delivered(
                    self._client, event, self._node.world.wall() + CARRIED_KEPT * SECOND
                )
            except StoreFullError:
                self._node.counters.count("bridge_dropped_total", reason="storage")

    # From the broker.

    def on_up(self, session_present: bool, inflight_max: int) -> None:
        assert self._uplink is not None
        self._is_up = True
        self._inflight_max = inflight_max
        self._pause = PAUSE
        logger.info("%s: carrying to %s, port %d", self._client, self._options.host, self._options.port)
        if not session_present:
            self._session.forget()
        # Only the last carrier can tell what it had under way, so it gets time for that. A carrier that we
        # have not heard of may have been disconnected because we connected.
        self._waits_for_state = session_present
        self._carrier = None
        if self._waits_for_state:
            self._uplink.hold("state")
            is_behind = self._version_heard > self._session.version
            self._settled_at = self._loop.time() + (STATE_WITHIN if is_behind else UNHEARD_WITHIN)
        else:
            self._go_on()

    def _go_on(self) -> None:
        uplink = self._uplink
        assert uplink is not None
        if self._waits_for_state:
            self._waits_for_state = False
            uplink.release("state")
        self._session.version = max(self._session.version, self._version_heard) + 1
        self._note(Carrying(self._session.version))
        if self._options.down:
            requests = tuple(SubscriptionRequest(one, 2, True, True, 1) for one in self._options.down)
            uplink.say(Subscribe(SUBSCRIBE_ID, requests))
        for exchange in list(self._session.up.values()):
            if exchange.released:
                uplink.say(Acknowledge(PacketType.PUBREL, exchange.packet_id))
            elif exchange.event in self._waiting:  # else it is sent when it comes: the identifier is taken
                self._send(exchange.packet_id, self._waiting[exchange.event], is_repeated=True)
        self._pump()

    def on_message(self, message: Publish) -> None:
        assert self._uplink is not None
        packet_id = message.packet_id
        if not self._session.is_repeated(message):
            self._publish(message)
        if message.qos == 2:
            self._uplink.say(Acknowledge(PacketType.PUBREC, packet_id))
        elif message.qos == 1:
            self._uplink.say(Acknowledge(PacketType.PUBACK, packet_id))

    def on_acknowledge(self, packet: Acknowledge) -> None:
        assert self._uplink is not None
        match packet.type:
            case PacketType.PUBREC if packet.reason >= 0x80:
                self._node.counters.count("bridge_dropped_total", reason="refused_by_broker")
                self._done(packet.packet_id)
            case PacketType.PUBREC:
                self._session.on_received(packet.packet_id)
                self._uplink.say(Acknowledge(PacketType.PUBREL, packet.packet_id))
            case PacketType.PUBCOMP:
                self._done(packet.packet_id)
            case PacketType.PUBREL:
                self._session.down.discard(packet.packet_id)
                self._uplink.say(Acknowledge(PacketType.PUBCOMP, packet.packet_id))
            case _:
                pass

    def on_down(self, why: str) -> None:
        was_up, self._is_up = self._is_up, False
        self._uplink = None
        self._waits_for_state = False
        if was_up:
            self._flush_carried()
            self._note(self._session.handover(), NOTES_LIVE)
        logger.warning("%s: %s; trying again", self._client, why)
        self._node.counters.count("bridge_ended_total")
        self._try_at = self._loop.time() + self._pause * (1 + self._random.random() / 2)
        self._pause = min(2 * self._pause, PAUSE_MAX)

    def on_room(self) -> None:
        """The broker reads again."""
        self._pump()

    # Private.

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK, self._tick)
        now = self._loop.time()
        self._flush_carried()
        if self._is_up:
            if self._waits_for_state and now >= self._settled_at:
                self._go_on()
            if now - self._noted_at >= NOTE_EVERY and not self._waits_for_state:
                self._note(Carrying(self._session.version))
            return
        if self._carrier is not None and now - self._carrier[1] >= SILENT:
            self._carrier = None
        if (
            self._carrier is None
            and self._connecting is None
            and self._uplink is None
            and now >= self._try_at
        ):
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        uplink = Uplink(self._turn, self, self._options, f"roamcast-{self._options.name}", self._password)
        try:
            async with asyncio.timeout(STATE_WITHIN):
                self._uplink = uplink
                await self._loop.create_connection(
                    lambda: uplink, self._options.host, self._options.port, ssl=self._context
                )
        except (OSError, TimeoutError) as error:
            self.on_down(f"{self._options.host}, port {self._options.port}: {error or 'no answer'}")
        finally:
            self._connecting = None

    def _pump(self) -> None:
        """Send what waits, as much as may be under way."""
        uplink = self._uplink
        if uplink is None or not self._is_up or self._waits_for_state:
            return
        for key, event in self._waiting.items():
            if len(self._session.up) >= self._inflight_max or not uplink.is_writable:
                return
            if not self._session.under_way(key):
                self._send(self._session.begin(key).packet_id, event)

    def _send(self, packet_id: int, event: Event, *, is_repeated: bool = False) -> None:
        assert self._uplink is not None
        origin = origin_of(event)
        self._uplink.say(
            Publish(
                topic=event.topic,
                payload=event.payload,
                qos=2,
                retain=origin.retained,
                duplicate=is_repeated,
                packet_id=packet_id,
                properties=origin.properties,
            )
        )

    def _done(self, packet_id: int) -> None:
        event = self._session.end(packet_id)
        if event is not None:
            self._on_carried(event)
            self._to_tell.append(event)
            self._node.counters.count("bridge_up_total")
            if len(self._to_tell) >= CARRIED_MAX:
                self._flush_carried()
        self._pump()

    def _publish(self, message: Publish) -> None:
        """A message of the broker, into the mesh."""
        lifetime = micros(self._options.lifetime)
        try:
            attributes = attributes_of(message.qos, message.retain and lifetime > 0, message.properties)
            attributes[BRIDGE] = self._options.name
            if message.retain and lifetime:
                attributes[AT] = self._node.world.wall()
            publication = Publication(attributes, message.payload, message.topic, lifetime=lifetime)
            self._mesh.publish(publication, is_admitted=True)
            self._node.counters.count("bridge_down_total")
            # The broker is told that we have it, whether or not the mesh has room for it; the next message
            # waits.
            wait = self._node.applications.pressure.charge()
            if wait and self._uplink is not None:
                self._uplink.slow(wait)
        except (TooLarge, InputError):
            self._node.counters.count("bridge_dropped_total", reason="no_event")
        except StoreFullError:
            self._node.counters.count("bridge_dropped_total", reason="storage")

    def _flush_carried(self) -> None:
        while self._to_tell:
            told, self._to_tell = self._to_tell[:CARRIED_MAX], self._to_tell[CARRIED_MAX:]
            numbers = tuple(number for event in told for number in event)
            self._note(CarriedEvents(numbers), NOTES_LIVE)

    def _note(self, note: BridgeNote, lifetime: float = 0.0) -> None:
        if isinstance(note, Carrying):
            self._noted_at = self._loop.time()
        payload = encode_note(note)
        try:
            note_event = Publication({}, payload, self._topic, lifetime=micros(lifetime))
            self._notes.publish(note_event, is_admitted=True)
        except StoreFullError:
            self._node.counters.count("bridge_dropped_total", reason="storage")

    def _filter(self, text: str) -> Filter:
        try:
            parsed = parse_client_filter(text, True)
        except FilterError as error:
            raise InputError("bridge.up", f"has {text!r}: {error}") from None
        if parsed.share:
            raise InputError("bridge.up", f"has {text!r}; a shared subscription is not for a bridge")
        return parsed.wanted

    def _read_files(self) -> None:
        if self._options.password_file:
            path = self._base / self._options.password_file
            try:
                self._password = path.read_text().splitlines()[0].encode()
            except (OSError, IndexError, UnicodeDecodeError):
                raise FileError(str(path), "cannot be read as bridge.password_file") from None
        if self._options.tls_authority:
            authority = self._base / self._options.tls_authority
            try:
                self._context = ssl.create_default_context(cafile=str(authority))
            except (OSError, ssl.SSLError) as error:
                raise InputError("bridge.tls_authority", f"{authority}: {error}") from None


# Chosen by us.
PACKET_BYTES_MAX = 60_000  # an event's payload bound; the broker is told
WRITE_BYTES_MAX = 256 * 1024
ANSWER_SECONDS = 5.0  # for CONNACK, and after a PINGREQ
SESSION_EXPIRY = 7 * 86_400  # seconds that the broker keeps the session without any carrier


class Uplink(PacketStream):
    """One connection to the broker: packets in and out, keep alive, and why it ended."""

    def __init__(
        self, turn: Turn, owner: Bridge, options: BridgeOptions, client_id: str, password: bytes | None
    ) -> None:
        super().__init__(turn, PACKET_BYTES_MAX + 1_000, WRITE_BYTES_MAX)
        self._owner = owner
        self._options = options
        self._client_id = client_id
        self._password = password
        self._why = "the broker closed the connection"
        self._is_up = False
        self._pinged: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.say(
            Connect(
                version=V5,
                client_id=self._client_id,
                clean_start=False,
                keep_alive=2 * self._options.keep_alive,
                username=self._options.username or None,
                password=self._password,
                properties=Properties(
                    session_expiry=SESSION_EXPIRY,
                    receive_maximum=self._options.inflight_max,
                    maximum_packet_size=PACKET_BYTES_MAX,
                ),
            )
        )
        self._timer = self._loop.call_later(
            ANSWER_SECONDS, self.end, f"the broker did not answer for {ANSWER_SECONDS:g} seconds"
        )

    def on_item(self, item: RawPacket) -> None:
        packet = decode(*item, V5)
        match packet:
            case ConnAck() if not self._is_up:
                self._on_connack(packet)
            case Publish() if self._is_up:
                self._owner.on_message(packet)
            case Acknowledge() if self._is_up:
                self._owner.on_acknowledge(packet)
            case SubAck() if self._is_up:
                refused = [label(ReasonCode(reason)) for reason in packet.reasons if reason >= 0x80]
                if refused:
                    self.end(f"the broker refuses a filter of bridge.down: {refused[0]}")
            case PingResponse():
                self._pinged = None
            case Disconnect(reason):
                self.end(f"the broker disconnected us: {_reason(reason)}")
            case _:
                self.end("the broker sent a packet that is not for clients")

    def on_malformed(self, error: WireError) -> None:
        self.end(f"the broker sent what is no MQTT 5: {error}")

    def on_writable(self) -> None:
        self._owner.on_room()

    def on_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.on_down(self._why)

    # Inputs.

    def say(self, packet: Packet) -> None:
        self.send(encode(packet, V5))

    def end(self, why: str) -> None:
        self._why = why
        self.close(at_once=True)

    # Private.

    def _on_connack(self, packet: ConnAck) -> None:
        if packet.reason:
            self.end(f"the broker refuses us: {_reason(packet.reason)}")
            return
        self._is_up = True
        granted = packet.properties or Properties()
        inflight = min(granted.receive_maximum or 65_535, self._options.inflight_max)
        self._again()
        self._owner.on_up(packet.session_present, inflight)

    def _again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._options.keep_alive, self._ping)

    def _ping(self) -> None:
        self.say(PingRequest())
        self._pinged = self._loop.time()
        self._timer = self._loop.call_later(ANSWER_SECONDS, self._check_ping)

    def _check_ping(self) -> None:
        # Anything that was heard since counts: while we do not read, the answer waits too.
        if self._pinged is not None and self.heard_at < self._pinged and not self._held:
            self.end(f"the broker did not answer for {ANSWER_SECONDS:g} seconds")
        else:
            self._again()


def _reason(code: int) -> str:
    try:
        return label(ReasonCode(code)).replace("_", " ")
    except ValueError:
        return f"reason {code:#04x}"
