"""A set of filters in which the covered ones are hidden: what has to be announced to a neighbour.

Every hidden filter is a child of one that covers it, up to a filter that nothing here covers. So removing a
filter concerns only its children: they move to its parent or are placed anew. `Filter.covers` is sound but
incomplete; even so, whatever a hidden filter matches, a visible one matches too. For filters that it compares
completely, the visible ones do not depend on the order of adding: they are the maximal ones, and among
filters of equal meaning the one with the smallest encoding.

Most filters of a client with thousands of them name one topic each. Two that name different ones cover
nothing of each other, so a filter is compared with those of its own topic and with those that name none.
"""

from collections.abc import KeysView
from functools import lru_cache

from roamcast.filter import Filter
from roamcast.filter.expression import And, OnTopic
from roamcast.units import Micros


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

    def __len__(self) -> int:
        return len(self._count)

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
