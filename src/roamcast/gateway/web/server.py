"""The server: one port for the page, the documents about the node and the WebSocket.

server = WebServer(options, users, counters, WebAnswers(…), mqtt_listener)
await server.start()
…
await server.stop()
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from roamcast.errors import InputError
from roamcast.exchange import NodeCounters
from roamcast.gateway.access import server_context
from roamcast.gateway.stream import Turn
from roamcast.gateway.web.answers import Documents, Pages, WebAnswers, WebPolicy
from roamcast.gateway.web.connection import WebConnection
from roamcast.gateway.web.options import WebOptions

if TYPE_CHECKING:  # a server of documents alone needs no MQTT
    from roamcast.gateway.mqtt.connection import Connection
    from roamcast.gateway.mqtt.listener import MqttListener

logger = logging.getLogger("roamcast.web")


class WebServer:
    def __init__(
        self,
        options: WebOptions,
        users: Mapping[str, str],
        counters: NodeCounters,
        documents: Documents,
        mqtt: "MqttListener | None" = None,
        *,
        page: str = "live/node.html",
        base: Path = Path(),
        key: str = "web.port",
        any_host: bool = False,
    ) -> None:
        """`page`: the file that `/` shows. `mqtt`: who serves WebSockets; None: nobody. File names in the
        options are relative to `base`. `key` of the node's file says where it listens. `any_host`: the
        device may be asked by any name, because there is nothing that a stranger's page could use."""
        self.options = options
        self.policy = WebPolicy(options, users, any_host=any_host)
        self.answers = WebAnswers(self.policy, Pages(page) if options.page else None, documents)
        self.port = 0  # once started
        self._counters = counters
        self._mqtt = mqtt
        self._base = base
        self._key = key
        self._server: asyncio.Server | None = None
        self.connections: set[WebConnection] = set()

    @property
    def address(self) -> str:
        """For a browser on this device."""
        scheme = "https" if self.options.tls_certificate else "http"
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"{scheme}://{host}:{self.port}/"

    async def start(self) -> None:
        """Listen. InputError if the port, the certificate or the address cannot be used."""
        options = self.options
        loop = asyncio.get_running_loop()
        self._turn = Turn(loop)
        context = None
        if options.tls_certificate:
            context = server_context("web", self._base, options.tls_certificate, options.tls_key)
        try:
            self._server = await loop.create_server(
                self._connection,
                options.host,
                options.port,
                ssl=context,
                ssl_handshake_timeout=None if context is None else options.request_timeout,
            )
        except OSError as error:
            problem = f"cannot listen on {options.host}, port {options.port}: {error.strerror or error}"
            raise InputError(self._key, problem) from None
        self.port = int(self._server.sockets[0].getsockname()[1])
        if options.page:
            logger.info("the page is at %s", self.address)

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.shut()
        await self._server.wait_closed()
        self._server = None

    # For connections.

    def accept(self) -> "Connection | None":
        return None if self._mqtt is None else self._mqtt.accept(self.policy.users)

    def left(self, connection: WebConnection) -> None:
        self.connections.discard(connection)

    def count(self, name: str, reason: str) -> None:
        self._counters.count(name, 1, reason=reason)

    # Private.

    def _connection(self) -> asyncio.Protocol:
        asking = sum(not one.is_socket for one in self.connections)
        if asking >= self.options.connections_max:
            self.count("web_refused_total", "too_many_connections")
            return RefusedConnection()
        connection = WebConnection(self, self._turn)
        self.connections.add(connection)
        return connection


class RefusedConnection(asyncio.Protocol):
    """One connection too many: closed before it sends anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
