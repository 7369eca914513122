"""How fast events are sent again: the allowance of a node among its neighbours."""

from hypothesis import given
from hypothesis import strategies as st

from roamcast.strategy.tree.content.recovery import PER_SECOND_MAX, PER_SECOND_MIN, SAVED_MAX, RecoveryPace
from roamcast.units import SECOND, Micros


def taken(pace: RecoveryPace, now: Micros, seconds: int, tries_per_second: int = 200) -> int:
    step = SECOND // tries_per_second
    return sum(pace.take(now + step * n) for n in range(seconds * tries_per_second))


def test_after_a_burst_the_clock_and_first_sendings_allow_repeats() -> None:
    pace = RecoveryPace()
    assert taken(pace, 0, 1) >= SAVED_MAX
    pace.on_loss(SECOND)
    before = sum(pace.take(SECOND) for _ in range(100))
    for _ in range(10):
        pace.on_fresh()
    assert before <= 5 and sum(pace.take(SECOND) for _ in range(100)) == 10


def test_without_losses_the_clock_gives_more_and_with_losses_little() -> None:
    calm, busy = RecoveryPace(), RecoveryPace()
    quietly = taken(calm, 0, 20)
    under_losses = 0
    for second in range(20):
        busy.on_loss(second * SECOND)
        under_losses += taken(busy, second * SECOND, 1)
    assert calm.per_second == PER_SECOND_MAX and quietly > 15 * PER_SECOND_MAX
    assert under_losses <= SAVED_MAX + 21 * PER_SECOND_MIN


def test_what_others_repeat_is_not_there_for_us() -> None:
    pace = RecoveryPace()
    for _ in range(10):
        pace.on_others(0)
    assert sum(pace.take(0) for _ in range(100)) == SAVED_MAX - 10


@given(st.lists(st.tuples(st.sampled_from("flot"), st.integers(0, SECOND)), max_size=60))
def test_the_next_repeat_is_allowed_when_the_pace_says_so(story: list[tuple[str, int]]) -> None:
    pace = RecoveryPace()
    now = 0
    for what, wait in story:
        now += wait
        match what:
            case "f":
                pace.on_fresh()
            case "l":
                pace.on_loss(now)
            case "o":
                pace.on_others(now)
            case _:
                pace.take(now)
        assert PER_SECOND_MIN <= pace.per_second <= PER_SECOND_MAX
    assert pace.take(pace.next_at(now))
