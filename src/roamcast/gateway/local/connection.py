"""One connected client: its octets as messages, and flow control between clients.

Reading is fair: after `SLICE` messages of one client the others have their turn. While messages of a client
wait we read no more of them, so that its socket slows a client that publishes faster than the node works.
What is to be written in one turn of the loop is written in one call.

A client that reads more slowly than another one publishes for it slows that publisher down: while more than
`BEHIND_BYTES` wait for the reader, the publisher's messages are left unread. This lasts until the reader has
caught up, or for `READER_TIMEOUT`. After that nobody waits for the reader until it has caught up. Past
`WAITING_BYTES_MAX` events for it are counted instead of delivered, and a `MissedEvents` message gives it the
number. Events that came over the mesh or from another gateway slow nobody down.

Large payloads are counted apart: all clients that wait for one have the same octets. What the kernel has no
room for stays here, and is copied a slice at a time.

Answers to its own requests are always sent; while a client does not read them, we do not read it.
"""

import asyncio
import socket
import struct
from collections import deque
from typing import Protocol

from roamcast.errors import WireError
from roamcast.event import LARGE_BYTES_MAX, PAYLOAD_BYTES_MAX
from roamcast.gateway.local.session import LocalSession
from roamcast.wire.local import (
    FROM_CLIENT,
    FROM_NODE,
    AnswerMessage,
    ClientMessage,
    EventMessage,
    Failed,
    MissedEvents,
    NodeMessage,
    Unframer,
    UnreadableMessageError,
    framed,
    framed_pieces,
)

# Chosen by us.
SLICE = 64  # messages of one client before the next one's turn
WRITTEN_BYTES_MAX = 256 * 1024  # in asyncio's buffer, which asks for more when a quarter of it is left
BEHIND_BYTES = 256 * 1024  # waiting in addition to that
READER_TIMEOUT = (
    0.5  # seconds to read three quarters of 256 KiB: a publisher is slowed to some 400 kB/s at most
)
REFUSAL_SECONDS = 2.0  # for a client too many to say something and hear why
WAITING_BYTES_MAX = 4 * 1024 * 1024
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class LocalServerView(Protocol):
    """The listener, as a connection sees it."""

    publisher: "ClientConnection | None"  # whose message is being handled
    refused: int

    @property
    def full(self) -> str:
        """Why a client too many is refused."""
        ...

    def session(self, connection: "ClientConnection") -> LocalSession | None: ...

    def left(self, connection: "ClientConnection") -> None: ...


