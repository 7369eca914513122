"""Readers: each wants every event of every producer once and in its order, and knows what it lacks.

A reader has a cursor for each producer: the last event that was handled, or is known not to matter. An event
comes with a base, the event of its producer before which the reader lacks nothing. If that lies behind the
cursor, the event is next; else it waits, and what is between is a hole. Holes are closed by copies that come
by any way, or by asking the producer (`reading.py`).

So a reader can be moved to another node, with its cursors and nothing else; the ways of events have no part
in it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from roamcast.strategy.opportunistic.copies import EventCopy
from roamcast.strategy.opportunistic.messages import CURSORS_MAX
from roamcast.units import Micros, NodeId

WAITING_MAX = 10_000  # events of one producer that came too early


def mark(consumer: NodeId, is_modulated: bool) -> int:
    """A reader as one number."""
    return 2 * consumer + is_modulated


class Hole(NamedTuple):
    """`after`: the first sequence that may be lacking; `until`: the last. `since`: noticed then."""

    producer: NodeId
    after: int
    until: int
    since: Micros


class Early(NamedTuple):
    copy: EventCopy
    base: int


class EventReader:
    def __init__(
        self,
        consumer: NodeId,
        *,
        is_modulated: bool,
        since: Micros,
        on_next: Callable[[EventCopy], None],
        cursors: Iterable[tuple[NodeId, int]] = (),
    ) -> None:
        """Wants nothing that was published before `since`; `on_next` gets each event in its turn."""
        self.consumer = consumer
        self.is_modulated = is_modulated
        self.mark = mark(consumer, is_modulated)
        self.since = since
        self.on_next = on_next
        self.cursors: dict[NodeId, int] = dict(cursors)
        self._waiting: dict[NodeId, dict[int, Early]] = {}
        self._heads: dict[NodeId, int] = {}  # what is known to have been sent
        self._noticed: dict[NodeId, Micros] = {}  # holes

    # Inputs.

    def take(self, copy: EventCopy, base: int, now: Micros) -> None:
        producer, sequence = copy.event.id
        if sequence <= self.cursors.get(producer, -1):
            return
        early = Early(copy, base)
        if producer not in self._waiting and self._is_next(producer, early):
            self._set(producer, sequence)
            self.on_next(copy)
            self._note_hole(producer, now, has_moved=True)
            return
        waiting = self._waiting.setdefault(producer, {})
        known = waiting.get(sequence)
        if known is None or base < known.base:
            if len(waiting) >= WAITING_MAX:
                self._give_up(producer)
            waiting[sequence] = early
        self._advance(producer, now)

    def on_head(self, producer: NodeId, until: int, now: Micros, *, is_all: bool) -> None:
        """Events until then have been sent. `is_all`: what has not come is not to be had."""
        cursor = self.cursors.get(producer, -1)
        if until <= cursor:
            return
        if not is_all:
            self._heads[producer] = max(self._heads.get(producer, -1), until)
            self._noticed.setdefault(producer, now)
            return
        for sequence in sorted(n for n in self._waiting.get(producer, {}) if n <= until):
            self._hand_on(producer, sequence)
        self._set(producer, max(self.cursors.get(producer, -1), until))
        self._advance(producer, now)

    def give_up(self, before: Micros, now: Micros) -> None:
        """Holes that were noticed before that will not be closed any more."""
        for producer in [p for p, noticed in self._noticed.items() if noticed < before]:
            self._heads.pop(producer, None)
            self._give_up(producer)
            self._advance(producer, now)

    def take_waiting(self) -> list[Early]:
        """What came too early, for whoever reads on."""
        waiting = [early for theirs in self._waiting.values() for _, early in sorted(theirs.items())]
        self._waiting.clear()
        return waiting

    # Questions.

    def holes(self) -> list[Hole]:
        return [self._hole(producer, since) for producer, since in self._noticed.items()]

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    # Private.

    def _hole(self, producer: NodeId, since: Micros) -> Hole:
        waiting = self._waiting.get(producer)
        until = waiting[min(waiting)].base - 1 if waiting else -1
        cursor = self.cursors.get(producer, -1)
        return Hole(producer, cursor + 1, max(until, self._heads.get(producer, -1)), since)

    def _advance(self, producer: NodeId, now: Micros) -> None:
        waiting = self._waiting.get(producer, {})
        has_moved = False
        while waiting:
            sequence = min(waiting)
            if not self._is_next(producer, waiting[sequence]):
                break
            self._hand_on(producer, sequence)
            has_moved = True
        if not waiting:
            self._waiting.pop(producer, None)
        self._note_hole(producer, now, has_moved=has_moved)

    def _note_hole(self, producer: NodeId, now: Micros, *, has_moved: bool) -> None:
        """Since when something of a producer is lacking, if it is."""
        if not (self._heads or self._noticed or self._waiting):
            return
        cursor = self.cursors.get(producer, -1)
        if self._heads.get(producer, cursor) <= cursor:
            self._heads.pop(producer, None)
        if producer not in self._waiting and producer not in self._heads:
            self._noticed.pop(producer, None)
        elif has_moved or producer not in self._noticed:
            self._noticed[producer] = now

    def _is_next(self, producer: NodeId, early: Early) -> bool:
        copy, base = early
        cursor, sequence = self.cursors.get(producer), copy.event.sequence
        head = self._heads.get(producer, -1)
        if (-1 if cursor is None else cursor) < head < sequence:
            return False
        if base == 0:
            return True
        if cursor is None:
            # The one before was published before anything was wanted.
            return base == copy.previous and copy.published_at - copy.gap < self.since
        return base - 1 <= cursor

    def _hand_on(self, producer: NodeId, sequence: int) -> None:
        copy = self._waiting[producer].pop(sequence).copy
        self._set(producer, max(self.cursors.get(producer, -1), sequence))
        self.on_next(copy)

    def _give_up(self, producer: NodeId) -> None:
        waiting = self._waiting.get(producer)
        if waiting:
            self._set(producer, max(waiting[min(waiting)].base - 1, self.cursors.get(producer, -1)))

    def _set(self, producer: NodeId, sequence: int) -> None:
        if producer not in self.cursors and len(self.cursors) >= CURSORS_MAX:
            del self.cursors[next(iter(self.cursors))]
        self.cursors[producer] = sequence
