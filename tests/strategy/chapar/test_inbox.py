"""Memorized events: once, in order, across a crash."""

import pytest

from roamcast.broker.core import Broker, Delivery, Subscription
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.kit.protocol import MessageLayer
from roamcast.strategy.chapar import inbox
from roamcast.strategy.chapar.inbox import EventRelation, Inbox
from roamcast.strategy.chapar.memorized_event_table import Memo
from roamcast.strategy.chapar.messages import CHAIN_MAX, CODEC, Chain
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND

LIFETIME = 600 * SECOND


class Reader:
    """A node with an application that wants `a = 1`."""

    def __init__(self, stable: dict[str, bytes] | None = None, kept_max: int = 100) -> None:
        self.host = FakeHost(9, stable=stable)
        self.broker = Broker(self.host, self)
        self.got: list[int] = []
        self.broker.subscribe(Subscription(1, Filter.sql("a = 1")))
        self.inbox = Inbox(self.host, self.broker, 5 * SECOND, kept_max)
        self.host.attach(MessageLayer(self.host, CODEC))  # its timers

    def on_event(self, delivery: Delivery) -> None:
        self.got.append(delivery.event.sequence)

    def take(
        self, sequence: int, previous: int | None, interest: EventRelation = EventRelation.MAY_MATCH
    ) -> bool:
        wanted = 0 if interest is EventRelation.NONE else 1
        event = Event(3, sequence, {"a": wanted}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME)
        before = () if previous is None else ((previous, LIFETIME),)
        return self.inbox.take(Memo(event, 0, self.host.now() + LIFETIME, 2, before), interest)


def key(sequence: int) -> EventId:
    return EventId(3, sequence)


def test_events_that_come_in_order_go_at_once_and_copies_do_not_count() -> None:
    reader = Reader()
    assert reader.take(1, None) and reader.take(2, 1) and reader.take(2, 1) and reader.take(1, None)
    assert reader.got == [1, 2]


def test_a_later_one_waits_for_the_earlier_and_then_both_go() -> None:
    reader = Reader()
    assert not reader.take(2, 1)
    assert reader.take(3, 2)  # waits too, but there is nothing more to ask for
    assert reader.inbox.waiting() == [key(2)]
    assert reader.got == []
    reader.take(1, None)
    assert reader.got == [1, 2, 3]


def test_an_overheard_event_counts_for_the_order_only_when_those_before_it_have_gone_by() -> None:
    reader = Reader()
    assert not reader.take(3, 2)
    assert not reader.take(2, 1, EventRelation.NONE)
    assert reader.got == []
    reader.take(1, None)
    assert reader.got == [1, 3]


def test_after_the_timeout_what_waits_goes_lower_numbers_first() -> None:
    reader = Reader()
    reader.take(4, 3)
    reader.host.advance(SECOND)
    reader.take(2, 1)
    reader.host.advance(4 * SECOND)
    assert reader.got == [2, 4]
    reader.take(1, None)  # too late for its place, not too late to be had
    assert reader.got == [2, 4, 1]


def test_an_answer_that_offers_nothing_earlier_ends_the_waiting() -> None:
    reader = Reader()
    reader.take(2, 1)
    reader.inbox.learn([], missing=[])  # an answer to an older question
    assert reader.inbox.ask() == [key(2)]
    assert reader.inbox.learn([]) == []  # an offer that does not speak of order
    assert reader.got == []
    reader.inbox.learn([], missing=[key(2)])  # the broker does not know even this one
    assert reader.got == []
    reader.inbox.learn([], missing=[])
    assert reader.got == [2]


def test_what_is_offered_or_missing_is_waited_for() -> None:
    reader = Reader()
    reader.take(5, 4)
    reader.inbox.ask()
    assert reader.inbox.learn([key(1), key(5)], missing=[key(3)]) == [key(1)]
    reader.take(1, None)
    assert reader.got == [1]
    reader.inbox.learn([], missing=[])
    assert reader.got == [1, 5]


def test_one_that_comes_before_the_answer_and_waits_itself_is_not_overtaken() -> None:
    """Seed 711093 of `schedules.py`, with full tables: 1 was evicted everywhere, 3 came first, and 2 while
    the answer about 3 was on its way."""
    reader = Reader()
    reader.take(3, 2)
    assert reader.inbox.ask() == [key(3)]
    reader.take(2, 1)
    reader.inbox.learn([], missing=[])
    assert reader.got == []
    assert reader.inbox.ask() == [key(2)]
    reader.inbox.learn([], missing=[])
    assert reader.got == [2, 3]


def test_what_is_only_kept_for_others_does_not_hold_up_what_is_wanted_until_a_subscription_wants_it() -> None:
    for subscribes, got in ((False, [3]), (True, [])):
        reader = Reader()
        reader.take(2, 1, EventRelation.KEEPS)
        reader.take(3, 2)
        if subscribes:
            reader.inbox.want_more(filter_id=0)
        reader.inbox.learn([], missing=[], known=[key(3)])
        assert reader.got == got
    reader.host.advance(5 * SECOND)
    assert reader.got == [2, 3]


def test_a_predecessor_that_has_expired_is_not_waited_for() -> None:
    reader = Reader()
    event = Event(3, 2, {"a": 1}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME)
    late = Memo(event, 0, reader.host.now() + LIFETIME - 10 * SECOND, 0, ((1, 5 * SECOND),))
    assert reader.inbox.take(late, EventRelation.MAY_MATCH)
    assert reader.got == [2]


