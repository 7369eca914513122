import pytest

from roamcast.broker.core import SEQUENCE_BLOCK, Broker, Delivery, Subscription
from roamcast.broker.retained import order_of
from roamcast.broker.seen import event_key
from roamcast.broker.unkept import REFUSED_PAUSE
from roamcast.event import Event, EventClass, Publication
from roamcast.filter import Filter
from roamcast.host import Layer
from roamcast.testing import FakeHost
from roamcast.testing.network import DiskStore
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND


class Inbox:
    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def on_event(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)


def broker(host: FakeHost | None = None) -> tuple[Broker, Inbox, FakeHost]:
    inbox = Inbox()
    host = host or FakeHost(node=5)
    return Broker(host, inbox), inbox, host


def event(sequence: int, level: int, **fields: object) -> Event:
    return Event(publisher=1, sequence=sequence, attributes={"level": level}, **fields)  # type: ignore[arg-type]


def test_only_what_the_exact_filter_matches_is_handed_over() -> None:
    core, inbox, _ = broker()
    core.subscribe(Subscription(1, Filter.sql("level > 3")))
    core.deliver(event(1, level=3), hops=2)
    core.deliver(event(2, level=4), hops=2)
    assert [(d.event.sequence, d.subscriptions, d.hops) for d in inbox.deliveries] == [(2, (1,), 2)]


def test_an_event_is_handed_over_once_whatever_arrives() -> None:
    core, inbox, _ = broker()
    core.subscribe(Subscription(1, Filter.sql("level > 3")))
    core.subscribe(Subscription(2, Filter.everything()))
    for _ in range(3):
        core.deliver(event(1, level=9), hops=1)
    assert [d.subscriptions for d in inbox.deliveries] == [(1, 2)]


def test_a_named_destination_gets_the_event_without_a_subscription() -> None:
    core, inbox, _ = broker()
    core.deliver(event(1, level=1, destinations=(5, 6)), hops=1)
    core.deliver(event(2, level=1, destinations=(6,)), hops=1)
    assert [d.event.sequence for d in inbox.deliveries] == [1]


def test_a_point_to_point_event_ignores_subscriptions_and_a_multimode_one_does_not() -> None:
    core, inbox, _ = broker()
    core.subscribe(Subscription(1, Filter.everything()))
    core.deliver(event(1, level=1, destinations=(6,)), hops=1)
    core.deliver(event(2, level=1, destinations=(6,), multimode=True), hops=1)
    assert [d.event.sequence for d in inbox.deliveries] == [2]


def test_a_late_subscriber_gets_memorized_events_within_their_lifetime() -> None:
    core, inbox, host = broker()
    kept = event(1, level=9, event_class=EventClass.MEMORIZED, lifetime=10 * SECOND)
    core.deliver(kept, hops=3, age=4 * SECOND)
    host.advance(5 * SECOND)
    core.subscribe(Subscription(1, Filter.sql("level > 3")))
    assert [(d.event.sequence, d.hops) for d in inbox.deliveries] == [(1, 3)]
    host.advance(2 * SECOND)  # 11 s old now
    core.subscribe(Subscription(2, Filter.everything()))
    assert len(inbox.deliveries) == 1


def test_a_late_subscriber_gets_each_publishers_events_in_the_order_of_their_publication() -> None:
    core, inbox, _ = broker()
    for publisher, sequence in [(1, 3), (2, 9), (1, 1), (2, 7), (1, 2)]:
        kept = Event(publisher, sequence, event_class=EventClass.MEMORIZED, lifetime=10 * SECOND)
        core.deliver(kept, hops=1)
    core.subscribe(Subscription(1, Filter.everything()))
    assert [d.event.id for d in inbox.deliveries] == [(1, 1), (2, 7), (1, 2), (2, 9), (1, 3)]


