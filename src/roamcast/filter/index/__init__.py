"""Finding, among many filters, those that match an event, without trying each.

Read `matching.py` (where a filter is kept and how it is found), then `block.py` and `bitmap.py` (many filters
in one place), `rows.py` and `layout.py` (how an attribute's value rules filters out).
`benchmarks/matching.py` has the costs; a change builds at most one bitmap anew.

The answer is exactly that of `Filter.matches`: where the index is not certain, it evaluates the
filter. Not done: a condition that must be false (NOT of a topic, type or pattern) never narrows the
search; more than 48 attributes in one bitmap; new cuts for a full bitmap when its attributes' later constants
lie elsewhere (it stays exact and becomes slower); a choice of access path by the events actually seen.
"""

from roamcast.filter.index.matching import MatchingIndex

__all__ = ["MatchingIndex"]
