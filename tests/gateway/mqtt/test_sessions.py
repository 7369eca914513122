"""Coming, going, coming back: CONNECT, sessions, wills, keep alive."""

import asyncio
from typing import Any

import pytest
from tests.gateway.mqtt.harness import Served, in_loop, serving, until

from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    Connect,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    SubscriptionRequest,
    Will,
)

VERSIONS = pytest.mark.parametrize("version", [V3_1_1, V5])
NEVER = 0xFFFF_FFFF


@in_loop
async def test_connack_states_the_bounds() -> None:
    async with serving(packet_bytes_max=5_000, receive_maximum=9, session_expiry_max=50) as server:
        client = await server.opened(V5)
        connack = await client.connect("", keep_alive=600, properties=Properties(session_expiry=NEVER))
        assert connack.properties is not None
        assigned = connack.properties.assigned_client_id
        assert assigned is not None and server.listener.sessions.find(assigned) is not None
        assert connack.properties == Properties(
            assigned_client_id=assigned,
            server_keep_alive=60,
            receive_maximum=9,
            maximum_packet_size=5_000,
            topic_alias_maximum=64,
            session_expiry=50,
        )
        assert not connack.session_present


@in_loop
async def test_an_empty_identifier_needs_a_clean_session_in_3_1_1() -> None:
    async with serving() as server:
        client = await server.opened()
        assert (await client.connect("", clean_start=False)).reason == 2
        assert await client.is_closed()
        assert (await (await server.opened()).connect("", clean_start=True)).reason == 0


@VERSIONS
@in_loop
async def test_users_and_passwords(version: int) -> None:
    async with serving(users={"ada": "secret"}) as server:
        for username, password in ((None, None), ("ada", b"wrong"), ("ada", None), ("eve", b""), ("", b"")):
            client = await server.opened(version)
            connack = await client.connect(username=username, password=password)
            assert connack.reason == (4 if version == V3_1_1 else ReasonCode.BAD_USER_OR_PASSWORD)
            assert await client.is_closed()
        client = await server.opened(version)
        assert (await client.connect(username="ada", password=b"secret")).reason == 0
        assert server.counted("mqtt_refused_total:bad_user_or_password") == 5


def test_a_failed_login_is_logged_with_user_and_address_and_its_password_never_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_loop
    async def play() -> None:
        async with serving(users={"ada": "secret"}) as server:
            for _ in range(20):
                client = await server.opened()
                await client.connect(username="ada", password=b"guess")

    play()
    lines = [record.getMessage() for record in caplog.records if "login" in record.getMessage()]
    assert lines == ["refused (user 'ada' from 127.0.0.1): a login with a wrong user name or password"]
    assert "guess" not in caplog.text and "secret" not in caplog.text


@in_loop
async def test_another_user_does_not_get_at_a_session() -> None:
    async with serving(users={"ada": "a", "eve": "e"}) as server:
        owner = await server.client("id", username="ada", password=b"a", clean_start=False)
        thief = await server.opened()
        assert (await thief.connect("id", username="eve", password=b"e")).reason == 5
        await owner.hears_nothing()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"will": Will("a/#", b"")}, ReasonCode.TOPIC_NAME_INVALID),
        ({"will": Will("", b"")}, ReasonCode.TOPIC_NAME_INVALID),
        ({"properties": Properties(authentication_method="SCRAM")}, ReasonCode.BAD_AUTHENTICATION_METHOD),
    ],
)
@in_loop
async def test_a_connect_that_cannot_be_granted_is_refused(
    fields: dict[str, Any], reason: ReasonCode
) -> None:
    async with serving() as server:
        client = await server.opened(V5)
        assert (await client.connect(**fields)).reason == reason
        assert await client.is_closed()


@VERSIONS
@in_loop
async def test_a_second_client_of_the_same_name_takes_the_session_over(version: int) -> None:
    async with serving() as server:
        expiry = {"properties": Properties(session_expiry=60)} if version == V5 else {}
        first = await server.client("id", version, clean_start=False, **expiry)
        await first.subscribe("a")
        second = await server.opened(version)
        connack = await second.connect("id", clean_start=False, **expiry)
        assert connack.session_present
        if version == V5:
            assert (await first.expect(Disconnect)).reason == ReasonCode.SESSION_TAKEN_OVER
        assert await first.is_closed()
        await second.publish("a", b"mine")
        assert (await second.receive()).payload == b"mine"


@VERSIONS
@in_loop
async def test_a_second_connect_ends_the_connection(version: int) -> None:
    async with serving() as server:
        client = await server.client(version=version)
        client.say(Connect(version=version, client_id="client"))
        if version == V5:
            assert (await client.expect(Disconnect)).reason == ReasonCode.PROTOCOL_ERROR
        assert await client.is_closed()


