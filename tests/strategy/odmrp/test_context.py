from itertools import count
from random import Random

from roamcast.event import Event, Value
from roamcast.strategy.odmrp.context import SubscriptionContext
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.summary.digest import EventDigest


def test_the_digest_of_the_event_before_serves_only_for_equal_content() -> None:
    options = OdmrpOptions()
    context = SubscriptionContext(1, list, options, Random(1), count().__next__, lambda node, summary: None)
    contents: list[tuple[dict[str, Value], str, str]] = [
        ({"a": 1}, "t", "x"),
        ({"a": 1}, "t", "x"),
        ({"a": True}, "t", "x"),
        ({"a": 1.5}, "t", "x"),
        ({"b": 1.5}, "t", "x"),
        ({"b": 1.5}, "u", "x"),
        ({"b": 1.5}, "u", "y"),
    ]
    for number, (attributes, topic, type_) in enumerate(contents):
        event = Event(1, number, attributes, bytes([number]), topic, type_)
        assert context.digest(event) == EventDigest.of(event, options.summary).encode()
