"""Filters by hand: what they match, how they are spelled and sent, what covers what."""

import math

import pytest

from roamcast.errors import FilterError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.filter.expression import Compare, OneOf, Operator


def event(topic: str = "", type: str = "", **attributes: Value) -> Event:
    return Event(1, 1, attributes, topic=topic, type=type)


MATCHING: list[tuple[str, Event, bool]] = [
    ("level > 3", event(level=4), True),
    ("level > 3", event(level=3.0000001), True),
    ("level > 3", event(level=3), False),
    ("level > 3", event(level="4"), False),  # another kind: UNKNOWN
    ("NOT level > 3", event(level="4"), False),  # still UNKNOWN
    ("NOT level > 3", event(), False),
    ("level > 0", event(level=True), False),  # a boolean is no number
    ("level = 1", event(level=True), False),
    ("flag = TRUE", event(flag=1), False),
    ("flag", event(flag=True), True),
    ("NOT flag", event(flag=False), True),
    ("NOT flag", event(flag=None), False),
    ("a = 9007199254740993", event(a=2.0**53), False),  # exact, where a float would round
    ("a > 9007199254740992.0", event(a=2**53 + 1), True),
    ("a IS NULL", event(a=math.nan), True),
    ("a <> 1", event(a=math.nan), False),
    ("a NOT IN (1, 2)", event(a=math.nan), False),
    ("a > 1", event(a=math.inf), True),
    ("a NOT IN (1, 'x')", event(a=2), False),  # 2 = 'x' is UNKNOWN
    ("a IN (1, 'x')", event(a="x"), True),
    ("a IN (1, 2)", event(a=2.0), True),
    ("a IN (1, 2)", event(a=True), False),
    ("a IS NULL OR a > 1", event(), True),
    ("a = 1 OR b = 1", event(b=1), True),  # UNKNOWN OR TRUE
    ("a LIKE 'x_z%'", event(a="xyz"), True),
    ("a LIKE 'x_z%'", event(a="Xyz"), False),
    ("a LIKE '%'", event(a=5), False),
    ("a LIKE 'x%z'", event(a="x\nz"), True),
    ("a LIKE 'x%y' OR a NOT LIKE 'x%y'", event(a="z"), True),
    ("a LIKE 'x%y' OR a NOT LIKE 'x%y'", event(), False),  # UNKNOWN OR UNKNOWN
    ("a < 'b'", event(a="B"), True),  # by code points
    ("ON_TOPIC('fire/+')", event("fire/3"), True),
    ("ON_TOPIC('fire/+')", event(), False),
    ("OF_TYPE('alarm')", event(type="alarm.fire"), True),
    ("OF_TYPE('alarm')", event(type="alarms"), False),
    ("TRUE", event(), True),
    ("FALSE", event(), False),
]


@pytest.mark.parametrize(("text", "published", "expected"), MATCHING)
def test_a_filter_matches_only_where_it_is_true(text: str, published: Event, expected: bool) -> None:
    assert Filter.sql(text).matches(published) is expected


SPELLED = [
    ("a > 3 AND a > 5.0", "a > 5"),
    ("a = 1 OR a = 2.0 OR a = 1", "a IN (1, 2)"),
    ("a > 5 AND a < 3", "FALSE"),
    ("a IS NULL OR a IS NOT NULL", "TRUE"),
    ("a = 1 AND a IS NOT NULL", "a = 1"),
    ("a > 1 AND a = 'x'", "FALSE"),
    ("NOT (a BETWEEN 1 AND 3)", "a < 1 OR a > 3"),
    ("a < 3 OR a > 3", "a <> 3"),
    ("a <> 1 AND a <> 2", "a NOT IN (1, 2)"),
    ("a >= 1 AND a <= 1", "a = 1"),
    ("a < 5 OR a < 3", "a < 5"),
    ("a = TRUE OR a = 1", "a = 1 OR a = TRUE"),
    ("b <> FALSE", "b = TRUE"),
    ("a LIKE 'abc'", "a = 'abc'"),
    ("a LIKE '%%'", "a >= ''"),
    ("a LIKE 'x#%%' ESCAPE '#'", "a LIKE 'x!%%' ESCAPE '!'"),
    ("NOT NOT (a = 1 AND (b = 2 AND c = 3))", "a = 1 AND b = 2 AND c = 3"),
    ("(a = 1 OR b = 1) AND c = 1", "(a = 1 OR b = 1) AND c = 1"),
    ("ON_TOPIC('+/#') AND NOT ON_TOPIC('#')", "FALSE"),
    ("OF_TYPE('x') OR NOT OF_TYPE('x')", "TRUE"),
    ("`order` = 1 AND `a b` > -1.5", "`a b` > -1.5 AND `order` = 1"),
]


@pytest.mark.parametrize(("text", "canonical"), SPELLED)
def test_filters_that_plainly_mean_the_same_are_spelled_the_same(text: str, canonical: str) -> None:
    assert str(Filter.sql(text)) == canonical
    assert Filter.parse(canonical) == Filter.sql(text)


def test_filters_are_values() -> None:
    one, same, boolean = Filter.sql("a = 1"), Filter.sql("1.0 = a"), Filter.sql("a = TRUE")
    assert one == same and len({one, same, boolean}) == 2
    assert one != boolean  # though Python says 1 == True
    assert one != "a = 1"
    with pytest.raises(AttributeError):
        one.expression = boolean.expression
    assert eval(repr(one)) == one


def test_filters_are_joined_by_and() -> None:
    joined = Filter.topic("fire/#") & Filter.of_type("alarm") & Filter.sql("level > 3")
    assert joined == Filter.sql("level > 3 AND ON_TOPIC('fire/#') AND OF_TYPE('alarm')")
    assert joined & Filter.everything() == joined


