"""The visible filters, against the maximal ones found by trying every pair."""

from hypothesis import given
from hypothesis import strategies as st

from roamcast.filter import Filter
from roamcast.strategy.tree.content.covering_set import CoveringSet

WIDE = Filter.sql("level > 3")
MIDDLE = Filter.sql("level > 5")
NARROW = Filter.sql("level > 7 AND zone = 'north'")
ASIDE = Filter.sql("zone = 'south'")

# Two pairs mean the same and are spelled differently; no normal form makes them equal.
POOL = [
    WIDE,
    MIDDLE,
    NARROW,
    ASIDE,
    Filter.sql("zone IN ('north', 'south')"),
    Filter.sql("level > 3 OR level > 3 AND zone = 'north'"),
    Filter.sql("zone = 'south' OR zone = 'south' AND level > 3"),
    Filter.topic("a/#"),
    Filter.topic("a/b"),
    Filter.of_type("alarm.fire"),
    Filter.everything(),
]


def test_a_covered_filter_hides_and_comes_back() -> None:
    filters = CoveringSet()
    filters.add(NARROW, 10)
    filters.add(WIDE, 20)
    assert list(filters.visible()) == [WIDE]
    filters.add(ASIDE, 30)
    assert set(filters.visible()) == {WIDE, ASIDE}
    filters.remove(WIDE)
    assert set(filters.visible()) == {NARROW, ASIDE}


def test_what_hung_under_a_hidden_filter_stays_hidden_when_that_one_goes() -> None:
    filters = CoveringSet()
    for each in (NARROW, MIDDLE, WIDE):
        filters.add(each, 0)
    filters.remove(MIDDLE)
    assert list(filters.visible()) == [WIDE]
    filters.remove(WIDE)
    assert list(filters.visible()) == [NARROW]


def test_a_filter_counts_as_often_as_it_was_added_and_since_the_first_time() -> None:
    filters = CoveringSet()
    filters.add(WIDE, 20)
    filters.add(WIDE, 10)
    filters.remove(WIDE)
    assert list(filters.visible()) == [WIDE]
    assert filters.since(WIDE) == 10
    filters.remove(WIDE)
    assert not filters.visible() and filters.oldest() is None
    assert filters.since(WIDE) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, len(POOL) - 1)), max_size=40))
def test_the_visible_filters_are_the_maximal_ones_whatever_was_added_and_removed(
    steps: list[tuple[bool, int]],
) -> None:
    filters = CoveringSet()
    held: list[Filter] = []
    for is_added, number in steps:
        if is_added:
            filters.add(POOL[number], number)
            held.append(POOL[number])
        elif held:
            filters.remove(held.pop(number % len(held)))
        assert set(filters.visible()) == maximal(set(held))


def maximal(filters: set[Filter]) -> set[Filter]:
    """Of filters that cover each other the one with the smallest encoding speaks for all."""
    return {
        each
        for each in filters
        if not any(
            other != each
            and other.covers(each)
            and (not each.covers(other) or other.encode() < each.encode())
            for other in filters
        )
    }
