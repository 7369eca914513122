"""A client with a lasting session that outlives its connections, as MQTT 5.0, sections 4.3 and 4.4 say.

It keeps the state of both sides of QoS 1 and 2 in memory, connects again whenever the connection ends,
repeats what is not acknowledged, and counts what it gets. It shares no code with the listener but the codec.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

from tests.daemon.programs import connected
from tests.gateway.mqtt.harness import read_packet

from roamcast.gateway.mqtt.packets.codec import encode
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    Packet,
    PacketType,
    PingRequest,
    PingResponse,
    Properties,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
)

PING_SECONDS = 0.02


class LastingClient:
    def __init__(self, port: int, client_id: str, *, subscribe: str | None = None) -> None:
        self._port = port
        self._client_id = client_id
        self._filter = subscribe
        self._writer: asyncio.StreamWriter | None = None
        self._sent: dict[int, Publish | Acknowledge] = {}  # not acknowledged: PUBLISH or PUBREL
        self._received: set[int] = set()  # of QoS 2
        self._packet_id = 0
        self.repeated: set[bytes] = set()  # payloads that were sent more than once
        self.arrived: Counter[bytes] = Counter()
        self.refused = 0
        self.settled = asyncio.Event()  # subscribed, where it subscribes
        # What the node has surely handled: acknowledged by us before a PINGREQ that was answered.
        self.confirmed: set[bytes] = set()
        self.again_after_confirmed: list[bytes] = []
        self._acknowledged: list[bytes] = []
        self._before_ping: list[bytes] = []
        self._before_last_ping: list[bytes] = []
        self._task = asyncio.create_task(self._live())

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def unacknowledged(self) -> int:
        return len(self._sent)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self._sent:
                break
        packet = Publish(topic=topic, payload=payload, qos=qos, packet_id=self._packet_id)
        self._sent[self._packet_id] = packet
        if self.settled.is_set():
            self._say(packet)

    # Private.

    def _say(self, packet: Packet) -> None:
        if self._writer is not None:
            self._writer.write(encode(packet, V5))

    async def _live(self) -> None:
        while True:
            reader, writer = await connected(self._port)
            self._writer = writer
            pings: asyncio.Task[None] | None = None
            try:
                self._say(
                    Connect(
                        version=V5,
                        client_id=self._client_id,
                        clean_start=False,
                        properties=Properties(session_expiry=86_400),
                    )
                )
                acknowledged = await read_packet(reader, V5)
                assert isinstance(acknowledged, ConnAck) and acknowledged.reason == 0, acknowledged
                if not acknowledged.session_present:
                    self._received.clear()
                    assert not self.settled.is_set(), "the node has lost the session"
                if self._filter is not None and not self.settled.is_set():
                    self._say(Subscribe(65_000, (SubscriptionRequest(self._filter, 2),)))
                else:
                    self.settled.set()
                for packet in list(self._sent.values()):
                    if isinstance(packet, Publish):
                        self.repeated.add(packet.payload)
                    self._say(packet)
                pings = asyncio.create_task(self._ping())
                while True:
                    self._on_packet(await read_packet(reader, V5))
            except (OSError, asyncio.IncompleteReadError):
                self._acknowledged, self._before_ping, self._before_last_ping = [], [], []
            finally:
                self._writer = None
                writer.transport.abort()
                if pings is not None:
                    pings.cancel()

    async def _ping(self) -> None:
        while True:
            self._before_last_ping += self._before_ping
            self._before_ping, self._acknowledged = self._acknowledged, []
            self._say(PingRequest())
            await asyncio.sleep(PING_SECONDS)

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self._on_message(packet)
            case Acknowledge(PacketType.PUBACK, packet_id, reason):
                sent = self._sent.pop(packet_id, None)
                if reason >= 0x80:
                    self._on_refused(sent)
            case Acknowledge(PacketType.PUBREC, packet_id, reason):
                if reason >= 0x80:
                    self._on_refused(self._sent.pop(packet_id, None))
                    return
                self._sent[packet_id] = Acknowledge(PacketType.PUBREL, packet_id)
                self._say(self._sent[packet_id])
            case Acknowledge(PacketType.PUBCOMP, packet_id):
                self._sent.pop(packet_id, None)
            case Acknowledge(PacketType.PUBREL, packet_id):
                self._received.discard(packet_id)
                self._say(Acknowledge(PacketType.PUBCOMP, packet_id))
            case SubAck():
                self.settled.set()
            case PingResponse():
                self.confirmed.update(self._before_last_ping)
                self._before_last_ping = []
            case _:
                raise AssertionError(packet)

    def _on_refused(self, sent: Publish | Acknowledge | None) -> None:
        """As a program that must be sure: once more."""
        self.refused += 1
        if isinstance(sent, Publish):
            self.publish(sent.topic, sent.payload, sent.qos)

    def _on_message(self, packet: Publish) -> None:
        if packet.qos == 2:
            if packet.packet_id not in self._received:
                self._received.add(packet.packet_id)
                self.arrived[packet.payload] += 1
            self._say(Acknowledge(PacketType.PUBREC, packet.packet_id))
            return
        self.arrived[packet.payload] += 1
        if packet.payload in self.confirmed:
            self.again_after_confirmed.append(packet.payload)
        self._acknowledged.append(packet.payload)
        self._say(Acknowledge(PacketType.PUBACK, packet.packet_id))


async def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it came true in time."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True
