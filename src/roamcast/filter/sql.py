"""SQL conditions: the subset that JMS selectors made a convention, read by sqlglot.

`= <> != < <= > >= [NOT] BETWEEN, [NOT] IN, [NOT] LIKE … ESCAPE, IS [NOT] NULL, AND, OR, NOT, TRUE,
FALSE`, parentheses, an attribute alone (`flag` is `flag = TRUE`), and three predicates of our own:
`ON_TOPIC('a/+/b')`, `OF_TYPE('alarm')` and `WITHIN(lat, lon, 47.3769, 8.5417, 500)`. Each other condition is
about one attribute and literals.

What sqlglot accepts beyond that is refused here, node by node, because a filter must mean the same in
Spark's `DataFrame.filter`. Refused for that reason alone: backslashes in texts (Spark reads `\\n` as a
new line, SQLite and the standard as two characters), comments, `ISNULL`, `IS TRUE`.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from sqlglot import Dialect, ErrorLevel, ParseError, Token, TokenType, exp
from sqlglot import Tokenizer as StandardTokenizer
from sqlglot.errors import SqlglotError

from roamcast.errors import FilterError
from roamcast.filter.expression import (
    FALSE,
    INTEGER_MAX,
    INTEGER_MIN,
    TRUE,
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
    Operator,
    Or,
    Within,
)
from roamcast.filter.text import one_line

SQL_LENGTH_MAX = 16_384  # chosen by us
NESTING_MAX = 24  # nested parentheses and NOTs; sqlglot and we recurse over them. Chosen by us

ALLOWED = (
    "allowed are attribute {= <> < <= > >=} literal, BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT, "
    "ON_TOPIC('…'), OF_TYPE('…') and WITHIN(…)"
)


class ConditionDialect(Dialect):
    """Standard SQL, where an attribute's name may stand in `"…"` (standard) or in back-quotes (Spark)."""

    class Tokenizer(StandardTokenizer):
        IDENTIFIERS = ['"', "`"]
        # Not as names of types: `range < 3` would be read as the beginning of a type `range<…>`.
        KEYWORDS = {
            word: token
            for word, token in StandardTokenizer.KEYWORDS.items()
            if word not in ("ARRAY", "LIST", "MAP", "NULLABLE", "OBJECT", "RANGE", "STRUCT")
        }


def parse_condition(text: str, backslashes: bool = False) -> Expression:
    """Read a condition. `backslashes` lets them stand in texts, for themselves (canonical texts)."""
    if len(text) > SQL_LENGTH_MAX:
        raise FilterError(one_line(text), f"has {len(text)} characters; at most {SQL_LENGTH_MAX} are allowed")
    try:
        with _quiet_sqlglot():
            return _Reader(text, backslashes).read()
    except RecursionError:
        raise FilterError(one_line(text), "is nested too deeply") from None


