"""Messages from client to client on one node, over real sockets: both versions."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.mqtt.harness import in_loop, serving, until

from roamcast.broker.core import Delivery
from roamcast.errors import InputError
from roamcast.event import Event, EventClass, Publication
from roamcast.filter import Filter
from roamcast.gateway.access import server_context
from roamcast.gateway.mqtt.packets.values import (
    V3_1_1,
    V5,
    Acknowledge,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    SubscriptionRequest,
)
from roamcast.pressure import NoPressure
from roamcast.units import SECOND

VERSIONS = pytest.mark.parametrize("version", [V3_1_1, V5])


@VERSIONS
@pytest.mark.parametrize("granted", [0, 1, 2])
@in_loop
async def test_a_message_comes_at_the_lower_of_the_two_qualities(version: int, granted: int) -> None:
    async with serving() as server:
        reader = await server.client("reader", version)
        writer = await server.client("writer", version)
        assert await reader.subscribe("a/+", qos=granted) == (granted,)
        for qos in range(3):
            await writer.publish("a/b", b"%d" % qos, qos)
        found = [await reader.receive() for _ in range(3)]
        assert [(one.topic, one.payload) for one in found] == [("a/b", b"0"), ("a/b", b"1"), ("a/b", b"2")]
        assert [one.qos for one in found] == [min(qos, granted) for qos in range(3)]
        assert not any(one.retain or one.duplicate for one in found)


@VERSIONS
@in_loop
async def test_who_unsubscribed_hears_no_more(version: int) -> None:
    async with serving() as server:
        client = await server.client(version=version)
        await client.subscribe("a", "b")
        await client.unsubscribe("a")
        await client.publish("a", b"no")
        await client.publish("b", b"yes")
        assert (await client.receive()).payload == b"yes"
        await client.hears_nothing()


@in_loop
async def test_unsubscribing_says_what_was_not_there() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.subscribe("a")
        assert await client.unsubscribe("a", "b") == (0, ReasonCode.NO_SUBSCRIPTION_EXISTED)


@in_loop
async def test_wildcards_do_not_match_topics_that_begin_with_a_dollar() -> None:
    async with serving() as server:
        client = await server.client()
        await client.subscribe("#", "+/x")
        await client.publish("$mine/x", b"")
        await client.hears_nothing()
        await client.subscribe("$mine/#")
        await client.publish("$mine/x", b"named")
        assert (await client.receive()).payload == b"named"


@in_loop
async def test_overlapping_subscriptions_bring_one_copy_with_all_identifiers() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.subscribe("a/#", qos=2, identifier=7)
        await client.subscribe("a/b", qos=1, identifier=300)
        await client.subscribe("+/b", qos=0)
        await client.publish("a/b", b"", 0)
        message = await client.receive()
        assert message.properties is not None
        assert sorted(message.properties.subscription_identifiers) == [7, 300]
        other = await server.client("other")
        await other.publish("a/b", b"two", 2)
        assert (await client.receive()).qos == 2
        await client.hears_nothing()


@in_loop
async def test_clients_that_want_the_same_cost_the_mesh_one_subscription() -> None:
    async with serving() as server:
        clients = [await server.client(f"c{number}") for number in range(5)]
        for client in clients:
            await client.subscribe("a/#")
        assert len(server.node.node.broker.subscriptions()) == 1
        await clients[0].publish("a/b", b"x")
        assert [await client.payloads(1) for client in clients] == [[b"x"]] * 5
        for client in clients:
            await client.unsubscribe("a/#")
        assert server.node.node.broker.subscriptions() == []


@in_loop
async def test_no_local_keeps_a_client_from_its_own_messages_only() -> None:
    async with serving() as server:
        one, other = await server.client5("one"), await server.client5("other")
        for client in (one, other):
            await client.subscribe(SubscriptionRequest("a", 0, True))
        await one.publish("a", b"from one")
        assert (await other.receive()).payload == b"from one"
        await one.hears_nothing()
        # With a second subscription that does not say so it gets them, by that one's quality.
        await one.subscribe(SubscriptionRequest("+", 0), identifier=5)
        await one.publish("a", b"again")
        message = await one.receive()
        assert message.properties is not None and message.properties.subscription_identifiers == [5]


class Shedding(NoPressure):
    def sheds(self, publication: Publication) -> bool:
        return True


@in_loop
async def test_what_is_shed_of_a_client_with_no_local_uses_up_no_number() -> None:
    """Each hole would split the runs by which digests name this node's events."""
    async with serving() as server:
        client = await server.client5("one")
        await client.subscribe(SubscriptionRequest("a", 0, True), SubscriptionRequest("+", 0))
        node = server.node
        usual, before = node.applications.pressure, node.node.broker.next_number
        node.applications.pressure = Shedding()
        for _ in range(5):
            await client.publish("a", b"shed")
        await client.hears_nothing()
        assert node.node.broker.next_number == before
        node.applications.pressure = usual
        await client.publish("a", b"fits")
        assert (await client.receive()).payload == b"fits"
        assert node.node.broker.next_number == before + 1


