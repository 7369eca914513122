"""What publishers see of a mesh that is slower than they are, by MQTT and by the local socket."""

import asyncio
from pathlib import Path

import pytest
from tests.gateway.local.test_local import run
from tests.gateway.mqtt.harness import in_loop, serving
from tests.gateway.mqtt.stand_alone import StandingNode

from roamcast.client import connect
from roamcast.client.client import ClientError
from roamcast.event import Publication
from roamcast.gateway.local.server import LocalServer
from roamcast.gateway.mqtt.packets.values import V5, PingRequest, PingResponse, Publish, ReasonCode
from roamcast.gateway.options import LocalOptions

pytestmark = pytest.mark.realtime


class Pressed:
    """A mesh that takes no real-time event, and one that must not be lost only after a while."""

    why = "the mesh is slower than its publishers: this node may publish 20 events per second now"

    def __init__(self, wait: float = 0.0, refuses: bool = False) -> None:
        self.wait = wait
        self.refuses = refuses
        self.charged = 0

    def sheds(self, publication: Publication) -> bool:
        return True

    def bulk_wait(self) -> float:
        return 0.0

    def charge(self) -> float:
        self.charged += 1
        return self.wait


@in_loop
async def test_mqtt_qos_0_is_shed_and_counted_and_qos_1_is_slowed() -> None:
    async with serving() as server:
        reader = await server.client("reader")
        await reader.subscribe("a")
        writer = await server.client("writer")
        pressure = server.node.applications.pressure = Pressed(wait=0.2)
        await writer.publish("a", b"shed")
        begin = asyncio.get_running_loop().time()
        for number in range(3):
            await writer.publish("a", b"%d" % number, 1)  # each is acknowledged; the next one is read later
        assert asyncio.get_running_loop().time() - begin >= 0.35
        assert await reader.payloads(3) == [b"0", b"1", b"2"]
        await reader.hears_nothing()
        assert server.counted("mqtt_unpublished_total:server_busy") == 1
        assert pressure.charged == 3


@in_loop
async def test_mqtt_qos_1_is_refused_with_a_reason_where_it_would_wait_for_too_long() -> None:
    async with serving() as server:
        writer = await server.client("writer", V5)
        server.node.applications.pressure = Pressed(refuses=True)
        answer = await writer.publish("a", b"x", 1)
        assert answer is not None and answer.reason == ReasonCode.QUOTA_EXCEEDED
        writer.say(Publish(topic="a", payload=b"x", qos=2, packet_id=9))
        assert (await writer.answer()).reason == ReasonCode.QUOTA_EXCEEDED
        writer.say(PingRequest())
        await writer.expect(PingResponse)
        assert server.counted("mqtt_unpublished_total:mesh_busy") == 2


def test_a_local_client_is_told_what_was_shed_and_slowed_where_nothing_may_be_lost(tmp_path: Path) -> None:
    async def test() -> None:
        node = StandingNode()
        server = LocalServer(node, LocalOptions(socket=str(tmp_path / "s")))
        await server.start()
        async with connect(tmp_path / "s") as client:
            node.applications.pressure = Pressed(wait=0.2)
            with pytest.raises(ClientError, match="was shed: the mesh is slower than its publishers"):
                await client.publish(topic="a")
            await client.publish_soon(topic="a")
            begin = asyncio.get_running_loop().time()
            for _ in range(3):
                await client.publish(topic="a", lifetime=60.0)
            assert asyncio.get_running_loop().time() - begin >= 0.35
            assert client.refused == 1 and "slower" in client.refused_because
            node.applications.pressure = Pressed(refuses=True)
            with pytest.raises(ClientError, match="was refused: the mesh is slower"):
                await client.publish(topic="a", lifetime=60.0)
        await server.stop()

    run(test())
