"""Frames in datagrams: joined per turn of the loop, sealed once, and acknowledged where they go to one node.

Broadcasts of one turn share datagrams, control before data. What goes to one neighbour is an *acknowledged
datagram*: its addressee acknowledges it, and it is repeated a few times, because neither Wi-Fi nor an
emulated radio promises delivery. At most one such datagram per neighbour is unacknowledged. Frames that come
meanwhile wait and go together in the next one, so frames stay in order without a window. A repeat is sealed
again (the old seal would be refused as a replay) and keeps its number, by which its addressee recognises it.
Where several paths lead to a neighbour, two attempts without an answer turn to the next one. An
acknowledgement goes back by the path that its datagram came by.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from roamcast.host import Channel, Frame, Kind, SendFailure
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.air import Air
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.peers import PathProbe, Peer, Peers
from roamcast.runtime.live.air.sockets import DATAGRAM_BYTES_MAX
from roamcast.runtime.live.inputs import Inputs
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.settings import AirSettings
from roamcast.runtime.live.world import NodeWorld
from roamcast.sealing import OVERHEAD, Sealer
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId

REPEATS: tuple[Micros, ...] = (30_000, 45_000, 70_000, 100_000, 150_000)
"""How long each attempt waits for its acknowledgement, microseconds; 0.4 s in all. Chosen by us: longer
survives longer disturbances, shorter notices sooner that a neighbour has left."""
ATTEMPTS_PER_PATH = 2  # where there are several
SILENT_ATTEMPTS = 2  # for a neighbour that was given up just now and has not been heard since
BROADCASTS_MAX = 4_096  # frames of one turn; chosen by us, bounds the memory

Failed = Callable[[SendFailure], None]


class OutgoingFrame(NamedTuple):
    """A frame on its way to the air."""

    channel: Channel
    frame: Frame
    on_failure: Failed | None


class RadioParts(NamedTuple):
    """What the parts of one radio share."""

    world: NodeWorld
    settings: AirSettings
    sealer: Sealer
    air: Air
    peers: Peers
    inputs: Inputs
    journal: NodeJournal


class SendOutcomes(Protocol):
    """The radio."""

    def fail(self, outgoing: OutgoingFrame, to: NodeId, reason: SendFailure) -> None:
        """Report the failure of a frame to the layer that sent it."""


class UnicastQueue:
    """What is under way to one neighbour, and what waits for it."""

    __slots__ = ("askers", "attempt", "is_under_way", "number", "repeat", "sent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[OutgoingFrame] = deque()
        self.sent: list[OutgoingFrame] = []
        self.askers: list[Callable[[], object]] = []  # called if this neighbour does not answer
        self.is_under_way = False
        self.number = 0
        self.attempt = 0
        self.repeat: asyncio.TimerHandle | None = None


class Datagrams:
    def __init__(self, parts: RadioParts, outcomes: SendOutcomes) -> None:
        self._loop = parts.world.loop
        self._air = parts.air
        self._sealer = parts.sealer
        self._peers = parts.peers
        self._clock = parts.inputs.clock
        self._journal = parts.journal
        self._outcomes = outcomes
        self._unheard = parts.journal.counters.counter("frames_unheard_total")
        self._number = parts.world.random.getrandbits(32)  # those of an earlier boot are not taken for ours
        self._queue_frames = parts.settings.queue_frames
        self._control: list[OutgoingFrame] = []
        self._data: list[OutgoingFrame] = []
        self._unicasts: dict[NodeId, UnicastQueue] = {}
        self._ready: dict[NodeId, None] = {}  # whose datagram may be sent with the next flush
        self._heard: dict[Endpoint, list[bytes]] = {}  # acknowledgements to send
        self._flush: asyncio.Handle | None = None
        self.broadcast_at: Micros = 0  # when we last sent a broadcast

    def close(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        for unicasts in self._unicasts.values():
            if unicasts.repeat is not None:
                unicasts.repeat.cancel()
        self._unicasts.clear()

    @property
    def is_busy(self) -> bool:
        return bool(self._control or self._data or self._unicasts or self._heard)

    # Inputs from the layers.

    def broadcast(self, channel: Channel, frame: Frame) -> None:
        """To everyone who hears it. Data is not sent while nobody has been heard: nobody would accept it. A
        node accepts frames only after it has exchanged challenges with their sender (`roamcast.sealing`), so
        the sender has heard it before."""
        if frame.kind is not Kind.CONTROL and not self._peers:
            self._unheard.value += 1
            return
        queue = self._control if frame.kind is Kind.CONTROL else self._data
        outgoing = OutgoingFrame(channel, frame, None)
        if len(queue) >= BROADCASTS_MAX:
            self._journal.dropped(frame, None, DropReason.QUEUE_FULL)
        elif not _fits(outgoing):
            self._journal.dropped(frame, None, DropReason.QUEUE_FULL, "larger than a datagram")
        else:
            queue.append(outgoing)
            if self._flush is None:  # `_flush_soon`, without a call for each frame
                self._flush = self._loop.call_soon(self.flush)

    def send(self, to: NodeId, outgoing: OutgoingFrame) -> None:
        unicasts = self._queue(to)
        if len(unicasts.waiting) >= self._queue_frames or not _fits(outgoing):
            self._outcomes.fail(outgoing, to, SendFailure.QUEUE_FULL)
            return
        unicasts.waiting.append(outgoing)
        self._send_soon(to, unicasts)

    def ask(self, to: NodeId, on_silence: Callable[[], object]) -> None:
        """Check whether a neighbour answers: by the datagram that is unacknowledged, else by an empty one."""
        unicasts = self._queue(to)
        unicasts.askers.append(on_silence)
        self._send_soon(to, unicasts)

    def say_hello(self) -> None:
        """Broadcast an empty datagram: this node is here. A node that does not know it sends a challenge."""
        self._air.broadcast_each(lambda: self._sealer.seal(frames.RECORDS, b""))
        self.broadcast_at = self._clock.now

    def probe(self, peer: Peer, endpoint: Endpoint) -> None:
        """Ask for an acknowledgement by a path that may be better than the one in use."""
        peer.probe = PathProbe(endpoint, self._next_number(), self._clock.now)
        asked = frames.asked(peer.number, peer.probe.number)
        self._air.send(self._sealer.seal(frames.RECORDS, asked), endpoint)

    # Inputs from the air.

    def acknowledge(self, to: NodeId, number: int, by: Endpoint) -> None:
        """Send an acknowledgement to a neighbour with this turn's flush."""
        self._heard.setdefault(by, []).append(frames.heard(to, number))
        self._flush_soon()

    def on_heard(self, sender: NodeId, number: int) -> None:
        """A neighbour has acknowledged our datagram."""
        self._peers.on_acknowledged(sender, number, self._clock.now)
        unicasts = self._unicasts.get(sender)
        if unicasts is None or not unicasts.is_under_way or unicasts.number != number:
            return
        unicasts.askers.clear()
        self._end(sender, unicasts)

    # Sending.

    def flush(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._control or self._data:
            self._flush_broadcasts()
        ready, self._ready = self._ready, {}
        for to in ready:
            self._send_unicasts(to)
        owed, self._heard = self._heard, {}
        for by, records in owed.items():
            self._air.send(self._sealer.seal(frames.RECORDS, b"".join(records)), by)

    def _queue(self, to: NodeId) -> UnicastQueue:
        unicasts = self._unicasts.get(to)
        if unicasts is None:
            unicasts = self._unicasts[to] = UnicastQueue()
        return unicasts

    def _send_soon(self, to: NodeId, unicasts: UnicastQueue) -> None:
        if not unicasts.is_under_way:
            self._ready[to] = None
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush is None:
            self._flush = self._loop.call_soon(self.flush)

    def _flush_broadcasts(self) -> None:
        waiting = self._control + self._data
        self._control.clear()
        self._data.clear()
        room = self._air.datagram_bytes - OVERHEAD
        joined: list[bytes] = []
        size = 0
        journal = self._journal
        for outgoing in waiting:
            channel, frame, _ = outgoing
            record = frames.carried(channel, frame.payload)
            if joined and size + len(record) > room:
                self._air.broadcast(self._sealer.seal(frames.RECORDS, b"".join(joined)))
                joined, size = [], 0
            journal.transmitted(channel, frame, None, len(record) + (0 if joined else OVERHEAD), 1)
            joined.append(record)
            size += len(record)
        self._air.broadcast(self._sealer.seal(frames.RECORDS, b"".join(joined)))
        self.broadcast_at = self._clock.now

    def _send_unicasts(self, to: NodeId) -> None:
        """Begin an acknowledged datagram with the waiting frames, as many as fit."""
        unicasts = self._unicasts[to]
        unicasts.is_under_way = True
        room = self._air.datagram_bytes - OVERHEAD - frames.ASKED_OVERHEAD
        while unicasts.waiting:
            size = frames.FRAME_OVERHEAD + len(unicasts.waiting[0].frame.payload)
            if unicasts.sent and size > room:
                break
            unicasts.sent.append(unicasts.waiting.popleft())
            room -= size
        unicasts.number = self._next_number()
        unicasts.attempt = 0
        self._attempt(to)

    def _next_number(self) -> int:
        self._number = (self._number + 1) & frames.NUMBER_MAX
        return self._number

    def _attempt(self, to: NodeId) -> None:
        unicasts = self._unicasts[to]
        unicasts.repeat = None
        peer = self._peers.get(to)
        attempts = len(REPEATS) if peer is None or not peer.is_silent(self._clock.now) else SILENT_ATTEMPTS
        if peer is None or unicasts.attempt >= attempts:
            self._give_up(to, unicasts)
            return
        if unicasts.attempt and unicasts.attempt % ATTEMPTS_PER_PATH == 0:
            self._peers.turn_from(peer, peer.endpoint, self._clock.enter())
        self._write(unicasts, peer)
        wait = REPEATS[unicasts.attempt]
        unicasts.attempt += 1
        unicasts.repeat = self._loop.call_later(wait / SECOND, self._attempt, to)

    def _write(self, unicasts: UnicastQueue, peer: Peer) -> None:
        to = peer.number
        records = self._heard.pop(peer.endpoint, [])  # acknowledgements to the same node share the datagram
        records.append(frames.asked(to, unicasts.number))
        common = OVERHEAD + sum(map(len, records))
        self._clock.enter()
        for channel, frame, _ in unicasts.sent:
            record = frames.carried(channel, frame.payload)
            self._journal.transmitted(channel, frame, to, len(record) + common, unicasts.attempt + 1)
            peer.hearing.sent(len(record) + common)
            common = 0
            records.append(record)
        self._air.send(self._sealer.seal(frames.RECORDS, b"".join(records)), peer.endpoint)

    def _give_up(self, to: NodeId, unicasts: UnicastQueue) -> None:
        peer = self._peers.get(to)
        if peer is not None:
            self._peers.give_up(peer, self._clock.enter())
        failed, askers = list(unicasts.sent), list(unicasts.askers)
        unicasts.askers.clear()
        self._end(to, unicasts)
        for outgoing in failed:
            self._outcomes.fail(outgoing, to, SendFailure.LINK)
        for on_silence in askers:
            on_silence()

    def _end(self, to: NodeId, unicasts: UnicastQueue) -> None:
        """The datagram was acknowledged or given up; the next may be sent."""
        if unicasts.repeat is not None:
            unicasts.repeat.cancel()
            unicasts.repeat = None
        unicasts.sent = []
        unicasts.is_under_way = False
        if unicasts.waiting:
            self._send_soon(to, unicasts)
        else:
            del self._unicasts[to]


def _fits(outgoing: OutgoingFrame) -> bool:
    common = OVERHEAD + frames.ASKED_OVERHEAD + frames.FRAME_OVERHEAD
    return len(outgoing.frame.payload) + common <= DATAGRAM_BYTES_MAX