@VERSIONS
@in_loop
async def test_messages_wait_for_a_client_that_is_away(version: int) -> None:
    async with serving() as server:
        fields = {"properties": Properties(session_expiry=60)} if version == V5 else {}
        client = await server.client("id", version, clean_start=False, **fields)
        await client.subscribe("a/#", qos=1)
        await client.disconnect()
        writer = await server.client("writer", version)
        for qos in range(3):
            await writer.publish("a/b", b"%d" % qos, qos)
        client = await server.opened(version)
        assert (await client.connect("id", clean_start=False, **fields)).session_present
        found = [await client.receive() for _ in range(2)]
        assert [(one.payload, one.qos, one.duplicate) for one in found] == [
            (b"1", 1, False),
            (b"2", 1, False),
        ]
        await client.hears_nothing()
        # And none of it a second time.
        await client.disconnect()
        client = await server.client("id", version, clean_start=False, **fields)
        await client.hears_nothing()


@in_loop
async def test_a_clean_start_ends_what_stood() -> None:
    async with serving() as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a")
        await client.disconnect()
        client = await server.opened()
        assert not (await client.connect("id", clean_start=True)).session_present
        await client.publish("a", b"x")
        await client.hears_nothing()
        assert server.node.node.broker.subscriptions() == []


@in_loop
async def test_a_session_ends_when_its_time_is_over() -> None:
    async with serving(session_expiry_max=0.05) as server:
        client = await server.client5("id", expiry=NEVER, clean_start=False)
        await client.subscribe("a")
        await client.disconnect()
        await until(lambda: server.listener.sessions.find("id") is None)
        assert server.node.node.broker.subscriptions() == []
        client = await server.opened(V5)
        assert not (await client.connect("id", clean_start=False)).session_present


@in_loop
async def test_disconnect_can_change_when_a_session_ends_but_not_revive_it() -> None:
    async with serving() as server:
        client = await server.client5("id", expiry=60)
        await client.disconnect(properties=Properties(session_expiry=0))
        assert server.listener.sessions.find("id") is None
        client = await server.client5("id", expiry=0)
        client.say(Disconnect(0, Properties(session_expiry=60)))
        assert (await client.expect(Disconnect)).reason == ReasonCode.PROTOCOL_ERROR


@VERSIONS
@in_loop
async def test_what_was_not_acknowledged_is_sent_again_in_order(version: int) -> None:
    async with serving() as server:
        fields = {"properties": Properties(session_expiry=60)} if version == V5 else {}
        client = await server.client("id", version, clean_start=False, **fields)
        await client.subscribe("a")
        writer = await server.client("writer", version)
        for number, qos in enumerate((1, 2, 2, 1)):
            await writer.publish("a", b"%d" % number, qos)
        sent = [await client.expect(Publish) for _ in range(4)]
        client.say(Acknowledge(PacketType.PUBACK, sent[0].packet_id))
        client.say(Acknowledge(PacketType.PUBREC, sent[1].packet_id))
        assert (await client.answer()).type is PacketType.PUBREL
        client.drop()
        await until(lambda: _is_absent(server, "id"))
        client = await server.opened(version)
        await client.connect("id", clean_start=False, **fields)
        # 0 is done; of 1 only the release is left; 2 and 3 come again under their own numbers.
        release = await client.expect(Acknowledge)
        assert (release.type, release.packet_id) == (PacketType.PUBREL, sent[1].packet_id)
        again = [await client.expect(Publish) for _ in range(2)]
        assert [(one.payload, one.packet_id, one.duplicate) for one in again] == [
            (b"2", sent[2].packet_id, True),
            (b"3", sent[3].packet_id, True),
        ]
        await client.hears_nothing()


def _is_absent(server: Served, client_id: str) -> bool:
    session = server.listener.sessions.find(client_id)
    return session is None or session.link is None


@in_loop
async def test_a_message_that_expired_meanwhile_is_not_sent() -> None:
    async with serving() as server:
        client = await server.client5("id", expiry=60)
        await client.subscribe("a", qos=1)
        await client.disconnect()
        writer = await server.client5("writer")
        await writer.publish("a", b"over", 1, properties=Properties(message_expiry=0))
        await writer.publish("a", b"stands", 1, properties=Properties(message_expiry=60))
        client = await server.client5("id", clean_start=False, expiry=60)
        message = await client.receive()
        assert message.payload == b"stands"
        assert message.properties is not None and message.properties.message_expiry is not None
        assert 30 < message.properties.message_expiry <= 60
        assert server.counted("mqtt_dropped_total:expired") == 1


@in_loop
async def test_the_queue_of_an_absent_client_is_bounded_and_keeps_the_newest() -> None:
    async with serving(queue_messages_max=3, qos1="realtime") as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a", qos=1)
        await client.disconnect()
        writer = await server.client("writer")
        for number in range(5):
            await writer.publish("a", b"%d" % number, 1)
        client = await server.client("id", clean_start=False)
        assert await client.payloads(3) == [b"2", b"3", b"4"]
        assert server.counted("mqtt_dropped_total:queue_full") == 2


