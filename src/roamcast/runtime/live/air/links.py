"""The TCP links of a node: opened when there is data for a neighbour, re-used, closed when idle.

Two neighbours may open links to each other at the same moment, or one may have lost a link that the other
still uses. So a node reads from every link it has. It sends over the newest link that the node with the lower
number opened, or else over the newest. If there is a link of the lower number, the node with the higher one
finishes its own: that takes no more frames and is closed when those in it have arrived. So the choice loses
nothing and needs no agreement.

A link is tied to the interface of the path that it was opened on. When its neighbour is reached by another
one, it is finished; what does not arrive any more is sent again over a link on the new path. So a frame whose
acknowledgement was lost may arrive twice, as with any repetition of the layers above.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from roamcast.host import Channel, SendFailure
from roamcast.kit.tables import BoundedDict
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.datagrams import OutgoingFrame, RadioParts, SendOutcomes
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.link import STALL_SECONDS, TcpLink
from roamcast.runtime.live.air.peers import Peer
from roamcast.runtime.live.air.sockets import InterfaceSockets
from roamcast.sealing import Opened
from roamcast.units import NodeId

CONNECT_SECONDS = (0.25, 0.35, 0.4)
"""How long each attempt to connect may take; 1 s in all. TCP would repeat a lost first segment only after a
second. The numbers in this file are chosen by us."""
STRANGERS_MAX = 32  # connections whose other side has not yet said who it is
LINKS_MAX = 1_024
TURNS_TO_CLOSE = 3  # turns of the loop that a transport has to close
FAREWELL_SECONDS = 0.5  # for all links together, when the node stops


class LinksOwner(SendOutcomes, Protocol):
    """The radio."""

    def open_piece(self, data: bytes, source: Endpoint) -> Opened:
        """Unseal what came over a link; `SealError` if it is refused."""

    def deliver(self, sender: NodeId, channel: Channel, payload: bytes) -> None:
        """Hand a frame to a layer."""

    def ask(self, to: NodeId, on_silence: Callable[[], object]) -> None:
        """Send a neighbour an acknowledged datagram, and call back if it does not answer."""


class TcpLinks:
    def __init__(self, parts: RadioParts, owner: LinksOwner) -> None:
        self._parts = parts
        self._loop = parts.world.loop
        self._peers = parts.peers
        self._clock = parts.inputs.clock
        self._counters = parts.journal.counters
        self._owner = owner
        self._queue_frames = parts.settings.queue_frames
        self._own = parts.sealer.identity.node
        self._links: dict[NodeId, list[TcpLink]] = {}  # per neighbour, the newest last
        self._strangers: BoundedDict[TcpLink, None] = BoundedDict(STRANGERS_MAX, self._on_stranger_evicted)
        self._opening: dict[NodeId, list[OutgoingFrame]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: dict[InterfaceSockets, asyncio.Server] = {}
        self._is_closed = False

    async def listen(self, sockets: InterfaceSockets) -> None:
        """Accept links at the node's own port on an interface."""
        interface, listener = sockets.interface.name, sockets.listener
        if listener is None:  # closed meanwhile
            return
        server = await self._loop.create_server(lambda: self._inbound(interface), sock=listener)
        self._servers[sockets] = server
        if not sockets.is_open:  # closed meanwhile
            self.stop_listening(sockets)

    def stop_listening(self, sockets: InterfaceSockets) -> None:
        server = self._servers.pop(sockets, None)
        if server is not None:
            server.close()

    async def close(self) -> None:
        """Let what is under way arrive, for a moment; then break what is left."""
        self._is_closed = True
        for sockets in list(self._servers):
            self.stop_listening(sockets)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._all():
            link.finish()
        until = self._loop.time() + FAREWELL_SECONDS
        while self._links and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for link in [*self._strangers, *self._all()]:
            link.abort()
        for _ in range(TURNS_TO_CLOSE):
            await asyncio.sleep(0)

    def __len__(self) -> int:
        return sum(map(len, self._links.values()))

    def count(self, peer: NodeId) -> int:
        """Links with one neighbour."""
        return len(self._links.get(peer, ()))

    @property
    def queued(self) -> int:
        """Frames in all links that are not acknowledged."""
        return sum(link.queued for link in self._all())

    @property
    def is_busy(self) -> bool:
        return bool(self._opening) or self.queued > 0

    # Inputs from the layers.

    def send(self, peer: Peer, outgoing: OutgoingFrame) -> None:
        to = peer.number
        link = self._usable(to)
        waiting = self._opening.get(to)
        queued = link.queued if link is not None else len(waiting or ())
        if link is not None and queued >= self._queue_frames:
            link.look()  # some of them may have arrived since it was last looked at
            queued = link.queued
        if queued >= self._queue_frames:
            self._owner.fail(outgoing, to, SendFailure.QUEUE_FULL)
        elif link is not None:
            link.send(outgoing)
        elif waiting is not None:
            waiting.append(outgoing)
        elif peer.is_silent(self._clock.now):
            # The last link to it broke and it has not been heard since: it is no neighbour.
            self._owner.fail(outgoing, to, SendFailure.LINK)
        else:
            self._open(to, [outgoing])

    def cut(self, peer: NodeId) -> None:
        """End all links with a node; what is in them has failed."""
        for link in list(self._links.get(peer, ())):
            link.abort()

    def on_moved(self, peer: Peer, before: Endpoint, *, is_lost: bool) -> None:
        """A neighbour is reached by another path now. `is_lost`: nothing more arrives by the one before."""
        for link in list(self._links.get(peer.number, ())):
            if link.leads_to(before) and not link.leads_to(peer.endpoint):
                if is_lost or link.is_stalled:
                    link.abort()
                else:
                    link.finish()

    # Inputs from the links.

    def open_piece(self, link: TcpLink, data: bytes) -> Opened:
        return self._owner.open_piece(data, link.other)

    def on_hello(self, link: TcpLink, sender: NodeId) -> bool:
        """The other side has said who it is; the answer False refuses the link."""
        if not link.is_ours:
            self._strangers.pop(link, None)
            if len(self) >= LINKS_MAX:
                self._counters.count("links_refused_total", reason="too_many")
                return False
            self._add(sender, link)
        return True

    def on_frame(self, link: TcpLink, frame: frames.CarriedFrame) -> None:
        assert link.peer is not None
        self._owner.deliver(link.peer, frame.channel, frame.payload)

    def on_stalled(self, link: TcpLink) -> None:
        """Nothing is acknowledged any more. The neighbour is asked, and the link told if it is silent."""
        assert link.peer is not None
        peer = self._peers.get(link.peer)
        if peer is None or link.leads_to(peer.endpoint) or not self._works_elsewhere(peer, link):
            self._owner.ask(link.peer, link.on_unanswered)
        else:
            link.abort()

    def on_closed(self, link: TcpLink) -> None:
        self._strangers.pop(link, None)
        if link.peer is None:
            return
        to = link.peer
        links = self._links.get(to, [])
        if link in links:
            links.remove(link)
            if not links:
                del self._links[to]
        failed = link.take_unacknowledged()
        unsent = link.take_unsent()
        other = self._usable(to)
        if other is not None:
            for outgoing in unsent:
                other.send(outgoing)
            unsent = []
        if self._is_closed:
            return
        if failed or unsent:
            self._counters.count("links_broken_total")
            peer = self._peers.get(to)
            if peer is not None and self._works_elsewhere(peer, link):
                self._send_again(peer, failed + unsent)
            else:
                self._give_up(to, failed + unsent, is_silent=link.is_silent)

    # Private.

    def _works_elsewhere(self, peer: Peer, link: TcpLink) -> bool:
        """Whether the neighbour is reached by another path than this link's."""
        now = self._clock.enter()
        if link.is_silent and link.leads_to(peer.endpoint):
            self._peers.turn_from(peer, peer.endpoint, now)
        return not link.leads_to(peer.endpoint) and self._peers.works(peer, now)

    def _send_again(self, peer: Peer, outgoing: list[OutgoingFrame]) -> None:
        link, waiting = self._usable(peer.number), self._opening.get(peer.number)
        if link is not None:
            for one in outgoing:
                link.send(one)
        elif waiting is not None:
            waiting[:0] = outgoing
        else:
            self._open(peer.number, outgoing)

    def _open(self, to: NodeId, waiting: list[OutgoingFrame]) -> None:
        self._opening[to] = waiting
        task = self._loop.create_task(self._connect(to))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # If the neighbour does not answer a datagram either, further attempts to connect are pointless.
        asking = self._loop.call_later(STALL_SECONDS, lambda: self._owner.ask(to, task.cancel))
        task.add_done_callback(lambda _: asking.cancel())

    def _all(self) -> list[TcpLink]:
        return [link for links in self._links.values() for link in links]

    def _usable(self, to: NodeId) -> TcpLink | None:
        """The link to send over, by the rule above."""
        chosen: TcpLink | None = None
        for link in self._links.get(to, ()):
            if link.is_open and (
                chosen is None or self._lower_opened(link) or not self._lower_opened(chosen)
            ):
                chosen = link
        return chosen

    def _lower_opened(self, link: TcpLink) -> bool:
        assert link.peer is not None
        return link.is_ours == (self._own < link.peer)

    def _add(self, peer: NodeId, link: TcpLink) -> None:
        self._links.setdefault(peer, []).append(link)
        chosen = self._usable(peer)
        assert chosen is not None
        for one in self._links[peer]:
            if one.is_ours and one is not chosen and one.is_open and self._lower_opened(chosen):
                for outgoing in one.take_unsent():
                    chosen.send(outgoing)
                one.finish()
        # The frames that waited for a link go first, whichever side opened it.
        waiting = self._opening.get(peer, [])
        for outgoing in waiting:
            chosen.send(outgoing)
        waiting.clear()

    async def _connect(self, to: NodeId) -> None:
        link: TcpLink | None = None
        try:
            for seconds in CONNECT_SECONDS:
                peer = self._peers.get(to)
                if peer is None or self._usable(to) is not None:
                    break
                link = await self._connected(peer, seconds)
                if link is not None:
                    break
        finally:
            if link is not None and link.is_open:
                self._counters.count("links_opened_total")
                self._add(to, link)
            waiting = self._opening.pop(to, [])
            if waiting and not self._is_closed:
                self._counters.count("links_failed_total")
                self._give_up(to, waiting, is_silent=True)

    async def _connected(self, peer: Peer, seconds: float) -> TcpLink | None:
        to = peer.endpoint
        family = socket.AF_INET6 if to.is_ipv6 else socket.AF_INET
        opened = self._parts.world.network.open_socket(family, socket.SOCK_STREAM)
        link = TcpLink(self._parts, self, peer.number, to.interface)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, to.interface.encode())
            async with asyncio.timeout(seconds):
                await self._loop.sock_connect(opened, to[:2])
                await self._loop.create_connection(lambda: link, sock=opened)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            link.abort()
            if not link.is_made:
                opened.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            if self._peers.turn_from(peer, to, self._clock.enter()):
                return None  # at once by the other path
            if not isinstance(error, TimeoutError):
                await asyncio.sleep(seconds)  # refused at once: give the neighbour the same time
            return None
        return link if await self._is_answered(link, seconds) else None

    async def _is_answered(self, link: TcpLink, seconds: float) -> bool:
        """Whether the other side has said hello. A node that has just booted may not know us yet: then it
        refuses, sends a challenge, and accepts the next attempt."""
        began = self._loop.time()
        try:
            async with asyncio.timeout(seconds):
                if await asyncio.shield(link.answered):
                    return True
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            link.abort()
            raise
        link.abort()
        await asyncio.sleep(max(0.0, began + seconds - self._loop.time()))
        return False

    def _inbound(self, interface: str) -> TcpLink:
        link = TcpLink(self._parts, self, None, interface)
        self._strangers[link] = None
        return link

    def _on_stranger_evicted(self, link: TcpLink, _: None) -> None:
        self._counters.count("links_refused_total", reason="strangers")
        link.abort()

    def _give_up(self, to: NodeId, failed: list[OutgoingFrame], *, is_silent: bool) -> None:
        now, peer = self._clock.enter(), self._peers.get(to)
        if peer is not None and is_silent:
            self._peers.give_up(peer, now)
        for outgoing in failed:
            self._owner.fail(outgoing, to, SendFailure.LINK)
