"""The events that a node has: its own, what it dispatched, and what was flooded by. They are kept for nodes
that lack one.

Kept as long as the discard function says (`options.py`); looked through every few seconds.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import repeat

import msgspec

from roamcast.broker.seen import EventKey, event_key
from roamcast.event import Event, EventId
from roamcast.host import Host
from roamcast.kit.repair import DigestTurns, HeldRuns, ranges_of, runs
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.messages import CarryMessage, PublishMessage
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.units import SECOND, Micros, NodeId

COPIES_MAX = 20_000
LOOK_THROUGH_EVERY: Micros = 5 * SECOND


class EventCopy(msgspec.Struct, frozen=True, gc=False):
    """An event, and what this node knows of its way. `previous` and `gap`: `messages.py: Flooded`."""

    event: Event
    previous: int
    gap: Micros
    hops: int
    published_at: Micros  # by this node's clock

    @classmethod
    def of(cls, message: PublishMessage | CarryMessage, now: Micros) -> "EventCopy":
        return cls(message.event, message.previous, message.gap, message.hops, now - message.age)

    def age(self, now: Micros) -> Micros:
        return max(now - self.published_at, 0)


class FloodBase(msgspec.Struct, frozen=True, gc=False):
    """What a flooded copy says beside its event: see `Flooded`."""

    base: int
    direct: tuple[NodeId, ...]


class Copies:
    def __init__(self, host: Host, options: OpportunisticOptions) -> None:
        self._host = host
        self._options = options
        # Ordered: in a plain dictionary it takes long to find the first entry after thousands before it were
        # removed.
        self._copies: dict[NodeId, OrderedDict[int, EventCopy]] = {}
        self._floods: dict[NodeId, dict[int, FloodBase]] = {}
        self._digest: tuple[HeldRuns, ...] | None = None  # None: since then something has changed
        self._runs_of: dict[NodeId, tuple[int, ...]] = {}  # of each producer's that have not changed
        self._turns = DigestTurns()
        # Per publisher, the number up to which every event has come or is over. `_over` has later events that
        # are over: a real-time one is over soon, while a memorized one before it may still be missing.
        self._settled: dict[NodeId, int] = {}
        self._over: BoundedDict[EventKey, None] = BoundedDict(COPIES_MAX, unreported)
        self._count = 0
        self._looked_at: Micros = 0

    # Inputs.

    def add(self, copy: EventCopy, flood: FloodBase | None) -> bool:
        """Whether it is news: as an event, or as one that was flooded."""
        key = copy.event.id
        theirs = self._copies.get(key.publisher)
        if theirs is None:
            theirs = self._copies[key.publisher] = OrderedDict()
        is_new = key.sequence not in theirs
        if is_new:
            if self._count >= COPIES_MAX:
                self._forget_oldest()
            theirs[key.sequence] = copy
            self._count += 1
        if flood is not None:
            flooded = self._floods.setdefault(key.publisher, {})
            if key.sequence not in flooded:
                flooded[key.sequence] = flood
                self._change_runs(key.publisher)
                self._settle(key.publisher)
                is_new = True
        if self._host.now() - self._looked_at >= LOOK_THROUGH_EVERY:
            self._look_through()
        return is_new

    # Questions.

    def find(self, event: EventId) -> EventCopy | None:
        theirs = self._copies.get(event.publisher)
        return None if theirs is None else theirs.get(event.sequence)

    def flooded_before(self, event: EventId) -> int | None:
        """The last of the same producer that was flooded, of those that are still here."""
        floods = self._floods.get(event.publisher, ())
        return max((sequence for sequence in floods if sequence < event.sequence), default=None)

    def flood(self, event: EventId) -> FloodBase | None:
        theirs = self._floods.get(event.publisher)
        return None if theirs is None else theirs.get(event.sequence)

    def is_known(self, event: EventId) -> bool:
        """Whether the event is known here: it was flooded, or was given up."""
        publisher, sequence = event
        return (
            sequence <= self._settled.get(publisher, -1)
            or sequence in self._floods.get(publisher, ())
            or event_key(publisher, sequence) in self._over
        )

    def unknown(self, digest: Iterable[HeldRuns]) -> list[EventKey]:
        """Which of the flooded events that a digest names are not known, in increasing order."""
        # Nearly all digests say nothing new.
        news = [held for held in digest if held.runs[-1] > self._settled.get(held.publisher, -1)]
        found: set[EventKey] = set()
        for publisher, sequences in ranges_of(news):
            first = max(sequences.start, self._settled.get(publisher, -1) + 1)
            lacking = set(range(first, sequences.stop)).difference(self._floods.get(publisher, ()))
            found.update(map(event_key, repeat(publisher), lacking))
        return sorted(found.difference(self._over))

    def of(self, producer: NodeId, after: int, until: int) -> list[EventCopy]:
        """The copies of a producer in their order, both ends included."""
        theirs: Mapping[int, EventCopy] = self._copies.get(producer, {})
        return [theirs[n] for n in sorted(n for n in theirs if after <= n <= until)]

    def producers(self) -> list[NodeId]:
        return list(self._copies)

    def digest(self) -> tuple[HeldRuns, ...]:
        """Of flooded events; where they are too many for one digest, each has the next ones."""
        if self._host.now() - self._looked_at >= LOOK_THROUGH_EVERY:
            self._look_through()
        if self._digest is None:
            publishers = sorted(self._floods)
            digest = self._turns.digest(publishers, self._held_runs)
            is_whole = len(digest) == len(publishers) and all(
                held.runs is self._runs_of[held.publisher] for held in digest
            )
            if not is_whole:
                return digest
            self._digest = digest
        return self._digest

    # Private.

    def _held_runs(self, producer: NodeId) -> tuple[int, ...]:
        known = self._runs_of.get(producer)
        if known is None:
            known = self._runs_of[producer] = tuple(runs(sorted(self._floods[producer])))
        return known

    def _look_through(self) -> None:
        now = self._host.now()
        self._looked_at = now
        until, options = now - LOOK_THROUGH_EVERY, self._options
        over = [
            (producer, sequence)
            for producer, theirs in self._copies.items()
            for sequence, copy in theirs.items()
            if copy.published_at <= until and options.is_over(copy.event, now - copy.published_at)
        ]
        for producer, sequence in over:
            self._forget(producer, sequence)

    def _forget(self, producer: NodeId, sequence: int) -> None:
        theirs = self._copies[producer]
        del theirs[sequence]
        if not theirs:
            del self._copies[producer]
        floods = self._floods.get(producer, {})
        if floods.pop(sequence, None) is not None:
            self._change_runs(producer)
            if not floods:
                del self._floods[producer]
        if sequence > self._settled.get(producer, -1):
            self._over[event_key(producer, sequence)] = None
            self._settle(producer)
        self._count -= 1

    def _change_runs(self, producer: NodeId) -> None:
        self._digest = None
        self._runs_of.pop(producer, None)

    def _settle(self, producer: NodeId) -> None:
        floods, until = self._floods.get(producer, ()), self._settled.get(producer, -1)
        while until + 1 in floods or event_key(producer, until + 1) in self._over:
            until += 1
            self._over.pop(event_key(producer, until), None)
            self._settled[producer] = until

    def _forget_oldest(self) -> None:
        producer = next(iter(self._copies))
        self._forget(producer, next(iter(self._copies[producer])))
