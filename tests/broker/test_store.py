import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.broker.store import (
    ASKED_AT_ONCE,
    ASKED_EVERY,
    ASKED_MORE,
    HOPS_MAX,
    REMAINS_MIN,
    EventStore,
    StoredEvent,
    StoreFullError,
)
from roamcast.event import Event, EventClass, EventId


def memorized(sequence: int, payload: bytes = b"") -> Event:
    return Event(1, sequence, {}, payload, event_class=EventClass.MEMORIZED, lifetime=100)


def test_an_event_is_kept_until_it_expires() -> None:
    store = EventStore()
    store.keep(memorized(1), expires_at=100, hops=2, now=0)
    assert [(s.event.sequence, s.hops) for s in store.standing(now=99)] == [(1, 2)]
    assert store.standing(now=100) == []
    assert len(store) == 0


def test_keeping_twice_keeps_once_and_the_expired_not_at_all() -> None:
    store = EventStore()
    store.keep(memorized(1), expires_at=100, hops=1, now=0)
    store.keep(memorized(1), expires_at=100, hops=5, now=0)
    store.keep(memorized(2), expires_at=10, hops=1, now=10)
    assert [(s.event.sequence, s.hops) for s in store.standing(now=10)] == [(1, 1)]


def test_a_full_store_gives_up_what_would_expire_first() -> None:
    store = EventStore(entries_max=2)
    store.keep(memorized(1), expires_at=300, hops=1, now=0)
    store.keep(memorized(2), expires_at=100, hops=1, now=0)
    pushed_out = store.keep(memorized(3), expires_at=200, hops=1, now=0)
    assert [event.sequence for event in pushed_out] == [2]
    assert EventId(1, 1) in store and EventId(1, 3) in store


def test_the_bound_in_octets_holds_too() -> None:
    store = EventStore(bytes_max=10_000)
    for sequence in range(100):
        store.keep(memorized(sequence, bytes(1_000)), expires_at=1_000 + sequence, hops=1, now=0)
    assert len(store) == 6  # 1,500 octets each
    assert [s.event.sequence for s in store.standing(now=0)] == [94, 95, 96, 97, 98, 99]


def retained(sequence: int, stamp: int, topic: str = "a", publisher: int = 1) -> Event:
    attributes: dict[str, bool | int | float | str | None] = {"mqtt": 4, "mqtt.at": stamp}
    return Event(publisher, sequence, attributes, b"x", topic, "", EventClass.MEMORIZED, 100)


def test_a_retained_event_takes_the_place_of_the_one_before_of_its_topic() -> None:
    store = EventStore()
    store.keep(memorized(1), expires_at=100, hops=1, now=0)
    store.keep(retained(2, 10), expires_at=100, hops=1, now=0)
    store.keep(retained(3, 10, "b"), expires_at=100, hops=1, now=0)
    assert store.superseded_by(retained(4, 11)) == EventId(1, 2)
    assert store.keep(retained(4, 11), expires_at=50, hops=1, now=0) == []
    assert store.keep(retained(5, 9), expires_at=100, hops=1, now=0) == []  # older, although it came later
    assert store.superseded_by(retained(5, 9)) is None
    assert [s.event.sequence for s in store.standing(now=0)] == [1, 3, 4]
    # When the newest has had its time, those before do not come back.
    assert [s.event.sequence for s in store.standing(now=50)] == [1, 3]


def test_only_memorized_retained_events_for_everyone_supersede_others() -> None:
    store = EventStore()
    store.keep(retained(1, 10), expires_at=100, hops=1, now=0)
    others = [
        Event(1, 2, {"mqtt": 1}, b"", "a", "", EventClass.MEMORIZED, 100),  # of MQTT, not retained
        Event(1, 3, {"mqtt": "4"}, b"", "a", "", EventClass.MEMORIZED, 100),
        Event(1, 4, {"mqtt": 4}, b"", "a", "", EventClass.MEMORIZED, 100, (9,)),  # for one node
        Event(1, 5, {"mqtt": 4}, b"", "", "", EventClass.MEMORIZED, 100),
        Event(1, 6, {"mqtt": 4}, b"", "", "", EventClass.MEMORIZED, 100),
    ]
    for event in others:
        store.keep(event, expires_at=100, hops=1, now=0)
    assert len(store) == 6


