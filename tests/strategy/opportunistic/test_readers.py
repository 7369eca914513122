"""Readers: each producer's events once and in order, whatever the order and the ways by which copies come."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.event import Event, EventClass
from roamcast.strategy.opportunistic.copies import EventCopy
from roamcast.strategy.opportunistic.readers import EventReader, Hole
from roamcast.units import SECOND

P = 7


def copy(sequence: int, previous: int | None = None, *, at: int = 0, gap: int = SECOND) -> EventCopy:
    return EventCopy(
        Event(P, sequence), sequence if previous is None else previous, gap, 1, at or sequence * SECOND
    )


class Reads:
    def __init__(self, since: int = 0, **cursors: int) -> None:
        self.got: list[int] = []
        self.reader = EventReader(
            1,
            is_modulated=False,
            since=since,
            on_next=lambda one: self.got.append(one.event.sequence),
            cursors={int(p[1:]): n for p, n in cursors.items()}.items(),
        )

    def take(self, one: EventCopy, base: int | None = None) -> None:
        self.reader.take(one, one.previous if base is None else base, 99 * SECOND)


@settings(max_examples=200, deadline=None)
@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=12))
def test_any_order_and_any_repeats_become_the_producer_s_order(order: list[int], again: list[int]) -> None:
    reads = Reads()
    for sequence in [*order, *again]:
        reads.take(copy(sequence))
    assert reads.got == list(range(12)) and reads.reader.holes() == []


def test_what_a_base_leaves_out_is_not_waited_for() -> None:
    reads = Reads(p7=3)
    reads.take(copy(9), base=4)
    assert reads.got == [9]
    reads.take(copy(12), base=11)  # 10 was for it
    assert reads.got == [9]
    assert reads.reader.holes() == [Hole(P, 10, 10, 99 * SECOND)]
    reads.take(copy(10))
    assert reads.got == [9, 10, 12]


def test_a_hole_behind_another_is_as_old_as_the_first_event_that_showed_it() -> None:
    """It began anew when the one before it closed, so on a line that loses frames each hole waited for all
    before it."""
    reads = Reads(p7=0)
    for sequence in (2, 4):
        reads.reader.take(copy(sequence), sequence, sequence * SECOND)
    reads.reader.take(copy(1), 1, 9 * SECOND)
    assert reads.got == [1, 2]
    assert reads.reader.holes() == [Hole(P, 3, 3, 4 * SECOND)]


def test_the_first_one_is_taken_if_the_one_before_was_published_before_anything_was_wanted() -> None:
    reads = Reads(since=5 * SECOND)
    reads.take(copy(7))
    assert reads.got == []  # 6 was published at 6 s
    reads.take(copy(6))
    assert reads.got == []
    reads.take(copy(5))
    assert reads.got == [5, 6, 7]


def test_a_head_without_an_event_is_a_hole_and_the_word_that_this_was_all_closes_it() -> None:
    reads = Reads(p7=3)
    reads.reader.on_head(P, 6, 0, is_all=False)
    assert [(hole.after, hole.until) for hole in reads.reader.holes()] == [(4, 6)]
    reads.take(copy(7), base=4)
    assert reads.got == []  # something until 6 was sent, by another way
    reads.take(copy(5), base=4)
    reads.reader.on_head(P, 6, 0, is_all=True)
    assert reads.got == [5, 7] and reads.reader.holes() == []


def test_a_hole_that_nobody_closes_is_given_up_in_time() -> None:
    reads = Reads(p7=3)
    reads.take(copy(6))
    reads.reader.give_up(98 * SECOND, 100 * SECOND)
    assert reads.got == []
    reads.reader.give_up(100 * SECOND, 100 * SECOND)
    assert reads.got == [6]


def test_a_producer_that_lost_its_memory_begins_anew() -> None:
    reads = Reads(p7=30)
    reads.take(copy(1_000, previous=0))
    reads.take(copy(1_001, previous=1_001))
    assert reads.got == [1_000, 1_001]


def test_another_reader_goes_on_with_the_cursors() -> None:
    first = Reads()
    for sequence in (0, 1, 3):
        first.take(copy(sequence))
    early = first.reader.take_waiting()
    second = Reads(**{f"p{p}": n for p, n in first.reader.cursors.items()})
    for sequence in (1, 2):
        second.take(copy(sequence))
    for one in early:
        second.reader.take(one.copy, one.base, 0)
    assert (first.got, second.got) == ([0, 1], [2, 3])


def test_a_memorized_event_waits_for_half_of_its_time_and_what_was_before_it_comes_all_the_same() -> None:
    reads = Reads(p7=3)
    for sequence, lifetime in ((6, 40), (8, 400)):
        event = Event(P, sequence, event_class=EventClass.MEMORIZED, lifetime=lifetime * SECOND)
        reads.take(EventCopy(event, sequence, SECOND, 1, 99 * SECOND))
    reads.reader.give_up(0, 118 * SECOND)
    assert reads.got == []
    reads.reader.give_up(0, 119 * SECOND)
    assert reads.got == [6]
    reads.reader.give_up(0, 298 * SECOND)
    assert reads.got == [6]
    reads.take(EventCopy(Event(P, 5, event_class=EventClass.MEMORIZED, lifetime=SECOND), 5, SECOND, 1, 0))
    reads.reader.give_up(0, 299 * SECOND)
    assert reads.got == [6, 5, 8] and reads.reader.holes() == []
