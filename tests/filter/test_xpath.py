"""XPath conditions by hand: what they become, what they mean, what is refused and how."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import FilterError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.filter.xpath.syntax import XPATH_LENGTH_MAX
from roamcast.filter.xpath.translation import FieldKind


class Shape:
    """What a schema tells a filter, by hand; a real one is in `tests/xml`."""

    shapes = {
        "PGMFORUM": {
            "@id": FieldKind.TEXT,
            "player": FieldKind.TEXT,
            "hole": FieldKind.NUMBER,
            "final": FieldKind.BOOLEAN,
            "course": FieldKind.ELEMENTS,
            "course/name": FieldKind.TEXT,
            "course/@par": FieldKind.NUMBER,
        },
        "ping": {".": FieldKind.TEXT, "@id": FieldKind.TEXT},
    }


GOLF = Shape()


@pytest.mark.parametrize(
    ("xpath", "sql"),
    [
        ('/PGMFORUM[player="woods" and hole>10]', "OF_TYPE('PGMFORUM') AND hole > 10 AND player = 'woods'"),
        ("//player[. = 'woods']", "OF_TYPE('PGMFORUM') AND player = 'woods'"),
        ("/PGMFORUM/hole[. >= 15]", "OF_TYPE('PGMFORUM') AND hole >= 15"),
        ("/PGMFORUM[15 <= hole]", "OF_TYPE('PGMFORUM') AND hole >= 15"),
        ("/PGMFORUM/hole >= 15", "OF_TYPE('PGMFORUM') AND hole >= 15"),
        ("/PGMFORUM/@id = '001'", "OF_TYPE('PGMFORUM') AND `@id` = '001'"),
        ("/PGMFORUM/attribute::id", "OF_TYPE('PGMFORUM') AND `@id` IS NOT NULL"),
        ("/child::PGMFORUM[./hole = -1.5]", "OF_TYPE('PGMFORUM') AND hole = -1.5"),
        ("/PGMFORUM[course/name = 'links']", "OF_TYPE('PGMFORUM') AND `course/name` = 'links'"),
        ("/PGMFORUM/course[@par = 72]", "OF_TYPE('PGMFORUM') AND `course/@par` = 72 AND course IS NOT NULL"),
        ("/PGMFORUM[final = 'true']", "OF_TYPE('PGMFORUM') AND final = TRUE"),
        ("/PGMFORUM[starts-with(player, 'wo')]", "OF_TYPE('PGMFORUM') AND player LIKE 'wo%'"),
        ("/PGMFORUM[ends-with(player, 'ds')]", "OF_TYPE('PGMFORUM') AND player LIKE '%ds'"),
        ("/PGMFORUM[contains(player, '5%')]", "OF_TYPE('PGMFORUM') AND player LIKE '%5!%%' ESCAPE '!'"),
        ("/PGMFORUM[like(player, 'wo*ds')]", "OF_TYPE('PGMFORUM') AND player LIKE 'wo%ds'"),
        ("/PGMFORUM[contains(player, '')]", "OF_TYPE('PGMFORUM')"),
        ("/PGMFORUM[not(hole = 3)]", "OF_TYPE('PGMFORUM') AND (hole IS NULL OR hole <> 3)"),
        ("/PGMFORUM[hole != 3]", "OF_TYPE('PGMFORUM') AND hole <> 3"),
        ("/PGMFORUM[hole = '3']", "OF_TYPE('PGMFORUM') AND hole = 3"),
        ("/PGMFORUM[hole = 'x']", "FALSE"),
        ("/PGMFORUM[hole != 'x']", "OF_TYPE('PGMFORUM') AND (hole < 0 OR hole >= 0)"),
        ("/PGMFORUM[not(player)]", "OF_TYPE('PGMFORUM') AND player IS NULL"),
        ("/ping = 'now'", "OF_TYPE('ping') AND `.` = 'now'"),
        ("/ping[. != 'now']", "OF_TYPE('ping') AND `.` <> 'now'"),
        ("/*[@id = 'a']", "(OF_TYPE('PGMFORUM') OR OF_TYPE('ping')) AND `@id` = 'a'"),
        ("/PGMFORUM or /ping", "OF_TYPE('PGMFORUM') OR OF_TYPE('ping')"),
        ("not(/PGMFORUM)", "NOT OF_TYPE('PGMFORUM')"),
        ("/PGMFORUM[player = 'woods'][hole = 1]", "OF_TYPE('PGMFORUM') AND hole = 1 AND player = 'woods'"),
        ("/PGMFORUM[player = 'a' or player = 'b']", "OF_TYPE('PGMFORUM') AND player IN ('a', 'b')"),
    ],
)  # fmt: skip
def test_a_condition_becomes_sql_of_the_same_meaning(xpath: str, sql: str) -> None:
    ours, expected = Filter.xpath(xpath, GOLF), Filter.sql(sql)
    assert ours.covers(expected) and expected.covers(ours), str(ours)


def event(type_: str = "PGMFORUM", **attributes: Value) -> Event:
    return Event(1, 1, dict(attributes), type=type_)


@pytest.mark.parametrize(
    ("xpath", "attributes", "matches"),
    [
        ("/*[not(a = 1)]", {}, True),  # SQL's NOT a = 1 is UNKNOWN here
        ("/*[not(a = 1)]", {"a": "text"}, True),
        ("/*[not(a = 1)]", {"a": 1}, False),
        ("/*[a != 1]", {}, False),  # no node, nothing unequal
        ("/*[a != 1]", {"a": "text"}, True),  # what is no number is unequal to every number
        ("/*[a != 'x']", {"a": 5}, True),
        ("/*[not(a > 1 and b > 1)]", {"a": 5}, True),
        ("/*[not(not(a))]", {}, False),
        ("/*[not(starts-with(a, 'w'))]", {}, True),
        ("/*[not(starts-with(a, 'w'))]", {"a": "woods"}, False),
        ("/*[starts-with(a, '')]", {}, True),  # the text of no node is empty
        ("/*[a = '15']", {"a": 15}, True),
        ("/*[a = '015']", {"a": "015"}, True),
        ("/*[a = '']", {"a": ""}, True),
        ("/*[a = '']", {}, False),
        ("/", {}, True),
        ("true()", {}, True),
    ],
)
def test_the_meaning_without_a_schema(xpath: str, attributes: dict[str, Value], matches: bool) -> None:
    assert Filter.xpath(xpath).matches(Event(1, 1, attributes, type="PGMFORUM")) is matches


def test_a_subtype_counts_as_its_type_and_a_longer_name_does_not() -> None:
    wanted = Filter.xpath("/PGMFORUM[hole = 1]")
    assert wanted.matches(event("PGMFORUM", hole=1)) and wanted.matches(event("PGMFORUM.final", hole=1))
    assert not wanted.matches(event("PGMFORUMS", hole=1)) and not wanted.matches(event("", hole=1))


@pytest.mark.parametrize(
    ("xpath", "problem"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("player = 'woods'", "at character 1: a path must begin with / or //"),
        ("/a[b = c]", "`=` at character 6 is outside the XPath subset: a path is compared with"),
        ("/a[1]", "`1` at character 4 is outside the XPath subset: a number here means a position"),
        ("/a['x']", "`x` at character 4 is outside the XPath subset: a text is no condition"),
        ("/a[position() = 1]", "`position()` at character 4 is outside the XPath subset: the functions are"),
        ("/a[count(b) > 1]", "`count()` at character 4"),
        ("/a[string-length(b) > 1]", "`string-length()` at character 4"),
        ("/a/text()", "`text()` at character 4 is outside the XPath subset: an element's own value"),
        ("/a[text() = 'x']", "`text()` at character 4 is outside the XPath subset: an element's own value"),
        ("/a/..", "`..` at character 4 is outside the XPath subset: a path only leads down"),
        ("/a/parent::b", "`parent::` at character 4 is outside the XPath subset: the axes are"),
        ("/a/.", "`.` at character 4 is outside the XPath subset: `.` may only begin a path"),
        ("/g:a", "`g:a` at character 2 is outside the XPath subset: there are no prefixes"),
        ("/a | /b", "`|` at character 4 is outside the XPath subset: write `or`"),
        ("/a[b + 1 = 2]", "`+` at character 6 is outside the XPath subset: there is no arithmetic"),
        ("/a[b div 2 = 2]", "`div` at character 6 is outside the XPath subset: there is no arithmetic"),
        ("/a[b eq 2]", "`eq` at character 6 is outside the XPath subset: write `=`"),
        ("/a[b = $x]", "`$` at character 8 is outside the XPath subset: there are no variables"),
        ("/a[b = true()]", "`=` at character 6 is outside the XPath subset: write `= 'true'`"),
        ("/a[1 = 1]", "`=` at character 6 is outside the XPath subset: one side must be a path"),
        ("/a[b = 1 = 2]", "`=` at character 10 is outside the XPath subset: a comparison of comparisons"),
        ("/a[@b/c]", "`c` at character 7 is outside the XPath subset: nothing is below an attribute"),
        ("/a[@b[c]]", "at character 7: nothing is below an attribute"),
        ("/a[b = 'x]", "has a text that begins at character 8 and does not end"),
        ("/a[b", "ends where `]` must stand"),
        ("/a]", "has `]` at character 3, where the end, `and`, `or` or a comparison must stand"),
        ("/a[b = 1e3]", "has `e3` at character 9, where `]` must stand"),
        ("/a[b = ^]", "`^` at character 8 is outside the XPath subset: this sign is no part of it"),
        ("/a[b = 9223372036854775808]", "at character 8 is outside the XPath subset: integers must fit"),
        ("/a[b < 'x']", "at character 6: texts have no order in XPath 1.0"),
        ("/a[b = '1.50']", "at character 6: without a schema a text that reads as a number is one"),
        ("/a[starts-with(b, '1')]", "at character 4: without a schema this text may be part of a number"),
        ("/a[like(b, '')]", "at character 4: the pattern is empty"),
        ("/a[starts-with(b, c)]", "has `c` at character 19, where a text in quotes, the second argument"),
        ("//b", "at character 3: `//` needs a schema"),
        ("/a/*", "at character 4: `*` below the root needs a schema"),
        ("/a.b", "at character 2: the name of an event type must have no dot"),
        ("/@a", "at character 2: an attribute belongs to an element"),
        ("/ = 'x'", "at character 3: the document itself has no value"),
        (f"/a[{'(' * 20}b{')' * 20}]", "is nested more than 16 deep at character 19"),
        (f"/a[b = '{'x' * XPATH_LENGTH_MAX}']", f"at most {XPATH_LENGTH_MAX} are allowed"),
        (f"/{'a' * 200}", "has a name of 200 characters"),
    ],
)  # fmt: skip
def test_what_is_outside_the_subset_is_refused_with_what_and_where(xpath: str, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.xpath(xpath)
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("xpath", "problem"),
    [
        ("/PGMFORUM[plyer = 'x']", "at character 11: the schema has no `plyer` there; its names are"),
        ("/golf", "at character 2: the schema has no `golf` there"),
        ("/PGMFORUM/name", "at character 11: the schema has no `name` there"),
        ("/PGMFORUM[player > 3]", "`player` is a text by the schema; compare it with a text"),
        ("/PGMFORUM[player > 'm']", "`player` is a text by the schema; texts have no order"),
        ("/PGMFORUM[hole = '015']", "`hole` is a number by the schema; compare it with a number"),
        ("/PGMFORUM[hole < 'x']", "`hole` is a number by the schema"),
        ("/PGMFORUM[contains(hole, '1')]", "`hole` is a number by the schema; contains needs a text"),
        ("/PGMFORUM[final = 1]", "`final` is a boolean by the schema; compare it by = or != with 'true' or"),
        ("/PGMFORUM[final < 'true']", "`final` is a boolean by the schema"),
        ("/PGMFORUM[course = 'x']", "`course` holds elements and has no value of its own"),
        ("//*[. = 'x']", "`PGMFORUM` holds elements and has no value of its own"),
        ("starts-with(//@id, 'x')", "starts-with looks at the first node only, and its path names several"),
    ],
)  # fmt: skip
def test_what_the_schema_makes_impossible_is_refused(xpath: str, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.xpath(xpath, GOLF)
    assert problem in str(caught.value)


def test_the_smallest_integer_is_an_integer() -> None:
    assert str(Filter.xpath("/a[b = -9223372036854775808]")).endswith("b = -9223372036854775808")
    for beyond in ("-9223372036854775809", "9223372036854775808"):
        with pytest.raises(FilterError, match="fit in 64 bits"):
            Filter.xpath(f"/a[b = {beyond}]")


def test_a_path_that_multiplies_places_is_refused_at_once() -> None:
    class Wide:
        shapes = {"a": {f"b{number}": FieldKind.TEXT for number in range(200)}}

    started = time.process_time()
    with pytest.raises(FilterError, match="lead to more than"):
        Filter.xpath("//*[//*[//*[//*[//*]]]]", Wide())
    with pytest.raises(FilterError, match=r"takes [0-9]+ octets|terms|nested"):
        Filter.xpath(" or ".join(f"/a/b{number % 200} = '{number}'" for number in range(700)), Wide())
    assert time.process_time() - started < 5


PARTS = [
    *("/", "//", "a", "b", "PGMFORUM", "player", "hole", "[", "]", "(", ")", "=", "!=", "<", "'", '"'),
    *("1", ".5", ".", "@", "*", "-", "not(", "and", "or", "like(", ",", "::", "\n", "\0", "Ω", "'x'"),
]


@given(st.lists(st.sampled_from(PARTS), max_size=14).map(" ".join) | st.text(max_size=20))
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_filter_or_one_line(text: str) -> None:
    for schema in (None, GOLF):
        answer = filter_or_line(text, schema)
        if isinstance(answer, Filter):
            assert Filter.decode(answer.encode()) == answer == Filter.parse(str(answer))
            assert answer.matches(event(a=1, b="x")) in (True, False)
        else:
            assert "\n" not in answer


def filter_or_line(text: str, schema: Shape | None) -> Filter | str:
    try:
        return Filter.xpath(text, schema)
    except FilterError as error:
        return str(error)


def test_a_text_is_translated_once() -> None:
    assert Filter.xpath("/a[b = 1]") is Filter.xpath("/a[b = 1]")
    assert Filter.xpath("/PGMFORUM", GOLF) is Filter.xpath("/PGMFORUM", GOLF)
