"""The index must answer as trying every filter does, by the plain interpreter or by `Filter.matches`."""

import gc
import itertools
import math
import weakref
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import pytest

from roamcast.event import Event, Value
from roamcast.filter.evaluate import evaluate
from roamcast.filter.expression import (
    FALSE,
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
)
from roamcast.filter.filter import Filter
from roamcast.filter.index import MatchingIndex, bitmap, block, layout, matching
from roamcast.filter.index.bitmap import Bitmap, ClosedColumn
from roamcast.filter.index.matching import TopicTree
from roamcast.filter.index.rows import AttributeRows, Place, choose_cuts, following
from roamcast.filter.topic import topic_matches

BIG = 2**53
NUMBERS: list[Literal] = [0, 1, 2, 3, 7, 1.0, 1.5, 2.5, -1, BIG, BIG + 1, float(BIG), -(2**63), 1e300]
TEXTS: list[Literal] = ["", "a", "ab", "abc", "b", "ba", "1", "True", "\U0010ffff", "a\U0010ffffb"]
LITERALS: list[Literal] = [*NUMBERS, *TEXTS, True, False]
BESIDE: list[Value] = [
    math.nextafter(1, 2),
    math.nextafter(1, 0),
    BIG + 2,
    BIG - 1,
    -(2**63) + 1,
    "a\0",
    "ab\0",
]
OTHERS: list[Value] = [None, math.nan, math.inf, -math.inf, 2**60 + 1, "abcd", 4]
VALUES: list[Value] = [*LITERALS, *BESIDE, *OTHERS]
PATTERNS = ["%", "a%", "ab%", "_b%", "%b", "abc", "", "a!%%", "\U0010ffff%", "a\U0010ffff%"]
TOPICS = ["", "a", "a/b", "a/b/c", "b", "/", "a/", "$SYS", "$SYS/a", "b/c", "+", "a/#"]
TOPIC_FILTERS = ["#", "+", "a", "a/#", "a/+", "+/b", "+/+", "a/b/c", "$SYS/#", "$SYS", "+/#", "/+", "/"]
TYPES = ["", "alarm", "alarm.fire", "alarm.fire.big", "alarms", "x"]


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few filters reach every structure, and rebuilds are frequent."""
    monkeypatch.setattr(matching, "SMALL", 1)
    monkeypatch.setattr(matching, "EQUAL_TESTS", 3)
    monkeypatch.setattr(matching, "VALUES_MIN", 3)
    monkeypatch.setattr(matching, "COLUMNS_MAX", 3)
    monkeypatch.setattr(block, "SCAN_MAX", 4)
    monkeypatch.setattr(block, "WIDTH", 24)
    monkeypatch.setattr(block, "CLOSED_WIDTH", 72)
    monkeypatch.setattr(block, "STEPS", 3)
    monkeypatch.setattr(layout, "COLUMNS_MAX", 3)
    monkeypatch.setattr(layout, "CUTS_TOTAL", 12)
    monkeypatch.setattr(layout, "CUTS_MIN", 2)
    monkeypatch.setattr(bitmap, "SPARSE", 3)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", range(12))
def test_every_history_of_adding_and_removing_answers_as_trying_each_filter(seed: int) -> None:
    random = Random(seed)
    rule = [any_expression, conjunction, numeric_conjunction][seed % 3]
    check_history(random, rule, steps=500, seed=seed)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", range(3))
def test_the_same_holds_without_numpy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitmap, "numpy_is_installed", lambda: False)
    rule = [any_expression, conjunction, numeric_conjunction][seed]
    check_history(Random(seed), rule, steps=500, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_holds_with_the_bounds_as_they_are(seed: int) -> None:
    random = Random(seed)
    rule = [any_expression, conjunction, numeric_conjunction][seed]
    check_history(random, rule, steps=800, seed=seed)


def check_history(random: Random, rule: "Rule", steps: int, seed: int) -> None:
    index: MatchingIndex[tuple[str, int]] = MatchingIndex()
    filters: dict[tuple[str, int], Expression] = {}
    numbers = itertools.count()
    growing = True
    for step in range(steps):
        if random.random() < 0.02:
            growing = not growing
        if not filters or random.random() < (0.9 if growing else 0.2):
            key = ("key", next(numbers))
            filters[key] = rule(random)
            index.add(key, Filter(filters[key]))
        else:
            key = random.choice(list(filters))
            del filters[key]
            index.remove(key)
        if step % 3 == 0:
            event = any_event(random)
            expected = [key for key, each in filters.items() if evaluate(each, event)]
            assert index.match(event) == expected, f"seed {seed}, step {step}, {event}"
        assert len(index) == len(filters)
    for key in list(filters):
        index.remove(key)
    assert is_released(index), f"seed {seed}"


def is_released(index: MatchingIndex[tuple[str, int]]) -> bool:
    kept = (index._subscriptions, index._equal, index._topics, index._types, index._present)
    counted = (index._common_uses, index._other_values, index._alternatives)
    return not any(kept) and not any(counted) and index._common.is_empty


@pytest.mark.usefixtures("small_bounds")
def test_nothing_keeps_a_removed_filter_alive() -> None:
    index: MatchingIndex[int] = MatchingIndex()
    random = Random(5)
    filters = [Filter(conjunction(random)) for _ in range(200)]
    for key, filter in enumerate(filters):
        index.add(key, filter)
    index.match(any_event(random))
    watched = [weakref.ref(filter) for filter in filters]
    del filters, filter
    for removed in (range(0, 200, 4), [key for key in range(200) if key % 4]):
        for key in removed:
            index.remove(key)
        gc.collect()
        assert [key for key in removed if watched[key]() is not None] == []
    index.add(0, Filter.everything())  # and it still works
    assert index.match(Event(1, 1)) == [0]


@pytest.mark.parametrize("count", [3, 20, 300])
def test_keys_come_in_the_order_of_adding_whatever_leads_to_them(count: int) -> None:
    """300 are enough for a bitmap in the common block; keys are tuples, which numpy likes to unfold."""
    kinds = ["level > {}", "level = 7 AND place = 'x'", "level IN (7, {})", "place LIKE 'x%'", "place = 'x'"]
    index: MatchingIndex[tuple[int, str]] = MatchingIndex()
    order = []
    for number in range(count):
        key = (-number, kinds[number % 5])
        index.add(key, Filter.sql(kinds[number % 5].format(-1 - number)))
        order.append(key)
    index.add((1, "topic"), Filter.topic("t/#"))
    index.add((1, "type"), Filter.of_type("alarm"))
    index.add((1, "never"), Filter.sql("level < 7"))
    event = Event(1, 1, attributes={"level": 7, "place": "x"}, topic="t/1", type="alarm.fire")
    assert index.match(event) == [*order, (1, "topic"), (1, "type")]
    if order:
        index.remove(order[0])
        index.add(order[0], Filter.everything())
        assert index.match(event) == [*order[1:], (1, "topic"), (1, "type"), order[0]]


@pytest.mark.usefixtures("small_bounds")
def test_truth_values_are_no_numbers_and_numbers_are_compared_exactly() -> None:
    """Each among enough filters of its kind to be met in the hash, and as a range in the bitmap."""
    texts = [
        "a = 1",
        "a = TRUE",
        f"a = {BIG + 1}",
        f"a > {BIG}",
        f"a >= {BIG}",
        "a <> 1",
        "a = '1'",
        "a < TRUE",
    ]
    index: MatchingIndex[str] = MatchingIndex()
    for text in texts:
        index.add(text, Filter.sql(text))
        for number in range(20):
            index.add(f"{text} {number}", Filter.sql(f"({text}) AND b > {number}"))

    def plain(value: Value) -> list[str]:
        return [key for key in index.match(Event(1, 1, attributes={"a": value, "b": 0.5})) if key in texts]

    def nested(value: Value) -> list[str]:
        keys = index.match(Event(1, 1, attributes={"a": value, "b": 99}))
        return [text for text in texts if f"{text} 0" in keys and f"{text} 19" in keys]

    for asked in (plain, nested):
        assert asked(1) == ["a = 1"]
        assert asked(1.0) == ["a = 1"]
        assert asked(True) == ["a = TRUE"]
        assert asked(False) == ["a < TRUE"]
        assert asked("1") == ["a = '1'"]
        assert asked(float("nan")) == asked(None) == []
        assert asked(BIG) == asked(float(BIG)) == [f"a >= {BIG}", "a <> 1"]
        assert asked(BIG + 1) == [f"a = {BIG + 1}", f"a > {BIG}", f"a >= {BIG}", "a <> 1"]


def test_a_filter_too_large_to_take_apart_is_still_found() -> None:
    pairs = tuple(
        Or((Compare(f"a{n}", Operator.EQUAL, 1), Compare(f"b{n}", Operator.LESS, 0))) for n in range(8)
    )
    index: MatchingIndex[int] = MatchingIndex()
    for key in range(100):
        index.add(key, Filter(And((*pairs, Compare("c", Operator.GREATER, key)))))
    attributes: dict[str, Value] = {f"a{n}": 1 for n in range(8)}
    assert index.match(Event(1, 1, attributes=attributes | {"c": 2.5})) == [0, 1, 2]
    assert index.match(Event(1, 1, attributes=attributes | {"c": 2.5, "a3": 2})) == []


def test_a_key_is_entered_once_and_removed_once() -> None:
    index: MatchingIndex[str] = MatchingIndex()
    index.add("one", Filter.everything())
    with pytest.raises(ValueError, match="'one' is in use"):
        index.add("one", Filter.everything())
    assert "one" in index and len(index) == 1
    index.remove("one")
    assert "one" not in index
    with pytest.raises(KeyError):
        index.remove("one")


def test_filters_on_more_attributes_than_a_bitmap_has_are_tried_only_if_the_event_has_theirs() -> None:
    """Counted, because nothing else would show it: 2,000 attributes, each of interest to two."""
    index: MatchingIndex[int] = MatchingIndex()
    for key in range(4000):
        names = (f"attribute_{key % 2000}", f"attribute_{(key + 1) % 2000}")
        index.add(key, Filter(And(tuple(Compare(name, Operator.GREATER, key) for name in names))))
    event = Event(1, 1, attributes={"attribute_1500": 1700, "attribute_1501": 1600})
    assert index.match(event) == [1500]
    tried = [len(index._present[name]._scanned) for name in event.attributes]
    assert sum(tried) <= 4


def test_a_change_builds_a_bounded_part_of_what_many_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: conjunctions entered into bitmaps, and rows closed or joined, by each addition and removal."""
    entered = count_calls(monkeypatch, Bitmap, "_enter")
    closed = count_calls(monkeypatch, ClosedColumn, "_append_row")
    monkeypatch.setattr(block, "WIDTH", 512)
    monkeypatch.setattr(block, "CLOSED_WIDTH", 2048)
    index: MatchingIndex[int] = MatchingIndex()
    most = 0
    for key in range(3000):
        before = entered[0] + closed[0]
        index.add(key, Filter(Compare("a", Operator.GREATER, key)))
        most = max(most, entered[0] + closed[0] - before)
    assert 3000 < entered[0] < 4 * 3000 and closed[0], "without bitmaps the rest proves nothing"
    assert most <= 2 * block.SCAN_MAX + 2
    entered[0] = most = 0
    for key in Random(1).sample(range(3000), 3000):
        before = entered[0] + closed[0]
        index.remove(key)
        most = max(most, entered[0] + closed[0] - before)
    assert 0 < entered[0] < 3000
    assert most <= block.STEPS + 1


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    original = getattr(owner, name)
    calls = [0]

    def counting(*arguments: object) -> object:
        calls[0] += 1
        return original(*arguments)

    monkeypatch.setattr(owner, name, counting)
    return calls


