"""Messages on their way: our own, and those of others that this node relays (RFC 3626, sections 3.3 and 3.4).

With several interfaces a message goes out on all of them, and a copy of a known message that comes in over
another interface may still have to be relayed.
"""

from collections.abc import Iterable

import msgspec

from roamcast.host import Frame, Host, Kind
from roamcast.kit.protocol import Timer, trace_drop
from roamcast.trace import DropReason
from roamcast.underlay.base import OpenAir
from roamcast.underlay.olsr.options import OlsrOptions
from roamcast.units import Micros, micros
from roamcast.wire.olsr import (
    PACKET_HEADER,
    Address,
    MessageType,
    OlsrMessage,
    encode_message,
    encode_packet,
)

NAMES = {int(type): type.name.lower() for type in MessageType}
RIDER = NAMES[MessageType.RIDER]
SWEEPS = 16  # in a hold time; chosen by us: so the set is at most a sixteenth larger than it has to be
RELAYED = 255  # beside the numbers of interfaces, of which a node has at most 16


class DefaultForwarding:
    def __init__(
        self,
        host: Host,
        air: OpenAir | None,
        interfaces: tuple[Address, ...],
        options: OlsrOptions,
        relay_jitter: Micros,
    ) -> None:
        self._host = host
        self._air = air
        self._interfaces = interfaces
        self._own = interfaces[0]
        self._has_several_interfaces = len(interfaces) > 1
        self._relay_jitter = relay_jitter
        self._relay_timer = Timer(host, self.flush)
        self.duplicates = Duplicates(micros(options.duplicate_hold), options.duplicates_max)
        # With several interfaces: over which a message came, and whether it was relayed (section 3.4.1).
        self._considered = Duplicates(micros(options.duplicate_hold), options.duplicates_max)
        self._outboxes = {
            interface: MessageOutbox(options.packet_max, options.forward_max) for interface in interfaces
        }
        # Random: with a fixed first number, the first messages after a restart would be taken for
        # duplicates of those before the crash.
        self._sequence = host.random.randrange(65_536)

    # What comes in.

    def note(self, message: OlsrMessage, interface: Address, now: Micros) -> bool:
        """A message was processed. False if an older one had to be forgotten for it."""
        had_room = self.duplicates.add(message.key, now)
        if self._has_several_interfaces:
            self._considered.add(message.key << 8 | self._interfaces.index(interface), now)
        return had_room

    def consider_copy(self, message: OlsrMessage, interface: Address, now: Micros) -> bool:
        """Section 3.4.1, with several interfaces: whether a known message that came over another interface
        was not relayed yet, and no copy over this one was considered."""
        until = self._considered
        copy = message.key << 8 | self._interfaces.index(interface)
        if until.get(message.key << 8 | RELAYED, 0) > now or until.get(copy, 0) > now:
            return False
        self._considered.add(copy, now)
        return True

    # What goes out.

    def relay(self, message: OlsrMessage, now: Micros) -> None:
        """The default forwarding algorithm's last steps (section 3.4.1), after a random delay in which
        other messages may join the packet."""
        data = encode_message(
            message.type,
            message.validity,
            message.originator,
            message.ttl - 1,
            min(message.hops + 1, 255),
            message.sequence,
            message.body,
        )
        if not any(self._outboxes.values()):
            self._relay_timer.within(self._relay_jitter)
        if self._has_several_interfaces:
            self._considered.add(message.key << 8 | RELAYED, now)
        waiting = WaitingMessage(data, name_of(message), own=False)
        for outbox in self._outboxes.values():
            if not outbox.add(waiting):
                trace_drop(self._host, DropReason.QUEUE_FULL, waiting.name)

    def send(
        self,
        type: MessageType,
        validity: Micros,
        ttl: int,
        body: bytes,
        interfaces: Iterable[Address] | None = None,
    ) -> None:
        """A message of our own, on some interfaces or on all."""
        self.put(type, validity, ttl, body, interfaces)
        self.flush()

    def put(
        self,
        type: MessageType,
        validity: Micros,
        ttl: int,
        body: bytes,
        interfaces: Iterable[Address] | None = None,
    ) -> None:
        """Add a message to the next packet, which other messages may share."""
        self._sequence = (self._sequence + 1) % 65_536
        data = encode_message(type, validity, self._own, ttl, 0, self._sequence, body)
        for interface in interfaces or self._interfaces:
            self._outboxes[interface].add(WaitingMessage(data, NAMES[type], own=True))

    def flush(self) -> None:
        self._relay_timer.cancel()
        for interface, outbox in self._outboxes.items():
            for frame in outbox.frames():
                if self._air is None:
                    self._host.broadcast(frame)
                else:
                    self._air.send(interface, frame)


def name_of(message: OlsrMessage) -> str:
    """The name of a message's type in the trace."""
    return NAMES.get(message.type, "olsr")


class WaitingMessage(msgspec.Struct, frozen=True, gc=False):
    data: bytes  # the message, encoded
    name: str  # for the trace
    own: bool  # made here, not relayed


class MessageOutbox:
    """Messages that wait to go out together: several in one packet cost one header and one channel access
    (section 3.3)."""

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
            if message.name != name and name != RIDER:  # who counts riders wants to know where they are
                name = RIDER if message.name == RIDER else "olsr"
        return Frame(payload, Kind.CONTROL, name, own=own)


class Duplicates(dict[int, Micros]):
    """The duplicate set: until when each flooded message, by its key, counts as received (section 3.4).

    The RFC notes in each tuple whether the message was relayed and over which interfaces it came. With one
    interface both follow from the existence of the tuple: a second copy is neither processed nor relayed,
    whoever sent it; with several, `DefaultForwarding` keeps a second set, by message and interface. Tuples
    are never renewed, so a forged sequence number blocks its place for the hold time and no longer. All have
    the same hold time, so the oldest always expires first. A plain dictionary, not a `BoundedDict`: it is
    looked into for every message that is heard."""

    def __init__(self, hold: Micros, length_max: int) -> None:
        super().__init__()
        self._hold = hold  # DUP_HOLD_TIME
        self._length_max = length_max
        self._sweep_at: Micros = 0

    def add(self, key: int, now: Micros) -> bool:
        """Remember a message. False if an older one had to be forgotten before its time."""
        pushed_out = False
        if now >= self._sweep_at:
            # Not for each message: in a dictionary whose first places are empty, the first entry is far.
            self._sweep_at = now + self._hold // SWEEPS
            for expired in [key for key, end in self.items() if end <= now]:
                del self[expired]
        while len(self) >= self._length_max:
            oldest = next(iter(self))
            pushed_out = pushed_out or self[oldest] > now
            del self[oldest]
        self.pop(key, None)  # an expired one; the last entry shall be the youngest
        self[key] = now + self._hold
        return not pushed_out
