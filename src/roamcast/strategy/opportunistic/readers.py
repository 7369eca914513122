"""Readers: each wants every event of every producer once and in its order, and knows what it lacks.

A reader has a cursor for each producer: the last event that was handled, or is known not to matter. An event
comes with a base, the event of its producer before which the reader lacks nothing. If that lies behind the
cursor, the event is next; else it waits, and what is between is a hole. Holes are closed by copies that come
by any way, or by asking. So a reader can be moved to another node, with its cursors and nothing else; the
ways of events have no part in it.

`NodeReading` has the readers of one node: of its own applications, and of the modulators of clients at home
here. Neighbours are asked first where an event was flooded (`floods.py`), so a hole waits a moment for them.
Then the producer itself is asked, or its home broker where the producer is out of reach. Whoever is asked
sends what the consumer's filters match, and says that this was all.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from roamcast.broker.store import StoreFullError
from roamcast.event import Event, EventClass
from roamcast.kit.protocol import Timer
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.consumers import opened
from roamcast.strategy.opportunistic.copies import EventCopy, FloodBase
from roamcast.strategy.opportunistic.messages import CURSORS_MAX, CarryMessage, Fetch, Head
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.trace import PathsSampled
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

WAITING_MAX = 10_000  # events of one producer that came too early
TICK: Micros = 250 * MILLISECOND
NEIGHBOURS_FIRST: Micros = 2_500 * MILLISECOND
AGAIN: Micros = 3 * SECOND
SENT_AT_ONCE = 100  # events in answer to one question
NEXT_LOOKED_AT = 64  # events behind a hole: was one of them flooded?
NEVER: Micros = 1 << 62


def mark(consumer: NodeId, is_modulated: bool) -> int:
    """A reader as one number."""
    return 2 * consumer + is_modulated


class Hole(NamedTuple):
    """`after`: the first sequence that may be lacking; `until`: the last. `since`: noticed then, be it behind
    another hole."""

    producer: NodeId
    after: int
    until: int
    since: Micros


class Early(NamedTuple):
    copy: EventCopy
    base: int
    since: Micros = 0
    due: Micros = NEVER  # a memorized one waits no longer


class EventReader:
    def __init__(
        self,
        consumer: NodeId,
        *,
        is_modulated: bool,
        since: Micros,
        on_next: Callable[[EventCopy], None],
        on_early: Callable[[EventCopy], None] = lambda copy: None,
        cursors: Iterable[tuple[NodeId, int]] = (),
    ) -> None:
        """Wants nothing that was published before `since`; `on_next` gets each event in its turn, `on_early`
        each that has to wait for its turn: its sender does not hold it any more."""
        self.consumer = consumer
        self.is_modulated = is_modulated
        self.mark = mark(consumer, is_modulated)
        self.since = since
        self.on_next = on_next
        self._on_early = on_early
        self.cursors: BoundedDict[NodeId, int] = BoundedDict(CURSORS_MAX, unreported)
        self.cursors.update(cursors)
        self._waiting: dict[NodeId, dict[int, Early]] = {}
        self._heads: dict[NodeId, int] = {}  # what is known to have been sent
        self._noticed: dict[NodeId, Micros] = {}  # holes
        self._due: dict[NodeId, Micros] = {}  # when the first of those that wait has waited long enough

    # Inputs.

    def take(self, copy: EventCopy, base: int, now: Micros) -> None:
        producer, sequence = copy.event.id
        if sequence <= self.cursors.get(producer, -1):
            if copy.event.event_class is EventClass.MEMORIZED:
                self.on_next(copy)  # it was given up before: hand it over late, but only once
            return
        early = Early(copy, base, now)
        if producer not in self._waiting and self._is_next(producer, early):
            self.cursors[producer] = sequence
            self.on_next(copy)
            self._note_hole(producer, now, has_moved=True)
            return
        waiting = self._waiting.setdefault(producer, {})
        known = waiting.get(sequence)
        if known is None or base < known.base:
            if len(waiting) >= WAITING_MAX:
                self._give_up(producer)
            due = _due(copy, now)
            waiting[sequence] = Early(copy, base, now if known is None else known.since, due)
            self._due[producer] = min(due, self._due.get(producer, NEVER))
            self._on_early(copy)
        self._advance(producer, now)

    def on_head(self, producer: NodeId, until: int, now: Micros, *, is_all: bool) -> None:
        """Events until then have been sent. `is_all`: what has not come will not come."""
        cursor = self.cursors.get(producer, -1)
        if until <= cursor:
            return
        if not is_all:
            self._heads[producer] = max(self._heads.get(producer, -1), until)
            self._noticed.setdefault(producer, now)
            return
        for sequence in sorted(n for n in self._waiting.get(producer, {}) if n <= until):
            self._hand_on(producer, sequence)
        self.cursors[producer] = max(self.cursors.get(producer, -1), until)
        self._advance(producer, now)

    def give_up(self, before: Micros, now: Micros) -> None:
        """Holes that were noticed before that will not be closed any more. And what is memorized and has
        waited for half of its time is handed on: whatever was before it may still come."""
        for producer in [p for p, noticed in self._noticed.items() if noticed < before]:
            self._heads.pop(producer, None)
            self._give_up(producer)
            self._advance(producer, now)
        for producer in [p for p, due in self._due.items() if due <= now]:
            late = [n for n, early in self._waiting.get(producer, {}).items() if early.due <= now]
            self.on_head(producer, max(late, default=-1), now, is_all=True)
            left = self._waiting.get(producer, {}).values()
            self._due[producer] = min((early.due for early in left), default=NEVER)

    def take_waiting(self) -> list[Early]:
        """Take the events that came too early, for the reader that goes on elsewhere."""
        waiting = [early for theirs in self._waiting.values() for _, early in sorted(theirs.items())]
        self._waiting.clear()
        self._due.clear()
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
        since = min(early.since for early in waiting.values()) if waiting else since
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
        copy, base, *_ = early
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
        self.cursors[producer] = max(self.cursors.get(producer, -1), sequence)
        self.on_next(copy)

    def _give_up(self, producer: NodeId) -> None:
        waiting = self._waiting.get(producer)
        if waiting:
            self.cursors[producer] = max(waiting[min(waiting)].base - 1, self.cursors.get(producer, -1))


def _due(copy: EventCopy, now: Micros) -> Micros:
    """A memorized one waits for half of what is left of its lifetime, as in `broker/order.py`."""
    lifetime = copy.event.lifetime
    return now + (lifetime - copy.age(now)) // 2 if lifetime else NEVER


class NodeReading(NodePart):
    def __init__(self, shared: SharedParts) -> None:
        super().__init__(shared)
        node, now = self._host.node, self._host.now()
        self.own = EventReader(
            node, is_modulated=False, since=now, on_next=self._on_own, on_early=self._keep_early
        )
        self.modulated: dict[NodeId, EventReader] = {}
        self._timer = Timer(self._host, self._look_at_holes)
        self._is_waiting = False  # for the timer
        self._asked: dict[tuple[NodeId, bool, NodeId], tuple[int, Micros]] = {}  # up to which, and when

    # Inputs.

    def on_subscribed(self) -> None:
        """This node's application; what was before its first subscription is not for it."""
        if self._core.plain_subscriptions == 1:
            self.own.since = self._host.now()

    def on_flooded(self, copy: EventCopy, flood: FloodBase) -> None:
        for reader in (self.own, *self.modulated.values()):
            self._take_flooded(reader, copy, flood)

    def on_carried(self, carry: CarryMessage) -> bool:
        """An event for one reader; whether that is one of this node."""
        reader = self.find(carry.consumer, carry.is_modulated)
        if reader is not None:
            now = self._host.now()
            copy = EventCopy.of(carry, now)
            if self._options.paths == "events" and not carry.is_modulated:
                self._host.trace(PathsSampled(now, "overlay", 1, carry.hops))
            if carry.is_stored:
                reader.on_next(copy)
            else:
                self._take(reader, copy, carry.base)
        return reader is not None

    def on_head(self, sender: NodeId, head: Head, held: Micros) -> None:
        reader = self.find(head.consumer, head.is_modulated)
        if reader is not None:
            reader.on_head(head.producer, head.until, self._host.now(), is_all=head.is_all)
            if not head.is_all:
                self._on_hole()

    def begin(self, reader: EventReader) -> None:
        """A client with modulators is at home here now; what this node has of its events is read first."""
        self.modulated[reader.consumer] = reader
        for producer in self._copies.producers():
            after = reader.cursors.get(producer, -1) + 1
            for copy in self._copies.of(producer, after, 1 << 62):
                flood = self._copies.flood(copy.event.id)
                if flood is not None and copy.published_at >= reader.since:
                    self._take_flooded(reader, copy, flood)

    def end(self, consumer: NodeId) -> None:
        self.modulated.pop(consumer, None)

    def on_fetch(self, sender: NodeId, fetch: Fetch, held: Micros) -> None:
        """Somebody lacks events of this node, or of a client that was at home here. A home may have had some
        of its events and not those between, so it answers only up to the first gap."""
        now, is_own = self._host.now(), fetch.producer == self._host.node
        wanted = [one for one in map(opened, fetch.filters) if one is not None]
        base, sent, had = fetch.after, 0, fetch.after
        for copy in self._copies.of(fetch.producer, fetch.after, fetch.until):
            if sent == SENT_AT_ONCE or (copy.previous > had and not is_own):
                break
            event = copy.event
            had = event.sequence + 1
            is_wanted = event.wants_subscribers and any(one.matches(event) for one in wanted)
            if not fetch.is_modulated:
                # Its plain subscriptions to its own events were served when it published them.
                is_wanted = is_wanted and event.publisher != fetch.consumer
                is_wanted = is_wanted or fetch.consumer in event.destinations
            if is_wanted and copy.age(now) <= fetch.within:
                self._streams.write(sender, carried(copy, fetch.consumer, fetch.is_modulated, base, now))
                base = had
                sent += 1
        else:
            had = fetch.until + 1 if is_own else had
        if had > fetch.after:
            self._streams.write(
                sender, Head(fetch.consumer, fetch.is_modulated, fetch.producer, had - 1, True)
            )

    # Questions.

    def find(self, consumer: NodeId, is_modulated: bool) -> EventReader | None:
        if is_modulated:
            return self.modulated.get(consumer)
        return self.own if consumer == self._host.node else None

    # What comes.

    def _take_flooded(self, reader: EventReader, copy: EventCopy, flood: FloodBase) -> None:
        self._take(reader, copy, copy.previous if reader.mark in flood.direct else flood.base)

    def _take(self, reader: EventReader, copy: EventCopy, base: int) -> None:
        if reader is self.own and not self._reads_own(copy.event):
            return
        reader.take(copy, base, self._host.now())
        if reader.has_waiting():
            self._on_hole()

    def _reads_own(self, event: Event) -> bool:
        """A node without subscriptions keeps no order of what is not for it."""
        is_named = self._host.node in event.destinations
        if event.publisher == self._host.node:
            return is_named  # the core has served its subscriptions
        if is_named or self._core.plain_subscriptions:
            return True
        copy = self._copies.find(event.id)
        if copy is not None and event.event_class is EventClass.MEMORIZED:
            self._on_own(copy)  # for its own later subscriptions
        return False

    def _on_own(self, copy: EventCopy) -> None:
        """A real-time event from before the first subscription is not for it: after a restart it would come a
        second time."""
        event = copy.event
        is_early = copy.published_at < self.own.since and self._host.node not in event.destinations
        if is_early and event.event_class is not EventClass.MEMORIZED:
            return
        self._core.deliver(event, copy.hops, copy.age(self._host.now()))

    def _keep_early(self, copy: EventCopy) -> None:
        """A memorized one survives a restart while it waits for its turn."""
        if copy.event.event_class is EventClass.MEMORIZED and self._core.wants(copy.event):
            with suppress(StoreFullError):  # then it waits in memory alone
                self._core.keep(copy.event, copy.hops, copy.age(self._host.now()))

    # What is lacking.

    def _on_hole(self) -> None:
        """An event may be missing: look soon what readers lack, once for all that comes until then."""
        if not self._is_waiting:
            self._is_waiting = True
            self._timer.after(TICK)

    def _look_at_holes(self) -> None:
        self._is_waiting = False
        now = self._host.now()
        has_holes = False
        for reader in (self.own, *self.modulated.values()):
            reader.give_up(now - max(micros(self._options.keep_realtime), 4 * AGAIN), now)
            for hole in reader.holes():
                has_holes = True
                if hole.after <= hole.until:
                    self._consider(reader, hole, now)
        if has_holes:
            self._on_hole()
        else:
            self._asked.clear()

    def _consider(self, reader: EventReader, hole: Hole, now: Micros) -> None:
        key = (reader.consumer, reader.is_modulated, hole.producer)
        until, at = self._asked.get(key, (-1, 0))
        behind = self._copies.of(hole.producer, hole.until + 1, hole.until + NEXT_LOOKED_AT)
        was_flooded = any(self._copies.flood(copy.event.id) is not None for copy in behind)
        if hole.until <= until:
            if now - at < AGAIN:
                return  # also where the answer has brought a part of it
        elif now - hole.since < (NEIGHBOURS_FIRST if was_flooded else TICK):
            return
        to = next(self._whom(hole.producer), None)
        if to is None:
            return
        self._asked[key] = hole.until, now
        within = max(now - reader.since, 0)
        self._streams.write(to, Fetch(*key, hole.after, hole.until, within, self._filters(reader)))

    def _whom(self, producer: NodeId) -> Iterator[NodeId]:
        row = self._consumers.find(producer)
        for node in (producer,) if row is None else (producer, row.home):
            if node == self._host.node or self._underlay.distance(node) is not None:
                yield node

    def _filters(self, reader: EventReader) -> tuple[bytes, ...]:
        if reader is self.own:
            return tuple(one.filter.encode() for one in self._core.subscriptions() if one.modulator is None)
        row = self._consumers.find(reader.consumer)
        return () if row is None else tuple(i.filter for i in row.interests if i.modulator is not None)


def carried(copy: EventCopy, consumer: NodeId, is_modulated: bool, base: int, now: Micros) -> CarryMessage:
    hops = min(copy.hops, 255)
    return CarryMessage(
        copy.event, copy.age(now), hops, consumer, is_modulated, base, False, copy.previous, copy.gap
    )


class HeldCarry(NamedTuple):
    """A message that waits here, since then."""

    carry: CarryMessage
    since: Micros

    def aged(self, now: Micros) -> CarryMessage:
        return self.carry.aged(now - self.since)
