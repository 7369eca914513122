"""MQTT clients in virtual time, through the real codec, without coroutines: each packet is a call.

As MQTT 5.0, sections 4.3 and 4.4 say: a client keeps both sides of QoS 1 and 2 for as long as its session
lasts, connects again whenever the connection ends, and repeats what is not acknowledged. It shares no code
with the listener but the codec. What it says and hears goes to the `Model`.
"""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.virtual.model import Message
from tests.virtual.network import StreamEnd, VirtualSocket

from roamcast.gateway.mqtt.packets.codec import decode, encode
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    UnsubAck,
    Unsubscribe,
    Will,
)
from roamcast.gateway.mqtt.transport import PacketFramer

if TYPE_CHECKING:
    from tests.virtual.nodes import VirtualMachine, VirtualWorld

NOTED = 2.0  # seconds after CONNACK by which a session with its will is on the disk, also on a slow one
AGAIN = 0.25  # seconds until the next attempt to connect
EXPIRY = 86_400  # seconds
SUBSCRIBING = 65_000  # the packet identifiers from here on are for SUBSCRIBE and UNSUBSCRIBE


class WillPlan(NamedTuple):
    """Each connection has such a will, with a content of its own."""

    topic: str
    qos: int
    delay: int = 0  # seconds; of MQTT 5
    size: int = 0


