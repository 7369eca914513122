"""Retained messages and memorized events behind them, on one node and between two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.mqtt.harness import in_loop, serving
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.broker.retained import STAMP_MAX
from roamcast.broker.store import StoredEvent
from roamcast.event import Event, EventClass, Value
from roamcast.gateway.mqtt.mesh.exchange import (
    SCAN_INTERVAL,
    TOPICS_MAX,
    RetainedStamps,
    newest_retained,
)
from roamcast.gateway.mqtt.packets.values import Properties, SubscriptionRequest
from roamcast.kit.tables import unreported
from roamcast.units import SECOND, Micros


def retained(topic: str, payload: bytes, at: Value, publisher: int = 1, sequence: int = 0) -> StoredEvent:
    attributes: dict[str, Value] = {"mqtt": 4, "mqtt.at": at}
    event = Event(publisher, sequence, attributes, payload, topic, "", EventClass.MEMORIZED, 10 * SECOND)
    return StoredEvent(event, 0, 0)


def shown(*entries: StoredEvent) -> list[tuple[str, bytes]]:
    return [(entry.event.topic, entry.event.payload) for entry in newest_retained(entries)]


def test_the_newest_of_each_topic_is_shown_whatever_the_order_of_arrival() -> None:
    old, new, other = retained("a", b"old", 5), retained("a", b"new", 6), retained("b", b"x", 1)
    assert shown(old, other, new) == [("a", b"new"), ("b", b"x")]
    assert sorted(shown(new, old, other)) == [("a", b"new"), ("b", b"x")]


def test_one_without_payload_clears_what_is_older() -> None:
    cleared = retained("a", b"", 6)
    assert shown(retained("a", b"old", 5), cleared) == []
    assert shown(cleared, retained("a", b"old", 5)) == []
    assert shown(cleared, retained("a", b"after", 7)) == [("a", b"after")]


def test_equal_stamps_are_ordered_by_node_and_sequence() -> None:
    assert shown(retained("a", b"2", 5, 2), retained("a", b"1", 5, 1)) == [("a", b"2")]
    assert shown(retained("a", b"2", 5, 1, 8), retained("a", b"1", 5, 1, 7)) == [("a", b"2")]


@pytest.mark.parametrize("at", ["soon", None, 1.5, True])
def test_a_stamp_that_is_none_is_the_oldest(at: Value) -> None:
    assert shown(retained("a", b"odd", at, 9), retained("a", b"good", 1)) == [("a", b"good")]


def test_a_message_that_is_not_retained_is_not_shown() -> None:
    event = Event(1, 0, {"mqtt": 1}, b"x", "a", "", EventClass.MEMORIZED, SECOND)
    assert newest_retained([StoredEvent(event, 0, 0)]) == []


def nothing_held() -> list[Event]:
    return []


def test_who_has_seen_a_message_is_newer_whatever_its_clock_says() -> None:
    stamps = RetainedStamps(nothing_held, unreported)
    assert stamps.next("a", 100) == 100
    stamps.on_event(retained("a", b"x", 5_000).event)
    assert stamps.next("a", 101) == 5_001
    assert stamps.next("b", 101) == 101
    stamps.on_event(retained("a", b"x", 7).event)
    assert stamps.next("a", 102) == 5_002


def test_what_the_node_holds_counts_as_seen_although_nobody_here_asked_for_it() -> None:
    held = [retained("a", b"x", 5_000).event]
    stamps = RetainedStamps(lambda: held, unreported)
    assert stamps.next("a", 100) == 5_001
    held.append(retained("b", b"x", 9_000).event)
    assert stamps.next("b", 101) == 101  # looked through a moment ago
    held.append(retained("c", b"x", 9_000_000).event)
    assert stamps.next("c", 100 + SCAN_INTERVAL) == 9_000_001


def test_what_an_earlier_boot_has_left_to_publish_counts_as_seen_and_so_does_what_is_held() -> None:
    stamps = RetainedStamps(lambda: [retained("a", b"x", 9_000).event], unreported)
    stamps.on_stamp("a", 5_000)
    stamps.on_stamp("b", 5_000)
    assert (stamps.next("a", 100), stamps.next("b", 100)) == (9_001, 5_001)


def test_there_is_always_a_higher_stamp() -> None:
    stamps = RetainedStamps(nothing_held, unreported)
    stamps.on_event(retained("a", b"x", STAMP_MAX).event)
    assert stamps.next("a", 100) == 100
    assert shown(retained("a", b"wild", STAMP_MAX, 9), retained("a", b"good", 1)) == [("a", b"good")]


@given(st.lists(st.integers(0, TOPICS_MAX * 2), max_size=50))
def test_stamps_of_a_topic_only_rise(topics: list[int]) -> None:
    stamps = RetainedStamps(nothing_held, unreported)
    last: dict[str, Micros] = {}
    for number in topics:
        topic = str(number % 7)
        stamp = stamps.next(topic, number)
        assert stamp > last.get(topic, -1)
        last[topic] = stamp


def test_stamps_are_remembered_of_so_many_topics() -> None:
    forgotten: list[str] = []
    stamps = RetainedStamps(nothing_held, lambda topic, _: forgotten.append(topic))
    for number in range(TOPICS_MAX + 10):
        stamps.next(str(number), 1)
    assert len(stamps) == TOPICS_MAX
    assert forgotten == [str(number) for number in range(10)]


# Through the listener.


@in_loop
async def test_a_later_subscriber_gets_the_last_retained_message_of_each_topic() -> None:
    async with serving() as server:
        writer = await server.client("writer")
        for qos, payload in enumerate((b"first", b"second", b"last")):
            await writer.publish("a/b", payload, qos, retain=True)
        await writer.publish("a/c", b"other", 0, retain=True)
        await writer.publish("a/c", b"not retained", 1)
        reader = await server.client("reader")
        await reader.subscribe("a/#")
        found = [await reader.receive() for _ in range(2)]
        assert [(one.payload, one.qos, one.retain) for one in found] == [
            (b"last", 2, True),
            (b"other", 0, True),
        ]
        await reader.hears_nothing()


@in_loop
async def test_an_empty_retained_message_clears_and_is_a_message_itself() -> None:
    async with serving() as server:
        writer, reader = await server.client("writer"), await server.client("reader")
        await writer.publish("a", b"x", 1, retain=True)
        await reader.subscribe("a")
        assert await reader.payloads(1) == [b"x"]
        await writer.publish("a", b"", 1, retain=True)
        message = await reader.receive()
        assert (message.payload, message.retain) == (b"", False)
        late = await server.client("late")
        await late.subscribe("a")
        await late.hears_nothing()


@in_loop
async def test_what_is_retained_is_a_memorized_event_with_its_lifetime() -> None:
    async with serving(retained_lifetime=100) as server:
        client = await server.client5()
        for topic, expiry in {"a": None, "b": 7, "c": 1_000}.items():
            await client.publish(topic, b"x", 1, retain=True, properties=Properties(message_expiry=expiry))
        await client.publish("d", b"", 1, retain=True, properties=Properties(message_expiry=7))
        kept = server.node.node.broker.store.standing(server.node.now())
        # What clears a topic must outlive what it clears.
        assert [entry.event.lifetime // SECOND for entry in kept] == [100, 7, 100, 100]


@in_loop
async def test_retain_handling_and_retain_as_published() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.publish("a", b"x", 0, retain=True)

        async def sent(handling: int) -> bool:
            await client.subscribe(SubscriptionRequest("a", 0, False, False, handling))
            await client.publish("mark", b"mark")
            return (await client.receive()).topic == "a" and (await client.receive()).topic == "mark"

        await client.subscribe("mark", qos=0)
        assert not await sent(2)
        assert not await sent(1)  # it stands already
        assert await sent(0)
        assert await sent(0)
        await client.unsubscribe("a")
        assert await sent(1)
        await client.subscribe(SubscriptionRequest("a", 0, False, True, 2))
        await client.publish("a", b"live", 0, retain=True)
        await client.publish("a", b"live", 0, retain=False)
        assert [(await client.receive()).retain for _ in range(2)] == [True, False]


@in_loop
async def test_a_content_filter_is_tried_on_the_newest_message_alone() -> None:
    async with serving() as server:
        writer, reader = await server.client5("writer"), await server.client5("reader")
        for value in ("30", "10"):
            pairs = [("value", value)]
            await writer.publish("a", b"x", 0, retain=True, properties=Properties(user_properties=pairs))
        await reader.subscribe("a?value>20", qos=0)
        await reader.hears_nothing()
        await reader.subscribe("a?value<20", qos=0)
        assert (await reader.receive()).retain


@in_loop
async def test_a_retained_message_says_what_is_left_of_its_expiry() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.publish("a", b"x", 0, retain=True, properties=Properties(message_expiry=100))
        await client.subscribe("a", qos=0)
        message = await client.receive()
        assert message.properties is not None and message.properties.message_expiry is not None
        assert 50 < message.properties.message_expiry <= 100


@in_loop
async def test_shared_subscriptions_get_no_retained_messages() -> None:
    async with serving() as server:
        client = await server.client5()
        await client.publish("a", b"x", 0, retain=True)
        await client.subscribe("$share/g/a", qos=0)
        await client.hears_nothing()


@in_loop
async def test_two_nodes_agree_on_messages_and_on_what_is_retained() -> None:
    here, there = StandAloneNode(1), StandAloneNode(2)
    here.hears(there)
    there.hears(here)
    async with serving(node=here) as one, serving(node=there) as other:
        writer, reader = await one.client5("writer"), await other.client5("reader")
        await reader.subscribe("a/#?n<9", qos=2)
        pairs = Properties(content_type="t", user_properties=[("n", "1.0"), ("n", "2")])
        await writer.publish("a/b", b"far", 2, properties=pairs)
        message = await reader.receive()
        assert (message.topic, message.payload, message.qos) == ("a/b", b"far", 2)
        assert message.properties == pairs
        await writer.publish("state", b"old", 1, retain=True)
        backwards = await other.client("backwards")
        await backwards.publish("state", b"new", 1, retain=True)
        for server in (one, other):
            late = await server.client("late")
            await late.subscribe("state")
            message = await late.receive()
            assert (message.payload, message.retain) == (b"new", True)
        await writer.publish("state", b"", 0, retain=True)
        for server in (one, other):
            later = await server.client("later")
            await later.subscribe("state")
            await later.hears_nothing()
