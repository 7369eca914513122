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
        self._waiting: deque[PendingAnswer] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def unreceived(self) -> int:
        """How many answer a PUBLISH that is not noted as received: all but PUBREC."""
        return sum(answer.type is not PacketType.PUBREC for answer in self._waiting)

    def __contains__(self, answer: PendingAnswer) -> bool:
        return answer in self._waiting

    def give(self, type: PacketType, packet_id: int, reason: ReasonCode, version: int) -> None:
        """Send it now, or behind those that wait."""
        packet = _encoded(type, packet_id, reason, version)
        if self._waiting:
            answer = self._wait(packet, type, packet_id)
            answer.is_ready = True
        else:
            self._send(packet)

    def hold_back(self, type: PacketType, packet_id: int) -> PendingAnswer:
        """An answer of success that waits for `release`."""
        return self._wait(acknowledgement(type, packet_id), type, packet_id)

    def release(self, answer: PendingAnswer) -> None:
        answer.is_ready = True
        while self._waiting and self._waiting[0].is_ready:
            self._send(self._waiting.popleft().packet)

    def refuse(self, answer: PendingAnswer, reason: ReasonCode) -> None:
        """Send a refusal instead of success (MQTT 5 only)."""
        answer.packet = _encoded(answer.type, answer.packet_id, reason, V5)
        self.release(answer)

    def close(self) -> None:
        """The connection is gone. It is let go of, else the two would keep each other in memory until a pass
        of the garbage collector over everything, which is rare (`daemon/collector.py`)."""
        self._waiting.clear()
        self._send = _nowhere

    def _wait(self, packet: bytes, type: PacketType, packet_id: int) -> PendingAnswer:
        answer = PendingAnswer(packet, type, packet_id)
        self._waiting.append(answer)
        return answer


def _nowhere(packet: bytes) -> None:
    pass


def _encoded(type: PacketType, packet_id: int, reason: ReasonCode, version: int) -> bytes:
    if reason and version == V5:
        return encode(Acknowledge(type, packet_id, reason), V5)
    return acknowledgement(type, packet_id)
