"""One connected client: its messages, and flow control between clients. `gateway/stream.py` moves octets.

A client that reads more slowly than another one publishes for it slows that publisher down: while more than
`BEHIND_BYTES` wait for the reader, the publisher's messages are left unread. This lasts until the reader has
caught up, or for `READER_TIMEOUT`. After that nobody waits for the reader until it has caught up. Past
`WAITING_BYTES_MAX` events for it are counted instead of delivered, and a `MissedEvents` message gives it the
number. Events that came over the mesh or from another gateway slow nobody down.

Answers to its own requests are always sent; while a client does not read them, we do not read it.
"""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from roamcast.errors import WireError
from roamcast.event import LARGE_BYTES_MAX, PAYLOAD_BYTES_MAX
from roamcast.gateway.local.session import LocalSession
from roamcast.gateway.stream import FairStream, Turn
from roamcast.wire.local import (
    FROM_CLIENT,
    AnswerMessage,
    ClientMessage,
    EventMessage,
    Failed,
    MissedEvents,
    NodeMessage,
    Unframer,
    UnreadableMessageError,
    framed_pieces,
)

if TYPE_CHECKING:
    from roamcast.gateway.local.server import LocalServer

# Chosen by us.
BEHIND_BYTES = 256 * 1024  # waiting in addition to those in asyncio's buffer
READER_TIMEOUT = (
    0.5  # seconds to read three quarters of 256 KiB: a publisher is slowed to some 400 kB/s at most
)
REFUSAL_SECONDS = 2.0  # for a client too many to say something and hear why
WAITING_BYTES_MAX = 4 * 1024 * 1024
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class ClientConnection(FairStream[ClientMessage]):
    def __init__(self, server: "LocalServer", turn: Turn) -> None:
        super().__init__(turn, Unframer(FROM_CLIENT))
        self._server = server
        self._session: LocalSession | None = None
        self.user: int | None = None  # of the device, whose program it is
        self._waits_for: dict[ClientConnection, None] = {}  # clients that must catch up first
        self._missed = 0
        self._holds_up: dict[ClientConnection, None] = {}  # publishers that wait for this client
        self._reader_timeout: asyncio.TimerHandle | None = None
        self._is_slow = False  # it took too long: nobody waits for it
        self._refusal: asyncio.TimerHandle | None = None  # of a client too many, until it says something

    @property
    def is_waited_for(self) -> bool:
        """Whether a publisher waits until this client has caught up."""
        return bool(self._holds_up)

    # From the stream.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.user = _user_of(transport)
        self._session = self._server.session(self)
        if self._session is None:
            # It gets the reason in answer to its hello: before that it may not read, and would see a reset.
            self._refusal = self._loop.call_later(REFUSAL_SECONDS, self.abandon)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._append(Failed(0, self._server.full))
            self.close()
        super().data_received(data)

    def on_item(self, item: ClientMessage) -> None:
        if self._session is None:
            return
        self._server.publisher = self
        try:
            self._session.on_message(item)
        finally:
            self._server.publisher = None
        if self._session.wait:
            # The mesh is slower than this publisher: its next message is read when the time has come.
            wait, self._session.wait = self._session.wait, 0.0
            self.slow(wait)

    def on_malformed(self, error: WireError) -> None:
        """One message that cannot be read is answered, and the next may be good. What breaks the protocol
        ends the session, and nothing more is read."""
        self._server.refused += 1
        try:
            if isinstance(error, UnreadableMessageError) and self._session is not None:
                self._session.on_unreadable(error)
                return
        except WireError:
            pass  # before the hello: this is no client of ours
        self._end_session()
        self.close()

    def on_lost(self) -> None:
        """The messages that the client sent before it went are handled, without flow control."""
        if self._refusal is not None:
            self._refusal.cancel()
        self._let_go()
        for other in self._waits_for:
            other._holds_up.pop(self, None)
        self._waits_for.clear()
        self._server.left(self)
        while self._session is not None:
            try:
                if (message := self._framer.pop()) is None:
                    break
                self._session.on_message(message)
            except WireError as error:
                self.on_malformed(error)
        self._end_session()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.hold("unread")

    def on_writable(self) -> None:
        self._tell_missed()
        self._is_slow = False
        self._let_go()
        self.release("unread")

    # Inputs.

    def send_message(self, message: NodeMessage) -> None:
        if self._transport is None:
            return
        if isinstance(message, EventMessage | AnswerMessage):
            is_large = len(message.event.payload) > PAYLOAD_BYTES_MAX
            if self._out_bytes > WAITING_BYTES_MAX or (is_large and self._shared_bytes > LARGE_BYTES_MAX):
                self._missed += 1
                return
            self._tell_missed()
        self._append(message)
        publisher = self._server.publisher
        if publisher is not None and self._out_bytes > BEHIND_BYTES and not self._is_slow:
            self._hold_up(publisher)

    # Private.

    def _append(self, message: NodeMessage) -> None:
        begins, *payload = framed_pieces(message)
        self.send(begins)
        for octets in payload:
            self.send_shared(memoryview(octets))

    def _tell_missed(self) -> None:
        if self._missed:
            missed, self._missed = self._missed, 0
            self._append(MissedEvents(missed))

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _hold_up(self, publisher: "ClientConnection") -> None:
        if publisher in self._holds_up or publisher._transport is None:
            return
        self._holds_up[publisher] = None
        publisher._waits_for[self] = None
        publisher.hold("reader")
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
                publisher.release("reader")


def _user_of(transport: asyncio.BaseTransport) -> int | None:
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
