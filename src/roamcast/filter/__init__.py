"""Filters: who wants which event.

Several languages become one small tree of conditions, which is sent, compared and matched. To read in this
order:

- `expression.py`: the nodes, and the kinds of values: booleans, numbers and texts do not compare with each
other.
- `filter.py`: `Filter`, the value that everything else uses: matches, covers, encode, text.
- `evaluate.py`: what each node means (three-valued, as in SQL), and the fast form of it.
- `sql.py`, `text.py`: SQL conditions in, canonical text out. `topic.py`: MQTT topic filters.
  `pattern.py`: LIKE patterns. `validity.py`: the bounds and rules for every expression.
- `xpath/`: XPath conditions on XML events (`roamcast.xml`).
- `place.py`: circles on the earth, and the boxes around them.
- `value_set.py`, `normal.py`: sets of values, and the normal form that is written from them.
- `covering.py`: whether one filter matches all that another does.
- `index/`: which of many filters match an event (`MatchingIndex`).

Left out: arithmetic, functions, comparing attributes with each other, dates.
`docs/use/filters.md` is the language for users, `docs/use/xml.md` that of XPath.
"""

from roamcast.filter.expression import Expression
from roamcast.filter.filter import Filter
from roamcast.filter.topic import check_topic_filter, topic_covers, topic_matches

__all__ = [
    "Expression",
    "Filter",
    "check_topic_filter",
    "topic_covers",
    "topic_matches",
]
