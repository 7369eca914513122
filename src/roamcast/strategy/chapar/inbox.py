"""Memorized events for this node's applications: each is handed over once, in its publisher's order.

Copies come from floods, from notifications and from consistency checks, in any order and more than once.
An event names its predecessor (`previous`, of the same publisher), and for when that one has expired those
before it that live longer. It is handed over when the first of them that is alive has gone by, or nobody
offers that one, or `order_timeout` has passed. *Gone by* includes events that
were only overheard: they count for the order, but are kept only if this node serves others or wants them. If
a later local subscription may match an overheard event, that event is fetched and handed over first, before
the publisher's later ones.
An event that is kept for subscriptions to come waits until its predecessor is kept too, or `order_timeout`.

What was handed to an application is recorded in stable storage, so that no event comes twice because of a
crash. That list is bounded (`HANDED_MAX`); it holds the latest.
"""

from collections.abc import Collection, Iterable, Set
from contextlib import suppress
from enum import Enum
from operator import itemgetter
from typing import NamedTuple, Protocol

import msgspec

from roamcast.broker.core import Broker
from roamcast.broker.store import StoreFullError
from roamcast.event import Event, EventId, is_sealed
from roamcast.host import Host
from roamcast.kit.protocol import Timer, overflow_traced, trace_overflow
from roamcast.kit.tables import BoundedDict, LifetimeDict, unreported
from roamcast.strategy.chapar.identifiers import matches
from roamcast.strategy.chapar.memorized_event_table import EventTable, Memo
from roamcast.strategy.chapar.messages import is_between
from roamcast.trace import DropReason
from roamcast.units import Micros

# Chosen by us.
HANDED_MAX = 256  # the list is written anew with each event
GONE_BY_MAX = 100_000  # events that count for the order: more than any publisher sends in a lifetime
HELD_MAX = 1_000  # events that wait for an earlier one; beyond it the oldest is handed over
STABLE_KEY = "chapar handed"

_handed_decoder = msgspec.msgpack.Decoder(list[tuple[int, int]])


class ContentReader(Protocol):
    """Opens encrypted events (section 4.2, *Lookup process*), which brokers match by their identifier alone.

    A sealed event has its EID in place of its attributes (`event.py`), or travels in a message
    that carries its EID (`publish_sealed`). The exact filter needs the clear event, so it runs on the
    subscriber's node, after this has opened the event. Keys and ciphers are not decided here:
    `sealing/content.py` is one such reader.
    """

    def open(self, sealed: Event) -> Event | None:
        """The clear event with the same publisher and sequence; None for one that is not ours to read."""
        ...


class EventRelation(Enum):
    """What this node has to do with an event."""

    NONE = "none"  # overheard: it counts for the order, and is not kept
    KEEPS = "keeps"  # kept for others, and for local subscriptions to come
    MAY_MATCH = "may match"  # the identifier of a local filter selects it


class HeldEvent(NamedTuple):
    """An event that waits for an earlier one of its publisher."""

    memo: Memo
    interest: EventRelation
    deadline: Micros


class GoneBy(NamedTuple):
    """An event that counts for the order. `overheard`: its identifier, if nobody here wanted it."""

    expires_at: Micros
    overheard: int | None


GONE_AT = itemgetter(0)


