"""In order, exactly once, to a node several hops away: streams of messages over datagrams that get lost.

The papers assume reliable links; this is where that assumption is made true. Each node numbers the messages
it sends to a peer; the peer hands them up in order and says which it expects next. What is not acknowledged
is sent again, more and more rarely, for as long as the owner wants: a peer that was behind a partition for a
minute gets everything.

A letter is one datagram, whatever its size, and the radio may need seconds for it. So only so many octets are
sent ahead (the rest would stand in the radio's queue, before everybody else's), waits depend on size
(`round_trips.py`), and an acknowledgement says which copy of which letter it answers. That makes each answer
a measurement, of a repeated letter too (as timestamps do, RFC 7323), and shows when a repeat was in vain
(Eifel, RFC 3522). What is sent again, and when: the first letter that is missing, when its wait is over,
when three later ones have arrived (RFC 5681, 3.2), and, while that is being repaired, with every answer that
leaves a gap (RFC 6582).

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
from roamcast.strategy.opportunistic.wire.congestion import Congestion
from roamcast.strategy.opportunistic.wire.round_trips import FIRST_WAIT, RoundTrips
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

BOOTS = "opportunistic-boots"  # key in stable storage
STREAMS_PER_BOOT = 1 << 32
WINDOW = 32  # messages sent ahead of their acknowledgement
BODY_BYTES_MAX = 63_000
WINDOW_OCTETS = 2 * BODY_BYTES_MAX  # likewise: one letter leaves while another is farther on its way
OVERTAKEN = 3  # later letters that arrive first and mean a loss; fewer are disorder
PEERS_MAX = 4_096

WAITED: Micros = 50 * MILLISECOND  # a copy that left so late is a repeat, or stood behind one
UNREACHABLE_AFTER: Micros = 5 * SECOND


class StreamSegment(
    msgspec.Struct, frozen=True, array_like=True, tag_field="message", tag=5, forbid_unknown_fields=True
):
    """Message `number` of `stream`; all before `confirmed` are known to have arrived. It was `held` back for
    so long (microseconds) before this copy was sent: ages of events count that."""

    stream: Count
    number: Count
    confirmed: Count
    held: Count
    body: Annotated[bytes, msgspec.Meta(max_length=BODY_BYTES_MAX)]


class StreamAcknowledgement(
    msgspec.Struct, frozen=True, array_like=True, tag_field="message", tag=6, forbid_unknown_fields=True
):
    """All before `expected` has arrived at this `boot` of the receiver. It answers the copy of `number` that
    had been `held` back for so long. `unknown`: the receiver has no such stream."""

    stream: Count
    expected: Count
    boot: Count
    number: Count
    held: Count
    unknown: bool = False


class Letter(NamedTuple):
    """One message for a peer, and how the radio labels it."""

    body: bytes
    kind: Kind
    name: str
    event: EventId | None = None
    ending: bytes = b""  # of the body, that letters to others have as well
    is_repeat: bool = False  # this copy
    is_hasty: bool = False  # of acknowledgements: a repair waits for it
    written_at: Micros = 0  # set by `Reliable.send`


class StreamDatagrams(Protocol):
    """What carries segments: it may lose, repeat and reorder them."""

    def send(self, to: NodeId, message: StreamSegment | StreamAcknowledgement, letter: Letter) -> bool | None:
        """False if there is no way to the peer now."""
        ...


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


class LastSending(NamedTuple):
    """The last copy of a letter that is on its way."""

    sent_at: Micros
    is_alone: bool  # nothing of the stream was under way before it


class Outgoing:
    def __init__(self, stream: int, first_wait: Micros) -> None:
        self.stream = stream
        self.confirmed = 0  # number of the first letter that is not
        self.letters: deque[Letter] = deque()  # from `confirmed` on
        self.copies: deque[LastSending] = deque()  # of those that have been sent: the first ones
        self.octets = 0  # of their bodies
        self.round_trips = RoundTrips(first_wait)
        self.progress_at: Micros = 0
        self.is_unreachable = False
        self.is_under_way = False  # it counts among those that are
        self.repair_until = 0  # letters before this one were sent when one was lost, and may be lost as well

    def may_send(self) -> bool:
        sent = len(self.copies)
        if sent >= min(len(self.letters), WINDOW):
            return False
        return not sent or self.octets + len(self.letters[sent].body) <= WINDOW_OCTETS

    def wait(self) -> Micros:
        return self.round_trips.wait(len(self.letters[0].body))

    def answered(self, number: int, held: Micros, now: Micros) -> Micros | None:
        """The peer has got the copy of a letter that left when it had been held for so long; how long that
        took, if it is news."""
        place = number - self.confirmed
        if not 0 <= place < len(self.copies):
            return None  # known already
        letter, copy = self.letters[place], self.copies[place]
        sent_at = letter.written_at + held
        if sent_at > now:
            return None  # never sent
        since = sent_at if copy.is_alone else max(sent_at, self.progress_at)
        self.round_trips.measure(len(letter.body), now - since, is_alone=copy.is_alone)
        if sent_at < copy.sent_at:
            self.repair_until = 0  # an earlier copy: nothing was lost, all was only slow
        return now - sent_at

    def confirm(self, expected: int) -> None:
        while self.confirmed < expected:
            self.octets -= len(self.letters.popleft().body)
            self.copies.popleft()
            self.confirmed += 1


class Incoming:
    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.expected = 0
        self.early: dict[int, tuple[bytes, int, Micros]] = {}  # arrived before their turn; at most a window


class Reliable:
    """Timers are named `("reliable", peer)`; the owner's layer passes them to `on_timer`."""

    def __init__(
        self, host: Host, datagrams: StreamDatagrams, owner: ReliableOwner, queue_max: int = 10_000
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
        self._congestion = Congestion()
        self._under_way = 0  # streams
        self._in_line: dict[NodeId, None] = {}  # peers whose turn has not come
        self._usual: Micros = 0  # round trip, of all streams lately

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
            outgoing.round_trips.rest()
            self._go(peer, outgoing)

    def abandon(self, peer: NodeId) -> list[Letter]:
        """Give up what is not confirmed. A later message begins a new stream."""
        outgoing = self._outgoing.pop(peer, None)
        self._host.cancel_timer(("reliable", peer))
        self._in_line.pop(peer, None)
        if outgoing is None:
            return []
        self._rests(outgoing)
        return list(outgoing.letters)

    def unconfirmed(self, peer: NodeId) -> list[Letter]:
        outgoing = self._outgoing.get(peer)
        return [] if outgoing is None else list(outgoing.letters)

    def silence(self, peer: NodeId) -> Micros:
        """For how long a peer has owed us a confirmation."""
        outgoing = self._outgoing.get(peer)
        if outgoing is None or not outgoing.letters:
            return 0
        return self._host.now() - outgoing.progress_at

    def round_trip(self, peer: NodeId) -> Micros | None:
        """Smoothed, of the stream to a peer."""
        outgoing = self._outgoing.get(peer)
        return None if outgoing is None else outgoing.round_trips.shortest()

    def bandwidth(self, peer: NodeId) -> int | None:
        """Octets per second, of the stream to a peer."""
        outgoing = self._outgoing.get(peer)
        return None if outgoing is None else outgoing.round_trips.bandwidth()

    def octets(self) -> int:
        """Of all that is not confirmed."""
        return sum(len(letter.body) for outgoing in self._outgoing.values() for letter in outgoing.letters)

    def waiting(self, peer: NodeId) -> int:
        outgoing = self._outgoing.get(peer)
        return 0 if outgoing is None else len(outgoing.letters)

    # Inputs from the radio and the clock.

    def on_datagram(self, sender: NodeId, message: StreamSegment | StreamAcknowledgement, hops: int) -> None:
        boot = message.stream // STREAMS_PER_BOOT if isinstance(message, StreamSegment) else message.boot
        known = self._boots.setdefault(sender, boot)
        if boot < known:
            return  # from before a restart
        if boot > known:
            self._boots[sender] = boot
            self._incoming.pop(sender, None)
            self._reset(sender)
        if isinstance(message, StreamSegment):
            self._on_segment(sender, message, hops)
        else:
            self._on_acknowledgement(sender, message)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case ("reliable", int() as peer):
                outgoing = self._outgoing.get(peer)
                if outgoing is None or not outgoing.letters:
                    return
                outgoing.round_trips.back_off()
                self._congestion.on_lost(self._host.now())
                self._rests(outgoing)
                self._in_line[peer] = None  # behind all others
                self._next_in_line()
                silent = self._host.now() - outgoing.progress_at
                if silent >= UNREACHABLE_AFTER and not outgoing.is_unreachable:
                    outgoing.is_unreachable = True
                    self._owner.on_unreachable(peer)

    # Whose turn it is.

    def _has_room(self) -> bool:
        return self._under_way < self._congestion.limit

    def _rests(self, outgoing: Outgoing) -> None:
        """It owes us no confirmation any more, or we wait for none."""
        if outgoing.is_under_way:
            outgoing.is_under_way = False
            self._under_way -= 1

    def _next_in_line(self) -> None:
        while self._in_line and self._has_room():
            peer = next(iter(self._in_line))
            outgoing = self._outgoing[peer]
            if not outgoing.is_under_way:
                outgoing.is_under_way = True
                self._under_way += 1
            self._go(peer, outgoing)

    def _go(self, peer: NodeId, outgoing: Outgoing) -> None:
        self._in_line.pop(peer, None)
        self._repeat(peer, outgoing)

    # Sending.

    def _new_stream(self) -> Outgoing:
        self._next_stream += 1
        return Outgoing(self._next_stream, max(FIRST_WAIT, 3 * self._usual))

    def _send_ahead(self, to: NodeId, outgoing: Outgoing) -> None:
        was_idle = not outgoing.copies
        while outgoing.may_send():
            place = len(outgoing.copies)
            outgoing.octets += len(outgoing.letters[place].body)
            outgoing.copies.append(LastSending(self._host.now(), is_alone=not place))
            self._transmit(to, outgoing, place)
        if was_idle and outgoing.copies:
            self._host.set_timer(("reliable", to), self._host.now() + outgoing.wait())

    def _repeat(self, to: NodeId, outgoing: Outgoing) -> None:
        """Only the first: it shows whether the peer is there, and its answer brings the rest."""
        outgoing.repair_until = outgoing.confirmed + len(outgoing.copies)
        self._repeat_first(to, outgoing)
        self._host.set_timer(("reliable", to), self._host.now() + outgoing.wait())

    def _repeat_first(self, to: NodeId, outgoing: Outgoing) -> None:
        outgoing.copies[0] = outgoing.copies[0]._replace(sent_at=self._host.now())
        self._transmit(to, outgoing, 0, is_repeat=True)

    def _transmit(self, to: NodeId, outgoing: Outgoing, place: int, *, is_repeat: bool = False) -> None:
        letter = outgoing.letters[place]
        number = outgoing.confirmed + place
        held = self._host.now() - letter.written_at
        segment = StreamSegment(outgoing.stream, number, outgoing.confirmed, held, letter.body)
        has_gone = self._datagrams.send(to, segment, letter._replace(is_repeat=True) if is_repeat else letter)
        if has_gone is False:
            self._rests(outgoing)  # its repeats cost nothing

    def _on_acknowledgement(self, sender: NodeId, message: StreamAcknowledgement) -> None:
        outgoing = self._outgoing.get(sender)
        if outgoing is None or message.stream != outgoing.stream:
            return
        if message.unknown:
            self._reset(sender)
            return
        if message.expected > outgoing.confirmed + len(outgoing.copies):
            return  # it confirms what was never sent
        now = self._host.now()
        took = outgoing.answered(message.number, message.held, now)
        if took is not None:
            self._usual += (took - self._usual) // 8
        if message.expected <= outgoing.confirmed:
            is_overtaken = message.number >= outgoing.confirmed + OVERTAKEN
            if is_overtaken and outgoing.copies and outgoing.confirmed >= outgoing.repair_until:
                self._repeat(sender, outgoing)
            return
        outgoing.confirm(message.expected)
        self._congestion.on_confirmed()
        self._in_line.pop(sender, None)  # what is missing now has waited for nothing yet
        outgoing.progress_at = now
        outgoing.is_unreachable = False
        if outgoing.copies:
            self._host.set_timer(("reliable", sender), now + outgoing.wait())
            if outgoing.confirmed < outgoing.repair_until:
                self._repeat_first(sender, outgoing)
        elif not outgoing.letters:
            self._host.cancel_timer(("reliable", sender))
        self._send_ahead(sender, outgoing)
        if not outgoing.copies:
            self._rests(outgoing)
            self._next_in_line()

    def _reset(self, peer: NodeId) -> None:
        self._owner.on_reset(peer, self.abandon(peer))

    def _forget_idle(self) -> None:
        """Room for another peer: the first that has nothing under way, or the first at all."""
        idle = next((peer for peer, outgoing in self._outgoing.items() if not outgoing.letters), None)
        if idle is None:
            idle = next(iter(self._outgoing))
        self.abandon(idle)

    # Receiving.

    def _on_segment(self, sender: NodeId, segment: StreamSegment, hops: int) -> None:
        incoming = self._incoming.get(sender)
        if incoming is None or segment.stream > incoming.stream:
            if segment.confirmed > 0:
                # Its beginning was confirmed by an earlier boot of ours, or we have forgotten the stream.
                self._acknowledge(
                    sender,
                    StreamAcknowledgement(segment.stream, 0, self.boot, segment.number, segment.held, True),
                )
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
        answer = StreamAcknowledgement(
            incoming.stream, incoming.expected, self.boot, segment.number, segment.held
        )
        self._acknowledge(sender, answer, is_hasty=segment.held >= WAITED)
        for body, taken, held in arrived:
            self._owner.on_letter(sender, body, taken, held)

    def _acknowledge(
        self, to: NodeId, acknowledgement: StreamAcknowledgement, *, is_hasty: bool = False
    ) -> None:
        label = Letter(b"", Kind.CONTROL, "acknowledgement", is_hasty=is_hasty)
        self._datagrams.send(to, acknowledgement, label)
