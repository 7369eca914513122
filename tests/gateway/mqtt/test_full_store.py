"""What was acknowledged stays: a store that others still need makes publishers wait, or refuses."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.gateway.mqtt.harness import Served, in_loop, serving, until
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.broker.store import EventStore, StoredEvent
from roamcast.event import EventId, Publication
from roamcast.gateway.mqtt import connection
from roamcast.gateway.mqtt.packets.values import V3_1_1, V5, Publish
from roamcast.gateway.mqtt.sessions.session import OwedEvents
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.database import NodeStorage
from roamcast.units import SECOND


class Awaited:
    """A node somewhere for which nothing may be pushed out, until it has had everything."""

    is_there = False

    def settled(self, stored: list[StoredEvent]) -> list[StoredEvent]:
        return stored if self.is_there else []


def node_that_keeps(entries: int) -> tuple[StandAloneNode, Awaited]:
    node, awaited = StandAloneNode(), Awaited()
    node.node.strategy.settled = awaited.settled  # type: ignore[method-assign]
    store = EventStore(entries_max=entries)
    store.settled = node.applications.settled
    node.node.broker.store = store
    return node, awaited


def kept(served: Served) -> list[bytes]:
    return [one.event.payload for one in served.node.node.broker.store.standing(served.node.now())]


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("qos", [1, 2])
@in_loop
async def test_a_publisher_waits_while_the_store_is_full(version: int, qos: int) -> None:
    node, awaited = node_that_keeps(3)
    async with serving(node=node) as server:
        client = await server.client("pub", version)
        for number in range(3):
            await client.publish("a", b"%d" % number, qos)
        client.say(Publish(topic="a", payload=b"3", qos=qos, packet_id=77))
        client.say(Publish(topic="b", payload=b"behind it", qos=0))
        await until(lambda: server.counted("mqtt_waits_total:store_full") == 1)
        assert kept(server) == [b"0", b"1", b"2"]
        other = await server.client("other")  # nobody else waits
        await other.subscribe("b")
        await other.publish("b", b"real-time", 0)
        assert (await other.receive()).payload == b"real-time"
        awaited.is_there = True
        answer = await client.answer()
        assert (answer.packet_id, answer.reason) == (77, 0)
        assert kept(server) == [b"1", b"2", b"3"]
        assert (await other.receive()).payload == b"behind it"


@in_loop
async def test_a_client_of_mqtt_5_is_refused_when_it_would_wait_for_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "REFUSED_FROM", 0.15)
    node, _ = node_that_keeps(1)
    async with serving(node=node) as server:
        client = await server.client5("pub")
        await client.publish("a", b"0", 1)
        client.say(Publish(topic="a", payload=b"1", qos=1, packet_id=7))
        answer = await client.answer()
        assert (answer.packet_id, answer.reason) == (7, 0x97)
        assert kept(server) == [b"0"]


@in_loop
async def test_after_one_refusal_the_next_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its acknowledgements wait behind what it publishes, and they may be what makes room."""
    monkeypatch.setattr(connection, "REFUSED_FROM", 2.0)
    node, _ = node_that_keeps(1)
    async with serving(node=node) as server:
        client = await server.client5("pub")
        await client.publish("a", b"0", 1)
        for number in (7, 8, 9):
            client.say(Publish(topic="a", payload=b"1", qos=1, packet_id=number))
        assert (await client.answer()).reason == 0x97
        begin = asyncio.get_running_loop().time()
        assert [(await client.answer()).reason for _ in range(2)] == [0x97, 0x97]
        assert asyncio.get_running_loop().time() - begin < 1.9


@in_loop
async def test_a_client_that_was_away_gets_more_than_its_queue_holds_and_in_order() -> None:
    node, awaited = node_that_keeps(20)
    awaited.is_there = True
    async with serving(node=node, queue_messages_max=3, inflight_max=2) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a", qos=1)
        await client.disconnect()
        writer = await server.client("writer")
        for number in range(20):
            await writer.publish("a", b"%d" % number, 1)
        writer.say(Publish(topic="a", payload=b"20", qos=1, packet_id=9))
        # The store is full of what the client needs.
        await until(lambda: server.counted("mqtt_waits_total:store_full") == 1)
        client = await server.client("id", clean_start=False)
        assert await client.payloads(21) == [b"%d" % number for number in range(21)]
        assert (await writer.answer()).reason == 0
        assert server.counted("mqtt_dropped_total:queue_full") == 0