@in_loop
async def test_when_sessions_are_full_the_absent_one_that_ends_first_makes_room() -> None:
    async with serving(sessions_max=2) as server:
        for name, expiry in (("short", 10), ("long", 1_000)):
            client = await server.client5(name, expiry=expiry)
            await client.disconnect()
        third = await server.client5("third")
        assert server.listener.sessions.find("short") is None
        assert server.listener.sessions.find("long") is not None
        fourth = await server.opened(V5)
        assert (await fourth.connect("fourth")).reason == 0  # in the place of "long"
        fifth = await server.opened(V5)
        assert (await fifth.connect("fifth")).reason == ReasonCode.QUOTA_EXCEEDED
        await third.hears_nothing()


# Wills.


@VERSIONS
@in_loop
async def test_a_will_is_published_when_the_connection_breaks(version: int) -> None:
    async with serving() as server:
        watcher = await server.client("watcher", version)
        await watcher.subscribe("will")
        will = Will("will", b"gone", 1)
        for leave in ("drop", "disconnect"):
            client = await server.client("id", version, will=will)
            if leave == "drop":
                client.drop()
                message = await watcher.receive()
                assert (message.payload, message.qos, message.retain) == (b"gone", 1, False)
            else:
                await client.disconnect()
                await watcher.hears_nothing()


@in_loop
async def test_disconnect_with_will_publishes_it_with_its_properties() -> None:
    async with serving() as server:
        watcher = await server.client5("watcher")
        await watcher.subscribe(SubscriptionRequest("will", 0, False, True))
        properties = Properties(content_type="c", user_properties=[("k", "v")])
        client = await server.client5("id", will=Will("will", b"gone", 0, True, properties))
        await client.disconnect(ReasonCode.DISCONNECT_WITH_WILL)
        message = await watcher.receive()
        assert message.retain and message.properties == properties
        late = await server.client5("late")
        await late.subscribe("will")
        assert (await late.receive()).payload == b"gone"


@in_loop
async def test_a_delayed_will_is_taken_back_by_who_returns_in_time() -> None:
    async with serving() as server:
        watcher = await server.client5("watcher")
        await watcher.subscribe("will")
        will = Will("will", b"gone", 0, False, Properties(will_delay=3_600))
        client = await server.client5("id", expiry=7_200, will=will)
        client.drop()
        await until(lambda: _is_absent(server, "id"))
        session = server.listener.sessions.find("id")
        assert session is not None and session.will_due is not None
        client = await server.client5("id", expiry=7_200, clean_start=False)
        assert session.will_due is None
        await client.disconnect()
        await watcher.hears_nothing()


@pytest.mark.realtime
@pytest.mark.parametrize("end", ["expiry", "clean start", "delay"])
@in_loop
async def test_a_delayed_will_is_published_at_the_latest_when_the_session_ends(end: str) -> None:
    async with serving(session_expiry_max=0.05 if end == "expiry" else 1_000.0) as server:
        watcher = await server.client5("watcher")
        await watcher.subscribe("will")
        delay = 1 if end == "delay" else 3_600
        will = Will("will", b"gone", 0, False, Properties(will_delay=delay))
        client = await server.client5("id", expiry=NEVER, will=will)
        client.drop()
        if end == "clean start":
            await until(lambda: _is_absent(server, "id"))
            await watcher.hears_nothing()
            await server.client5("id", clean_start=True)
        assert (await watcher.receive()).payload == b"gone"
        if end == "delay":
            assert server.listener.sessions.find("id") is not None


@pytest.mark.realtime
@VERSIONS
@in_loop
async def test_a_silent_client_is_sent_away_and_its_will_published(version: int) -> None:
    async with serving() as server:
        watcher = await server.client("watcher", version)
        await watcher.subscribe("will")
        loop = asyncio.get_running_loop()
        started = loop.time()
        client = await server.client("id", version, keep_alive=1, will=Will("will", b"silent"))
        assert (await watcher.receive()).payload == b"silent"
        assert loop.time() - started >= 1.4
        if version == V5:
            assert (await client.expect(Disconnect)).reason == ReasonCode.KEEP_ALIVE_TIMEOUT
        assert await client.is_closed()


@in_loop
async def test_stopping_publishes_wills_and_says_so() -> None:
    async with serving() as server:
        found: list[bytes] = []
        from roamcast.filter import Filter

        session = server.node.applications.open(lambda delivery: found.append(delivery.event.payload))
        session.subscribe(Filter.topic("will"))
        client = await server.client5("id", will=Will("will", b"gone"))
        await server.listener.stop()
        assert (await client.expect(Disconnect)).reason == ReasonCode.SERVER_SHUTTING_DOWN
        assert found == [b"gone"]
