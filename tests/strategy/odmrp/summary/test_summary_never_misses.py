"""What must hold for every summary: an event that a filter matches is never denied.

The generators draw from few values, so that conditions meet often; the pool of events holds every pair of
the values in question. `ROAMCAST_EXAMPLES=5000 pytest …` tries as many cases by hand.
"""

import itertools
import math
import os
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roamcast.event import Event, Value
from roamcast.filter import Filter
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
)
from roamcast.filter.value_set import NUMBER_END, NUMBER_FIRST, Cut
from roamcast.strategy.odmrp.summary.cells import (
    REAL_NODES_MAX,
    WHOLE_NODES_MAX,
    cell_of,
    nodes_between,
    nodes_of,
)
from roamcast.strategy.odmrp.summary.geometry import DEFAULT
from roamcast.strategy.odmrp.summary.lookup import DigestTable, Sheets, Stack
from roamcast.strategy.odmrp.summary.summary import (
    EventDigest,
    Summary,
    SummaryOptions,
    SummaryTable,
)

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("ROAMCAST_EXAMPLES", "60"))

ATTRIBUTES = ["a", "b", "c"]
NUMBERS: list[int | float] = [-3, -1, -1e-9, 0, 1e-9, 0.5, 1, 5, 5.5, 6, 60, 1e6 + 1, 2**51, 2**53 + 1, 1e300]
TEXTS = ["", "a", "ab", "abc", "abcd", "abcdefgh", "abcdefghi", "b", "wood", "woods", "%", "xabc"]
LITERALS: list[Literal] = [False, True, *NUMBERS, *TEXTS]
VALUES: list[Value] = [
    *LITERALS,
    None,
    math.nan,
    math.inf,
    -math.inf,
    float(2**53),
    2**70,
    10**400,
    "a\0",
    "é",
    "\ud800",
]
PATTERNS = [
    "a%",
    "%b",
    "_",
    "a_",
    "ab%",
    "abcde%",
    "abcdefghi%",
    "%efghi",
    "a%c",
    "%a%",
    "w_od%",
    "%ood_",
    "%%c",
    "%_",
]
TOPIC_FILTERS = ["#", "+/#", "x", "x/+", "x/#", "+/y", "x/+/z", "/+", "/#", "$s/#"]
TOPICS = ["", "x", "x/", "xy", "x/y", "x/y/z", "w/y", "/y", "$s/y"]
TYPES = ["alarm", "alarm.fire", "alarms", ".", "a.b.c.d.e.f.g.h.i.j"]

leaves = st.one_of(
    st.builds(Compare, st.sampled_from(ATTRIBUTES), st.sampled_from(Operator), st.sampled_from(LITERALS)),
    st.builds(
        OneOf,
        st.sampled_from(ATTRIBUTES),
        st.lists(st.sampled_from(LITERALS), min_size=1, max_size=8).map(tuple),
    ),
    st.builds(Like, st.sampled_from(ATTRIBUTES), st.sampled_from(PATTERNS)),
    st.builds(IsNull, st.sampled_from(ATTRIBUTES)),
    st.builds(OnTopic, st.sampled_from(TOPIC_FILTERS)),
    st.builds(OfType, st.sampled_from(TYPES)),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=4).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=4).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=12,
)
filters = st.lists(expressions.map(Filter), min_size=1, max_size=12)

TINY = SummaryOptions(
    type_bits=8,
    association_bits=8,
    enumeration_bits=8,
    arithmetic_bits=16,
    string_bits=8,
    arithmetic_hashes=1,
    entries=2,
)


OPTIONS = [DEFAULT, TINY, SummaryOptions(arithmetic_hashes=8, string_hashes=1)]


def pool_of_events() -> list[Event]:
    random = Random(1)
    attributes = [dict(zip("ab", pair, strict=True)) for pair in itertools.product(VALUES, repeat=2)]
    attributes += [{name: random.choice(VALUES) for name in "abc"} for _ in range(300)]
    return [
        Event(1, 1, each, topic=random.choice(TOPICS), type=random.choice([*TYPES, "", "alarm.fire.big"]))
        for each in [{}, *attributes]
    ]


