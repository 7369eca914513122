"""A WebSocket as the transport of an MQTT connection (MQTT 5.0, section 6).

MQTT sees a stream of octets: packets need not be whole in a frame or a message, so what a frame brings is
passed on at once and fragments are not collected. Everything written in one turn of the loop goes out as one
binary message.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from websockets.frames import CloseCode
from websockets.protocol import State
from websockets.server import ServerProtocol


class WebSocketTransport(asyncio.Transport):
    def __init__(
        self,
        stream: asyncio.Transport,
        protocol: ServerProtocol,
        flush: Callable[[], None],
        hold: Callable[[bool], None],
    ) -> None:
        """`flush` sends what the protocol has to send; `hold` stops reading from the stream, or goes on."""
        super().__init__()
        self._stream = stream
        self._protocol = protocol
        self._flush = flush
        self._hold = hold
        self._is_reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(bytes(data))
            self._flush()

    def close(self) -> None:
        """Begin the closing handshake. The stream closes when the client has answered, or is aborted."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()

    def abort(self) -> None:
        self._stream.abort()

    def is_closing(self) -> bool:
        return self._protocol.state is not State.OPEN or self._stream.is_closing()

    def can_write_eof(self) -> bool:
        return False  # a WebSocket ends by its own handshake

    def pause_reading(self) -> None:
        self._is_reading = False
        self._hold(True)

    def resume_reading(self) -> None:
        self._is_reading = True
        self._hold(False)

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._stream.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._stream.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._stream.get_extra_info(name, default)
