"""The XPath subset as text: tokens, grammar, syntax tree. Its meaning is in `translation.py`.

    condition  = and-term { "or" and-term }            and-term = test { "and" test }
    test       = operand [ ("=" | "!=" | "<" | "<=" | ">" | ">=") operand ]
    operand    = path | text | [ "-" ] number | "(" condition ")" | function
    function   = "not" "(" condition ")" | ("exists" | "boolean") "(" path ")" | ("true" | "false") "(" ")"
               | ("starts-with" | "ends-with" | "contains" | "like") "(" path "," text ")"
    path       = "/" | ("/" | "//") step { ("/" | "//") step } | "." { ("/" | "//") step } | step { … }
    step       = [ "@" | "child::" | "attribute::" ] ( name | "*" ) { "[" condition "]" }

The parser is our own, not a library's: so a refusal can name the part and its place, and the tree of a whole
XPath 2.0 parser need not be searched for what is outside the subset.
"""

import re
from enum import Enum, auto
from typing import NamedTuple, NoReturn, TypeAlias

from roamcast.errors import FilterError
from roamcast.filter.expression import INTEGER_MAX, INTEGER_MIN, Operator
from roamcast.filter.text import one_line
from roamcast.filter.validity import character_problem

XPATH_LENGTH_MAX = 16_384  # as in `sql.py`
NESTING_MAX = 16  # nested parentheses, predicates and functions; chosen by us


class XPathAxis(Enum):
    CHILD = auto()
    ATTRIBUTE = auto()


class LocationStep(NamedTuple):
    """`at` is the character it begins with, counted from 1."""

    at: int
    axis: XPathAxis
    name: str | None  # None: `*`
    deep: bool  # after `//`
    predicates: tuple["Syntax", ...]


class LocationPath(NamedTuple):
    at: int
    absolute: bool
    steps: tuple[LocationStep, ...]


class Text(NamedTuple):
    at: int
    value: str


class Number(NamedTuple):
    at: int
    value: int | float


class XPathComparison(NamedTuple):
    at: int
    operator: Operator
    path: LocationPath  # on the left; `10 < hole` is reversed
    literal: Text | Number


class TextTest(NamedTuple):
    """`starts-with(path, text)` and its kin."""

    at: int
    function: str
    path: LocationPath
    text: str


class Junction(NamedTuple):
    at: int
    conjunction: bool  # `and`; otherwise `or`
    terms: tuple["Syntax", ...]


class Negation(NamedTuple):
    at: int
    term: "Syntax"


class Constant(NamedTuple):
    at: int
    truth: bool


Syntax: TypeAlias = LocationPath | XPathComparison | TextTest | Junction | Negation | Constant
Operand: TypeAlias = Syntax | Text | Number

TEXT_FUNCTIONS = ("starts-with", "ends-with", "contains", "like")
FUNCTIONS = (*TEXT_FUNCTIONS, "not", "exists", "boolean", "true", "false")


def parse_xpath(text: str) -> Syntax:
    """Read one expression of the subset, or raise a FilterError that names the part outside it."""
    if len(text) > XPATH_LENGTH_MAX:
        refuse(text, f"has {len(text)} characters; at most {XPATH_LENGTH_MAX} are allowed")
    problem = character_problem(text)
    if problem is not None:
        refuse(text, problem)
    return _Parser(text).whole()


def refuse(text: str, problem: str) -> NoReturn:
    raise FilterError(one_line(text), problem)


class Token(NamedTuple):
    at: int
    kind: str  # a sign as it is written, or one of: name, number, text, end
    text: str


# XML 1.0, productions 4 and 4a without the colon.
_FIRST = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
NAME = f"[{_FIRST}][{_FIRST}0-9.\u00b7\u0300-\u036f\u203f\u2040-]*"
_TOKENS = re.compile(
    rf"""(?P<space>[ \t\r\n]+)
       | (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
       | (?P<text>"[^"]*"|'[^']*')
       | (?P<name>{NAME}(?::(?:{NAME}|\*))?)
       | (?P<sign>//|::|\.\.|!=|<=|>=|\(:|[/\[\]()@,.*|+\-=<>$])""",
    re.VERBOSE,
)
_COMPARISONS = {operator.value: operator for operator in Operator if operator is not Operator.NOT_EQUAL} | {
    "!=": Operator.NOT_EQUAL
}
_FLIPPED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}
_VALUE_COMPARISONS = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OUTSIDE = {
    "|": "write `or` between two conditions instead",
    "$": "there are no variables",
    "+": "there is no arithmetic",
    "-": "there is no arithmetic",
    "*": "there is no arithmetic",
    "(:": "there are no comments",
    "..": "a path only leads down; put the condition on the parent",
    "div": "there is no arithmetic",
    "mod": "there is no arithmetic",
    "idiv": "there is no arithmetic",
}


