"""Fewer and wider filters for a set that is too large to be announced one by one.

A wider filter costs events that nobody wants on a link; a long list costs a table update with every link
that is replaced, and in a dense network that moves those updates took more of the air than the events. So a
set keeps its exact filters up to a bound. Beyond it, the filters that ask for the same attributes become one,
whose values of each attribute are the union of theirs, and where that union has many gaps, all between its
ends. What still exceeds the bound becomes one filter that matches everything.

The result depends on the set alone, not on the order in which it came about (`tables.py` needs that).
"""

from collections.abc import Collection

from roamcast.errors import FilterError
from roamcast.filter import Filter
from roamcast.filter.expression import TRUE, And, Expression
from roamcast.filter.normal import attribute_set, spelled
from roamcast.filter.value_set import Cuts, ValueSet

EVERYTHING = Filter.everything()
CUTS_MAX = 16  # ends of ranges and single values of one attribute before the gaps are filled; chosen by us


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
