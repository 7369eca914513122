"""Rights by topic: MQTT users, and users of the device at the local socket."""

import asyncio
import os
import pwd
from pathlib import Path

import pytest
from tests.gateway.mqtt.harness import in_loop, serving
from tests.gateway.mqtt.stand_alone import StandingNode

from roamcast.client import ClientError, connect
from roamcast.daemon.config import load_config
from roamcast.errors import ScenarioError
from roamcast.event import Publication
from roamcast.gateway.access import TopicRights, rights_of
from roamcast.gateway.local import LocalServer
from roamcast.gateway.mqtt.packets.values import V3_1_1, V5, ReasonCode, Will
from roamcast.gateway.options import LocalOptions
from roamcast.sealing import GroupKey, Identity

SENSOR = TopicRights(publish=("sensor/+/value", "log/#"), subscribe=("command/#",))
ME = pwd.getpwuid(os.getuid()).pw_name


def test_rights_are_topic_filters_and_nothing_by_default() -> None:
    assert SENSOR.may_publish("sensor/7/value") and SENSOR.may_publish("log")
    assert not SENSOR.may_publish("sensor/7/other") and not SENSOR.may_publish("")
    assert SENSOR.may_subscribe("command/7/#") and SENSOR.may_subscribe("command/#")
    assert not SENSOR.may_subscribe("#") and not SENSOR.may_subscribe("command2")
    assert TopicRights().may_publish("a") and TopicRights().may_subscribe("#")
    assert not TopicRights(publish=()).may_publish("a")
    assert rights_of({"*": SENSOR}, "anyone") is SENSOR and rights_of({"ada": SENSOR}, "eve") is None


@pytest.mark.realtime
@in_loop
async def test_an_mqtt_user_publishes_and_subscribes_where_he_may() -> None:
    users = {"ada": "a", "probe": "p"}
    async with serving(users=users, rights={"probe": SENSOR}) as server:
        ada = await server.client5("ada", username="ada", password=b"a")
        await ada.subscribe("#")
        probe = await server.client5("probe", username="probe", password=b"p")
        assert await probe.subscribe("command/#", "#", "command/7?level>3") == (
            2,
            ReasonCode.NOT_AUTHORIZED,
            2,
        )
        allowed = await probe.publish("sensor/7/value", b"1", qos=1)
        refused = await probe.publish("command/7", b"2", qos=1)
        await probe.publish("command/7", b"3")
        await probe.publish("sensor/8/value", b"4", qos=2)
        assert allowed is not None and allowed.reason == 0
        assert refused is not None and refused.reason == ReasonCode.NOT_AUTHORIZED
        assert await ada.payloads(2) == [b"1", b"4"]
        assert server.counted("mqtt_unpublished_total:not_authorized") == 2
        await ada.publish("command/7", b"go", qos=1)
        assert await probe.payloads(1) == [b"go"]
        will = Will("command/7", b"boom")
        for version, reason in ((V5, ReasonCode.NOT_AUTHORIZED), (V3_1_1, 5)):
            other = await server.opened(version)
            connack = await other.connect("will", username="probe", password=b"p", will=will)
            assert connack.reason == reason


def test_a_user_of_the_device_has_the_rights_that_the_file_gives_him(tmp_path: Path) -> None:
    async def test() -> None:
        options = LocalOptions(socket=str(tmp_path / "s"), rights={ME: SENSOR})
        server = LocalServer(StandingNode(), options)
        await server.start()
        try:
            async with connect(tmp_path / "s") as client:
                with pytest.raises(
                    ClientError, match=r"topic: is 'command/7', where .* allowed: sensor/\+/value"
                ):
                    await client.publish(topic="command/7")
                with pytest.raises(ClientError, match="is absent"):
                    await client.publish(type="command")
                with pytest.raises(ClientError, match="rights by topic only"):
                    await client.revoke(5)
                with pytest.raises(ClientError, match="rights by topic only"):
                    await client.forget(5)
                async with client.subscribe(topic="#") as events:
                    await client.publish(topic="log/a")
                    session = server._node.applications.open(lambda delivery: None)
                    session.publish(Publication(topic="sensor/1/value"))
                    session.publish(Publication(topic="command/1", attributes={"level": 5}))
                    assert (await events.next(5)).event.topic == "command/1"
        finally:
            await server.stop()

    asyncio.run(test())


def test_others_have_the_rights_of_everyone_and_the_nodes_own_user_has_no_limits(tmp_path: Path) -> None:
    async def test() -> None:
        server = LocalServer(
            StandingNode(), LocalOptions(socket=str(tmp_path / "s"), rights={"*": TopicRights(publish=())})
        )
        await server.start()
        try:
            async with connect(tmp_path / "s") as client:
                await client.publish(topic="command/7")
        finally:
            await server.stop()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[clients.rights.ada]\npublish = ["a/#/b"]', "clients.rights.ada.publish: has 'a/#/b'"),
        ('[mqtt]\n[mqtt.rights.ada]\npublish = ["a"]', "mqtt.rights.ada: is about no user; allowed: *"),
        ('[mqtt.rights."*"]\nsubscribe = [""]', "mqtt.rights.*.subscribe: has ''"),
        ("[clients.rights.ada]\nread = []", "clients.rights.ada.read"),
    ],
)
def test_rights_that_are_none_are_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "node.toml"
    keys = f'identity = "{Identity.generate().to_text()}"\ngroup = ["{GroupKey.generate().to_text()}"]'
    path.write_text(f"[keys]\n{keys}\n{text}\n")
    with pytest.raises(ScenarioError) as caught:
        load_config(path)
    assert problem in str(caught.value)