class Inbox:
    def __init__(self, host: Host, broker: Broker, order_timeout: Micros, kept_max: int) -> None:
        self._host = host
        self._broker = broker
        self._order_timeout = order_timeout
        self.opener: ContentReader | None = None
        self._gone_by: LifetimeDict[EventId, GoneBy] = LifetimeDict(
            GONE_BY_MAX, overflow_traced(host, "memorized", "GONE_BY_MAX"), GONE_AT
        )
        # What was handed over or is kept for others: as bounded as the table of a broker, and by the same
        # rule, so that this node and its broker agree on what stays.
        self._kept = EventTable(
            entries_max=kept_max,
            on_full=lambda _: trace_overflow(host, "memorized", "met_entries_max"),
            on_forgotten=overflow_traced(host, "memorized", "KNOWN_MAX_FACTOR"),
        )
        self._held: BoundedDict[EventId, HeldEvent] = BoundedDict(HELD_MAX, self._go_ahead)
        self._order_timer = Timer(host, self._release_due)
        self._note_timer = Timer(host, self._note_handed)
        self._offered: dict[EventId, Micros] = {}  # what others have and we lack; until when we wait
        self._missing: dict[EventId, Micros] = {}  # what they lack too, by the latest answer; likewise
        self._asked: frozenset[EventId] = frozenset()
        # Only the latest, by design: in most cases what is pushed out expired long ago.
        self._handed: BoundedDict[EventId, None] = BoundedDict(HANDED_MAX, unreported)
        self._handed.update(dict.fromkeys(_handed_before(host.stable.get(STABLE_KEY, b""))))

    # Inputs.

    def take(self, memo: Memo, interest: EventRelation) -> bool:
        """An event has come. False if it waits for an earlier one that has not come at all; the caller then
        asks others for it."""
        held = self._held.get(memo.id)
        if held is not None and (held.interest is EventRelation.NONE or interest is EventRelation.MAY_MATCH):
            self._held[memo.id] = held._replace(interest=interest)  # a subscription has come since
        if memo.id in self._kept or held is not None:
            return True
        if interest is EventRelation.NONE and memo.id in self._gone_by:
            return True
        self._offered.pop(memo.id, None)
        if self._may_go(memo, interest):
            self._let_go(memo, interest)
            self._release()
            return True
        now = self._host.now()
        self._held[memo.id] = HeldEvent(memo, interest, now + self._order_timeout)
        self._set_timer()
        return memo.predecessor(now) in self._held

    def ask(self) -> list[EventId]:
        """The events to ask a broker about; its answer is about these, not about what comes meanwhile."""
        self._asked = frozenset(self.waiting())
        return sorted(self._asked)

    def learn(
        self,
        offered: Iterable[EventId],
        missing: Iterable[EventId] | None = None,
        known: Collection[EventId] | None = None,
        span: tuple[tuple[int, int], tuple[int, int] | None] = ((0, 0), None),
    ) -> list[EventId]:
        """What a broker has for us; returns what we lack. Held events wait only for those, and for what the
        broker lacks itself. An answer releases only events that we asked about or, where the broker lists
        all it has in the `span`, events in that list (`known`)."""
        until = self._host.now() + self._order_timeout
        lacking = [key for key in offered if not self.has(key) and key not in self._handed]
        self._offered.update(dict.fromkeys(lacking, until))
        if missing is not None:
            self._missing = {key: at for key, at in self._missing.items() if not is_between(key, *span)}
            awaited = (key for key in missing if key not in self._gone_by or key in self._held)
            self._missing.update(dict.fromkeys(awaited, until))
            self._release(self._asked if known is None else self._held.keys() & set(known))
        return lacking

    def mark_handed(self, *events: EventId) -> None:
        """The broker core itself hands these over now, to a new local subscription."""
        self._handed.update(dict.fromkeys(events))
        self._note_handed()

    def want_more(self, filter_id: int) -> None:
        """A new local subscription: what it may want of the overheard events has yet to come, and what waits
        here waits for it too."""
        for key, (_, overheard) in list(self._gone_by.items()):
            if overheard is not None and matches(filter_id, overheard):
                del self._gone_by[key]
        for key, held in self._held.items():
            if held.memo.event.wants_subscribers and matches(filter_id, held.memo.event_id):
                self._held[key] = held._replace(interest=EventRelation.MAY_MATCH)

    def forget_expired(self) -> None:
        now = self._host.now()
        self._gone_by.expire(now)
        self._kept.forget_expired(now)
        self._offered = {key: until for key, until in self._offered.items() if until > now}
        self._missing = {key: until for key, until in self._missing.items() if until > now}

    # Questions.

    def has(self, event: EventId) -> bool:
        held = self._held.get(event)
        return event in self._kept or (held is not None and held.interest is not EventRelation.NONE)

    @property
    def is_waiting(self) -> bool:
        """Whether an event waits for an earlier one."""
        return bool(self._held)

    def kept(self) -> list[Memo]:
        """The kept events that have not expired, in order."""
        return self._kept.entries()

    def waiting(self) -> list[EventId]:
        """The events whose predecessor has not come at all."""
        now = self._host.now()
        return [key for key in sorted(self._held) if self._held[key].memo.predecessor(now) not in self._held]

    def before_waiting(self, events: Iterable[EventId]) -> list[EventId]:
        """Those of them that are earlier than a held event of the same publisher."""
        latest = {key.publisher: key for key in sorted(self._held)}
        return [key for key in events if key < latest.get(key.publisher, key)]

    def opened(self, event: Event, sealed: bytes) -> Event | None:
        """The event as applications may see it; None where it cannot be read. One that this node cannot open
        is taken as it is if it has the form that `event.py` describes, so only subscribers of sealed events
        get it."""
        if not sealed and not is_sealed(event):
            return event
        clear = self.opener.open(event) if self.opener is not None else None
        if clear is not None and clear.id == event.id:
            return clear
        return event if is_sealed(event) else None

    # Private.

    def _may_go(self, memo: Memo, interest: EventRelation, answered: bool = False) -> bool:
        publisher, sequence = memo.id
        previous = memo.predecessor(self._host.now())
        if previous is None or publisher == self._host.node:
            return True
        if interest is EventRelation.KEEPS:  # a subscription to come may want both: overhearing is not enough
            return previous in self._kept
        if previous in self._gone_by:
            return True
        # After asking, wait only for what a broker offers or knows to exist, and for what waits here itself:
        # it may have come while the answer was on its way.
        wanted = (key for key, held in self._held.items() if held.interest is EventRelation.MAY_MATCH)
        if not answered or any(p == publisher and s < sequence for p, s in wanted):
            return False
        awaited = (*self._offered, *self._missing)
        return not any(p == publisher and s <= sequence for p, s in awaited)

    def _release(self, answered: Set[EventId] = frozenset()) -> None:
        """Hand over whatever no longer has to wait; each one may release the next."""
        for key in sorted(self._held):
            held = self._held[key]
            if self._may_go(held.memo, held.interest, key in answered):
                self._let_go(*self._held.pop(key)[:2])
        self._set_timer()

    def _note_handed(self) -> None:
        with suppress(StoreFullError):  # then they may come twice after a crash
            self._host.stable[STABLE_KEY] = msgspec.msgpack.encode(list(self._handed))

    def _release_due(self) -> None:
        """Hand over, in order, the events whose waiting time is over."""
        now = self._host.now()
        due = {key.publisher: key for key in sorted(self._held) if self._held[key].deadline <= now}
        for key in sorted(self._held):
            if key in self._held and key.publisher in due and key <= due[key.publisher]:
                self._let_go(*self._held.pop(key)[:2])
        self._release()

    def _set_timer(self) -> None:
        if self._held:
            self._order_timer.at(min(held.deadline for held in self._held.values()))
        else:
            self._order_timer.cancel()

    def _go_ahead(self, event: EventId, held: HeldEvent) -> None:
        trace_overflow(self._host, "memorized", "HELD_MAX")
        self._let_go(held.memo, held.interest)

    def _let_go(self, memo: Memo, interest: EventRelation) -> None:
        if interest is EventRelation.NONE:
            is_overheard = memo.event.publisher != self._host.node and memo.event.wants_subscribers
            self._gone_by.setdefault(
                memo.id, GoneBy(memo.expires_at, memo.event_id if is_overheard else None)
            )
            return
        self._gone_by[memo.id] = GoneBy(memo.expires_at, None)
        self._kept.keep(memo, self._host.now())
        if memo.id in self._handed:
            return
        event = self.opened(memo.event, memo.sealed)
        if event is None:
            return
        is_wanted = self._broker.wants(event)
        if not is_wanted and interest is EventRelation.MAY_MATCH:
            self._broker.drop(memo.id, DropReason.FALSE_POSITIVE, "memorized")
        is_kept = self._broker.deliver(event, memo.hops, memo.age(self._host.now()))
        if is_wanted and is_kept:
            self._handed[memo.id] = None
            self._note_timer.after(
                0
            )  # once for all that comes in this moment: a slow disk takes 50 ms for it


def _handed_before(data: bytes) -> list[EventId]:
    if not data:
        return []
    try:
        return [EventId(*pair) for pair in _handed_decoder.decode(data)]
    except msgspec.DecodeError:
        return []  # written by another version; at worst an event comes twice
