"""What must hold for every filter, on generated expressions and events.

The generators draw from few values, so that conditions meet, exclude and imply each other often.
"""

import itertools
import math
import pickle
from contextlib import suppress
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from roamcast.errors import FilterError, WireError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.filter.covering import Prepared, covers
from roamcast.filter.evaluate import compile_expression, evaluate
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
    Operator,
    Or,
    Within,
)
from roamcast.filter.normal import disjuncts, normalise, order_key, push_negation

ATTRIBUTES = ["a", "b"]
LITERALS: list[Literal] = [
    False,
    True,
    -1,
    0,
    1,
    1.0,
    1.5,
    2,
    2**53,
    2**53 + 1,
    1e300,
    "",
    "a",
    "ab",
    "b",
    "%",
]
VALUES: list[Value] = [
    *LITERALS,
    None,
    math.nan,
    math.inf,
    -math.inf,
    0.5,
    float(2**53),
    2**70,
    "aa",
    "a\0",
    "abc",
    "c",
]
PATTERNS = ["a%", "%b", "_", "a_", "%", "ab", "%a%", "a%b", "_%", "%%b", "%_"]
TOPIC_FILTERS = ["#", "+/#", "x", "x/+", "x/#", "+/y", "$s/#"]
TOPICS = ["", "x", "x/y", "x/y/z", "w/y", "$s/y"]
TYPES = ["alarm", "alarm.fire", "alarms"]

# Around some of the values above, which are degrees here; a degree is 111 km.
CIRCLES = [Within("a", "b", *place) for place in ((0.0, 0.0, 1.2e5), (1.0, 1.0, 9e4), (1.0, 1.0, 2e5))]

