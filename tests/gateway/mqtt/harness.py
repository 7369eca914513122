"""A listener on loopback sockets and a client that says and hears packets one by one.

Nothing here sleeps. "Nothing came" is shown by a barrier: a PINGREQ is answered after all that was sent
before, because packets to one client keep their order.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.gateway.mqtt.listener import MqttListener
from roamcast.gateway.mqtt.packets.codec import PacketReader, decode, encode
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingRequest,
    PingResponse,
    Properties,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    UnsubAck,
    Unsubscribe,
)
from roamcast.gateway.options import MqttOptions
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.database import NodeStorage

TIMEOUT = 60.0  # a machine may be busy; a test that passes waits for nothing

Arguments = ParamSpec("Arguments")
Of = TypeVar("Of")


def in_loop(test: Callable[Arguments, Awaitable[None]]) -> Callable[Arguments, None]:
    """Run a test in a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(*arguments, **named), 4 * TIMEOUT)

        asyncio.run(bounded())

    return run


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Wait for something that another part of this loop does."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0.001)


async def read_packet(reader: asyncio.StreamReader, version: int) -> Packet:
    head = await reader.readexactly(2)
    while head[-1] >= 0x80:
        head += await reader.readexactly(1)
    length = PacketReader(head, at=1).variable("remaining length")
    return decode(head[0], await reader.readexactly(length), version)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.version = version
        self._reader = reader
        self._writer = writer
        self._next_id = 1
        self._passed: list[Packet] = []  # read while something else was waited for

    @classmethod
    async def open(cls, port: int, version: int, **tls: Any) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **tls)
        return cls(reader, writer, version)

    # Packets.

    def say(self, packet: Packet) -> None:
        self._writer.write(encode(packet, self.version))

    def say_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self) -> Packet:
        """The next packet."""
        return self._passed.pop(0) if self._passed else await self._read()

    async def _read(self) -> Packet:
        async with asyncio.timeout(TIMEOUT):
            return await read_packet(self._reader, self.version)

    async def expect(self, kind: type[Of]) -> Of:
        packet = await self.hear()
        assert isinstance(packet, kind), packet
        return packet

    async def answer(self) -> Acknowledge:
        """The next acknowledgement; messages that come before it are heard later."""
        while not isinstance(packet := await self._read(), Acknowledge):
            self._passed.append(packet)
        return packet

    async def is_closed(self) -> bool:
        """Whether the server has closed, with nothing more to hear."""
        async with asyncio.timeout(TIMEOUT):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    async def drain(self) -> None:
        await self._writer.drain()

    def drop(self) -> None:
        """Cut the connection, as a dead client does."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    # Exchanges.

    async def connect(self, client_id: str = "client", **fields: Any) -> ConnAck:
        self.say(Connect(version=self.version, client_id=client_id, **fields))
        return await self.expect(ConnAck)

    async def subscribe(
        self, *filters: str | SubscriptionRequest, qos: int = 2, identifier: int = 0
    ) -> tuple[int, ...]:
        requests = [SubscriptionRequest(one, qos) if isinstance(one, str) else one for one in filters]
        properties = Properties(subscription_identifiers=[identifier]) if identifier else None
        self.say(Subscribe(self._take_id(), tuple(requests), properties))
        return (await self.expect(SubAck)).reasons

    async def unsubscribe(self, *filters: str) -> tuple[int, ...]:
        self.say(Unsubscribe(self._take_id(), filters))
        return (await self.expect(UnsubAck)).reasons

    async def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, **fields: Any
    ) -> Acknowledge | None:
        """With its handshake to the end."""
        packet_id = self._take_id() if qos else 0
        self.say(Publish(topic=topic, payload=payload, qos=qos, packet_id=packet_id, **fields))
        if not qos:
            return None
        answer = await self.answer()
        assert answer.packet_id == packet_id
        if qos == 2 and answer.reason < 0x80:
            self.say(Acknowledge(PacketType.PUBREL, packet_id))
            assert (await self.answer()).type is PacketType.PUBCOMP
        return answer

    async def receive(self) -> Publish:
        """The next message, acknowledged to the end."""
        packet = await self.expect(Publish)
        await self.acknowledge(packet)
        return packet

    async def acknowledge(self, packet: Publish) -> None:
        if packet.qos == 1:
            self.say(Acknowledge(PacketType.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self.say(Acknowledge(PacketType.PUBREC, packet.packet_id))
            assert (await self.answer()).type is PacketType.PUBREL
            self.say(Acknowledge(PacketType.PUBCOMP, packet.packet_id))

    async def payloads(self, count: int) -> list[bytes]:
        return [(await self.receive()).payload for _ in range(count)]

    async def hears_nothing(self) -> None:
        self.say(PingRequest())
        await self.expect(PingResponse)

    async def disconnect(self, reason: int = 0, properties: Properties | None = None) -> None:
        self.say(Disconnect(reason, properties))
        assert await self.is_closed()
        self.close()

    def _take_id(self) -> int:
        packet_id = self._next_id
        self._next_id += 1
        return packet_id


class Served:
    def __init__(self, listener: MqttListener, node: StandAloneNode) -> None:
        self.listener = listener
        self.node = node
        self._clients: list[Client] = []

    def counted(self, name: str) -> int:
        return self.node.counters.counts[name]

    async def opened(self, version: int = V3_1_1, **tls: Any) -> Client:
        """A client that has said nothing yet."""
        client = await Client.open(self.listener.port, version, **tls)
        self._clients.append(client)
        return client

    async def client(self, client_id: str = "client", version: int = V3_1_1, **fields: Any) -> Client:
        """A connected client."""
        client = await self.opened(version)
        connack = await client.connect(client_id, **fields)
        assert connack.reason == 0, connack
        return client

    async def client5(self, client_id: str = "client", expiry: int | None = None, **fields: Any) -> Client:
        if expiry is not None:
            fields["properties"] = Properties(session_expiry=expiry)
        return await self.client(client_id, V5, **fields)

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        await self.listener.stop()


@asynccontextmanager
async def serving(
    state: Path | None = None, node: StandAloneNode | None = None, **options: Any
) -> AsyncIterator[Served]:
    """A listener on a node that is alone, stopped in the end."""
    storage = None if state is None else NodeStorage(LocalDisk(), state)
    if node is None:
        node = StandAloneNode(storage=storage)
    served = Served(MqttListener(node, MqttOptions(port=0, **options)), node)
    await served.listener.start()
    try:
        yield served
    finally:
        await served.close()
        if storage is not None:
            storage.close()