@in_loop
async def test_properties_of_a_message_arrive_as_they_were_sent() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.subscribe("a")
        properties = Properties(
            payload_format=1,
            content_type="text/plain",
            response_topic="reply/here",
            correlation_data=b"\x00\xff",
            # Order, repetition, spelling, and names that events use themselves.
            user_properties=[
                ("b", "1.50"),
                ("a", "x"),
                ("b", "2"),
                ("mqtt", "9"),
                ("mqtt.at", "1"),
                ("", ""),
            ],
        )
        for qos in range(3):
            client.say(Publish(topic="a", qos=qos, packet_id=qos, properties=properties))
        found: list[Publish] = []
        while len(found) < 3:
            packet = await client.hear()
            if isinstance(packet, Publish):
                found.append(packet)
        assert [one.properties for one in found] == [properties] * 3


@in_loop
async def test_a_client_of_3_1_1_gets_what_one_of_5_published_without_its_properties() -> None:
    async with serving() as server:
        old, new = await server.client("old"), await server.client5("new")
        await old.subscribe("a")
        await new.publish("a", b"x", properties=Properties(user_properties=[("k", "v")]))
        assert await old.receive() == Publish(topic="a", payload=b"x")


@in_loop
async def test_a_shared_subscription_gives_each_message_to_one_of_its_clients() -> None:
    async with serving() as server:
        clients = [await server.client5(f"c{number}") for number in range(3)]
        for client in clients:
            await client.subscribe("$share/group/a/#", qos=0)
        alone = await server.client5("alone")
        await alone.subscribe("$share/other/a/#", "a/#", qos=0)
        writer = await server.client5("writer")
        for number in range(6):
            await writer.publish("a/b", b"%d" % number)
        taken = [await client.payloads(2) for client in clients]
        assert sorted(payload for payloads in taken for payload in payloads) == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"5",
        ]
        assert len(await alone.payloads(12)) == 12  # its own group, and its own subscription
        for client in clients:
            await client.hears_nothing()
        clients[0].drop()
        await until(lambda: server.listener.sessions.find("c0") is None)
        for number in range(4):
            await writer.publish("a/b", b"%d" % number)
        assert [len(await client.payloads(2)) for client in clients[1:]] == [2, 2]


@pytest.mark.parametrize("filter", ["$share/a", "$share//x", "$share/+/x", "a/#/b", "a+", "", "x?a", "x?=1"])
@in_loop
async def test_a_filter_that_is_none_is_refused(filter: str) -> None:
    async with serving() as server:
        client = await server.client5()
        assert await client.subscribe(filter, "fine") == (ReasonCode.TOPIC_FILTER_INVALID, 2)
        old = await server.client("old")
        assert await old.subscribe(filter, "fine") == (0x80, 2)


@in_loop
async def test_the_configured_filters_are_refused_and_too_many_too() -> None:
    async with serving(refused_filters=("secret/#",), subscriptions_max=2) as server:
        client = await server.client5()
        assert await client.subscribe("secret/#", "a", "b", "c", "a") == (0x80, 2, 2, 0x97, 2)


@in_loop
async def test_content_filters_compare_user_properties_before_the_radio() -> None:
    async with serving() as server:
        client = await server.client5()
        assert await client.subscribe("sensor/+?room=A&value>25", qos=0) == (0,)
        await client.subscribe("door?open=true&note!=ok", qos=0)
        writer = await server.client5("writer")

        async def publish(topic: str, payload: bytes, **properties: str) -> None:
            await writer.publish(
                topic, payload, properties=Properties(user_properties=list(properties.items()))
            )

        await publish("sensor/1", b"wrong room", room="B", value="30")
        await publish("sensor/1", b"too low", room="A", value="25")
        await publish("sensor/1", b"as a text this would be lower", room="A", value="100")
        await publish("sensor/1", b"fraction", room="A", value="25.50")
        await publish("sensor/1", b"no number", room="A", value="hot")
        await publish("sensor/1", b"absent", room="A")
        await publish("door", b"same", open="true", note="ok")
        await publish("door", b"a number is not ok", open="true", note="5")
        assert await client.payloads(3) == [
            b"as a text this would be lower",
            b"fraction",
            b"a number is not ok",
        ]
        await client.hears_nothing()
        first = server.node.node.broker.subscriptions()[0]
        assert first.filter == Filter.topic("sensor/+") & Filter.sql("room = 'A' AND value > 25")
        assert await client.unsubscribe("sensor/+?room=A&value>25") == (0,)


