"""Filters: who wants which event.

One small tree of conditions behind several languages, sent, compared, matched. To read in this order:

- `expression.py`: the nodes. `kind.py`: booleans, numbers and texts do not compare with each other.
- `filter.py`: `Filter`, the value that everything else uses: matches, covers, encode, text.
- `evaluate.py`: what each node means (three-valued, as in SQL), and the fast form of it.
- `sql.py`, `text.py`: SQL conditions in, canonical text out. `topic.py`: MQTT topic filters.
  `pattern.py`: LIKE patterns. `validity.py`: what every expression must keep to.
- `xpath/`: XPath conditions on XML events (`roamcast.xml`).
- `value_set.py`, `normal.py`: sets of values, and the normal form that is spelled back from them.
- `covering.py`: does one filter match all that another does?
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