@pytest.mark.parametrize("topic", TOPICS)
def test_the_topic_tree_finds_the_filters_that_match(topic: str) -> None:
    tree: TopicTree[str] = TopicTree()
    for topic_filter in TOPIC_FILTERS:
        tree.put(topic_filter, topic_filter)
    expected = sorted(each for each in TOPIC_FILTERS if topic_matches(each, topic))
    assert sorted(tree.matching(topic)) == expected
    for topic_filter in TOPIC_FILTERS:
        assert tree.find(topic_filter) == topic_filter
        tree.remove(topic_filter)
        assert tree.find(topic_filter) is None
    assert not tree


def test_rows_begin_at_cuts_and_other_edges_lie_inside_a_row() -> None:
    rows = AttributeRows([1, 2.5], ["b"])  # below 1, from 1, from 2.5; below b, from b; FALSE, TRUE, NULL
    values = (0, 1, 1.0, 2, 2.5, 3, "a", "b", "c", False, True, None, float("nan"))
    assert [rows.row_of(value) for value in values] == [0, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 7]

    def truth(operator: Operator, value: Literal) -> list[tuple[Place, Place]]:
        return rows.truth_of(Compare("a", operator, value)).spans

    assert truth(Operator.LESS, 2.5) == [((0, False, 0), (2, False, 0))]
    assert truth(Operator.LESS, 2) == [((0, False, 0), (1, True, 2))]
    assert truth(Operator.LESS_OR_EQUAL, 2.5) == [((0, False, 0), (2, True, math.nextafter(2.5, 3)))]
    assert truth(Operator.EQUAL, 1) == [((1, False, 0), (1, True, math.nextafter(1, 2)))]
    assert truth(Operator.NOT_EQUAL, "b") == [
        ((3, False, 0), (4, False, 0)),
        ((4, True, "b\0"), (5, False, 0)),
    ]
    assert truth(Operator.GREATER_OR_EQUAL, "a") == [((3, True, "a"), (5, False, 0))]
    assert truth(Operator.LESS, True) == [((5, False, 0), (6, False, 0))]