def test_a_real_time_event_from_before_the_boot_is_refused() -> None:
    _, _, host = broker()
    host.advance(20 * SECOND)
    core, inbox, _ = broker(host)  # it has restarted
    core.subscribe(Subscription(1, Filter.everything()))
    host.advance(3 * SECOND)
    core.deliver(event(1, level=9), hops=1, age=4 * SECOND)
    core.deliver(event(2, level=9), hops=1, age=2 * SECOND)
    core.deliver(event(3, level=9, event_class=EventClass.MEMORIZED, lifetime=60 * SECOND), 1, 4 * SECOND)
    assert [d.event.sequence for d in inbox.deliveries] == [2, 3]
    dropped = [record for record in host.records if isinstance(record, Dropped)]
    assert [(drop.sequence, drop.reason) for drop in dropped] == [(1, DropReason.EXPIRED)]


def test_after_a_crash_no_sequence_number_is_used_again() -> None:
    core, _, host = broker()
    before = [core.create(Publication()).sequence for _ in range(SEQUENCE_BLOCK + 3)]
    again, _, _ = broker(FakeHost(node=5, stable=host.stable))
    after = [again.create(Publication()).sequence for _ in range(3)]
    assert before == list(range(SEQUENCE_BLOCK + 3))
    assert min(after) > max(before)


def test_who_publishes_much_writes_its_numbers_down_seldom() -> None:
    core, _, host = broker()
    written = set()
    for _ in range(100 * SEQUENCE_BLOCK):
        core.create(Publication())
        written.add(host.stable["sequence"])
    assert len(written) == 8  # 1,000 + 2,000 + … + 64,000 are 127,000, and half of that is used up


def test_ending_a_subscription_twice_is_no_error() -> None:
    core, inbox, _ = broker()
    core.subscribe(Subscription(1, Filter.everything()))
    core.unsubscribe(1)
    core.unsubscribe(1)
    core.deliver(event(1, level=1), hops=1)
    assert inbox.deliveries == [] and core.subscriptions() == []


def test_what_was_superseded_before_a_restart_is_not_handed_over_after_it() -> None:
    def retained(sequence: int) -> Event:
        attributes: dict[str, bool | int | float | str | None] = {"mqtt": 4, "mqtt.at": sequence}
        return Event(1, sequence, attributes, b"x", "a", "", EventClass.MEMORIZED, 100 * SECOND)

    core, inbox, host = broker()
    core.subscribe(Subscription(1, Filter.everything()))
    for sequence in (2, 4, 3):  # the last is late: it is a message all the same
        core.deliver(retained(sequence), hops=1)
    assert [d.event.sequence for d in inbox.deliveries] == [2, 4, 3]
    drops = [(one.sequence, one.reason) for one in host.records if isinstance(one, Dropped)]
    assert drops == [(2, DropReason.SUPERSEDED)]
    core.store._from_before["a"] = order_of(retained(4))  # as a durable store has it after a restart
    for sequence in (1, 5):
        core.deliver(retained(sequence), hops=1)
    assert [d.event.sequence for d in inbox.deliveries] == [2, 4, 3, 5]


def test_what_could_not_be_kept_is_kept_from_memory_when_there_is_room() -> None:
    """A strategy that offers an event a few times does so while the disk is full."""
    host, inbox = FakeHost(node=5), Inbox()
    host.attach(Layer())
    store = DiskStore(10, None, 0)
    core = Broker(host, inbox, store=store)
    core.subscribe(Subscription(1, Filter.everything()))
    store.refuses = True
    refused = [event(number, 1, event_class=EventClass.MEMORIZED, lifetime=600 * SECOND) for number in (1, 2)]
    for one in refused:
        assert not core.deliver(one, 1)
    short = event(3, 1, event_class=EventClass.MEMORIZED, lifetime=3 * SECOND)
    assert not core.deliver(short, 1)
    host.advance(REFUSED_PAUSE)
    assert not len(store) and not core.has_seen(refused[0].id), "it was tried, and refused once more"
    store.refuses = False
    host.advance(REFUSED_PAUSE)
    assert all(one.id in store and not core.is_unkept(one.id) for one in refused) and short.id not in store
    assert [stored.hops for stored in store.standing(host.now())] == [1, 1] and core.may_keep
    assert [delivery.event for delivery in inbox.deliveries] == [*refused, short], "and nothing twice"
    assert not host.timers(), "nothing is left to be tried"


