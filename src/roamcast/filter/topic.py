"""MQTT topic filters (MQTT 5.0, section 4.7, the same as MQTT 3.1.1).

Levels are separated by `/` and may be empty. `+` stands for one whole level; `#`, last only, for any
number of levels, the parent included (`sport/#` matches `sport`). A filter whose first level is a
wildcard does not match topics that begin with `$`. An event without a topic (the empty text, which
MQTT forbids) matches no filter.

Left out: shared subscriptions (`$share/…`, MQTT 5.0 section 4.8.2); the gateway splits them.
"""

from collections.abc import Callable

from roamcast.errors import FilterError
from roamcast.event import topic_text_problem


def check_topic_filter(topic_filter: str) -> None:
    """Raise FilterError unless the text is an MQTT topic filter."""
    problem = topic_text_problem(topic_filter)
    levels = topic_filter.split("/")
    for at, level in enumerate(levels):
        if "#" in level and (level != "#" or at != len(levels) - 1):
            problem = problem or "'#' must be a level of its own, and the last"
        if "+" in level and level != "+":
            problem = problem or "'+' must be a level of its own"
    if problem:
        raise FilterError(f"topic filter {topic_filter[:80]!r}", problem)


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid filter matches a topic."""
    return topic_matcher(topic_filter)(topic)


def topic_matcher(topic_filter: str) -> Callable[[str], bool]:
    """`topic_matches` prepared for many topics."""
    levels = topic_filter.split("/")
    if levels[-1] != "#" and "+" not in levels:
        return lambda topic: topic == topic_filter
    open_ended = levels[-1] == "#"
    fixed = levels[:-1] if open_ended else levels
    # Only the levels that must agree literally are compared.
    literal = [(at, level) for at, level in enumerate(fixed) if level != "+"]
    wildcard_first = levels[0] in ("+", "#")
    count = len(fixed)

    def matches(topic: str) -> bool:
        if not topic or (wildcard_first and topic[0] == "$"):
            return False
        parts = topic.split("/")
        if len(parts) < count or (len(parts) > count and not open_ended):
            return False
        return all(parts[at] == level for at, level in literal)

    return matches


def topic_covers(wide: str, narrow: str) -> bool:
    """True exactly if every topic that `narrow` matches is matched by `wide`."""
    above, below = wide.split("/"), _levels_needed(narrow)
    if above[0] in ("+", "#") and below[0].startswith("$"):
        return False
    for at, level in enumerate(above):
        if level == "#":
            return True
        if at >= len(below) or below[at] == "#":
            return False  # `narrow` also matches the parent topic, which ends before this level
        if level not in ("+", below[at]):
            return False
    return len(above) == len(below)


def topics_overlap(left: str, right: str) -> bool:
    """True exactly if some topic is matched by both filters."""
    ours, theirs = _levels_needed(left), _levels_needed(right)
    for one, other in ((ours, theirs), (theirs, ours)):
        if one[0] == "+" and other[0].startswith("$"):
            return False
    for mine, yours in zip(ours, theirs, strict=False):
        if "#" in (mine, yours):
            return True
        if "+" not in (mine, yours) and mine != yours:
            return False
    longer = max(ours, theirs, key=len)
    return longer[min(len(ours), len(theirs)) :] in ([], ["#"])


def canonical_topic_filter(topic_filter: str) -> str:
    """One spelling for filters that match the same topics; there are two such pairs."""
    return {"+/#": "#", "/+/#": "/#"}.get(topic_filter, topic_filter)


def _levels_needed(topic_filter: str) -> list[str]:
    """The levels, with those made explicit that every topic has: the first, and one after an empty
    first one, because the empty text is no topic."""
    return {"#": "+/#", "/#": "/+/#"}.get(topic_filter, topic_filter).split("/")
