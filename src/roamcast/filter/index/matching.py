"""The index itself: which subscriptions match an event.

Each conjunction of a filter is kept in one place, reached by one of its own conditions:

1. an equality (or short IN) on an attribute with many values in use: a hash of attribute and value;
2. else its topic filter: a tree of levels; else its event type: a hash of dotted names;
3. else, where filters use more attributes than a bitmap has columns, an attribute that must be there;
4. else the common block.

A place holds few conjunctions, tried one by one, or many, found by bitmap (`block.py`). This follows
the access predicates of Fabret et al., "Filtering algorithms and implementation for very fast
publish/subscribe systems" (SIGMOD 2001), with a bitmap instead of their clusters of equal shape:
an equality with many subscribers narrows less than the AND of three bitmaps does.
"""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from roamcast.event import Event
from roamcast.filter.expression import Compare, Expression, Literal, OfType, OneOf, OnTopic, Operator
from roamcast.filter.filter import Filter
from roamcast.filter.index.block import Block, MatchesFound
from roamcast.filter.index.layout import (
    COLUMNS_MAX,
    Conjunction,
    Leaves,
    Path,
    attribute_of,
    required_attributes,
)
from roamcast.filter.normal import disjuncts

T = TypeVar("T")


class TopicTree(Generic[T]):
    """Topic filters in a tree of levels (MQTT 5.0, section 4.7), each with what it leads to: a mapping that
    is asked by topic. Wildcards are children like any other level."""

    def __init__(self) -> None:
        self._root: _Level[T] = _Level()

    def find(self, topic_filter: str) -> T | None:
        level: _Level[T] | None = self._root
        for name in topic_filter.split("/"):
            level = level.below.get(name) if level is not None else None
        return level.target if level is not None else None

    def put(self, topic_filter: str, target: T) -> None:
        level = self._root
        for name in topic_filter.split("/"):
            level = level.below.setdefault(name, _Level())
        level.target = target

    def remove(self, topic_filter: str) -> None:
        """Take out a filter that is there, and the levels that only it needed."""
        path = [self._root]
        names = topic_filter.split("/")
        for name in names:
            path.append(path[-1].below[name])
        path[-1].target = None
        for name, above, level in reversed(list(zip(names, path[:-1], path[1:], strict=True))):
            if level.below or level.target is not None:
                break
            del above.below[name]

    def __bool__(self) -> bool:
        return bool(self._root.below)

    def matching(self, topic: str) -> list[T]:
        """The targets of all filters that match; an event without a topic matches none."""
        if not topic:
            return []
        targets: list[T] = []
        reached = [self._root]
        wildcards = topic[0] != "$"  # a leading wildcard does not stand for `$SYS` and its like
        for name in topic.split("/"):
            deeper: list[_Level[T]] = []
            for level in reached:
                below = level.below
                if name != "+" and name != "#" and name in below:
                    deeper.append(below[name])
                if wildcards:
                    if "+" in below:
                        deeper.append(below["+"])
                    if "#" in below:
                        _collect(below["#"], targets)
            reached = deeper
            wildcards = True
        for level in reached:
            _collect(level, targets)
            if "#" in level.below:  # `sport/#` matches `sport`
                _collect(level.below["#"], targets)
        return targets


class _Level(Generic[T]):
    __slots__ = ("below", "target")

    def __init__(self) -> None:
        self.below: dict[str, _Level[T]] = {}
        self.target: T | None = None


def _collect(level: "_Level[T]", targets: list[T]) -> None:
    if level.target is not None:
        targets.append(level.target)


SMALL = 6  # trying so many filters is faster than a look-up
EQUAL_TESTS = 32  # conjunctions tried per event after equalities, over all attributes; chosen by us
EQUAL_TESTS_MIN = 1  # per attribute
VALUES_MIN = 256  # an attribute with fewer values in use is not hashed: a look-up would find too much
ONE_OF_MAX = 8  # values of an IN that is entered into the hash; chosen by us