leaves = st.one_of(
    st.builds(Compare, st.sampled_from(ATTRIBUTES), st.sampled_from(Operator), st.sampled_from(LITERALS)),
    st.builds(
        OneOf,
        st.sampled_from(ATTRIBUTES),
        st.lists(st.sampled_from(LITERALS), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(Like, st.sampled_from(ATTRIBUTES), st.sampled_from(PATTERNS)),
    st.builds(Like, st.sampled_from(ATTRIBUTES), st.sampled_from(["a!%", "!%%", "!_", "!!%"]), st.just("!")),
    st.builds(IsNull, st.sampled_from(ATTRIBUTES)),
    st.builds(OnTopic, st.sampled_from(TOPIC_FILTERS)),
    st.builds(OfType, st.sampled_from(TYPES)),
    st.sampled_from(CIRCLES),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=10,
)


def event(topic: str = "", type: str = "", **attributes: Value) -> Event:
    return Event(1, 1, attributes, topic=topic, type=type)


def pool_of_events() -> list[Event]:
    """Every pair of values for the two attributes, with topics and types dealt out."""
    random = Random(1)
    pool = [
        event(random.choice(TOPICS), random.choice([*TYPES, "", "alarm.fire.big"]), a=a, b=b)
        for a, b in itertools.product(VALUES, repeat=2)
    ]
    return [*pool, *(event(topic, type_) for topic in TOPICS for type_ in TYPES)]


POOL = pool_of_events()
SMALL_POOL = Random(2).sample(POOL, 120)


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_the_compiled_form_is_true_exactly_where_the_definition_is(expression: Expression) -> None:
    compiled = compile_expression(expression)
    for each in SMALL_POOL:
        assert compiled(each) is (evaluate(expression, each) is True), each


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_pushing_negation_down_keeps_all_three_truth_values(expression: Expression) -> None:
    pushed = push_negation(expression)
    for each in SMALL_POOL:
        assert evaluate(pushed, each) is evaluate(expression, each), each


@settings(max_examples=300, deadline=None)
@given(expressions)
def test_the_normal_form_matches_the_same_events_and_is_its_own_normal_form(expression: Expression) -> None:
    normal = normalise(expression)
    assert order_key(normalise(normal)) == order_key(normal)
    before, after = compile_expression(expression), compile_expression(normal)
    for each in SMALL_POOL:
        assert before(each) is after(each), (normal, each)


@settings(max_examples=100, deadline=None)
@given(st.lists(expressions, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_terms_does_not_matter(terms: list[Expression], random: Random) -> None:
    shuffled = random.sample(terms, len(terms))
    for junction in (And, Or):
        assert order_key(normalise(junction(tuple(terms)))) == order_key(normalise(junction(tuple(shuffled))))


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_disjuncts_are_conjunctions_of_leaves_that_match_the_same_events(expression: Expression) -> None:
    normal = normalise(expression)
    found = disjuncts(normal, limit=16)
    assume(found is not None)
    assert found is not None and len(found) <= 16
    for conjunction in found:
        for leaf in conjunction:
            assert not isinstance(leaf, And | Or)
            if isinstance(leaf, Not):
                assert isinstance(leaf.term, Like | OnTopic | OfType | IsNull | OneOf | Within)
    whole = Or(tuple(And(conjunction) for conjunction in found))
    original, rebuilt = compile_expression(normal), compile_expression(whole)
    for each in SMALL_POOL:
        assert original(each) is rebuilt(each)


def test_disjuncts_stop_at_the_limit() -> None:
    either = [
        Or((Compare(f"a{i}", Operator.EQUAL, 1), Compare(f"b{i}", Operator.EQUAL, 1))) for i in range(7)
    ]
    six, seven = normalise(And(tuple(either[:6]))), normalise(And(tuple(either)))
    assert len(disjuncts(six) or []) == 64
    assert disjuncts(seven) is None


related = st.one_of(
    st.tuples(expressions, expressions),
    st.tuples(leaves, leaves),
    st.builds(lambda x, y: (x, And((x, y))), expressions, expressions),
    st.builds(lambda x, y: (Or((x, y)), x), expressions, expressions),
    st.builds(lambda x, y, z: (Or((x, z)), And((x, y))), leaves, leaves, leaves),
)


@settings(max_examples=400, deadline=None)
@given(related)
def test_a_filter_that_covers_another_matches_all_that_the_other_matches(
    pair: tuple[Expression, Expression],
) -> None:
    wide, narrow = pair
    for above, below in ((wide, narrow), (narrow, wide)):
        if covers(above, below):
            matches_above, matches_below = compile_expression(above), compile_expression(below)
            for each in POOL:
                assert matches_above(each) or not matches_below(each), each


simple_leaves = st.one_of(
    st.builds(
        Compare,
        st.sampled_from(ATTRIBUTES),
        st.sampled_from(Operator),
        st.sampled_from([False, True, 0, 1, 2.0, "a", "ab", "b"]),
    ),
    st.builds(
        OneOf,
        st.sampled_from(ATTRIBUTES),
        st.one_of(
            st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=3).map(tuple),
            st.lists(st.sampled_from(["a", "ab", "b", True]), min_size=1, max_size=3).map(tuple),
        ),
    ),
    st.builds(IsNull, st.sampled_from(ATTRIBUTES)),
    st.builds(Like, st.sampled_from(ATTRIBUTES), st.sampled_from(["a%", "ab%", "b%"])),
)
simple_terms = st.one_of(simple_leaves, st.builds(Not, simple_leaves))
simple_conjunctions = st.builds(And, st.lists(simple_terms, max_size=4).map(tuple))

# At, before, between and after all constants above; in the order of texts "a\0" directly follows "a".
DENSE: list[Value] = [None, False, True, -1, 0, 0.5, 1, 1.5, 2, 3]
DENSE += ["", "a", "a\0", "aa", "ab", "ab\0", "ac", "b", "b\0", "c"]
DENSE_EVENTS = [event(a=a, b=b) for a in DENSE for b in DENSE]


@settings(max_examples=300, deadline=None)
@given(simple_conjunctions, simple_conjunctions)
@example(And((Compare("a", Operator.LESS, True),)), And((Compare("a", Operator.EQUAL, False),)))
def test_covering_is_complete_for_conjunctions_of_comparisons(wide: Expression, narrow: Expression) -> None:
    matches_wide, matches_narrow = compile_expression(wide), compile_expression(narrow)
    truth = all(matches_wide(each) or not matches_narrow(each) for each in DENSE_EVENTS)
    assert covers(wide, narrow) is truth


def test_every_single_condition_keeps_its_meaning_and_covers_only_what_it_includes() -> None:
    """What the generators above meet only by luck: each operator with each literal, each pattern."""
    lists: list[tuple[Literal, ...]] = [(True, 1), (0, 1), ("a", "b"), (2, "a", False)]
    conditions: list[Expression] = [
        *(Compare("a", operator, value) for operator in Operator for value in LITERALS),
        *(Like("a", pattern) for pattern in PATTERNS),
        *(OneOf("a", values) for values in lists),
        IsNull("a"),
    ]
    conditions += [Not(condition) for condition in conditions]
    candidates = [event(a=value) for value in [*VALUES, *DENSE, "bb", "ba", "%a"]]
    matched = {}
    for condition in conditions:
        normal = normalise(condition)
        matched[order_key(condition)] = found = {
            at for at, each in enumerate(candidates) if evaluate(condition, each) is True
        }
        for same in (compile_expression(condition), compile_expression(normal)):
            assert {at for at, each in enumerate(candidates) if same(each)} == found, condition
    prepared = [(Prepared.of(normalise(each)), matched[order_key(each)]) for each in conditions]
    for (wide, above), (narrow, below) in itertools.product(prepared, repeat=2):
        if wide.covers(narrow):
            assert below <= above, (wide.expression, narrow.expression)


@settings(max_examples=150, deadline=None)
@given(simple_conjunctions, simple_terms)
def test_every_conjunction_is_covered_when_a_condition_is_added_to_it(
    conjunction: And, condition: Expression
) -> None:
    assert covers(conjunction, And((*conjunction.terms, condition)))
    assert covers(Or((conjunction, condition)), conjunction)


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_encoding_and_text_both_lead_back_to_the_same_filter(expression: Expression) -> None:
    original = Filter(expression)
    decoded, parsed = Filter.decode(original.encode()), Filter.parse(str(original))
    for again in (decoded, parsed, pickle.loads(pickle.dumps(original))):
        assert again == original and hash(again) == hash(original)
        assert again.encode() == original.encode() and str(again) == str(original)


texts = st.text(max_size=8).filter(lambda text: "\0" not in text)
names = st.text(min_size=1, max_size=8).filter(lambda text: "\0" not in text)


@settings(max_examples=200, deadline=None)
@given(names, texts, st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1))
@example("a b", "it's \\n", 1e300, -(2**63))
@example("`", "--", 5e-324, 2**63 - 1)
@example('"', "/* */", -1.5e-7, 0)
def test_any_name_and_literal_survives_the_text(name: str, text: str, real: float, whole: int) -> None:
    for value in (text, real, whole):
        original = Filter(Compare(name, Operator.GREATER, value))
        again = Filter.parse(str(original))
        assert again == original, str(original)
        assert "\n" in text + name or "\n" not in str(original)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
@example(b"")
@example(b"\x01")
@example(b"\x02\x92\x07\x90")
@example(b"\x01" + b"\x92\x09" * 4000)  # NOT NOT NOT …
@example(b"\x01" + b"\x92\x09" * 60 + b"\x92\x04\xa1a")  # well-formed, too deep
@example(b"\x01\x92\x04\xa1\xff")  # no UTF-8
@example(b"\x01\x92\x04\xa0")  # an empty name
@example(b"\x01\x94\x01\xa1a\xa1=\xcb\x7f\xf8" + bytes(6))  # compares with NaN
@example(b"\x01\x94\x01\xa1a\xa1=\xcf" + b"\xff" * 8)  # 2**64 - 1
@example(b"\x01\x93\x02\xa1a\x90")  # an empty IN
@example(b"\x01\x94\x03\xa1a\xa1!\xa1!")  # an escape character before nothing
@example(b"\x01\x92\x05\xa3a#b")  # no topic filter
@example(b"\x01\x96\x0a\xa1a\xa1b\x01\x01\xcb\x7f\xf8" + bytes(6))  # a circle of NaN metres
@example(b"\x01" + bytes(9000))
def test_any_bytes_are_a_filter_or_a_wire_error(data: bytes) -> None:
    for octets in (data, b"\x01" + data):
        with suppress(WireError):
            decoded = Filter.decode(octets)
            assert Filter.decode(decoded.encode()) == decoded


@settings(max_examples=200, deadline=None)
@given(expressions, st.integers(0, 2**16), st.integers(0, 255))
def test_a_damaged_encoding_is_a_filter_or_a_wire_error(
    expression: Expression, place: int, octet: int
) -> None:
    data = bytearray(Filter(expression).encode())
    data[place % len(data)] = octet
    with suppress(WireError):
        Filter.decode(bytes(data)).matches(SMALL_POOL[0])


SCRAPS = """
    a b 1 -1 'x' ( ) , = <> < >= AND OR NOT IN LIKE BETWEEN IS NULL ESCAPE TRUE . + * CASE CAST AS SELECT
    ON_TOPIC ANY [ ] { } :: || -- /* */ ; `c` "d" ? @ : interval date array < >
"""


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=30), st.lists(st.sampled_from(SCRAPS.split()), max_size=12).map(" ".join)))
def test_any_text_is_a_filter_or_a_filter_error_of_one_line(text: str) -> None:
    problem = ""
    try:
        found = Filter.sql(text)
    except FilterError as error:
        problem = str(error)
    else:
        assert Filter.parse(str(found)) == found
    assert "\n" not in problem


@pytest.mark.parametrize(("octets", "part"), [(b"", "version"), (b"\x07", "version"), (bytes(9000), "9000")])
def test_wire_errors_say_what_is_wrong(octets: bytes, part: str) -> None:
    with pytest.raises(WireError, match=part):
        Filter.decode(octets)
