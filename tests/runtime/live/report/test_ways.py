"""What a node remembers of the ways of events."""

from roamcast.event import Event
from roamcast.runtime.live.inputs import Clock
from roamcast.runtime.live.report.ways import EventWays


class Standing:
    def monotonic_ns(self) -> int:
        return 0

    def time_ns(self) -> int:
        return 0


def test_a_delivered_event_has_its_topic_though_its_arrival_was_not_noted() -> None:
    """In a burst not every step is noted, and old ones are forgotten."""
    ways = EventWays(Clock(Standing()))
    event = Event(7, 1, {}, topic="alarm/avalanche")
    ways.delivered(event, 1)
    assert ways.lately(1)[0].topic == "alarm/avalanche"
    assert ways.of(7, 1, False, {}).steps[0].detail == "1 subscription"
