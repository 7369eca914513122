"""How long links last: the formula against small steps, and numbers that nobody should believe."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.host import Position
from roamcast.strategy.odmrp.messages import UNLIMITED
from roamcast.strategy.odmrp.routes import link_lifetime
from roamcast.units import SECOND

metres = st.floats(-150, 150)
speeds = st.floats(-20, 20)
places = st.builds(Position, metres, metres, speeds, speeds)


def test_two_that_part_at_ten_metres_a_second_have_fifteen_seconds_left() -> None:
    # 100 m apart, range 250 m, away from each other at 10 m/s: (250 - 100) / 10.
    one, other = Position(0, 0, 0, 0), Position(100, 0, 10, 0)
    assert link_lifetime(one, other, 250.0) == 15 * SECOND
    # Towards each other and past: 100 m to meet, 250 m beyond.
    assert link_lifetime(one, Position(100, 0, -10, 0), 250.0) == 35 * SECOND


def test_who_moves_together_stays_together_and_who_is_apart_has_nothing_left() -> None:
    assert link_lifetime(Position(0, 0, 3, 4), Position(9, 9, 3, 4), 250.0) == UNLIMITED
    assert link_lifetime(Position(0, 0, 0, 0), Position(300, 0, -10, 0), 250.0) == 0


@given(places, places)
@settings(max_examples=200, deadline=None)
def test_the_distance_reaches_the_range_when_the_prediction_says_so(one: Position, other: Position) -> None:
    def distance(t: float) -> float:
        return math.hypot(
            one.x - other.x + t * (one.vx - other.vx), one.y - other.y + t * (one.vy - other.vy)
        )

    radius = 250.0
    lasts = link_lifetime(one, other, radius)
    if distance(0) > radius:
        assert lasts == 0
    elif lasts < UNLIMITED and lasts < 10**6 * SECOND:
        t = lasts / SECOND
        assert distance(t) <= radius * (1 + 1e-6) + 1e-3
        assert distance(t * 1.01 + 0.1) > radius * (1 - 1e-6) - 1e-3
        assert all(distance(t * step / 20) <= radius * (1 + 1e-6) + 1e-3 for step in range(21))


@given(st.lists(st.floats(), min_size=8, max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_numbers_give_a_lifetime_that_can_be_sent(numbers: list[float]) -> None:
    lasts = link_lifetime(Position(*numbers[:4]), Position(*numbers[4:]), 250.0)
    assert 0 <= lasts <= UNLIMITED
