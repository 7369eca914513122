from hypothesis import given
from hypothesis import strategies as st

from roamcast.broker.seen import HOLD, SeenEvents
from roamcast.broker.seen import event_key as key
from roamcast.units import SECOND


def test_the_first_copy_is_new_and_the_others_are_not() -> None:
    seen = SeenEvents()
    assert seen.observe(key(1, 7), now=0)
    assert not seen.observe(key(1, 7), now=1)
    assert seen.observe(key(2, 7), now=1)


def test_an_event_is_remembered_for_the_hold_and_forgotten_after_two() -> None:
    seen = SeenEvents(hold=10 * SECOND)
    seen.observe(key(1, 1), now=9 * SECOND)
    assert not seen.observe(key(1, 1), now=19 * SECOND)
    assert seen.observe(key(1, 1), now=40 * SECOND)


def test_thousands_of_past_events_leave_a_bounded_table() -> None:
    seen = SeenEvents(hold=10 * SECOND, capacity=100)
    for sequence in range(10_000):
        seen.observe(key(1, sequence), now=0)
        seen.observe(key(2, sequence), now=0, until=10_000 * SECOND)
    assert len(seen) <= 200
    assert not seen.observe(key(1, 9_999), now=0)  # the newest are still known


def test_a_memorized_event_is_remembered_for_its_lifetime() -> None:
    seen = SeenEvents(hold=10 * SECOND)
    seen.observe(key(1, 1), now=0, until=3_600 * SECOND)
    for now in range(0, 3_600, 7):
        assert not seen.observe(key(1, 1), now=now * SECOND, until=3_600 * SECOND)
    assert seen.observe(key(1, 1), now=3_700 * SECOND)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=200))
def test_within_the_hold_no_event_is_new_twice(steps: list[tuple[int, int]]) -> None:
    """Against a model: the exact time of every first sight."""
    seen, first = SeenEvents(hold=30), dict[int, int]()
    now = 0
    for number, passes in steps:
        now += passes
        event = key(0, number)
        new = seen.observe(event, now)
        if event in first and now - first[event] < 30:
            assert not new
        if new:
            first[event] = now


class _Generations:
    """The rule in its plainest form: two sets that change places, the lasting ones in a third."""

    def __init__(self, hold: int, capacity: int) -> None:
        self._hold, self._capacity = hold, capacity
        self._current, self._previous = set[int](), set[int]()
        self._turns_at = hold
        self._lasting = dict[int, int]()

    def observe(self, event: int, now: int, until: int) -> bool:
        if now >= self._turns_at:
            self._turn(now)
        if event in self._current | self._previous | set(self._lasting):
            return False
        if until > now + self._hold // 2:
            self._lasting[event] = until + self._hold // 2
            self._lasting = {one: end for one, end in self._lasting.items() if end > now}
            while len(self._lasting) > self._capacity:
                del self._lasting[min(self._lasting, key=lambda one: (self._lasting[one], one))]
            return True
        if len(self._current) >= self._capacity // 2:
            self._turn(now)
        self._current.add(event)
        return True

    def _turn(self, now: int) -> None:
        self._previous = self._current if now < self._turns_at + self._hold else set()
        self._current = set()
        self._turns_at = now + self._hold
        self._lasting = {one: end for one, end in self._lasting.items() if end > now}


@given(
    st.integers(2, 12),
    st.lists(st.tuples(st.integers(0, 15), st.sampled_from([0, 0, 1, 4, 31, 95]), st.integers(0, 90))),
)
def test_what_is_taken_out_slowly_is_forgotten_at_once(
    capacity: int, steps: list[tuple[int, int, int]]
) -> None:
    seen, plain = SeenEvents(hold=30, capacity=capacity), _Generations(30, capacity)
    now = 0
    for event, passes, lives_for in steps:
        now += passes
        assert seen.observe(event, now, now + lives_for) == plain.observe(event, now, now + lives_for)
        assert len(seen) <= 2 * capacity


def test_the_keys_of_a_network_have_different_hashes() -> None:
    keys = [key(publisher, sequence) for publisher in range(50) for sequence in range(1_000)]
    assert len({hash(one) for one in keys}) == len(keys)


@given(
    st.lists(st.tuples(st.integers(0, 15), st.sampled_from([0, 0, 1, 4, 31, 95]), st.integers(0, 90))),
    st.frozensets(st.integers(0, 18)),
)
def test_many_asked_at_once_are_answered_as_each_by_itself(
    steps: list[tuple[int, int, int]], asked: frozenset[int]
) -> None:
    seen = SeenEvents(hold=30, capacity=6)
    now = 0
    for event, passes, lives_for in steps:
        now += passes
        seen.observe(event, now, now + lives_for)
        assert seen.unseen(asked) == {one for one in asked if one not in seen}


def test_a_copy_that_is_a_little_younger_by_its_own_account_is_no_new_event() -> None:
    """Its age leaves out the time on the air. When others had forgotten it, it went round once more."""
    seen = SeenEvents()
    for lives_for in (HOLD // 2, HOLD, 10 * HOLD):
        event = key(0, lives_for)
        assert seen.observe(event, 0, lives_for)
        assert not seen.observe(event, lives_for + HOLD // 2 - 1)