def test_the_serial_form_is_the_one_written_down() -> None:
    # version 1 (docs/use/filters.md), then [7 (AND), [[4 (IS NULL), "b"], [1 (compare), "a", ">", 3]]].
    assert Filter.sql("a > 3 AND b IS NULL").encode().hex() == "019207929204a1629401a161a13e03"
    assert Filter.everything().encode().hex() == "01920790"


COVERING = [
    ("a > 3", "a > 5", True),
    ("a > 5", "a > 3", False),
    ("a >= 3", "a > 3", True),
    ("a > 3", "a >= 3", False),
    ("a <> 3", "a > 3", True),
    ("a IS NOT NULL", "a > 3", True),
    ("a IS NOT NULL", "a LIKE 'x%'", True),
    ("a > 3", "a > 3 AND b = 1", True),
    ("a > 3 AND b = 1", "a > 3", False),
    ("a IN (1, 2, 3)", "a IN (1, 3)", True),
    ("a BETWEEN 1 AND 9", "a IN (1, 5, 9)", True),
    ("a BETWEEN 1 AND 9", "a > 1 AND a < 9 AND a <> 4", True),
    ("a < 5 OR a > 8", "a IN (1, 9)", True),
    ("a < 5 OR a > 8", "a IN (1, 6)", False),
    ("a < 5 OR b = 1", "a < 3 OR b = 1 AND a = 7", True),
    ("a < 0 OR a > 5 OR b = 1", "a IN (-1, 9)", True),
    ("a > 'a'", "a >= 'a' AND a <> 'a'", True),
    ("a = 1", "a > 5 AND a < 3", True),  # nothing matches it
    ("b = 1", "a = 'x' AND a = 1", True),
    ("a > 3", "a > '4'", False),
    ("a LIKE 'ab%'", "a LIKE 'abc%'", True),
    ("a LIKE 'ab%'", "a LIKE 'abc%x'", True),
    ("a LIKE 'ab%'", "a IN ('abc', 'ab')", True),
    ("a LIKE 'ab%'", "a IN ('abc', 'b')", False),
    ("a LIKE 'ab%'", "a >= 'ab' AND a < 'ab~'", True),
    ("a >= 'ab'", "a LIKE 'ab%'", True),
    ("a LIKE '%b'", "a LIKE 'a%bb'", True),
    ("a LIKE '%b'", "a LIKE '%bc'", False),
    ("a LIKE '_%'", "a LIKE 'a%'", True),
    ("a NOT LIKE 'ab%'", "a LIKE 'b%'", True),
    ("a NOT LIKE 'ab%'", "a LIKE 'a%'", False),
    ("a NOT LIKE '%x'", "a LIKE '%y'", True),
    ("a NOT LIKE '%xy'", "a NOT LIKE '%y'", True),
    ("a NOT LIKE '%y'", "a NOT LIKE '%xy'", False),
    ("a NOT LIKE 'ab%'", "a IS NULL", False),
    ("ON_TOPIC('a/#')", "ON_TOPIC('a/+/b') AND c = 1", True),
    ("ON_TOPIC('a/+')", "ON_TOPIC('a/#')", False),
    ("NOT ON_TOPIC('a/b')", "ON_TOPIC('c/#')", True),
    ("NOT ON_TOPIC('a/b')", "NOT ON_TOPIC('a/#')", True),
    ("NOT ON_TOPIC('a/#')", "NOT ON_TOPIC('a/b')", False),
    ("OF_TYPE('alarm')", "OF_TYPE('alarm.fire')", True),
    ("OF_TYPE('alarm.fire')", "OF_TYPE('alarm')", False),
    ("NOT OF_TYPE('alarm.fire')", "OF_TYPE('news')", True),
    ("NOT OF_TYPE('alarm.fire')", "NOT OF_TYPE('alarm')", True),
    ("a = 1", "OF_TYPE('x') AND OF_TYPE('y')", True),
    ("TRUE", "a = 1", True),
    ("a = 1", "TRUE", False),
    ("a IS NULL", "FALSE", True),
]


@pytest.mark.parametrize(("wide", "narrow", "expected"), COVERING)
def test_covering(wide: str, narrow: str, expected: bool) -> None:
    assert Filter.sql(wide).covers(Filter.sql(narrow)) is expected


def test_covering_of_filters_with_too_many_alternatives_falls_back_to_their_terms() -> None:
    clauses = [f"(a{i} = 1 OR b{i} = 1)" for i in range(8)]  # 256 alternatives
    wide = Filter.sql(" AND ".join(clauses))
    narrow = Filter.sql(" AND ".join([*clauses, "c = 1"]))
    assert wide.covers(wide) and wide.covers(narrow) and not narrow.covers(wide)
    assert Filter.sql(clauses[0]).covers(narrow)
    assert not Filter.sql("(a0 = 2 OR b0 = 2)").covers(narrow)


def test_filters_beyond_the_bounds_are_refused() -> None:
    with pytest.raises(FilterError, match="values in one IN"):
        Filter(OneOf("a", tuple(range(2000))))
    with pytest.raises(FilterError, match="octets"):
        Filter(OneOf("a", tuple("x" * 4000 + str(i) for i in range(3))))
    with pytest.raises(FilterError, match="SQL cannot spell"):
        Filter(Compare("a", Operator.LESS, math.inf))
    with pytest.raises(FilterError, match="surrogate"):
        Filter(Compare("a", Operator.LESS, "\ud800"))
    with pytest.raises(FilterError, match="'\\+' must be a level"):
        Filter.topic("a+")
