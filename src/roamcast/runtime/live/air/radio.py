"""One-hop radio of a live node: sealed datagrams and TCP links behind `broadcast` and `unicast`.

Control frames go in datagrams: broadcast, or acknowledged if they are for one neighbour. Data frames to one
neighbour go over a TCP link. A neighbour's address is the source of its last authentic datagram. Unknown
nodes must answer a challenge first (`roamcast.sealing`). A node that has nothing to send announces itself, so
that neighbours know each other before there is something to send.
"""

import asyncio
import logging
import random
from collections.abc import Callable, MutableMapping

from roamcast.errors import WireError
from roamcast.host import Channel, Frame, Kind, SendFailure
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.congestion import CongestionWatch
from roamcast.runtime.live.air.datagrams import Datagrams, OutgoingFrame
from roamcast.runtime.live.air.interface import Interface
from roamcast.runtime.live.air.links import TcpLinks
from roamcast.runtime.live.air.peers import Peers
from roamcast.runtime.live.air.sockets import Air, Endpoint
from roamcast.runtime.live.port.inputs import Inputs
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.settings import AirSettings
from roamcast.sealing import HANDSHAKE, TURN_SECONDS, FrameOpener, KeyRing, Opened, Refusal, Sealer, SealError
from roamcast.sealing.frame import claimed_sender
from roamcast.trace import DropReason
from roamcast.units import NodeId, micros

logger = logging.getLogger("roamcast.radio")

# Chosen by us: acquaintance is made faster, or fewer announcements are sent and fewer of them collide.
ANNOUNCE_SECONDS = 0.02  # an answer waits a random time up to this, so that neighbours do not collide
ANNOUNCE_INTERVAL = 0.1  # seconds between two announcements, at least
BOOT_ANNOUNCEMENTS = 3  # a neighbour that is just starting itself may miss the first
LOGGED_EVERY = 10.0  # seconds between two lines about the same kind of refusal

Receiver = Callable[[NodeId, bytes], None]