def test_a_topic_that_is_retained_without_end_pushes_nothing_out() -> None:
    store = EventStore(entries_max=10)
    for sequence in range(5):
        store.keep(memorized(sequence), expires_at=1_000, hops=1, now=0)
    for sequence in range(10, 10_000):
        assert store.keep(retained(sequence, sequence), expires_at=10**6 + sequence, hops=1, now=0) == []
    assert len(store) == 6
    assert len(store._by_expiry) <= 2 * 6 + REMAINS_MIN


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_whatever_the_order_of_arrival_every_node_ends_with_the_same(
    steps: list[tuple[str, int, int]],
) -> None:
    events = [retained(number, stamp, topic, who) for number, (topic, stamp, who) in enumerate(steps)]
    ends = set()
    for seed in range(3):
        store = EventStore()
        for event in random.Random(seed).sample(events, len(events)):
            store.keep(event, expires_at=100, hops=1, now=0)
        ends.add(frozenset(entry.event.id for entry in store.standing(now=0)))
    newest = {
        max((e for e in events if e.topic == topic), key=lambda e: (e.attributes["mqtt.at"], *e.id)).id
        for topic in {e.topic for e in events}
    }
    assert ends == {frozenset(newest)}


def test_a_store_that_others_wait_for_gives_up_only_what_is_settled() -> None:
    store = EventStore(entries_max=3)
    settled: set[int] = set()
    store.settled = lambda stored: [one for one in stored if one.event.sequence in settled]
    for sequence in range(3):
        store.keep(memorized(sequence), expires_at=100 + sequence, hops=0, now=0)
    assert not store.has_room(0, now=0)
    with pytest.raises(StoreFullError, match="its 3 memorized"):
        store.keep(memorized(3), expires_at=200, hops=0, now=0)
    assert [one.event.sequence for one in store.standing(now=0)] == [0, 1, 2]
    settled |= {1, 2}
    assert not store.has_room(0, now=1)  # it does not ask all the time
    assert store.has_room(0, now=ASKED_EVERY)
    later = 2 * ASKED_EVERY
    store = EventStore(entries_max=3)
    store.settled = lambda stored: [one for one in stored if one.event.sequence in settled]
    for sequence in range(3):
        store.keep(memorized(sequence), expires_at=later + 100 - sequence, hops=0, now=0)
    pushed_out = store.keep(memorized(3), expires_at=later + 200, hops=0, now=0)
    assert [event.sequence for event in pushed_out] == [2]  # the first of them to expire
    assert [event.sequence for event in store.keep(memorized(4), later + 200, 0, now=0)] == [1]
    with pytest.raises(StoreFullError):
        store.keep(memorized(5), later + 200, 0, now=0)
    assert store.keep(memorized(5), later + 200, 0, now=later + 150) == []  # expired ones always go


def test_a_retained_event_takes_its_place_in_a_full_store() -> None:
    store = EventStore(entries_max=1)
    store.settled = lambda stored: []
    store.keep(retained(1, 10), expires_at=100, hops=0, now=0)
    assert store.has_room(1, 0, store.superseded_by(retained(2, 11)))
    assert store.keep(retained(2, 11), expires_at=100, hops=0, now=0) == []
    assert [one.event.sequence for one in store.standing(now=0)] == [2]


def test_a_full_store_asks_for_few_events_at_a_time_where_they_are_settled() -> None:
    store = EventStore(entries_max=4 * ASKED_AT_ONCE)
    asked: list[int] = []

    def settled(stored: list[StoredEvent]) -> list[StoredEvent]:
        if len(stored) > 4:  # before they go, they are asked for once more
            asked.append(len(stored))
        return [one for one in stored if one.event.sequence >= waited_for]

    waited_for = 0
    store.settled = settled
    for sequence in range(8 * ASKED_AT_ONCE):
        store.keep(memorized(sequence), expires_at=10**9 + sequence, hops=0, now=0)
    assert asked == [ASKED_AT_ONCE] * 4
    assert store.standing(now=0)[0].event.sequence == 4 * ASKED_AT_ONCE
    # Those that expire first are waited for: all are asked, once in a while, and what is settled goes.
    waited_for = 8 * ASKED_AT_ONCE - 1
    pushed_out = store.keep(memorized(8 * ASKED_AT_ONCE), expires_at=2 * 10**9, hops=0, now=0)
    assert [event.sequence for event in pushed_out] == [waited_for]
    assert asked[4:] == [ASKED_AT_ONCE, 4 * ASKED_AT_ONCE]
    with pytest.raises(StoreFullError):
        store.keep(memorized(10**6), expires_at=2 * 10**9, hops=0, now=ASKED_EVERY - 1)
    assert len(asked) == 6
    # Who has come since the answer may wait for what was settled then.
    waited_for = 0
    assert store.has_room(0, now=ASKED_EVERY)
    waited_for = 10**9
    assert not store.has_room(0, now=ASKED_EVERY)
    # What was asked for can still expire.
    waited_for = 0
    assert store.has_room(0, now=2 * ASKED_EVERY)
    assert [one.event.sequence for one in store.standing(now=2 * 10**9 - 1)] == [8 * ASKED_AT_ONCE]


