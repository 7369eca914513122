"""Retained messages: the newest message of each topic, on a mesh without a central broker.

A retained message is a memorized event, which replaces the older ones of its topic in the store of every node
that it reaches (`broker/retained.py`). New subscribers get the newest that their node has. A retained message
without payload clears the topic; it is memorized too, so it also clears the topic on nodes that come back
later.

"Newest" must be the same on every node. Each retained message carries a stamp `mqtt.at`: the publishing
node's clock in microseconds, moved past every stamp on that topic that the node has seen or holds (a hybrid
logical clock). So a message is newer than all that its publisher had seen, whatever the clocks say; messages
of publishers that had not seen each other's are ordered by clock, then by node and sequence number.
"""

from collections.abc import Callable, Iterable

from roamcast.broker.retained import is_retained, order_of, stamp_of
from roamcast.broker.store import StoredEvent
from roamcast.event import Event
from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.units import SECOND, Micros

# Both chosen by us.
TOPICS_MAX = 10_000  # whose last stamp is remembered; beyond, the least recently used is forgotten
SCAN_INTERVAL: Micros = SECOND


class RetainedStamps:
    """Stamps for retained messages that are published here. `held`: the retained events that the node holds,
    also for others; they are searched when a topic is unknown, at most once per `SCAN_INTERVAL`."""

    def __init__(self, held: Callable[[], Iterable[Event]], on_evicted: OnEvicted[str, Micros]) -> None:
        self._held = held
        # By topic, least recently used first.
        self._last: BoundedDict[str, Micros] = BoundedDict(TOPICS_MAX, on_evicted)
        self._scanned_at: Micros | None = None

    def on_event(self, event: Event) -> None:
        """A retained event was delivered here."""
        self._last.renew(event.topic, max(stamp_of(event), self._last.get(event.topic, 0)))

    def next(self, topic: str, now: Micros) -> Micros:
        """The stamp for a message that is about to be published; `now` on the wall clock."""
        if topic not in self._last and not self._has_scanned(now):
            for event in self._held():
                self.on_event(event)
        stamp = max(now, self._last.get(topic, 0) + 1)
        self._last.renew(topic, stamp)
        return stamp

    def __len__(self) -> int:
        return len(self._last)

    def _has_scanned(self, now: Micros) -> bool:
        if self._scanned_at is not None and 0 <= now - self._scanned_at < SCAN_INTERVAL:
            return True
        self._scanned_at = now
        return False


def newest_retained(stored: Iterable[StoredEvent]) -> list[StoredEvent]:
    """The newest retained event of each topic, cleared topics left out, oldest arrival first."""
    newest: dict[str, StoredEvent] = {}
    for entry in stored:
        event = entry.event
        if not is_retained(event):
            continue
        other = newest.get(event.topic)
        if other is None or order_of(other.event) < order_of(event):
            newest[event.topic] = entry
    return [entry for entry in newest.values() if entry.event.payload]
