"""Large payloads over the local socket: in parts to the node, whole to the subscriber, bounded in between."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.gateway.local.test_local import RawSubscriber, run, served
from tests.gateway.mqtt.stand_alone import StandingNode

from roamcast.applications import Applications, LargePublication
from roamcast.chunks import CHUNK_BYTES, ChunkQueue, ChunkTransfer, digest_of, pieces
from roamcast.client import ClientError, blocking, connect
from roamcast.client.asking import publication
from roamcast.event import LARGE_BYTES_MAX, Publication
from roamcast.filter import Filter
from roamcast.gateway.local import client_of, server
from roamcast.gateway.local.session import TRANSFERS_MAX, LocalSession
from roamcast.pressure import Allowance
from roamcast.wire.local import (
    PARTS_AHEAD,
    ClientHello,
    DeliveryMessage,
    Done,
    Failed,
    LargeRequest,
    NodeMessage,
    PartsPublished,
    PayloadPart,
    framed_pieces,
)

LARGE = Random(1).randbytes(50 * CHUNK_BYTES + 7)


def test_a_large_payload_goes_through_and_the_publisher_sees_how_far_it_is(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            subscription = await client.open_subscription(client_filter())
            seen: list[tuple[int, int]] = []
            ready = publication(topic="map", attributes={"level": 5}, payload=LARGE, lifetime=60.0)
            event = await client.send(ready, lambda *progress: seen.append(progress))
            message = await subscription.next(5)
            assert message.event.payload == LARGE and message.event.id == event
            assert message.event.attributes == {"level": 5} and message.event.lifetime == 60_000_000
            assert seen == sorted(seen) and seen[-1] == (len(LARGE), len(LARGE))
            await client.publish_soon(topic="map", payload=LARGE[:70_000])
            assert (await subscription.next(5)).event.payload == LARGE[:70_000]
            late = await client.open_subscription(client_filter())
            assert (await late.next(5)).event.payload == LARGE  # the memorized one

    run(test())


def client_filter() -> Filter:
    return Filter.topic("map")


def test_the_largest_and_nothing_larger(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path / "s"), connect(tmp_path / "s") as client:
            subscription = await client.open_subscription(client_filter())
            payload = bytes(LARGE_BYTES_MAX)
            await client.publish(topic="map", payload=payload)
            assert len((await subscription.next(10)).event.payload) == LARGE_BYTES_MAX
            with pytest.raises(ClientError, match="at most 16777216"):
                await client.publish(topic="map", payload=payload + b"x")

    run(test())


def test_in_process_and_blocking_clients_do_it_too(tmp_path: Path) -> None:
    async def test() -> None:
        node = StandingNode()
        inside = await client_of(node)
        subscription = await inside.open_subscription(client_filter())
        async with served(tmp_path / "s", node):

            def publish() -> None:
                with blocking.connect(tmp_path / "s") as client:
                    client.publish(topic="map", payload=LARGE)

            await asyncio.get_running_loop().run_in_executor(None, publish)
            assert (await subscription.next(5)).event.payload == LARGE
            await inside.publish(topic="map", payload=LARGE + b"again")
            assert (await subscription.next(5)).event.payload == LARGE + b"again"

    run(test())


class Session:
    """A client that says what it likes."""

    def __init__(self, node: StandingNode | None = None) -> None:
        self.node = node or StandingNode()
        self.heard: list[NodeMessage] = []
        self.session = LocalSession(self.node, self.heard.append)
        self.session.on_message(ClientHello("test"))
        self.heard.clear()

    def begin(self, request: int = 1, frame: Publication | None = None, payload: bytes = LARGE) -> None:
        self.session.on_message(
            LargeRequest(request, frame or Publication(topic="map"), len(payload), digest_of(payload))
        )

    def failures(self) -> list[str]:
        return [message.problem for message in self.heard if isinstance(message, Failed)]


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (b"short", "needs 4096"),
        (b"", "needs 4096"),
    ],
)
def test_parts_that_are_not_the_announced_payload_end_it(octets: bytes, problem: str) -> None:
    client = Session()
    client.begin()
    client.session.on_message(PayloadPart(1, octets))
    assert problem in client.failures()[0]
    client.session.on_message(PayloadPart(1, LARGE[:CHUNK_BYTES]))  # what follows is not answered
    assert len(client.heard) == 1


def test_another_payload_than_announced_is_refused_and_never_delivered() -> None:
    client = Session()
    got: list[object] = []
    client.node.applications.open(got.append).subscribe(client_filter())
    client.session.on_message(LargeRequest(1, Publication(topic="map"), CHUNK_BYTES, digest_of(b"other")))
    client.session.on_message(PayloadPart(1, bytes(CHUNK_BYTES)))
    assert "its digest differs" in client.failures()[0] and not got


def test_announcements_have_bounds_and_the_mark_of_chunks_is_the_nodes_own() -> None:
    client = Session()
    for size in (0, LARGE_BYTES_MAX + 1):
        client.session.on_message(LargeRequest(1, Publication(topic="map"), size, bytes(16)))
    client.begin(frame=Publication({"roamcast.chunk": 1}))
    client.begin(frame=Publication(payload=b"there already"))
    problems = client.failures()
    assert [problem.count("16777216") for problem in problems] == [1, 1, 0, 0]
    assert "the node's own" in problems[2] and "is there already" in problems[3]
    client.heard.clear()
    for request in range(TRANSFERS_MAX + 1):
        client.begin(request + 1)
    assert len(client.failures()) == 1 and "one too many" in client.failures()[0]


class Delayed:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.waiting.append((seconds, action))

    def fire(self) -> float:
        seconds, action = self.waiting.pop(0)
        action()
        return seconds


def test_parts_wait_for_their_turn_and_a_client_that_leaves_takes_them_along() -> None:
    node, timers = StandingNode(), Delayed()
    node.applications = _with_timers(node, timers)
    client, other = Session(node), Session(node)
    for one in (client, other):
        one.begin()
        for at in range(3):
            one.session.on_message(PayloadPart(1, LARGE[at * CHUNK_BYTES : (at + 1) * CHUNK_BYTES]))
    assert client.heard == [PartsPublished(1, 1)] and not other.heard
    timers.fire()
    timers.fire()
    assert len(timers.waiting) == 1  # and they take turns
    assert client.heard[-1] == PartsPublished(1, 2) and other.heard == [PartsPublished(1, 1)]
    client.session.close()
    while timers.waiting:
        timers.fire()
    assert client.heard[-1] == PartsPublished(1, 2) and other.heard[-1] == PartsPublished(1, 3)
    for _ in range(PARTS_AHEAD + 2):
        other.session.on_message(PayloadPart(1, bytes(CHUNK_BYTES)))
    assert any("ahead" in problem for problem in other.failures())


def _with_timers(node: StandingNode, timers: Delayed) -> Applications:
    applications = Applications(node, later=timers.later)
    bound = node.applications.node
    bound.broker._application = applications
    applications.bind(bound)
    return applications


def test_chunks_leave_half_of_what_is_allowed_to_events() -> None:
    allowance = Allowance()
    assert allowance.bulk_wait(0.0) == 0.0
    for at in range(200):
        allowance.take(at / 100, 4)
    allowance.on_congestion(2.0)
    assert allowance.rate is not None
    rate = allowance.rate
    now, chunks, events = 2.0, 0, 0
    while now < 2.9:
        now += 0.001
        chunks += allowance.bulk_wait(now) == 0.0
        events += allowance.take(now, 4) if round(now * 1000) % 40 == 0 else 0
    assert events >= 20  # nearly all of 25 per second; the bucket is empty at first
    assert 0 < chunks <= rate


def test_a_queue_without_timers_does_all_at_once_even_if_a_step_adds_another() -> None:
    done: list[str] = []
    queue = ChunkQueue(lambda: 0.0, None)

    def second() -> bool:
        done.append("second")
        return False

    def first() -> bool:
        done.append("first")
        if len(done) == 1:
            queue.add(second)
        return len(done) < 4

    queue.add(first)
    assert done == ["first", "second", "first", "first"] or done == ["first", "first", "second", "first"]


def test_a_node_without_time_sends_fewer_chunks() -> None:
    now, timers, sent = 0.0, Delayed(), 0

    def step() -> bool:
        nonlocal sent
        sent += 1
        return True

    queue = ChunkQueue(lambda: 0.0, timers.later, lambda: now)
    queue.add(step)
    waits = []
    for late in (0.0, 0.02, 0.0, 5.0):
        wait, _ = timers.waiting[0]
        waits.append(round(wait, 4))
        now += wait + late
        timers.fire()
    waits.append(round(timers.waiting[0][0], 4))
    assert waits == [0.005, 0.005, 0.045, 0.005, 0.105] and sent == 5


def test_a_subscriber_that_does_not_read_holds_two_large_payloads_and_misses_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2_000_000
    monkeypatch.setattr(server, "LARGE_BYTES_MAX", size)

    async def test() -> None:
        node = StandingNode()
        path = tmp_path / "s"
        async with served(path, node):
            slow = await RawSubscriber.open(path, "map")
            session = node.applications.open(lambda delivery: None)
            payload = bytes(size)
            for number in range(4):
                session.publish(Publication({"n": number}, payload, "map"))
            session.publish(Publication(topic="map", payload=b"small"))
            while slow.large + slow.delivered + slow.missed < 5:
                await slow.read(100_000)
            assert slow.large in (2, 3) and slow.missed == 4 - slow.large and slow.delivered == 1
            slow.close()

    run(test())


def test_a_large_payload_is_written_without_a_copy() -> None:
    event = Publication(topic="map", payload=LARGE).numbered(1, 2)
    begins, payload = framed_pieces(DeliveryMessage(event, (3,), 1))
    assert payload is event.payload and len(begins) < 100
    assert len(framed_pieces(Done(1))) == 1


@pytest.mark.parametrize("extra", [b"", b"more"])
def test_parts_beyond_the_announced_payload_are_ignored_and_stop_no_other_transfer(extra: bytes) -> None:
    ended: list[object] = []
    published: list[int] = []
    payload = bytes(CHUNK_BYTES + 1)
    frame = Publication({}, topic="map")
    queue = ChunkQueue(lambda: 0.0, None, lambda: 0.0)

    def begin(first: int) -> LargePublication:
        transfer = ChunkTransfer(
            lambda chunk, number, is_last: published.append(number),
            frame,
            len(payload),
            digest_of(payload),
            first,
        )
        return LargePublication(queue, transfer, ended.append, lambda parts: None)

    one, other = begin(10), begin(20)
    one.add([*pieces(payload), extra])
    other.add(pieces(payload))
    assert ended == [None, None]
    assert sorted(published) == [10, 11, 20, 21]
