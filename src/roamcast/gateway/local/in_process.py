"""A client in the node's own process: the same interface, without a socket and without octets."""

from collections.abc import Callable

from roamcast.client import Client
from roamcast.gateway.local.session import LocalSession
from roamcast.gateway.node import GatewayNode
from roamcast.wire.local import ClientMessage, NodeMessage


class DirectLink:
    """Client and session connected directly (`roamcast.client.NodeLink`)."""

    def __init__(self, node: GatewayNode, on_message: Callable[[NodeMessage], None]) -> None:
        self._session = LocalSession(node, on_message)

    def send(self, message: ClientMessage) -> None:
        self._session.on_message(message)

    async def drain(self) -> None:
        """Nothing waits: a message has been handled when `send` returns."""

    def close(self) -> None:
        self._session.close()


async def client_of(node: GatewayNode, *, name: str = "", addressed: bool = False) -> Client:
    """A client of a node that runs in this process and loop."""
    return await Client.open(
        lambda on_message, on_lost: DirectLink(node, on_message), name=name, addressed=addressed
    )
