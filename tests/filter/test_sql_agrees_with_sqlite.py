"""The same text, the same rows: our three truth values against SQLite's.

SQLite is asked to tell letter case apart in LIKE. Columns have one kind each, because where kinds
differ SQLite has rules of its own (a text is greater than any number) and we say UNKNOWN.
"""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.filter.evaluate import evaluate
from roamcast.filter.sql import parse_condition

pytestmark = pytest.mark.long

NUMBERS = ["0", "1", "-1", "2.5", "1e2", "-.5", "3.", "9007199254740992", "9007199254740993", "-1.5E-1"]
TEXTS = ["''", "'a'", "'A'", "'ab'", "'a''b'", "'é'", "'%'", "'a_b'", "'z'"]
PATTERNS = ["'a%'", "'%b'", "'_'", "'A_'", "'%'", "''", "'%a%b%'", "'a''%'", "'__%'", "'_é'"]
ESCAPED = ["'a!%%' ESCAPE '!'", "'%!_%' ESCAPE '!'", "'!!_' ESCAPE '!'", "'a''_b' ESCAPE ''''"]
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">="]

LITERALS = {"x": NUMBERS, "y": NUMBERS, "s": TEXTS, "`a t`": TEXTS, '"a t"': TEXTS, "f": ["TRUE", "FALSE"]}
COLUMNS = ["x", "y", "s", "a t", "f"]
VALUES: dict[str, list[Value]] = {
    "x": [None, 0, 1, -1, 2.5, 100, -0.5, 3, 2**53, 2**53 + 1, float(2**53), -0.15],
    "s": [None, "", "a", "A", "ab", "a'b", "é", "aé", "%", "a%", "a_b", "a%b", "z", "!a", "aXb", "b\nb"],
    "f": [None, True, False],
}
VALUES |= {"y": VALUES["x"], "a t": VALUES["s"]}


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """One condition on one column, in any spelling the language has."""
    column = draw(st.sampled_from(sorted(LITERALS)))
    literal = st.sampled_from(LITERALS[column])
    name = draw(st.sampled_from([column, column, f"({column})"]))
    forms = ["compare", "flipped", "between", "in", "null"]
    if LITERALS[column] is TEXTS:
        forms.append("like")
    if column == "f":
        forms.append("alone")
    negation = draw(st.sampled_from(["", " NOT"]))
    match draw(st.sampled_from(forms)):
        case "compare":
            return f"{name} {draw(st.sampled_from(COMPARISONS))} {draw(literal)}"
        case "flipped":
            return f"{draw(literal)}{draw(st.sampled_from(COMPARISONS))}{name}"
        case "between":
            return f"{name}{negation} between {draw(literal)} AND ({draw(literal)})"
        case "in":
            return f"{name}{negation} IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=4)))})"
        case "null":
            return f"{name} IS{negation} NULL"
        case "like":
            return f"{name}{negation} LIKE {draw(st.sampled_from(PATTERNS + ESCAPED))}"
        case _:
            return column


texts = st.recursive(
    st.one_of(conditions(), conditions(), conditions(), st.sampled_from(["TRUE", "false"])),
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("NOT {}".format, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("({})\n or ({})".format, inner, inner),
        st.builds("({}) and ({})".format, inner, inner),
    ),
    max_leaves=8,
)
rows = st.tuples(*(st.sampled_from(VALUES[column]) for column in COLUMNS))


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like=ON")
    connection.execute("CREATE TABLE event (x, y, s, `a t`, f)")  # no types: values stay as they are
    yield connection
    connection.close()


def truths_by_sqlite(
    database: sqlite3.Connection, text: str, table: list[tuple[Value, ...]]
) -> list[bool | None]:
    database.execute("DELETE FROM event")
    database.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", table)
    found = database.execute(f"SELECT ({text}) FROM event ORDER BY rowid").fetchall()
    return [None if truth is None else bool(truth) for (truth,) in found]


def event(row: tuple[Value, ...]) -> Event:
    return Event(1, 1, dict(zip(COLUMNS, row, strict=True)))


def test_a_text_means_what_sqlite_takes_it_for(database: sqlite3.Connection) -> None:
    @settings(max_examples=500, deadline=None)
    @given(texts, st.lists(rows, min_size=1, max_size=12))
    def check(text: str, table: list[tuple[Value, ...]]) -> None:
        expected = truths_by_sqlite(database, text, table)
        expression = parse_condition(text)
        assert [evaluate(expression, event(row)) for row in table] == expected
        condition = Filter.sql(text)
        assert [condition.matches(event(row)) for row in table] == [truth is True for truth in expected]
        # And the canonical text is SQL too, with the same meaning where it is TRUE.
        again = truths_by_sqlite(database, str(condition), table)
        assert [truth is True for truth in again] == [truth is True for truth in expected]

    check()


def test_every_pattern_matches_as_in_sqlite(database: sqlite3.Connection) -> None:
    table: list[tuple[Value, ...]] = [(None, None, text, None, None) for text in VALUES["s"]]
    for pattern in PATTERNS + ESCAPED:
        text = f"s LIKE {pattern}"
        expression = parse_condition(text)
        ours = [evaluate(expression, event(row)) for row in table]
        assert ours == truths_by_sqlite(database, text, table), pattern
