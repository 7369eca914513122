"""One client's stream: octets to items, a fair share for everyone, writes joined per turn of the loop.

MQTT, the local socket and the web server have a framer each (octets to items); the rest is here.

Reading is fair: after `SLICE` items of one client, or `SLICE_SECONDS`, the others have their turn. While
something holds a client, or its items wait for their turn, we read no more of its octets, so that its socket
slows it down.

Everything for a client in one turn of the loop is written in one call. What the kernel has no room for stays
here. Payloads that several clients wait for are given as `memoryview`s: they are counted apart, because all
have the same octets, and are copied a slice at a time.
"""

import asyncio
import socket
from collections import deque
from math import inf
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from roamcast.errors import WireError

# Chosen by us.
SLICE = 64  # items of one client before the next one's turn
SLICE_SECONDS = 0.004  # the same, where each item is much work: a message for hundreds of sessions
WRITTEN_BYTES_MAX = 256 * 1024  # in one call, and by default in asyncio's buffer
LARGE_BYTES = 65_536  # of an item
INCOMING_BYTES_MAX = 64 * 1024 * 1024  # of large items that come, all clients together
LINGER = 2.0  # seconds that a client has to read our last octets and to close

Item = TypeVar("Item")
Produced = TypeVar("Produced", covariant=True)


class Framer(Protocol[Produced]):
    """Splits a stream into items."""

    def push(self, data: bytes) -> None: ...

    def pop(self) -> Produced | None:
        """The next item, None until it is whole; `WireError` where there is none."""
        ...


