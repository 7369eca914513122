"""FID and EID: soundness, formula (1), spelling of values."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.filter.expression import (
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
from roamcast.strategy.chapar.identifiers import IdentifierLayout, false_positive_probability, matches

LAYOUT = IdentifierLayout(16, 5)
NAMES = ["a", "b", "kind"]
VALUES = [0, 1, 1.0, 2.5, -0.0, True, False, "", "x", "y", 2**63, 2.0**63, float("inf")]
TYPES = ["", "alarm", "alarm.fire", "alarm.fire.big", "alarms", ".odd"]
TOPICS = ["", "a", "a/b", "a/b/c", "$sys/a"]

leaves = st.one_of(
    st.builds(Compare, st.sampled_from(NAMES), st.sampled_from(Operator), st.sampled_from(VALUES[:-3])),
    st.builds(
        OneOf,
        st.sampled_from(NAMES),
        st.lists(st.sampled_from(VALUES[:-3]), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Like, st.sampled_from(NAMES), st.sampled_from(["x", "%", "x%", "_"])),
    st.builds(IsNull, st.sampled_from(NAMES)),
    st.builds(OnTopic, st.sampled_from(["a", "a/b", "a/+", "#", "a/#", "+/b", "$sys/a"])),
    st.builds(OfType, st.sampled_from(TYPES[1:-1])),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)
events = st.builds(
    lambda attributes, topic, type_: Event(1, 1, attributes, topic=topic, type=type_),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*VALUES, None, float("nan")])),
    st.sampled_from(TOPICS),
    st.sampled_from(TYPES),
)


@settings(max_examples=400, deadline=None)
@given(
    expressions,
    events,
    st.sampled_from(
        [IdentifierLayout(16, 5), IdentifierLayout(1, 3), IdentifierLayout(64, 16), IdentifierLayout(7, 4)]
    ),
)
def test_whatever_the_exact_filter_matches_the_identifiers_match(
    expression: Expression, event: Event, layout: IdentifierLayout
) -> None:
    wanted = Filter(expression)
    if wanted.matches(event):
        assert matches(layout.filter_id(wanted), layout.event_id(event))


def test_the_property_above_is_not_empty() -> None:
    wanted, event = Filter.sql("kind = 'x' AND a IN (1, 2)"), Event(1, 1, {"kind": "x", "a": 2})
    assert wanted.matches(event)
    assert LAYOUT.filter_id(wanted) != 0
    assert not matches(LAYOUT.filter_id(wanted), LAYOUT.event_id(Event(1, 1, {"kind": "y", "a": 3})))


@pytest.mark.parametrize(
    "sql", ["a > 3", "a LIKE 'x%'", "a <> 1", "NOT a = 1", "a IS NULL", "a = 1 OR b > 2"]
)
def test_what_has_no_hash_selects_everything(sql: str) -> None:
    assert LAYOUT.filter_id(Filter.sql(sql)) == 0


def test_a_conjunction_needs_the_bits_of_all_its_terms_and_a_choice_those_in_common() -> None:
    one, two = LAYOUT.value_bits("a", 1), LAYOUT.value_bits("a", 2)
    other = LAYOUT.value_bits("b", "x")
    assert LAYOUT.filter_id(Filter.sql("a = 1 AND b = 'x'")) == one | other
    assert LAYOUT.filter_id(Filter.sql("a IN (1, 2)")) == one & two
    assert LAYOUT.filter_id(Filter.topic("t/+")) == 0
    assert LAYOUT.filter_id(Filter.topic("t/u")) == LAYOUT.event_id(Event(1, 1, topic="t/u")) != 0


def test_equal_values_hash_alike_and_booleans_are_no_numbers() -> None:
    assert LAYOUT.value_bits("a", 1) == LAYOUT.value_bits("a", 1.0)
    assert LAYOUT.value_bits("a", 2**63) == LAYOUT.value_bits("a", 2.0**63)
    assert LAYOUT.value_bits("a", 0) == LAYOUT.value_bits("a", -0.0)
    assert LAYOUT.value_bits("a", True) != LAYOUT.value_bits("a", 1)
    assert LAYOUT.value_bits("a", "1") != LAYOUT.value_bits("a", 1)
    assert LAYOUT.value_bits("a", None) == LAYOUT.value_bits("a", float("nan")) == 0


def test_the_hashes_are_the_same_in_every_process_and_release() -> None:
    # Nodes of different releases must agree: this number may only change with the codec's version.
    assert LAYOUT.encode(LAYOUT.event_id(Event(1, 1, {"a": 1}, topic="t", type="x.y"))).hex() == VECTOR


VECTOR = "9564d1ad000000001510"


def test_identifiers_come_back_from_their_octets() -> None:
    for identifier in (0, 1, 1 << 79, LAYOUT.value_bits("a", 1)):
        assert LAYOUT.decode(LAYOUT.encode(identifier)) == identifier
    assert LAYOUT.decode(b"\xff" * 128) == (1 << 80) - 1  # a longer one is cut, not believed
    assert LAYOUT.size == 10


def test_formula_1_gives_one_in_a_hundred_at_16_bits() -> None:
    assert false_positive_probability(16) == pytest.approx(0.01, abs=0.0005)
    # By hand for n = 2: two event hashes with one bit, each with one smaller filter hash, of 16 pairs.
    assert false_positive_probability(2) == 2 / 16
    assert false_positive_probability(1) == 0
    values = [false_positive_probability(n) for n in range(4, 30)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("bits", [4, 8])
def test_formula_1_agrees_with_counting_all_pairs(bits: int) -> None:
    full = (1 << bits) - 1
    pairs = sum(
        f & e == f and f != e and e not in (0, full) for f in range(full + 1) for e in range(full + 1)
    )
    assert false_positive_probability(bits) == pairs / 4**bits


def test_formula_1_agrees_with_the_hashes_themselves() -> None:
    """Monte Carlo: random unrelated values through the real hash, within 4 standard deviations."""
    random = Random(7)
    trials = 40_000
    hits = 0
    for _ in range(trials):
        f = LAYOUT.value_bits("a", random.getrandbits(48))
        e = LAYOUT.value_bits("a", random.getrandbits(48))
        hits += f != e and matches(f, e)
    expected = false_positive_probability(16)
    spread = (expected * (1 - expected) / trials) ** 0.5
    assert hits / trials == pytest.approx(expected, abs=4 * spread)
