"""The listener: sockets, admission, and the parts put together.

listener = MqttListener(node, options)
await listener.start()
…
await listener.stop()
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from roamcast.errors import InputError
from roamcast.gateway.access import Accounts, rights_of, server_context
from roamcast.gateway.mqtt.connection import ConnectGrant, Connection, published_topic_problem
from roamcast.gateway.mqtt.mesh.exchange import MeshExchange
from roamcast.gateway.mqtt.packets.values import V5, Connect, Properties, ReasonCode
from roamcast.gateway.mqtt.sessions.durable import Notes
from roamcast.gateway.mqtt.sessions.incoming import IncomingMessages
from roamcast.gateway.mqtt.sessions.table import Sessions, session_expiry
from roamcast.gateway.mqtt.transport import UNSENT_BYTES_MAX
from roamcast.gateway.node import GatewayNode
from roamcast.gateway.options import MqttOptions
from roamcast.gateway.stream import Turn
from roamcast.runtime.live.report.journal import ReasonTally
from roamcast.units import Micros, seconds

CLIENT_ID_LENGTH_MAX = 1_024

logger = logging.getLogger("roamcast.mqtt")

LOGIN_WORDS = {"login": "a login with a wrong user name or password"}
_NOT_ADMITTED = {"no": ReasonCode.BAD_USER_OR_PASSWORD, "later": ReasonCode.CONNECTION_RATE_EXCEEDED}


class MqttListener:
    def __init__(
        self, node: GatewayNode, options: MqttOptions, base: Path = Path(), *, listens: bool = True
    ) -> None:
        """File names in the options are relative to `base`. `listens`: false opens no port of its own;
        connections come from another transport (`accept`)."""
        self.options = options
        self._listens = listens
        self._accounts = Accounts(options.users)
        self._base = base
        self._node = node
        self._monotonic = node.world.monotonic
        wall = node.world.wall
        self._notes = Notes(node, self._monotonic, wall, options.queue_messages_max + options.inflight_max)
        self.exchange = MeshExchange(node, options, self._notes, self._monotonic, wall)
        self.incoming = IncomingMessages(node, self.exchange, wall, options.receive_maximum)
        self.sessions = Sessions(self.exchange, self._notes, self.incoming, options, self._monotonic)
        self._servers: list[asyncio.Server] = []
        self.connections: dict[Connection, None] = {}  # in the order of arrival
        self.strangers = Strangers(lambda: self.count_reason("mqtt_refused_total", "too_many_connections"))
        self.turn: Turn | None = None
        self._logins = ReasonTally(logger, "refused", LOGIN_WORDS, frozenset(), self._monotonic())
        self.port = 0  # the plain one, once started
        self.tls_port = 0

    async def start(self) -> None:
        """Listen. InputError if a port, a certificate or an address cannot be used."""
        loop = asyncio.get_running_loop()
        self.turn = Turn(loop, UNSENT_BYTES_MAX)
        context = _tls_context(self.options, self._base) if self._listens else None
        self._node.applications.owed.append(self.sessions.owed)
        self.sessions.restore(self._node.world.wall())
        try:
            if self._listens and self.options.plain:
                self.port = await self._listen("mqtt.port", self.options.port, None)
            if context is not None:
                self.tls_port = await self._listen("mqtt.tls_port", self.options.tls_port, context)
        except InputError:
            await self.stop()
            raise
        counters = self._node.counters
        counters.gauge("mqtt_clients", self._connected)
        counters.gauge("mqtt_sessions", lambda: len(self.sessions))
        counters.gauge("mqtt_waiting", lambda: sum(session.waiting for session in self.sessions))
        counters.gauge("mqtt_in_flight", lambda: sum(session.in_flight for session in self.sessions))
        counters.gauge("mqtt_mesh_subscriptions", lambda: len(self.exchange.interests))
        counters.gauge("mqtt_received", lambda: self.exchange.published)
        counters.gauge("mqtt_matched", lambda: self._notes.matched)
        counters.gauge("mqtt_delivered", lambda: self._notes.reached)
        counters.gauge("mqtt_dropped_total", lambda: self._notes.absent, reason="absent")
        if self._listens:
            logger.info("MQTT on %s, port %s", self.options.host, self.port or self.tls_port)
            if self.exchange.qos_max < 2:
                logger.warning("MQTT: QoS 1 and 2 are refused: %s", self._node.applications.node.unpromised)

    async def stop(self) -> None:
        """Disconnect the clients and publish their wills; durable sessions are kept."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, at_once=True)
        self.incoming.close()
        self.sessions.close()
        if self.sessions.owed in self._node.applications.owed:
            self._node.applications.owed.remove(self.sessions.owed)
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        self.exchange.close()

    def accept(self, accounts: Accounts) -> Connection:
        """A connection for a transport that the caller has, open to these users."""
        assert self.turn is not None
        return Connection(self, self.turn, accounts)

    # For connections.

    def admit(self, connection: Connection, connect: Connect) -> ConnectGrant | ReasonCode:
        """A session for a client, or why not."""
        is_v5 = connect.version == V5
        asked = connect.properties or Properties()
        properties = Properties()
        client_id = connect.client_id
        reason = self._objection(connect, connection)
        if reason is ReasonCode.BAD_USER_OR_PASSWORD:
            who = f"user {(connect.username or '')[:40]!r} from {connection.address}"
            self._logins.count("login", self._monotonic(), who)
        if reason is not None:
            return reason
        rights = rights_of(self.options.rights, connect.username or "")
        if connect.will is not None and rights is not None and not rights.may_publish(connect.will.topic):
            return ReasonCode.NOT_AUTHORIZED
        if not client_id:
            client_id = f"roamcast-{self._node.world.random.getrandbits(64):016x}"
            properties.assigned_client_id = client_id
        standing = self.sessions.find(client_id)
        if standing is not None and standing.username != connect.username:
            return ReasonCode.NOT_AUTHORIZED  # another user's session
        if standing is not None and isinstance(standing.link, Connection):
            standing.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
        elif self._connected() >= self.options.clients_max:
            return ReasonCode.SERVER_BUSY
        expiry = session_expiry(asked.session_expiry, is_v5=is_v5, clean=connect.clean_start)
        attached = self.sessions.attach(
            connection, client_id, connect.username, connect.will, clean=connect.clean_start, expiry=expiry
        )
        if attached is None:
            return ReasonCode.QUOTA_EXCEEDED
        session, stood_before = attached
        if is_v5:
            self._grant(properties, connect, expiry, session.expiry)
            properties.maximum_packet_size = connection.packet_bytes_max
        self.strangers.leave(connection)
        self._node.counters.count("mqtt_connected_total", 1, version="5" if is_v5 else "3.1.1")
        return ConnectGrant(session, stood_before, properties)

    def opened(self, connection: Connection) -> None:
        self.connections[connection] = None
        self.strangers.enter(connection)

    def closing(self, connection: Connection) -> None:
        if connection in self.connections:
            self.strangers.enter(connection)

    def left(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.strangers.leave(connection)

    def when_durable(self, callback: Callable[[], None], on_failure: Callable[[], None]) -> None:
        self._node.when_durable(callback, lambda _: on_failure())

    def count_reason(self, name: str, reason: str) -> None:
        self._node.counters.count(name, 1, reason=reason)

    # Private.

    def _connected(self) -> int:
        return sum(one.session is not None and not one.is_closing for one in self.connections)

    def _objection(self, connect: Connect, connection: Connection) -> ReasonCode | None:
        if connect.properties is not None and connect.properties.authentication_method is not None:
            return ReasonCode.BAD_AUTHENTICATION_METHOD  # none is offered
        if not connect.client_id and not connect.clean_start and connect.version != V5:
            return ReasonCode.CLIENT_ID_NOT_VALID
        if len(connect.client_id) > CLIENT_ID_LENGTH_MAX:
            return ReasonCode.CLIENT_ID_NOT_VALID
        if accounts := connection.accounts:
            name, address = connect.username or "", connection.address
            admission = accounts.admission(name, connect.password, address, self._monotonic())
            if admission != "yes":
                return _NOT_ADMITTED[admission]
        if connect.will is not None and published_topic_problem(connect.will.topic):
            return ReasonCode.TOPIC_NAME_INVALID
        return None if connect.will is None else self.exchange.objection(connect.will)

    def _grant(self, properties: Properties, connect: Connect, asked: Micros, granted: Micros) -> None:
        """What CONNACK says of our bounds, where they are not the specification's own defaults."""
        options = self.options
        properties.receive_maximum = options.receive_maximum
        if self.exchange.qos_max < 2:
            properties.maximum_qos = self.exchange.qos_max
        if options.topic_alias_max:
            properties.topic_alias_maximum = options.topic_alias_max
        if granted != asked:
            properties.session_expiry = int(seconds(granted))
        if connect.keep_alive > options.keep_alive_max:
            properties.server_keep_alive = options.keep_alive_max

    async def _listen(self, key: str, port: int, context: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        timeout = None if context is None else self.options.connect_timeout
        try:
            server = await loop.create_server(
                self._connection, self.options.host, port, ssl=context, ssl_handshake_timeout=timeout
            )
        except OSError as error:
            problem = f"cannot listen on {self.options.host}, port {port}: {error.strerror or error}"
            raise InputError(key, problem) from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _connection(self) -> asyncio.Protocol:
        return self.accept(self._accounts)


def _tls_context(options: MqttOptions, base: Path) -> ssl.SSLContext | None:
    if not options.tls_certificate:
        if not options.plain:
            raise InputError("mqtt.plain", "is false, and without mqtt.tls_certificate nothing would listen")
        return None
    return server_context(
        "mqtt", base, options.tls_certificate, options.tls_key, options.tls_client_authority
    )


STRANGERS_MAX = 256  # chosen by us; at most 15 MB of packets that are not whole


class StrangeConnection(Protocol):
    @property
    def address(self) -> str:
        """Where it comes from."""
        ...

    def abandon(self) -> None:
        """Break it at once."""
        ...


class Strangers:
    """Connections without an admitted client: their CONNECT has not come yet, or they are being closed.

    They are bounded, and it is not the newest that is dropped: an honest client sends CONNECT at once. When
    there are too many, the oldest is dropped, of the address that has the most. So thousands of half-open
    connections from one place, or from this device, push out each other.
    """

    def __init__(self, on_dropped: Callable[[], None], most: int = STRANGERS_MAX) -> None:
        self._on_dropped = on_dropped
        self._most = most
        self._waiting: dict[StrangeConnection, str] = {}  # with their addresses, oldest first
        self._by_address: Counter[str] = Counter()

    def enter(self, connection: StrangeConnection) -> None:
        if connection in self._waiting:
            return
        if len(self._waiting) >= self._most:
            self._drop_one()
        self._waiting[connection] = connection.address
        self._by_address[connection.address] += 1

    def leave(self, connection: StrangeConnection) -> None:
        """The connection was admitted, or is gone. Calling it again is no error."""
        address = self._waiting.pop(connection, None)
        if address is None:
            return
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def __len__(self) -> int:
        return len(self._waiting)

    def _drop_one(self) -> None:
        most = max(self._by_address.values())
        crowded = {address for address, count in self._by_address.items() if count == most}
        oldest = next(connection for connection, address in self._waiting.items() if address in crowded)
        self.leave(oldest)
        oldest.abandon()
        self._on_dropped()
