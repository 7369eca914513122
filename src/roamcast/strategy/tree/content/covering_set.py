"""A set of filters in which the covered ones are hidden: what has to be announced to a neighbour.

Every hidden filter is a child of one that covers it, up to a filter that nothing here covers. So removing a
filter concerns only its children: they move to its parent or are placed anew. `Filter.covers` is sound but
incomplete; even so, whatever a hidden filter matches, a visible one matches too. For filters that it compares
completely, the visible ones do not depend on the order of adding: they are the maximal ones, and among
filters of equal meaning the one with the smallest encoding.

Most filters of a client with thousands of them name one topic each. Two that name different ones cover
nothing of each other, so a filter is compared with those of its own topic and with those that name none.

`widened` gives fewer and wider filters for a set that is too large to be announced one by one. A wider filter
costs events that nobody wants on a link; a long list costs a table update with every link that is replaced,
and in a dense network that moves those updates took more of the air than the events. So a set keeps its exact
filters up to a bound. Beyond it, the filters that ask for the same attributes become one, whose values of
each attribute are the union of theirs, and where that union has many gaps, all between its ends. What still
exceeds the bound becomes one filter that matches everything. The result depends on the set alone, not on the
order in which it came about (`tables.py` needs that).
"""

from collections.abc import Collection, KeysView
from functools import lru_cache

from roamcast.errors import FilterError
from roamcast.filter import Filter
from roamcast.filter.expression import TRUE, And, Expression, OnTopic
from roamcast.filter.normal import attribute_set, spelled
from roamcast.filter.value_set import Cuts, ValueSet
from roamcast.units import Micros

EVERYTHING = Filter.everything()
CUTS_MAX = 16  # ends of ranges and single values of one attribute before the gaps are filled; chosen by us


class CoveringSet:
    """Each filter counts as often as it was added. `since` is the earliest time given with it."""

    def __init__(self) -> None:
        self._count: dict[Filter, int] = {}
        self._since: dict[Filter, Micros] = {}
        self._visible: dict[Filter, None] = {}
        self._by_topic: dict[str | None, dict[Filter, None]] = {}  # the visible ones; None: name no one topic
        self._above: dict[Filter, Filter] = {}
        self._below: dict[Filter, dict[Filter, None]] = {}

    def add(self, wanted: Filter, since: Micros) -> None:
        if wanted in self._count:
            self._count[wanted] += 1
            self._since[wanted] = min(since, self._since[wanted])
            return
        self._count[wanted] = 1
        self._since[wanted] = since
        self._place(wanted)

    def remove(self, wanted: Filter) -> None:
        self._count[wanted] -= 1
        if self._count[wanted]:
            return
        del self._count[wanted], self._since[wanted]
        above = self._above.pop(wanted, None)
        below = self._below.pop(wanted, {})
        if above is not None:
            del self._below[above][wanted]
            for each in below:
                self._hang(each, above)
            return
        self._hide(wanted)
        for each in sorted(below, key=Filter.encode):
            del self._above[each]
            self._place(each)

    def visible(self) -> KeysView[Filter]:
        """The filters that no other one covers."""
        return self._visible.keys()

    def since(self, wanted: Filter) -> Micros | None:
        return self._since.get(wanted)

    def oldest(self) -> Micros | None:
        return min(self._since.values(), default=None)

    def _place(self, wanted: Filter) -> None:
        topic = _one_topic(wanted)
        compared = list(self._visible)
        if topic is not None:
            compared = [*self._by_topic.get(topic, ()), *self._by_topic.get(None, ())]
        for other in compared:
            if _covers(other, wanted) and not _stands_for(wanted, other):
                self._hang(wanted, other)
                return
        for other in [each for each in compared if _covers(wanted, each)]:
            self._hide(other)
            self._hang(other, wanted)
        self._visible[wanted] = None
        self._by_topic.setdefault(topic, {})[wanted] = None

    def _hide(self, wanted: Filter) -> None:
        del self._visible[wanted]
        topic = _one_topic(wanted)
        del self._by_topic[topic][wanted]
        if not self._by_topic[topic]:
            del self._by_topic[topic]

    def _hang(self, below: Filter, above: Filter) -> None:
        self._above[below] = above
        self._below.setdefault(above, {})[below] = None


def _one_topic(wanted: Filter) -> str | None:
    """The only topic whose events it matches, if it names one."""
    expression = wanted.expression
    for term in expression.terms if isinstance(expression, And) else (expression,):
        if isinstance(term, OnTopic) and not {"+", "#"}.intersection(term.topic_filter):
            return term.topic_filter
    return None


def _stands_for(wanted: Filter, other: Filter) -> bool:
    """Of two filters that cover each other, the one with the smaller encoding is visible."""
    return wanted.encode() < other.encode() and _covers(wanted, other)


# A comparison takes tens of microseconds, and neighbours and links compare the same filters.
@lru_cache(maxsize=1 << 16)
def _covers(wide: Filter, narrow: Filter) -> bool:
    return wide.covers(narrow)


def widened(filters: Collection[Filter], most: int) -> Collection[Filter]:
    """At most `most` filters that together match all that the given ones match."""
    if len(filters) <= most:
        return filters
    boxes: dict[tuple[str, ...], dict[str, ValueSet]] = {}
    result: set[Filter] = set()
    for each in filters:
        box = _box(each.expression)
        if box is None:
            result.add(each)
            if len(result) > most:
                return (EVERYTHING,)
            continue
        attributes = tuple(sorted(box))
        known = boxes.get(attributes, box)
        boxes[attributes] = {name: known[name].union(box[name]) for name in attributes}
    if len(result) + len(boxes) > most:
        return (EVERYTHING,)
    result.update(_filter(box) for box in boxes.values())
    return [each for each in result if not any(other != each and other.covers(each) for other in result)]


def _box(expression: Expression) -> dict[str, ValueSet] | None:
    """The values that each attribute may have; None if the filter asks for anything else."""
    terms = expression.terms if isinstance(expression, And) else (expression,)
    box: dict[str, ValueSet] = {}
    for term in terms:
        found = attribute_set(term)
        if found is None:
            return None
        name, values = found
        box[name] = box[name].intersection(values) if name in box else values
    return box


def _filter(box: dict[str, ValueSet]) -> Filter:
    terms = [spelled(name, _without_gaps(values)) for name, values in sorted(box.items())]
    asking = tuple(term for term in terms if term != TRUE)
    try:
        return Filter(And(asking) if len(asking) > 1 else asking[0]) if asking else EVERYTHING
    except FilterError:
        return EVERYTHING  # too long for a filter, whatever the bound says


def _without_gaps(values: ValueSet) -> ValueSet:
    return ValueSet(values.plain, _hull(values.numbers), _hull(values.texts))


def _hull(cuts: Cuts) -> Cuts:
    return cuts if len(cuts) <= CUTS_MAX else (cuts[0], cuts[-1])
