"""Streams: messages in order, each exactly once, to a node several hops away, though envelopes get lost.

The papers assume reliable links; this is where that assumption is made true. Each node numbers the messages
it sends to a peer; the peer hands them up in order and says which it expects next. What is not acknowledged
is sent again, more and more rarely, for as long as the owner wants: a peer that was behind a partition for a
minute gets everything.

A message is one frame, whatever its size, and the radio may need seconds for it. So only so many octets are
sent ahead (the rest would stand in the radio's queue, before everybody else's), the retransmission timeout
depends on the size (`RoundTrips`), and an acknowledgement says which copy of which message it answers. That
makes each answer a measurement, of a repeated message too (as timestamps do, RFC 7323), and shows when a
repeat was not needed (Eifel, RFC 3522). It also says which later messages have arrived (RFC 2018). A message
counts as lost when its timeout is over, when three later ones have arrived (RFC 5681, 3.2), or when a copy
has arrived that was sent a while after its own (RACK, RFC 8985). After a silence a copy of the first message
asks whether the peer is there, and its answer brings all the others at once.

A stream belongs to one boot of its sender and one of its receiver; every envelope tells the boot of who
sent it, and boot counts are stable. When a peer turns out to have restarted, the owner hears of it once
(`on_reset`) and gets back what nobody has confirmed: it may or may not have arrived, and only the owner can
tell what that means. A peer that gave a stream up (`abandon`) begins a new one without telling.

What a node writes to itself takes no radio, but it is handled after the current input, like what others
write: no part ever calls itself while it is still at work.
"""

from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from roamcast.event import EventId
from roamcast.host import Host
from roamcast.kit.confirm import RoundTrip
from roamcast.kit.numbers import count_boot
from roamcast.kit.protocol import Timer, Timers, overflow_traced, trace_drop
from roamcast.kit.rates import Aimd
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.messages import (
    MESSAGE_OCTETS_MAX,
    EventMessage,
    StreamAcknowledgement,
    StreamMessage,
    StreamSegment,
    octets,
)
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

BOOTS = "opportunistic-boots"  # key in stable storage
STREAMS_PER_BOOT = 1 << 32
WINDOW = 32  # messages sent ahead of their acknowledgement
WINDOW_OCTETS = 2 * MESSAGE_OCTETS_MAX  # likewise: one message leaves while another is farther on its way
QUEUE_MAX = 10_000  # messages that wait for one peer
OVERTAKEN = 3  # later messages that arrive first and mean a loss; fewer are disorder
REORDERING = 4  # likewise one that was sent so many parts of a round trip later
REPEATED_AT_ONCE = 16  # messages, in answer to one acknowledgement; the next one brings more
PEERS_MAX = 4_096
UNREACHABLE_AFTER: Micros = SECOND

FIRST_WAIT: Micros = 300 * MILLISECOND  # before anything has been measured, for the smallest message
FIRST_WAIT_PER_OCTET: Micros = 80  # 100 kbit/s from end to end
SHORTEST_WAIT: Micros = 50 * MILLISECOND
LONGEST_WAIT: Micros = 4 * SECOND  # repeats back off up to here, unless one round trip is longer
BACKOFFS_MAX = 16

# What is acknowledged without waiting for others to share a frame with: a repair or a window may wait for it.
REPEATED_AFTER: Micros = 50 * MILLISECOND  # a copy that left so late is a repeat, or stood behind one
HALF_A_WINDOW = WINDOW // 2
LARGE = 1_200  # octets: beside such a message its acknowledgement costs nothing

# How many peers may be sent something again at the same time, where the medium is shared. Each stream knows
# how long its own way takes. But a node that has something to say to each of forty peers, and repeats each of
# them now and then, fills the air although no single stream does anything wrong; and then nothing gets
# through, and everything is repeated. First copies do not wait for their turn.
REPEATS_FIRST = 4.0
REPEATS_LEAST = 1.0
CUT_EVERY: Micros = 500 * MILLISECOND


