"""Finding, among many filters, those that match an event, without trying each.

Read `matching.py` (where a filter is kept and how it is found), then `block.py`, `bitmap.py` and
`column.py` (what happens where many filters share a place), `topics.py` beside them.

Costs (`benchmarks/matching.py`): about 0.9 kB for a filter of three conditions beside the filter itself,
and 0.15 ms to add one, rebuilds included. A rebuild stops the world: a second or so per 20,000 filters.

The answer is exactly that of `Filter.matches`: whatever the index is not certain of, it asks the
filter. Not done: a condition that must be false (NOT of a topic, type or pattern) never narrows the
search; more than 48 attributes in one bitmap; a choice of access path by the events actually seen.
"""

from roamcast.filter.index.matching import MatchingIndex

__all__ = ["MatchingIndex"]