@in_loop
async def test_a_question_mark_is_text_where_content_filters_are_off() -> None:
    async with serving(content_filters=False) as server:
        client = await server.client()
        await client.subscribe("a?b=1", qos=0)
        await client.publish("a?b=1", b"literal")
        assert (await client.receive()).payload == b"literal"


@in_loop
async def test_topic_aliases_of_the_client() -> None:
    async with serving(topic_alias_max=2) as server:
        client = await server.opened(V5)
        connack = await client.connect()
        assert connack.properties is not None and connack.properties.topic_alias_maximum == 2
        await client.subscribe("#", qos=0)
        for topic, alias in (("a", 1), ("b", 2), ("", 1), ("", 2), ("c", 1), ("", 1)):
            await client.publish(topic, properties=Properties(topic_alias=alias))
        found = [await client.receive() for _ in range(6)]
        assert [one.topic for one in found] == ["a", "b", "a", "b", "c", "c"]
        assert all(one.properties is None for one in found)  # an alias is for one hop
        await client.publish("d", properties=Properties(topic_alias=3))
        assert (await client.expect(Disconnect)).reason == ReasonCode.TOPIC_ALIAS_INVALID
        assert await client.is_closed()


@pytest.mark.parametrize("properties", [Properties(topic_alias=0), Properties(topic_alias=1)])
@in_loop
async def test_an_alias_that_stands_for_nothing_ends_the_connection(properties: Properties) -> None:
    async with serving() as server:
        client = await server.client5()
        await client.publish("", properties=properties)
        assert (await client.expect(Disconnect)).reason == ReasonCode.TOPIC_ALIAS_INVALID


@in_loop
async def test_topic_aliases_of_the_server_as_many_as_the_client_takes() -> None:
    async with serving() as server:
        client = await server.client5(properties=Properties(topic_alias_maximum=1))
        await client.subscribe("#", qos=0)
        writer = await server.client("writer")
        for topic in ("a", "a", "b", "a"):
            await writer.publish(topic, b"x")
        found = [await client.receive() for _ in range(4)]
        aliases = [one.properties and one.properties.topic_alias for one in found]
        assert [one.topic for one in found] == ["a", "", "b", ""]
        assert aliases == [1, 1, None, 1]


@in_loop
async def test_a_client_gets_no_packet_larger_than_it_takes() -> None:
    async with serving() as server:
        client = await server.client5(properties=Properties(maximum_packet_size=64))
        await client.subscribe("a", qos=1)
        writer = await server.client5("writer")
        for qos in (0, 1):
            await writer.publish("a", b"." * 64, qos)
        await writer.publish("a", b"small", 1)
        assert (await client.receive()).payload == b"small"
        assert server.counted("mqtt_dropped_total:packet_too_large") == 2


@in_loop
async def test_no_more_is_in_flight_than_the_client_takes() -> None:
    async with serving() as server:
        client = await server.client5(properties=Properties(receive_maximum=2))
        await client.subscribe("a", qos=1)
        writer = await server.client("writer")
        for number in range(4):
            await writer.publish("a", b"%d" % number, 1)
        first, second = await client.expect(Publish), await client.expect(Publish)
        await client.hears_nothing()
        client.say(Acknowledge(PacketType.PUBACK, second.packet_id))
        third = await client.expect(Publish)
        assert [one.payload for one in (first, second, third)] == [b"0", b"1", b"2"]
        await client.hears_nothing()


@in_loop
async def test_quality_2_comes_once_however_often_it_is_said() -> None:
    async with serving() as server:
        reader, writer = await server.client("reader"), await server.client("writer")
        await reader.subscribe("a")
        for duplicate in (False, True, True):
            writer.say(Publish(topic="a", payload=b"once", qos=2, packet_id=9, duplicate=duplicate))
            assert await writer.expect(Acknowledge) == Acknowledge(PacketType.PUBREC, 9)
        writer.say(Acknowledge(PacketType.PUBREL, 9))
        assert await writer.expect(Acknowledge) == Acknowledge(PacketType.PUBCOMP, 9)
        writer.say(Publish(topic="a", payload=b"another", qos=2, packet_id=9))
        await writer.expect(Acknowledge)
        assert await reader.payloads(2) == [b"once", b"another"]
        await reader.hears_nothing()


@in_loop
async def test_unknown_packet_identifiers_are_answered_and_change_nothing() -> None:
    async with serving() as server:
        client = await server.client5()
        for sent, answer in (
            (PacketType.PUBREL, PacketType.PUBCOMP),
            (PacketType.PUBREC, PacketType.PUBREL),
        ):
            client.say(Acknowledge(sent, 77))
            assert await client.expect(Acknowledge) == Acknowledge(answer, 77, ReasonCode.PACKET_ID_NOT_FOUND)
        client.say(Acknowledge(PacketType.PUBACK, 77))
        client.say(Acknowledge(PacketType.PUBCOMP, 77))
        await client.hears_nothing()