class StreamDatagrams(Protocol):
    """What carries segments: it may lose, repeat and reorder them."""

    def send(
        self, to: NodeId, content: StreamSegment | StreamAcknowledgement, *, is_repeat: bool = False
    ) -> bool:
        """False if there is no way to the peer now."""

    def has_route(self, to: NodeId) -> bool: ...


class StreamOwner(Protocol):
    def on_message(self, sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None:
        """The next message of a peer, the radio hops that this copy took, and how long it had waited."""

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None:
        """The peer has restarted, or forgotten us: what we sent and it did not confirm comes back."""

    def on_unreachable(self, peer: NodeId) -> None:
        """Nothing has been confirmed for `UNREACHABLE_AFTER`. The stream goes on trying."""


class QueuedMessage(NamedTuple):
    message: Any  # a `StreamMessage`; the types of a segment's message are listed for the codec
    octets: int
    written_at: Micros


class LastSending(NamedTuple):
    """The last copy of a message that is on its way."""

    sent_at: Micros
    is_alone: bool  # nothing of the stream was on its way before it
    is_repeat: bool = False
    has_arrived: bool = False  # before its turn


class OutgoingStream:
    def __init__(self, stream: int, first_wait: Micros, now: Micros) -> None:
        self.stream = stream
        self.confirmed = 0  # number of the first message that is not confirmed
        self.messages: deque[QueuedMessage] = deque()  # from `confirmed` on
        self.copies: deque[LastSending] = deque()  # of those that have been sent: the first ones
        self.octets = 0  # of those that have not arrived
        self.round_trips = RoundTrips(first_wait)
        self.progress_at = now
        self.is_unreachable = False
        self.is_repeating = False  # it counts among the streams with a repeat on its way
        self.latest: Micros = 0  # when the youngest copy left that is known to have arrived

    def may_send(self) -> bool:
        sent = len(self.copies)
        if sent >= min(len(self.messages), WINDOW):
            return False
        return not sent or self.octets + self.messages[sent].octets <= WINDOW_OCTETS

    def wait(self) -> Micros:
        return self.round_trips.wait(self.messages[0].octets)

    def answered(self, number: int, held: Micros, now: Micros) -> Micros | None:
        """The peer has got the copy of a message that left when it had been held for so long; how long that
        took, if it is news."""
        place = number - self.confirmed
        if not 0 <= place < len(self.copies):
            return None  # known already
        written, copy = self.messages[place], self.copies[place]
        sent_at = written.written_at + held
        if sent_at > now:
            return None  # never sent
        since = sent_at if copy.is_alone else max(sent_at, self.progress_at)
        self.round_trips.measure(written.octets, now - since, is_alone=copy.is_alone)
        self.latest = max(self.latest, sent_at)
        return now - sent_at

    def confirm(self, expected: int, early: int) -> None:
        """All messages before `expected` have arrived; `early` has a bit for each later one that has, too."""
        while self.confirmed < expected:
            self._arrive(0)
            self.messages.popleft()
            self.copies.popleft()
            self.confirmed += 1
        for place in range(1, len(self.copies) if expected == self.confirmed else 0):
            if early >> (place - 1) & 1:
                self._arrive(place)

    def lost(self, now: Micros) -> list[int]:
        """The places of those that are not on their way any more, as far as is known. A large one may be
        overtaken by small ones, so each has its own time."""
        lost: list[int] = []
        disorder = (self.round_trips.shortest() or FIRST_WAIT) // REORDERING
        later = 0
        for place in range(len(self.copies) - 1, -1, -1):
            sent_at, _, is_repeat, has_arrived = self.copies[place]
            if has_arrived:
                later += 1
            elif (later >= OVERTAKEN and not is_repeat) or (
                sent_at + disorder <= self.latest
                and sent_at + self.round_trips.wait(self.messages[place].octets) <= now
            ):
                lost.append(place)
        return lost[::-1]

    def _arrive(self, place: int) -> None:
        copy = self.copies[place]
        if not copy.has_arrived:
            self.octets -= self.messages[place].octets
            self.copies[place] = copy._replace(has_arrived=True)


class IncomingStream:
    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.expected = 0
        # Arrived before their turn, a window's: each with its hops and when it was written, by our clock.
        self.early: dict[int, tuple[StreamMessage, int, Micros]] = {}


class PeerStreams:
    """The streams of one node, to and from all others."""

    def __init__(self, host: Host, datagrams: StreamDatagrams, owner: StreamOwner) -> None:
        self._host = host
        self._datagrams = datagrams
        self._owner = owner
        self.boot = count_boot(host.stable, BOOTS)
        self._next_stream = self.boot * STREAMS_PER_BOOT
        self._boots: BoundedDict[NodeId, int] = BoundedDict(PEERS_MAX, unreported)  # as last heard
        self._outgoing: dict[NodeId, OutgoingStream] = {}
        self._incoming: BoundedDict[NodeId, IncomingStream] = BoundedDict(
            PEERS_MAX, overflow_traced(host, "message", "peers")
        )
        self._timeouts = Timers(host, self._on_timeout)
        self._limit = Aimd(first=REPEATS_FIRST, least=REPEATS_LEAST, most=PEERS_MAX, cut_every=CUT_EVERY)
        self._repeating = 0  # streams
        self._in_line: dict[NodeId, None] = {}  # peers whose turn to be sent a repeat has not come
        self._usual: Micros = 0  # round trip, of all streams lately
        self._cut_off: dict[NodeId, None] = {}  # peers that no route led to when we last tried
        self._to_self: deque[StreamMessage] = deque()
        self._to_self_timer = Timer(host, self._read_own)

    # Inputs from the owner.

    def write(self, to: NodeId, message: StreamMessage) -> bool:
        """False if too much waits for `to` already, or something for each of `PEERS_MAX` others."""
        now = self._host.now()
        if to == self._host.node:
            self._to_self.append(message)
            self._to_self_timer.at(now)
            return True
        size = octets(message)
        if size > MESSAGE_OCTETS_MAX:
            # Each caller bounds what it writes. This limit is for the case that all those bounds together are
            # too much.
            self.drop(DropReason.WIRE, message.name, message.event_id, to)
            return False
        outgoing = self._outgoing.get(to)
        if outgoing is None:
            if len(self._outgoing) >= PEERS_MAX and not self._forget_idle():
                self.drop(DropReason.QUEUE_FULL, message.name, message.event_id, to)
                return False
            self._next_stream += 1
            first_wait = max(FIRST_WAIT, 3 * self._usual)
            outgoing = self._outgoing[to] = OutgoingStream(self._next_stream, first_wait, now)
        if len(outgoing.messages) >= QUEUE_MAX:
            self.drop(DropReason.QUEUE_FULL, message.name, message.event_id, to)
            return False
        if not outgoing.messages:
            outgoing.progress_at = now
        outgoing.messages.append(QueuedMessage(message, size, now))
        self._send_ahead(to, outgoing)
        return True

    def abandon(self, peer: NodeId) -> list[StreamMessage]:
        """Give up what `peer` has not confirmed; it comes back, and may have arrived all the same. A later
        message begins a new stream."""
        unconfirmed = self.unconfirmed(peer)
        outgoing = self._outgoing.pop(peer, None)
        self._timeouts.cancel(peer)
        self._in_line.pop(peer, None)
        if outgoing is not None:
            self._rests(outgoing)
        return unconfirmed

    def take_back(self, peer: NodeId, kinds: tuple[type[StreamMessage], ...]) -> list[StreamMessage]:
        """The same for messages of these kinds; others that wait for `peer` are written again. A node may be
        a broker and a client, and what is over for the one is not for the other."""
        taken: list[StreamMessage] = []
        for message in self.abandon(peer):
            if isinstance(message, kinds):
                taken.append(message)
            else:
                self.write(peer, message)
        return taken

    def try_now(self, peer: NodeId) -> None:
        """The way to a peer may have opened."""
        outgoing = self._outgoing.get(peer)
        if outgoing is not None and outgoing.messages:
            outgoing.round_trips.rest()
            self._go(peer, outgoing)

    def on_routes_changed(self) -> None:
        """Whoever can be reached again is tried at once."""
        for peer in [peer for peer in self._cut_off if self._datagrams.has_route(peer)]:
            del self._cut_off[peer]
            self.try_now(peer)

    def drop(self, reason: DropReason, message: str, event: EventId | None, to: NodeId | None = None) -> None:
        trace_drop(self._host, reason, message, event, to=to)

    # Questions.

    def unconfirmed(self, peer: NodeId) -> list[StreamMessage]:
        """What waits for `peer`, in order: as written, with events aged by the time they have waited."""
        outgoing, now = self._outgoing.get(peer), self._host.now()
        waiting = () if outgoing is None else outgoing.messages
        return [
            message.aged(now - written_at) if isinstance(message, EventMessage) else message
            for message, _, written_at in waiting
        ]

    def waiting(self, peer: NodeId) -> int:
        outgoing = self._outgoing.get(peer)
        return 0 if outgoing is None else len(outgoing.messages)

    def silence(self, peer: NodeId) -> Micros:
        """For how long a peer has owed us a confirmation."""
        outgoing = self._outgoing.get(peer)
        return self._host.now() - outgoing.progress_at if outgoing is not None and outgoing.messages else 0

    def round_trips(self, peer: NodeId) -> "RoundTrips | None":
        """The round trips as measured on the stream to a peer."""
        outgoing = self._outgoing.get(peer)
        return None if outgoing is None else outgoing.round_trips

    def octets(self) -> int:
        """The octets of all messages that wait for a confirmation."""
        return sum(message.octets for outgoing in self._outgoing.values() for message in outgoing.messages)

    def is_idle(self) -> bool:
        """Whether no message waits."""
        return not self._to_self and not any(outgoing.messages for outgoing in self._outgoing.values())

    # Inputs from the radio and the clock.

    def on_content(self, sender: NodeId, content: StreamSegment | StreamAcknowledgement, hops: int) -> None:
        boot = content.stream // STREAMS_PER_BOOT if isinstance(content, StreamSegment) else content.boot
        known = self._boots.setdefault(sender, boot)
        if boot < known:
            return  # from before a restart
        if boot > known:
            self._boots[sender] = boot
            self._incoming.pop(sender, None)
            self._reset(sender)
        if isinstance(content, StreamSegment):
            self._on_segment(sender, content, hops)
        else:
            self._on_acknowledgement(sender, content)

    def _on_timeout(self, peer: NodeId) -> None:
        outgoing, now = self._outgoing.get(peer), self._host.now()
        if outgoing is None or not outgoing.messages:
            return
        outgoing.round_trips.back_off()
        self._limit.on_loss(now)
        self._rests(outgoing)
        self._in_line[peer] = None  # behind all others
        self._next_in_line()
        if now - outgoing.progress_at >= UNREACHABLE_AFTER and not outgoing.is_unreachable:
            outgoing.is_unreachable = True
            self._owner.on_unreachable(peer)

    def _read_own(self) -> None:
        for _ in range(len(self._to_self)):
            self._owner.on_message(self._host.node, self._to_self.popleft(), 0, 0)

    # Whose turn it is to be sent a repeat.

    def _rests(self, outgoing: OutgoingStream) -> None:
        """The peer owes us no confirmation any more, or we do not wait for one."""
        if outgoing.is_repeating:
            outgoing.is_repeating = False
            self._repeating -= 1

    def _next_in_line(self) -> None:
        while self._in_line and self._repeating < self._limit.limit:
            peer = next(iter(self._in_line))
            outgoing = self._outgoing[peer]
            if not outgoing.is_repeating:
                outgoing.is_repeating = True
                self._repeating += 1
            self._go(peer, outgoing)

    def _go(self, peer: NodeId, outgoing: OutgoingStream) -> None:
        self._in_line.pop(peer, None)
        self._repeat(peer, outgoing)

    # Sending.

    def _send_ahead(self, to: NodeId, outgoing: OutgoingStream) -> None:
        was_idle = not outgoing.copies
        while outgoing.may_send():
            place = len(outgoing.copies)
            outgoing.octets += outgoing.messages[place].octets
            outgoing.copies.append(LastSending(self._host.now(), is_alone=not place))
            self._transmit(to, outgoing, place)
        if was_idle and outgoing.copies:
            self._timeouts.after(to, outgoing.wait())

    def _repeat(self, to: NodeId, outgoing: OutgoingStream) -> None:
        """Only the first: it shows whether the peer is there, and its answer brings the rest."""
        self._repeat_one(to, outgoing, 0)
        self._timeouts.after(to, outgoing.wait())

    def _repeat_one(self, to: NodeId, outgoing: OutgoingStream, place: int) -> None:
        copy = outgoing.copies[place]
        outgoing.copies[place] = copy._replace(sent_at=self._host.now(), is_repeat=True)
        self._transmit(to, outgoing, place, is_repeat=True)

    def _transmit(self, to: NodeId, outgoing: OutgoingStream, place: int, *, is_repeat: bool = False) -> None:
        written = outgoing.messages[place]
        number, held = outgoing.confirmed + place, self._host.now() - written.written_at
        segment = StreamSegment(outgoing.stream, number, outgoing.confirmed, held, written.message)
        if self._datagrams.send(to, segment, is_repeat=is_repeat):
            self._cut_off.pop(to, None)
        else:
            self._cut_off[to] = None
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
        has_moved = message.expected > outgoing.confirmed
        if message.expected >= outgoing.confirmed:
            outgoing.confirm(message.expected, message.early)
        for place in outgoing.lost(now)[:REPEATED_AT_ONCE]:
            self._repeat_one(sender, outgoing, place)
        if not has_moved:
            return
        self._limit.on_success()
        self._in_line.pop(sender, None)  # what is missing now has waited for nothing yet
        outgoing.progress_at = now
        outgoing.is_unreachable = False
        if outgoing.copies:
            self._timeouts.after(sender, outgoing.wait())
        elif not outgoing.messages:
            self._timeouts.cancel(sender)
        self._send_ahead(sender, outgoing)
        if not outgoing.copies:
            self._rests(outgoing)
            self._next_in_line()

    def _reset(self, peer: NodeId) -> None:
        self._owner.on_reset(peer, self.abandon(peer))

    def _forget_idle(self) -> bool:
        """Room for another peer: the first that nothing waits for, if there is one."""
        idle = next((peer for peer, outgoing in self._outgoing.items() if not outgoing.messages), None)
        if idle is not None:
            self.abandon(idle)
        return idle is not None

    # Receiving.

    def _on_segment(self, sender: NodeId, segment: StreamSegment, hops: int) -> None:
        incoming, now = self._incoming.get(sender), self._host.now()
        if incoming is None or segment.stream > incoming.stream:
            if segment.confirmed > 0:
                # Its beginning was confirmed by an earlier boot of ours, or we have forgotten the stream.
                self._acknowledge(sender, segment, 0, unknown=True)
                return
            incoming = self._incoming[sender] = IncomingStream(segment.stream)
        elif segment.stream < incoming.stream:
            return  # given up by its sender
        if incoming.expected <= segment.number < incoming.expected + WINDOW:
            incoming.early.setdefault(segment.number, (segment.message, hops, now - segment.held))
        arrived: list[tuple[StreamMessage, int, Micros]] = []
        while incoming.expected in incoming.early:
            arrived.append(incoming.early.pop(incoming.expected))
            incoming.expected += 1
        self._acknowledge(sender, segment, incoming.expected, incoming.early)
        for message, taken, written_at in arrived:
            self._owner.on_message(sender, message, taken, now - written_at)

    def _acknowledge(
        self,
        to: NodeId,
        segment: StreamSegment,
        expected: int,
        early: Collection[int] = (),
        *,
        unknown: bool = False,
    ) -> None:
        number, held = segment.number, segment.held
        is_prompt = (
            bool(early)
            or held >= REPEATED_AFTER
            or number - segment.confirmed >= HALF_A_WINDOW
            or octets(segment.message) > LARGE
        )
        bits = sum(1 << (one - expected - 1) for one in early)
        self._datagrams.send(
            to,
            StreamAcknowledgement(
                segment.stream, expected, self.boot, number, held, unknown, bits, is_prompt
            ),
        )


class RoundTrips:
    """How long to wait for a confirmation before a message counts as lost, in one stream (RFC 6298, by size).

    A message travels whole, in one frame: one of 40,000 octets takes a thousand times as long as one of 40. A
    single estimate would follow the small ones and send every large one twice. So there is one for each class
    of sizes. A class is so narrow (a factor of the square root of two) that the half which a wait adds to the
    estimate covers it: on a link without loss or other traffic no wait is ever too short, once measured. A
    class without a measurement waits as on the slowest way that anyone may expect.

    A wait runs from the moment when a message became the first that is missing. One sent right behind another
    takes less than its round trip from there, so it says something only if it took longer than was thought.
    """

    def __init__(self, first_wait: Micros = FIRST_WAIT) -> None:
        self._first_wait = first_wait
        self._estimates: dict[int, RoundTrip] = {}  # by size class
        self._backoffs = 0

    def measure(self, octets: int, took: Micros, *, is_alone: bool) -> None:
        """A copy of so many octets was answered; `is_alone`: nothing of its stream was on its way then."""
        self._backoffs = 0
        size = _class_of(octets)
        known = self._estimates.get(size)
        if known is None:
            if is_alone:
                self._estimates[size] = RoundTrip.first(took)
        elif is_alone or took > known.smoothed:
            self._estimates[size] = known.then(took)

    def back_off(self) -> None:
        """A wait was in vain: the next is twice as long, until a copy has been measured (RFC 6298, 5.7)."""
        self._backoffs = min(self._backoffs + 1, BACKOFFS_MAX)

    def rest(self) -> None:
        """The way may have opened: wait as if nothing had been lost."""
        self._backoffs = 0

    def shortest(self) -> Micros | None:
        """Of the smallest messages measured: what the way takes, whatever it carries."""
        return self._estimates[min(self._estimates)].smoothed if self._estimates else None

    def bandwidth(self) -> int | None:
        """Octets per second that the largest messages measured had on their way; what confirms them takes
        half of the shortest round trip."""
        shortest = self.shortest()
        if shortest is None:
            return None
        size = max(self._estimates)
        took = self._estimates[size].smoothed - shortest // 2
        return round(2 ** ((size - 1) / 2) * SECOND / max(took, 1))

    def wait(self, octets: int) -> Micros:
        size = _class_of(octets)
        # What is larger takes no less time: smaller ones that now take longer show a longer way.
        waits = [_wait(round_trip) for known, round_trip in self._estimates.items() if known <= size]
        if size not in self._estimates:
            waits.append(self._first_wait + FIRST_WAIT_PER_OCTET * octets)
        longest = max(waits)
        return min(longest << self._backoffs, max(LONGEST_WAIT, longest))


def _class_of(octets: int) -> int:
    return (octets * octets).bit_length()


def _wait(round_trip: RoundTrip) -> Micros:
    # On a steady link the variation shrinks to nothing; a half more is for the queue that comes one day.
    return max(round_trip.bound, round_trip.smoothed * 3 // 2, SHORTEST_WAIT)
