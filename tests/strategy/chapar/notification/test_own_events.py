from random import Random

from roamcast.event import Event, EventClass, EventId
from roamcast.strategy.chapar.notification.own_events import OwnEvents
from roamcast.strategy.chapar.tables.event_table import Memo


def memo(sequence: int, expires_at: int) -> Memo:
    return Memo(Event(1, sequence, event_class=EventClass.MEMORIZED, lifetime=9), 0, expires_at)


def test_the_first_to_expire_makes_room_and_the_latest_is_known_after_any_removal() -> None:
    evicted: list[tuple[EventId, Memo]] = []
    own = OwnEvents(20, lambda key, one: evicted.append((key, one)))
    random = Random(1)
    expected: dict[EventId, Memo] = {}
    for sequence, now in enumerate(range(0, 3_000, 10)):
        own.forget_expired(now)
        expected = {key: one for key, one in expected.items() if one.expires_at > now}
        latest = own.latest()
        assert (latest and latest.id) == max(expected, default=None)
        new = memo(sequence, now + random.randrange(1, 600))
        if len(expected) == 20:
            first = min(expected, key=lambda key: (expected[key].expires_at, key))
            assert expected.pop(first) is not None
            own.add(new)
            assert evicted[-1][0] == first
        else:
            own.add(new)
        expected[new.id] = new
        own.add(memo(sequence, now + 10**6))  # again: it stays as it was
        assert own.in_order() == [expected[key] for key in sorted(expected)]
        assert own.find(new.id) is new
    assert evicted
