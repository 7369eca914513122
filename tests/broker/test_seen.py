from hypothesis import given
from hypothesis import strategies as st

from roamcast.broker.seen import SeenEvents
from roamcast.event import EventId
from roamcast.units import SECOND


def test_the_first_copy_is_new_and_the_others_are_not() -> None:
    seen = SeenEvents()
    assert seen.observe(EventId(1, 7), now=0)
    assert not seen.observe(EventId(1, 7), now=1)
    assert seen.observe(EventId(2, 7), now=1)


def test_an_event_is_remembered_for_the_hold_and_forgotten_after_two() -> None:
    seen = SeenEvents(hold=10 * SECOND)
    seen.observe(EventId(1, 1), now=9 * SECOND)
    assert not seen.observe(EventId(1, 1), now=19 * SECOND)
    assert seen.observe(EventId(1, 1), now=40 * SECOND)


def test_thousands_of_past_events_leave_a_bounded_table() -> None:
    seen = SeenEvents(hold=10 * SECOND, capacity=100)
    for sequence in range(10_000):
        seen.observe(EventId(1, sequence), now=0)
        seen.observe(EventId(2, sequence), now=0, until=10_000 * SECOND)
    assert len(seen) <= 200
    assert not seen.observe(EventId(1, 9_999), now=0)  # the newest are still known


def test_a_memorized_event_is_remembered_for_its_lifetime() -> None:
    seen = SeenEvents(hold=10 * SECOND)
    seen.observe(EventId(1, 1), now=0, until=3_600 * SECOND)
    for now in range(0, 3_600, 7):
        assert not seen.observe(EventId(1, 1), now=now * SECOND, until=3_600 * SECOND)
    assert seen.observe(EventId(1, 1), now=3_700 * SECOND)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=200))
def test_within_the_hold_no_event_is_new_twice(steps: list[tuple[int, int]]) -> None:
    """Against a model: the exact time of every first sight."""
    seen, first = SeenEvents(hold=30), dict[EventId, int]()
    now = 0
    for number, passes in steps:
        now += passes
        event = EventId(0, number)
        new = seen.observe(event, now)
        if event in first and now - first[event] < 30:
            assert not new
        if new:
            first[event] = now
