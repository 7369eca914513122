"""XPath conditions on XML events, turned into the filter model. The grammar is in `syntax.py`.

An XML event carries its elements and XML attributes as typed attributes, named by their path below the root:
`player`, `course/name`, `@id`; its type is the root's name (`roamcast.xml`). Each path occurs at most once,
so a path of the subset names one attribute, or with `*` and `//` a few, and a condition on it is a condition
of the model.

XPath knows two truth values, the model three: `not(a = 1)` holds where `a` is absent, `NOT a = 1` does not.
So a condition is translated twice, into where it holds and where it fails, both as expressions that are TRUE
there; `not` exchanges the two, and no NOT ever stands before an UNKNOWN.

The meaning of values follows XPath 1.0: a comparison with a set of nodes asks whether some node fits; an
absent one is never equal and never unequal; what is no number is unequal to every number. A schema gives the
kind of each path. Without one the kind follows from the literal, and paths with `//` or `*` below the root
are refused, because only a schema says which paths exist. `docs/use/xml.md` has the table for users.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from roamcast.filter.expression import (
    FALSE,
    INTEGER_MAX,
    TRUE,
    And,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    OfType,
    Operator,
    Or,
    ValueKind,
    canonical_literal,
)
from roamcast.filter.normal import spelled
from roamcast.filter.pattern import Tokens, Wildcard, spelling, tokens_of
from roamcast.filter.value_set import (
    ALL_TEXTS,
    ALL_VALUES,
    NOT_NULL,
    NULL_ONLY,
    WHOLE_KIND,
    ValueSet,
    compared,
    single,
)
from roamcast.filter.xpath.syntax import (
    Constant,
    Junction,
    LocationPath,
    LocationStep,
    Negation,
    Syntax,
    TextTest,
    XPathAxis,
    XPathComparison,
    parse_xpath,
    refuse,
)

PLACES_MAX = 10_000  # visited for one text: `//*[//*[//*]]` multiplies them. Chosen by us
ROOT = "."  # the attribute that holds the root element's own value, where it has one


class FieldKind(Enum):
    """What an element or XML attribute holds."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    ELEMENTS = "elements"  # no value of its own; the event carries TRUE to say that it is there


class DocumentShape(Protocol):
    """What a filter needs from a schema: for each event type its paths and what they hold."""

    @property
    def shapes(self) -> Mapping[str, Mapping[str, FieldKind]]: ...

    def __hash__(self) -> int: ...


def parse_filter(text: str, schema: DocumentShape | None = None) -> Expression:
    """Where the XPath expression, as a boolean on the event's document, is true."""
    return _Translation(text, schema).translated()


def number_in(text: str) -> int | float | None:
    """The number that a text without a type is taken for; None for a text.

    Integers in their plain spelling that 64 bits hold, and decimals with a point. `001` and `+1` stay texts:
    they are more often names than numbers.
    """
    bare = text.strip(" \t\r\n")
    if _INTEGER.fullmatch(bare):
        whole = int(bare) if len(bare) < 20 else INTEGER_MAX + 1
        return whole if -INTEGER_MAX - 1 <= whole <= INTEGER_MAX else None
    return float(bare) if _DECIMAL.fullmatch(bare) and len(bare) <= 40 else None