class ModelClient(asyncio.Protocol):
    """`lasting`: its session outlives its connections. `acknowledges`: it answers what it gets."""

    def __init__(
        self,
        world: "VirtualWorld",
        machine: "VirtualMachine",
        name: str,
        *,
        version: int = V5,
        lasting: bool = True,
        will: WillPlan | None = None,
        inflight_max: int = 20,
        receive_maximum: int | None = None,
        comes: bool = True,
    ) -> None:
        self.world, self.machine, self.name = world, machine, name
        self.model = world.model
        self.version = version
        self.lasting = lasting
        self.will = will
        self._will: Message | None = None  # of this connection
        self.is_wanted = comes  # to be connected
        self.is_connected = False  # CONNACK has come
        self.sent: dict[int, Publish | Acknowledge] = {}  # not acknowledged: PUBLISH or PUBREL
        self.of_packet: dict[int, Message] = {}
        self.wanted: dict[str, int] = {}  # filters, with their QoS
        self.subscribes_again = False  # whenever it connects, as many programs do
        self.refused = 0
        self._to_repeat = 0  # refused messages whose program waits before it sends them once more
        self._inflight_max = inflight_max
        self._receive_maximum = receive_maximum
        self._waiting: list[Message] = []  # for room in flight
        self._received: dict[int, bytes] = {}  # QoS 2, not released
        self._asked: dict[int, Subscribe | Unsubscribe] = {}  # not acknowledged
        self._packet_id = 0
        self._asked_id = SUBSCRIBING
        self._framer = PacketFramer(1 << 28)
        self._stream: StreamEnd | None = None
        self._had_session = False
        self._connections = 0  # that its node has accepted
        self._connects()

    # What its program does.

    def publish(
        self, topic: str, qos: int, *, retain: bool = False, size: int = 0, clears: bool = False
    ) -> Message:
        message = self.model.new_message(self.name, topic, qos, retain, size, clears)
        if qos:
            self._waiting.append(message)
            self._pump()
        elif self.is_connected:
            self._say(Publish(topic=topic, payload=message.payload, retain=retain))
        return message

    def subscribe(self, wanted: str, qos: int = 2) -> None:
        self.wanted[wanted] = qos
        self.model.subscribing(self, wanted, qos)
        self._ask(Subscribe(self._next_asked(), (SubscriptionRequest(wanted, qos),)))

    def unsubscribe(self, wanted: str) -> None:
        self.wanted.pop(wanted, None)
        self.model.unsubscribing(self, wanted)
        self._ask(Unsubscribe(self._next_asked(), (wanted,)))

    def leave(self, *, politely: bool = True) -> None:
        """Until `come`. Impolitely: the connection breaks, and a will is due."""
        self.is_wanted = False
        if self._stream is not None:
            if politely and self.is_connected:
                if self._will is not None:
                    self._will.revoked_at = self.world.now
                self._say(Disconnect())
                self._stream.close()
            else:
                self._stream.abort()

    def come(self) -> None:
        if not self.is_wanted:
            self.is_wanted = True
            self._connects()

    def drop(self) -> None:
        """The connection breaks; the client comes back by itself."""
        if self._stream is not None:
            self._stream.abort()

    @property
    def is_idle(self) -> bool:
        is_quiet = not (self.sent or self._waiting or self._asked or self._to_repeat)
        return self.is_connected and is_quiet

    # The connection.

    def _connects(self) -> None:
        if not self.is_wanted or self._stream is not None:
            return
        network = self.world.network
        opened = VirtualSocket(network, self.world.outside, self.machine.address)
        try:
            opened.connect((self.machine.address, self.machine.mqtt.port))
            self._stream = network.connect(self.world.outside, opened, self)
        except ConnectionRefusedError:
            opened.close()
            self.world.call_later(AGAIN, self._connects)

    def connection_made(self, transport: Any) -> None:
        self._framer = PacketFramer(1 << 28)
        properties = None
        if self.version == V5:
            properties = Properties(
                session_expiry=EXPIRY if self.lasting else None, receive_maximum=self._receive_maximum
            )
        self._say(
            Connect(
                version=self.version,
                client_id=self.name,
                clean_start=not self.lasting,
                will=self._new_will(),
                properties=properties,
            )
        )

    def data_received(self, data: bytes) -> None:
        self._framer.push(data)
        while self._stream is not None and (item := self._framer.pop()) is not None:
            packet = decode(item[0], item[1], self.version)
            self.model.note(self.world.now, self.name, packet)
            self._on_packet(packet)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exception: Exception | None) -> None:
        if self.is_connected:
            self.model.disconnected(self)
        self._stream = None
        if self._will is not None:
            self._on_will_due(self._will)
        self._will = None
        self.is_connected = False
        if not self.lasting:
            self._received.clear()
        self.world.call_later(AGAIN, self._connects)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    # Packets.

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case ConnAck():
                self._on_connack(packet)
            case Publish():
                self._on_message(packet)
            case Acknowledge(PacketType.PUBACK, packet_id, reason):
                self.sent.pop(packet_id, None)
                self._on_outcome(packet_id, reason)
            case Acknowledge(PacketType.PUBREC, packet_id, reason):
                self._on_outcome(packet_id, reason)
                if reason >= 0x80:
                    self.sent.pop(packet_id, None)
                else:
                    release = self.sent[packet_id] = Acknowledge(PacketType.PUBREL, packet_id)
                    self._say(release)
            case Acknowledge(PacketType.PUBCOMP, packet_id, reason):
                self.sent.pop(packet_id, None)  # whatever the reason: the node may have died in between
            case Acknowledge(PacketType.PUBREL, packet_id):
                self._received.pop(packet_id, None)
                self._say(Acknowledge(PacketType.PUBCOMP, packet_id))
            case SubAck(packet_id, reasons):
                asked = self._asked.pop(packet_id, None)
                if isinstance(asked, Subscribe):
                    self.model.subscribed(self, asked.requests[0].filter, reasons[0])
            case UnsubAck(packet_id):
                self._asked.pop(packet_id, None)
            case Disconnect():
                pass  # the connection ends by itself
            case _:
                self.model.problem(f"{self.name} got {packet}")
        self._pump()

    def _on_connack(self, packet: ConnAck) -> None:
        if packet.reason:
            self.model.refused_connection(self.name, packet.reason)
            return
        self.is_connected = True
        self._connections += 1
        self.model.connected(self, self.world.now)
        if self._will is not None:
            self._will.connected_at = self.world.now
        if not packet.session_present:
            self._received.clear()
            if self._had_session and self.lasting:
                self.model.lost_session(self)
        self._had_session = True
        if not packet.session_present or self.subscribes_again:  # in the first case nothing stands any more
            for wanted, qos in self.wanted.items():
                if not any(wanted in repr(one) for one in self._asked.values()):
                    self._ask(Subscribe(self._next_asked(), (SubscriptionRequest(wanted, qos),)), now=False)
        for asked in list(self._asked.values()):
            self._say(asked)
        for packet_id, sent in list(self.sent.items()):
            if isinstance(sent, Publish):
                sent = Publish(sent.topic, sent.payload, sent.qos, sent.retain, True, packet_id)
            self._say(sent)

    def _on_outcome(self, packet_id: int, reason: int) -> None:
        message = self.of_packet.pop(packet_id, None)
        if message is None:
            return  # a PUBREC that came again
        if reason >= 0x80:
            self.refused += 1
            self.model.refused(message)
            # As a program that must be sure: once more, as another message.
            self._to_repeat += 1
            self.world.call_later(0.5 * (1 + message.tries), self._once_more, message)
        else:
            self.model.acknowledged(message, self.world.now)

    def _once_more(self, message: Message) -> None:
        self._to_repeat -= 1
        topic, qos = message.topic, message.qos
        again = self.publish(topic, qos, retain=message.retain, size=message.size, clears=message.clears)
        again.tries = 1 + message.tries

    def _on_message(self, packet: Publish) -> None:
        if packet.qos == 2:
            if packet.packet_id not in self._received:
                self._received[packet.packet_id] = packet.payload
                self.model.received(self, packet.topic, packet.payload, self.world.now)
            self._say(Acknowledge(PacketType.PUBREC, packet.packet_id))
            return
        self.model.received(self, packet.topic, packet.payload, self.world.now)
        if packet.qos:
            self._say(Acknowledge(PacketType.PUBACK, packet.packet_id))

    # Its will.

    def _new_will(self) -> Will | None:
        if self.will is None:
            return None
        topic, qos, delay, size = self.will
        self._will = message = self.model.new_message(f"{self.name}'s will", topic, qos, False, size, False)
        message.delay = delay if self.version == V5 else 0
        message.client = self.name
        properties = Properties(will_delay=delay) if self.version == V5 else None
        return Will(topic, message.payload, qos, False, properties)

    def _on_will_due(self, message: Message) -> None:
        """The connection has ended. Whether its will must come: it was noted, and nobody took it back."""
        message.ended_at = message.sent_at = self.world.now
        since = message.connected_at
        if since is None or message.revoked_at is not None or not message.qos or not self.lasting:
            return
        if self.world.now - since < NOTED:
            return
        if not message.delay:
            self.model.acknowledged(message, self.world.now)
            return
        self._check_later(message, self._connections)

    def _check_later(self, message: Message, connections: int) -> None:
        """Its delay begins anew with each process of the node, until the client is back."""
        boots = self.machine.boots

        def check() -> None:
            if self._connections > connections:
                return
            if self.machine.boots == boots and self.machine.node is not None:
                self.model.acknowledged(message, self.world.now)
            else:
                self._check_later(message, connections)

        self.world.call_later(message.delay + NOTED, check)

    # Private.

    def _pump(self) -> None:
        while self.is_connected and self._waiting and len(self.sent) < self._inflight_max:
            message = self._waiting.pop(0)
            while True:
                self._packet_id = self._packet_id % (SUBSCRIBING - 1) + 1
                if self._packet_id not in self.sent:
                    break
            packet = Publish(
                message.topic, message.payload, message.qos, message.retain, packet_id=self._packet_id
            )
            self.sent[self._packet_id] = packet
            self.of_packet[self._packet_id] = message
            message.sent_at = self.world.now
            self._say(packet)

    def _ask(self, packet: Subscribe | Unsubscribe, *, now: bool = True) -> None:
        self._asked[packet.packet_id] = packet
        if self.is_connected and now:
            self._say(packet)

    def _next_asked(self) -> int:
        self._asked_id = SUBSCRIBING + (self._asked_id + 1 - SUBSCRIBING) % 500
        return self._asked_id

    def _say(self, packet: Packet) -> None:
        if self._stream is not None:
            self._stream.write(encode(packet, self.version))


__all__ = ["V3_1_1", "V5", "ModelClient"]