def test_where_the_predecessor_has_expired_the_one_before_it_that_lives_longer_is_waited_for() -> None:
    reader = Reader()
    event = Event(3, 3, {"a": 1}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME)
    chain = ((2, 5 * SECOND), (1, LIFETIME // 2))
    late = Memo(event, 0, reader.host.now() + LIFETIME - 10 * SECOND, 0, chain)
    assert not reader.inbox.take(late, EventRelation.MAY_MATCH)
    reader.take(1, None)
    assert reader.got == [1, 3]


def test_one_that_expires_while_it_is_waited_for_leaves_the_wait_to_the_one_before_it() -> None:
    reader = Reader()
    event = Event(3, 3, {"a": 1}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME)
    chain = ((2, 2 * SECOND), (1, LIFETIME // 2))
    assert not reader.inbox.take(
        Memo(event, 0, reader.host.now() + LIFETIME, 0, chain), EventRelation.MAY_MATCH
    )
    reader.host.advance(3 * SECOND)
    assert reader.got == []
    reader.take(1, None)
    assert reader.got == [1, 3]


def test_a_chain_names_the_latest_event_and_before_it_only_what_outlives_all_after_it() -> None:
    """Published at 0, 1, 2, 3 s with lifetimes of 100, 10, 50 and 20 s; the next one at 5 s."""
    chain: Chain = ()
    for sequence, lifetime in enumerate((100, 10, 50, 20)):
        event = Event(3, sequence, event_class=EventClass.MEMORIZED, lifetime=lifetime * SECOND)
        memo = Memo(event, 0, (sequence + lifetime) * SECOND, 0, chain)
        chain = memo.chain((sequence + 1) * SECOND)
    assert memo.chain(5 * SECOND) == ((3, 18 * SECOND), (2, 47 * SECOND), (0, 95 * SECOND))


def test_a_chain_is_bounded_and_keeps_the_latest() -> None:
    chain: Chain = ()
    for sequence in range(3 * CHAIN_MAX):  # each dies before all those before it
        lifetime = (100 - sequence) * SECOND
        event = Event(3, sequence, event_class=EventClass.MEMORIZED, lifetime=lifetime)
        chain = Memo(event, 0, lifetime, 0, chain).chain(0)
    assert [number for number, _ in chain] == list(range(3 * CHAIN_MAX - 1, 2 * CHAIN_MAX - 1, -1))


def test_a_crash_does_not_make_an_event_come_twice() -> None:
    stable: dict[str, bytes] = {}
    before = Reader(stable)
    before.take(1, None)
    assert "chapar handed" not in stable, "what is handed over in one moment is noted once"
    before.host.advance(0)
    after = Reader(stable)
    assert after.inbox.learn([key(1), key(2)]) == [key(2)]
    after.take(1, None)
    after.take(2, 1)
    assert after.got == [2]


def test_what_a_new_subscription_got_does_not_come_again_after_a_crash_in_that_moment() -> None:
    stable: dict[str, bytes] = {}
    before = Reader(stable)
    before.inbox.mark_handed(key(1), key(2))
    after = Reader(stable)
    after.take(1, None)
    after.take(2, 1)
    after.take(3, 2)
    assert after.got == [3]


def test_notes_that_cannot_be_read_are_ignored() -> None:
    reader = Reader({"chapar handed": b"\xff\x00"})
    reader.take(1, None)
    assert reader.got == [1]


def test_a_false_positive_is_counted_and_one_kept_for_others_is_not() -> None:
    reader = Reader()
    event = Event(3, 1, {"a": 2}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME)
    reader.inbox.take(Memo(event, 0, LIFETIME), EventRelation.KEEPS)
    assert reader.host.records == []
    event = Event(3, 2, {"a": 2}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME)
    reader.inbox.take(Memo(event, 0, LIFETIME), EventRelation.MAY_MATCH)
    assert [r.reason for r in reader.host.records if isinstance(r, Dropped)] == [DropReason.FALSE_POSITIVE]
    assert reader.got == []


def test_expired_events_are_forgotten() -> None:
    reader = Reader()
    reader.take(1, None)
    reader.host.advance(LIFETIME)
    reader.inbox.forget_expired()
    assert reader.inbox.kept() == []


def test_of_too_many_that_wait_the_oldest_goes_ahead_and_the_trace_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "HELD_MAX", 2)
    reader = Reader()
    for sequence in (2, 4, 6):
        reader.take(sequence, sequence - 1)
    assert reader.got == [2]
    drops = [record for record in reader.host.records if isinstance(record, Dropped)]
    assert [(drop.reason, drop.detail) for drop in drops] == [(DropReason.STORE_FULL, "HELD_MAX")]


def test_what_was_overheard_before_a_subscription_comes_before_what_follows_it() -> None:
    """Seed 11448 of `schedules.py`: the subscription came between the two, and got the second one first."""
    reader = Reader()
    reader.take(1, None, EventRelation.NONE)
    reader.inbox.want_more(filter_id=0)
    assert not reader.take(2, 1)
    assert reader.got == []
    reader.take(1, None)
    assert reader.got == [1, 2]


def test_no_more_is_kept_than_the_bound_and_what_made_room_is_not_taken_again() -> None:
    reader = Reader(kept_max=3)
    for sequence in range(1, 11):
        reader.take(sequence, sequence - 1 or None)
        reader.host.advance(SECOND)  # so that the oldest is the first to expire
    assert [memo.id for memo in reader.inbox.kept()] == [key(8), key(9), key(10)]
    assert reader.inbox.learn([key(1), key(9), key(11)]) == [key(11)]
    assert reader.take(1, None)
    assert reader.got == list(range(1, 11))
    drops = [record for record in reader.host.records if isinstance(record, Dropped)]
    assert {(drop.reason, drop.detail) for drop in drops} == {(DropReason.STORE_FULL, "met_entries_max")}
