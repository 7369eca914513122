"""Digests, holdings, requests and answers by themselves."""

import time
from collections.abc import Iterable
from itertools import zip_longest

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.timed import timed_host

from roamcast.broker.seen import EventKey, event_key
from roamcast.broker.store import EventStore
from roamcast.event import Event, EventClass, EventId
from roamcast.kit.repair import (
    ANSWER_BURST,
    ANSWER_PAUSE,
    FRAGMENT_BYTES,
    PUBLISHERS_MAX,
    RANGES_MAX,
    SCANNED_MAX,
    Answers,
    DigestTurns,
    HeldRuns,
    Holdings,
    Requests,
    Said,
    events_of,
    in_turn,
    missing,
    newest_keys_first,
    order_to_ask,
    runs_of,
    unseen_of,
)
from roamcast.kit.tables import unreported
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId
from roamcast.wire import FRAME_BYTES_MAX


def memorized(publisher: NodeId, sequence: int) -> Event:
    return Event(publisher, sequence, event_class=EventClass.MEMORIZED, lifetime=100 * SECOND)


def holdings(*events: Event, recent_time: int = 5 * SECOND) -> Holdings:
    store = EventStore()
    for event in events:
        store.keep(event, 100 * SECOND, 0, 0)
    return Holdings(store, recent_time=recent_time, recent_max=100, on_evicted=unreported)


def test_a_recent_event_that_has_to_go_before_its_time_is_reported() -> None:
    evicted: list[EventId] = []
    kept = Holdings(
        EventStore(), recent_time=5 * SECOND, recent_max=2, on_evicted=lambda event, _: evicted.append(event)
    )
    for sequence in range(3):
        kept.remember(Event(1, sequence), 0, 0, now=0)
    assert evicted == [EventId(1, 0)]
    kept.remember(Event(1, 3), 0, 0, now=5 * SECOND)  # the others have had their time
    assert evicted == [EventId(1, 0)]
    assert kept.find(EventId(1, 3), 5 * SECOND) is not None


@settings(max_examples=100, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=80))
def test_a_digest_names_exactly_what_is_held(held: set[tuple[int, int]]) -> None:
    digest = holdings(*(memorized(*key) for key in sorted(held))).digest(0)
    assert sorted(events_of(digest)) == sorted(held)
    assert digest == runs_of(EventId(*key) for key in held)


def test_runs_are_short_on_the_wire() -> None:
    held = holdings(*(memorized(1, sequence) for sequence in (3, 4, 5, 9))).digest(0)
    assert held == (HeldRuns(1, (3, 5, 9, 9)),)


def test_of_too_many_publishers_each_has_its_turn() -> None:
    kept = holdings(*(memorized(publisher, 0) for publisher in range(PUBLISHERS_MAX + 50)))
    named = {event.publisher for _ in range(2) for event in events_of(kept.digest(0))}
    assert len(named) == PUBLISHERS_MAX + 50


def test_a_digest_that_claims_everything_is_read_only_so_far() -> None:
    claims = [HeldRuns(1, (0, 2**63 - 1)), HeldRuns(2, (5, 1)), HeldRuns(3, (0, 2**62))]
    assert sum(1 for _ in events_of(claims)) == SCANNED_MAX


@settings(max_examples=150, deadline=None)
@given(*[st.sets(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=30)] * 2)
def test_missing_finds_something_exactly_when_something_is_missing(
    ours: set[tuple[int, int]], theirs: set[tuple[int, int]]
) -> None:
    told = holdings(*(memorized(*key) for key in ours)).digest(0)
    held = holdings(*(memorized(*key) for key in theirs)).digest(0)
    found = set(missing(held, told))
    assert ours - theirs <= found <= ours
    assert bool(found) == bool(ours - theirs)


def test_a_real_time_event_is_offered_for_a_moment_and_a_memorized_one_until_it_expires() -> None:
    kept = holdings(memorized(1, 0))
    kept.remember(Event(2, 0), 1, SECOND, 0)
    found = kept.find(EventId(2, 0), 2 * SECOND)
    assert found is not None and (found.hops, found.age) == (1, 3 * SECOND)
    assert len(kept.digest(3 * SECOND)) == 2
    assert kept.digest(4 * SECOND) == (HeldRuns(1, (0, 0)),)  # one second old when it came
    assert kept.find(EventId(2, 0), 4 * SECOND) is None
    assert kept.find(EventId(1, 0), 99 * SECOND) is not None
    assert kept.find(EventId(1, 0), 100 * SECOND) is None


