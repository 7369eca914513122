"""A web server on loopback sockets, and a client that makes its frames by hand."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.gateway.mqtt.harness import TIMEOUT
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.gateway.mqtt.listener import MqttListener
from roamcast.gateway.mqtt.packets.codec import decode, encode
from roamcast.gateway.mqtt.packets.values import V5, ConnAck, Connect, Packet
from roamcast.gateway.mqtt.transport import PacketFramer
from roamcast.gateway.options import MqttOptions, WebOptions
from roamcast.gateway.web.answers import JSON, Document
from roamcast.gateway.web.server import WebServer

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455, section 1.3
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MASK = bytes.fromhex("37fa213d")  # RFC 6455, section 5.7

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, mask: bytes | None = MASK, rsv: int = 0
) -> bytes:
    """A client's frame (RFC 6455, section 5.2)."""
    first = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0 if mask is None else 0x80
    if len(data) < 126:
        head = bytes([bit | len(data)])
    elif len(data) < 1 << 16:
        head = bytes([bit | 126]) + len(data).to_bytes(2, "big")
    else:
        head = bytes([bit | 127]) + len(data).to_bytes(8, "big")
    if mask is None:
        return first + head + data
    return first + head + mask + bytes(octet ^ mask[at % 4] for at, octet in enumerate(data))


def request(path: str = "/mqtt", *, method: str = "GET", **headers: str | None) -> bytes:
    """The request of a handshake; a header is replaced by name with `_` for `-`, or left out with None."""
    standing: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "mqttv3.1, mqtt",
    }
    standing |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in standing.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def get(path: str, *, method: str = "GET", **headers: str) -> bytes:
    standing = {"Host": "127.0.0.1"} | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in standing.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class HttpAnswer:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body


class Wire:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer
        self._packets = PacketFramer(1_000)
        self.pongs: list[bytes] = []

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    def end(self) -> None:
        self._writer.close()

    # HTTP.

    async def head(self) -> HttpAnswer:
        async with asyncio.timeout(TIMEOUT):
            return HttpAnswer((await self.reader.readuntil(b"\r\n\r\n"))[:-4], b"")

    async def answer(self) -> HttpAnswer:
        """The answer to its end; the server closes after it."""
        async with asyncio.timeout(TIMEOUT):
            head, _, body = (await self.reader.read()).partition(b"\r\n\r\n")
        self.end()  # or the server would linger
        return HttpAnswer(head, body)

    async def upgraded(self, **headers: str | None) -> "Wire":
        self.say(request("/mqtt", method="GET", **headers))
        answer = await self.head()
        assert answer.status == 101, answer.status
        expected = base64.b64encode(hashlib.sha1((KEY + GUID).encode()).digest()).decode()
        assert answer.headers["sec-websocket-accept"] == expected
        assert answer.headers["sec-websocket-protocol"] == "mqtt"
        assert "sec-websocket-extensions" not in answer.headers
        return self

    # WebSocket.

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(TIMEOUT):
            first, second = await self.reader.readexactly(2)
            assert first & 0x80 and not first & 0x70, "we send whole messages without extensions"
            assert not second & 0x80, "a server does not mask"
            length = second
            if second == 126:
                length = int.from_bytes(await self.reader.readexactly(2), "big")
            elif second == 127:
                length = int.from_bytes(await self.reader.readexactly(8), "big")
            return first & 0xF, await self.reader.readexactly(length)

    async def close_code(self) -> int:
        """The code of the close frame; whatever comes before is passed over. The server then closes."""
        while True:
            opcode, data = await self.frame()
            if opcode == CLOSE:
                code = int.from_bytes(data[:2], "big")
                self.say(frame(CLOSE, data[:2]))
                async with asyncio.timeout(TIMEOUT):
                    assert await self.reader.read() == b""
                self.end()  # or the server would linger
                return code

    # MQTT.

    def say_packets(self, *packets: Packet) -> None:
        self.say(frame(BINARY, b"".join(encode(packet, V5) for packet in packets)))

    async def hear(self) -> Packet:
        """The next MQTT packet."""
        while True:
            if (packet := self._packets.pop()) is not None:
                return decode(*packet, V5)
            opcode, data = await self.frame()
            if opcode == PONG:
                self.pongs.append(data)
            else:
                assert opcode == BINARY, (opcode, data)
                self._packets.push(data)

    async def connected(self, client_id: str = "browser", **fields: Any) -> "Wire":
        await self.upgraded()
        self.say_packets(Connect(version=V5, client_id=client_id, **fields))
        answer = await self.hear()
        assert isinstance(answer, ConnAck) and answer.reason == 0, answer
        return self


class ServedWeb:
    def __init__(self, server: WebServer, mqtt: MqttListener, node: StandAloneNode) -> None:
        self.server = server
        self.mqtt = mqtt
        self.node = node
        self._wires: list[Wire] = []

    def counted(self, name: str) -> int:
        return self.node.counters.counts[name]

    def be_impatient(self, request_timeout: float) -> None:
        """With connections from now on: requests before, on a busy machine, shall not be too slow for it."""
        self.server.options = msgspec.structs.replace(self.server.options, request_timeout=request_timeout)

    async def wire(self) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._wires.append(wire)
        return wire

    async def asked(self, data: bytes) -> HttpAnswer:
        wire = await self.wire()
        wire.say(data)
        return await wire.answer()

    async def close(self) -> None:
        for wire in self._wires:
            wire.end()
        await self.server.stop()
        await self.mqtt.stop()


@asynccontextmanager
async def serving_web(
    users: dict[str, str] | None = None, mqtt: MqttOptions | None = None, **options: Any
) -> AsyncIterator[ServedWeb]:
    node = StandAloneNode()
    listener = MqttListener(node, mqtt or MqttOptions(), listens=False)
    await listener.start()
    documents = {"/status.json": Document(JSON, lambda: json.dumps({"name": node.name}).encode())}
    server = WebServer(WebOptions(port=0, **options), users or {}, node.counters, documents, listener)
    await server.start()
    served = ServedWeb(server, listener, node)
    try:
        yield served
    finally:
        await served.close()