_INTEGER = re.compile("0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_IN_NUMBERS = re.compile(r"[-0-9. \t\r\n]*")  # what a text without a type could have in common with a number


class DocumentPlace(NamedTuple):
    """A node that the document may have."""

    type: str | None  # the root's name; None: whatever it is
    path: str | None  # below the root, ROOT for the root; None: the document around the root


DOCUMENT = DocumentPlace(None, None)


class TwoValued(NamedTuple):
    """A condition in two values: exactly one of both expressions is TRUE on any event of the schema."""

    holds: Expression
    fails: Expression

    def opposite(self) -> "TwoValued":
        return TwoValued(self.fails, self.holds)


Nodes: TypeAlias = list[tuple[DocumentPlace, TwoValued]]

ALWAYS = TwoValued(TRUE, FALSE)
NEVER = TwoValued(FALSE, TRUE)


class _Translation:
    """Translates one text into an expression."""

    def __init__(self, text: str, schema: DocumentShape | None) -> None:
        self._text = text
        self._shapes = None if schema is None else schema.shapes
        self._places = 0
        self._searched: dict[int, LocationStep] = {}  # by where the step stands in the text
        self._found: set[int] = set()

    def translated(self) -> Expression:
        truth = self._condition(parse_xpath(self._text), DOCUMENT)
        for at in sorted(set(self._searched) - self._found):
            self._refuse_unknown(self._searched[at])
        return truth.holds

    # Conditions, seen from a place that the document has.

    def _condition(self, syntax: Syntax, here: DocumentPlace) -> TwoValued:
        match syntax:
            case Constant(_, truth):
                return ALWAYS if truth else NEVER
            case Negation(_, term):
                return self._condition(term, here).opposite()
            case Junction(_, conjunction, terms):
                truths = [self._condition(term, here) for term in terms]
                return _all(truths) if conjunction else _any(truths)
            case LocationPath():
                return self._some(syntax, self._nodes(syntax, here), self._present)
            case XPathComparison(at, operator, path, literal):
                value = literal.value
                nodes = self._nodes(path, here)
                return self._some(path, nodes, lambda place: self._compared(place, operator, value, at))
            case TextTest():
                return self._text_test(syntax, here)

    def _some(
        self, path: LocationPath, nodes: Nodes, test: Callable[[DocumentPlace], TwoValued]
    ) -> TwoValued:
        """Some of the places that the path leads to passes the test."""
        by_type: dict[str | None, list[TwoValued]] = {}
        for place, also in nodes:
            by_type.setdefault(place.type, []).append(_all([also, test(place)]))
        # Within a predicate the type is known: the step to the root asked for it.
        return _any(
            _all([_of_type(type_) if path.absolute else ALWAYS, _any(truths)])
            for type_, truths in by_type.items()
        )

    def _present(self, place: DocumentPlace) -> TwoValued:
        if place.path in (None, ROOT):
            return ALWAYS  # nothing beyond the type
        assert place.path is not None
        return TwoValued(Not(IsNull(place.path)), IsNull(place.path))

    def _compared(self, place: DocumentPlace, operator: Operator, literal: Literal, at: int) -> TwoValued:
        kind = self._kind(place, at)
        if kind is FieldKind.BOOLEAN:
            literal = self._boolean(place, operator, literal, at)
        elif kind is FieldKind.TEXT:
            self._check_text(place, operator, literal, at)
        elif kind is FieldKind.NUMBER and isinstance(literal, str):
            return self._number_as_text(place, operator, literal, at)
        elif kind is None and isinstance(literal, str):
            literal = self._guessed(operator, literal, at)
        values = compared(operator, literal)
        if operator is Operator.NOT_EQUAL:  # in XPath what is no number is unequal to all numbers
            values = _possible(kind).intersection(NOT_NULL).minus(single(literal))
        return self._among(place, values)

    def _among(self, place: DocumentPlace, values: ValueSet) -> TwoValued:
        """The place has one of these values; it fails where it has another or is absent."""
        assert place.path is not None
        others = _possible(self._kind(place, 0)).minus(values)
        return TwoValued(spelled(place.path, values), spelled(place.path, others))

    def _boolean(self, place: DocumentPlace, operator: Operator, literal: Literal, at: int) -> bool:
        if operator not in (Operator.EQUAL, Operator.NOT_EQUAL) or literal not in ("true", "false"):
            self._refuse(
                at, f"{_name(place)} is a boolean by the schema; compare it by = or != with 'true' or 'false'"
            )
        return literal == "true"

    def _check_text(self, place: DocumentPlace, operator: Operator, literal: Literal, at: int) -> None:
        if not isinstance(literal, str):
            self._refuse(at, f"{_name(place)} is a text by the schema; compare it with a text in quotes")
        if operator not in (Operator.EQUAL, Operator.NOT_EQUAL):
            self._refuse(at, f"{_name(place)} is a text by the schema; texts have no order in XPath 1.0")

    def _number_as_text(self, place: DocumentPlace, operator: Operator, literal: str, at: int) -> TwoValued:
        """A number and a text in quotes: equal if the text spells the number plainly, as events do."""
        number = number_in(literal)
        if number is not None and _plain(number) == literal:
            return self._compared(place, operator, number, at)
        if (
            number is not None
            or operator not in (Operator.EQUAL, Operator.NOT_EQUAL)
            or _reads_as_number(literal)
        ):
            self._refuse(
                at, f"{_name(place)} is a number by the schema; compare it with a number, without quotes"
            )
        return NEVER if operator is Operator.EQUAL else self._present_value(place)

    def _present_value(self, place: DocumentPlace) -> TwoValued:
        return self._among(place, _possible(self._kind(place, 0)).intersection(NOT_NULL))

    def _guessed(self, operator: Operator, literal: str, at: int) -> Literal:
        number = number_in(literal)
        if number is not None and _plain(number) == literal:
            return number
        if number is not None:
            self._refuse(at, "without a schema a text that reads as a number is one; write it without quotes")
        if operator not in (Operator.EQUAL, Operator.NOT_EQUAL):
            self._refuse(at, "texts have no order in XPath 1.0; compare them by = or !=, or use starts-with")
        return literal

    def _text_test(self, test: TextTest, here: DocumentPlace) -> TwoValued:
        if not test.text:
            if test.function == "like":
                self._refuse(test.at, "the pattern is empty; write `= ''` for an empty text")
            return ALWAYS  # every text has an empty part, and what is absent counts as an empty text
        nodes = self._nodes(test.path, here)
        if len(nodes) > 1:
            self._refuse(test.at, f"{test.function} looks at the first node only, and its path names several")
        tokens = _pattern(test.function, test.text)
        if tokens == (Wildcard.RUN,):
            return ALWAYS
        return self._some(test.path, nodes, lambda place: self._like(place, tokens, test))

    def _like(self, place: DocumentPlace, tokens: Tokens, test: TextTest) -> TwoValued:
        kind = self._kind(place, test.at)
        if kind is not None and kind is not FieldKind.TEXT:
            self._refuse(
                test.at, f"{_name(place)} is a {kind.value} by the schema; {test.function} needs a text"
            )
        if kind is None and all(isinstance(each, Wildcard) or _IN_NUMBERS.fullmatch(each) for each in tokens):
            self._refuse(
                test.at, "without a schema this text may be part of a number, which has no characters"
            )
        assert place.path is not None
        like = Like(place.path, *spelling(tokens))
        return TwoValued(like, Or((Not(like), spelled(place.path, _possible(kind).minus(ALL_TEXTS)))))

    # Places.

    def _nodes(self, path: LocationPath, here: DocumentPlace) -> Nodes:
        """What the path may lead to, each place with the conditions of the predicates along the path.

        The root's name is not among it, nor that the place and those above it are present: the latter is
        said by any condition on its value.
        """
        if not path.absolute and here.path is None:
            self._refuse(path.at, "a path must begin with / or //, such as /type[name = 'value']")
        nodes = [(DOCUMENT if path.absolute else here, ALWAYS)]
        for step in path.steps:
            nodes = [
                (place, _all([also, *wanted]))
                for start, also in nodes
                for place, wanted in self._step(step, start)
            ]
        return nodes

    def _step(
        self, step: LocationStep, start: DocumentPlace
    ) -> Iterator[tuple[DocumentPlace, list[TwoValued]]]:
        self._searched.setdefault(step.at, step)
        for place in self._reached(step, start):
            self._found.add(step.at)
            self._places += 1
            if self._places > PLACES_MAX:
                self._refuse(step.at, f"the paths lead to more than {PLACES_MAX} places")
            wanted = [self._condition(predicate, place) for predicate in step.predicates]
            yield place, wanted

    def _reached(self, step: LocationStep, start: DocumentPlace) -> Iterable[DocumentPlace]:
        if self._shapes is None:
            return [self._reached_without_schema(step, start)]
        if start.path is not None:
            assert start.type is not None
            return _below(step, start, self._shapes[start.type])
        return (
            place for type_, shape in self._shapes.items() for place in _from_document(step, type_, shape)
        )

    def _reached_without_schema(self, step: LocationStep, start: DocumentPlace) -> DocumentPlace:
        if step.deep:
            self._refuse(step.at, "`//` needs a schema, which says what is where; write the whole path")
        if start.path is None:
            if step.axis is XPathAxis.ATTRIBUTE:
                self._refuse(step.at, "an attribute belongs to an element, such as /type/@id")
            if step.name is not None and "." in step.name:
                self._refuse(step.at, "the name of an event type must have no dot")
            return DocumentPlace(step.name, ROOT)
        if start.path.rsplit("/", 1)[-1].startswith("@"):
            self._refuse(step.at, "nothing is below an attribute")
        if step.name is None:
            self._refuse(step.at, "`*` below the root needs a schema, which says what there is")
        return DocumentPlace(start.type, joined_path(start.path, _marked(step.axis, step.name)))

    def _kind(self, place: DocumentPlace, at: int) -> FieldKind | None:
        """What the place holds; None without a schema."""
        if place.path is None:
            self._refuse(at, "the document itself has no value; name an element or attribute")
        if self._shapes is None:
            return None
        assert place.type is not None
        kind = self._shapes[place.type].get(place.path, FieldKind.ELEMENTS)
        if kind is FieldKind.ELEMENTS:
            self._refuse(at, f"{_name(place)} holds elements and has no value of its own; name one of them")
        return kind

    # Refusals.

    def _refuse_unknown(self, step: LocationStep) -> NoReturn:
        assert self._shapes is not None
        name = _marked(step.axis, step.name or "*")
        known = sorted(
            {path.rsplit("/", 1)[-1] for shape in self._shapes.values() for path in shape} - {ROOT}
        )
        some = ", ".join([*self._shapes, *known][:12])
        self._refuse(step.at, f"the schema has no `{name}` there; its names are {some}")

    def _refuse(self, at: int, problem: str) -> NoReturn:
        refuse(self._text, f"at character {at}: {problem}")


def joined_path(parent: str, name: str) -> str:
    """The attribute name of a child or XML attribute (`@name`) of the element at `parent`."""
    return name if parent == ROOT else f"{parent}/{name}"


def _below(
    step: LocationStep, start: DocumentPlace, shape: Mapping[str, FieldKind]
) -> Iterator[DocumentPlace]:
    prefix = "" if start.path == ROOT else f"{start.path}/"
    for path in shape:
        if path == ROOT or not path.startswith(prefix):
            continue
        *between, last = path[len(prefix) :].split("/")
        if between and not step.deep:
            continue
        name = last.removeprefix("@")
        if (name != last) is (step.axis is XPathAxis.ATTRIBUTE) and step.name in (None, name):
            yield DocumentPlace(start.type, path)


def _from_document(step: LocationStep, type_: str, shape: Mapping[str, FieldKind]) -> Iterator[DocumentPlace]:
    root = DocumentPlace(type_, ROOT)
    if step.axis is XPathAxis.CHILD and step.name in (None, type_):
        yield root
    if step.deep:
        yield from _below(step, root, shape)


def _of_type(type_: str | None) -> TwoValued:
    return ALWAYS if type_ is None else TwoValued(OfType(type_), Not(OfType(type_)))


def _marked(axis: XPathAxis, name: str) -> str:
    return f"@{name}" if axis is XPathAxis.ATTRIBUTE else name


def _name(place: DocumentPlace) -> str:
    return f"`{place.type if place.path == ROOT else place.path}`"


def _possible(kind: FieldKind | None) -> ValueSet:
    """What the attribute can be, absence included."""
    return ALL_VALUES if kind is None else NULL_ONLY.union(WHOLE_KIND[_KINDS[kind]])


_KINDS = {
    FieldKind.NUMBER: ValueKind.NUMBER,
    FieldKind.TEXT: ValueKind.TEXT,
    FieldKind.BOOLEAN: ValueKind.BOOLEAN,
}


def _plain(number: float) -> str:
    return repr(canonical_literal(number))


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _pattern(function: str, text: str) -> Tokens:
    pieces = text.split("*") if function == "like" else [text]
    pattern = "%".join(re.sub("[%_!]", lambda special: "!" + special[0], piece) for piece in pieces)
    if function in ("starts-with", "contains"):
        pattern += "%"
    if function in ("ends-with", "contains"):
        pattern = "%" + pattern
    return tokens_of(pattern, "!")


def _all(truths: Iterable[TwoValued]) -> TwoValued:
    """All of them hold."""
    wanted = [truth for truth in truths if truth.holds is not TRUE]
    if len(wanted) == 1:
        return wanted[0]
    return TwoValued(And(tuple(each.holds for each in wanted)), Or(tuple(each.fails for each in wanted)))


def _any(truths: Iterable[TwoValued]) -> TwoValued:
    """At least one holds."""
    return _all([truth.opposite() for truth in truths]).opposite()
