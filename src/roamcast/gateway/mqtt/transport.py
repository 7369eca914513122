"""A connection's octets: packets out of a stream, and writes joined per turn of the loop.

Reading is fair: after `SLICE` packets of one client the others have their turn, and while a client's octets
wait we do not read more of them, so TCP slows the sender. All packets of one turn for a client are written in
one call. Nothing grows without bound: at most one incomplete packet is kept, and what a client does not read
is counted against `write_bytes_max`. Packets above `LARGE_BYTES` share the room of all connections (`Turn`):
there is no room for one from each client.
"""

import asyncio
import socket
from typing import cast

from roamcast.gateway.mqtt.packets.primitives import MalformedPacket
from roamcast.gateway.mqtt.packets.reasons import ReasonCode

# Both chosen by us.
SLICE = 64  # packets of one client before the next one's turn
SLOW_MAX = 1.0  # seconds for which a publisher that is too fast is not read; its pings wait behind
LARGE_BYTES = 65_536  # of a packet
INCOMING_BYTES_MAX = 64 * 1024 * 1024  # of large packets that come, all connections together
UNSENT_BYTES_MAX = 128 * 1024 * 1024  # of large packets that clients do not read, likewise
LINGER = 2.0  # seconds that a client has to read our last octets and to close


class Turn:
    """Which connections have something to write at the end of this turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._dirty: list[PacketTransport] = []
        self._incoming: dict[PacketTransport, int] = {}  # octets of the large packet that each receives
        self._unsent: dict[PacketTransport, None] = {}  # those with much to read, longest first

    def add(self, connection: "PacketTransport") -> None:
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(connection)

    def receives(self, connection: "PacketTransport", octets: int) -> bool:
        """A large packet has begun: whether there is room for it. 0: it is whole, or will never be."""
        self._incoming.pop(connection, None)
        if not octets:
            return True
        if sum(self._incoming.values()) + octets > INCOMING_BYTES_MAX:
            return False
        self._incoming[connection] = octets
        return True

    def check_unsent(self, connection: "PacketTransport") -> None:
        """Who has not read his large packets for longest makes room. A session has them still."""
        self._unsent.setdefault(connection)
        for one in [one for one in self._unsent if one.unsent <= LARGE_BYTES]:
            del self._unsent[one]
        while len(self._unsent) > 1 and sum(one.unsent for one in self._unsent) > UNSENT_BYTES_MAX:
            slowest = next(iter(self._unsent))
            del self._unsent[slowest]
            slowest.abandon()

    def leave(self, connection: "PacketTransport") -> None:
        self._incoming.pop(connection, None)
        self._unsent.pop(connection, None)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()


class PacketTransport(asyncio.Protocol):
    """Subclasses handle packets: `on_packet`, `on_malformed`, `on_lost`, `on_writable`."""

    def __init__(self, turn: Turn, packet_bytes_max: int, write_bytes_max: int) -> None:
        self._turn = turn
        self._loop = turn.loop
        self._transport: asyncio.Transport | None = None
        self._packet_bytes_max = packet_bytes_max
        self._write_bytes_max = write_bytes_max
        self._buffer = b""
        self._more: list[bytes] = []  # of a packet that is not whole: joined once, when it is
        self._lacking = 0  # octets of it
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_paused = False  # the client does not read
        self._is_held = False  # we do not read: `hold`
        self._slowed: asyncio.TimerHandle | None = None  # neither: `slow`
        self._has_more = False  # whole packets wait for our next turn
        self._is_busy = False  # with its last packet: `busy`
        self._is_again = False  # the packet that is being handled comes again: `again`
        self._linger: asyncio.TimerHandle | None = None
        self.is_closing = False
        self.address = ""  # of the client
        self.heard_at = self._loop.time()  # when the last whole packet came

    # For subclasses.

    def on_packet(self, first: int, body: bytes) -> None:
        raise NotImplementedError

    def on_malformed(self, error: MalformedPacket) -> None:
        raise NotImplementedError

    def on_lost(self) -> None:
        raise NotImplementedError

    def on_writable(self) -> None:
        raise NotImplementedError

    @property
    def is_writable(self) -> bool:
        """Whether the client reads what it is sent."""
        return not self._is_paused and self._out_bytes < self._write_bytes_max and not self.is_closing

    @property
    def is_within_packet(self) -> bool:
        """Whether a packet has begun and is not whole."""
        return bool(self._buffer) and not self._has_more and not self._is_stopped

    @property
    def unsent(self) -> int:
        """Octets that the kernel has no room for."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        """Written together with everything else of this turn."""
        if not self._out:
            self._turn.add(self)
        self._out.append(data)
        self._out_bytes += len(data)

    def hold(self, is_held: bool) -> None:
        """Stop reading from this client, or go on."""
        if is_held != self._is_held:
            self._is_held = is_held
            if not is_held and not self._has_more:
                self._has_more = True
                self._loop.call_soon(self._go_on)
            self._set_reading()

    def busy(self, is_busy: bool) -> None:
        """A packet takes several turns: the next ones wait until it is done."""
        self._is_busy = is_busy
        if not is_busy and not self.is_closing and not self._has_more:
            self._has_more = True
            self._loop.call_soon(self._go_on)
        self._set_reading()

    def slow(self, seconds: float) -> None:
        """Read nothing from this client for so long, or for `SLOW_MAX`: TCP makes it wait."""
        if self._slowed is None and not self.is_closing:
            self._slowed = self._loop.call_later(min(seconds, SLOW_MAX), self._on_slowed)
            self._set_reading()

    def again(self, seconds: float) -> None:
        """Called by `on_packet`, which has done nothing with this packet: it comes once more after a while,
        and what the client has sent behind it waits."""
        self._is_again = True
        self.slow(seconds)

    def close(self, *, at_once: bool = False) -> None:
        """Send what is to be sent, then close; nothing more is handled.

        What the client still sends is read and ignored for `LINGER`: closing with unread octets would make
        TCP reset the connection, and the client might never see the reason.
        """
        if self.is_closing:
            return
        self.flush()
        self.is_closing = True
        self._forget_incoming()
        self._is_held = self._is_busy = self._has_more = False
        self._end_slow()
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

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._write_bytes_max)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        peer: socket.socket | None = transport.get_extra_info("socket")
        if peer is not None:
            # TCP notices when the machine of a client without keep alive is gone.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        if self._lacking > len(data):
            self._lacking -= len(data)
            self._more.append(data)
            return
        self._lacking = 0
        if self._more:
            self._buffer = b"".join([self._buffer, *self._more, data])
            self._more.clear()
            self._turn.receives(self, 0)
        else:
            self._buffer = self._buffer + data if self._buffer else data
        if not self._has_more and not self._is_stopped:
            self._work()

    def connection_lost(self, exception: Exception | None) -> None:
        self.is_closing = True
        self._forget_incoming()
        self._turn.leave(self)
        self._transport = None
        self._end_slow()
        if self._linger is not None:
            self._linger.cancel()
        self.on_lost()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if not self.is_closing:
            self.on_writable()

    # Private.

    def _forget_incoming(self) -> None:
        self._buffer = b""
        self._more.clear()
        self._lacking = 0
        self._turn.receives(self, 0)

    @property
    def _is_stopped(self) -> bool:
        return self._is_held or self._is_busy or self._slowed is not None

    def _on_slowed(self) -> None:
        self._slowed = None
        if not self.is_closing and not self._has_more:
            self._has_more = True
            self._loop.call_soon(self._go_on)

    def _end_slow(self) -> None:
        if self._slowed is not None:
            self._slowed.cancel()
            self._slowed = None

    def flush(self) -> None:
        """Called by `Turn`."""
        out = self._out
        if out and not self.is_closing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            if self._out_bytes > LARGE_BYTES:
                self._turn.check_unsent(self)
        if out:
            out.clear()
            self._out_bytes = 0

    def _work(self) -> None:
        """Handle up to a slice of the packets that are whole."""
        try:
            left = self._take_packets()
        except MalformedPacket as error:
            self._has_more = False
            self.on_malformed(error)
            return
        if self.is_closing:
            return
        more = left == 0
        if more != self._has_more:
            self._has_more = more
            self._set_reading()
        if more:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._has_more = False
        if not self.is_closing and not self._is_stopped:
            self._work()
        self._set_reading()

    def _take_packets(self) -> int:
        """Returns how much of the slice is left; 0: there may be more packets."""
        data = self._buffer
        at, end = 0, len(data)
        left = SLICE
        try:
            while left and end - at >= 2:
                length = data[at + 1]
                start = at + 2
                if length >= 0x80:
                    if start < end and (second := data[start]) < 0x80:
                        length += (second << 7) - 0x80  # two octets: nearly every longer packet
                        start += 1
                    else:
                        long = _long_length(data, at + 1)
                        if long is None:
                            break
                        length, start = long
                stop = start + length
                if stop - at > self._packet_bytes_max:
                    raise MalformedPacket("packet", 0, f"has {length} octets", ReasonCode.PACKET_TOO_LARGE)
                if stop > end:
                    if stop - at > LARGE_BYTES:
                        self._expect(stop - at, stop - end)
                    break
                begin, at = at, stop
                left -= 1
                self.on_packet(data[begin], data[start:stop])
                # `_is_stopped` in full: a call less for each packet
                if self.is_closing or self._is_held or self._is_busy or self._slowed is not None:
                    if self._is_again:
                        self._is_again, at = False, begin
                    break
        finally:
            if left != SLICE:
                self.heard_at = self._loop.time()
            self._buffer = b"" if self.is_closing else data[at:]
        return left

    def _expect(self, octets: int, lacking: int) -> None:
        """A large packet has begun."""
        if not self._turn.receives(self, octets):
            raise MalformedPacket(
                "packet", 0, "is one large one too many for this node now", ReasonCode.QUOTA_EXCEEDED
            )
        self._lacking = lacking

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._has_more or self._is_stopped:
            if transport.is_reading():
                transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()


def _long_length(data: bytes, at: int) -> tuple[int, int] | None:
    """A remaining length of two to four octets and the position after it; None if it is not whole."""
    length = 0
    for count in range(4):
        if at + count >= len(data):
            return None
        octet = data[at + count]
        length |= (octet & 0x7F) << (7 * count)
        if octet < 0x80:
            return length, at + count + 1
    raise MalformedPacket("remaining length", 1, "has more than 4 octets")
