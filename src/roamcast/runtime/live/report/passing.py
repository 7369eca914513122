"""The events that pass this node, for as long as somebody looks.

Nothing is noted while nobody asks: `looked` begins it, and `LOOK` after the last question it ends.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from roamcast.broker.core import Delivery
from roamcast.event import Event, EventId
from roamcast.units import SECOND, Micros

LOOK: Micros = 30 * SECOND  # chosen by us, as is the next
EVENTS_MAX = 200


class PassingRecord:
    __slots__ = ("at", "delivered", "dropped", "frames", "is_own", "size", "topic")

    def __init__(self) -> None:
        self.at: Micros = 0
        self.topic: str | None = None
        self.size: int | None = None
        self.is_own = False
        self.delivered = 0
        self.frames = 0
        self.dropped = ""


class PassingEvents:
    def __init__(self, now: Callable[[], Micros]) -> None:
        self._now = now
        self._looked_at: Micros | None = None
        self._records: OrderedDict[EventId, PassingRecord] = OrderedDict()  # the last touched last

    def looked(self) -> None:
        """Somebody asks."""
        self._looked_at = self._now()

    def look(self, now: Micros) -> None:
        """Once a second: end what nobody asks about any more."""
        if self._looked_at is not None and now - self._looked_at > LOOK:
            self._looked_at = None
            self._records.clear()

    def latest_first(self) -> Iterator[tuple[EventId, PassingRecord]]:
        return reversed(self._records.items())

    def published(self, event: Event) -> None:
        if self._looked_at is not None:
            self._touched(event).is_own = True

    def delivered(self, delivery: Delivery) -> None:
        if self._looked_at is not None:
            self._touched(delivery.event).delivered += 1

    def sent(self, event: EventId) -> None:
        if self._looked_at is not None:
            self._record(event).frames += 1

    def dropped(self, event: EventId, reason: str) -> None:
        if self._looked_at is not None:
            self._record(event).dropped = reason

    # Private.

    def _touched(self, event: Event) -> PassingRecord:
        record = self._record(event.id)
        record.topic = event.topic
        record.size = len(event.payload)
        return record

    def _record(self, event: EventId) -> PassingRecord:
        record = self._records.get(event)
        if record is None:
            record = self._records[event] = PassingRecord()
            if len(self._records) > EVENTS_MAX:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(event)
        record.at = self._now()
        return record
