"""Acknowledgements to a client, in the order of its packets (MQTT 5.0, section 4.6).

An acknowledgement that promises durability waits for the commit; those after it wait behind it.
"""

from collections import deque
from collections.abc import Callable

from roamcast.gateway.mqtt.packets.encode import acknowledgement, encode
from roamcast.gateway.mqtt.packets.properties import PacketType
from roamcast.gateway.mqtt.packets.reasons import ReasonCode
from roamcast.gateway.mqtt.packets.values import V5, Acknowledge


class PendingAnswer:
    __slots__ = ("is_ready", "packet", "packet_id", "type")

    def __init__(self, packet: bytes, type: PacketType, packet_id: int) -> None:
        self.packet = packet
        self.type = type
        self.packet_id = packet_id
        self.is_ready = False


class Answers:
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
            answer = self._wait(packet, type, packet_id)
            answer.is_ready = True
        else:
            self._send(packet)

    def hold_back(self, type: PacketType, packet_id: int) -> PendingAnswer:
        """An answer of success that waits for `release`."""
        return self._wait(acknowledgement(type, packet_id), type, packet_id)

    def release(self, answer: PendingAnswer) -> None:
        answer.is_ready = True
        while self.waiting and self.waiting[0].is_ready:
            self._send(self.waiting.popleft().packet)

    def refuse(self, answer: PendingAnswer, reason: ReasonCode) -> None:
        """Send a refusal instead of success (MQTT 5 only)."""
        answer.packet = encode(Acknowledge(answer.type, answer.packet_id, reason), V5)
        self.release(answer)

    def close(self) -> None:
        """The connection is gone. It is let go of, else the two would keep each other in memory until a pass
        of the garbage collector over everything, which is rare (`daemon/collector.py`)."""
        self.waiting.clear()
        self._send = _nowhere

    def _wait(self, packet: bytes, type: PacketType, packet_id: int) -> PendingAnswer:
        answer = PendingAnswer(packet, type, packet_id)
        self.waiting.append(answer)
        return answer


def _nowhere(packet: bytes) -> None:
    pass
