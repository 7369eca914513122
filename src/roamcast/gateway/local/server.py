"""The local socket: clients come and go, each with a connection and a session of its own.

`gateway/stream.py` moves octets; here is flow control between clients. A client that reads more slowly than
another one publishes for it slows that publisher down: while more than `BEHIND_BYTES` wait for the reader,
the publisher's messages are left unread. This lasts until the reader has caught up, or for
`READER_TIMEOUT`. After that nobody waits for the reader until it has caught up. Past `WAITING_BYTES_MAX`
events for it are counted instead of delivered, and a `MissedEvents` message gives it the number. Events
that came over the mesh or from another gateway slow nobody down.

Answers to its own requests are always sent; while a client does not read them, we do not read it.
"""

import asyncio
import errno
import os
import pwd
import secrets
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from roamcast.errors import InputError, WireError
from roamcast.event import LARGE_BYTES_MAX, PAYLOAD_BYTES_MAX
from roamcast.gateway.access import TopicRights, rights_of
from roamcast.gateway.local.session import LocalSession
from roamcast.gateway.node import GatewayNode
from roamcast.gateway.options import LocalOptions
from roamcast.gateway.stream import FairStream, Turn
from roamcast.wire.local import (
    FROM_CLIENT,
    LOOPBACK,
    NONCE_BYTES,
    PROOF_BYTES,
    SUFFIX,
    TOKEN_BYTES,
    AccessToken,
    AnswerMessage,
    ClientMessage,
    DeliveryMessage,
    Failed,
    MissedEvents,
    NodeMessage,
    Unframer,
    UnreadableMessageError,
    framed_pieces,
    is_proof,
)

# Chosen by us.
BEHIND_BYTES = 256 * 1024  # waiting in addition to those in asyncio's buffer
READER_TIMEOUT = (
    0.5  # seconds to read three quarters of 256 KiB: a publisher is slowed down to no less than some 400 kB/s
)
REFUSAL_SECONDS = 2.0  # time for a client beyond the limit to say hello and be told why it is refused
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
        if self._missed:
            self._tell_missed()
        self._is_slow = False
        self._let_go()
        self.release("unread")

    # Inputs.

    def send_message(self, message: NodeMessage) -> None:
        if self._transport is None:
            return
        if isinstance(message, DeliveryMessage | AnswerMessage):
            is_large = len(message.event.payload) > PAYLOAD_BYTES_MAX
            if self._out_bytes > WAITING_BYTES_MAX or (is_large and self._shared_bytes > LARGE_BYTES_MAX):
                self._missed += 1
                return
            if self._missed:
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


class LocalServer:
    def __init__(self, node: GatewayNode, options: LocalOptions) -> None:
        self._node = node
        self._path = Path(options.socket)
        self._clients_max = options.clients_max
        self._rights = options.rights
        self._server: asyncio.Server | None = None
        self._door: TokenDoor | None = None
        if options.port is not None:
            token = self._path.with_suffix(SUFFIX)
            self._door = TokenDoor(token, options.port, self._connection)
        self.clients: dict[ClientConnection, None] = {}  # in the order of arrival
        self.publisher: ClientConnection | None = None  # whose message is being handled
        node.counters.gauge("local_clients", lambda: len(self.clients))
        self.refused = 0  # messages that no client of ours would send, and clients beyond the bound

    async def start(self) -> None:
        """Listen; InputError if the socket cannot be made, or another node has it."""
        self._turn = Turn(asyncio.get_running_loop())
        self._remove_left_over()
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                self._connection, str(self._path)
            )
        except OSError as error:
            raise InputError(str(self._path), f"no socket can be made here: {reason(error)}") from None
        os.chmod(self._path, 0o660)  # the owner and the group, nobody else
        if self._door is not None:
            await self._door.open()

    async def stop(self) -> None:
        if self._door is not None:
            await self._door.close()
        if self._server is not None:
            self._server.close()
            for client in list(self.clients):
                client.close(at_once=True)
            await self._server.wait_closed()
            self._path.unlink(missing_ok=True)

    def _connection(self) -> ClientConnection:
        return ClientConnection(self, self._turn)

    def session(self, connection: ClientConnection) -> LocalSession | None:
        if len(self.clients) >= self._clients_max:
            self.refused += 1
            return None
        self.clients[connection] = None
        return LocalSession(self._node, connection.send_message, self._rights_of(connection))

    def _rights_of(self, connection: ClientConnection) -> TopicRights | None:
        """The rights of the program's user. The node's own user has no limits, unless he is named."""
        if not self._rights:
            return None
        number = connection.user
        try:
            name = str(number) if number is None else pwd.getpwuid(number).pw_name
        except KeyError:
            name = str(number)
        if number == os.getuid() and name not in self._rights:
            return None
        return rights_of(self._rights, name)

    @property
    def full(self) -> str:
        return (
            f"the node has {self._clients_max} local clients already (clients.clients_max); "
            "end one of them, or allow more in the node's file"
        )

    def left(self, connection: ClientConnection) -> None:
        self.clients.pop(connection, None)

    def _remove_left_over(self) -> None:
        """A killed node leaves its socket behind; a socket that answers belongs to a running node."""
        try:
            mode = self._path.stat().st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(str(self._path), f"no socket can be made here: {reason(error)}") from None
        if not stat.S_ISSOCK(mode):
            raise InputError(str(self._path), "is a file, not a socket; name another path")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._path))
            except OSError:
                self._path.unlink(missing_ok=True)
            else:
                raise InputError(str(self._path), "another node is listening here")


