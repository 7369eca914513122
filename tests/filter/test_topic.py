"""MQTT 5.0, section 4.7: its own examples, and every short filter against every short topic."""

import itertools
import re

import pytest

from roamcast.errors import FilterError
from roamcast.event import topic_problem
from roamcast.filter.topic import (
    check_topic_filter,
    topic_covers,
    topic_matches,
    topics_overlap,
)

EXAMPLES = [  # the section's text, in its order
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/tennis/player1/#", "sport/tennis/player10", False),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player2", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+", "sport", True),
    ("+/tennis/#", "sport/tennis/x", True),
    ("sport/+/player1", "sport/tennis/player1", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("#", "$SYS/broker", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/broker/load", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("ACCOUNTS", "Accounts", False),
    ("/", "/", True),
    ("/finance", "finance", False),
    ("#", "", False),  # an event without a topic
]


@pytest.mark.parametrize(("topic_filter", "topic", "expected"), EXAMPLES)
def test_examples_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    check_topic_filter(topic_filter)
    assert topic_matches(topic_filter, topic) is expected


@pytest.mark.parametrize(
    "topic_filter", ["", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "a/+b", "a\0"]
)
def test_what_is_no_topic_filter_is_refused(topic_filter: str) -> None:
    with pytest.raises(FilterError, match="topic filter"):
        check_topic_filter(topic_filter)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0", "x" * 5000])
def test_what_is_no_topic_is_refused(topic: str) -> None:
    assert topic_problem(topic)


FILTERS = [
    "/".join(levels)
    for count in (1, 2, 3)
    for levels in itertools.product(["a", "+", "#", "$s", ""], repeat=count)
    if "#" not in levels[:-1] and levels != ("",)
]
TOPICS = [
    "/".join(levels)
    for count in (1, 2, 3, 4)
    for levels in itertools.product(["a", "z", "$s", ""], repeat=count)
    if levels != ("",)
]


def matched_by_regular_expression(topic_filter: str) -> frozenset[str]:
    """An independent reading of the section."""
    if topic_filter == "#":
        source = ".*"
    else:
        source = "/".join("[^/]*" if level == "+" else re.escape(level) for level in topic_filter.split("/"))
        source = re.sub(r"/\\#$", "(/.*)?", source)
    guard = "(?![$])" if topic_filter[0] in "+#" else ""
    return frozenset(topic for topic in TOPICS if re.fullmatch(guard + source, topic))


MATCHED = {topic_filter: matched_by_regular_expression(topic_filter) for topic_filter in FILTERS}


def test_every_short_filter_matches_what_the_reference_matches() -> None:
    for topic_filter in FILTERS:
        found = frozenset(topic for topic in TOPICS if topic_matches(topic_filter, topic))
        assert found == MATCHED[topic_filter], topic_filter


def test_covering_is_exactly_inclusion_and_overlap_exactly_intersection() -> None:
    for wide, narrow in itertools.product(FILTERS, repeat=2):
        assert topic_covers(wide, narrow) is (MATCHED[narrow] <= MATCHED[wide]), (wide, narrow)
        assert topics_overlap(wide, narrow) is bool(MATCHED[narrow] & MATCHED[wide]), (wide, narrow)
