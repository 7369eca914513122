"""The TCP links of a node: opened when there is data for a neighbour, re-used, closed when idle.

Two neighbours may open links to each other at the same moment, or one may have lost a link that the other
still uses. So a node reads from every link it has. It sends over the newest link that the node with the lower
number opened, or else over the newest. If there is a link of the lower number, the node with the higher one
finishes its own: that takes no more frames and is closed when those in it have arrived. So the choice loses
nothing and needs no agreement.

A link is tied to the interface of the path that it was opened on. When its neighbour is reached by another
one, it is finished; what does not arrive any more is sent again over a link on the new path. So a frame whose
acknowledgement was lost may arrive twice, as with any repetition of the layers above.

A link carries sealed pieces in both directions:

    piece:  | length 16 | sealed records … |

The first piece in each direction holds a `LinkHello`. We ask the kernel whether a frame arrived: it knows how
much of what we wrote the other side has acknowledged (SIOCOUTQ, tcp(7)), which costs no octet on the air.
If nothing more is acknowledged for `timeout`, the link is broken and its frames have failed. TCP itself would
try for minutes, and the neighbour may have left for good. After `STALL_SECONDS` already we send the neighbour
an acknowledged datagram (`datagrams.py`); if it does not answer that, the link is broken too.

Frames keep their order, but for large ones: those wait until no other does, and the kernel gets few of them
ahead, so that a small event never waits behind a large payload that is handed over.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from roamcast.errors import WireError
from roamcast.host import Channel, SendFailure
from roamcast.kit.tables import BoundedDict
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.datagrams import OutgoingFrame, RadioParts, SendOutcomes
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.peers import Peer
from roamcast.runtime.live.air.sockets import InterfaceSockets
from roamcast.sealing import OVERHEAD, Opened
from roamcast.units import NodeId

logger = logging.getLogger("roamcast.links")

STREAM = 1  # the seal's numbering for TCP; UDP has its own, because one may overtake the other
# Chosen by us, sizes and times.
PIECE_BYTES_MAX = 16_384  # of plain records, unless a single frame is larger
BUFFER_BYTES = 65_536  # written to the kernel ahead of acknowledgements, at most about this
LARGE_FRAME_BYTES = 2_048  # a larger frame waits for the others
UNSENT_BYTES_MAX = 32_768  # that the kernel has not sent
HELLO_SECONDS = 2.0  # for an unknown node to say who it is
LINK_FAREWELL_SECONDS = 2.0  # for the other side to close after we have
LOOK_SECONDS = 0.1  # between two questions to the kernel about acknowledgements
STALL_SECONDS = 0.2  # without acknowledgement: longer than the other side usually delays one
LENGTH = struct.Struct("!H")
# Of <linux/tcp.h>. A few small segments are repeated without backing off and, where the kernel can (6.15),
# after 80 ms instead of 200: one hop takes a few, and the other side may delay an acknowledgement by 40.
TCP_THIN_LINEAR_TIMEOUTS, TCP_RTO_MIN_US = 16, 45
REPEAT_AFTER_US = 80_000
CONNECT_SECONDS = (0.25, 0.35, 0.4)
"""How long each attempt to connect may take; 1 s in all. TCP would repeat a lost first segment only after a
second. This and the next are chosen by us."""
STRANGERS_MAX = 32  # connections whose other side has not yet said who it is
LINKS_MAX = 1_024
TURNS_TO_CLOSE = 3  # turns of the loop that a transport has to close
FAREWELL_SECONDS = 0.5  # for all links together, when the node stops


class Written(NamedTuple):
    """A frame in the stream; it has arrived when the stream is acknowledged up to `end`."""

    end: int
    outgoing: OutgoingFrame


class TcpLink(asyncio.Protocol):
    """`peer` is known from the beginning where we opened the connection, else from its hello."""

    def __init__(self, parts: RadioParts, owner: "TcpLinks", peer: NodeId | None, interface: str) -> None:
        self._parts = parts
        self._loop = parts.world.loop
        self._owner = owner
        self._sealer = parts.sealer
        self.answered: asyncio.Future[bool] = self._loop.create_future()  # whether it said who it is
        self.peer = peer
        self.is_ours = peer is not None  # who opened it
        self.is_confirmed = False  # the other side has said who it is
        self.is_closing = False
        self.is_silent = False  # it broke because nothing was acknowledged any more
        self.waiting: deque[OutgoingFrame] = deque()
        self._large: deque[OutgoingFrame] = deque()  # these wait behind the others
        self._timeout = parts.settings.link_timeout
        self._written: deque[Written] = deque()
        self._octets = 0  # written in all
        self._acknowledged = 0
        self._progress_at = 0.0  # when something was last acknowledged, or nothing was outstanding
        self.is_stalled = False  # the neighbour was asked, and nothing was acknowledged since
        self._made_at = self._used_at = self._loop.time()
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None  # of its connection, also when that is over
        self.other = Endpoint("", 0, interface)  # the other side; of a link that it opened, not its own port
        self._closed_at: float | None = None  # when we closed our direction
        self._is_closed_by_peer = False  # theirs
        self._look: asyncio.TimerHandle | None = None
        self._flush: asyncio.Handle | None = None
        self._may_write = True

    # Questions.

    @property
    def is_made(self) -> bool:
        """Whether it has a connection, or had one."""
        return self._socket is not None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.is_closing

    @property
    def queued(self) -> int:
        """Frames that wait or are not acknowledged yet."""
        return len(self.waiting) + len(self._large) + len(self._written)

    def leads_to(self, endpoint: Endpoint) -> bool:
        """Whether it is on this path."""
        return self.other.address == endpoint.address and self.other.interface == endpoint.interface

    # Inputs from the table.

    def send(self, outgoing: OutgoingFrame) -> None:
        is_large = len(outgoing.frame.payload) > LARGE_FRAME_BYTES
        (self._large if is_large else self.waiting).append(outgoing)
        if self._flush is None and self._may_write and self._transport is not None:
            self._flush = self._loop.call_soon(self._on_flush)

    def finish(self) -> None:
        """Close our direction when all in it has arrived. The other side still sends what it has."""
        self.is_closing = True
        self.look()

    def abort(self) -> None:
        """Break the connection now."""
        self.is_closing = True
        if self._transport is not None:
            self._ask_kernel()  # the last time that it can be asked
            self._reset()

    def on_unanswered(self) -> None:
        """The neighbour that was asked because of `on_stalled` is silent."""
        if self.is_stalled and self._transport is not None and not self._ask_kernel():
            self.is_silent = True
            self.abort()

    def take_unsent(self) -> list[OutgoingFrame]:
        unsent = [*self.waiting, *self._large]
        self.waiting.clear()
        self._large.clear()
        return unsent

    def take_unacknowledged(self) -> list[OutgoingFrame]:
        unacknowledged = [written.outgoing for written in self._written]
        self._written.clear()
        return unacknowledged

    # Inputs from the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._socket = transport.get_extra_info("socket")
        address, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.other = Endpoint(str(address), port, self.other.interface)
        assert self._socket is not None
        tune(self._socket, self._timeout)
        self._progress_at = self._loop.time()
        if self.peer is not None:
            self._write_hello(self.peer)
            self._on_flush()
        self._look = self._loop.call_later(LOOK_SECONDS, self._on_look)

    def data_received(self, data: bytes) -> None:
        self._used_at = self._loop.time()
        received = self._received
        received += data
        at = 0
        while len(received) - at >= LENGTH.size and not self.is_broken:
            (length,) = LENGTH.unpack_from(received, at)
            begin = at + LENGTH.size
            if len(received) - begin < length:
                break
            at = begin + length
            self._on_piece(bytes(memoryview(received)[begin:at]))
        del received[:at]

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._on_flush()

    def eof_received(self) -> bool:
        self._is_closed_by_peer = True
        self._loop.call_soon(self.finish)
        return True  # keep our direction open until all in it has arrived

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_closing = True
        self._answer(False)
        self._transport = None
        for handle in (self._look, self._flush):
            if handle is not None:
                handle.cancel()
        self._owner.on_closed(self)

    # Private.

    @property
    def is_broken(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _reset(self) -> None:
        # Without lingering: otherwise the kernel repeats frames that were reported as failed to their layer.
        assert self._transport is not None and self._socket is not None
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _on_piece(self, data: bytes) -> None:
        try:
            opened = self._owner.open_piece(self, data)
            if self.is_confirmed and opened.sender != self.peer:
                raise WireError("link", 0, f"of node {self.peer} has a piece of node {opened.sender}")
            records = frames.decode(opened.payload)
        except WireError as error:
            # TCP loses and damages nothing, so this does not come from a correct node of our network.
            logger.debug("a link is closed: %s", error)
            self.abort()
            return
        for record in records:
            if self.is_broken:
                return
            match record:
                case frames.LinkHello():
                    self._on_hello(opened.sender, record)
                case frames.CarriedFrame() if self.is_confirmed:
                    self._owner.on_frame(self, record)
                case _:
                    self.abort()

    def _answer(self, is_confirmed: bool) -> None:
        if not self.answered.done():
            self.answered.set_result(is_confirmed)

    def _on_hello(self, sender: NodeId, hello: frames.LinkHello) -> None:
        expected = self.peer is None or self.peer == sender
        if self.is_confirmed or hello.to != self._sealer.identity.node or not expected:
            self.abort()
            return
        self.peer = sender
        self.is_confirmed = True
        self._answer(True)
        if not self._owner.on_hello(self, sender):
            self.abort()
        elif not self.is_ours:
            self._write_hello(sender)

    def _write_hello(self, to: NodeId) -> None:
        self._write(self._sealer.seal(frames.RECORDS, frames.hello(to), STREAM))

    def _on_flush(self) -> None:
        """Write what waits, as long as the kernel takes it."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self.waiting or self._large:
            self._used_at = self._loop.time()
            if not self._written:
                self._progress_at = self._used_at
        while (self.waiting or self._large) and self._may_write and not self.is_broken:
            self._write_piece(self.waiting or self._large)

    def _write_piece(self, waiting: deque[OutgoingFrame]) -> None:
        peer = None if self.peer is None else self._parts.peers.get(self.peer)
        records: list[bytes] = []
        joined: list[OutgoingFrame] = []
        size = 0
        while waiting:
            channel, frame, _ = waiting[0]
            if records and size + len(frame.payload) + frames.FRAME_OVERHEAD > PIECE_BYTES_MAX:
                break
            record = frames.carried(channel, frame.payload)
            common = 0 if records else OVERHEAD + LENGTH.size
            self._parts.journal.transmitted(channel, frame, self.peer, len(record) + common, 1)
            if peer is not None:
                peer.hearing.sent(len(record) + common)
            joined.append(waiting.popleft())
            records.append(record)
            size += len(record)
        self._write(self._sealer.seal(frames.RECORDS, b"".join(records), STREAM))
        self._written.extend(Written(self._octets, outgoing) for outgoing in joined)

    def _write(self, sealed: bytes) -> None:
        assert self._transport is not None
        self._octets += LENGTH.size + len(sealed)
        self._transport.write(LENGTH.pack(len(sealed)) + sealed)

    # Acknowledgements.

    def _on_look(self) -> None:
        self._look = self._loop.call_later(LOOK_SECONDS, self._on_look)
        self.look()

    def look(self) -> None:
        """Check what has arrived, and whether the link is broken or finished."""
        if self.is_broken:
            return
        now = self._loop.time()
        if self._ask_kernel() or self._acknowledged == self._octets:
            self._progress_at = now
            self.is_stalled = False
        elif now - self._progress_at >= self._timeout:
            self.is_silent = True
            self.abort()
            return
        elif now - self._progress_at >= STALL_SECONDS and not self.is_stalled and self.is_confirmed:
            self.is_stalled = True
            self._owner.on_stalled(self)
        if not self.is_confirmed and now - self._made_at >= HELLO_SECONDS:
            self.abort()
        elif (self.is_closing or now - self._used_at >= self._parts.settings.link_idle) and self.queued == 0:
            self._say_farewell(now)

    def _say_farewell(self, now: float) -> None:
        assert self._transport is not None
        self.is_closing = True
        if self._is_closed_by_peer:
            self._transport.close()
        elif self._closed_at is None:
            self._closed_at = now
            try:
                self._transport.write_eof()
            except OSError:  # the other side has reset the connection; `connection_lost` will follow
                self._reset()
        elif now - self._closed_at >= LINK_FAREWELL_SECONDS:
            self._reset()

    def _ask_kernel(self) -> bool:
        """Read how far the stream is acknowledged; returns whether that is further than before."""
        if self._transport is None or self._socket is None or self._transport.is_closing():
            return False
        try:
            outstanding = self._parts.world.network.unsent(self._socket)
        except OSError:
            return False
        acknowledged = self._octets - outstanding - self._transport.get_write_buffer_size()
        if acknowledged <= self._acknowledged:
            return False
        self._acknowledged = acknowledged
        while self._written and self._written[0].end <= acknowledged:
            self._written.popleft()
        return True


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
        opened = [link for link in reversed(self._links.get(to, ())) if link.is_open]
        return next(filter(self._lower_opened, opened), opened[0] if opened else None)

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


def tune(opened: socket.socket, timeout: float) -> None:
    """Small frames are sent at once, and the kernel gives up little later than we do."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(timeout * 2_000))
    opened.setsockopt(socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    with suppress(OSError):
        opened.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MIN_US, REPEAT_AFTER_US)
