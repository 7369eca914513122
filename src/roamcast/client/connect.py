"""The link over the local socket, and how programs and commands find it."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from roamcast.client.client import Client, ClientError
from roamcast.errors import WireError
from roamcast.wire.local import (
    FROM_CLIENT,
    FROM_NODE,
    LOOPBACK,
    NONCE_BYTES,
    PROOF_BYTES,
    TEXT_LENGTH_MAX,
    AccessToken,
    ClientMessage,
    NodeMessage,
    Unframer,
    framed,
    is_proof,
)

DEFAULT_SOCKET = "roamcast.sock"
Result = TypeVar("Result")
RETRY_INTERVAL = 0.2  # seconds; chosen by us: a local attempt to connect costs next to nothing


@asynccontextmanager
async def connect(
    path: str | Path = DEFAULT_SOCKET,
    *,
    name: str = "",
    addressed: bool = False,
    reconnect: bool = False,
    wait: float = 0.0,
) -> AsyncIterator[Client]:
    """A client of the node that listens at `path`; ClientError if none does within `wait` seconds.

    With `reconnect` the client waits for a node that does not run yet, or that has stopped, to start; its
    subscriptions go on and get each event once. Publications fail meanwhile.
    """
    client = await open_client(path, name=name, addressed=addressed, reconnect=reconnect, wait=wait)
    watch = asyncio.ensure_future(_stay_connected(client, path)) if reconnect else None
    try:
        yield client
    finally:
        if watch is not None:
            watch.cancel()
        await client.close()


async def open_client(
    path: str | Path,
    *,
    name: str = "",
    addressed: bool = False,
    reconnect: bool = False,
    wait: float = 0.0,
) -> Client:
    """As `connect`, but not a context manager: the caller closes the client."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    while True:
        try:
            return await Client.open(await _link_to(path), name=name, addressed=addressed)
        except ClientError:
            if not reconnect and loop.time() >= until:
                raise
            await asyncio.sleep(RETRY_INTERVAL)


async def _stay_connected(
    client: Client, path: str | Path, on_lost: Callable[[str], None] = lambda problem: None
) -> None:
    client.keep = True
    while True:
        on_lost(await asyncio.shield(client.lost))
        while True:
            try:
                await client.resume(await _link_to(path))
                break
            except ClientError:
                await asyncio.sleep(RETRY_INTERVAL)


async def _link_to(
    path: str | Path,
) -> Callable[[Callable[[NodeMessage], None], Callable[[str], None]], "SocketLink"]:
    link = SocketLink()
    loop = asyncio.get_running_loop()
    try:
        if Path(path).is_file():
            await loop.create_connection(lambda: link, sock=await admitted(Path(path)))
        elif hasattr(socket, "AF_UNIX"):
            await loop.create_unix_connection(lambda: link, str(path))
        else:
            raise ClientError(f"{path}: is no token file of a node, and this system has no Unix sockets")
    except OSError as error:
        raise ClientError(f"{path}: no node answers here ({error.strerror or error})") from None

    def listen(on_message: Callable[[NodeMessage], None], on_lost: Callable[[str], None]) -> SocketLink:
        link.listen(on_message, on_lost)
        return link

    return listen


class SocketLink(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._unframer: Unframer[NodeMessage] = Unframer(FROM_NODE)
        self._on_message: Callable[[NodeMessage], None] | None = None
        self._on_lost: Callable[[str], None] | None = None
        self._waiting: list[bytes] = []
        self._room = asyncio.Event()
        self._room.set()

    def listen(self, on_message: Callable[[NodeMessage], None], on_lost: Callable[[str], None]) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        if self._transport is None:
            on_lost("the node closed the connection")

    def send(self, message: ClientMessage) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(framed(FROM_CLIENT.encode(message)))

    async def drain(self) -> None:
        if len(self._waiting) > 100:
            self._flush()
        await self._room.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._room.set()
        if self._on_lost is not None:
            self._on_lost("the node closed the connection" if error is None else f"the node is gone: {error}")

    def data_received(self, data: bytes) -> None:
        assert self._on_message is not None
        try:
            for message in self._unframer.feed(data):
                self._on_message(message)
        except WireError as error:
            if self._on_lost is not None:
                self._on_lost(f"this is no node, or one of another version: {error}")
            self.close()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def _flush(self) -> None:
        if self._waiting and self._transport is not None:
            waiting, self._waiting = self._waiting, []
            self._transport.write(b"".join(waiting))


ADMITTED_SECONDS = 5.0  # chosen by us; both sides are on one device


async def admitted(path: Path) -> socket.socket:
    """The way to the node without Unix sockets, by the token file that it wrote (`wire/local.py`).

    A connection with the node whose token file this is; both have proven that they know the token."""
    try:
        with path.open() as file:
            token = AccessToken.from_text(file.read(TEXT_LENGTH_MAX))
    except (WireError, UnicodeDecodeError):
        raise ClientError(f"{path}: is neither a node's socket nor the token file of one") from None
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    try:
        async with asyncio.timeout(ADMITTED_SECONDS):
            await asyncio.get_running_loop().sock_connect(opened, (LOOPBACK, token.port))
            await _prove(opened, token, path)
    except BaseException as error:
        opened.close()
        if isinstance(error, TimeoutError):
            raise ClientError(f"{path}: no node answers at port {token.port}") from None
        raise
    return opened


async def _prove(opened: socket.socket, token: AccessToken, path: Path) -> None:
    loop = asyncio.get_running_loop()
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    own = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(opened, own)
    answer = b""
    while len(answer) < NONCE_BYTES + PROOF_BYTES:
        octets = await loop.sock_recv(opened, NONCE_BYTES + PROOF_BYTES - len(answer))
        if not octets:
            raise ClientError(f"{path}: the program at port {token.port} is not this node")
        answer += octets
    theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not is_proof(proof, token.node_proof(own, theirs)):
        raise ClientError(f"{path}: the program at port {token.port} is not this node")
    await loop.sock_sendall(opened, token.client_proof(own, theirs))


class NodePlace(NamedTuple):
    """Where a command finds its node: the socket, and how long to wait (seconds) for a node to listen
    there; `addressed`: the command also wants what is sent to the node by name."""

    socket: Path
    wait: float = 0.0
    addressed: bool = False

    def run(self, name: str, use: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
        """What a command does with a client of the node."""

        async def connected() -> Result:
            async with connect(self.socket, name=name, addressed=self.addressed, wait=self.wait) as client:
                return await use(client)

        return asyncio.run(connected())

    def stay(
        self,
        name: str,
        use: Callable[[Client], Coroutine[Any, Any, Result]],
        on_lost: Callable[[str], None],
    ) -> Result:
        """The same, with a client that waits for the node whenever it is gone."""

        async def connected() -> Result:
            client = await open_client(self.socket, name=name, addressed=self.addressed, wait=self.wait)
            watch = asyncio.ensure_future(_stay_connected(client, self.socket, on_lost))
            try:
                return await use(client)
            finally:
                watch.cancel()
                await client.close()

        return asyncio.run(connected())