def test_each_event_is_asked_from_one_neighbour_and_from_another_when_that_fails() -> None:
    seen: set[EventId] = set()
    exchange = Requests(seen.__contains__, request_max=2, timeout=SECOND)
    events = [EventId(1, sequence) for sequence in range(4)]
    exchange.on_offer(5, keys(events), [])
    exchange.on_offer(6, keys(events), [])
    assert exchange.request(5, 0) == events[:2]
    assert exchange.request(6, 0) == events[2:]
    assert exchange.request(5, 0) == []  # it owes two, as many as a request may hold
    seen.add(events[0])
    exchange.on_copy(5, events[0])
    exchange.on_neighbour_down(5)
    seen.update(events[2:])
    for event in events[2:]:
        exchange.on_copy(6, event)
    assert exchange.request(6, 0) == [events[1]]
    assert exchange.request(6, SECOND - 1) == []
    assert exchange.request(6, SECOND) == [events[1]]  # lost on the way, so again


def test_a_changed_timeout_holds_for_what_was_asked_for_before() -> None:
    exchange = Requests(lambda _: False, request_max=2, timeout=SECOND)
    events = [EventId(1, 0)]
    exchange.on_offer(5, keys(events), [])
    assert exchange.request(5, 0) == events
    exchange.timeout = 3 * SECOND
    assert exchange.request(5, 3 * SECOND - 1) == []
    assert exchange.request(5, 3 * SECOND) == events
    exchange.timeout = SECOND
    assert exchange.request(5, 4 * SECOND - 1) == []
    assert exchange.request(5, 4 * SECOND) == events


def test_recent_events_come_first_the_newest_of_them_then_memorized_ones_in_their_order() -> None:
    exchange = Requests(lambda _: False, request_max=6, timeout=SECOND)
    events = [EventId(publisher, sequence) for publisher in (1, 2) for sequence in range(100)]
    recent = [EventId(1, 100), EventId(1, 101)]
    exchange.on_offer(5, keys(events), keys(recent))
    memorized_first = [EventId(1, 0), EventId(2, 0), EventId(1, 1), EventId(2, 1)]
    assert exchange.request(5, 0) == [EventId(1, 101), EventId(1, 100), *memorized_first]


def test_what_is_seen_meanwhile_is_not_asked_for() -> None:
    seen: set[EventId] = set()
    exchange = Requests(seen.__contains__, request_max=10, timeout=SECOND)
    exchange.on_offer(5, keys([EventId(1, 0), EventId(1, 1)]), [])
    seen.add(EventId(1, 0))
    assert exchange.request(5, 0) == [EventId(1, 1)]


def keys(events: Iterable[EventId]) -> list[EventKey]:
    return sorted(event_key(*event) for event in events)


def unseen(seen: Iterable[EventId]) -> "Unseen":
    return Unseen({event_key(*event) for event in seen})


class Unseen:
    def __init__(self, seen: set[EventKey]) -> None:
        self._seen = seen

    def __call__(self, keys: frozenset[EventKey]) -> frozenset[EventKey]:
        return keys - self._seen


@settings(max_examples=150, deadline=None)
@given(*[st.sets(st.tuples(st.integers(0, 2**63), st.integers(0, 20)), max_size=30)] * 2)
def test_what_a_digest_names_and_this_node_has_not_seen_is_found(
    named: set[tuple[int, int]], seen: set[tuple[int, int]]
) -> None:
    digest = runs_of(EventId(*event) for event in named)
    found = unseen_of(digest, unseen(EventId(*event) for event in seen))
    assert found == keys(EventId(*event) for event in named - seen)


def test_a_hostile_digest_costs_no_more_than_an_honest_one_of_a_full_store() -> None:
    """Processor time, the best of five: what a receiver does with it before it sends anything."""

    def cost(digest: tuple[HeldRuns, ...]) -> float:
        def once() -> float:
            began = time.process_time()
            requests = Requests(lambda _: False, request_max=64, timeout=SECOND)
            requests.on_offer(1, unseen_of(tuple(digest), unseen(())), [])
            sum(1 for _ in missing(digest, runs_of([EventId(1, 1)])))
            return time.process_time() - began

        return min(once() for _ in range(5))

    honest = cost((HeldRuns(1, (0, 9_999)), HeldRuns(2, (0, 9_999))))
    everything = (HeldRuns(1, (0, 2**63 - 1)),)
    overlapping = tuple(HeldRuns(node, (0, 2**63 - 1) * RANGES_MAX) for node in range(PUBLISHERS_MAX))
    uneven = tuple(
        HeldRuns(node, (0, 0 if node else SCANNED_MAX - PUBLISHERS_MAX)) for node in range(PUBLISHERS_MAX)
    )
    assert cost(everything) < 3 * honest
    assert cost(overlapping) < 3 * honest
    assert cost(uneven) < 3 * honest
    assert honest < 0.03, "an honest one of 20,000 events takes some milliseconds"


