"""A way to the node without Unix sockets: by the token file that it wrote (`wire/token.py`)."""

import asyncio
import secrets
import socket
from pathlib import Path

from roamcast.client.client import ClientError
from roamcast.errors import WireError
from roamcast.wire.local import (
    LOOPBACK,
    NONCE_BYTES,
    PROOF_BYTES,
    TEXT_LENGTH_MAX,
    AccessToken,
    is_proof,
)

ADMITTED_SECONDS = 5.0  # chosen by us; both sides are on one device


async def admitted(path: Path) -> socket.socket:
    """A connection with the node whose token file this is; both have proven that they know the token."""
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
