"""The door for programs without Unix sockets: a port of the loopback, opened by the token file."""

import asyncio
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from roamcast.errors import InputError
from roamcast.wire.local import LOOPBACK, NONCE_BYTES, PROOF_BYTES, TOKEN_BYTES, AccessToken, is_proof

# Chosen by us.
PROOF_SECONDS = 2.0  # for a program to prove that it knows the token
STRANGERS_MAX = 32  # programs that have not proven it yet


class TokenDoor:
    """Listens between `open` and `close`; who has proven itself gets the protocol that `admitted` makes."""

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
