from roamcast.broker.store import EventStore
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
