"""MQTT's packets out of a stream of octets (`gateway/stream.py`).

At most one packet that is not whole is kept. Large packets share the room of all connections: there is none
for one from each client.
"""

from typing import TypeAlias

from roamcast.gateway.mqtt.packets.codec import MalformedPacket
from roamcast.gateway.mqtt.packets.values import ReasonCode
from roamcast.gateway.stream import LARGE_BYTES, FairStream, Turn

# Chosen by us.
UNSENT_BYTES_MAX = 128 * 1024 * 1024  # of large packets that clients do not read, all together
SLOW_MAX = 1.0  # seconds for which a publisher that is too fast is not read; its pings wait behind


RawPacket: TypeAlias = tuple[int, bytes]
"""The first octet (type and flags) and what follows the length."""


class PacketFramer:
    def __init__(self, packet_bytes_max: int) -> None:
        self._packet_bytes_max = packet_bytes_max
        self._data = b""
        self._at = 0  # octets before this have been consumed
        self._begin = 0  # of the last packet
        self._more: list[bytes] = []  # of a packet that is not whole: joined once, when it is
        self._lacking = 0  # octets of it
        self.expected = 0  # octets of the packet that has begun; 0: not known

    @property
    def is_partial(self) -> bool:
        """Whether a packet has begun and is not whole."""
        return self._at < len(self._data)

    def push(self, data: bytes) -> None:
        if self._lacking > len(data):
            self._lacking -= len(data)
            self._more.append(data)
            return
        self._lacking = self.expected = 0
        left = self._data[self._at :] if self._at else self._data
        self._at = 0
        if self._more:
            self._data = b"".join([left, *self._more, data])
            self._more.clear()
        else:
            self._data = left + data if left else data

    def pop(self) -> RawPacket | None:
        data, at = self._data, self._at
        end, start = len(data), at + 2
        if start > end or self._lacking:
            return None
        length = data[at + 1]
        if length >= 0x80:
            if start < end and (second := data[start]) < 0x80:
                length += (second << 7) - 0x80  # two octets: nearly every longer packet
                start += 1
            else:
                long = _long_length(data, at + 1)
                if long is None:
                    return None
                length, start = long
        stop = start + length
        if stop - at > self._packet_bytes_max:
            raise MalformedPacket("packet", 0, f"has {length} octets", ReasonCode.PACKET_TOO_LARGE)
        if stop > end:
            self.expected, self._lacking = stop - at, stop - end
            return None
        self._begin, self._at = at, stop
        return data[at], data[start:stop]

    def back(self) -> None:
        """The packet that was given last comes again."""
        self._at = self._begin


class PacketStream(FairStream[RawPacket]):
    def __init__(self, turn: Turn, packet_bytes_max: int, write_bytes_max: int) -> None:
        self._packets = PacketFramer(packet_bytes_max)
        super().__init__(turn, self._packets, write_bytes_max)
        self._expected = 0  # octets of a large packet that has begun

    @property
    def is_within_packet(self) -> bool:
        """Whether we wait for the rest of a packet."""
        return self._packets.is_partial and not self._has_more and not self._held and not self.is_closing

    def slow(self, seconds: float) -> None:
        super().slow(min(seconds, SLOW_MAX))

    def again(self, seconds: float) -> None:
        """Called by `on_item`, which has done nothing with this packet: it comes once more after a while,
        and what the client has sent behind it waits."""
        self._packets.back()
        self.slow(seconds)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        expected = self._packets.expected
        if expected == self._expected or self.is_closing:
            return
        self._expected = expected
        if not self._turn.receives(self, expected if expected > LARGE_BYTES else 0):
            problem = "is one large one too many for this node now"
            self.on_malformed(MalformedPacket("packet", 0, problem, ReasonCode.QUOTA_EXCEEDED))

    def close(self, *, at_once: bool = False) -> None:
        super().close(at_once=at_once)
        self._framer = self._packets = PacketFramer(0)  # what has come is not needed any more
        self._turn.receives(self, 0)


def _long_length(data: bytes, at: int) -> tuple[int, int] | None:
    """A remaining length of two to four octets and the position after it; None if it is not whole."""
    length = 0
    for count in range(4):
        if at + count >= len(data):
            return None
        octet = data[at + count]
        length |= (octet & 0x7F) << (7 * count)
        if octet < 0x80:
            return length, at + count + 1
    raise MalformedPacket("remaining length", 1, "has more than 4 octets")
