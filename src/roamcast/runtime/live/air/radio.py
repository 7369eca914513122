"""One-hop radio of a live node: sealed datagrams and TCP links behind `broadcast` and `unicast`.

Control frames go in datagrams: broadcast on all interfaces, or acknowledged if they are for one neighbour.
Data frames to one neighbour go over a TCP link. A neighbour is reached where its authentic datagrams come
from, by its best path (`peers.py`). Unknown nodes must answer a challenge first (`roamcast.sealing`). A node
that has nothing to send says hello, so that neighbours know each other before there is something to send; one
with several interfaces always does, on each of them.
"""

import asyncio
import random
from collections.abc import Callable, MutableMapping, Sequence

from roamcast.errors import WireError
from roamcast.host import Channel, Frame, Kind, SendFailure
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.air import Air, UsedInterface
from roamcast.runtime.live.air.congestion import CongestionWatch
from roamcast.runtime.live.air.datagrams import Datagrams, OutgoingFrame
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.links import TcpLinks
from roamcast.runtime.live.air.peers import Peer, Peers
from roamcast.runtime.live.air.sockets import InterfaceSockets
from roamcast.runtime.live.air.statements import Statements
from roamcast.runtime.live.inputs import Inputs
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.report.misfits import NodeProfile
from roamcast.runtime.live.settings import AirSettings
from roamcast.sealing import (
    HANDSHAKE,
    OVERHEAD,
    TURN_SECONDS,
    FrameOpener,
    KeyRing,
    Opened,
    Refusal,
    Sealer,
    SealError,
)
from roamcast.sealing.frame import claimed_sender
from roamcast.sealing.statement import Kind as StatementKind
from roamcast.trace import DropReason
from roamcast.units import NodeId, micros

# Chosen by us: acquaintance is made faster, or fewer announcements are sent and fewer of them collide.
ANNOUNCE_SECONDS = 0.02  # an answer waits a random time up to this, so that neighbours do not collide
ANNOUNCE_INTERVAL = 0.1  # seconds between two announcements, at least
BOOT_ANNOUNCEMENTS = 3  # a neighbour that is just starting itself may miss the first
LOOK_SECONDS = 1.0  # between two looks at who is gone

Receiver = Callable[[NodeId, bytes], None]


