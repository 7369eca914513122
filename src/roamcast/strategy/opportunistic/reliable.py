"""In order, exactly once, to a node several hops away: streams of messages over datagrams that get lost.

The papers assume reliable links; this is where that assumption is made true. Each node numbers the messages
it sends to a peer; the peer hands them up in order and says which it expects next. What is not acknowledged
is sent again, more and more rarely, for as long as the owner wants: a peer that was behind a partition for a
minute gets everything.

A stream belongs to one boot of its sender and one of its receiver; every datagram tells the boot of who
sent it, and boot numbers are stable. When a peer turns out to have restarted, the owner hears of it once
(`on_reset`) and gets back what nobody has confirmed: it may or may not have arrived, and only the owner can
tell what that means. A peer that gave a stream up (`abandon`) begins a new one without a word.
"""

from collections import deque
from typing import Annotated, NamedTuple, Protocol

import msgspec

from roamcast.event import Count, EventId
from roamcast.host import Host, Kind, TimerName
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

BOOTS = "opportunistic-boots"  # key in stable storage
STREAMS_PER_BOOT = 1 << 32
WINDOW = 32  # messages sent ahead of their acknowledgement
BODY_BYTES_MAX = 63_000
PEERS_MAX = 4_096

FIRST_WAIT: Micros = 300 * MILLISECOND  # before the round trip has been measured
SHORTEST_WAIT: Micros = 50 * MILLISECOND
LONGEST_WAIT: Micros = 4 * SECOND
UNREACHABLE_AFTER: Micros = 5 * SECOND


class Segment(
    msgspec.Struct, frozen=True, array_like=True, tag_field="message", tag=5, forbid_unknown_fields=True
):
    """Message `number` of `stream`; all before `confirmed` are known to have arrived. It was `held` back for
    so long (microseconds) before this copy was sent: ages of events count that."""

    stream: Count
    number: Count
    confirmed: Count
    held: Count
    body: Annotated[bytes, msgspec.Meta(max_length=BODY_BYTES_MAX)]


class Acknowledgement(
    msgspec.Struct, frozen=True, array_like=True, tag_field="message", tag=6, forbid_unknown_fields=True
):
    """All before `expected` has arrived at this `boot` of the receiver. `unknown`: it has no such stream."""

    stream: Count
    expected: Count
    boot: Count
    unknown: bool = False


class Letter(NamedTuple):
    """One message for a peer, and how the radio labels it."""

    body: bytes
    kind: Kind
    name: str
    event: EventId | None = None
    written_at: Micros = 0  # set by `Reliable.send`


class Datagrams(Protocol):
    """What carries segments: it may lose, repeat and reorder them."""

    def send(self, to: NodeId, message: Segment | Acknowledgement, letter: Letter) -> None: ...


class ReliableOwner(Protocol):
    def on_letter(self, sender: NodeId, body: bytes, hops: int, held: Micros) -> None:
        """The next message of a peer, the radio hops that this copy took, and how long it had waited."""
        ...

    def on_reset(self, peer: NodeId, unconfirmed: list[Letter]) -> None:
        """The peer has restarted, or forgotten us: what we sent and it did not confirm comes back."""
        ...

    def on_unreachable(self, peer: NodeId) -> None:
        """Nothing has been confirmed for `UNREACHABLE_AFTER`. The stream goes on trying."""
        ...


class Outgoing:
    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.confirmed = 0  # number of the first letter that is not
        self.letters: deque[Letter] = deque()  # from `confirmed` on
        self.sent = 0  # how many of them have been sent at least once
        self.wait = FIRST_WAIT
        self.round_trip: Micros | None = None  # smoothed (RFC 6298)
        self.deviation: Micros = 0
        self.timed: tuple[int, Micros] | None = None  # a letter sent once only, and when (Karn)
        self.progress_at: Micros = 0
        self.is_unreachable = False
        self.repair_until = 0  # letters before this one were sent when one was lost, and may be lost as well

    def measure(self, round_trip: Micros) -> None:
        if self.round_trip is None:
            self.round_trip, self.deviation = round_trip, round_trip // 2
        else:
            self.deviation += (abs(self.round_trip - round_trip) - self.deviation) // 4
            self.round_trip += (round_trip - self.round_trip) // 8

    def rest(self) -> None:
        """The peer answers: wait as the round trip says."""
        if self.round_trip is not None:
            self.wait = min(max(self.round_trip + 4 * self.deviation, SHORTEST_WAIT), LONGEST_WAIT)
        else:
            self.wait = FIRST_WAIT


