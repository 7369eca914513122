"""The local socket: clients come and go, each with a connection and a session of its own."""

import asyncio
import errno
import os
import pwd
import socket
import stat
from pathlib import Path
from typing import Annotated

import msgspec

from roamcast.errors import InputError
from roamcast.gateway.local.connection import ClientConnection
from roamcast.gateway.local.session import LocalSession
from roamcast.gateway.local.token import TokenDoor
from roamcast.gateway.node import GatewayNode
from roamcast.gateway.rights import Rights, TopicRights, rights_of
from roamcast.gateway.stream import Turn
from roamcast.wire.local import SUFFIX


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
