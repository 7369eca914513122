"""Tables at one node: ghosts and echoes, with the clock in hand."""

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.tree.content.tables import RoutingTables
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import SECOND

LEFT, RIGHT, NEW = 1, 2, 3
OURS, THEIRS, MINE = (Filter.sql(f"level = {number}") for number in range(3))


def between_two(*, filters_max: int = 100) -> RoutingTables:
    """A node that wants MINE, with OURS wanted on its left and THEIRS on its right."""
    options = TreeOptions(unsubscription_delay=3.0, echo_delay=1.0, filters_max=filters_max)
    tables = RoutingTables(options, on_overflow=lambda: None)
    tables.on_subscribed(MINE, 0)
    for neighbour, wanted in ((LEFT, OURS), (RIGHT, THEIRS)):
        tables.on_link_up(neighbour)
        tables.on_table(neighbour, {wanted: 0})
    return tables


def test_each_side_is_told_what_the_others_want() -> None:
    tables = between_two()
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}
    assert set(tables.outgoing(RIGHT)) == {OURS, MINE}


def test_a_ghost_speaks_to_those_who_knew_it_until_its_time_is_over() -> None:
    tables = between_two()
    tables.on_link_down(RIGHT, 10 * SECOND)
    tables.on_link_up(NEW)
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}
    assert set(tables.outgoing(NEW)) == {OURS, MINE}, "a new link is not told of a ghost"
    assert tables.next_due() == 13 * SECOND
    tables.on_time(13 * SECOND - 1)
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}
    tables.take_changed()
    tables.on_time(13 * SECOND)
    assert set(tables.outgoing(LEFT)) == {MINE}
    assert tables.take_changed() == [LEFT]
    assert tables.next_due() is None


def test_what_moved_behind_the_new_link_outlives_the_ghost_without_a_word() -> None:
    tables = between_two()
    tables.on_link_down(RIGHT, 10 * SECOND)
    tables.on_link_up(NEW)
    tables.on_table(NEW, {THEIRS: 0})
    tables.on_time(13 * SECOND)
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}


def test_an_echo_takes_events_at_once_and_is_passed_on_only_if_it_stays() -> None:
    tables = between_two()
    tables.on_link_down(RIGHT, 10 * SECOND)
    tables.on_link_up(NEW)
    tables.on_table(NEW, {THEIRS: 0, MINE: 0, OURS: 0})  # MINE and OURS we had told the right side
    assert tables.wants(NEW, Event(9, 0, {"level": 2}))
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}
    tables.on_table(NEW, {THEIRS: 0, OURS: 0})
    tables.on_time(14 * SECOND - 1)
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}, "OURS is not told to those who want it"
    tables.on_time(14 * SECOND)
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE, OURS}, "it was no echo"


def test_a_neighbour_that_is_back_lays_its_own_ghost() -> None:
    tables = between_two()
    tables.on_link_down(RIGHT, 10 * SECOND)
    tables.on_link_up(RIGHT)
    assert set(tables.outgoing(LEFT)) == {THEIRS, MINE}
    tables.on_table(RIGHT, {})
    assert set(tables.outgoing(LEFT)) == {MINE}
    assert tables.next_due() is None


def test_the_earliest_wish_behind_a_link_counts() -> None:
    tables = between_two()
    event = Event(9, 0, {"level": 1})
    tables.on_table(RIGHT, {THEIRS: 5, Filter.sql("level < 2"): 3, OURS: 1})
    assert tables.wanted_since(RIGHT, event) == 0, "known since 0; a later report does not make it younger"
    assert tables.wanted_since(LEFT, event) is None
    assert tables.wanted_here_since(Event(9, 0, {"level": 2})) == 0


def test_too_many_filters_are_told_as_a_wider_one_wanted_since_the_oldest() -> None:
    tables = between_two(filters_max=1)
    (wider,) = tables.outgoing(LEFT)
    assert wider == Filter.sql("level IN (1, 2)")
    assert tables.outgoing_since(LEFT, wider) == 0
