"""The events that a node has: its own, what it dispatched, and what was flooded by. For who lacks one.

Kept as long as the discard function says (`discard.py`); looked through every few seconds.
"""

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from roamcast.event import Event, EventId
from roamcast.host import Host
from roamcast.kit.repair import runs
from roamcast.strategy.opportunistic.messages import CarryLetter, PublishLetter
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
    def of(cls, letter: PublishLetter | CarryLetter, now: Micros) -> "EventCopy":
        return cls(letter.event, letter.previous, letter.gap, letter.hops, now - letter.age)

    def age(self, now: Micros) -> Micros:
        return max(now - self.published_at, 0)


class FloodBase(msgspec.Struct, frozen=True, gc=False):
    """What a flooded copy says beside: see `Flooded`."""

    base: int
    direct: tuple[NodeId, ...]


class Copies:
    def __init__(self, host: Host, options: OpportunisticOptions) -> None:
        self._host = host
        self._options = options
        # Ordered: the first of a dictionary is far to seek where thousands before it were taken out.
        self._copies: dict[NodeId, OrderedDict[int, EventCopy]] = {}
        self._floods: dict[NodeId, dict[int, FloodBase]] = {}
        self._runs: tuple[int, ...] | None = None  # None: since then something has changed
        self._runs_of: dict[NodeId, tuple[int, ...]] = {}  # of each producer's that have not changed
        # Of each publisher: all events until this one have come, or are over.
        self._settled: dict[NodeId, int] = {}
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
                self._settle(key.publisher, -1)
                is_new = True
        if self._host.now() - self._looked_at >= LOOK_THROUGH_EVERY:
            self._look_through()
        return is_new

    # Questions.

    def find(self, event: EventId) -> EventCopy | None:
        theirs = self._copies.get(event.publisher)
        return None if theirs is None else theirs.get(event.sequence)

    def flood(self, event: EventId) -> FloodBase | None:
        theirs = self._floods.get(event.publisher)
        return None if theirs is None else theirs.get(event.sequence)

    def is_known(self, event: EventId) -> bool:
        """As one that was flooded, or that was given up."""
        publisher, sequence = event
        return sequence <= self._settled.get(publisher, -1) or sequence in self._floods.get(publisher, ())

    def unknown(self, publisher: NodeId, first: int, last: int) -> list[EventId]:
        """Which of a run are not known, both ends included."""
        theirs = self._floods.get(publisher, {})
        first = max(first, self.settled(publisher) + 1)
        return [EventId(publisher, n) for n in range(first, last + 1) if n not in theirs]

    def settled(self, publisher: NodeId) -> int:
        """All events until this one are known."""
        return self._settled.get(publisher, -1)

    def of(self, producer: NodeId, after: int, until: int) -> list[EventCopy]:
        """In their order, both ends included."""
        theirs: Mapping[int, EventCopy] = self._copies.get(producer, {})
        return [theirs[n] for n in sorted(n for n in theirs if after <= n <= until)]

    def producers(self) -> list[NodeId]:
        return list(self._copies)

    def runs(self) -> tuple[int, ...]:
        """Of flooded events, one producer after the other: the producer, how many runs, first and last of
        each."""
        if self._host.now() - self._looked_at >= LOOK_THROUGH_EVERY:
            self._look_through()
        if self._runs is None:
            named: list[int] = []
            for producer, floods in sorted(self._floods.items()):
                if producer not in self._runs_of:
                    theirs = tuple(runs(sorted(floods)))
                    self._runs_of[producer] = (producer, len(theirs) // 2, *theirs)
                named += self._runs_of[producer]
            self._runs = tuple(named)
        return self._runs

    # Private.

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
        self._settle(producer, sequence)
        self._count -= 1

    def _change_runs(self, producer: NodeId) -> None:
        self._runs = None
        self._runs_of.pop(producer, None)

    def _settle(self, producer: NodeId, given_up: int) -> None:
        floods, before = self._floods.get(producer, ()), self._settled.get(producer, -1)
        until = max(before, given_up)
        while until + 1 in floods:
            until += 1
        if until > before:
            self._settled[producer] = until

    def _forget_oldest(self) -> None:
        producer = next(iter(self._copies))
        self._forget(producer, next(iter(self._copies[producer])))
