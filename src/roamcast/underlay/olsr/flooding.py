"""Messages on their way: our own, and those of others that this node relays (RFC 3626, sections 3.3 and 3.4).

With several interfaces a message goes out on all of them, and a copy of a known message that comes in over
another interface may still have to be relayed.
"""

from collections.abc import Iterable

from roamcast.host import Host
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import OpenAir
from roamcast.underlay.olsr.options import OlsrOptions
from roamcast.underlay.olsr.outbox import MessageOutbox, WaitingMessage
from roamcast.underlay.olsr.tables.duplicates import Duplicates
from roamcast.units import Micros, micros
from roamcast.wire.olsr import Address, MessageType, OlsrMessage, encode_message

NAMES = {int(type): type.name.lower() for type in MessageType}
RELAYED = 255  # beside the numbers of interfaces, of which a node has at most 16


class Flooding:
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
        until = self._considered.until
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
            self._host.set_timer("relay", now + int(self._host.random.random() * self._relay_jitter))
        if self._has_several_interfaces:
            self._considered.add(message.key << 8 | RELAYED, now)
        waiting = WaitingMessage(data, name_of(message), own=False)
        for outbox in self._outboxes.values():
            if not outbox.add(waiting):
                self._host.trace(Dropped(now, self._host.node, DropReason.QUEUE_FULL, waiting.name))

    def send(
        self,
        type: MessageType,
        validity: Micros,
        ttl: int,
        body: bytes,
        interfaces: Iterable[Address] | None = None,
    ) -> None:
        """A message of our own, on some interfaces or on all."""
        self._sequence = (self._sequence + 1) % 65_536
        data = encode_message(type, validity, self._own, ttl, 0, self._sequence, body)
        for interface in interfaces or self._interfaces:
            self._outboxes[interface].add(WaitingMessage(data, NAMES[type], own=True))
        self.flush()

    def flush(self) -> None:
        self._host.cancel_timer("relay")
        for interface, outbox in self._outboxes.items():
            for frame in outbox.frames():
                if self._air is None:
                    self._host.broadcast(frame)
                else:
                    self._air.send(interface, frame)


def name_of(message: OlsrMessage) -> str:
    """For the trace."""
    return NAMES.get(message.type, "olsr")