class Radio:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: AirSettings,
        interface: Interface,
        sealer: Sealer,
        stable: MutableMapping[str, bytes],
        inputs: Inputs,
        journal: NodeJournal,
        counters: Counters,
    ) -> None:
        self._loop = loop
        self._presence = settings.presence
        self._sealer = sealer
        self._opener = FrameOpener(sealer, stable)
        self._opener.on_proven = self._on_proven
        self._opener.on_evicted = self._on_evicted
        self._inputs = inputs
        self._journal = journal
        self._counters = counters
        self._random = random.SystemRandom()
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._announced_at = 0.0
        self._logged_at: dict[Refusal, float] = {}
        self._listening: asyncio.Task[None] | None = None
        self.receivers: dict[Channel, Receiver] = {}
        self.on_acquainted: Callable[[NodeId], None] = lambda node: None
        self.peers = Peers(
            lambda *_: self._on_evicted("peers"), lambda: counters.count("addresses_doubted_total")
        )
        self.air = Air(loop, settings, interface, counters, self._on_datagram)
        first_number = self._random.getrandbits(32)
        self._datagrams = Datagrams(
            loop,
            self.air,
            sealer,
            self.peers,
            inputs,
            journal,
            counters,
            self,
            first_number,
            settings.queue_frames,
        )
        self.links = TcpLinks(
            loop,
            self.air,
            sealer,
            self._open,
            self.peers,
            inputs,
            journal,
            counters,
            self,
            self._deliver,
            self._datagrams.ask,
            settings,
        )
        self.pressure = CongestionWatch(loop, sealer.identity.node, counters, self.air.unread, self._report)
        self.air.on_closing = self.links.stop_listening
        self.air.on_reopened = self._on_reopened

    async def open(self) -> None:
        """Open the sockets and announce this node."""
        self.air.open()
        await self.links.listen()
        for number in range(BOOT_ANNOUNCEMENTS):
            self._later(f"boot {number}", number * self._presence / 4, self._announce)
        self._later("presence", self._presence, self._on_presence)
        self._later("turn", TURN_SECONDS, self._on_turn)
        self.pressure.start()

    async def close(self) -> None:
        self._datagrams.flush()  # the frames of the last turn are still sent
        for handle in self._handles.values():
            handle.cancel()
        if self._listening is not None:
            self._listening.cancel()
        self.pressure.close()
        self._datagrams.close()
        await self.links.close()
        self.air.close()

    def replace_keys(self, ring: KeyRing) -> None:
        """Seal and accept by other group keys from now on; neighbours stay known."""
        self._sealer.replace_keys(ring)
        self._opener.replace_keys(ring)

    @property
    def is_busy(self) -> bool:
        """Whether a frame is under way: not sent yet, or not acknowledged."""
        return self._datagrams.is_busy or self.links.is_busy

    # Inputs from the layers.

    def broadcast(self, channel: Channel, frame: Frame) -> None:
        self._datagrams.broadcast(OutgoingFrame(channel, frame, None))

    def unicast(
        self, channel: Channel, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None
    ) -> None:
        outgoing = OutgoingFrame(channel, frame, on_failure)
        peer = self.peers.find(to)
        if peer is None:
            self._journal.dropped(frame, to, DropReason.NOT_IN_RANGE)
            self._tell(outgoing, SendFailure.LINK)
        elif frame.kind is Kind.CONTROL:
            self._datagrams.send(to, outgoing)
        else:
            self.links.send(peer, outgoing)

    def fail(self, outgoing: OutgoingFrame, to: NodeId, reason: SendFailure) -> None:
        dropped = DropReason.QUEUE_FULL if reason is SendFailure.QUEUE_FULL else DropReason.RETRIES
        self._journal.dropped(outgoing.frame, to, dropped)
        self._tell(outgoing, reason)

    def _tell(self, outgoing: OutgoingFrame, reason: SendFailure) -> None:
        """In a later turn: the layer that sent the frame may still be running."""
        if outgoing.on_failure is not None:
            self._loop.call_soon(self._inputs.handle, outgoing.on_failure, reason)

    # Inputs from the air.

    def _on_datagram(self, data: bytes, source: Endpoint) -> None:
        try:
            sender, channel, payload = self._open(data)
            records = frames.decode(payload) if channel == frames.RECORDS else []
        except SealError:
            return  # counted where it was refused
        except WireError as error:
            self._counters.count("frames_refused_total", reason="records")
            logger.debug("from %s: %s", source[0], error)
            return
        if not frames.is_for(records, self._sealer.identity.node):
            # For the node that had this address before us, or picked up by an outsider and sent on.
            self._counters.count("frames_refused_total", reason="for_another")
            return
        self._inputs.clock.enter()
        peer = self.peers.heard(sender, source, self._inputs.clock.now)
        for record in records:
            match record:
                case frames.Carried(channel=layer, payload=carried):
                    self._deliver(sender, layer, carried)
                case frames.Heard(number=number):
                    self._datagrams.on_heard(sender, number)
                case frames.AcknowledgementRequest(number=number):
                    self._datagrams.acknowledge(sender, number)
                    if number in peer.numbers:
                        return  # a repeat: our acknowledgement was lost
                    peer.numbers.append(number)
                case frames.Congestion():
                    self.pressure.on_report(record)
                case _:
                    pass

    def _deliver(self, sender: NodeId, channel: Channel, payload: bytes) -> None:
        receiver = self.receivers.get(channel)
        if receiver is not None:
            self._inputs.handle(receiver, sender, payload)

    def _open(self, data: bytes) -> Opened:
        opener = self._opener
        try:
            opened = opener.open(data)
        except SealError as error:
            self._on_refused(error, data)
            if opener.announcement_due:
                self._announce_soon()
            raise
        if opened.channel == HANDSHAKE and opener.announcement_due:
            self._announce_soon()
        return opened

    def _on_evicted(self, table: str) -> None:
        self._counters.count("table_evictions_total", table=table)

    def _on_proven(self, node: NodeId) -> None:
        """To the layers in a later turn: the frame that proved it is still being opened."""
        self.peers.on_proven(node)
        self._loop.call_soon(self._inputs.handle, self.on_acquainted, node)

    def _on_refused(self, error: SealError, data: bytes) -> None:
        reason = error.reason
        self._counters.count("frames_refused_total", reason=reason.value.replace(" ", "_"))
        if self._journal.is_traced and reason is not Refusal.OWN:
            self._inputs.clock.enter()
            self._journal.refused(claimed_sender(data), reason.value)
        if reason in (Refusal.UNPROVEN, Refusal.OWN):
            return  # normal: the first frames of a new neighbour are refused so
        now = self._loop.time()
        if now - self._logged_at.get(reason, -LOGGED_EVERY) >= LOGGED_EVERY:
            self._logged_at[reason] = now
            level = logging.ERROR if reason in (Refusal.CLASH, Refusal.IDENTITY) else logging.INFO
            logger.log(level, "refused: %s", error)

    def _report(self, report: frames.Congestion) -> None:
        self.air.broadcast(self._sealer.seal(frames.RECORDS, frames.congestion(report)))

    # Announcements.

    def _announce_soon(self) -> None:
        if "announce" in self._handles:
            return
        pause = self._announced_at + ANNOUNCE_INTERVAL - self._loop.time()
        wait = max(pause, self._random.random() * ANNOUNCE_SECONDS)
        self._later("announce", wait, self._announce)

    def _announce(self) -> None:
        self._announced_at = self._loop.time()
        self.air.broadcast(self._opener.announcement())
        if self._opener.announcement_due:
            self._announce_soon()

    def _on_presence(self) -> None:
        self._later("presence", self._presence * (0.75 + self._random.random() / 4), self._on_presence)
        self._inputs.clock.enter()
        if self._inputs.clock.now - self._datagrams.broadcast_at >= micros(self._presence):
            self._datagrams.say_hello()

    def _on_turn(self) -> None:
        self._later("turn", TURN_SECONDS, self._on_turn)
        self._opener.turn()
        self._inputs.clock.enter()
        self.peers.forget_old(self._inputs.clock.now)

    def _on_reopened(self) -> None:
        self._listening = self._loop.create_task(self.links.listen())
        self._announce_soon()

    def _later(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            self._handles.pop(name, None)
            action()

        self._handles[name] = self._loop.call_later(seconds, act)