class _Parser:
    """Parses one text into a syntax tree, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenised()
        self._next = 0
        self._depth = 0

    def whole(self) -> Syntax:
        if self._now.kind == "end":
            refuse(self._text, "is empty; it needs a path, such as /type[name = 'value']")
        condition = self._condition()
        if self._now.kind != "end":
            self._unexpected("the end, `and`, `or` or a comparison")
        return condition

    # Conditions.

    def _condition(self) -> Syntax:
        self._depth += 1
        if self._depth > NESTING_MAX:
            refuse(self._text, f"is nested more than {NESTING_MAX} deep at character {self._now.at}")
        at = self._now.at
        terms = [self._and_term()]
        while self._took_word("or"):
            terms.append(self._and_term())
        self._depth -= 1
        return terms[0] if len(terms) == 1 else Junction(at, False, tuple(terms))

    def _and_term(self) -> Syntax:
        at = self._now.at
        terms = [self._test()]
        while self._took_word("and"):
            terms.append(self._test())
        return terms[0] if len(terms) == 1 else Junction(at, True, tuple(terms))

    def _test(self) -> Syntax:
        left = self._operand()
        sign = self._now
        if sign.kind == "name" and sign.text in _VALUE_COMPARISONS:
            self._outside(sign, f"write `{_VALUE_COMPARISONS[sign.text]}`")
        if sign.kind not in _COMPARISONS:
            return self._truth(left)
        self._advance()
        right = self._operand()
        if self._now.kind in _COMPARISONS:
            self._outside(self._now, "a comparison of comparisons")
        return self._comparison(sign, _COMPARISONS[sign.kind], left, right)

    def _comparison(self, sign: Token, operator: Operator, left: Operand, right: Operand) -> Syntax:
        match left, right:
            case LocationPath(), Text() | Number():
                return XPathComparison(sign.at, operator, left, right)
            case Text() | Number(), LocationPath():
                return XPathComparison(sign.at, _FLIPPED.get(operator, operator), right, left)
            case LocationPath(), LocationPath():
                why = "a path is compared with a text or number, not with another path"
            case (Constant(), _) | (_, Constant()):
                why = "write `= 'true'` or `= 'false'`; true() compared with a path asks if it exists"
            case _:
                why = "one side must be a path, the other a text or number"
        return self._outside(sign, why)

    def _truth(self, operand: Operand) -> Syntax:
        if isinstance(operand, Text | Number):
            what = (
                "a number here means a position" if isinstance(operand, Number) else "a text is no condition"
            )
            self._outside(Token(operand.at, "", str(operand.value)), f"{what}; compare it with a path")
        return operand

    def _operand(self) -> Operand:
        token = self._now
        match token.kind:
            case "text":
                self._advance()
                return Text(token.at, token.text[1:-1])
            case "number":
                self._advance()
                return self._number(token)
            case "-" if self._ahead().kind == "number":
                self._advance()
                return self._number(self._advance(), sign=token)
            case "(":
                self._advance()
                condition = self._condition()
                self._expect(")")
                if self._now.kind in ("[", "/", "//"):
                    self._outside(self._now, "nothing may follow a condition in parentheses but a comparison")
                return condition
            case "name" if self._ahead().kind == "(":
                return self._function()
            case "/" | "//" | "." | "@" | "name" | "*":
                return self._path()
        return self._unexpected("a path, a text, a number or a function")

    def _number(self, token: Token, sign: Token | None = None) -> Number:
        """`sign`: the minus before it. There is one negative integer more than there are positive ones."""
        factor, at = (1, token.at) if sign is None else (-1, sign.at)
        if "." in token.text:
            real = float(token.text)
            if real == float("inf"):
                self._outside(token, "too large for a 64-bit float")
            return Number(at, factor * real)
        # Longer ones are out of range anyway; this also avoids int()'s limit on digits.
        whole = factor * (int(token.text) if len(token.text) < 40 else INTEGER_MAX + 2)
        if not INTEGER_MIN <= whole <= INTEGER_MAX:
            self._outside(token, "integers must fit in 64 bits")
        return Number(at, whole)

    def _function(self) -> Syntax:
        name = self._advance()
        if name.text in ("text", "node", "comment", "processing-instruction"):
            self._outside(name, "an element's own value is its text; write the element's name or `.`", "()")
        if name.text not in FUNCTIONS:
            self._outside(name, f"the functions are {', '.join(FUNCTIONS)}", "()")
        self._expect("(")
        result = self._call(name)
        self._expect(")")
        return result

    def _call(self, name: Token) -> Syntax:
        match name.text:
            case "true" | "false":
                return Constant(name.at, name.text == "true")
            case "not":
                return Negation(name.at, self._condition())
            case "exists" | "boolean":
                return self._path()
        path = self._path()
        self._expect(",")
        text = self._now
        if text.kind != "text":
            self._unexpected(f"a text in quotes, the second argument of {name.text}")
        self._advance()
        return TextTest(name.at, name.text, path, text.text[1:-1])

    # Paths.

    def _path(self) -> LocationPath:
        first = self._now
        if first.kind in ("/", "//"):
            if first.kind == "/" and self._ahead().kind not in ("name", "*", "@", ".", ".."):
                self._advance()
                return LocationPath(first.at, True, ())
            return LocationPath(first.at, True, self._steps())
        if first.kind == ".":
            self._advance()
            if self._now.kind == "[":
                self._outside(self._now, "no predicate may follow `.`; join the conditions by `and`")
            return LocationPath(first.at, False, self._steps())
        step = self._step(deep=False)
        return LocationPath(first.at, False, self._steps(step))

    def _steps(self, *before: LocationStep) -> tuple[LocationStep, ...]:
        steps = list(before)
        while self._now.kind in ("/", "//"):
            deep = self._advance().kind == "//"
            if steps and steps[-1].axis is XPathAxis.ATTRIBUTE:
                self._outside(self._now, "nothing is below an attribute")
            steps.append(self._step(deep))
        return tuple(steps)

    def _step(self, deep: bool) -> LocationStep:
        at = self._now.at
        axis = self._axis()
        token = self._now
        if token.kind == ".":
            self._outside(token, "`.` may only begin a path")
        if token.kind not in ("name", "*"):
            self._unexpected("the name of an element or attribute")
        if token.kind == "name" and self._ahead().kind == "(":
            return self._function_as_step()
        self._advance()
        predicates: list[Syntax] = []
        while self._now.kind == "[":
            self._advance()
            predicates.append(self._condition())
            self._expect("]")
        name = None if token.kind == "*" else token.text
        return LocationStep(at, axis, name, deep, tuple(predicates))

    def _axis(self) -> XPathAxis:
        if self._now.kind == "@":
            self._advance()
            return XPathAxis.ATTRIBUTE
        if self._now.kind == "name" and self._ahead().kind == "::":
            axis = self._advance()
            if axis.text not in ("child", "attribute"):
                self._outside(axis, "the axes are child, attribute and, as `//`, everything below", "::")
            self._advance()
            return XPathAxis.CHILD if axis.text == "child" else XPathAxis.ATTRIBUTE
        return XPathAxis.CHILD

    def _function_as_step(self) -> NoReturn:
        token = self._now
        if token.text in ("text", "node", "comment", "processing-instruction"):
            self._outside(token, "an element's own value is its text; end the path with the element", "()")
        self._outside(token, "a function cannot be a step of a path", "()")

    # Tokens.

    @property
    def _now(self) -> Token:
        return self._tokens[self._next]

    def _ahead(self) -> Token:
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def _advance(self) -> Token:
        token = self._now
        if token.kind != "end":
            self._next += 1
        return token

    def _took_word(self, word: str) -> bool:
        if self._now.kind == "name" and self._now.text == word:
            self._advance()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if self._now.kind != sign:
            self._unexpected(f"`{sign}`")
        self._advance()

    def _tokenised(self) -> list[Token]:
        tokens: list[Token] = []
        at = 0
        while at < len(self._text):
            found = _TOKENS.match(self._text, at)
            if found is None:
                if self._text[at] in "\"'":
                    refuse(self._text, f"has a text that begins at character {at + 1} and does not end")
                self._outside(Token(at + 1, "", self._text[at]), "this sign is no part of it")
            kind, written = str(found.lastgroup), found[0]
            if kind == "name" and ":" in written:
                why = "there are no prefixes; a name means the event's own namespace"
                self._outside(Token(at + 1, kind, written), why)
            if kind != "space":
                tokens.append(Token(at + 1, written if kind == "sign" else kind, written))
            at = found.end()
        return [*tokens, Token(len(self._text) + 1, "end", "")]

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self._now
        if token.kind == "end":
            refuse(self._text, f"ends where {wanted} must stand")
        if token.text in _OUTSIDE:
            self._outside(token, _OUTSIDE[token.text])
        refuse(self._text, f"has {_short(token.text)} at character {token.at}, where {wanted} must stand")

    def _outside(self, token: Token, why: str, after: str = "") -> NoReturn:
        shown = _short(token.text + after)
        refuse(self._text, f"{shown} at character {token.at} is outside the XPath subset: {why}")


def _short(text: str) -> str:
    line = "".join(each if each.isprintable() else " " for each in text)
    return f"`{line}`" if len(line) <= 40 else f"`{line[:39]}…`"