class Radio:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: AirSettings,
        interfaces: Sequence[str],
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
        self._opener.own_profile = self._own_profile
        self.statements = Statements(sealer.identity, stable, counters)
        self.statements.on_revoked = self._on_revoked
        self.statements.on_pardoned = self._opener.pardon
        for node in self.statements.revoked():
            self._opener.revoke(node)
        self._inputs = inputs
        self._journal = journal
        self._counters = counters
        self._random = random.SystemRandom()
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._announced_at = 0.0
        self._listening: set[asyncio.Task[None]] = set()
        self.receivers: dict[Channel, Receiver] = {}
        self.profile: Callable[[], NodeProfile] | None = None  # what our announcements say
        self.on_acquainted: Callable[[NodeId], None] = lambda node: None
        self.peers = Peers(
            lambda *_: self._on_evicted("peers"),
            lambda: counters.count("addresses_doubted_total"),
            presence=micros(settings.presence),
        )
        self.air = Air(loop, settings, interfaces, counters, self._on_datagram)
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
        self.broadcast = self._datagrams.broadcast
        self.links = TcpLinks(
            loop,
            sealer,
            self._open_piece,
            self.peers,
            inputs,
            journal,
            counters,
            self,
            self._deliver,
            self._datagrams.ask,
            settings,
        )
        self.peers.rank = self.air.rank
        self.peers.on_moved = self._on_moved
        self.air.on_opened = self._on_opened
        self.pressure = CongestionWatch(
            loop, sealer.identity.node, counters, self.air.unread, self._report, self.air.unsent
        )
        self.air.on_closing = self.links.stop_listening
        self.air.on_away = self._on_away
        self.air.on_unreached = self._on_unreached
        counters.family("interface_up", "interface", lambda: self._by_interface(lambda used: used.is_up))
        counters.family(
            "interface_peers",
            "interface",
            lambda: self._by_interface(lambda used: self.reached_by(used.name)),
        )

    async def open(self) -> None:
        """Open the sockets and announce this node."""
        self.air.open()
        await asyncio.gather(*self._listening)
        for number in range(BOOT_ANNOUNCEMENTS):
            self._later(f"boot {number}", number * self._presence / 4, self._announce)
        self._later("presence", self._presence, self._on_presence)
        self._later("turn", TURN_SECONDS, self._on_turn)
        self._later("look", LOOK_SECONDS, self._on_look)
        self.pressure.start()

    async def close(self) -> None:
        self._datagrams.flush()  # the frames of the last turn are still sent
        for handle in self._handles.values():
            handle.cancel()
        for task in list(self._listening):
            task.cancel()
        self.pressure.close()
        self._datagrams.close()
        await self.links.close()
        self.air.close()

    def replace_keys(self, ring: KeyRing) -> None:
        """Seal and accept by other group keys from now on; neighbours stay known."""
        self._sealer.replace_keys(ring)
        self._opener.replace_keys(ring)

    def state(self, kind: StatementKind, subject: str) -> None:
        """Make a statement about membership, and tell everyone who hears it."""
        octets = self.statements.issue(kind, subject)
        if octets is not None:
            self._say([octets], None)

    @property
    def group_key_ids(self) -> list[int]:
        """The first seals."""
        return list(self._sealer.ring.by_id)

    def reached_by(self, interface: str) -> int:
        """How many neighbours that are heard are reached by an interface."""
        return sum(
            record.is_up and record.endpoint.interface == interface
            for record in self._journal.peers.latest_first()
        )

    def _by_interface(self, value: Callable[[UsedInterface], float]) -> list[tuple[str, float]]:
        return [(used.name, value(used)) for used in self.air.used]

    @property
    def is_busy(self) -> bool:
        """Whether a frame is under way: not sent yet, or not acknowledged."""
        return self._datagrams.is_busy or self.links.is_busy

    # Inputs from the layers.

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
            sender, channel, payload = self._open(data, source)
            records = frames.decode(payload) if channel == frames.RECORDS else []
        except SealError:
            return  # counted where it was refused
        except WireError as error:
            self._journal.refused(claimed_sender(data), "records", f"from {source.host}: {error}")
            return
        if not frames.is_for(records, self._sealer.identity.node):
            # For the node that had this address before us, or picked up by an outsider and sent on.
            self._counters.count("frames_refused_total", reason="for_another")
            return
        self._inputs.clock.enter()
        now = self._inputs.clock.now
        peer = self.peers.heard(sender, source, now)
        self._journal.peers.heard(sender, peer.endpoint, len(data), now)
        if source != peer.endpoint and self.peers.is_worth_a_probe(peer, source, now):
            self._datagrams.probe(peer, source)
        if channel == HANDSHAKE:
            self._compare(sender, source.host)
        for record in records:
            match record:
                case frames.Carried(channel=layer, payload=carried):
                    self._deliver(sender, layer, carried)
                case frames.Heard(number=number):
                    self._datagrams.on_heard(sender, number)
                case frames.AcknowledgementRequest(number=number):
                    self._datagrams.acknowledge(sender, number, source)
                    if number in peer.numbers:
                        return  # a repeat: our acknowledgement was lost
                    peer.numbers.append(number)
                case frames.Stated(statement=statement):
                    if self.statements.on_octets(statement):
                        self._say([statement], None)
                case frames.Congestion():
                    self.pressure.on_report(record)
                case _:
                    pass

    def _compare(self, sender: NodeId, address: str) -> None:
        """A peer has announced itself; whether it fits is said to the operator."""
        own, theirs = self.profile, self._opener.profile(sender)
        if own is not None and theirs is not None:
            self._journal.misfits.introduced(own(), sender, address, theirs, self._inputs.clock.now)

    def _deliver(self, sender: NodeId, channel: Channel, payload: bytes) -> None:
        receiver = self.receivers.get(channel)
        if receiver is not None and not self._journal.misfits.is_deaf(sender, channel):
            ways = self._journal.ways
            ways.sender = sender
            self._inputs.handle(receiver, sender, payload)
            ways.sender = None

    def _open_piece(self, data: bytes, source: Endpoint) -> Opened:
        """A piece of a TCP link."""
        opened = self._open(data, source)
        self._journal.peers.received(opened.sender, len(data))
        return opened

    def _open(self, data: bytes, source: Endpoint) -> Opened:
        opener = self._opener
        try:
            opened = opener.open(data)
        except SealError as error:
            self._inputs.clock.enter()
            if error.reason is Refusal.REPLAYED and self._is_heard_twice(claimed_sender(data)):
                self._counters.count("frames_heard_twice_total")
                raise
            if error.reason is Refusal.UNPROVEN:  # of a member, or a recording of one
                self.air.on_authentic(source)
            host = source.host
            self._journal.refused(claimed_sender(data), error.reason.value, f"from {host}: {error}")
            self._journal.misfits.refused(error.reason, host, error.problem, self._inputs.clock.now)
            if opener.announcement_due:
                self._announce_soon()
            raise
        if source.is_ipv6:
            self.air.on_authentic(source)
        if opened.channel == HANDSHAKE and opener.announcement_due:
            self._announce_soon()
        return opened

    def _is_heard_twice(self, sender: NodeId | None) -> bool:
        """A broadcast reaches us by each interface that we and its sender have in common."""
        peer = None if sender is None else self.peers.find(sender)
        return self.air.is_several or (peer is not None and len(peer.paths) > 1)

    def _on_evicted(self, table: str) -> None:
        self._counters.count("table_evictions_total", table=table)

    def _on_proven(self, node: NodeId) -> None:
        """To the layers in a later turn: the frame that proved it is still being opened."""
        self.peers.on_proven(node)
        self._loop.call_soon(self._inputs.handle, self.on_acquainted, node)
        if len(self.statements):
            self._loop.call_soon(self._tell_all, node)

    # Statements about membership.

    def _tell_all(self, node: NodeId | None) -> None:
        """All that stand, to a peer that was just met, or to everyone."""
        peer = None if node is None else self.peers.find(node)
        if node is None or peer is not None:
            self._say(list(self.statements), None if peer is None else peer.endpoint)

    def _say(self, statements: list[bytes], to: Endpoint | None) -> None:
        room = self.air.datagram_bytes - OVERHEAD
        records: list[bytes] = []
        for statement in statements:
            record = frames.stated(statement)
            if records and sum(map(len, records)) + len(record) > room:
                self._send_records(records, to)
                records = []
            records.append(record)
        if records:
            self._send_records(records, to)

    def _send_records(self, records: list[bytes], to: Endpoint | None) -> None:
        sealed = self._sealer.seal(frames.RECORDS, b"".join(records))
        if to is None:
            self.air.broadcast(sealed)
        else:
            self.air.send(sealed, to)

    def _on_revoked(self, node: NodeId) -> None:
        if node == self._sealer.identity.node:
            return  # a thief would not stop; an owner reads it in the status
        self._opener.revoke(node)
        self.peers.forget(node)
        self.links.cut(node)

    def _report(self, report: frames.Congestion) -> None:
        self.air.broadcast(self._sealer.seal(frames.RECORDS, frames.congestion(report)))

    # Announcements.

    def _announce_soon(self) -> None:
        if "announce" in self._handles:
            return
        pause = self._announced_at + ANNOUNCE_INTERVAL - self._loop.time()
        wait = max(pause, self._random.random() * ANNOUNCE_SECONDS)
        self._later("announce", wait, self._announce)

    def _own_profile(self) -> bytes:
        return b"" if self.profile is None else self.profile().encode()

    def _announce(self) -> None:
        self._announced_at = self._loop.time()
        self.air.broadcast(self._opener.announcement())
        if self._opener.announcement_due:
            self._announce_soon()

    def _on_presence(self) -> None:
        self._later("presence", self._presence * (0.75 + self._random.random() / 4), self._on_presence)
        self._inputs.clock.enter()
        is_due = self._inputs.clock.now - self._datagrams.broadcast_at >= micros(self._presence)
        if is_due or self.air.is_several:
            self._datagrams.say_hello()

    def _on_turn(self) -> None:
        self._later("turn", TURN_SECONDS, self._on_turn)
        self._opener.turn()
        self._inputs.clock.enter()
        self.peers.forget_old(self._inputs.clock.now)
        self._tell_all(None)
        self._journal.peers.forget_old(self._inputs.clock.now)

    def _on_look(self) -> None:
        self._later("look", LOOK_SECONDS, self._on_look)
        self._journal.look()

    # The interfaces.

    def _on_opened(self, sockets: InterfaceSockets) -> None:
        task = self._loop.create_task(self.links.listen(sockets))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        if "presence" in self._handles:  # while the node runs; at its start it announces itself anyway
            self._announce_soon()

    def _on_away(self, interface: str, is_ipv6: bool) -> None:
        self._inputs.clock.enter()
        self.peers.on_away(interface, is_ipv6=is_ipv6, now=self._inputs.clock.now)

    def _on_unreached(self, endpoint: Endpoint) -> None:
        for peer in self.peers:
            if peer.endpoint == endpoint:
                self.peers.turn_from(peer, endpoint, self._inputs.clock.now)

    def _on_moved(self, peer: Peer, before: Endpoint, is_lost: bool) -> None:
        self._counters.count("peers_moved_total")
        self._journal.peers.moved(peer.number, peer.endpoint)
        self.links.on_moved(peer, before, is_lost=is_lost)

    def _later(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            self._handles.pop(name, None)
            action()

        self._handles[name] = self._loop.call_later(seconds, act)