@in_loop
async def test_a_client_is_waited_for_ten_minutes() -> None:
    node, awaited = node_that_keeps(2)
    awaited.is_there = True
    async with serving(node=node, queue_messages_max=1) as server:
        client = await server.client("id", clean_start=False)
        await client.subscribe("a", qos=1)
        await client.disconnect()
        writer = await server.client("writer")
        for number in range(2):
            await writer.publish("a", b"%d" % number, 1)
        session = server.listener.sessions.find("id")
        assert session is not None
        now = server.listener.exchange.now()
        assert len(server.listener.sessions.owed) == session.waiting == 2
        owed = OwedEvents(lambda: now + 600 * SECOND)
        owed.add(EventId(1, 1), now)
        owed.add(EventId(1, 2), now + 1)
        assert EventId(1, 1) not in owed and EventId(1, 2) in owed


class Unread(dict[Any, Any]):
    """A table in which one may look up, and of which nobody may go through all entries."""

    def __iter__(self) -> Any:
        raise AssertionError("all entries are looked at, for each question")

    keys = values = items = __iter__


def steps(work: Callable[[], object]) -> int:
    """How many instructions of the interpreter it takes: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@in_loop
async def test_what_a_full_store_is_asked_costs_the_same_whoever_is_absent() -> None:
    costs = []
    for sessions in (2, 200):
        node, awaited = node_that_keeps(200)
        awaited.is_there = True
        async with serving(node=node) as server:
            for number in range(sessions):
                client = await server.client(f"id{number}", clean_start=False)
                await client.subscribe("a", qos=1)
                await client.disconnect()
            writer = await server.client("writer")
            for number in range(200):
                await writer.publish("a", b"%d" % number, 1)
            stored = node.node.broker.store.standing(node.now())
            assert not node.applications.settled(stored), "every session waits for all of them"
            sessions_of, owed = server.listener.sessions, server.listener.sessions.owed
            tables = (sessions_of._sessions, owed._clients, owed._since)
            sessions_of._sessions, owed._clients, owed._since = (Unread(table) for table in tables)
            costs.append(steps(partial(node.applications.settled, stored)))
            sessions_of._sessions, owed._clients, owed._since = tables
    assert costs[0] == costs[1] > len(stored)


def test_a_full_store_asks_about_an_event_in_few_calls() -> None:
    """It does so twice for each new event, and a store of events that all have had is always full."""
    node, calls = StandAloneNode(), 0
    node.applications.owed.append(OwedEvents(lambda: 0))
    node.applications.open(lambda delivery: None).publish(Publication(lifetime=SECOND))
    stored = node.node.broker.store.standing(node.now())

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    settled = list(node.applications.settled(stored))
    sys.setprofile(None)
    assert settled == stored
    assert calls <= 8


@in_loop
async def test_kept_messages_are_for_those_who_had_subscribed() -> None:
    for qos1, count in (("kept", 0), ("memorized", 1)):
        async with serving(qos1=qos1) as server:
            writer = await server.client("writer")
            await writer.publish("a", b"before", 1)
            late = await server.client("late")
            await late.subscribe("#", qos=1)
            assert len(await late.payloads(count)) == count
            await late.hears_nothing()


class HeldDisk(StandAloneNode):
    """Nothing is durable before the test says so."""

    is_held = False

    def enter(self) -> None:
        if not self.is_held:
            super().enter()


@in_loop
async def test_a_message_is_refused_once_its_record_is_gone_from_the_disk(tmp_path: Path) -> None:
    """The publisher may send it anew as soon as it hears of it. A node that is killed then, and that still
    has the record, would publish both."""
    storage = NodeStorage(LocalDisk(), tmp_path / "state.db")
    node = HeldDisk(storage=storage, strategy="epidemic")
    store = EventStore(entries_max=1)
    store.settled = lambda stored: []
    async with serving(node=node) as server:
        client = await server.client5("pub", expiry=1_000)
        other = await server.client("other")
        node.node.broker.store = store
        node.is_held = True
        client.say(Publish(topic="a", payload=b"exactly once", qos=2, packet_id=7))
        await client.hears_nothing()  # it has been read, and written down
        other.say(Publish(topic="a", payload=b"takes the room", qos=1, packet_id=8))
        await other.hears_nothing()
        storage.commit()  # the record is durable; there is no room for the event, so the record goes
        await client.hears_nothing()
        storage.commit()
        answer = await client.answer()
        assert (answer.packet_id, answer.reason) == (7, 0x97)
        node.is_held = False
    storage.close()
