"""Letters between clients and brokers: in order, exactly once, whether the other is far away or in this node.

What a node says to itself takes no radio, but it is handled after the current input, like any other letter:
no part ever calls itself while it is still at work.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from roamcast.errors import WireError
from roamcast.event import EventId
from roamcast.host import Host, Kind, TimerName
from roamcast.strategy.opportunistic.wire.messages import (
    LETTERS,
    CarryLetter,
    Content,
    Deliver,
    Letters,
    PublishLetter,
    name_of,
)
from roamcast.strategy.opportunistic.wire.reliable import (
    BODY_BYTES_MAX,
    Letter,
    Reliable,
    StreamSegment,
)
from roamcast.strategy.opportunistic.wire.transport import Transport
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import Micros, NodeId

EVENT_LETTERS = (PublishLetter, Deliver, CarryLetter)
EVENTS = msgspec.msgpack.Encoder()


class LetterPost:
    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        *,
        on_letter: Callable[[NodeId, Letters, int, Micros], None],
        on_reset: Callable[[NodeId, list[Letters]], None],
        on_unreachable: Callable[[NodeId], None],
        way: Callable[[NodeId], tuple[NodeId, ...]],
        share_frames: bool,
    ) -> None:
        """`way` names the brokers that a datagram to a node shall pass: the source route."""
        self._host = host
        self._underlay = underlay
        self._on_letter = on_letter
        self._on_reset = on_reset
        self.on_unreachable = on_unreachable
        self._way = way
        self._to_self: deque[Letters] = deque()
        self._cut_off: dict[NodeId, None] = {}  # peers that no route leads to, as it was when we last tried
        self._reliable = Reliable(host, self, self)
        self.boot = self._reliable.boot
        self.transport = Transport(host, underlay, self._reliable.on_datagram, share_frames=share_frames)

    def write(self, to: NodeId, message: Letters) -> bool:
        """False if too much waits for `to` already."""
        if to == self._host.node:
            self._to_self.append(message)
            self._host.set_timer("to self", self._host.now())
            return True
        event = message.event.id if isinstance(message, EVENT_LETTERS) else None
        kind = Kind.CONTROL if event is None else Kind.DATA
        name, body = name_of(type(message)), LETTERS.encode(message)
        if len(body) > BODY_BYTES_MAX:
            # Whoever writes bounds what it writes; this is for a sum of bounds that nobody thought of.
            self.drop(DropReason.WIRE, name, event, to)
            return False
        letter = Letter(body, kind, name, event, self._ending(message))
        if self._reliable.send(to, letter):
            return True
        self.drop(DropReason.QUEUE_FULL, letter.name, event, to)
        return False

    def abandon(self, peer: NodeId) -> list[Letters]:
        """Give up what `peer` has not confirmed; it comes back, and may have arrived all the same."""
        return self._opened(self._reliable.abandon(peer))

    def take_back(self, peer: NodeId, kinds: tuple[type[Letters], ...]) -> list[Letters]:
        """The same for letters of these kinds; others that wait for `peer` are written again. A node may be a
        broker and a client, and what is over for the one is not for the other."""
        taken: list[Letters] = []
        for letter in self.abandon(peer):
            if isinstance(letter, kinds):
                taken.append(letter)
            else:
                self.write(peer, letter)
        return taken

    def unconfirmed(self, peer: NodeId) -> list[Letters]:
        """What still waits for `peer`, in order."""
        return self._opened(self._reliable.unconfirmed(peer))

    def waiting(self, peer: NodeId) -> int:
        return self._reliable.waiting(peer)

    def silence(self, peer: NodeId) -> Micros:
        """For how long a peer has owed us a confirmation."""
        return self._reliable.silence(peer)

    def round_trip(self, peer: NodeId) -> Micros | None:
        """Smoothed; None before any was measured."""
        return self._reliable.round_trip(peer)

    def bandwidth(self, peer: NodeId) -> int | None:
        """Octets per second that letters to a peer had lately; None before any was measured."""
        return self._reliable.bandwidth(peer)

    def octets(self) -> int:
        """Of all letters that wait for a confirmation."""
        return self._reliable.octets()

    def is_idle(self) -> bool:
        """Whether no letter waits."""
        return not self._to_self and not self._reliable.octets()

    def nudge(self, peer: NodeId) -> None:
        self._reliable.nudge(peer)

    def on_routes_changed(self) -> None:
        """Whoever can be reached again is tried at once."""
        for peer in [peer for peer in self._cut_off if self._underlay.next_hop(peer) is not None]:
            del self._cut_off[peer]
            self._reliable.nudge(peer)

    def drop(self, reason: DropReason, message: str, event: EventId | None, to: NodeId | None = None) -> None:
        publisher, sequence = event if event is not None else (None, None)
        self._host.trace(
            Dropped(self._host.now(), self._host.node, reason, message, publisher, sequence, to=to)
        )

    # Inputs.

    def on_timer(self, name: TimerName) -> None:
        if name == "to self":
            for _ in range(len(self._to_self)):
                self._on_letter(self._host.node, self._to_self.popleft(), 0, 0)
        elif name == "spread" or (isinstance(name, tuple) and name[0] in ("bundle", "spread")):
            self.transport.on_timer(name)
        else:
            self._reliable.on_timer(name)

    def on_letter(self, sender: NodeId, body: bytes, hops: int, held: Micros) -> None:
        try:
            message = LETTERS.decode(body)
        except WireError:
            self.drop(DropReason.WIRE, "letter", None)
            return
        self._on_letter(sender, message, hops, held)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letter]) -> None:
        self._on_reset(peer, self._opened(unconfirmed))

    def send(self, to: NodeId, message: Content, letter: Letter) -> bool:
        """A datagram for `Reliable`, on the source route of the moment."""
        has_gone = self.transport.send(to, message, letter, self._way(to))
        if has_gone:
            self._cut_off.pop(to, None)
        elif isinstance(message, StreamSegment):
            self._cut_off[to] = None
        return has_gone

    def _ending(self, message: Letters) -> bytes:
        """What copies to others will end in, too."""
        return EVENTS.encode(message.event) if isinstance(message, CarryLetter) else b""

    def _opened(self, letters: list[Letter]) -> list[Letters]:
        """As written, with events aged by the time they have waited."""
        now = self._host.now()
        opened: list[Letters] = []
        for letter in letters:
            message = LETTERS.decode(letter.body)
            if isinstance(message, EVENT_LETTERS):
                message = msgspec.structs.replace(message, age=message.age + now - letter.written_at)
            opened.append(message)
        return opened
