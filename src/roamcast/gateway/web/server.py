"""The server: one port for the page, the documents about the node and the WebSocket.

server = WebServer(options, users, counters, documents, mqtt_listener)
await server.start()
…
await server.stop()

One connection of a browser is a request, then its answer or a WebSocket:

             request whole                        101
    opened ────────────────▶ answered, or ──────────────▶ WebSocket ──▶ MQTT until it ends
       │                        │                            │
       └── too slow, too long ──┴── linger ◀── close, error ─┘ ──▶ closed

A WebSocket is the transport of an MQTT connection (MQTT 5.0, section 6), which sees a stream of octets: what
a frame brings is passed on at once, and fragments are not collected.

What the parser of `websockets` refuses is counted and ends the connection with a status or a close code.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from roamcast.errors import InputError, WireError
from roamcast.event import LARGE_BYTES_MAX
from roamcast.exchange import NodeCounters
from roamcast.gateway.access import server_context
from roamcast.gateway.mqtt.packets.values import ReasonCode
from roamcast.gateway.options import WebOptions
from roamcast.gateway.stream import LARGE_BYTES, FairStream, Turn
from roamcast.gateway.web.answers import (
    JSON,
    Document,
    Documents,
    Pages,
    Tiles,
    WebAnswers,
    WebPolicy,
    finished,
    response,
    single,
    text,
    user_in,
)
from roamcast.units import SECOND

if TYPE_CHECKING:  # a server of documents alone needs no MQTT
    from roamcast.gateway.mqtt.connection import Connection
    from roamcast.gateway.mqtt.listener import MqttListener
    from roamcast.gateway.web.plain import PlainClient, PlainRequest


logger = logging.getLogger("roamcast.web")

# Chosen by us.
REQUEST_BYTES_MAX = 16_384  # a request with its headers
SOCKET_PATH = "/mqtt"
SUBPROTOCOL = Subprotocol("mqtt")

PLAIN_PATHS = {"/publish": "POST", "/subscribe": "GET"}  # with their methods

Parsed: TypeAlias = Request | Response | Frame

_LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)

_quiet = logging.getLogger("roamcast.web.protocol")  # of each connection a line or two: not for a node's log
_quiet.setLevel(logging.WARNING)


class WebFramer:
    """`websockets` parses, without I/O. What comes behind a request waits for its answer: only behind an
    upgrade there are frames, and the parser would read on. Behind a POST there is its body, which that parser
    does not know: it does not see its length."""

    def __init__(self, protocol: ServerProtocol) -> None:
        self._protocol = protocol
        self._parsed: deque[Parsed] = deque()
        self._request = b""  # until it is whole; then no more
        self._behind: bytearray | None = None  # None: the request is not whole, or was an upgrade
        self._is_asking = True
        self.body_bytes = 0  # of a POST

    @property
    def body(self) -> bytes | None:
        """What a POST brings; None until it is whole."""
        is_whole = self._behind is not None and len(self._behind) >= self.body_bytes
        return bytes(self._behind[: self.body_bytes]) if is_whole and self._behind is not None else None

    def fits(self, data: bytes) -> bool:
        """Whether the request ends within its bound, as far as it has come."""
        if not self._is_asking:
            return True
        asked = self._request + data
        end = asked.find(b"\r\n\r\n") + 4
        return (end if end > 3 else len(asked)) <= REQUEST_BYTES_MAX

    def push(self, data: bytes) -> None:
        if self._behind is not None:
            self._behind += data
            return
        if self._is_asking:
            self._request += data
            end = self._request.find(b"\r\n\r\n") + 4
            is_post = self._request.startswith(b"POST "[: len(self._request)])
            if end > 3:
                behind = len(self._request) - end
                head = self._request[:end] if is_post else data[: len(data) - behind]
                self._behind = bytearray(self._request[end:])
                self._is_asking, self._request = False, b""
                data = self._without_length(head) if is_post else head
            elif is_post:
                return
        self._parse(data)

    def on_upgraded(self) -> None:
        behind, self._behind = self._behind, None
        if behind:
            self._parse(bytes(behind))

    def _without_length(self, head: bytes) -> bytes:
        lengths = _LENGTH.findall(head)
        if len(lengths) != 1:
            return head
        self.body_bytes = int(lengths[0])
        return _LENGTH.sub(b"\r\n", head)

    def _parse(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._parsed.extend(self._protocol.events_received())

    def pop(self) -> Parsed | None:
        return self._parsed.popleft() if self._parsed else None


STRANGER_BYTES_MAX = 131_072  # chosen by us; a CONNECT with its will is smaller


class PlainWish(NamedTuple):
    """A request to publish or to subscribe, until its body is whole."""

    request: Request
    host: str | None
    asked: "PlainRequest"
    user: tuple[str, bytes] | None


class WebConnection(FairStream[Parsed]):
    def __init__(self, server: "WebServer", turn: Turn) -> None:
        size = server.options.message_bytes_max
        self._protocol = ServerProtocol(
            subprotocols=[SUBPROTOCOL], extensions=None, max_size=size, logger=_quiet
        )
        self._web = WebFramer(self._protocol)
        super().__init__(turn, self._web)
        self._server = server
        self._mqtt: Connection | None = None
        self._stranger_bytes = 0  # of a WebSocket before a client was admitted
        self._has_asked = False  # the request is whole
        self._plain: PlainWish | None = None  # a request to publish or to subscribe
        self._is_streaming = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_socket(self) -> bool:
        return self._mqtt is not None

    def shut(self) -> None:
        """The node stops."""
        if self._mqtt is not None:
            self._mqtt.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, at_once=True)
        if self._transport is not None:
            self._transport.close()

    def close(self, *, at_once: bool = False) -> None:
        self._cancel_timer()
        super().close(at_once=at_once)

    # From the stream.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = self._loop.call_later(self._server.options.request_timeout, self._on_slow)

    def data_received(self, data: bytes) -> None:
        if self._plain is not None and self._mqtt is not None:
            return  # what comes behind a request is not read
        if not self._web.fits(data) and not self.is_closing:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._refuse(status, "the request is too long\n", "too_long")
        if self._mqtt is not None and self._mqtt.session is None:
            self._stranger_bytes += len(data)
            if self._stranger_bytes > STRANGER_BYTES_MAX and not self.is_closing:
                # A message is kept until it is whole, whoever sends it.
                self._protocol.fail(CloseCode.MESSAGE_TOO_BIG, "too much before CONNECT")
                self._server.count("web_socket_errors_total", _close_word(CloseCode.MESSAGE_TOO_BIG))
                self.send_parsed()
                return
        super().data_received(data)
        if self.is_closing:
            return
        if not self._has_asked and self._protocol.handshake_exc is not None:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP request\n", "malformed")
            return
        if self._protocol.parser_exc is not None:
            code = self._protocol.close_sent.code if self._protocol.close_sent is not None else 0
            self._server.count("web_socket_errors_total", _close_word(code))
        self.send_parsed()
        if self._plain is not None:
            self._go_ahead()

    def eof_received(self) -> None:
        self._protocol.receive_eof()  # asyncio then closes the stream

    def on_item(self, item: Parsed) -> None:
        if isinstance(item, Request):
            self._on_request(item)
        elif isinstance(item, Frame):
            self._on_frame(item)

    def on_malformed(self, error: WireError) -> None:
        raise AssertionError("the parser of `websockets` has its own answer to what it cannot read")

    def on_lost(self) -> None:
        self._cancel_timer()
        if self._mqtt is not None:
            self._mqtt.connection_lost(None)
        self._server.left(self)

    def pause_writing(self) -> None:
        """A client that does not read is not read from either: for each of its pings a pong would have to be
        kept."""
        super().pause_writing()
        self.hold("unread")
        if self._mqtt is not None:
            self._mqtt.pause_writing()

    def on_writable(self) -> None:
        self.release("unread")
        if self._mqtt is not None:
            self._mqtt.resume_writing()

    def send_parsed(self) -> None:
        """Write what the protocol has to send; its last word ends the connection."""
        for data in self._protocol.data_to_send():
            if data:
                self.send(data)
            else:
                self.close()
        self.flush()

    # A request.

    def _on_request(self, request: Request) -> None:
        self._has_asked = True
        self._cancel_timer()
        host = single(request, "Host")
        if not self._server.policy.knows_host(host):
            line = "this device has another name; allowed: its address, or web.hosts in the node's file\n"
            self._answer(request, text(HTTPStatus.MISDIRECTED_REQUEST, line), None, "host")
        elif (path := request.path.partition("?")[0]) == SOCKET_PATH:
            self._upgrade(request, host)
        elif PLAIN_PATHS.get(path) == request.method and self._server.has_mqtt:
            self._on_plain(request, host)
        else:
            now = int(self._loop.time() * SECOND)
            answer, refused = self._server.answers.to(request, self.address, now)
            self._answer(request, answer, host, refused)

    def _is_foreign(self, request: Request, host: str | None) -> bool:
        """Whether a page of another origin asks; it is refused then."""
        origin, site = single(request, "Origin"), single(request, "Sec-Fetch-Site")
        if self._server.policy.knows_origin(origin, host) and (
            origin or site in (None, "same-origin", "none")
        ):
            return False
        line = "pages of that origin may not use this node; allowed: its own, or web.origins in its file\n"
        self._answer(request, text(HTTPStatus.FORBIDDEN, line), host, "origin")
        return True

    def _on_plain(self, request: Request, host: str | None) -> None:
        """A request without an upgrade to publish or to subscribe (`plain.py`)."""
        from roamcast.gateway.web.plain import FILTERS_MAX, PlainRequest

        if self._is_foreign(request, host):
            return
        server = self._server
        name, password = user_in(single(request, "Authorization")) or (None, None)
        if server.policy.accounts:
            now = int(self._loop.time() * SECOND)
            refusal = server.answers.refusal(request, self.address, now)
            if refusal is not None:
                self._answer(request, refusal[0], host, refusal[1])
                return
        try:
            most = 1 if request.method == "POST" else FILTERS_MAX
            asked = PlainRequest.of_query(request.path.partition("?")[2], most)
        except InputError as error:
            self._answer(request, text(HTTPStatus.BAD_REQUEST, f"{error}\n"), host, "query")
            return
        if self._web.body_bytes > min(server.options.message_bytes_max, LARGE_BYTES_MAX):
            line = "the body is too large\n"
            self._answer(request, text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, line), host, "too_large")
            return
        is_large = self._web.body_bytes > LARGE_BYTES
        if is_large and not self._turn.receives(self, self._web.body_bytes):
            line = "too many large messages come at a time\n"
            self._answer(request, text(HTTPStatus.SERVICE_UNAVAILABLE, line), host, "too_many")
            return
        self._plain = PlainWish(request, host, asked, None if name is None else (name, password or b""))
        if (single(request, "Expect") or "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._timer = self._loop.call_later(server.options.request_timeout, self._on_slow)
        self._go_ahead()

    def _go_ahead(self) -> None:
        """Handle the request, once the body of a POST is whole."""
        from roamcast.gateway.web.plain import EVENT_STREAM, PlainClient

        wish, body = self._plain, self._web.body
        if wish is None or body is None or self._mqtt is not None or self.is_closing:
            return
        self._cancel_timer()
        request, host = wish.request, wish.host
        mqtt = self._server.accept()
        assert mqtt is not None and self._transport is not None
        is_stream = (single(request, "Accept") or "").lower() == EVENT_STREAM
        kind = EVENT_STREAM if is_stream else "application/x-ndjson"
        form = b"data: %b\n\n" if is_stream else b"%b\n"

        def answer(status: HTTPStatus, line: str) -> None:
            if self._is_streaming:
                self.close()
            elif not self.is_closing:
                refused = "" if status is HTTPStatus.OK else status.name.lower()
                self._answer(request, text(status, line), host, refused)

        def begin() -> None:
            self._is_streaming = True
            head = finished(response(HTTPStatus.OK, b"", kind), request, host)
            del head.headers["Content-Length"]  # it ends with the connection
            self.send(head.serialize())

        client = PlainClient(mqtt, answer, begin, lambda line: self.send(form % line))
        self._mqtt = mqtt
        payload = body if request.method == "POST" else None
        client.open(
            wish.asked, payload, wish.user, PlainTransport(self, self._transport, self._protocol, client)
        )

    def _upgrade(self, request: Request, host: str | None) -> None:
        if self._is_foreign(request, host):
            return
        response = self._protocol.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._answer(request, response, host, "handshake")
            return
        mqtt = self._server.accept()
        if mqtt is None:
            self._answer(
                request, text(HTTPStatus.SERVICE_UNAVAILABLE, "too many clients\n"), host, "too_many"
            )
            return
        assert self._transport is not None
        self._protocol.send_response(response)
        self.send_parsed()
        self._mqtt = mqtt
        mqtt.packet_bytes_max = min(mqtt.packet_bytes_max, self._server.options.message_bytes_max)
        mqtt.connection_made(WebSocketTransport(self, self._transport, self._protocol))
        self._web.on_upgraded()

    def _answer(self, request: Request | None, response: Response, host: str | None, refused: str) -> None:
        if refused:
            self._server.count("web_refused_total", refused)
        self.send(finished(response, request, host).serialize())
        self.close()

    def _refuse(self, status: HTTPStatus, line: str, reason: str) -> None:
        """An answer to what was no whole request."""
        self._answer(None, text(status, line), None, reason)

    def _on_slow(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long\n", "slow")

    # A WebSocket.

    def _on_frame(self, frame: Frame) -> None:
        if self._mqtt is None:
            return
        if frame.opcode is Opcode.TEXT:
            # MQTT 5.0, section 6: anything but binary frames ends the connection.
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is binary")
            self._server.count("web_socket_errors_total", _close_word(CloseCode.UNSUPPORTED_DATA))
            self.send_parsed()
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and frame.data:
            self._mqtt.data_received(bytes(frame.data))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class WebSocketTransport(asyncio.Transport):
    """Everything that MQTT writes in one turn of the loop goes out as one binary message."""

    def __init__(
        self, connection: WebConnection, stream: asyncio.Transport, protocol: ServerProtocol
    ) -> None:
        super().__init__()
        self._connection = connection
        self._stream = stream
        self._protocol = protocol
        self._is_reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(bytes(data))
            self._connection.send_parsed()

    def close(self) -> None:
        """Begin the closing handshake. The stream closes when the client has answered, or is aborted."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._connection.send_parsed()

    def abort(self) -> None:
        self._stream.abort()

    def is_closing(self) -> bool:
        return self._protocol.state is not State.OPEN or self._connection.is_closing

    def can_write_eof(self) -> bool:
        return False  # a WebSocket ends by its own handshake

    def pause_reading(self) -> None:
        self._is_reading = False
        self._connection.hold("mqtt")

    def resume_reading(self) -> None:
        self._is_reading = True
        self._connection.release("mqtt")

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._stream.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._connection.unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._stream.get_extra_info(name, default)


