"""Retained messages: the last word on each topic, on a mesh where nobody decides which was last.

A retained message is a memorized event. All of them that still live are stored; the newest of a topic is
the one that a new subscriber is shown, and one without payload says that there is none (it is memorized
too, so it clears the topic on nodes that come back later).

"Newest" must be the same on every node. Each retained message carries a stamp `mqtt.at`: the publishing
node's clock in microseconds, moved past every stamp the node has seen on that topic (a hybrid logical
clock). So who has seen a message and publishes again is newer, whatever the clocks say; messages published
apart from each other are ordered by clock, then by node and sequence number.
"""

from collections.abc import Iterable

from roamcast.broker.store import StoredEvent
from roamcast.event import Event
from roamcast.gateway.mqtt.mapping import AT, is_retained
from roamcast.units import Micros

TOPICS_MAX = 10_000  # whose last stamp is remembered; beyond, the least recently used is forgotten
STAMP_AHEAD_MAX: Micros = 86_400_000_000
"""A stamp further ahead of our clock than a day moves nothing: one wild clock must not push all others."""


class RetainedStamps:
    def __init__(self) -> None:
        self._last: dict[str, Micros] = {}  # by topic, least recently used first

    def on_event(self, event: Event, now: Micros) -> None:
        """A retained event was delivered here."""
        stamp = _stamp(event)
        if stamp <= now + STAMP_AHEAD_MAX:
            self._remember(event.topic, max(stamp, self._last.pop(event.topic, 0)))

    def next(self, topic: str, now: Micros) -> Micros:
        """The stamp for a message that is about to be published."""
        stamp = max(now, self._last.pop(topic, 0) + 1)
        self._remember(topic, stamp)
        return stamp

    def __len__(self) -> int:
        return len(self._last)

    def _remember(self, topic: str, stamp: Micros) -> None:
        self._last[topic] = stamp
        if len(self._last) > TOPICS_MAX:
            del self._last[next(iter(self._last))]


def newest_retained(stored: Iterable[StoredEvent]) -> list[StoredEvent]:
    """The newest retained event of each topic, cleared topics left out, oldest arrival first."""
    newest: dict[str, StoredEvent] = {}
    for entry in stored:
        event = entry.event
        if not is_retained(event):
            continue
        other = newest.get(event.topic)
        if other is None or _order(other.event) < _order(event):
            newest[event.topic] = entry
    return [entry for entry in newest.values() if entry.event.payload]


def _order(event: Event) -> tuple[int, int, int]:
    return _stamp(event), event.publisher, event.sequence


def _stamp(event: Event) -> Micros:
    stamp = event.attributes.get(AT)
    return stamp if type(stamp) is int else 0
