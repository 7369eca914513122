"""Sets of filters that are too large become smaller and wider, and never narrower."""

from hypothesis import given
from hypothesis import strategies as st

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.tree.content.covering_set import CUTS_MAX, widened

POOL = [
    *(Filter.sql(f"level = {level}") for level in range(0, 40, 2)),
    *(Filter.sql(f"level > {level} AND zone = '{zone}'") for level in (3, 8) for zone in "abc"),
    Filter.sql("zone IN ('a', 'b')"),
    Filter.sql("zone IS NULL"),
    Filter.sql("level > 2 OR zone = 'c'"),
    Filter.sql("name LIKE 'a%'"),
    Filter.topic("t/#"),
    Filter.of_type("alarm"),
]


def test_up_to_the_bound_every_filter_is_kept() -> None:
    assert set(widened(POOL[:5], 5)) == set(POOL[:5])


def test_filters_on_the_same_attributes_become_the_union_of_their_values() -> None:
    narrow = [Filter.sql("a = 1 AND b > 5"), Filter.sql("b > 3 AND a = 2"), Filter.sql("c = 'x'")]
    assert set(widened(narrow, 2)) == {Filter.sql("a IN (1, 2) AND b > 3"), Filter.sql("c = 'x'")}


def test_many_gaps_are_filled() -> None:
    points = [Filter.sql(f"level = {level}") for level in range(0, 2 * CUTS_MAX, 2)]
    assert list(widened(points, 3)) == [Filter.sql(f"level BETWEEN 0 AND {2 * CUTS_MAX - 2}")]


def test_what_cannot_be_joined_becomes_everything() -> None:
    assert list(widened([Filter.topic(f"t/{number}") for number in range(4)], 3)) == [Filter.everything()]


@given(
    st.lists(st.sampled_from(POOL), unique=True),
    st.integers(1, 6),
    st.integers(0, 40),
    st.sampled_from([None, "a", "b", "c"]),
    st.sampled_from(["", "alarm"]),
    st.sampled_from(["", "t/1"]),
)
def test_nothing_wanted_is_lost_and_the_order_does_not_matter(
    filters: list[Filter], most: int, level: int, zone: str | None, type: str, topic: str
) -> None:
    result = widened(filters, most)
    assert len(result) <= max(most, 1)
    assert set(widened(filters[::-1], most)) == set(result)
    event = Event(1, 1, {"level": level, "zone": zone}, type=type, topic=topic)
    if any(each.matches(event) for each in filters):
        assert any(each.matches(event) for each in result)
