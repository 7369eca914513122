"""One connection of a browser: a request, then its answer or a WebSocket.

             request whole                        101
    opened ────────────────▶ answered, or ──────────────▶ WebSocket ──▶ MQTT until it ends
       │                        │                            │
       └── too slow, too long ──┴── linger ◀── close, error ─┘ ──▶ closed

What the parser of `websockets` refuses is counted and ends the connection with a status or a close code.
"""

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import Protocol, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from roamcast.gateway.mqtt.connection import Connection
from roamcast.gateway.mqtt.packets.reasons import ReasonCode
from roamcast.gateway.web.answers import Answers, finished, single, text
from roamcast.gateway.web.options import WebOptions
from roamcast.gateway.web.policy import WebPolicy
from roamcast.gateway.web.websocket import WebSocketTransport

# Chosen by us.
REQUEST_BYTES_MAX = 16_384  # a request with its headers
LINGER = 2.0  # seconds that a client has to read our last octets and to close
SOCKET_PATH = "/mqtt"
SUBPROTOCOL = Subprotocol("mqtt")

_quiet = logging.getLogger("roamcast.web.protocol")  # of each connection a line or two: not for a node's log
_quiet.setLevel(logging.WARNING)


class WebServerView(Protocol):
    """The server, as a connection sees it."""

    options: WebOptions
    policy: WebPolicy
    answers: Answers

    def accept(self) -> Connection | None:
        """An MQTT connection for a WebSocket; None: there is none to have."""
        ...

    def left(self, connection: "WebConnection") -> None: ...

    def count(self, name: str, reason: str) -> None: ...


class WebConnection(asyncio.Protocol):
    def __init__(self, server: WebServerView) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        size = server.options.message_bytes_max
        self._protocol = ServerProtocol(
            subprotocols=[SUBPROTOCOL], extensions=None, max_size=size, logger=_quiet
        )
        self._stream: asyncio.Transport | None = None
        self._mqtt: Connection | None = None
        self._request_bytes = 0
        self._has_asked = False  # the request is whole
        self._is_lingering = False
        self._is_held = False  # MQTT does not read
        self._is_paused = False  # the client does not read
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_socket(self) -> bool:
        return self._mqtt is not None

    def shut(self) -> None:
        """The node stops."""
        if self._mqtt is not None:
            self._mqtt.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, at_once=True)
        if self._stream is not None:
            self._stream.close()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(self._server.options.request_timeout, self._on_slow)
        peer: socket.socket | None = transport.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        if not self._has_asked:
            self._request_bytes += len(data)
            if self._request_bytes > REQUEST_BYTES_MAX:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long\n", "too_long"
                )
                return
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._on_request(event)
            elif isinstance(event, Frame):
                self._on_frame(event)
            if self._is_lingering:
                return
        if not self._has_asked and self._protocol.handshake_exc is not None:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP request\n", "malformed")
            return
        if self._protocol.parser_exc is not None:
            code = self._protocol.close_sent.code if self._protocol.close_sent is not None else 0
            self._server.count("web_socket_errors_total", _close_word(code))
        self._flush()

    def eof_received(self) -> None:
        self._protocol.receive_eof()  # asyncio then closes the stream

    def connection_lost(self, exception: Exception | None) -> None:
        self._cancel_timer()
        self._stream = None
        if self._mqtt is not None:
            self._mqtt.connection_lost(exception)
        self._server.left(self)

    def pause_writing(self) -> None:
        """Who does not read is not read from either: each ping would make one more pong to keep."""
        self._is_paused = True
        self._set_reading()
        if self._mqtt is not None:
            self._mqtt.pause_writing()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._set_reading()
        if self._mqtt is not None:
            self._mqtt.resume_writing()

    # A request.

    def _on_request(self, request: Request) -> None:
        self._has_asked = True
        self._cancel_timer()
        host = single(request, "Host")
        if not self._server.policy.knows_host(host):
            line = "this device has another name; allowed: its address, or web.hosts in the node's file\n"
            self._answer(request, text(HTTPStatus.MISDIRECTED_REQUEST, line), None, "host")
        elif request.path.partition("?")[0] == SOCKET_PATH:
            self._upgrade(request, host)
        else:
            response, refused = self._server.answers.to(request)
            self._answer(request, response, host, refused)

    def _upgrade(self, request: Request, host: str | None) -> None:
        if not self._server.policy.knows_origin(single(request, "Origin"), host):
            line = (
                "pages of that origin may not use this node; allowed: its own, or web.origins in its file\n"
            )
            self._answer(request, text(HTTPStatus.FORBIDDEN, line), host, "origin")
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
        assert self._stream is not None
        self._protocol.send_response(response)
        self._flush()
        self._mqtt = mqtt
        mqtt.connection_made(WebSocketTransport(self._stream, self._protocol, self._flush, self._hold))

    def _answer(self, request: Request, response: Response, host: str | None, refused: str) -> None:
        if refused:
            self._server.count("web_refused_total", refused)
        self._protocol.send_response(finished(response, request, host))
        self._flush()

    def _refuse(self, status: HTTPStatus, line: str, reason: str) -> None:
        """An answer to what was no whole request."""
        self._server.count("web_refused_total", reason)
        if self._stream is not None:
            self._stream.write(finished(text(status, line), None, None).serialize())
            self._linger()

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
            self._flush()
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and frame.data:
            self._mqtt.data_received(bytes(frame.data))

    def _hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self._set_reading()

    def _set_reading(self) -> None:
        stream = self._stream
        if stream is None or stream.is_closing():
            return
        if (self._is_held or self._is_paused) and not self._is_lingering:
            if stream.is_reading():
                stream.pause_reading()
        elif not stream.is_reading():
            stream.resume_reading()

    # Both.

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._stream is None:
                return
            if data:
                self._stream.write(data)
            else:
                self._linger()

    def _linger(self) -> None:
        """Our last octets are written. What the client still sends is read and ignored: closing with unread
        octets would make TCP reset the connection, and the client might never see the reason."""
        if self._is_lingering or self._stream is None:
            return
        self._is_lingering = True
        self._cancel_timer()
        self._timer = self._loop.call_later(LINGER, self._stream.abort)
        self._set_reading()
        if self._stream.can_write_eof():
            self._stream.write_eof()
        else:
            self._stream.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _close_word(code: int) -> str:
    """A close code as a label: those that we send are few."""
    return CloseCode(code).name.lower() if code in set(CloseCode) else "other"