ALL = pool_of_events()
ALL_DIGESTS = [EventDigest.of(event) for event in ALL]
POOL = Random(2).sample(ALL, 250)
DIGESTS = [EventDigest.of(event) for event in POOL]
TINY_DIGESTS = [EventDigest.of(event, TINY) for event in POOL]


def every_leaf() -> list[Expression]:
    found: list[Expression] = [Compare("a", operator, value) for operator in Operator for value in LITERALS]
    found += [Like("a", pattern) for pattern in PATTERNS]
    found += [OneOf("a", (one, other)) for one, other in itertools.pairwise(LITERALS)]
    found += [OnTopic(topic_filter) for topic_filter in TOPIC_FILTERS]
    found += [OfType(type_) for type_ in TYPES]
    return [*found, IsNull("a"), OneOf("a", tuple(LITERALS))]


def test_each_condition_alone_lets_all_its_events_pass() -> None:
    """Every condition with every value, and its opposite: the many cases of the next test are wider."""
    others = [
        (topic, type_) for topic in TOPICS for type_ in [*TYPES, "", "alarm.fire.big", "a.b.c.d.e.f.g.h.x"]
    ]
    events = [Event(1, 1, {"a": value}) for value in VALUES]
    events += [Event(1, 1, topic=topic, type=type_) for topic, type_ in others]
    digests = [EventDigest.of(event) for event in events]
    for leaf in every_leaf():
        for wanted in (Filter(leaf), Filter(Not(leaf))):
            summary = Summary.of([wanted])
            for event, digest in zip(events, digests, strict=True):
                assert not wanted.matches(event) or summary.matches(digest), (wanted, event)


def test_all_values_that_belong_together_do() -> None:
    few: list[Literal] = [True, -3, 5, 5.5, 1e300, "", "woods", "abcdefghi"]
    for one, other, third in itertools.combinations(few, 3):
        wanted = Filter(And((OneOf("a", (one, other)), OneOf("b", (other, third)))))
        (entry,) = Summary.of([wanted]).entries
        assert any(key >> 16 for key, _ in entry.constraints)
        for a, b in itertools.product((one, other), (other, third)):
            assert EventDigest.of(Event(1, 1, {"a": a, "b": b})).satisfies(entry)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.lists(st.one_of(leaves, leaves.map(Not)), min_size=2, max_size=4), st.booleans())
def test_a_single_conjunction_lets_all_its_events_pass(terms: list[Expression], as_one: bool) -> None:
    """With one entry, or two of them merged, no other entry can hide a mistake."""
    wanted = [Filter(And(tuple(terms)))] if as_one else [Filter(terms[0]), Filter(And(tuple(terms[1:])))]
    summary = Summary.of(wanted).reduced(1)
    for event, digest in zip(ALL, ALL_DIGESTS, strict=True):
        if any(each.matches(event) for each in wanted):
            assert summary.matches(digest), event


