"""Finding, among many filters, those that match an event, without trying each.

Read `matching.py` (where a filter is kept and how it is found), then `block.py`, `bitmap.py` and
`column.py` (many filters in one place), and `topics.py`.

Costs (`benchmarks/matching.py`): about 0.9 kB for a filter of three conditions beside the filter itself,
and 0.15 ms to add one, rebuilds included. A rebuild blocks the node: about a second per 20,000 filters.

The answer is exactly that of `Filter.matches`: where the index is not certain, it evaluates the
filter. Not done: a condition that must be false (NOT of a topic, type or pattern) never narrows the
search; more than 48 attributes in one bitmap; a choice of access path by the events actually seen.
"""

from roamcast.filter.index.matching import MatchingIndex

__all__ = ["MatchingIndex"]