def test_recent_events_are_asked_for_newest_first_and_then_memorized_ones_in_their_order() -> None:
    events = [EventId(2, 7), EventId(1, 3), EventId(1, 9), EventId(1, 4), EventId(3, 0), EventId(1, 3)]
    newest_first = [EventId(1, 9), EventId(2, 7), EventId(3, 0), EventId(1, 4), EventId(1, 3)]
    oldest_first = [EventId(1, 3), EventId(2, 7), EventId(3, 0), EventId(1, 4), EventId(1, 9)]
    assert order_to_ask(events, ()) == newest_first
    assert order_to_ask((), events) == oldest_first
    assert order_to_ask([EventId(4, 1)], events) == [EventId(4, 1), *oldest_first]


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=6), max_size=6))
def test_lists_are_taken_in_turn_however_uneven(each: list[list[int]]) -> None:
    turns = zip_longest(*([(number, value) for value in one] for number, one in enumerate(each)))
    expected = [one for turn in turns for one in turn if one is not None]
    assert in_turn([[(number, value) for value in one] for number, one in enumerate(each)]) == expected


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 30))))
def test_keys_are_ordered_as_events_are(events: set[tuple[int, int]]) -> None:
    named = [EventId(*event) for event in events]
    assert newest_keys_first(keys(named)) == [event_key(*event) for event in order_to_ask(named, ())]


class Responder:
    """A host, and answers that are sent as large as a test wants."""

    def __init__(self, most: int = 100) -> None:
        self.host = timed_host()
        self.sent: list[tuple[int, str]] = []
        self.octets = 100
        self.full = 0
        self.answers: Answers[str, int] = Answers(self.host, self._send, most=most, on_full=self._on_full)

    def ask(self, *keys: str) -> None:
        self.answers.add((key, 0) for key in keys)

    def _send(self, key: str, _: int) -> int:
        if key == "gone":
            return 0
        self.sent.append((self.host.now(), key))
        return self.octets

    def _on_full(self) -> None:
        self.full += 1


def test_answers_go_in_bursts_with_a_pause_between() -> None:
    responder = Responder()
    responder.ask(*"abcdefghij")
    responder.host.advance(SECOND)
    times = [at for at, _ in responder.sent]
    assert [key for _, key in responder.sent] == list("abcdefghij")
    assert times == [0] * ANSWER_BURST + [ANSWER_PAUSE] * ANSWER_BURST + [2 * ANSWER_PAUSE] * 2


def test_a_large_answer_fills_a_burst_and_one_that_is_gone_takes_no_room() -> None:
    responder = Responder()
    responder.octets = ANSWER_BURST * FRAGMENT_BYTES
    responder.ask("gone", "a", "b")
    assert responder.sent == [(0, "a")]
    responder.host.advance(ANSWER_PAUSE)
    assert responder.sent == [(0, "a"), (ANSWER_PAUSE, "b")]


def test_a_request_repeated_while_its_answer_waits_is_answered_once() -> None:
    responder = Responder()
    responder.ask(*"abcdef")
    responder.ask(*"fe")
    responder.host.advance(SECOND)
    assert sorted(key for _, key in responder.sent) == list("abcdef")
    responder.ask("a")  # it was lost, or another wants it
    assert responder.sent[-1][1] == "a"


