"""The canonical text of an expression: SQL that `sql.py` reads back to the same expression.

Names that are not plain identifiers, or that are words of SQL, are written in back-quotes: Spark reads
`"a b"` as a text by default, while SQLite, sqlglot (as set up in `sql.py`) and Spark all read back-quotes as
a name.
"""

import re

from roamcast.filter.expression import (
    And,
    Compare,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    OfType,
    OneOf,
    OnTopic,
    Or,
    Within,
    canonical_literal,
)


def to_text(expression: Expression) -> str:
    """One line of SQL."""
    match expression:
        case And(()):
            return "TRUE"
        case Or(()):
            return "FALSE"
        case And(terms):
            return " AND ".join(_within(term, Or) for term in terms)
        case Or(terms):
            return " OR ".join(_within(term, ()) for term in terms)
        case Not(term):
            return _negated(term)
        case Compare(attribute, operator, value):
            return f"{_name(attribute)} {operator.value} {_literal(value)}"
        case OneOf(attribute, values):
            return f"{_name(attribute)} IN ({', '.join(map(_literal, values))})"
        case Like(attribute, pattern, escape):
            return f"{_name(attribute)} LIKE {_quoted(pattern)}{_escape(escape)}"
        case IsNull(attribute):
            return f"{_name(attribute)} IS NULL"
        case OnTopic(topic_filter):
            return f"ON_TOPIC({_quoted(topic_filter)})"
        case OfType(type_):
            return f"OF_TYPE({_quoted(type_)})"
        case Within(latitude, longitude):
            numbers = expression.center_latitude, expression.center_longitude, expression.metres
            place = ", ".join(_literal(canonical_literal(number)) for number in numbers)
            return f"WITHIN({_name(latitude)}, {_name(longitude)}, {place})"


def _within(term: Expression, loose: type[Or] | tuple[()]) -> str:
    """A term of an AND or OR, in parentheses where it binds more loosely."""
    text = to_text(term)
    return f"({text})" if isinstance(term, loose) and term.terms else text


def _negated(term: Expression) -> str:
    match term:
        case OneOf(attribute, values):
            return f"{_name(attribute)} NOT IN ({', '.join(map(_literal, values))})"
        case Like(attribute, pattern, escape):
            return f"{_name(attribute)} NOT LIKE {_quoted(pattern)}{_escape(escape)}"
        case IsNull(attribute):
            return f"{_name(attribute)} IS NOT NULL"
        case OnTopic() | OfType() | Within():
            return f"NOT {to_text(term)}"
    return f"NOT ({to_text(term)})"


def _escape(escape: str) -> str:
    return f" ESCAPE {_quoted(escape)}" if escape else ""


def _name(attribute: str) -> str:
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", attribute) and attribute.upper() not in RESERVED:
        return attribute
    return "`" + attribute.replace("`", "``") + "`"


def _literal(value: Literal) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Words that sqlglot, SQLite or Spark in ANSI mode would not all take for a name. The list is ours, so
# that a canonical text does not change with their versions.
RESERVED = frozenset(
    """
    ADD ALL ALTER AND ANTI ANY AS AUTOINCREMENT BETWEEN BOTH CALL CASE CAST CHECK COLLATE COLUMN COMMIT
    CONNECT_BY_ROOT CONSTRAINT CREATE CROSS CURRENT_CATALOG CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DEFAULT DEFERRABLE DELETE DESCRIBE DISTINCT DROP ELSE END ESCAPE EXCEPT EXECUTE EXISTS
    EXPLAIN FALSE FETCH FILTER FOR FOREIGN FROM FULL GLOB GRANT GROUP HAVING IF ILIKE IN INDEX INNER
    INSERT INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL LEADING LEFT LIKE LIMIT LOCALTIME
    LOCALTIMESTAMP MINUS NATURAL NOT NOTHING NOTNULL NULL OFFSET ON ONLY OPTIMIZE OR ORDER OUTER
    OVERLAPS PARTITIONED_BY PREPARE PRIMARY QUALIFY RAISE REFERENCES REGEXP RENAME RETURNING REVOKE
    RIGHT RLIKE ROLLBACK SELECT SEMI SESSION_USER SET SHOW SOME STRAIGHT_JOIN TABLE TABLESAMPLE THEN TO
    TRAILING TRANSACTION TRUE UNCACHE UNION UNIQUE UNKNOWN UPDATE USER USING VACUUM VALUES WHEN WHERE
    WITH WITHIN XOR
    """.split()  # noqa: SIM905 - a list would take a line for each
)


def one_line(text: str) -> str:
    """What a user wrote, for a message: one line, not too long."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split()) or "(empty)"
    return line if len(line) <= 100 else line[:97] + "…"
