"""Memorized events that came and could not be kept: the disk is full, or the store is.

Some strategies offer an event again, others only a few times or never. So this node holds it in memory, as
far as there is room, and tries the store again until the store takes it or its lifetime ends. Until then it
does not count as kept: after a crash it must come from another node, and any further copy is treated like the
first.
"""

from collections.abc import Callable, Iterator
from typing import Final

from roamcast.broker.retained import supersedes
from roamcast.broker.seen import EventKey, event_key
from roamcast.broker.store import StoredEvent
from roamcast.chunks import is_chunk
from roamcast.host import CoreTimer, Host
from roamcast.kit.tables import BoundedDict
from roamcast.units import SECOND, Micros

# Chosen by us.
UNKEPT_MAX: Final = 20_000  # twice a full store
HELD_BYTES_MAX: Final = 8 * 1024 * 1024  # of those that are in memory; of the others, only that they came
REFUSED_PAUSE: Final[Micros] = 5 * SECOND  # from a refusal of the store to the next event that is tried


class UnkeptEvents:
    def __init__(
        self,
        host: Host,
        has_room: Callable[[StoredEvent], bool],
        is_kept: Callable[[StoredEvent], bool],
    ) -> None:
        """`has_room`: whether the store would take an event, if the disk does. `is_kept` tries that."""
        self._host = host
        self._has_room = has_room
        self._is_kept = is_kept
        self._events: BoundedDict[EventKey, StoredEvent | None] = BoundedDict(UNKEPT_MAX, self._left_out)
        self._bytes = 0
        self._refused_until: Micros = host.now()
        self._timer = CoreTimer(self._try_again)
        self._is_timed = False

    def __contains__(self, event: object) -> bool:
        return event in self._events

    def __len__(self) -> int:
        return len(self._events)

    def among(self, events: frozenset[EventKey]) -> frozenset[EventKey]:
        return events & self._events.keys()

    @property
    def is_refused(self) -> bool:
        """Whether the disk has refused an event lately: if so, it is no use to offer it another."""
        return self._host.now() < self._refused_until

    def add(self, refused: StoredEvent) -> None:
        key = event_key(*refused.event.id)
        self.discard(key)
        is_held = self._bytes + refused.size <= HELD_BYTES_MAX
        self._events[key] = refused if is_held else None
        self._bytes += refused.size if is_held else 0
        self._refused()

    def discard(self, event: EventKey) -> bool:
        """It is kept now, or another copy of it is here. Whether it was among these."""
        if event not in self._events:
            return False
        self._left_out(event, self._events.pop(event))
        return True

    # Private.

    def _left_out(self, _: EventKey, held: StoredEvent | None) -> None:
        self._bytes -= 0 if held is None else held.size

    def _refused(self) -> None:
        self._refused_until = self._host.now() + REFUSED_PAUSE
        self._pause()

    def _pause(self) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._host.set_timer(self._timer, self._host.now() + REFUSED_PAUSE)

    def _try_again(self) -> None:
        """Store the events in the order in which they came, until the disk refuses one. One for which the
        store itself has no room waits on: there may be room for others, that came over more hops."""
        self._is_timed = False
        full_at = -1  # hops
        for key, held in self._held():
            if held.expires_at > self._host.now():
                # A retained one has room of its own where it replaces another, which the store knows.
                is_refused = held.hops <= full_at and not supersedes(held.event)
                if not is_chunk(held.event) and (is_refused or not self._has_room(held)):
                    full_at = max(full_at, held.hops)
                    self._pause()
                    continue
                if not self._is_kept(held):
                    self._refused()
                    return
            self.discard(key)

    def _held(self) -> Iterator[tuple[EventKey, StoredEvent]]:
        return ((key, held) for key, held in list(self._events.items()) if held is not None)
