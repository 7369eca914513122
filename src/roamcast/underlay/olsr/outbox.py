"""Messages that wait to go out together: several in one packet cost one header and one channel access
(RFC 3626, section 3.3)."""

import msgspec

from roamcast.host import Frame, Kind
from roamcast.wire.olsr import PACKET_HEADER, encode_packet


class WaitingMessage(msgspec.Struct, frozen=True, gc=False):
    data: bytes  # the message, encoded
    name: str  # for the trace
    own: bool  # made here, not relayed


class MessageOutbox:
    def __init__(self, packet_max: int, messages_max: int) -> None:
        self._packet_max = packet_max
        self._messages_max = messages_max
        self._waiting: list[WaitingMessage] = []
        self._packet_sequence = 0

    def add(self, message: WaitingMessage) -> bool:
        """False if there was no room. A node's own messages are always accepted."""
        if not message.own and len(self._waiting) >= self._messages_max:
            return False
        self._waiting.append(message)
        return True

    def frames(self) -> list[Frame]:
        """Everything that waits, in as few packets as possible; the queue is empty afterwards."""
        waiting, self._waiting = self._waiting, []
        frames: list[Frame] = []
        while waiting:
            count = self._fitting(waiting)
            frames.append(self._frame(waiting[:count]))
            waiting = waiting[count:]
        return frames

    def __len__(self) -> int:
        return len(self._waiting)

    def _fitting(self, waiting: list[WaitingMessage]) -> int:
        """How many go into one packet; a message larger than a packet goes alone."""
        octets = PACKET_HEADER.size
        for count, message in enumerate(waiting):
            octets += len(message.data)
            if octets > self._packet_max:
                return max(1, count)
        return len(waiting)

    def _frame(self, messages: list[WaitingMessage]) -> Frame:
        self._packet_sequence = (self._packet_sequence + 1) % 65_536
        payload = encode_packet(self._packet_sequence, [message.data for message in messages])
        name, own = messages[0].name, False
        for message in messages:
            own = own or message.own
            if message.name != name:
                name = "olsr"
        return Frame(payload, Kind.CONTROL, name, own=own)
