"""What the language takes, what it refuses, and the words in which it does."""

import re

import pytest
from sqlglot import Tokenizer, exp

from roamcast.errors import FilterError
from roamcast.filter import Filter
from roamcast.filter.expression import (
    FALSE,
    TRUE,
    And,
    Compare,
    Expression,
    IsNull,
    Like,
    Not,
    OfType,
    OneOf,
    OnTopic,
    Operator,
    Or,
)
from roamcast.filter.normal import order_key
from roamcast.filter.sql import NESTING_MAX, SQL_LENGTH_MAX, parse_condition
from roamcast.filter.text import to_text

EQUAL, LESS, GREATER = Operator.EQUAL, Operator.LESS, Operator.GREATER
AT_LEAST, AT_MOST = Operator.GREATER_OR_EQUAL, Operator.LESS_OR_EQUAL

READ: list[tuple[str, Expression]] = [
    ("level > 3", Compare("level", GREATER, 3)),
    ("3 < level", Compare("level", GREATER, 3)),
    ("3 >= level", Compare("level", AT_MOST, 3)),
    ("level != -3", Compare("level", Operator.NOT_EQUAL, -3)),
    ("Level = 'it''s'", Compare("Level", EQUAL, "it's")),
    ("a = 1.50", Compare("a", EQUAL, 1.5)),
    ("a = -9223372036854775808", Compare("a", EQUAL, -(2**63))),
    ("a = TRUE", Compare("a", EQUAL, True)),
    ("flag", Compare("flag", EQUAL, True)),
    ("NOT flag", Not(Compare("flag", EQUAL, True))),
    ("TRUE", TRUE),
    ("FALSE", FALSE),
    ('"a b" < 1', Compare("a b", LESS, 1)),
    ("`a``b` < 1", Compare("a`b", LESS, 1)),
    ("`a.b` IS NULL", IsNull("a.b")),
    ("a IS NOT NULL", Not(IsNull("a"))),
    ("a BETWEEN 1 AND 2", And((Compare("a", AT_LEAST, 1), Compare("a", AT_MOST, 2)))),
    ("a NOT IN (1, 'x')", Not(OneOf("a", (1, "x")))),
    ("a LIKE 'x!%' ESCAPE '!'", Like("a", "x!%", "!")),
    ("a NOT LIKE 'x!%' ESCAPE '!'", Not(Like("a", "x!%", "!"))),
    ("NOT a LIKE 'x%'", Not(Like("a", "x%"))),
    ("ON_TOPIC('a/+/b')", OnTopic("a/+/b")),
    ("on_topic('#') AND NOT Of_Type('alarm')", And((OnTopic("#"), Not(OfType("alarm"))))),
    ("range < 3 AND load > 0.5", And((Compare("range", LESS, 3), Compare("load", GREATER, 0.5)))),
    # AND binds more strongly than OR, NOT more strongly than both.
    (
        "NOT a = 1 OR b = 1 AND c = 1",
        Or((Not(Compare("a", EQUAL, 1)), And((Compare("b", EQUAL, 1), Compare("c", EQUAL, 1))))),
    ),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_conditions_are_read_as_written(text: str, expected: Expression) -> None:
    assert order_key(parse_condition(text)) == order_key(expected)


REFUSED = [
    ("a + 1 = 2", "arithmetic"),
    ("lower(a) = 'x'", "functions"),
    ("foo(a)", "functions are not allowed"),
    ("a = b", "another attribute"),
    ('a = "b"', "another attribute"),
    ("1 = 1", "one side must be an attribute"),
    ("1 < a < 3", "one side must be an attribute"),
    ("a = NULL", "IS NULL"),
    ("a IN (1, NULL)", "IS NULL"),
    ("a IN ()", "list of literals"),
    ("a IN (SELECT 1)", "list of literals"),
    ("a IN (b)", "a literal must stand here"),
    ("5 BETWEEN a AND 9", "attribute's name"),
    ("a BETWEEN SYMMETRIC 2 AND 1", "symmetric"),
    ("a LIKE b", "single quotes"),
    ("a LIKE ANY ('x')", "single quotes"),
    ("a LIKE 'x' ESCAPE 'xx'", "one character"),
    ("a LIKE 'x!y' ESCAPE '!'", "escape character"),
    ("a ILIKE 'x'", "outside the language"),
    ("a RLIKE 'x'", "outside the language"),
    ("a = 'x\\n'", "backslash"),
    ("a LIKE '5\\%'", "backslash"),
    ("a IS TRUE", "write = TRUE"),
    ("a ISNULL", "ISNULL"),
    ("a NOT NULL", "IS before it"),
    ("a.b = 1", "must be quoted: `a.b`"),
    ("a = 1; b = 2", "';' is not allowed"),
    ("a = 1 -- really", "comments"),
    ("a = 1 /* really */", "comments"),
    ("a = 1 AND", "cannot be read as SQL"),
    ("a = 'x", "cannot be read as SQL"),
    ("a = 1 b", "near 'b'"),
    ("select = 1", "back-quotes"),
    ("SELECT a FROM b", "cannot be read as SQL"),
    ("", "empty"),
    ("  ", "empty"),
    ("a = 9223372036854775808", "64 bits"),
    ("a = " + "9" * 5000, "64 bits"),
    ("a = 1e999", "too large"),
    ("a = 'x' 'y'", "a literal must stand here"),
    ("a = ?", "a literal must stand here"),
    ("a = 'x\0'", r"U\+0000"),
    ("on_topic(x)", "single quotes"),
    ("on_topic('a', 'b')", "one text"),
    ("on_topic('a/#/b')", "'#' must be a level of its own"),
    ("of_type('')", "name of 0 characters"),
    ("(" * 25 + "a" + ")" * 25, "nested more than 24"),
    ("NOT " * 25 + "a", "nested more than 24"),
    ("-" * 1 + " -" * 2000 + "1 = a", "nested"),
    ("a" * 200 + " = 1", "name of 200 characters"),
    ("x" * (SQL_LENGTH_MAX + 1), "at most 16384"),
    (" OR ".join(f"(a{i} = 1 AND b = 1)" for i in range(600)), "at most 8192"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_is_outside_the_language_is_refused_in_one_line_that_says_why(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason) as caught:
        Filter.sql(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_nesting_up_to_the_bound_is_read() -> None:
    text = "(" * NESTING_MAX + "a = 1" + ")" * NESTING_MAX
    assert Filter.sql(text) == Filter.sql("a = 1")


def test_a_long_row_of_conditions_is_no_nesting() -> None:
    text = " AND ".join(f"a{i} = {i}" for i in range(500))
    assert len(Filter.sql(text).expression.terms) == 500  # type: ignore[union-attr]


def test_a_backslash_stands_for_itself_in_canonical_texts_only() -> None:
    original = Filter.topic(r"share\x")
    assert Filter.parse(str(original)) == original
    with pytest.raises(FilterError, match="backslash"):
        Filter.sql(str(original))


def test_an_attribute_may_be_named_like_any_word_that_sqlglot_knows() -> None:
    functions = (name for function in exp.ALL_FUNCTIONS for name in function.sql_names())
    words = {word.lower() for word in (*Tokenizer.KEYWORDS, *functions) if re.fullmatch(r"\w+", word)}
    assert len(words) > 300
    for word in sorted(words):
        terms = (Compare(word, LESS, -1), Not(Like(word, "x%")), OneOf(word, (1, 2)), Not(IsNull(word)))
        text = to_text(And((*terms, Or(terms))))
        assert parse_condition(text) == And((*terms, Or(terms))), text