class ClientConnection(asyncio.Protocol):
    def __init__(self, server: LocalServerView) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._session: LocalSession | None = None
        self._transport: asyncio.Transport | None = None
        self.user: int | None = None  # of the device, whose program it is
        self._unframer: Unframer[ClientMessage] = Unframer(FROM_CLIENT)
        self._has_more = False  # whole messages may wait for our next turn
        self._waits_for: dict[ClientConnection, None] = {}  # clients that must catch up first
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        self._large_bytes = 0  # of large payloads that wait
        self._missed = 0
        self._writable = True
        self._holds_up: dict[ClientConnection, None] = {}  # publishers that wait for this client
        self._reader_timeout: asyncio.TimerHandle | None = None
        self._is_slow = False  # it took too long: nobody waits for it
        self._slowed: asyncio.TimerHandle | None = None
        self._refusal: asyncio.TimerHandle | None = None  # of a client too many, until it says something

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITTEN_BYTES_MAX)
        self.user = _user_of(transport)
        self._session = self._server.session(self)
        if self._session is None:
            # It gets the reason in answer to its hello: before that it may not read, and would see a reset.
            self._refusal = self._loop.call_later(REFUSAL_SECONDS, transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for timer in (self._refusal, self._slowed):
            if timer is not None:
                timer.cancel()
        self._slowed = None
        self._let_go()
        for other in self._waits_for:
            other._holds_up.pop(self, None)
        self._waits_for.clear()
        self._server.left(self)
        self._work_off()
        self._end_session()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._append(Failed(0, self._server.full))
            self.close()
            return
        self._unframer.push(data)
        if self._may_work:
            self._work()
            self._set_reading()

    def pause_writing(self) -> None:
        self._writable = False
        self._set_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._flush()
        self._is_slow = False
        self._let_go()
        self._go_on()

    # Inputs.

    def send(self, message: NodeMessage) -> None:
        if self._transport is None:
            return
        if isinstance(message, EventMessage | AnswerMessage):
            is_large = len(message.event.payload) > PAYLOAD_BYTES_MAX
            if self._waiting_bytes > WAITING_BYTES_MAX or (is_large and self._large_bytes > LARGE_BYTES_MAX):
                self._missed += 1
                return
            if self._missed:
                missed, self._missed = self._missed, 0
                self._append(MissedEvents(missed))
        self._append(message)
        publisher = self._server.publisher
        if publisher is not None and self._waiting_bytes > BEHIND_BYTES and not self._is_slow:
            self._hold_up(publisher)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # Reading.

    @property
    def _may_work(self) -> bool:
        return self._writable and not self._waits_for and not self._has_more and self._slowed is None

    def _work(self) -> None:
        """Handle up to a slice of the messages that are whole."""
        server = self._server
        server.publisher = self
        try:
            for _ in range(SLICE):
                if self._session is None or (message := self._unframer.pop()) is None:
                    return
                self._session.on_message(message)
                if self._session.wait:
                    self._slow()
                    return
                if self._waits_for:
                    return
        except UnreadableMessageError as error:
            self._answer(error)
        except WireError:
            self._refuse()
            return
        finally:
            server.publisher = None
        self._has_more = True
        self._loop.call_soon(self._on_turn)

    def _answer(self, error: UnreadableMessageError) -> None:
        """A message that cannot be read; the next may be good, and has its turn later."""
        self._server.refused += 1
        try:
            if self._session is not None:
                self._session.on_unreadable(error)
        except WireError:  # before the hello: this is no client of ours
            self._end_session()
            self.close()

    def _work_off(self) -> None:
        """The client is gone. The messages that it sent before are handled, without flow control."""
        while self._session is not None:
            try:
                if (message := self._unframer.pop()) is None:
                    return
                self._session.on_message(message)
            except UnreadableMessageError as error:
                self._answer(error)
            except WireError:
                self._refuse()

    def _refuse(self) -> None:
        """A message that breaks the protocol: end the session and read nothing more."""
        self._server.refused += 1
        self._end_session()
        self.close()

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _slow(self) -> None:
        """The mesh is slower than this publisher: its next message is read when the time has come."""
        assert self._session is not None
        wait, self._session.wait = self._session.wait, 0.0
        self._slowed = self._loop.call_later(wait, self._on_slowed)

    def _on_slowed(self) -> None:
        self._slowed = None
        self._go_on()

    def _on_turn(self) -> None:
        self._has_more = False
        self._go_on()

    def _go_on(self) -> None:
        if self._may_work:
            self._work()
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._may_work:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # Flow control.

    def _hold_up(self, publisher: "ClientConnection") -> None:
        if publisher in self._holds_up or publisher._transport is None:
            return
        self._holds_up[publisher] = None
        publisher._waits_for[self] = None
        if self._reader_timeout is None:
            self._reader_timeout = self._loop.call_later(READER_TIMEOUT, self._on_reader_timeout)

    def _on_reader_timeout(self) -> None:
        self._is_slow = True
        self._let_go()

    def _let_go(self) -> None:
        if self._reader_timeout is not None:
            self._reader_timeout.cancel()
            self._reader_timeout = None
        held, self._holds_up = self._holds_up, {}
        for publisher in held:
            del publisher._waits_for[self]
            if not publisher._waits_for:
                self._loop.call_soon(publisher._go_on)

    # Writing.

    def _append(self, message: NodeMessage) -> None:
        begins, *payload = framed_pieces(message)
        if not self._waiting and self._writable:
            self._loop.call_soon(self._flush)
        self._waiting.append(begins)
        self._waiting_bytes += len(begins)
        if payload:
            self._waiting.append(memoryview(payload[0]))
            self._large_bytes += len(payload[0])

    def _flush(self) -> None:
        if self._transport is None or not self._writable:
            return
        while self._waiting and self._writable:
            self._transport.write(b"".join(self._taken()))
        if self._missed and self._writable:
            missed, self._missed = self._missed, 0
            self._transport.write(framed(FROM_NODE.encode(MissedEvents(missed))))

    def _taken(self) -> list[bytes | memoryview]:
        """What is written in one call."""
        taken: list[bytes | memoryview] = []
        room = WRITTEN_BYTES_MAX
        while self._waiting and room > 0:
            data = self._waiting.popleft()
            if isinstance(data, memoryview):
                if len(data) > room:
                    self._waiting.appendleft(data[room:])
                    data = data[:room]
                self._large_bytes -= len(data)
            else:
                self._waiting_bytes -= len(data)
            taken.append(data)
            room -= len(data)
        return taken


def _user_of(transport: asyncio.Transport) -> int | None:
    """The other side's user as the kernel knows it (SO_PEERCRED, unix(7))."""
    opened = transport.get_extra_info("socket")
    if opened is None:
        return None
    try:
        octets = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    user: int = _CREDENTIALS.unpack(octets)[1]
    return user
