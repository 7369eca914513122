"""The event store of a live node: in memory for the broker core, written through to `Storage`.

Lifetimes are on the node's own clock, which restarts at each boot. Across boots the wall clock is used.
"""

from collections.abc import Callable
from contextlib import suppress

from roamcast.broker.retained import order_of
from roamcast.broker.store import BYTES_MAX, ENTRIES_MAX, EventStore, StoredEvent, StoreFullError
from roamcast.chunks.form import is_chunk
from roamcast.event import EventId
from roamcast.runtime.live.storage.database import Storage
from roamcast.units import Micros


class DurableEventStore(EventStore):
    def __init__(
        self,
        storage: Storage,
        now: Micros,
        wall_clock: Callable[[], Micros],
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Loads what was kept before. `now`: the node's clock; `wall_clock`: microseconds since 1970."""
        super().__init__(entries_max=entries_max, bytes_max=bytes_max)
        self._storage = storage
        self._wall_clock = wall_clock
        self._replaced: EventId | None = None  # on the disk, by the event that is being kept
        self._is_loaded = False
        for kept in storage.events(wall_clock()):
            self.keep(kept.event, now + kept.remaining, kept.hops, now)
            if kept.event.id not in self:
                self._remove_from_disk(kept.event.id)
        self._is_loaded = True
        self._from_before = {topic: order_of(entry.event) for topic, entry in self._newest.items()}

    def _write(self, entry: StoredEvent, before: EventId | None, now: Micros) -> None:
        """Durable after the next `Storage.commit`."""
        if self._is_loaded:
            event, left, wall_now = entry.event, entry.expires_at - now, self._wall_clock()
            lazy = is_chunk(event)
            self._storage.keep(event, left, entry.hops, wall_now, instead_of=before, is_lazy=lazy)
            self._replaced = before

    def _remove(self, event: EventId) -> StoredEvent:
        if event != self._replaced:
            self._remove_from_disk(event)
        return super()._remove(event)

    def _remove_from_disk(self, event: EventId) -> None:
        # A disk may be too full even for a deletion; then the next boot finds that the event has expired.
        with suppress(StoreFullError):
            self._storage.remove(event)