def reason(error: OSError) -> str:
    """The system's error message, without number and path."""
    if error.errno is None:
        return str(error)  # "AF_UNIX path too long"
    return os.strerror(error.errno) if error.errno != errno.ENOENT else "the folder does not exist"


# Chosen by us.
PROOF_SECONDS = 2.0  # for a program to prove that it knows the token
STRANGERS_MAX = 32  # programs that have not proven it yet


class TokenDoor:
    """For programs without Unix sockets: a port of the loopback, opened by the token file.

    Listens between `open` and `close`; who has proven itself gets the protocol that `admitted` makes."""

    def __init__(self, path: Path, port: int, admitted: Callable[[], asyncio.Protocol]) -> None:
        self._path = path
        self._port = port
        self._admitted = admitted
        self._server: asyncio.Server | None = None
        self.strangers: set[TokenGate] = set()
        self.refused = 0

    async def open(self) -> None:
        """Listen, and write the file; InputError if either fails."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._gate, LOOPBACK, self._port)
        except OSError as error:
            used = error.errno == errno.EADDRINUSE
            problem = "which another program uses" if used else os.strerror(error.errno or 0)
            raise InputError("clients.port", f"is {self._port}, {problem}") from None
        port: int = self._server.sockets[0].getsockname()[1]
        self._token = AccessToken(port, secrets.token_bytes(TOKEN_BYTES))
        try:
            self._path.unlink(missing_ok=True)  # of a run that was killed; perhaps with other permissions
            number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._server.close()
            raise InputError(str(self._path), f"cannot be written: {error.strerror}") from None
        with open(number, "w") as file:
            file.write(self._token.to_text())

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for stranger in list(self.strangers):
                stranger.abort()
            self._path.unlink(missing_ok=True)

    def _gate(self) -> "TokenGate":
        return TokenGate(self, self._token, self._admitted)


class TokenGate(asyncio.Protocol):
    """One connection, until it has proven itself."""

    def __init__(self, door: TokenDoor, token: AccessToken, admitted: Callable[[], asyncio.Protocol]) -> None:
        self._door = door
        self._token = token
        self._admitted = admitted
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._nonce = b""  # ours, once theirs has come
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._door.strangers) >= STRANGERS_MAX:
            self._refuse()
            return
        self._door.strangers.add(self)
        self._timeout = asyncio.get_running_loop().call_later(PROOF_SECONDS, self._refuse)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        theirs = self._received[:NONCE_BYTES]
        if not self._nonce and len(theirs) == NONCE_BYTES:
            self._nonce = secrets.token_bytes(NONCE_BYTES)
            self._transport.write(self._nonce + self._token.node_proof(theirs, self._nonce))
        whole = NONCE_BYTES + PROOF_BYTES
        if len(self._received) < whole:
            return
        if is_proof(self._received[NONCE_BYTES:whole], self._token.client_proof(theirs, self._nonce)):
            self._admit(self._received[whole:])
        else:
            self._refuse()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _admit(self, rest: bytes) -> None:
        assert self._transport is not None
        self._leave()
        admitted = self._admitted()
        self._transport.set_protocol(admitted)
        admitted.connection_made(self._transport)
        if rest:
            admitted.data_received(rest)

    def _refuse(self) -> None:
        self._door.refused += 1
        self.abort()

    def _leave(self) -> None:
        self._door.strangers.discard(self)
        if self._timeout is not None:
            self._timeout.cancel()
