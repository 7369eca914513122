"""The parts of `epidemic` by themselves: digests, coverage, requests."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.broker.store import EventStore
from roamcast.event import Event, EventClass, EventId
from roamcast.kit.tables import unreported
from roamcast.strategy.epidemic.exchange import EventRequests
from roamcast.strategy.epidemic.holdings import SCANNED_MAX, Holdings, events_of, missing
from roamcast.strategy.epidemic.messages import CODEC, PUBLISHERS_MAX, HeldRuns, HoldingsDigest
from roamcast.strategy.epidemic.relay import CROWD, NEWCOMER_TIME, ONE_WAY_TIME, RelayQueue
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, NodeId


class KnownNeighbours(Underlay):
    def __init__(self, links: dict[NodeId, list[NodeId]], own: NodeId) -> None:
        super().__init__()
        self.links, self._own = links, own

    def neighbours(self) -> list[NodeId]:
        return self.links[self._own]

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]:
        return self.links.get(neighbour, [])


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
    assert CODEC.decode(CODEC.encode(HoldingsDigest(digest))) == HoldingsDigest(digest)


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


#   1 - 2 - 3, and 4 beside 1 and 2
LINKS = {1: [2, 4], 2: [1, 3, 4], 3: [2], 4: [1, 2]}


def test_a_copy_is_passed_on_only_while_a_neighbour_may_lack_it() -> None:
    event = Event(9, 0)
    at_two = RelayQueue(KnownNeighbours(LINKS, 2), suppress=True, pending_max=10)
    at_two.add(event, 1, 0, 0)
    at_two.cover(event.id, 1, to_all=True)  # 1 and its neighbours 2 and 4 have it, 3 has not
    assert at_two.take(event.id, 0) is not None
    at_four = RelayQueue(KnownNeighbours(LINKS, 4), suppress=True, pending_max=10)
    at_four.add(event, 1, 0, 0)
    at_four.cover(event.id, 1, to_all=True)  # 1 and 2: all that 4 has
    assert at_four.take(event.id, 0) is None


def test_a_copy_for_one_node_alone_covers_only_its_sender() -> None:
    event = Event(9, 0)
    relay = RelayQueue(KnownNeighbours(LINKS, 4), suppress=True, pending_max=10)
    relay.add(event, 1, 0, 0)
    relay.cover(event.id, 1, to_all=False)
    assert relay.take(event.id, 0) is not None


def test_without_known_neighbours_and_without_suppression_every_copy_goes_out() -> None:
    event = Event(9, 0)
    for neighbours, suppress in (list[NodeId](), True), ([2], False):
        relay = RelayQueue(KnownNeighbours({1: neighbours}, 1), suppress=suppress, pending_max=10)
        relay.add(event, 1, 0, 0)
        relay.cover(event.id, 2, to_all=True)
        assert relay.take(event.id, 0) is not None


def test_a_node_without_neighbours_broadcasts_nothing_of_its_own() -> None:
    links: dict[NodeId, list[NodeId]] = {1: []}
    relay = RelayQueue(KnownNeighbours(links, 1), suppress=True, pending_max=10)
    assert relay.may_be_heard(0), "an underlay that has named nobody so far may never name anyone"
    relay.on_neighbour_up(2)
    links[1] = [2]
    assert relay.may_be_heard(0)
    links[1] = []
    assert not relay.may_be_heard(0)
    relay.meet(3, 0)
    assert relay.may_be_heard(NEWCOMER_TIME - 1) and not relay.may_be_heard(NEWCOMER_TIME)
    assert RelayQueue(KnownNeighbours(links, 1), suppress=False, pending_max=10).may_be_heard(0)


def test_the_wait_of_a_relay_grows_with_those_who_could_send_at_once() -> None:
    crowd = RelayQueue(
        KnownNeighbours({2: [1, 3], 5: list(range(20))}, 1), suppress=True, pending_max=10
    ).crowd
    assert (crowd(2), crowd(5)) == (1, CROWD)
    assert crowd(9) == CROWD, "nothing is known of its neighbours"


def test_each_event_is_asked_from_one_neighbour_and_from_another_when_that_fails() -> None:
    seen: set[EventId] = set()
    exchange = EventRequests(seen.__contains__, request_max=2, timeout=SECOND)
    events = [EventId(1, sequence) for sequence in range(4)]
    exchange.on_offer(5, events)
    exchange.on_offer(6, events)
    events.reverse()  # the newest first
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


def test_the_newest_events_of_all_publishers_are_asked_for_first() -> None:
    exchange = EventRequests(lambda _: False, request_max=4, timeout=SECOND)
    exchange.on_offer(5, [EventId(publisher, sequence) for publisher in (1, 2) for sequence in range(100)])
    assert exchange.request(5, 0) == [EventId(1, 99), EventId(2, 99), EventId(1, 98), EventId(2, 98)]


def test_a_newcomer_counts_as_a_neighbour_until_its_beacon_has_come_or_should_have() -> None:
    """3 hears 5, and has no other neighbour than 2, from which the copies come."""
    relay = RelayQueue(KnownNeighbours(LINKS, 3), suppress=True, pending_max=10)

    def passes_on(sequence: int, now: int) -> bool:
        event = Event(9, sequence)
        relay.add(event, 1, 0, now)
        relay.cover(event.id, 2, to_all=True)
        return relay.take(event.id, now) is not None

    assert not passes_on(0, 0)
    assert relay.meet(5, 0)
    assert passes_on(1, SECOND // 2)
    assert not relay.meet(5, SECOND // 2)
    assert not passes_on(2, NEWCOMER_TIME), "it does not hear us"
    assert not relay.meet(5, ONE_WAY_TIME - 1) and relay.meet(5, ONE_WAY_TIME)
    relay.on_neighbour_up(5)
    assert not passes_on(3, ONE_WAY_TIME), "beacons tell by now"


def test_what_is_seen_meanwhile_is_not_asked_for() -> None:
    seen: set[EventId] = set()
    exchange = EventRequests(seen.__contains__, request_max=10, timeout=SECOND)
    exchange.on_offer(5, [EventId(1, 0), EventId(1, 1)])
    seen.add(EventId(1, 0))
    assert exchange.request(5, 0) == [EventId(1, 1)]