def test_an_event_that_is_waited_for_since_the_last_answer_stays() -> None:
    """Seed 5117: of two settled events one was pushed out, then the other became owed to a client."""
    store = EventStore(entries_max=2)
    waited_for: set[int] = set()
    store.settled = lambda stored: [one for one in stored if one.event.sequence not in waited_for]
    for sequence in range(2):
        store.keep(memorized(sequence), expires_at=10**9 + sequence, hops=0, now=0)
    assert store.keep(memorized(2), 10**9 + 2, 0, now=0)[0].sequence == 0
    waited_for |= {1, 2}
    with pytest.raises(StoreFullError):
        store.keep(memorized(3), 10**9 + 3, 0, now=0)
    assert [one.event.sequence for one in store.standing(now=0)] == [1, 2]
    waited_for.discard(1)
    assert store.keep(memorized(3), 10**9 + 3, 0, now=ASKED_EVERY)[0].sequence == 1
    assert len(store.standing(now=10**9 + 2)) == 1, "what was asked for can still expire"


@given(st.randoms(use_true_random=False), st.integers(2, 7), st.integers(1, 3), st.integers(0, 6))
def test_full_stores_never_wait_for_each_other_for_ever(
    draws: random.Random, nodes: int, entries_max: int, more_links: int
) -> None:
    """Nodes in a random network, each with a full store of events of its own that all others want. Whoever
    has room takes what a neighbour offers; an event may go when all neighbours have had it."""
    links = {(number, draws.randrange(number)) for number in range(1, nodes)}
    for _ in range(more_links):
        one, other = draws.sample(range(nodes), 2)
        links.add((one, other))
    neighbours = [
        {b for a, b in links if a == one} | {a for a, b in links if b == one} for one in range(nodes)
    ]
    had: list[set[EventId]] = [set() for _ in range(nodes)]
    stores = [EventStore(entries_max=entries_max) for _ in range(nodes)]
    for node, store in enumerate(stores):
        around = [had[one] for one in neighbours[node]]
        store.settled = lambda stored, around=around: [
            one for one in stored if all(one.event.id in each for each in around)
        ]
        for number in range(entries_max):
            event = memorized(10 * node + number)
            store.keep(event, expires_at=10**12, hops=0, now=0)
            had[node].add(event.id)
    everything, now, bound = set().union(*had), 0, entries_max + HOPS_MAX
    while any(one != everything for one in had):
        now += ASKED_EVERY
        offers = [
            (node, taker, stored)
            for node, store in enumerate(stores)
            for stored in store.standing(now)
            for taker in neighbours[node]
            if stored.event.id not in had[taker]
        ]
        fitting = [one for one in offers if stores[one[1]].has_room(0, now, hops=one[2].hops + 1)]
        assert fitting, "nobody has room for anything"
        _, taker, stored = draws.choice(fitting)
        stores[taker].keep(stored.event, 10**12, stored.hops + 1, now)
        had[taker].add(stored.event.id)
        assert len(stores[taker]) <= bound


def test_a_full_store_asks_for_a_part_at_a_time_where_nothing_is_settled() -> None:
    """To ask for all took 50 ms of a loop's turn with 10,000 events, ten times a second."""
    settled: set[int] = set()
    asked: list[int] = []

    def answer(stored: list[StoredEvent]) -> list[StoredEvent]:
        asked.append(len(stored))
        return [one for one in stored if one.event.sequence in settled]

    store = EventStore()
    for sequence in range(store.entries_max):
        store.keep(memorized(sequence), expires_at=10**9 - sequence % 7, hops=0, now=0)
    store.settled = answer
    rounds = store.entries_max // ASKED_MORE
    for turn in range(3 * rounds):
        before = len(asked)
        assert not store.has_room(0, now=turn * ASKED_EVERY)
        assert sum(asked[before:]) <= ASKED_AT_ONCE + ASKED_MORE
    settled.add(4_321)
    turns = range(3 * rounds, 5 * rounds)
    assert any(store.has_room(0, now=turn * ASKED_EVERY) for turn in turns), "in the end all are asked for"


def test_a_larger_retained_event_may_push_out_the_one_that_it_replaces() -> None:
    store = EventStore(bytes_max=3_000)
    store.settled = lambda stored: stored
    store.keep(retained(1, 10), expires_at=100, hops=0, now=0)
    for sequence in range(2, 5):
        store.keep(memorized(sequence, bytes(300)), expires_at=200 + sequence, hops=0, now=0)
    larger = msgspec.structs.replace(retained(9, 11), payload=bytes(1_400))
    pushed_out = store.keep(larger, expires_at=100, hops=0, now=0)
    assert [event.sequence for event in pushed_out] == [1, 2, 3, 4]
    assert [one.event.sequence for one in store.standing(now=0)] == [9]
