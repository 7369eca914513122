"""The local socket: clients come and go, each with a connection and a session of its own."""

import asyncio
import errno
import os
import pwd
import secrets
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from roamcast.errors import InputError
from roamcast.gateway.access import Rights, TopicRights, rights_of
from roamcast.gateway.local.connection import ClientConnection
from roamcast.gateway.local.session import LocalSession
from roamcast.gateway.node import GatewayNode
from roamcast.gateway.stream import Turn
from roamcast.wire.local import LOOPBACK, NONCE_BYTES, PROOF_BYTES, SUFFIX, TOKEN_BYTES, AccessToken, is_proof


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    socket: str = "roamcast.sock"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None  # of the loopback too; 0: any
    clients_max: int = 100
    rights: Rights = {}  # by user of this device: topic filters; "*": all others


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
        self.clients: set[ClientConnection] = set()
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
        self.clients.add(connection)
        return LocalSession(self._node, connection.send_message, self._rights_of(connection))

    def _rights_of(self, connection: ClientConnection) -> TopicRights | None:
        """By the user whose program it is. The node's own user has no limits, unless he is named."""
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
        self.clients.discard(connection)

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
    """What the system says, without the numbers and the path."""
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
