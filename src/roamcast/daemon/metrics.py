"""The Prometheus endpoint: GET /metrics, and nothing else that HTTP can do.

A request is read up to a bound and within a time; each connection has one answer and is closed.
"""

import asyncio
import contextlib
import errno
import os

from roamcast.daemon.config import MetricsSettings, listening_address
from roamcast.errors import InputError
from roamcast.runtime.live.report.counters import Counters

# Chosen by us; a scrape of Prometheus needs far less.
REQUEST_BYTES_MAX = 8_192
REQUEST_SECONDS = 5.0
CONNECTIONS_MAX = 16
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    def __init__(self, counters: Counters, settings: MetricsSettings) -> None:
        self._counters = counters
        self._listen = settings.listen
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self) -> None:
        host, port = listening_address(self._listen)
        try:
            self._server = await asyncio.start_server(self._answer, host, port, limit=REQUEST_BYTES_MAX)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            problem = "is in use" if in_use else os.strerror(error.errno) if error.errno else str(error)
            raise InputError("metrics.listen", f"is {self._listen!r}: {problem}") from None

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                if self._connections <= CONNECTIONS_MAX:
                    async with asyncio.timeout(REQUEST_SECONDS):
                        writer.write(self._response(await self._request_line(reader)))
                        await writer.drain()
        finally:
            self._connections -= 1
            writer.close()

    async def _request_line(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b""
        return head.split(b"\r\n", 1)[0]

    def _response(self, request: bytes) -> bytes:
        match request.split(b" "):
            case [b"GET" | b"HEAD" as method, path, version] if version.startswith(b"HTTP/1."):
                if path.split(b"?")[0] != b"/metrics":
                    return _message("404 Not Found", "the metrics are at /metrics\n")
                return _message("200 OK", self._counters.to_text(), with_body=method == b"GET")
            case [_, _, _]:
                return _message("405 Method Not Allowed", "only GET is allowed\n")
        return _message("400 Bad Request", "this is no HTTP request\n")


def _message(status: str, text: str, *, with_body: bool = True) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