def test_what_a_full_disk_refused_keeps_a_full_store_from_nothing() -> None:
    """It was tried every five seconds, and each refusal said for five more that the disk is full."""
    host = FakeHost(node=5)
    host.attach(Layer())
    store = DiskStore(2, None, 0)
    store.settled = lambda stored: []  # others wait for all that is in it
    core = Broker(host, Inbox(), store=store)
    memorized = {"event_class": EventClass.MEMORIZED, "lifetime": 600 * SECOND}
    first, second, third, fourth, fifth = (event(number, 1, **memorized) for number in range(5))
    store.refuses = True
    assert not core.deliver(third, 0) and not core.deliver(fourth, 0) and not core.deliver(fifth, 1)
    store.refuses = False
    core.keep(first, 0)
    core.keep(second, 0)
    host.advance(REFUSED_PAUSE)
    assert fifth.id in store, "which has room for what came over more hops"
    assert third.id not in store and core.is_unkept(third.id) and core.may_keep
    store.settled = lambda stored: [one for one in stored if one.event is first]
    host.advance(REFUSED_PAUSE)
    assert third.id in store and fourth.id not in store


def test_a_retained_event_has_room_in_a_full_store_only_in_the_place_of_another() -> None:
    """Seed 100044: it was tried all the same, and each refusal said for 5 seconds that the disk is full."""

    def retained(sequence: int, topic: str) -> Event:
        attributes: dict[str, bool | int | float | str | None] = {"mqtt": 4, "mqtt.at": sequence}
        return Event(1, sequence, attributes, b"x", topic, "", EventClass.MEMORIZED, 600 * SECOND)

    host = FakeHost(node=5)
    host.attach(Layer())
    store = DiskStore(2, None, 0)
    store.settled = lambda stored: []
    core = Broker(host, Inbox(), store=store)
    core.keep(retained(1, "old"), 0)
    store.refuses = True
    lonely, newer = retained(2, "new"), retained(3, "old")
    assert not core.deliver(lonely, 0) and not core.deliver(newer, 0)
    store.refuses = False
    core.keep(retained(4, "another"), 0)
    host.advance(REFUSED_PAUSE)
    assert newer.id in store and len(store) == 2
    assert core.is_unkept(lonely.id) and core.may_keep


def test_what_memory_has_no_room_for_is_new_again_and_handed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roamcast.broker.unkept.HELD_BYTES_MAX", 0)
    host, inbox = FakeHost(node=5), Inbox()
    host.attach(Layer())
    store = DiskStore(10, None, 0)
    core = Broker(host, inbox, store=store)
    core.subscribe(Subscription(1, Filter.everything()))
    store.refuses = True
    refused = event(1, 1, event_class=EventClass.MEMORIZED, lifetime=600 * SECOND)
    assert core.observe(refused.id, refused.lifetime)
    assert not core.deliver(refused, 1)
    assert not core.has_seen(refused.id) and core.unseen(frozenset({event_key(*refused.id)}))
    assert not core.may_keep and not core.observe(refused.id)  # copies that still travel are not tried
    store.refuses = False
    host.advance(REFUSED_PAUSE)
    assert core.may_keep and core.observe(refused.id, refused.lifetime)
    assert core.deliver(refused, 2) and refused.id in store
    assert core.has_seen(refused.id) and not core.observe(refused.id)
    assert [delivery.event for delivery in inbox.deliveries] == [refused]