class Turn:
    """What the streams of one server share: whose octets are written at the end of this turn of the loop, and
    the room for large items, which is not enough for one of each client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, unsent_bytes_max: float = inf) -> None:
        self.loop = loop
        self._unsent_bytes_max = unsent_bytes_max
        self._dirty: list[AnyStream] = []
        self._incoming: dict[AnyStream, int] = {}  # octets of the large item that each receives
        self._unsent: dict[AnyStream, None] = {}  # those with much to read, longest first

    @property
    def receiving(self) -> int:
        """How many clients are sending a large item."""
        return len(self._incoming)

    def add(self, stream: "AnyStream") -> None:
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(stream)

    def receives(self, stream: "AnyStream", octets: int) -> bool:
        """A large item has begun: whether there is room for it. 0: it is whole, or will never be."""
        self._incoming.pop(stream, None)
        if not octets:
            return True
        if sum(self._incoming.values()) + octets > INCOMING_BYTES_MAX:
            return False
        self._incoming[stream] = octets
        return True

    def check_unsent(self, stream: "AnyStream") -> None:
        """The client that has not read its large items for longest makes room. Its session still has them."""
        self._unsent.setdefault(stream)
        for one in [one for one in self._unsent if one.unsent <= LARGE_BYTES]:
            del self._unsent[one]
        while len(self._unsent) > 1 and sum(one.unsent for one in self._unsent) > self._unsent_bytes_max:
            slowest = next(iter(self._unsent))
            del self._unsent[slowest]
            slowest.abandon()

    def leave(self, stream: "AnyStream") -> None:
        self._incoming.pop(stream, None)
        self._unsent.pop(stream, None)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for stream in dirty:
            stream.flush()


class FairStream(asyncio.Protocol, Generic[Item]):
    """Subclasses handle items: `on_item`, `on_malformed`, `on_lost`, `on_writable`."""

    def __init__(self, turn: Turn, framer: Framer[Item], write_bytes_max: int = WRITTEN_BYTES_MAX) -> None:
        self._turn = turn
        self._loop = turn.loop
        self._framer = framer
        self._transport: asyncio.Transport | None = None
        self._write_bytes_max = write_bytes_max
        self._out: deque[bytes | memoryview] = deque()
        self._out_bytes = 0
        self._shared_bytes = 0  # of `memoryview`s
        self._is_paused = False  # the client does not read
        self._held: set[str] = set()  # why we do not read
        self._slowed: asyncio.TimerHandle | None = None
        self._has_more = False  # whole items may wait for our next turn
        self._linger: asyncio.TimerHandle | None = None
        self.is_closing = False
        self.address = ""  # of the client
        self.heard_at = self._loop.time()  # when the last whole item came

    # For subclasses.

    def on_item(self, item: Item) -> None:
        raise NotImplementedError

    def on_malformed(self, error: WireError) -> None:
        """The stream goes on if this does not close it."""
        raise NotImplementedError

    def on_lost(self) -> None:
        raise NotImplementedError

    def on_writable(self) -> None:
        """The client reads again."""

    @property
    def is_writable(self) -> bool:
        """Whether the client reads what it is sent."""
        return not self._is_paused and self._out_bytes < self._write_bytes_max and not self.is_closing

    @property
    def is_held(self) -> bool:
        """Whether we do not read from this client."""
        return bool(self._held)

    @property
    def unsent(self) -> int:
        """Octets of this client alone that the kernel has no room for."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._out_bytes + written

    def send(self, data: bytes) -> None:
        """Written together with everything else of this turn."""
        if not self._out:
            self._turn.add(self)
        self._out.append(data)
        self._out_bytes += len(data)

    def send_shared(self, data: memoryview) -> None:
        """Behind something that was sent in this turn."""
        self._out.append(data)
        self._shared_bytes += len(data)

    def hold(self, why: str) -> None:
        """Stop reading from this client until the reason is released."""
        if not self.is_closing:
            self._held.add(why)
            self._set_reading()

    def release(self, why: str) -> None:
        if why in self._held:
            self._held.discard(why)
            self._go_on_soon()

    def slow(self, seconds: float) -> None:
        """Read nothing from this client for so long: its socket makes it wait."""
        if "slow" not in self._held and not self.is_closing:
            self._slowed = self._loop.call_later(seconds, self.release, "slow")
            self.hold("slow")

    def close(self, *, at_once: bool = False) -> None:
        """Send what is to be sent, then close; nothing more is handled.

        What the client still sends is read and ignored for `LINGER`: closing with unread octets would make
        TCP reset the connection, and the client might never see the reason.
        """
        if self.is_closing:
            return
        self._is_paused = False
        self.flush()
        while self._out:  # a write that fills the buffer pauses again; the rest has to go too
            self._is_paused = False
            self.flush()
        self.is_closing = True
        self._held.clear()
        self._has_more = False
        transport = self._transport
        if transport is None:
            return
        self._linger = self._loop.call_later(LINGER, transport.abort)
        if at_once or not transport.can_write_eof():
            transport.close()
        else:
            self._set_reading()
            transport.write_eof()

    def abandon(self) -> None:
        """Break the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio, and by `Turn`.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._write_bytes_max)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        peer: socket.socket | None = transport.get_extra_info("socket")
        if peer is not None:
            # TCP notices when the machine of a silent client is gone.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        self._framer.push(data)
        if not self._has_more and not self._held:
            self._work()

    def connection_lost(self, exception: Exception | None) -> None:
        self.is_closing = True
        self._turn.leave(self)
        self._transport = None
        for timer in (self._slowed, self._linger):
            if timer is not None:
                timer.cancel()
        self.on_lost()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.flush()
        if not self.is_closing and not self._is_paused:  # what waited may have filled the buffer again
            self.on_writable()

    def flush(self) -> None:
        out, transport = self._out, self._transport
        if transport is None or self.is_closing or transport.is_closing():
            out.clear()
            self._out_bytes = self._shared_bytes = 0
            return
        is_large = self._out_bytes > LARGE_BYTES
        while out and not self._is_paused:
            if self._shared_bytes or self._out_bytes > WRITTEN_BYTES_MAX:
                transport.write(b"".join(self._taken()))
            else:
                transport.write(out[0] if len(out) == 1 else b"".join(out))
                out.clear()
                self._out_bytes = 0
        if is_large:
            self._turn.check_unsent(self)

    # Private.

    def _taken(self) -> list[bytes | memoryview]:
        """Take what is to be written in one call."""
        taken: list[bytes | memoryview] = []
        room = WRITTEN_BYTES_MAX
        while self._out and room > 0:
            data = self._out.popleft()
            if isinstance(data, memoryview):
                if len(data) > room:
                    self._out.appendleft(data[room:])
                    data = data[:room]
                self._shared_bytes -= len(data)
            else:
                self._out_bytes -= len(data)
            taken.append(data)
            room -= len(data)
        return taken

    def _work(self) -> None:
        """Handle up to a slice of what is whole."""
        pop, time = self._framer.pop, self._loop.time
        count = 0
        until = time() + SLICE_SECONDS
        try:
            while count < SLICE and (item := pop()) is not None:
                count += 1
                self.on_item(item)
                if self._held or self.is_closing:
                    break
                if time() > until:
                    count = SLICE
        except WireError as error:
            count = SLICE
            self.on_malformed(error)
        if count:
            self.heard_at = self._loop.time()
        if count == SLICE:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._has_more and not self._held and not self.is_closing:
            self._has_more = True
            self._loop.call_soon(self._go_on)
        self._set_reading()

    def _go_on(self) -> None:
        self._has_more = False
        if not self.is_closing and not self._held:
            try:
                self._work()
            except Exception:  # a fault of ours: without this the client would never be read again
                self.abandon()
                raise
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._has_more or self._held:
            if transport.is_reading():
                transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()


AnyStream: TypeAlias = FairStream[Any]