K = TypeVar("K", bound=Hashable)


class MatchingIndex(Generic[K]):
    """Filters under keys; adding and removing cost about the same at any size, averaged over many."""

    def __init__(self) -> None:
        self._subscriptions: dict[K, Conjunction | None] = {}  # the last of each; none where nothing matches
        self._sequence = 0
        self._alternatives = 0  # subscriptions of several conjunctions
        self._equal: dict[str, dict[Hashable, Block]] = {}
        self._other_values: dict[str, dict[Hashable, int]] = {}  # equalities that were not hashed
        self._topics: TopicTree[Block] = TopicTree()
        self._types: dict[str, Block] = {}
        self._present: dict[str, Block] = {}
        self._common = Block()
        self._common_uses: dict[str, int] = {}  # attributes in the common block

    def add(self, key: K, filter: Filter) -> None:
        """Enter a filter under a key that is not in use."""
        if key in self._subscriptions:
            raise ValueError(f"the key {key!r} is in use")
        parts = disjuncts(filter.expression)
        if parts is None:  # too large to split: one conjunction of which nothing is known
            parts = [(filter.expression,)]
        first: Conjunction | None = None
        for leaves in parts:
            conjunction = Conjunction(leaves, key, self._sequence, filter)
            self._sequence += 1
            conjunction.next = first
            first = conjunction
            self._enter(conjunction)
        self._subscriptions[key] = first
        self._alternatives += len(parts) > 1

    def remove(self, key: K) -> None:
        """Forget a filter and all that was kept for it; KeyError if the key is not in use."""
        conjunction = self._subscriptions.pop(key)
        self._alternatives -= conjunction is not None and conjunction.next is not None
        while conjunction is not None:
            self._leave(conjunction)
            conjunction = conjunction.next

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, key: object) -> bool:
        return key in self._subscriptions

    def match(self, event: Event) -> list[K]:
        """The keys of all filters that match, in the order of adding."""
        if len(self._subscriptions) <= SMALL:
            matched: list[K] = []  # a loop: a comprehension is a call, which costs as much as one filter
            for key, conjunction in self._subscriptions.items():
                if conjunction is not None and conjunction.filter.matches(event):
                    matched.append(key)
            return matched
        found = MatchesFound()
        if self._equal:
            self._match_equal(event, found)
        if self._topics:
            for block in self._topics.matching(event.topic):
                block.match(event, found)
        if self._types:
            for name in _type_and_those_above(event.type):
                if name in self._types:
                    self._types[name].match(event, found)
        if self._present:
            for attribute in event.attributes:
                if attribute in self._present:
                    self._present[attribute].match(event, found)
        self._common.match(event, found)
        return found.keys(once=self._alternatives > 0)

    def _match_equal(self, event: Event, found: MatchesFound) -> None:
        for attribute, value in event.attributes.items():
            blocks = self._equal.get(attribute)
            if blocks is not None:
                block = blocks.get((value,) if value is True or value is False else value)
                if block is not None:
                    block.match(event, found)

    def _enter(self, conjunction: Conjunction) -> None:
        """Choose a path by which to find the conjunction, and enter it there."""
        path = conjunction.path = self._choose(conjunction.leaves)
        is_stated = all(leaf is path for leaf in conjunction.leaves)
        for block in self._open(path):
            if is_stated:
                block.add_stated(conjunction)
            else:
                block.add(conjunction)
        self._count(conjunction, 1)

    def _count(self, conjunction: Conjunction, change: int) -> None:
        """Keep what later choices of a path depend on."""
        path = conjunction.path
        for leaf in conjunction.leaves:
            for value in _hashed_values(leaf) if leaf is not path else ():
                attribute = attribute_of(leaf) or ""
                values = self._other_values.setdefault(attribute, {})
                _add_to(values, value, change)
                if not values:
                    del self._other_values[attribute]
        if path is None:
            for attribute in required_attributes(conjunction.leaves):
                _add_to(self._common_uses, attribute, change)

    def _choose(self, leaves: Leaves) -> Path:
        if len(leaves) == 1 and _hashed_values(leaves[0]):
            return leaves[0]
        limit = max(EQUAL_TESTS_MIN, EQUAL_TESTS // max(1, len(self._equal)))
        least_used: Path = None
        for leaf in leaves:
            tests = self._tests_behind(leaf)
            if tests is not None and tests < limit:
                least_used, limit = leaf, tests
        if least_used is not None:
            return least_used
        for kind in (OnTopic, OfType):
            for leaf in leaves:
                if isinstance(leaf, kind):
                    return leaf
        required = required_attributes(leaves)
        unknown = [attribute for attribute in required if attribute not in self._common_uses]
        if unknown and len(self._common_uses) + len(unknown) > COLUMNS_MAX:
            return unknown[0]
        return None

    def _tests_behind(self, leaf: Expression) -> int | None:
        """How many conjunctions an event with the least suitable of the leaf's values would try; None
        for a leaf that is not worth hashing."""
        values = _hashed_values(leaf)
        others = self._other_values.get(attribute_of(leaf) or "", {})
        if not values or len(others) < VALUES_MIN or any(value in others for value in values):
            return None
        blocks = self._equal.get(attribute_of(leaf) or "", {})
        return max(blocks[value].tested if value in blocks else 0 for value in values)

    def _open(self, path: Path) -> list[Block]:
        """The blocks that a path leads to, made where they are missing."""
        match path:
            case None:
                return [self._common]
            case str():
                return [self._present.setdefault(path, Block())]
            case OnTopic():
                block = self._topics.find(path.topic_filter)
                if block is None:
                    block = Block()
                    self._topics.put(path.topic_filter, block)
                return [block]
            case OfType():
                return [self._types.setdefault(path.type, Block())]
            case Compare() | OneOf():
                blocks = self._equal.setdefault(path.attribute, {})
                return [blocks.setdefault(value, Block()) for value in _hashed_values(path)]
        raise AssertionError(f"no path is made of {path!r}")

    def _leave(self, conjunction: Conjunction) -> None:
        """Undo `_enter`, down to the last empty block."""
        path = conjunction.path
        blocks = self._open(path)
        for block in blocks:
            block.remove(conjunction)
        is_empty = blocks[0].is_empty
        self._count(conjunction, -1)
        match path:
            case str() if is_empty:
                del self._present[path]
            case OnTopic() if is_empty:
                self._topics.remove(path.topic_filter)
            case OfType() if is_empty:
                del self._types[path.type]
            case Compare() | OneOf():
                by_value = self._equal[path.attribute]
                for value, block in zip(_hashed_values(path), blocks, strict=True):
                    if block.is_empty:
                        del by_value[value]
                if not by_value:
                    del self._equal[path.attribute]


def _add_to(counts: dict[Any, int], of: Hashable, change: int) -> None:
    counts[of] = counts.get(of, 0) + change
    if not counts[of]:
        del counts[of]


def _hashed_values(leaf: Expression) -> list[Hashable]:
    """The keys under which an equality or short IN is entered; none for other leaves.

    Python takes TRUE for 1, a filter does not: truth values are entered as tuples.
    """
    if isinstance(leaf, Compare) and leaf.operator is Operator.EQUAL:
        values: tuple[Literal, ...] = (leaf.value,)
    elif isinstance(leaf, OneOf) and len(leaf.values) <= ONE_OF_MAX:
        values = leaf.values
    else:
        return []
    return list(dict.fromkeys((value,) if isinstance(value, bool) else value for value in values))


def _type_and_those_above(name: str) -> list[str]:
    """`alarm.fire` and `alarm`."""
    names = [name]
    while "." in name:
        name = name[: name.rindex(".")]
        names.append(name)
    return names
