"""Request and reply of MQTT 5 (section 4.10) with clients of other kinds: Paho as it is, over two nodes."""

import asyncio
from collections.abc import Callable

import pytest
from paho.mqtt.client import Client as Paho
from paho.mqtt.client import MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.gateway.mqtt.harness import TIMEOUT, in_loop, serving
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.gateway.access import TopicRights
from roamcast.gateway.local import client_of

pytestmark = pytest.mark.realtime


def two_nodes() -> tuple[StandAloneNode, StandAloneNode]:
    one, other = StandAloneNode(1), StandAloneNode(2)
    one.hears(other)
    other.hears(one)
    return one, other


class PahoClient:
    """Paho in its own thread; what it hears comes into this loop, unless a handler answers it there."""

    def __init__(self, port: int, topic: str, on_message: Callable[[Paho, MQTTMessage], None] | None = None):
        loop = asyncio.get_running_loop()
        self.subscribed = asyncio.Event()
        self.heard: asyncio.Queue[MQTTMessage] = asyncio.Queue()
        self.paho = Paho(CallbackAPIVersion.VERSION2, protocol=MQTTv5)

        def on_connect(*_: object) -> None:
            self.paho.subscribe(topic, 1)

        def on_subscribe(*_: object) -> None:
            loop.call_soon_threadsafe(self.subscribed.set)

        def hand_over(_: Paho, __: object, message: MQTTMessage) -> None:
            if on_message is not None:
                on_message(self.paho, message)
            loop.call_soon_threadsafe(self.heard.put_nowait, message)

        self.paho.on_connect = on_connect
        self.paho.on_subscribe = on_subscribe
        self.paho.on_message = hand_over
        self.paho.connect_async("127.0.0.1", port)
        self.paho.loop_start()

    async def __aenter__(self) -> "PahoClient":
        async with asyncio.timeout(TIMEOUT):
            await self.subscribed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.paho.disconnect()
        await asyncio.to_thread(self.paho.loop_stop)


def _reply(paho: Paho, message: MQTTMessage) -> None:
    asked = message.properties
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.CorrelationData = asked.CorrelationData  # type: ignore[union-attr]
    paho.publish(asked.ResponseTopic, message.payload * 2, properties=properties)  # type: ignore[union-attr]


@in_loop
async def test_a_python_client_asks_and_mqtt_clients_on_both_nodes_answer() -> None:
    one, other = two_nodes()
    async with (
        serving(node=one) as here,
        serving(node=other) as there,
        PahoClient(here.listener.port, "math/+", _reply),
        PahoClient(there.listener.port, "math/double", _reply),
        await client_of(one) as client,
    ):
        asked = client.request(topic="math/double", payload="ab", answers=2, deadline=TIMEOUT)
        came = [answer async for answer in asked]
        assert sorted((answer.node, answer.payload) for answer in came) == [(1, b"abab"), (2, b"abab")]
        assert all(type(answer.event.attributes["mqtt.correlation"]) is str for answer in came)
        assert not one.counters.counts["answers_dropped_total:unknown"]


@in_loop
async def test_an_mqtt_client_asks_and_a_python_client_on_another_node_answers() -> None:
    one, other = two_nodes()
    async with (
        serving(node=one) as here,
        PahoClient(here.listener.port, "my/answers") as asking,
        await client_of(other) as client,
    ):
        requests = client.requests("math/double")
        waiting = asyncio.ensure_future(anext(requests))
        await asyncio.sleep(0)  # the subscription stands: the client is in this process
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = "my/answers"
        properties.CorrelationData = b"\x00number 1\xff"
        asking.paho.publish("math/double", b"no request")
        asking.paho.publish("math/double", b"ab", properties=properties)
        request = await asyncio.wait_for(waiting, TIMEOUT)
        assert (request.topic, request.payload, request.hops) == ("math/double", b"ab", 1)
        await request.reply("abab", {"by": "python"})
        answer = await asyncio.wait_for(asking.heard.get(), TIMEOUT)
        assert (answer.topic, answer.payload) == ("my/answers", b"abab")
        assert answer.properties is not None
        assert answer.properties.CorrelationData == b"\x00number 1\xff"  # type: ignore[attr-defined]
        assert answer.properties.UserProperty == [("by", "python")]  # type: ignore[attr-defined]


@in_loop
async def test_an_mqtt_user_answers_only_where_he_may_publish() -> None:
    node = StandAloneNode(1)
    users = {"probe": "p", "clerk": "c"}
    rights = {
        "probe": TopicRights(publish=("sensor/#",)),
        "clerk": TopicRights(publish=("sensor/#", "$reply/#")),
    }
    async with serving(node=node, users=users, rights=rights) as served, await client_of(node) as client:
        probe = await served.client5("probe", username="probe", password=b"p")
        clerk = await served.client5("clerk", username="clerk", password=b"c")
        await probe.subscribe("door/open")
        waiting = asyncio.ensure_future(anext(client.request(topic="door/open", deadline=TIMEOUT)))
        request = await probe.receive()
        assert request.properties is not None and request.properties.response_topic is not None
        topic = request.properties.response_topic
        refused = await probe.publish(topic, b"yes", qos=1)
        allowed = await clerk.publish(topic, b"no", qos=1)
        assert refused is not None and refused.reason == 0x87
        assert allowed is not None and allowed.reason == 0
        assert (await waiting).payload == b"no"