def test_too_many_answers_are_refused_and_said_and_what_a_lost_neighbour_asked_for_is_dropped() -> None:
    responder = Responder(most=6)
    responder.ask(*"abcdefgh")
    assert responder.full == 1
    responder.answers.forget(lambda key: key == "f")
    responder.host.advance(SECOND)
    assert [key for _, key in responder.sent] == list("abcde")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=8), st.sampled_from((1, 2, 3, 50))
)
def test_every_answer_is_sent_once_or_refused_aloud(requests: list[list[str]], most: int) -> None:
    """Against a model: all that was asked for and found room comes, never two of a key at once."""
    responder = Responder(most=most)
    for request in requests:
        responder.ask(*request)
        assert len(responder.answers) <= most
        responder.host.advance(ANSWER_PAUSE // 3)
    responder.host.advance(SECOND)
    sent = [key for _, key in responder.sent]
    asked = {key for request in requests for key in request}
    assert set(sent) <= asked
    assert responder.full or set(sent) == asked
    assert not len(responder.answers)


def test_a_digest_fits_into_a_frame_and_names_everything_in_turn() -> None:
    """200 publishers with 64 runs of large numbers each would be twice a frame."""
    turns, publishers = DigestTurns(), list(range(1 << 40, (1 << 40) + 300))
    many = tuple(range(1 << 40, (1 << 40) + 256, 2))
    named: set[int] = set()
    for _ in range(8):
        digest = turns.digest(publishers, lambda publisher: many)
        assert len(msgspec.msgpack.encode(digest)) <= FRAME_BYTES_MAX - 1_000
        named.update(held.publisher for held in digest)
    assert named == set(publishers)
    few = turns.digest(publishers[:3], lambda publisher: (0, 4))
    assert sorted(held.publisher for held in few) == publishers[:3]


# Fingerprints.


def comparable(*events: tuple[int, int, int]) -> Holdings:
    """Real-time events by publisher, number and age in milliseconds, at the time 20 s."""
    held = Holdings(EventStore(), recent_time=15 * SECOND, recent_max=100, on_evicted=unreported)
    for publisher, sequence, age in events:
        held.remember(Event(publisher, sequence), 1, age * MILLISECOND, 20 * SECOND)
    return held


def said(held: Holdings, now: Micros, since: Micros = 0) -> Said:
    return Said(held.fingerprint(now, since), since)


def test_who_holds_the_same_agrees_whatever_is_on_its_way_or_about_to_expire() -> None:
    now = 20 * SECOND
    one = comparable((1, 1, 5_000), (2, 1, 120), (3, 1, 50), (4, 1, 14_980))
    assert one.agrees(said(one, now), now)
    later = comparable((1, 1, 5_010), (2, 1, 80))  # the last has expired there
    assert one.agrees(said(later, now), now) and later.agrees(said(one, now), now)


def test_who_lacks_a_settled_event_does_not_agree() -> None:
    now = 20 * SECOND
    whole = [(publisher, sequence, 1_000) for publisher in range(5) for sequence in range(5)]
    one = comparable(*whole)
    for lacking in range(len(whole)):
        other = comparable(*whole[:lacking], *whole[lacking + 1 :])
        assert not one.agrees(said(other, now), now) and not other.agrees(said(one, now), now)
    swapped = comparable(*whole[:-1], (4, 5, 1_000))  # sums of linear marks would often be the same
    assert not one.agrees(said(swapped, now), now)


def test_what_is_from_before_a_boot_does_not_count() -> None:
    now = 20 * SECOND
    old = comparable((1, 1, 9_000), (1, 2, 4_970), (1, 3, 3_000))
    booted = comparable((1, 3, 3_000))
    assert old.agrees(said(booted, now, since=15 * SECOND), now)
    assert not old.agrees(said(booted, now, since=10 * SECOND), now)
    lacking = comparable()
    assert not old.agrees(said(lacking, now, since=15 * SECOND), now)
    keys = [EventId(1, 1), EventId(1, 2)]
    assert old.any_settled(keys, now, 0) and not old.any_settled(keys[:1], now, 15 * SECOND)


def test_a_fingerprint_follows_the_store() -> None:
    store = EventStore()
    held = Holdings(store, recent_time=SECOND, recent_max=10, on_evicted=unreported)
    empty = held.fingerprint(0, 0)
    for sequence in range(2):
        store.keep(memorized(1, sequence), 10 * SECOND * (1 + sequence), 0, 0)
    both = held.fingerprint(0, 0)
    later = held.fingerprint(11 * SECOND, 0)
    assert len({empty, both, later}) == 3 and held.fingerprint(21 * SECOND, 0) == empty


def test_what_was_handed_over_late_is_forgotten_with_its_age() -> None:
    held = comparable((1, 1, 14_000))
    assert held.find(EventId(1, 1), 20 * SECOND) is not None
    assert not held.recent(21 * SECOND)
