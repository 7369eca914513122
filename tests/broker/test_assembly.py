"""Joining chunks: whatever is lost, repeated or reordered, an application gets the whole once, or nothing."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.broker import assembly as parts
from roamcast.broker.assembly import ASSEMBLIES_MAX, Assembler, Problem
from roamcast.broker.core import Delivery
from roamcast.broker.store import ChunkRoom, EventStore
from roamcast.chunks import (
    CHUNK_BYTES,
    CHUNKS_MAX,
    KEPT_FOR,
    MARK,
    ChunkTransfer,
    digest_of,
    head,
    parse,
    pieces,
)
from roamcast.errors import EventError, WireError
from roamcast.event import LARGE_BYTES_MAX, Event, EventId, Publication
from roamcast.units import SECOND, Micros

LIFETIME: Micros = 3600 * SECOND


def cut(payload: bytes, *, lifetime: Micros = LIFETIME, first: int = 7, publisher: int = 1) -> list[Event]:
    events: list[Event] = []

    def publish(chunk: Publication, sequence: int, is_last: bool) -> None:
        events.append(chunk.numbered(publisher, sequence))

    frame = Publication({"level": 5}, topic="map", lifetime=lifetime)
    transfer = ChunkTransfer(publish, frame, len(payload), digest_of(payload), first)
    for octets in pieces(payload):
        transfer.add(octets)
    return events


class Receiver:
    """A store and an assembler, as a node has them."""

    def __init__(self) -> None:
        self.store = EventStore()
        self.problems: list[Problem] = []
        self.got: list[Delivery] = []
        self.now: Micros = 0
        self.assembler = self.new_assembler()

    def new_assembler(self) -> Assembler:
        return Assembler(
            self.store.find, lambda event: event, lambda problem, _: self.problems.append(problem)
        )

    def take(self, event: Event, application: int = 1, numbers: tuple[int, ...] = (3,)) -> None:
        self.store.keep(event, self.now + event.lifetime, 1, self.now)
        self.got += self.assembler.on_chunk(Delivery(event, numbers, 1), application, self.now)

    def take_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.take(event)


PAYLOADS = st.integers(1, 12 * CHUNK_BYTES).map(lambda size: Random(size).randbytes(size))


@given(PAYLOADS, st.data())
def test_the_whole_comes_once_when_the_last_missing_chunk_does(payload: bytes, data: Any) -> None:
    chunks = cut(payload)
    arrivals = data.draw(st.lists(st.sampled_from(range(len(chunks))), max_size=3 * len(chunks)))
    restarts = data.draw(st.sets(st.integers(0, len(arrivals)), max_size=2))
    receiver = Receiver()
    had: set[int] = set()
    for at, index in enumerate(arrivals):
        if at in restarts and not receiver.got:
            receiver.assembler = receiver.new_assembler()  # the store is on a disk, assemblies are not
        receiver.take(chunks[index])
        had.add(index)
        assert len(receiver.got) == (len(had) == len(chunks))
    receiver.take_all(chunks)
    (delivery,) = receiver.got
    event = delivery.event
    assert event.payload == payload and event.id == (1, 7) and event.attributes == {"level": 5}
    assert event.lifetime == LIFETIME and delivery.subscriptions == (3,)
    assert not receiver.problems and not receiver.assembler.unfinished


@given(PAYLOADS.filter(lambda payload: len(payload) > CHUNK_BYTES), st.data())
def test_whatever_is_changed_in_a_chunk_nothing_wrong_is_delivered(payload: bytes, data: Any) -> None:
    chunks = cut(payload)
    index = data.draw(st.integers(0, len(chunks) - 1))
    octet = data.draw(st.integers(0, len(chunks[index].payload) - 1))
    changed = bytearray(chunks[index].payload)
    changed[octet] ^= data.draw(st.integers(1, 255))
    forged = msgspec.structs.replace(chunks[index], payload=bytes(changed))
    receiver = Receiver()
    order = data.draw(st.permutations([forged, *(one for one in chunks if one.id != forged.id)]))
    receiver.take_all(order)
    assert not receiver.got and receiver.problems


def marked(**changes: Any) -> Event:
    return msgspec.structs.replace(cut(bytes(2 * CHUNK_BYTES + 5))[1], **changes)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: marked(attributes={MARK: "1"}),
        lambda: marked(attributes={MARK: True}),
        lambda: marked(attributes={MARK: -1}),
        lambda: marked(attributes={MARK: 3}),
        lambda: marked(attributes={MARK: 2}),  # the last has fewer octets
        lambda: marked(sequence=0),
        lambda: marked(payload=b""),
        lambda: marked(payload=marked().payload[:-1]),
        lambda: marked(payload=marked().payload + b"x"),
        lambda: marked(payload=b"\2" + marked().payload[1:]),
        lambda: marked(payload=head(0, 0, bytes(16)) + bytes(CHUNK_BYTES)),
        lambda: marked(payload=head(LARGE_BYTES_MAX + 1, 0, bytes(16)) + bytes(CHUNK_BYTES)),
        lambda: marked(payload=head(2 * CHUNK_BYTES, LIFETIME + 1, bytes(16)) + bytes(CHUNK_BYTES)),
    ],
)
def test_what_can_be_no_chunk_is_counted_and_forgotten(bad: Callable[[], Event]) -> None:
    receiver = Receiver()
    receiver.take(bad())
    assert receiver.problems == [parts.MALFORMED] and not receiver.assembler.unfinished
    with pytest.raises(WireError):
        parse(bad())


@pytest.mark.parametrize(
    "other",
    [
        lambda: cut(bytes(3 * CHUNK_BYTES))[1],  # another size, another digest
        lambda: cut(b"x" * (2 * CHUNK_BYTES + 5))[1],  # another digest
        lambda: marked(topic="elsewhere"),
        lambda: marked(attributes={MARK: 1, "level": 6}),
        lambda: marked(lifetime=LIFETIME + 1),
        lambda: marked(destinations=(4,)),
    ],
)
def test_a_chunk_that_contradicts_the_first_one_is_left_out(other: Callable[[], Event]) -> None:
    receiver = Receiver()
    chunks = cut(bytes(2 * CHUNK_BYTES + 5))
    receiver.take(chunks[0])
    receiver.take(other())
    assert receiver.problems == [parts.CONTRADICTS] and not receiver.got


def test_a_payload_that_never_ends_is_given_up_when_its_time_is_over() -> None:
    receiver = Receiver()
    receiver.take_all(cut(bytes(5 * CHUNK_BYTES), lifetime=0)[:-1])
    assert receiver.assembler.unfinished == 1
    receiver.now = KEPT_FOR + 1
    receiver.take(cut(bytes(2 * CHUNK_BYTES), first=100)[0])
    assert receiver.problems == [parts.UNFINISHED] and receiver.assembler.unfinished == 1


def test_of_too_many_the_first_to_expire_makes_room_and_can_still_be_finished() -> None:
    receiver = Receiver()
    begun = cut(bytes(2 * CHUNK_BYTES), first=0)
    receiver.take(begun[0])
    for number in range(ASSEMBLIES_MAX):
        receiver.take(cut(bytes(2 * CHUNK_BYTES), first=10 * number + 10, lifetime=LIFETIME + SECOND)[0])
    assert receiver.problems == [parts.TOO_MANY] and receiver.assembler.unfinished == ASSEMBLIES_MAX
    receiver.take(begun[1])  # the store has the other one
    assert [delivery.event.id for delivery in receiver.got] == [(1, 0)]


def test_later_applications_get_what_is_memorized_and_nothing_that_is_real_time() -> None:
    for lifetime, late in ((LIFETIME, 1), (0, 0)):
        receiver = Receiver()
        chunks = cut(bytes(3 * CHUNK_BYTES), lifetime=lifetime)
        receiver.take_all(chunks)
        for chunk in chunks:
            receiver.take(chunk, application=2, numbers=(4,))
        assert [delivery.subscriptions for delivery in receiver.got] == [(3,)] + [(4,)] * late
        receiver.assembler = receiver.new_assembler()  # a restart
        for chunk in chunks:
            receiver.take(chunk, application=5, numbers=(6,))
        assert len(receiver.got) == 1 + 2 * late


def test_an_application_that_comes_in_the_middle_gets_the_whole_with_the_others() -> None:
    receiver = Receiver()
    for index, chunk in enumerate(cut(bytes(4 * CHUNK_BYTES), lifetime=0)):
        receiver.take(chunk)
        if index >= 2:
            receiver.take(chunk, application=2, numbers=(4,))
    assert sorted(delivery.subscriptions for delivery in receiver.got) == [(3,), (4,)]


def test_a_memorized_whole_is_not_given_after_its_own_lifetime() -> None:
    receiver = Receiver()
    chunks = cut(bytes(3 * CHUNK_BYTES), lifetime=SECOND)
    receiver.take_all(chunks[:2])
    last = EventId(1, 9)
    receiver.now = 2 * SECOND
    receiver.take(chunks[2])
    stored = receiver.store.find(last)
    assert not receiver.got and stored is not None
    assert receiver.assembler.whole_stored(stored, receiver.now) is None


def test_a_transfer_takes_its_own_octets_and_no_others() -> None:
    published: list[int] = []
    payload = bytes(2 * CHUNK_BYTES)
    transfer = ChunkTransfer(
        lambda chunk, sequence, is_last: published.append(sequence),
        Publication(),
        len(payload),
        digest_of(payload),
        4,
    )
    with pytest.raises(EventError, match="needs 4096"):
        transfer.add(b"short")
    transfer.add(payload[:CHUNK_BYTES])
    with pytest.raises(EventError, match="digest"):
        transfer.add(b"x" * CHUNK_BYTES)
    assert not transfer.is_over and published == [4] and CHUNKS_MAX == 4096


def test_chunks_have_room_of_their_own_and_the_publisher_with_the_most_gives() -> None:
    room = ChunkRoom(bytes_max=100, publisher_bytes_max=60)
    for publisher, count in ((1, 5), (2, 4)):
        for sequence in range(count):
            room.add(EventId(publisher, sequence), 10)
    assert list(room.excess()) == []
    room.add(EventId(2, 9), 20)
    (gone,) = (one for one in [next(room.excess())])
    assert gone == EventId(2, 0)
    room.remove(gone, 10)
    assert list(room.excess()) == [] and len(room) == 9 and gone not in room
    room.add(EventId(1, 9), 20)
    assert next(room.excess()) == EventId(1, 0)  # more than one publisher may have


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60), st.integers(1, 9)), max_size=80))
def test_whatever_chunks_come_from_whomever_the_store_stays_within_its_bounds(
    arrivals: list[tuple[int, int, int]],
) -> None:
    room = CHUNK_BYTES + 1_000  # of one, at most
    store = EventStore(chunks=ChunkRoom(bytes_max=10 * room, publisher_bytes_max=4 * room))
    for now, (publisher, sequence, lives) in enumerate(arrivals):
        payload = head(60 * CHUNK_BYTES, 0, bytes(16)) + bytes(CHUNK_BYTES)
        chunk = Publication({MARK: sequence % 60}, payload, lifetime=LIFETIME).numbered(publisher, sequence)
        store.keep(chunk, now + lives, 1, now)
        kept = store.standing(now)
        sizes = {each: sum(one.size for one in kept if one.event.publisher == each) for each in range(1, 5)}
        assert sum(sizes.values()) <= 10 * room and max(sizes.values()) <= 4 * room
        assert len(store._chunks) == len(kept) and store._chunks._total == sum(sizes.values())


def test_the_store_keeps_small_events_beside_chunks() -> None:
    store = EventStore(entries_max=3)
    for sequence in range(3):
        store.keep(Publication(lifetime=LIFETIME).numbered(2, sequence), LIFETIME, 0, 0)
    for chunk in cut(bytes(20 * CHUNK_BYTES)):
        assert not store.keep(chunk, LIFETIME, 0, 0)
    assert len(store) == 23
    assert [event.id for event in store.keep(Publication(lifetime=1).numbered(2, 9), LIFETIME, 0, 0)]
    assert len(store) == 23
    store.keep(Publication(lifetime=LIFETIME).numbered(2, 10), 2 * LIFETIME, 0, LIFETIME)
    assert len(store) == 1  # all else has expired


def test_a_retained_payload_in_chunks_takes_the_place_of_the_one_before() -> None:
    def retained(first: int, stamp: int, size: int) -> list[Event]:
        return [
            msgspec.structs.replace(chunk, attributes={**chunk.attributes, "mqtt": 4, "mqtt.at": stamp})
            for chunk in cut(bytes(size), first=first)
        ]

    store = EventStore()
    for chunk in retained(0, 10, 5 * CHUNK_BYTES):
        store.keep(chunk, LIFETIME, 0, 0)
    newer = retained(20, 11, 3 * CHUNK_BYTES)
    for chunk in newer[:-1]:
        store.keep(chunk, LIFETIME, 0, 0)
    assert len(store) == 7  # until the last one is here
    store.keep(newer[-1], LIFETIME, 0, 0)
    assert len(store) == 3
    store.keep(
        Publication({"mqtt": 4, "mqtt.at": 12}, topic="map", lifetime=LIFETIME).numbered(3, 1), LIFETIME, 0, 0
    )
    assert len(store) == 1


@pytest.mark.parametrize("extra", [b"", b"more"])
def test_after_the_last_chunk_nothing_more_is_published(extra: bytes) -> None:
    """Not even an empty one: the number behind the last belongs to another event."""
    published: list[int] = []
    payload = bytes(CHUNK_BYTES + 1)
    frame = Publication({}, topic="map")
    transfer = ChunkTransfer(
        lambda chunk, number, is_last: published.append(number), frame, len(payload), digest_of(payload), 7
    )
    for octets in pieces(payload):
        transfer.add(octets)
    with pytest.raises(EventError):
        transfer.add(extra)
    assert published == [7, 8]
