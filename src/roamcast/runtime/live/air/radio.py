"""One-hop radio of a live node: sealed datagrams and TCP links behind `broadcast` and `unicast`.

Control frames go in datagrams: broadcast on all interfaces, or acknowledged if they are for one neighbour.
Data frames to one neighbour go over a TCP link. A neighbour is reached where its authentic datagrams come
from, by its best path (`peers.py`). Unknown nodes must answer a challenge first (`roamcast.sealing`). A node
that has nothing to send says hello, so that neighbours know each other before there is something to send; one
with several interfaces always does, on each of them.
"""

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Protocol

from roamcast.errors import InputError, WireError
from roamcast.host import Channel, Frame, Kind, SendFailure
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.air import Air
from roamcast.runtime.live.air.congestion import CongestionWatch
from roamcast.runtime.live.air.datagrams import Datagrams, OutgoingFrame, RadioParts
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.links import TcpLinks
from roamcast.runtime.live.air.peers import Peer, Peers
from roamcast.runtime.live.air.sockets import InterfaceSockets
from roamcast.runtime.live.air.statements import NAMES_REPEATED, NAMES_TOLD, Statements
from roamcast.runtime.live.inputs import Inputs
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.report.misfits import NodeProfile
from roamcast.runtime.live.settings import AirSettings
from roamcast.runtime.live.world import NodeWorld
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
from roamcast.units import SECOND, Micros, NodeId, micros

# Chosen by us: acquaintance is made faster, or fewer announcements are sent and fewer of them collide.
ANNOUNCE_SECONDS = 0.02  # an answer waits a random time up to this, so that neighbours do not collide
ANNOUNCE_INTERVAL = 0.1  # seconds between two announcements, at least
BOOT_ANNOUNCEMENTS = 3  # a neighbour that is just starting itself may miss the first
CLOCK_STEP: Micros = 30 * SECOND  # a clock that was set meanwhile
TELL_AGAIN_SECONDS = 1.0  # after a peer has proven itself; chosen, anything above a handshake works
LOOK_SECONDS = 1.0  # between two looks at who is gone

Receiver = Callable[[NodeId, bytes], None]


class RadioOwner(Protocol):
    """The node."""

    def profile(self) -> NodeProfile:
        """What our announcements say of us."""

    def on_acquainted(self, node: NodeId) -> None:
        """A node has proven itself: its frames are accepted from now on."""


