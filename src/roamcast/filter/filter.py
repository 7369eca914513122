"""A filter: one normalised expression, and what can be done with it."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import msgspec

from roamcast.errors import FilterError, WireError
from roamcast.event import Event
from roamcast.filter.covering import Prepared
from roamcast.filter.evaluate import compile_expression
from roamcast.filter.expression import TRUE, And, Expression, OfType, OnTopic
from roamcast.filter.normal import normalise
from roamcast.filter.text import one_line, to_text
from roamcast.filter.validity import problem_of

if TYPE_CHECKING:
    from roamcast.filter.xpath.translation import DocumentShape

ENCODING_VERSION = 1  # the first octet; another value is a format that this node does not know
FILTER_BYTES_MAX = 8192  # encoded; chosen by us: a datagram has room for several

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Expression)


class Filter:
    """What a subscriber wants. Immutable; equal filters have equal encodings and equal texts.

    Equality is that of the normal form: equal filters match the same events, while unequal ones may
    still do so (`covers` in both directions tells more).
    """

    expression: Expression

    def __init__(self, expression: Expression) -> None:
        problem = problem_of(expression)
        if problem:
            raise FilterError("filter", problem)
        normal = normalise(expression)
        problem = problem_of(normal)  # merging can make one OR or IN of many
        if problem:
            raise FilterError("filter", f"in its normal form {problem}")
        encoded = bytes([ENCODING_VERSION]) + _encoder.encode(normal)
        if len(encoded) > FILTER_BYTES_MAX:
            raise FilterError(
                "filter", f"takes {len(encoded)} octets; at most {FILTER_BYTES_MAX} are allowed"
            )
        self.__dict__.update(expression=normal, _encoded=encoded)

    @classmethod
    def sql(cls, text: str) -> "Filter":
        """An SQL condition; it means the same in Spark's `DataFrame.filter` (see `sql.py`)."""
        return _parsed(text, False)

    @classmethod
    def parse(cls, text: str) -> "Filter":
        """A canonical text, as `str` gives it: SQL in which a backslash stands for itself."""
        return _parsed(text, True)

    @classmethod
    def xpath(cls, text: str, schema: "DocumentShape | None" = None) -> "Filter":
        """An XPath condition on XML events, of a subset of XPath (see `xpath/`).

        `schema`, a `roamcast.xml.Schema`, says what the events hold; without it `//` is refused.
        """
        return _translated(text, schema)

    @classmethod
    def topic(cls, topic_filter: str) -> "Filter":
        """An MQTT topic filter."""
        return cls(OnTopic(topic_filter))

    @classmethod
    def of_type(cls, name: str) -> "Filter":
        """Events of a type, or of one below it."""
        return cls(OfType(name))

    @classmethod
    def everything(cls) -> "Filter":
        return cls(TRUE)

    @classmethod
    def decode(cls, data: bytes) -> "Filter":
        """Read what `encode` wrote; WireError for anything else."""
        if len(data) > FILTER_BYTES_MAX:
            raise WireError("filter", 0, f"has {len(data)} octets, at most {FILTER_BYTES_MAX} are allowed")
        if data[:1] != bytes([ENCODING_VERSION]):
            raise WireError(
                "filter version", 0, f"is {data[:1].hex() or 'missing'}, not {ENCODING_VERSION:02x}"
            )
        return _decoded(bytes(data))

    def encode(self) -> bytes:
        """A version octet and the expression in msgpack; `expression.py` gives each node's number."""
        return self._encoded

    def matches(self, event: Event) -> bool:
        """Whether the filter is TRUE for this event, not FALSE or UNKNOWN."""
        return self._matcher(event)

    def covers(self, other: "Filter") -> bool:
        """True only if this filter matches every event that `other` matches; see `covering.py`."""
        return self._prepared.covers(other._prepared)

    def __and__(self, other: "Filter") -> "Filter":
        return Filter(And((self.expression, other.expression)))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Filter.parse({self._text!r})"

    def __eq__(self, other: object) -> bool:
        # Not by the expressions: for Python `a = 1` and `a = TRUE` would be equal.
        return self._encoded == other._encoded if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._encoded)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Filter cannot change: {name}")

    def __reduce__(self) -> tuple[Callable[[bytes], "Filter"], tuple[bytes]]:
        return Filter.decode, (self._encoded,)  # closures do not pickle

    _encoded: bytes

    @cached_property
    def _matcher(self) -> Callable[[Event], bool]:
        return compile_expression(self.expression)

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared.of(self.expression)

    @cached_property
    def _text(self) -> str:
        return to_text(self.expression)


# Many nodes of one run share few filters; each is parsed and compiled once.
@lru_cache(maxsize=4096)
def _parsed(text: str, backslashes: bool) -> Filter:
    from roamcast.filter.sql import parse_condition  # sqlglot takes 0.2 s to load; decoding needs none

    try:
        return Filter(parse_condition(text, backslashes))
    except FilterError as error:
        if error.where != "filter":
            raise
        raise FilterError(one_line(text), error.problem) from None


@lru_cache(maxsize=4096)
def _translated(text: str, schema: "DocumentShape | None") -> Filter:
    from roamcast.filter.xpath.translation import parse_filter  # half a megabyte; most nodes need none

    try:
        return Filter(parse_filter(text, schema))
    except FilterError as error:
        if error.where != "filter":
            raise
        raise FilterError(one_line(text), error.problem) from None


@lru_cache(maxsize=4096)
def _decoded(data: bytes) -> Filter:
    try:
        return Filter(_decoder.decode(data[1:]))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WireError("filter", 1, f"is no expression: {error}") from None
    except FilterError as error:
        raise WireError("filter", 1, error.problem) from None
