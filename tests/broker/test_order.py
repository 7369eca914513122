"""Order: a publisher's memorized events, topic by topic, as they were published."""

from random import Random

import pytest
from tests.broker.test_core import Inbox

from roamcast.broker.core import Broker, Subscription
from roamcast.broker.order import HELD_MAX, STRANGER_WAIT, TICK, WAIT_MAX
from roamcast.broker.retained import FLAGS
from roamcast.broker.store import EventStore, StoredEvent
from roamcast.chunks import MARK
from roamcast.event import Event, EventClass, Publication
from roamcast.filter import Filter
from roamcast.host import Layer
from roamcast.testing import FakeHost
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros

HOUR: Micros = 3_600 * SECOND


class Here:
    """A subscriber's node."""

    def __init__(
        self, wanted: Filter | None = None, store: EventStore | None = None, *, gets_all: bool = True
    ) -> None:
        self.host = FakeHost(node=5)
        self.inbox = Inbox()
        self.broker = Broker(self.host, self.inbox, store=store, gets_all=gets_all)
        self.host.attach(Layer())
        self.broker.subscribe(Subscription(1, wanted or Filter.topic("#")))

    def comes(self, *events: Event) -> None:
        for event in events:
            if self.broker.observe(event.id, event.lifetime):
                self.broker.deliver(event, 1)

    def got(self) -> list[int]:
        return [delivery.event.sequence for delivery in self.inbox.deliveries]