class _Reader:
    """Translates one text into an expression; errors quote the text."""

    def __init__(self, text: str, backslashes: bool) -> None:
        self._text = text
        self._backslashes = backslashes

    def read(self) -> Expression:
        dialect = ConditionDialect()
        try:
            tokens = dialect.tokenize(self._text)
            self._check_tokens(tokens)
            parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
            trees = parser.parse_into(exp.Condition, tokens, self._text)
        except ParseError as error:
            self._refuse(_parse_problem(error))
        except (SqlglotError, ValueError, AttributeError, TypeError, IndexError, KeyError) as error:
            # sqlglot sometimes raises an internal error; whatever it is, this text is the cause.
            self._refuse(f"cannot be read as SQL: {one_line(str(error))}")
        if len(trees) != 1 or not isinstance(trees[0], exp.Expression):
            self._refuse(f"is empty; {ALLOWED}")
        return self._condition(trees[0])

    def _check_tokens(self, tokens: list[Token]) -> None:
        parentheses = negations = 0
        kinds = [token.token_type for token in tokens]
        for at, token in enumerate(tokens):
            if token.comments:
                self._refuse("comments are not allowed")
            if token.token_type in _REFUSED_TOKENS:
                self._refuse(f"{token.text!r} is not allowed; {ALLOWED}")
            if kinds[at : at + 2] == [TokenType.NOT, TokenType.NULL] and kinds[at - 1] is not TokenType.IS:
                self._refuse(f"'NOT NULL' needs IS before it; {ALLOWED}")  # SQLite's own short form
            parentheses += _PARENTHESES.get(token.token_type, 0)
            negations = negations + 1 if token.token_type is TokenType.NOT else 0
            if max(parentheses, negations) > NESTING_MAX:
                self._refuse(f"is nested more than {NESTING_MAX} deep")

    def _condition(self, node: exp.Expression) -> Expression:
        match node:
            case exp.Paren():
                return self._condition(self._only(node, "this"))
            case exp.And():
                return And(tuple(self._condition(term) for term in self._chain(node)))
            case exp.Or():
                return Or(tuple(self._condition(term) for term in self._chain(node)))
            case exp.Not():
                return Not(self._condition(self._only(node, "this")))
            case exp.Boolean():
                return TRUE if node.this else FALSE
            case exp.Column():
                return Compare(self._attribute(node), Operator.EQUAL, True)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._one_of(node)
            case exp.Like() | exp.Escape():
                return self._like(node)
            case exp.Is():
                return self._is_null(node)
            case exp.Anonymous():
                return self._predicate(node)
        if type(node) in _OPERATORS:
            return self._comparison(node)
        return self._refuse_node(node, ALLOWED)

    def _chain(self, node: exp.Expression) -> Iterator[exp.Expression]:
        """The terms of `a AND b AND c …`, which sqlglot nests to the left, without recursion."""
        right: list[exp.Expression] = []
        rest = node
        while type(rest) is type(node):
            self._check_arguments(rest, "this", "expression")
            right.append(rest.expression)
            rest = rest.this
        yield rest
        yield from reversed(right)

    def _comparison(self, node: exp.Expression) -> Expression:
        self._check_arguments(node, "this", "expression")
        left, right = _bare(node.this), _bare(node.expression)
        operator = _OPERATORS[type(node)]
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            self._refuse_node(node, "an attribute is compared with a literal, not with another attribute")
        if isinstance(left, exp.Column):
            return Compare(self._attribute(left), operator, self._literal(right))
        if isinstance(right, exp.Column):
            return Compare(self._attribute(right), _FLIPPED[operator], self._literal(left))
        return self._refuse_node(node, _SIDES)

    def _between(self, node: exp.Between) -> Expression:
        self._check_arguments(node, "this", "low", "high")
        attribute = self._attribute(_bare(node.this))
        low, high = self._literal(_bare(node.args["low"])), self._literal(_bare(node.args["high"]))
        return And(
            (
                Compare(attribute, Operator.GREATER_OR_EQUAL, low),
                Compare(attribute, Operator.LESS_OR_EQUAL, high),
            )
        )

    def _one_of(self, node: exp.In) -> Expression:
        if set(_arguments(node)) != {"this", "expressions"}:
            self._refuse_node(node, "IN needs a list of literals in parentheses")
        values = tuple(self._literal(_bare(each)) for each in node.expressions)
        return OneOf(self._attribute(_bare(node.this)), values)

    def _like(self, node: exp.Expression) -> Expression:
        escape = ""
        like = node
        if isinstance(node, exp.Escape):
            self._check_arguments(node, "this", "expression")
            escape = self._text_literal(node.expression, "ESCAPE")
            if len(escape) != 1:
                self._refuse_node(node, "ESCAPE needs exactly one character")
            like = node.this
            if not isinstance(like, exp.Like):
                self._refuse_node(node, "ESCAPE belongs to LIKE")
        self._check_arguments(like, "this", "expression", "negate")  # `negate`: recent sqlglot's NOT LIKE
        pattern = self._text_literal(like.expression, "LIKE")
        expression = Like(self._attribute(_bare(like.this)), pattern, escape)
        return Not(expression) if like.args.get("negate") else expression

    def _is_null(self, node: exp.Is) -> Expression:
        self._check_arguments(node, "this", "expression")
        if not isinstance(node.expression, exp.Null):
            self._refuse_node(node, "only IS NULL and IS NOT NULL are allowed; write = TRUE for IS TRUE")
        return IsNull(self._attribute(_bare(node.this)))

    def _predicate(self, node: exp.Anonymous) -> Expression:
        name = str(node.this).upper()
        self._check_arguments(node, "this", "expressions")
        if name == "WITHIN":
            return self._within(node)
        if name not in ("ON_TOPIC", "OF_TYPE"):
            self._refuse_node(
                node, f"functions are not allowed, except ON_TOPIC('…'), OF_TYPE('…') and {_WITHIN}"
            )
        if len(node.expressions) != 1:
            self._refuse_node(node, f"{name} takes one text in quotes")
        text = self._text_literal(node.expressions[0], name)
        return OnTopic(text) if name == "ON_TOPIC" else OfType(text)

    def _within(self, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 5:
            self._refuse_node(node, f"it takes five values: {_WITHIN}")
        latitude, longitude, *center = map(_bare, node.expressions)
        numbers = [self._literal(each) for each in center]
        if any(isinstance(number, bool | str) for number in numbers):
            self._refuse_node(node, f"the last three values are numbers: {_WITHIN}")
        return Within(self._attribute(latitude), self._attribute(longitude), *map(float, numbers))

    def _attribute(self, node: exp.Expression) -> str:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            self._refuse_node(node, "an attribute's name must stand here")
        if set(_arguments(node)) != {"this"}:
            self._refuse_node(node, "a name with a dot must be quoted: `a.b`")
        return str(node.this.this)

    def _literal(self, node: exp.Expression) -> Literal:
        negative = isinstance(node, exp.Neg)
        number = node.this if negative else node
        match number:
            case exp.Boolean() if not negative:
                return bool(number.this)
            case exp.Literal() if number.is_string and not negative:
                return self._text_literal(number, "a comparison")
            case exp.Literal() if not number.is_string:
                return self._number(number, negative)
            case exp.Null():
                self._refuse("comparing with NULL is never TRUE; write IS NULL or IS NOT NULL")
        return self._refuse_node(node, "a literal must stand here: a number, 'text', TRUE or FALSE")

    def _number(self, node: exp.Literal, negative: bool) -> Literal:
        digits = str(node.this)
        if re.fullmatch(r"[0-9]+", digits):
            # Longer ones are out of range anyway; this also avoids int()'s limit on digits.
            whole = int(digits) if len(digits) < 40 else INTEGER_MAX + 2
            whole = -whole if negative else whole
            if not INTEGER_MIN <= whole <= INTEGER_MAX:
                self._refuse(f"{one_line(digits)} does not fit in 64 bits; integers must")
            return whole
        if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", digits):
            self._refuse_node(node, "this is no number")
        real = float(digits)
        if real == float("inf"):
            self._refuse(f"{one_line(digits)} is too large for a 64-bit float")
        return -real if negative else real

    def _text_literal(self, node: exp.Expression, of: str) -> str:
        if not isinstance(node, exp.Literal) or not node.is_string:
            self._refuse_node(node, f"{of} needs a text in single quotes")
        text = str(node.this)
        if "\\" in text and not self._backslashes:
            self._refuse(
                f"backslash in {one_line(text)!r}: Spark would read it as an escape and SQLite would not"
            )
        return text

    def _only(self, node: exp.Expression, argument: str) -> exp.Expression:
        self._check_arguments(node, argument)
        child = node.args.get(argument)
        if not isinstance(child, exp.Expression):
            self._refuse_node(node, ALLOWED)
        return child

    def _check_arguments(self, node: exp.Expression, *allowed: str) -> None:
        """Refuse a node with other arguments than these: they are syntax that we do not know."""
        unknown = sorted(set(_arguments(node)) - set(allowed))
        if unknown:
            self._refuse_node(node, f"{' and '.join(unknown)} is not allowed in it")

    def _refuse_node(self, node: exp.Expression, problem: str) -> NoReturn:
        try:
            part = node.sql(dialect=ConditionDialect)
        except (SqlglotError, ValueError, AttributeError, TypeError, IndexError, KeyError):
            part = node.key  # sqlglot read it but cannot write it
        self._refuse(f"`{one_line(part)}` is outside the language: {problem}")

    def _refuse(self, problem: str) -> NoReturn:
        raise FilterError(one_line(self._text), problem)


_WITHIN = "WITHIN(latitude attribute, longitude attribute, latitude, longitude, metres)"
_SIDES = "one side must be an attribute, the other a literal; arithmetic and functions are not allowed"
_REFUSED_TOKENS = (TokenType.SEMICOLON, TokenType.ISNULL, TokenType.NOTNULL)
_PARENTHESES = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
_OPERATORS: dict[type[exp.Expression], Operator] = {
    exp.EQ: Operator.EQUAL,
    exp.NEQ: Operator.NOT_EQUAL,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
}
_FLIPPED = {
    Operator.EQUAL: Operator.EQUAL,
    Operator.NOT_EQUAL: Operator.NOT_EQUAL,
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


def _arguments(node: exp.Expression) -> Iterable[str]:
    """The arguments that are given; sqlglot fills the others with None, False or empty lists."""
    return [
        name for name, value in node.args.items() if value is not None and value is not False and value != []
    ]


def _bare(node: exp.Expression) -> exp.Expression:
    """A value without the parentheses around it."""
    while isinstance(node, exp.Paren) and list(_arguments(node)) == ["this"]:
        node = node.this
    return node


def _parse_problem(error: ParseError) -> str:
    if not error.errors:
        return f"cannot be read as SQL: {one_line(str(error))}"
    first = error.errors[0]
    near = first.get("highlight") or "the end"
    return (
        f"cannot be read as SQL near {near!r} (column {first.get('col')}); {ALLOWED}; "
        "an attribute named like a word of SQL stands in back-quotes"
    )


@contextmanager
def _quiet_sqlglot() -> Iterator[None]:
    """sqlglot warns in its log about statements it only half understands; we refuse those anyway."""
    logger = logging.getLogger("sqlglot")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled
