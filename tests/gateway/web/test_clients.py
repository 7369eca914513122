"""A client that others wrote, over WebSockets: Eclipse Paho. `docs/use/web.md` has how MQTT.js was tried."""

import asyncio
from collections.abc import Callable

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.gateway.mqtt.harness import TIMEOUT, in_loop
from tests.gateway.web.harness import ServedWeb, serving_web

USERS = {"ada": "engine-1843"}


class PahoClient:
    """Paho in its own thread; what it reports comes into this loop."""

    def __init__(self, served: ServedWeb, version: MQTTProtocolVersion, password: str) -> None:
        loop = asyncio.get_running_loop()
        self.said: asyncio.Queue[tuple[str, object]] = asyncio.Queue()
        self.paho = Client(CallbackAPIVersion.VERSION2, "paho", protocol=version, transport="websockets")

        def report(name: str) -> Callable[..., None]:
            def call(*arguments: object) -> None:
                loop.call_soon_threadsafe(
                    self.said.put_nowait, (name, arguments[3 if name == "connect" else 2])
                )

            return call

        self.paho.username_pw_set("ada", password)
        self.paho.on_connect = report("connect")
        self.paho.on_message = report("message")
        self.paho.on_publish = report("publish")
        self.paho.on_subscribe = report("subscribe")
        self.paho.connect_async("127.0.0.1", served.server.port)
        self.paho.loop_start()

    async def heard(self, name: str) -> object:
        async with asyncio.timeout(TIMEOUT):
            while (found := await self.said.get())[0] != name:
                pass
            return found[1]

    def end(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.mark.parametrize("version", [MQTTv311, MQTTv5])
def test_paho_publishes_and_receives_at_every_quality(version: MQTTProtocolVersion) -> None:
    @in_loop
    async def run() -> None:
        async with serving_web(users=USERS) as served:
            client = PahoClient(served, version, USERS["ada"])
            try:
                assert str(await client.heard("connect")) == "Success"
                client.paho.subscribe("room/+", 2)
                await client.heard("subscribe")
                properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
                properties.UserProperty = ("level", "5")
                for qos in (0, 1, 2):
                    payload = bytes([qos]) * 30_000  # long enough for a long frame, and several reads
                    client.paho.publish(
                        "room/7", payload, qos, properties=properties if version == MQTTv5 else None
                    )
                    message = await client.heard("message")
                    assert isinstance(message, MQTTMessage)
                    assert (message.topic, message.payload, message.qos) == ("room/7", payload, qos)
                    if version == MQTTv5:
                        assert message.properties.UserProperty == [("level", "5")]  # type: ignore
            finally:
                await asyncio.to_thread(client.end)
            assert not {name for name in served.node.counters.counts if name.startswith("web_")}

    run()


@in_loop
async def test_paho_hears_that_its_password_is_wrong() -> None:
    async with serving_web(users=USERS) as served:
        client = PahoClient(served, MQTTv5, "guess")
        try:
            assert str(await client.heard("connect")) == "Bad user name or password"
        finally:
            await asyncio.to_thread(client.end)
