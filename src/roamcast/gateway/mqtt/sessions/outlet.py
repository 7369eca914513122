"""The sending side of a connection: a session's messages and our acknowledgements, as this client takes
them."""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from roamcast.gateway.mqtt.mesh.mapping import MeshMessage
from roamcast.gateway.mqtt.packets.codec import acknowledgement, encode, variable
from roamcast.gateway.mqtt.packets.values import V3_1_1, V5, Acknowledge, PacketType, Properties, ReasonCode
from roamcast.gateway.mqtt.sessions.session import UnacknowledgedMessage
from roamcast.gateway.mqtt.transport import PacketStream
from roamcast.gateway.options import MqttOptions
from roamcast.gateway.stream import Turn
from roamcast.units import Micros


class Outlet(PacketStream):
    """The `ClientLink` of a session."""

    def __init__(
        self,
        turn: Turn,
        options: MqttOptions,
        clock: Callable[[], Micros],
        count: Callable[[str, str], None],
    ) -> None:
        super().__init__(turn, options.packet_bytes_max, options.write_bytes_max)
        self.version = V3_1_1
        self.inflight_max = options.inflight_max
        self._clock = clock
        self._count = count  # a counter's name and its label `reason`
        self._aliases_max = options.topic_alias_max
        self._packet_size_max = 0  # that the client accepts; 0: any
        self._aliases_out: dict[str, int] = {}
        self._alias_out_max = 0

    def take_limits(self, version: int, asked: Properties) -> None:
        """What CONNECT says about packets to this client."""
        self.version = version
        self._packet_size_max = asked.maximum_packet_size or 0
        self._alias_out_max = min(asked.topic_alias_maximum or 0, self._aliases_max)
        if asked.receive_maximum is not None:
            self.inflight_max = min(self.inflight_max, asked.receive_maximum)

    def send_plain(self, message: MeshMessage, retain: bool, identifiers: tuple[int, ...]) -> bool:
        if identifiers or self._alias_out_max or message.expires_at is not None:
            return self._send_message(message, retain, 0, identifiers)
        packet = message.plain(self.version, retain)
        if self._packet_size_max and len(packet) > self._packet_size_max:
            return False
        self.send(packet)
        return True

    def send_outgoing(self, outgoing: UnacknowledgedMessage, duplicate: bool) -> bool:
        flags = duplicate << 3 | outgoing.qos << 1 | outgoing.retain
        return self._send_message(outgoing.message, flags, outgoing.packet_id, outgoing.identifiers)

    def send_release(self, packet_id: int) -> None:
        self.send(acknowledgement(PacketType.PUBREL, packet_id))

    def _send_message(
        self, message: MeshMessage, flags: int, packet_id: int, identifiers: tuple[int, ...]
    ) -> bool:
        """`flags`: of the PUBLISH."""
        alias, with_topic, own = 0, True, b""
        if self._alias_out_max:
            alias, with_topic = self._alias_for(message.topic)
            if alias:
                own = b"\x23" + alias.to_bytes(2, "big")
        for number in identifiers:
            own += b"\x0b" + variable(number)
        if message.expires_at is not None:
            own += b"\x02" + message.seconds_left(self._clock()).to_bytes(4, "big")
        packet = message.packet(self.version, flags, packet_id, own, with_topic)
        if self._packet_size_max and len(packet) > self._packet_size_max:
            if with_topic and alias:
                del self._aliases_out[message.topic]  # the client has not got it
            return False
        self.send(packet)
        return True

    def _alias_for(self, topic: str) -> tuple[int, bool]:
        """The alias of a topic and whether the topic must be sent with it; the first topics get one."""
        alias = self._aliases_out.get(topic)
        if alias is not None:
            return alias, False
        if len(self._aliases_out) >= self._alias_out_max:
            return 0, True
        alias = len(self._aliases_out) + 1
        self._aliases_out[topic] = alias
        return alias, True


class PendingAnswer(msgspec.Struct, eq=False, gc=False):
    packet: bytes
    type: PacketType
    packet_id: int
    is_ready: bool = False


class Acknowledgements:
    """Acknowledgements to a client, in the order of its packets (MQTT 5.0, section 4.6).

    An acknowledgement that promises durability waits for the commit; those after it wait behind it.
    """

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.waiting: deque[PendingAnswer] = deque()

    @property
    def unreceived(self) -> int:
        """How many answer a PUBLISH that is not noted as received: all but PUBREC."""
        return sum(answer.type is not PacketType.PUBREC for answer in self.waiting)

    def __contains__(self, answer: PendingAnswer) -> bool:
        return answer in self.waiting

    def give(self, type: PacketType, packet_id: int, reason: ReasonCode, version: int) -> None:
        """Send it now, or behind those that wait."""
        if reason and version == V5:
            packet = encode(Acknowledge(type, packet_id, reason), V5)
        else:
            packet = acknowledgement(type, packet_id)
        if self.waiting:
            self.waiting.append(PendingAnswer(packet, type, packet_id, is_ready=True))
        else:
            self._send(packet)

    def hold_back(self, type: PacketType, packet_id: int) -> PendingAnswer:
        """An answer of success that waits for `release`."""
        answer = PendingAnswer(acknowledgement(type, packet_id), type, packet_id)
        self.waiting.append(answer)
        return answer

    def release(self, answers: Iterable[PendingAnswer]) -> None:
        for answer in answers:
            answer.is_ready = True
        packets = []
        while self.waiting and self.waiting[0].is_ready:
            packets.append(self.waiting.popleft().packet)
        if packets:
            self._send(b"".join(packets))

    def refuse(self, answer: PendingAnswer, reason: ReasonCode) -> None:
        """Send a refusal instead of success (MQTT 5 only)."""
        answer.packet = encode(Acknowledge(answer.type, answer.packet_id, reason), V5)
        self.release([answer])

    def close(self) -> None:
        """The connection is gone. It is let go of, else the two would keep each other in memory until a pass
        of the garbage collector over everything, which is rare (`daemon/collector.py`)."""
        self.waiting.clear()
        self._send = _nowhere


def _nowhere(packet: bytes) -> None:
    pass
