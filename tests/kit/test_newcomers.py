"""Nodes that are heard and are no neighbours yet."""

from roamcast.kit.newcomers import NEWCOMER_TIME, NEWCOMERS_MAX, ONE_WAY_TIME, Newcomers


def test_a_stranger_is_news_once_and_counts_for_a_moment() -> None:
    around = Newcomers()
    assert around.meet(5, 0) and not around.meet(5, 1)
    assert around.lately(NEWCOMER_TIME - 1) == [5] and around.lately(NEWCOMER_TIME) == []
    assert not around.meet(5, ONE_WAY_TIME - 1) and around.meet(5, ONE_WAY_TIME)  # it may have come back


def test_a_neighbour_is_no_newcomer_and_may_become_one_again() -> None:
    around = Newcomers()
    around.meet(5, 0)
    around.on_up(5)
    assert around.known == {5} and around.lately(0) == []
    around.on_down(5)
    assert around.known == set() and around.meet(5, 1)


def test_many_strangers_take_no_more_room_than_there_is() -> None:
    around = Newcomers()
    for node in range(3 * NEWCOMERS_MAX):
        around.meet(node, 0)
    assert len(around.lately(0)) == NEWCOMERS_MAX