class PlainTransport(WebSocketTransport):
    """What MQTT writes goes to the client that a request is, in the next turn of the loop."""

    def __init__(
        self,
        connection: WebConnection,
        stream: asyncio.Transport,
        protocol: ServerProtocol,
        client: "PlainClient",
    ) -> None:
        super().__init__(connection, stream, protocol)
        self._client = client

    def write(self, data: bytes | bytearray | memoryview) -> None:
        asyncio.get_running_loop().call_soon(self._client.take, bytes(data))

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.close)

    def is_closing(self) -> bool:
        return self._connection.is_closing


def _close_word(code: int) -> str:
    """A close code as a label: those that we send are few."""
    return CloseCode(code).name.lower() if code in set(CloseCode) else "other"


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
        tiles = None
        try:
            tiles = found = Tiles(base / options.tiles) if options.tiles else None
            if found is not None:
                documents = {**documents, "/tiles.json": Document(JSON, lambda: found.about)}
        except InputError as error:  # no reason to keep a device off the mesh
            logger.warning("%s; the map has no ground", error)
        self.answers = WebAnswers(self.policy, Pages(page) if options.page else None, documents, tiles)
        self.port = 0  # once started
        self._counters = counters
        self._mqtt = mqtt
        self._base = base
        self._key = key
        self._server: asyncio.Server | None = None
        self.connections: dict[WebConnection, None] = {}  # in the order of arrival

    @property
    def address(self) -> str:
        """The address for a browser on this device."""
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

    @property
    def has_mqtt(self) -> bool:
        return self._mqtt is not None

    def accept(self) -> "Connection | None":
        return None if self._mqtt is None else self._mqtt.accept(self.policy.accounts)

    def left(self, connection: WebConnection) -> None:
        self.connections.pop(connection, None)

    def count(self, name: str, reason: str) -> None:
        self._counters.count(name, 1, reason=reason)

    # Private.

    def _connection(self) -> asyncio.Protocol:
        asking = sum(not one.is_socket for one in self.connections)
        if asking >= self.options.connections_max:
            self.count("web_refused_total", "too_many_connections")
            return RefusedConnection()
        connection = WebConnection(self, self._turn)
        self.connections[connection] = None
        return connection


class RefusedConnection(asyncio.Protocol):
    """One connection too many: closed before it sends anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