@in_loop
async def test_an_event_of_another_kind_of_client_comes_as_a_plain_message() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.subscribe("a?level>=3", qos=2)
        session = server.node.applications.open(lambda _: None)
        session.publish(Publication({"level": 2}, topic="a", payload=b"no"))
        session.publish(
            Publication({"level": 3, "ok": True, "name": "x", "gone": None}, topic="a", payload=b"yes")
        )
        message = await client.receive()
        assert (message.payload, message.qos, message.retain) == (b"yes", 1, False)
        assert message.properties == Properties(
            user_properties=[("level", "3"), ("ok", "true"), ("name", "x")]
        )
        session.publish(Publication(payload=b"without a topic nobody can ask for it by MQTT"))
        await client.hears_nothing()


@in_loop
async def test_a_topic_of_another_node_that_is_none_does_not_reach_clients() -> None:
    async with serving() as server:
        client = await server.client()
        await client.subscribe("#")
        for sequence, topic in enumerate(("a/+", "#", "a\0b", "fine")):
            event = Event(9, sequence, {}, b"x", topic, "", EventClass.MEMORIZED, SECOND * 60)
            server.node.node.broker.deliver(event, 1)
        server.node.applications.drain()
        assert (await client.receive()).topic == "fine"
        assert server.counted("mqtt_dropped_total:topic_name_invalid") == 3
        late = await server.client("late")
        await late.subscribe("#")
        assert (await late.receive()).topic == "fine"


@in_loop
async def test_memorized_events_of_others_come_to_a_later_subscriber_once() -> None:
    async with serving() as server:
        session = server.node.applications.open(lambda _: None)
        session.publish(Publication(topic="news", payload=b"kept", lifetime=60 * SECOND))
        client = await server.client()
        await client.subscribe("news")
        message = await client.receive()
        assert (message.payload, message.retain) == (b"kept", False)
        await client.subscribe("news", "#", "+")  # neither again, nor by an overlapping one
        await client.hears_nothing()


@in_loop
async def test_what_clients_publish_reaches_other_applications_with_its_attributes() -> None:
    async with serving(qos1="realtime") as server:
        found: list[Delivery] = []
        session = server.node.applications.open(found.append)
        session.subscribe(Filter.sql("value > 9 AND unit = 'C'"))
        client = await server.client5()
        pairs = [("value", "10.0"), ("unit", "C")]
        await client.publish("t", b"p", 1, properties=Properties(user_properties=pairs))
        (delivery,) = found
        assert delivery.event.topic == "t" and delivery.event.payload == b"p"
        assert delivery.event.attributes == {"mqtt": 1, "value": 10.0, "unit": "C"}
        assert delivery.event.event_class is EventClass.REALTIME


@in_loop
async def test_quality_1_can_be_memorized_for_nodes_that_are_away() -> None:
    async with serving(qos1="memorized", qos1_lifetime=50) as server:
        client = await server.client5()
        await client.publish("a", b"zero", 0)
        await client.publish("a", b"one", 1)
        await client.publish("a", b"two", 2, properties=Properties(message_expiry=7))
        kept = server.node.node.broker.store.standing(server.node.now())
        assert [(one.event.payload, one.event.lifetime) for one in kept] == [
            (b"one", 50 * SECOND),
            (b"two", 7 * SECOND),
        ]


@in_loop
async def test_tls_and_client_certificates(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    ).split()
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    options: dict[str, Any] = {"tls_certificate": str(certificate), "tls_key": str(key), "tls_port": 0}
    context = ssl.create_default_context(cafile=str(certificate))
    async with serving(plain=False, **options) as server:
        server.listener.port = server.listener.tls_port
        client = await server.opened(ssl=context)
        await client.connect()
        await client.subscribe("a")
        await client.publish("a", b"sealed", 1)
        assert (await client.receive()).payload == b"sealed"
        for _ in range(5):  # a handshake that fails leaves nothing behind
            broken = await server.opened()
            broken.say_raw(b"no client hello at all")
            assert await broken.is_closed()
        assert len(server.listener.connections) == 1
    async with serving(plain=False, tls_client_authority=str(certificate), **options) as server:
        server.listener.port = server.listener.tls_port
        stranger = await server.opened(ssl=context)
        stranger.say_raw(b"\x10")
        assert await stranger.is_closed()
        context.load_cert_chain(certificate, key)
        known = await server.opened(ssl=context)
        assert (await known.connect()).reason == 0
    with pytest.raises(InputError, match=r"mqtt\.tls_client_authority: .*/nobody\.pem"):
        server_context("mqtt", certificate.parent, certificate.name, key.name, "nobody.pem")
    server_context("mqtt", certificate.parent, certificate.name, key.name, certificate.name)  # beside it