class LiveRadio:
    def __init__(
        self,
        world: NodeWorld,
        settings: AirSettings,
        interfaces: Sequence[str],
        sealer: Sealer,
        stable: MutableMapping[str, bytes],
        inputs: Inputs,
        journal: NodeJournal,
        owner: RadioOwner,
    ) -> None:
        self._world = world
        self._loop = world.loop
        self._random = world.random
        self._presence = settings.presence
        self._sealer = sealer
        self._inputs = inputs
        self._journal = journal
        self._counters = counters = journal.counters
        self._owner = owner
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._announced_at = 0.0
        self._wall_ahead: Micros = 0  # of the wall clock before the steady one, as last announced
        self._listening: set[asyncio.Task[None]] = set()
        self._receivers: dict[Channel, Receiver] = {}
        self.peers = Peers(self, counters, journal.names, presence=micros(settings.presence))
        self._opener = FrameOpener(sealer, stable, self.peers, self, world.random.randbytes)
        self.statements = Statements(sealer.identity, stable, world, counters, self, journal.names)
        for node in self.statements.revoked():
            self._opener.revoke(node)
        self.air = Air(world, settings, interfaces, counters, self)
        parts = RadioParts(world, settings, sealer, self.air, self.peers, inputs, journal)
        self._datagrams = Datagrams(parts, self)
        self.broadcast = self._datagrams.broadcast
        self.ask = self._datagrams.ask
        self.links = TcpLinks(parts, self)
        self.pressure = CongestionWatch(world, sealer.identity.node, counters, self.air, self._report)

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
        self.statements.save()
        self._datagrams.close()
        await self.links.close()
        self.air.close()

    def attach(self, channel: Channel, receiver: Receiver) -> None:
        """Set the layer that gets the frames of a channel from now on."""
        self._receivers[channel] = receiver

    def replace_keys(self, ring: KeyRing) -> None:
        """Seal and accept by other group keys from now on; neighbours stay known."""
        self._opener.replace_keys(ring)

    def state(self, kind: StatementKind, subject: str) -> None:
        """Make a statement about membership, and tell everyone who hears it."""
        octets = self.statements.issue(kind, subject)
        if octets is not None:
            self._say([octets], None)

    def forget(self, device: NodeId) -> None:
        """Another device has this number from now on."""
        if not self._opener.forget(device):
            raise InputError(f"node {device}", "has no pinned key; `roamcast peers` has the numbers")

    @property
    def group_key_ids(self) -> list[int]:
        """The ids of the group keys; the first key seals."""
        return list(self._sealer.ring.by_id)

    @property
    def is_busy(self) -> bool:
        """Whether a frame is under way: not sent yet, or not acknowledged."""
        return self._datagrams.is_busy or self.links.is_busy

    # Inputs from the layers.

    def unicast(
        self, channel: Channel, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None
    ) -> None:
        outgoing = OutgoingFrame(channel, frame, on_failure)
        peer = self.peers.get(to)
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

    def on_datagram(self, data: bytes, source: Endpoint) -> None:
        try:
            sender, channel, payload, proof = self._open(data, source)
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
        now = self._inputs.clock.enter()
        peer = self.peers.heard(sender, source, len(data), now, proof)
        if proof is not None:
            self._on_proven(peer)
        if source != peer.path.endpoint and self.peers.is_worth_a_probe(peer, source, now):
            self._datagrams.probe(peer, source)
        if channel == HANDSHAKE and (payload or proof is not None):
            # Its clock of now is compared with ours of now: what it said when we met it first is old.
            own = self._owner.profile()
            peer.deaf = self._journal.misfits.introduced(own, sender, source.host, payload, now)
        for record in records:
            match record:
                case frames.CarriedFrame(channel=layer, payload=carried):
                    self._hand_over(peer, layer, carried)
                case frames.Heard(number=number):
                    self._datagrams.on_heard(sender, number)
                case frames.AcknowledgementRequest(number=number):
                    self._datagrams.acknowledge(sender, number, source)
                    if number in peer.numbers:
                        return  # a repeat: our acknowledgement was lost
                    peer.numbers.append(number)
                case frames.Stated(statement=statement):
                    if self.statements.on_octets(statement, sender):
                        self._say([statement], None)
                case frames.CongestionReport():
                    self.pressure.on_report(record)
                case _:
                    pass

    def deliver(self, sender: NodeId, channel: Channel, payload: bytes) -> None:
        """A frame that came over a link."""
        peer = self.peers.get(sender)
        if peer is not None:
            self._hand_over(peer, channel, payload)

    def _hand_over(self, peer: Peer, channel: Channel, payload: bytes) -> None:
        receiver = self._receivers.get(channel)
        if receiver is None:
            return
        if channel in peer.deaf:
            self._counters.count("frames_refused_total", reason=f"other_{channel.name.lower()}")
            return
        ways = self._journal.ways
        ways.sender = peer.number
        self._inputs.handle(receiver, peer.number, payload)
        ways.sender = None

    def open_piece(self, data: bytes, source: Endpoint) -> Opened:
        """A piece of a TCP link. It says nothing about where its sender is, and proves nobody."""
        opened = self._open(data, source)
        peer = self.peers.get(opened.sender)
        if peer is not None:
            peer.hearing.received(len(data))
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
            self._journal.unopened(claimed_sender(data), error, source.host)
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
        peer = None if sender is None else self.peers.get(sender)
        return self.air.is_several or (peer is not None and len(peer.paths) > 1)

    def _on_proven(self, peer: Peer) -> None:
        """To the layers in a later turn: the frame that proved it is still being handled."""
        self._say(self.statements.on_met(peer.number), None)
        self._loop.call_soon(self._inputs.handle, self._owner.on_acquainted, peer.number)
        self._loop.call_soon(self._tell_all, peer)
        # Once more: it may refuse what we say until we have proven ourselves to it, too.
        self._later(f"tell {peer.number}", TELL_AGAIN_SECONDS, partial(self._tell_all, peer))

    # Inputs from the opener and the table of peers.

    def own_profile(self) -> bytes:
        return self._owner.profile().encode()

    def on_evicted(self, table: str) -> None:
        self._counters.count("table_evictions_total", table=table)

    def on_forgotten(self) -> None:
        self._opener.on_forgotten()

    def rank(self, interface: str) -> int:
        return self.air.rank(interface)

    def on_moved(self, peer: Peer, before: Endpoint, *, is_lost: bool) -> None:
        self.links.on_moved(peer, before, is_lost=is_lost)

    # Statements about membership.

    def _tell_all(self, peer: Peer | None) -> None:
        """All that stand, to a peer that was just met, or to everyone."""
        if peer is None:
            self._say(self.statements.to_tell(NAMES_REPEATED), None)
        else:
            self._say(self.statements.to_tell(NAMES_TOLD), peer.endpoint)

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

    def on_revoked(self, node: NodeId) -> None:
        if node == self._sealer.identity.node:
            return  # a thief would not stop; an owner reads it in the status
        self._opener.revoke(node)
        self.peers.pop(node, None)
        self.links.cut(node)

    def on_pardoned(self, node: NodeId) -> None:
        self._opener.pardon(node)

    def public_key(self, node: NodeId) -> bytes | None:
        own = self._sealer.identity
        return own.public_key if node == own.node else self._opener.public_key(node)

    def _report(self, report: frames.CongestionReport) -> None:
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
        self._wall_ahead = self._world.wall() - self._inputs.clock.enter()
        self.air.broadcast(self._opener.announcement())
        if self._opener.announcement_due:
            self._announce_soon()

    def _on_presence(self) -> None:
        self._later("presence", self._presence * (0.75 + self._random.random() / 4), self._on_presence)
        is_due = self._inputs.clock.enter() - self._datagrams.broadcast_at >= micros(self._presence)
        if is_due or self.air.is_several:
            self._datagrams.say_hello()

    def _on_turn(self) -> None:
        self._later("turn", TURN_SECONDS, self._on_turn)
        self._opener.turn()
        self.peers.forget_old(self._inputs.clock.enter())
        self._tell_all(None)

    def _on_look(self) -> None:
        self._later("look", LOOK_SECONDS, self._on_look)
        now = self._inputs.clock.enter()
        self.peers.look(now)
        self._journal.look(now, self.peers)
        if abs(self._world.wall() - now - self._wall_ahead) > CLOCK_STEP:
            self._announce_soon()  # neighbours that found our clock wrong, or right, compare anew
        self.statements.save()

    # The interfaces.

    def on_opened(self, sockets: InterfaceSockets) -> None:
        task = self._loop.create_task(self.links.listen(sockets))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        if "presence" in self._handles:  # while the node runs; at its start it announces itself anyway
            self._announce_soon()

    def on_closing(self, sockets: InterfaceSockets) -> None:
        self.links.stop_listening(sockets)

    def on_away(self, interface: str, *, is_ipv6: bool) -> None:
        self.peers.on_away(interface, is_ipv6=is_ipv6, now=self._inputs.clock.enter())

    def on_unreached(self, endpoint: Endpoint) -> None:
        for peer in list(self.peers.values()):
            if peer.endpoint == endpoint:
                self.peers.turn_from(peer, endpoint, self._inputs.clock.now)

    def _later(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            self._handles.pop(name, None)
            action()

        self._handles[name] = self._loop.call_later(seconds, act)
