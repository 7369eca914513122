from roamcast.broker.store import ABSENT_WAIT, EventStore
from roamcast.event import Event, EventClass, EventId
from roamcast.kit.custody import HAD_MAX, Custody
from roamcast.testing import FakeHost
from roamcast.units import SECOND


def custody_of(host: FakeHost, events: int) -> tuple[Custody, EventStore]:
    store = EventStore()
    custody = Custody(host, store)
    store.settled = custody.settled
    for sequence in range(events):
        event = Event(host.node, sequence, event_class=EventClass.MEMORIZED, lifetime=3_600 * SECOND)
        store.keep(event, 3_600 * SECOND, 0, host.now())
    return custody, store


def settled(custody: Custody, store: EventStore) -> list[int]:
    return [one.event.sequence for one in custody.settled(store.standing(0))]


def test_a_node_that_knows_nobody_waits_for_nobody() -> None:
    custody, store = custody_of(FakeHost(1), 2)
    assert settled(custody, store) == [0, 1]


def test_an_event_is_settled_when_every_neighbour_has_had_it() -> None:
    custody, store = custody_of(FakeHost(1), 3)
    for neighbour in (2, 3):
        custody.on_neighbour_up(neighbour)
    custody.on_held(2, [EventId(1, 0), EventId(1, 1), EventId(9, 9)])
    assert settled(custody, store) == []
    custody.on_held(3, [EventId(1, 1), EventId(1, 2)])
    custody.on_held(2, [EventId(1, 2)])
    custody.on_held(2, [])  # it has pushed them out since: it had them
    assert settled(custody, store) == [1, 2]


def test_thousands_of_nodes_met_in_passing_leave_a_bounded_note() -> None:
    custody, store = custody_of(FakeHost(1), 1)
    custody.on_neighbour_up(2)
    for node in (*range(100, 100 + 3 * HAD_MAX), 2):
        custody.on_held(node, [EventId(1, 0)])
    found = store.find(EventId(1, 0))
    assert found is not None and len(found.had_by) == HAD_MAX
    assert settled(custody, store) == [0]


def test_nobody_waits_for_the_publisher_of_an_event() -> None:
    custody, store = custody_of(FakeHost(1), 0)
    custody.on_neighbour_up(2)
    store.keep(Event(2, 5, event_class=EventClass.MEMORIZED, lifetime=SECOND), SECOND, 1, 0)
    assert settled(custody, store) == [5]


def test_an_absent_neighbour_is_waited_for_a_while_and_across_a_restart() -> None:
    host = FakeHost(1)
    custody, store = custody_of(host, 1)
    custody.on_neighbour_up(2)
    custody.on_neighbour_down(2)
    host.advance(ABSENT_WAIT - 1)
    assert settled(custody, store) == []
    custody, store = custody_of(host, 1)  # a restart begins the time anew: nobody knows how long it took
    host.advance(ABSENT_WAIT - 1)
    assert settled(custody, store) == []
    host.advance(1)
    assert settled(custody, store) == [0]


def test_damaged_notes_of_neighbours_do_no_harm() -> None:
    host = FakeHost(1)
    host.stable["custody"] = b"123456789"
    custody, store = custody_of(host, 1)
    custody.on_neighbour_up(2)
    custody.on_held(2, [EventId(1, 0)])
    assert settled(custody, store) == []  # it waits for the other, too
