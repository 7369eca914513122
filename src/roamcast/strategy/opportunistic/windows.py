"""Which events of each producer have been handled for a client: small enough to move with the client.

Events of one producer come in order but for accidents, so the highest sequence and a window below it tell
nearly all. What lies below the window is taken for new: it can only be an event that waited behind a
partition, and the client's own core still drops it if it knows it. Memorized events are another matter:
several brokers may serve old ones to a new subscriber. The identities of the last ones are known here; they
do not move.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from roamcast.event import Count, EventId

WIDTH = 128
MEMORIZED_MAX = 2_048
WINDOWS_MAX = 512  # producers of one client; the one that was silent for longest goes


class Window(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """As it travels. Bit n of `below` (little endian): sequence `highest - 1 - n` was handled."""

    publisher: Count
    highest: Count
    below: Annotated[bytes, msgspec.Meta(max_length=WIDTH // 8)]


class Windows:
    def __init__(self, windows: Iterable[Window] = ()) -> None:
        self._windows = {w.publisher: (w.highest, int.from_bytes(w.below, "little")) for w in windows}
        self._memorized: dict[EventId, None] = {}

    def observe(self, event: EventId, *, is_memorized: bool = False) -> bool:
        """True the first time."""
        is_new = self._observe(event)
        if not is_memorized:
            return is_new
        is_known = event in self._memorized
        if not is_known:
            if len(self._memorized) >= MEMORIZED_MAX:
                del self._memorized[next(iter(self._memorized))]
            self._memorized[event] = None
        return is_new and not is_known

    def export(self) -> tuple[Window, ...]:
        return tuple(
            Window(publisher, highest, below.to_bytes((below.bit_length() + 7) // 8, "little"))
            for publisher, (highest, below) in self._windows.items()
        )

    def _observe(self, event: EventId) -> bool:
        known = self._windows.pop(event.publisher, None)
        if known is None:
            if len(self._windows) >= WINDOWS_MAX:
                del self._windows[next(iter(self._windows))]
            self._windows[event.publisher] = (event.sequence, 0)
            return True
        highest, below = known
        ahead = event.sequence - highest
        is_new = ahead > 0
        if ahead > WIDTH:
            highest, below = event.sequence, 0
        elif ahead > 0:
            highest, below = event.sequence, (below << ahead | 1 << ahead - 1) & (1 << WIDTH) - 1
        elif ahead < 0:
            bit = -ahead - 1
            is_new = bit >= WIDTH or not below >> bit & 1
            if bit < WIDTH:
                below |= 1 << bit
        self._windows[event.publisher] = (highest, below)
        return is_new