@pytest.mark.parametrize("value", [0, 1, -1, 1.5, -0.0, BIG, BIG - 1, -BIG, BIG + 1, -(2**63), 1e300, -1e300])
def test_no_number_lies_between_one_and_the_following(value: float) -> None:
    after = following(value)
    whole = int(value)
    near = [whole + step for step in (-2, -1, 0, 1, 2)]
    near_floats = [math.nextafter(value, way) for way in (-math.inf, math.inf)]
    assert after > value
    assert not [each for each in [*near, *near_floats, float(after)] if value < each < after]


def test_a_frequent_constant_is_always_a_cut() -> None:
    values = [5] * 30 + list(range(100, 170))
    cuts = choose_cuts(values, 4)
    assert 5 in cuts and len(cuts) <= 4 and cuts == sorted(cuts)
    assert choose_cuts([3, 1, 2, 1, 1, 1], 3) == [1, 2, 3]


Rule: TypeAlias = Callable[[Random], Expression]


def any_event(random: Random) -> Event:
    names = [name for name in "abcdef" if random.random() < 0.8]
    values = NUMBERS if random.random() < 0.5 else VALUES
    return Event(
        publisher=1,
        sequence=1,
        attributes={name: random.choice(values) for name in names},
        topic=random.choice(TOPICS),
        type=random.choice(TYPES),
    )