class Incoming:
    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.expected = 0
        self.early: dict[int, tuple[bytes, int, Micros]] = {}  # arrived before their turn; at most a window


class Reliable:
    """Timers are named `("reliable", peer)`; the owner's layer passes them to `on_timer`."""

    def __init__(
        self, host: Host, datagrams: Datagrams, owner: ReliableOwner, queue_max: int = 10_000
    ) -> None:
        self._host = host
        self._datagrams = datagrams
        self._owner = owner
        self._queue_max = queue_max
        boots = int.from_bytes(host.stable.get(BOOTS, b""), "big") + 1
        host.stable[BOOTS] = boots.to_bytes(8, "big")
        self.boot = boots
        self._next_stream = boots * STREAMS_PER_BOOT
        self._boots: dict[NodeId, int] = {}  # of each peer, as last heard
        self._outgoing: dict[NodeId, Outgoing] = {}
        self._incoming: dict[NodeId, Incoming] = {}

    # Inputs from the owner.

    def send(self, to: NodeId, letter: Letter) -> bool:
        """False if too much waits for this peer already; the letter is then not taken."""
        outgoing = self._outgoing.get(to)
        if outgoing is None:
            if len(self._outgoing) >= PEERS_MAX:
                self._forget_idle()
            outgoing = self._outgoing[to] = self._new_stream()
        if len(outgoing.letters) >= self._queue_max:
            return False
        if not outgoing.letters:
            outgoing.progress_at = self._host.now()
        outgoing.letters.append(letter._replace(written_at=self._host.now()))
        self._send_ahead(to, outgoing)
        return True

    def nudge(self, peer: NodeId) -> None:
        """The way to a peer may have opened: try at once."""
        outgoing = self._outgoing.get(peer)
        if outgoing is not None and outgoing.letters:
            outgoing.rest()
            self._repeat(peer, outgoing)

    def abandon(self, peer: NodeId) -> list[Letter]:
        """Give up what is not confirmed. A later message begins a new stream."""
        outgoing = self._outgoing.pop(peer, None)
        self._host.cancel_timer(("reliable", peer))
        return [] if outgoing is None else list(outgoing.letters)

    def unconfirmed(self, peer: NodeId) -> list[Letter]:
        outgoing = self._outgoing.get(peer)
        return [] if outgoing is None else list(outgoing.letters)

    def silence(self, peer: NodeId) -> Micros:
        """For how long a peer has owed us a confirmation."""
        outgoing = self._outgoing.get(peer)
        if outgoing is None or not outgoing.letters:
            return 0
        return self._host.now() - outgoing.progress_at

    def waiting(self, peer: NodeId) -> int:
        outgoing = self._outgoing.get(peer)
        return 0 if outgoing is None else len(outgoing.letters)

    # Inputs from the radio and the clock.

    def on_datagram(self, sender: NodeId, message: Segment | Acknowledgement, hops: int) -> None:
        boot = message.stream // STREAMS_PER_BOOT if isinstance(message, Segment) else message.boot
        known = self._boots.setdefault(sender, boot)
        if boot < known:
            return  # from before a restart
        if boot > known:
            self._boots[sender] = boot
            self._incoming.pop(sender, None)
            self._reset(sender)
        if isinstance(message, Segment):
            self._on_segment(sender, message, hops)
        else:
            self._on_acknowledgement(sender, message)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case ("reliable", int() as peer):
                outgoing = self._outgoing.get(peer)
                if outgoing is None or not outgoing.letters:
                    return
                outgoing.wait = min(2 * outgoing.wait, LONGEST_WAIT)
                self._repeat(peer, outgoing)
                silent = self._host.now() - outgoing.progress_at
                if silent >= UNREACHABLE_AFTER and not outgoing.is_unreachable:
                    outgoing.is_unreachable = True
                    self._owner.on_unreachable(peer)

    # Sending.

    def _new_stream(self) -> Outgoing:
        self._next_stream += 1
        return Outgoing(self._next_stream)

    def _send_ahead(self, to: NodeId, outgoing: Outgoing) -> None:
        now = self._host.now()
        if outgoing.sent == 0 and outgoing.letters:
            self._host.set_timer(("reliable", to), now + outgoing.wait)
        while outgoing.sent < min(len(outgoing.letters), WINDOW):
            number = outgoing.confirmed + outgoing.sent
            if outgoing.timed is None:
                outgoing.timed = (number, now)
            self._transmit(to, outgoing, outgoing.sent)
            outgoing.sent += 1

    def _repeat(self, to: NodeId, outgoing: Outgoing) -> None:
        """Only the first: it shows whether the peer is there, and its answer brings the rest."""
        outgoing.timed = None
        outgoing.sent = max(outgoing.sent, 1)
        outgoing.repair_until = outgoing.confirmed + outgoing.sent
        self._transmit(to, outgoing, 0)
        self._host.set_timer(("reliable", to), self._host.now() + outgoing.wait)

    def _transmit(self, to: NodeId, outgoing: Outgoing, place: int) -> None:
        letter = outgoing.letters[place]
        number = outgoing.confirmed + place
        held = self._host.now() - letter.written_at
        segment = Segment(outgoing.stream, number, outgoing.confirmed, held, letter.body)
        self._datagrams.send(to, segment, letter)

    def _on_acknowledgement(self, sender: NodeId, message: Acknowledgement) -> None:
        outgoing = self._outgoing.get(sender)
        if outgoing is None or message.stream != outgoing.stream:
            return
        if message.unknown:
            self._reset(sender)
            return
        arrived = message.expected - outgoing.confirmed
        if arrived > len(outgoing.letters):
            return  # it confirms what was never sent
        if arrived <= 0:
            return
        now = self._host.now()
        if outgoing.timed is not None and outgoing.timed[0] < message.expected:
            outgoing.measure(now - outgoing.timed[1])
            outgoing.timed = None
            outgoing.rest()  # without a new measurement the longer wait stays (RFC 6298, 5.7)
        for _ in range(arrived):
            outgoing.letters.popleft()
        outgoing.confirmed = message.expected
        outgoing.sent = max(outgoing.sent - arrived, 0)
        outgoing.progress_at = now
        outgoing.is_unreachable = False
        if not outgoing.letters:
            self._host.cancel_timer(("reliable", sender))
            return
        self._host.set_timer(("reliable", sender), now + outgoing.wait)
        if outgoing.sent and outgoing.confirmed < outgoing.repair_until:
            # What was sent before the loss showed and is still missing was probably lost with it (RFC 6582).
            outgoing.timed = None
            self._transmit(sender, outgoing, 0)
        self._send_ahead(sender, outgoing)

    def _reset(self, peer: NodeId) -> None:
        self._owner.on_reset(peer, self.abandon(peer))

    def _forget_idle(self) -> None:
        """Room for another peer: the first that has nothing under way, or the first at all."""
        idle = next((peer for peer, outgoing in self._outgoing.items() if not outgoing.letters), None)
        if idle is None:
            idle = next(iter(self._outgoing))
        self.abandon(idle)

    # Receiving.

    def _on_segment(self, sender: NodeId, segment: Segment, hops: int) -> None:
        incoming = self._incoming.get(sender)
        if incoming is None or segment.stream > incoming.stream:
            if segment.confirmed > 0:
                # Its beginning was confirmed by an earlier boot of ours, or we have forgotten the stream.
                self._acknowledge(sender, Acknowledgement(segment.stream, 0, self.boot, True))
                return
            if incoming is None and len(self._incoming) >= PEERS_MAX:
                del self._incoming[next(iter(self._incoming))]
            incoming = self._incoming[sender] = Incoming(segment.stream)
        elif segment.stream < incoming.stream:
            return  # given up by its sender
        if incoming.expected <= segment.number < incoming.expected + WINDOW:
            incoming.early.setdefault(segment.number, (segment.body, hops, segment.held))
        arrived: list[tuple[bytes, int, Micros]] = []
        while incoming.expected in incoming.early:
            arrived.append(incoming.early.pop(incoming.expected))
            incoming.expected += 1
        self._acknowledge(sender, Acknowledgement(incoming.stream, incoming.expected, self.boot))
        for body, taken, held in arrived:
            self._owner.on_letter(sender, body, taken, held)

    def _acknowledge(self, to: NodeId, acknowledgement: Acknowledgement) -> None:
        self._datagrams.send(to, acknowledgement, Letter(b"", Kind.CONTROL, "acknowledgement"))