@settings(max_examples=EXAMPLES, deadline=None)
@given(filters)
@example([Filter.everything()])
@example([Filter(OneOf("a", tuple(range(1000))))])
@example([Filter(And(tuple(Or((Compare(f"x{n}", Operator.EQUAL, 1), IsNull("a"))) for n in range(12))))])
def test_an_event_that_a_filter_matches_is_never_denied(wanted: list[Filter]) -> None:
    half = len(wanted) // 2
    summaries = {
        "as built": Summary.of(wanted),
        "from the air": Summary.decode(Summary.of(wanted).encode()),
        "united": Summary.of(wanted[:half]).union(Summary.of(wanted[half:])),
        "one entry": Summary.of(wanted).reduced(1),
    }
    tiny = Summary.of(wanted, TINY)
    for event, digest, tiny_digest in zip(POOL, DIGESTS, TINY_DIGESTS, strict=True):
        if any(each.matches(event) for each in wanted):
            for how, summary in summaries.items():
                assert summary.matches(digest), (how, event)
            assert tiny.matches(tiny_digest), event


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(st.lists(filters, min_size=1, max_size=30), st.integers(0, 2))
def test_the_tables_find_what_summaries_find_one_by_one(brokers: list[list[Filter]], options: int) -> None:
    """Few entries one by one, more in one stack, many on a sheet for each key; and digests put together."""
    digests = [EventDigest.of(event, OPTIONS[options]) for event in POOL[:40]]
    summaries = [Summary.of(wanted, OPTIONS[options]) for wanted in brokers]
    entries = [entry for summary in summaries for entry in summary.entries]
    geometry = OPTIONS[options].geometry
    table: SummaryTable[int] = SummaryTable()
    for node, summary in enumerate(summaries):
        table.add(node, summary)
    stack, sheets = Stack(entries, geometry), Sheets.of(entries, geometry)
    for digest in digests:
        expected = [node for node, summary in enumerate(summaries) if summary.matches(digest)]
        assert table.matching(digest) == expected
        one_by_one = [digest.satisfies(entry) for entry in entries]
        assert stack.satisfied(digest).tolist() == sheets.satisfied(digest).tolist() == one_by_one
    together = DigestTable(digests)
    for summary in summaries:
        assert together.matching(summary).tolist() == [summary.matches(digest) for digest in digests]


@settings(max_examples=EXAMPLES, deadline=None)
@given(filters, filters)
def test_a_covering_summary_matches_whatever_the_covered_one_does(
    one: list[Filter], other: list[Filter]
) -> None:
    left, right = Summary.of(one), Summary.of(other)
    union = left.union(right)
    assert union.covers(left) and union.covers(right)
    assert union == right.union(left)
    assert left.reduced(1).covers(left)
    for digest in DIGESTS[:100]:
        if left.covers(right) and right.matches(digest):
            assert left.matches(digest)
        assert union.matches(digest) or not (left.matches(digest) or right.matches(digest))


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-100, 100),
    st.sampled_from(NUMBERS),
)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(numbers, numbers)
def test_cells_keep_the_order_of_numbers(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert cell_of(low) <= cell_of(high)
    assert cell_of(-math.inf) <= cell_of(low) and cell_of(high) <= cell_of(10**400)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(numbers, numbers, st.booleans(), st.booleans(), numbers)
def test_a_number_in_a_range_has_a_node_of_the_range(
    one: float, other: float, closed: bool, bounded: bool, value: float
) -> None:
    low, high = sorted((one, other))
    first: Cut = (0, low, 0 if closed else 1) if bounded else NUMBER_FIRST
    end: Cut = (0, high, 1 if closed else 0)
    nodes = nodes_between(first, end)
    assert len(nodes) <= WHOLE_NODES_MAX + REAL_NODES_MAX
    for each in (value, low, high, (low + high) / 2 if abs(low) + abs(high) < 1e300 else value):
        above = not bounded or (low <= each if closed else low < each)
        below = each <= high if closed else each < high
        if above and below:
            assert not set(nodes).isdisjoint(nodes_of(each)), each


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(st.integers(-90, 90), st.integers(-90, 90), st.integers(-90, 90), st.booleans(), st.booleans())
@example(0, 1000, 1000, True, True)
@example(777, 1000, 1000, False, True)
def test_ranges_are_exact_for_small_whole_numbers(
    one: int, other: int, value: int, closed: bool, bounded: bool
) -> None:
    low, high = sorted((one, other))
    first: Cut = (0, low, 0 if closed else 1) if bounded else NUMBER_FIRST
    inside = (not bounded or low < value or (closed and low == value)) and (
        value < high or (closed and value == high)
    )
    nodes = nodes_between(first, (0, high, 1 if closed else 0))
    assert (not set(nodes).isdisjoint(nodes_of(value))) is inside
    assert not set(nodes_between(NUMBER_FIRST, NUMBER_END)).isdisjoint(nodes_of(value))