def any_expression(random: Random, depth: int = 3) -> Expression:
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return leaf(random)
    terms = tuple(any_expression(random, depth - 1) for _ in range(random.randint(0, 3)))
    if kind < 0.6:
        return And(terms)
    if kind < 0.85:
        return Or(terms)
    return Not(any_expression(random, depth - 1))


def conjunction(random: Random) -> Expression:
    return And(tuple(leaf(random) for _ in range(random.randint(1, 3))))


def numeric_conjunction(random: Random) -> Expression:
    return And(tuple(comparison(random, NUMBERS) for _ in range(random.randint(1, 4))))


def leaf(random: Random) -> Expression:
    attribute = random.choice("abcdef")
    match random.randrange(12):
        case 0 | 1 | 2:
            return comparison(random, LITERALS)
        case 3 | 4:
            return comparison(random, NUMBERS)
        case 5:
            return OneOf(attribute, tuple(random.sample(LITERALS, random.randint(1, 10))))
        case 6:
            return Like(attribute, random.choice(PATTERNS), "!")
        case 7:
            return IsNull(attribute)
        case 8:
            return OnTopic(random.choice(TOPIC_FILTERS))
        case 9:
            return OfType(random.choice(TYPES[1:]))
        case 10:
            return random.choice((TRUE, TRUE, FALSE))
        case _:
            return Not(leaf(random))


def comparison(random: Random, literals: list[Literal]) -> Expression:
    return Compare(random.choice("abcdef"), random.choice(list(Operator)), random.choice(literals))
