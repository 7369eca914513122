"""The local socket: clients come and go, each with a session of its own.

A client that reads too slowly loses events, never the node its memory: past `WAITING_BYTES_MAX` what is
to be delivered to it is counted instead, and a `Missed` message tells it as soon as it reads again.
Answers to its own requests are always sent; while it does not read them, we do not read it.
"""

import asyncio
import errno
import os
import socket
import stat
from pathlib import Path

import msgspec

from roamcast.errors import InputError, WireError
from roamcast.gateway.local.session import LocalNode, LocalSession
from roamcast.wire.local import (
    FROM_CLIENT,
    FROM_NODE,
    ClientMessage,
    Delivered,
    Missed,
    NodeMessage,
    Unframer,
    framed,
)

WAITING_BYTES_MAX = 4 * 1024 * 1024


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    socket: str = "roamcast.sock"
    clients_max: int = 100


class LocalServer:
    def __init__(self, node: LocalNode, options: LocalOptions) -> None:
        self._node = node
        self._path = Path(options.socket)
        self._clients_max = options.clients_max
        self._server: asyncio.Server | None = None
        self.clients: set[ClientConnection] = set()
        self.refused = 0  # messages that no client of ours would send, and clients beyond the bound

    async def start(self) -> None:
        """Listen; InputError if the socket cannot be made, or another node has it."""
        self._remove_left_over()
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: ClientConnection(self), str(self._path)
            )
        except OSError as error:
            raise InputError(str(self._path), f"no socket can be made here: {reason(error)}") from None
        os.chmod(self._path, 0o660)  # the owner and the group; the door is the device's, not the world's

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for client in list(self.clients):
                client.close()
            await self._server.wait_closed()
            self._path.unlink(missing_ok=True)

    def session(self, connection: "ClientConnection") -> LocalSession | None:
        if len(self.clients) >= self._clients_max:
            self.refused += 1
            return None
        self.clients.add(connection)
        return LocalSession(self._node, connection.send)

    def _remove_left_over(self) -> None:
        """A killed node leaves its socket behind; one that answers belongs to a node that lives."""
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


class ClientConnection(asyncio.Protocol):
    """One connected client; what is to be written in one loop turn is written at once."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._session: LocalSession | None = None
        self._transport: asyncio.Transport | None = None
        self._unframer: Unframer[ClientMessage] = Unframer(FROM_CLIENT)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._missed = 0
        self._writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=1024 * 1024)
        self._session = self._server.session(self)
        if self._session is None:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.clients.discard(self)
        if self._session is not None:
            self._session.close()
            self._session = None

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unframer.feed(data):
                if self._session is None:
                    return
                self._session.on_message(message)
        except WireError:
            self._server.refused += 1
            self.close()

    def pause_writing(self) -> None:
        self._writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        if self._transport is not None:
            self._transport.resume_reading()
        self._flush()

    def send(self, message: NodeMessage) -> None:
        if self._transport is None:
            return
        if isinstance(message, Delivered):
            if self._waiting_bytes > WAITING_BYTES_MAX:
                self._missed += 1
                return
            if self._missed:
                missed, self._missed = self._missed, 0
                self._append(Missed(missed))
        self._append(message)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def _append(self, message: NodeMessage) -> None:
        data = framed(FROM_NODE.encode(message))
        if not self._waiting and self._writable:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _flush(self) -> None:
        if self._transport is None or not self._writable:
            return
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._transport.write(b"".join(waiting))
        if self._missed and self._writable:
            missed, self._missed = self._missed, 0
            self._transport.write(framed(FROM_NODE.encode(Missed(missed))))


def reason(error: OSError) -> str:
    """What the system says, without the numbers and the path."""
    if error.errno is None:
        return str(error)  # "AF_UNIX path too long"
    return os.strerror(error.errno) if error.errno != errno.ENOENT else "the folder does not exist"
