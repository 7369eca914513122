"""One TCP connection with a neighbour: sealed pieces in both directions, and which of them arrived.

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
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from roamcast.errors import WireError
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.datagrams import OutgoingFrame, RadioParts
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.sealing import OVERHEAD
from roamcast.units import NodeId

if TYPE_CHECKING:  # it imports this module
    from roamcast.runtime.live.air.links import TcpLinks

logger = logging.getLogger("roamcast.links")

STREAM = 1  # the seal's numbering for TCP; UDP has its own, because one may overtake the other
# Chosen by us, sizes and times.
PIECE_BYTES_MAX = 16_384  # of plain records, unless a single frame is larger
BUFFER_BYTES = 65_536  # written to the kernel ahead of acknowledgements, at most about this
LARGE_FRAME_BYTES = 2_048  # a larger frame waits for the others
UNSENT_BYTES_MAX = 32_768  # that the kernel has not sent
HELLO_SECONDS = 2.0  # for an unknown node to say who it is
FAREWELL_SECONDS = 2.0  # for the other side to close after we have
LOOK_SECONDS = 0.1  # between two questions to the kernel about acknowledgements
STALL_SECONDS = 0.2  # without acknowledgement: longer than the other side usually delays one
LENGTH = struct.Struct("!H")
# Of <linux/tcp.h>. A few small segments are repeated without backing off and, where the kernel can (6.15),
# after 80 ms instead of 200: one hop takes a few, and the other side may delay an acknowledgement by 40.
TCP_THIN_LINEAR_TIMEOUTS, TCP_RTO_MIN_US = 16, 45
REPEAT_AFTER_US = 80_000


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
        elif now - self._closed_at >= FAREWELL_SECONDS:
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


def tune(opened: socket.socket, timeout: float) -> None:
    """Small frames are sent at once, and the kernel gives up little later than we do."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(timeout * 2_000))
    opened.setsockopt(socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    with suppress(OSError):
        opened.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MIN_US, REPEAT_AFTER_US)