def event(sequence: int, after: int = 1, *, lifetime: Micros = HOUR, topic: str = "t", **of: object) -> Event:
    kind = EventClass.MEMORIZED if lifetime else EventClass.REALTIME
    return Event(
        1,
        sequence,
        topic=topic,
        event_class=kind,
        lifetime=lifetime,
        after=after,
        **of,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_of_arrival_events_of_a_topic_are_handed_over_as_published(seed: int) -> None:
    random = Random(seed)
    here = Here()
    here.comes(event(0, 0, topic="a"), event(1, 0, topic="b"))
    last, events = {"a": 0, "b": 1}, []
    for sequence in range(2, 60):
        topic = random.choice("ab")
        events.append(event(sequence, sequence - last[topic], topic=topic))
        last[topic] = sequence
    random.shuffle(events)
    for one in events:
        here.comes(one)
        here.host.advance(SECOND // 2)
    got = [delivery.event for delivery in here.inbox.deliveries]
    assert len(got) == 60 and here.broker.held_back.let_pass == 0 and not here.broker.held_back
    for topic in "ab":
        sequences = [one.sequence for one in got if one.topic == topic]
        assert sequences == sorted(sequences)


def test_a_predecessor_that_does_not_come_is_waited_for_so_long_and_counted() -> None:
    here = Here()
    here.comes(event(0, 0), event(2), event(3))
    here.host.advance(WAIT_MAX - SECOND)
    assert here.got() == [0]
    here.host.advance(SECOND + TICK)
    assert here.got() == [0, 2, 3] and here.broker.held_back.let_pass == 1
    here.comes(event(1))  # late, and not lost
    assert here.got() == [0, 2, 3, 1]


def test_a_wait_that_is_over_lets_what_came_meanwhile_and_waits_itself_go_first() -> None:
    here = Here()
    here.comes(event(0, 0), event(4))
    here.host.advance(WAIT_MAX - SECOND)
    here.comes(event(3), event(2))
    here.host.advance(SECOND + TICK)
    assert here.got() == [0, 2, 3, 4] and here.broker.held_back.let_pass == 1


def test_half_of_what_is_left_of_the_lifetime_is_the_longest_wait() -> None:
    here = Here()
    here.comes(event(0, 0), event(2, lifetime=10 * SECOND))
    here.host.advance(5 * SECOND + TICK)
    assert here.got() == [0, 2]


def test_what_was_before_the_first_event_of_a_publisher_is_not_waited_for_long() -> None:
    here = Here()
    here.comes(event(7))
    here.host.advance(STRANGER_WAIT + TICK)
    assert here.got() == [7]


def test_an_expired_predecessor_is_nothing_to_wait_for() -> None:
    here = Here()
    here.comes(event(0, 0), event(2))
    here.broker.drop(event(1).id, DropReason.EXPIRED, "copy")
    assert here.got() == [0, 2]


def test_only_a_predecessor_that_would_come_here_is_waited_for() -> None:
    by_content = Filter.sql("level > 3")
    here, everywhere = Here(by_content, gets_all=False), Here(by_content)
    for one in (here, everywhere):
        one.comes(event(0, 0), event(2, attributes={"level": 9}))
    assert here.got() == [2], "nobody sends it what the filter does not match"
    assert everywhere.got() == []
    everywhere.comes(event(1))
    assert everywhere.got() == [2]


@pytest.mark.parametrize("wanted", [Filter.topic("t/+"), Filter.everything()])
def test_a_node_that_gets_only_what_it_wants_waits_for_who_wants_a_whole_topic(wanted: Filter) -> None:
    here = Here(wanted, gets_all=False)
    here.comes(event(0, 0, topic="t/x"), event(2, topic="t/x", attributes={"level": 9}))
    assert here.got() == [0]
    here.broker.subscribe(Subscription(2, Filter.sql("level > 3")))
    assert here.got() == [0], "one who comes meanwhile does not overtake"
    here.comes(event(1, topic="t/x"))
    assert here.got() == [0, 1, 2]


def test_a_topic_that_no_filter_can_name_is_not_waited_for() -> None:
    here = Here(Filter.everything(), gets_all=False)
    here.comes(event(0, 0, topic="\0"), event(2, topic="\0"))
    assert here.got() == [0, 2]


def test_what_a_strategy_has_kept_and_not_brought_yet_is_not_given_to_a_newcomer_first() -> None:
    """Seed 40017: `opportunistic` had an event on the disk that waited for the one before it."""
    here = Here(Filter.topic("other"), gets_all=False)
    here.comes(event(0, 0))
    here.broker.keep(event(2), 1)
    here.broker.subscribe(Subscription(2, Filter.topic("t")))
    assert here.got() == [0]
    here.comes(event(1), event(2))
    assert here.got() == [0, 1, 2]


def test_a_store_is_at_most_half_full_of_what_waits_and_the_longest_waiting_goes() -> None:
    here = Here(store=EventStore(entries_max=6))
    here.comes(event(0, 0), *(event(sequence, 1) for sequence in (2, 4, 6)))
    assert here.got() == [0]
    here.comes(event(8))
    assert here.got() == [0, 2] and here.broker.held_back.let_pass == 1
    assert HELD_MAX > 3


def test_what_is_pushed_out_of_the_store_while_it_waits_is_handed_over() -> None:
    here = Here(store=EventStore(entries_max=4))
    here.comes(event(0, 0), event(2), *(event(sequence, 0, topic="u") for sequence in (10, 11, 12, 13)))
    assert sorted(here.got()) == [0, 2, 10, 11, 12, 13]


def test_a_claim_that_leads_nowhere_or_in_a_circle_holds_nothing_for_ever() -> None:
    here = Here()
    here.comes(event(0, 0), event(3, 5), event(5, 4))  # before the first number; after itself
    here.comes(event(8, 2), event(6, 2**63 - 1))
    here.host.advance(WAIT_MAX + 2 * TICK)
    assert sorted(here.got()) == [0, 3, 5, 6, 8] and not here.broker.held_back


def test_a_subscription_that_comes_meanwhile_gets_what_waits_in_its_order() -> None:
    here = Here()
    here.comes(event(0, 0), event(2))
    here.broker.subscribe(Subscription(2, Filter.topic("t"), application=7))
    here.comes(event(1))
    of_the_second = [one.event.sequence for one in here.inbox.deliveries if one.subscriptions == (2,)]
    assert of_the_second == [0, 1, 2]


def test_who_subscribes_after_an_early_arrival_waits_for_the_same_predecessor() -> None:
    here = Here(Filter.topic("else"))
    here.comes(event(1, 0), event(4), event(5))
    here.broker.subscribe(Subscription(2, Filter.topic("t"), application=7))
    assert here.got() == [1], "4 and what follows it came while nobody wanted them"
    here.comes(event(2), event(3))
    assert here.got() == [1, 2, 3, 4, 5] and here.broker.held_back.let_pass == 0


def test_nobody_waits_anew_for_a_predecessor_that_did_not_come_in_time() -> None:
    here = Here(Filter.topic("else"))
    here.comes(event(1, 0), event(4), event(5))
    here.host.advance(WAIT_MAX)
    here.broker.subscribe(Subscription(2, Filter.topic("t"), application=7))
    assert here.got() == [1, 4, 5]


def test_after_a_restart_what_waited_waits_again_and_what_was_published_has_its_place() -> None:
    here = Here()
    here.comes(event(0, 0), event(2))
    own = here.broker.create(Publication(topic="t", lifetime=HOUR))
    here.broker.keep(own, 0)
    again = Broker(here.host, inbox := Inbox(), store=here.broker.store, gets_all=True)
    again.start()
    again.subscribe(Subscription(1, Filter.topic("#")))
    assert [one.event.sequence for one in inbox.deliveries if one.event.publisher == 1] == [0]
    assert again.create(Publication(topic="t", lifetime=HOUR)).after > 0
    if again.observe(event(1).id, HOUR):
        again.deliver(event(1), 1)
    assert [one.event.sequence for one in inbox.deliveries if one.event.publisher == 1] == [0, 1, 2]


def published(broker: Broker, publication: Publication, sequence: int | None = None) -> Event:
    made = broker.create(publication, sequence)
    if publication.lifetime:
        broker.keep(made, 0)
        if MARK not in publication.attributes:
            broker.order.published(made, made.sequence, broker._host.now() + made.lifetime)
    return made


def test_an_event_names_the_one_before_it_of_its_topic_and_qos_that_still_lives() -> None:
    here = Here()
    once = Publication({FLAGS: 2}, topic="a", lifetime=HOUR)
    first = published(here.broker, once)
    published(here.broker, Publication({FLAGS: 1}, topic="a", lifetime=HOUR))
    published(here.broker, Publication({FLAGS: 2}, topic="b", lifetime=HOUR))
    published(here.broker, Publication({FLAGS: 0}, topic="a"))
    published(here.broker, Publication({FLAGS: 6}, topic="a", lifetime=HOUR))  # retained
    assert first.after == 0
    second = published(here.broker, once)
    assert second.sequence - second.after == first.sequence
    assert published(here.broker, Publication({FLAGS: 0}, topic="a")).after == 0
    here.host.advance(HOUR)
    assert published(here.broker, once).after == 0, "what has expired comes no more"


def test_a_payload_in_chunks_has_the_place_at_which_it_was_begun() -> None:
    here = Here()
    small = Publication({FLAGS: 1}, topic="t", lifetime=HOUR)
    before = published(here.broker, small)
    first = here.broker.reserve(3)
    here.broker.order.begin(small, first, 3, here.host.now())
    behind = published(here.broker, small)
    chunks = [
        published(here.broker, Publication({FLAGS: 1, MARK: index}, topic="t", lifetime=HOUR), first + index)
        for index in range(3)
    ]
    assert first - chunks[0].after == before.sequence
    assert [chunk.after for chunk in chunks[1:]] == [1, 1]
    assert behind.sequence - behind.after == chunks[-1].sequence


def test_nothing_waits_for_a_large_payload_that_was_refused() -> None:
    order = Here().broker.order
    frame = Publication({FLAGS: 1}, topic="t", lifetime=HOUR)
    for first, after in ((10, 0), (30, 16)):
        order.begin(frame, first, 3, 0)
        assert order.after(frame, first + 10, 0) == 8, "else nothing is tried"
        order.give_up(first, 3)
        assert order.after(frame, first + 10, 0) == after
        order.published(frame, 24, HOUR)
    order.begin(frame, 50, 3, 0)
    order.published(frame, 53, HOUR)
    order.give_up(50, 3)
    assert order.after(frame, 60, 0) == 7, "what was published meanwhile stands"


def test_what_has_its_number_keeps_its_place_when_a_later_one_is_published_first() -> None:
    """Seeds 22483 and 30157: wills that waited for room were published after other clients' messages with
    later numbers, named no predecessor, and came in any order."""
    order = Here().broker.order
    frame = Publication({FLAGS: 2}, topic="t", lifetime=HOUR)
    order.published(frame, 3, HOUR)
    order.begin(frame, 5, 1, 0)
    order.begin(frame, 6, 1, 0)
    order.begin(frame, 7, 1, 0)
    assert order.after(frame, 9, 0) == 2
    order.published(frame, 9, HOUR)
    assert order.after(frame, 5, 0) == 2
    order.published(frame, 5, HOUR)
    order.give_up(6, 1)
    assert order.after(frame, 7, 0) == 2, "5, for 6 is refused"
    order.published(frame, 7, HOUR)
    assert order.after(frame, 10, 0) == 1


def test_what_a_restart_has_left_unpublished_follows_what_was_published_before_it() -> None:
    """It named no predecessor where a later one of its topic, or its own first chunk, was in the store."""
    here = Here()
    small = Publication({FLAGS: 2}, topic="t", lifetime=HOUR)
    numbers = [published(here.broker, small).sequence for _ in range(2)]
    published(here.broker, Publication({FLAGS: 2}, topic="another", lifetime=HOUR))
    left, large = here.broker.reserve(), here.broker.reserve(3)
    published(here.broker, Publication({FLAGS: 2, MARK: 0}, topic="t", lifetime=HOUR), large)
    published(here.broker, small)
    again = Broker(here.host, Inbox(), store=here.broker.store)
    again.start()
    again.order.begin(small, left, 1, here.host.now())
    again.order.begin(small, large, 3, here.host.now())
    assert left - published(again, small, left).after == numbers[-1]
    assert large - published(again, small, large).after == left


def test_a_restart_looks_through_the_store_once_for_all_that_it_has_left_unpublished() -> None:
    """It did so for each message with a later one of its topic: two seconds for a thousand of them."""

    class CountingStore(EventStore):
        looked_through = 0

        def standing(self, now: Micros) -> list[StoredEvent]:
            self.looked_through += 1
            return super().standing(now)

    store = CountingStore()
    here = Here(store=store)
    frame = Publication({FLAGS: 2}, topic="t", lifetime=HOUR)
    before, left = [], []
    for _ in range(100):
        before.append(published(here.broker, frame).sequence)
        left.append(here.broker.reserve())
    published(here.broker, frame)
    again = Broker(here.host, Inbox(), store=store)
    again.start()
    store.looked_through = 0
    for number in left:
        again.order.begin(frame, number, 1, here.host.now())
    assert store.looked_through <= 1
    assert [number - published(again, frame, number).after for number in left] == before


def test_what_was_given_up_and_is_tried_again_has_its_place() -> None:
    order = Here().broker.order
    frame = Publication({FLAGS: 2}, topic="t", lifetime=HOUR)
    order.published(frame, 3, HOUR)
    order.begin(frame, 5, 2, 0)
    order.give_up(5, 2)
    order.give_up(5, 2)  # by who asked for it, too
    assert order.after(frame, 9, 0) == 6
    order.begin(frame, 5, 2, 0)
    assert (order.after(frame, 5, 0), order.after(frame, 9, 0)) == (2, 3)
