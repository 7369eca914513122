"""The broker core: local subscriptions, numbering, exact matching, hand-over exactly once.

Applications come in by `publish`, `subscribe` and `unsubscribe`; the strategy comes in by `observe`
(is this copy new?) and `deliver` (this event has reached this node). Whatever a strategy's summaries
claim, nothing is handed to an application unless the exact filter matches or the node is a named
destination, and no application sees an event twice.
"""

from collections.abc import Callable, Container, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from roamcast.broker.order import (
    HELD_MAX,
    STRANGER_WAIT,
    WAIT_MAX,
    HeldBack,
    OwnOrder,
)
from roamcast.broker.seen import APPLICATION_AT, PUBLISHER, EventKey, SeenEvents, event_key
from roamcast.broker.store import OVERHEAD_BYTES, EventStore, StoredEvent, StoreFullError
from roamcast.broker.unkept import UnkeptEvents
from roamcast.chunks import is_chunk
from roamcast.errors import FilterError
from roamcast.event import Event, EventClass, EventId, Publication, is_sealed
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.host import Host
from roamcast.kit.numbers import StableCounter
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.modulator.base import ModulatorSpec
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId

SEQUENCE_BLOCK = 1_000
SEQUENCE_BLOCK_MAX = 1_000_000
"""How many sequence numbers one stable write reserves, at first and at most (`kit/numbers.py`). Chosen by
us."""

_REALTIME: Final = EventClass.REALTIME  # a global name is found faster than a member of a class
_made: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = (
    tuple.__new__
)  # three times as fast as `Delivery(…)`


class Subscription(NamedTuple):
    """One application's interest. `number` is unique on its node."""

    number: int
    filter: Filter
    application: int = 0  # whose it is: each application of a node gets an event once
    # The consumer's function that runs in a broker: the application gets its products, and nothing else.
    modulator: ModulatorSpec | None = None


class Delivery(NamedTuple):
    """What an application gets: the event, the subscriptions it matched, the hops this copy took."""

    event: Event
    subscriptions: tuple[int, ...]  # of one application; empty for an event addressed to this node by name
    hops: int
    modulated: bool = False  # the content is what the subscription's modulator made of it


class Application(Protocol):
    def on_event(self, delivery: Delivery) -> None: ...


class ContentOpener(Protocol):
    """Whoever has the keys of events that are sealed from end to end (`sealing/content.py`)."""

    def open(self, sealed: Event) -> Event | None:
        """The clear event with the same publisher and sequence; None for one that is not ours to read."""
        ...


class BrokerWatcher(Protocol):
    """The strategy's side of what happens here: it spreads what it must."""

    def on_subscribed(self, subscription: Subscription) -> None: ...

    def on_unsubscribed(self, subscription: Subscription) -> None: ...

    def on_kept_late(self, event: Event) -> None: ...


OnArrival: TypeAlias = Callable[[Event, int, Micros], None]
"""For whoever wants to know which way events come: the event, its hops, its age."""


class Broker:
    def __init__(
        self,
        host: Host,
        application: Application,
        *,
        seen: SeenEvents | None = None,
        store: EventStore | None = None,
        opener: ContentOpener | None = None,
        on_arrival: OnArrival | None = None,
        gets_all: bool = False,
    ) -> None:
        """`gets_all`: whatever is published reaches this node, wanted or not, so it can wait for it. Else it
        waits for what a subscription here wants whatever its content."""
        self._host = host
        self.booted_at = host.now()
        self._application = application
        self.opener = opener
        self._index: MatchingIndex[int] = MatchingIndex()
        self._subscriptions: dict[int, Subscription] = {}
        self._shared = False  # whether several applications have subscribed
        self._seen = SeenEvents() if seen is None else seen
        # What was seen lately: most copies of a flood are in here, which saves a call of `observe`.
        self.seen_lately: Container[EventKey] = self._seen.lately
        # By application where several share the node. Products of modulators: by subscription, below 0.
        self._handed_over = SeenEvents()
        self.store = EventStore() if store is None else store
        for stored in self.store.standing(host.now()):  # from before a restart: copies of it are not new
            self._seen.observe(event_key(*stored.event.id), host.now(), stored.expires_at)
        for event, expires_at in self.store.pushed_out_before(host.now()):
            self._seen.observe(event_key(*event), host.now(), expires_at)
        self.order = OwnOrder()
        self.held_back = HeldBack(host, self.store, self._go)
        self._early: BoundedDict[EventKey, Micros] = BoundedDict(HELD_MAX, unreported)
        self._gets_all = gets_all
        self.unkept = UnkeptEvents(host, self._has_room_now, self._is_kept_now)
        self._watcher: BrokerWatcher | None = None
        self._on_arrival = on_arrival
        self._sequences = StableCounter(host.stable, "sequence", SEQUENCE_BLOCK, SEQUENCE_BLOCK_MAX)

    def watch(self, watcher: BrokerWatcher) -> None:
        self._watcher = watcher

    def start(self) -> None:
        """The node boots. What an earlier boot has left takes its place in the order again."""
        now, node = self._host.now(), self._host.node
        for stored in in_order_of_publication(self.store.standing(now)):
            event = stored.event
            self.held_back.came(event.publisher, event.sequence)
            if event.publisher == node:
                self.order.stood(self.readable(event), event.sequence, stored.expires_at)
            if self._lacks_predecessor(event):
                self._hold(event, min(STRANGER_WAIT, (stored.expires_at - now) // 2))

    # Inputs from applications.

    def subscribe(self, subscription: Subscription) -> None:
        """Add or replace a subscription; memorized events that match it are handed over at once."""
        if subscription.number in self._subscriptions:
            self.unsubscribe(subscription.number)
        self._subscriptions[subscription.number] = subscription
        self._shared = self._shared or subscription.application != 0
        if subscription.modulator is None:
            self._index.add(subscription.number, subscription.filter)
        if self._watcher is not None:
            self._watcher.on_subscribed(subscription)
        if subscription.modulator is not None:
            return  # the store has events, not the modulator's products
        now = self._host.now()
        for stored in in_order_of_publication(self.store.standing(now)):
            key = subscription.application << APPLICATION_AT | event_key(*stored.event.id)
            if (self._shared and key in self._handed_over) or event_key(*stored.event.id) in self.held_back:
                continue  # as most of a live node's store for a client that comes back
            readable = self.readable(stored.event)
            is_meant = readable.wants_subscribers and subscription.filter.matches(readable)
            if is_meant and not self._came_too_early(stored, now):
                self._hand_over(stored.event, stored.hops, now, stored.expires_at)

    def unsubscribe(self, number: int) -> None:
        """End a subscription; an unknown number is no error (a client may unsubscribe twice)."""
        subscription = self._subscriptions.pop(number, None)
        if subscription is None:
            return
        if subscription.modulator is None:
            self._index.remove(number)
        if self._watcher is not None:
            self._watcher.on_unsubscribed(subscription)

    def reserve(self, count: int = 1) -> int:
        """A number that is never used again, not even after a crash; the first of `count` in a row."""
        first = self._sequences.take()
        for _ in range(count - 1):
            self._sequences.take()
        return first

    @property
    def next_number(self) -> int:
        """The sequence number of the event that is created next, unless that has a reserved one."""
        return self._sequences.next

    def create(self, publication: Publication, sequence: int | None = None) -> Event:
        """A new event of this node, with a number of its own or one that was reserved for it. Copies of it
        that come back are not new."""
        host = self._host
        number = self._sequences.take() if sequence is None else sequence
        now = host.now()
        event = publication.numbered(host.node, number, self.order.after(publication, number, now))
        self._seen.observe(host.node * PUBLISHER + number, now, now + event.lifetime)  # `event_key`
        return event

    # Inputs from the strategy.

    def observe(self, event: tuple[NodeId, int], lives_for: Micros = 0) -> bool:
        """True for the first copy of an event that reaches this node: the one to forward.

        `lives_for` is what a memorized event has left of its lifetime. An event that could not be kept counts
        as new again when the store may have room.
        """
        now = self._host.now()
        publisher, sequence = event
        key = publisher * PUBLISHER + sequence
        if self.unkept and self._is_tried_again(key):
            return True
        return self._seen.observe(key, now, now + lives_for)

    def observe_key(self, event: EventKey, lives_for: Micros = 0) -> bool:
        """As `observe`, for a strategy that has the key of the event already."""
        now = self._host.now()
        if self.unkept and self._is_tried_again(event):
            return True
        return self._seen.observe(event, now, now + lives_for)

    def has_seen(self, event: tuple[NodeId, int]) -> bool:
        """Whether a copy has been here, as far as this node remembers, and was kept if it is memorized."""
        publisher, sequence = event
        key = publisher * PUBLISHER + sequence
        return key in self._seen and key not in self.unkept

    def is_unkept(self, event: tuple[NodeId, int]) -> bool:
        """Whether it has been here and could not be kept: it will come again."""
        return event_key(*event) in self.unkept

    def unseen(self, events: frozenset[EventKey]) -> frozenset[EventKey]:
        """The events for which `has_seen` is false."""
        unseen = self._seen.unseen(events)
        return unseen | self.unkept.among(events) if self.unkept else unseen

    @property
    def may_keep(self) -> bool:
        """Whether the store has refused nothing lately: if not, it is no use to ask others for events."""
        return not self.unkept.is_refused

    def has_room_for(self, event: Event, hops: int, age: Micros) -> bool:
        """Whether a memorized event should be kept here now, or is here already. Chunks have room of their
        own. What is left of a filling store is for events that are next in their order; others are offered
        again later, and taken in any case once they are so old that nobody should wait any longer."""
        if self.has_seen(event.id) or is_chunk(event):
            return True
        store, size = self.store, len(event.payload)
        is_short = store.is_filling or not self.held_back.has_room(OVERHEAD_BYTES + size)
        may_wait = is_short and self._gets_all and store.settled is not None and age < WAIT_MAX
        if may_wait and self._lacks_predecessor(event):
            return False
        return store.has_room(size, self._host.now(), store.superseded_by(event), hops=hops)

    def deliver(self, event: Event, hops: int, age: Micros = 0, *, is_kept: bool = False) -> bool:
        """The event is here: keep it if it is memorized (unless that is done), hand it over if someone wants
        it. False if it should be kept and cannot be: for this node it stays new (`observe`).

        A real-time event from before this node's boot is refused: the subscriptions of that time are gone,
        and after a restart nobody remembers whether it was handed over before the crash.
        """
        if self._on_arrival is not None:
            self._on_arrival(event, hops, age)
        now = self._host.now()
        if event.event_class is _REALTIME:
            if age > now - self.booted_at:  # `lived_through`
                self.drop(event.id, DropReason.EXPIRED, "event")
                return True
            is_kept = True  # there is nothing to keep
        elif self.store.is_history(event):
            self.drop(event.id, DropReason.SUPERSEDED, "store")
            return True
        else:
            is_kept = is_kept or self._finds_room(event, hops, age)
            if not self._gets_all:  # some of those strategies have tables of their own, and do not ask
                self._seen.observe(event_key(*event.id), now, now + event.lifetime - age)
        if is_kept or not is_chunk(event):  # handed over now: not once more when the store takes it
            if event.after and self._waits(event, is_kept, event.lifetime - age):
                return is_kept
            self._hand_over(event, hops, now, now + event.lifetime - age)
            if event.lifetime:
                self._on_handed_over(event)
        return is_kept

    def deliver_to(self, event: Event, numbers: tuple[int, ...], hops: int) -> None:
        """A modulator's product is here: for its own subscriptions, once each, whatever its content."""
        for number in numbers:
            subscription = self._subscriptions.get(number)
            if subscription is None:
                continue  # ended while the product was in transit
            key = -1 - number << APPLICATION_AT | event_key(event.publisher, event.sequence)
            now = self._host.now()
            if self._handed_over.observe(key, now, now + event.lifetime):
                self._application.on_event(Delivery(event, (number,), hops, True))

    def notify(self, number: int, type: str, problem: str) -> None:
        """Tell the owner of a subscription what went wrong with it, as an event of this node."""
        if number in self._subscriptions:
            event = self.create(Publication({"subscription": number, "problem": problem}, type=type))
            self._application.on_event(Delivery(event, (number,), 0))

    def keep(self, event: Event, hops: int, age: Micros = 0) -> None:
        """Store a memorized event, once; `StoreFullError` if the store can take no more."""
        now = self._host.now()
        kept = self.store.find(event.id)
        if kept is not None and kept.expires_at > now:
            return
        before = self.store.superseded_by(event)
        for pushed_out in self.store.keep(event, now + event.lifetime - age, hops, now):
            if self.held_back.held and event_key(*pushed_out.id) in self.held_back.held:
                self._hand_over(pushed_out, hops, now, now + pushed_out.lifetime)
                self.held_back.pass_by(event_key(*pushed_out.id))
            if self.store.loses:
                self.drop(pushed_out.id, DropReason.STORE_FULL, "store")
        if before is not None and before not in self.store:
            self.drop(before, DropReason.SUPERSEDED, "store")

    def drop(self, event: EventId, reason: DropReason, message: str) -> None:
        """Trace that this node gave an event up."""
        if reason is DropReason.EXPIRED and self.held_back:
            self.held_back.on_handed_over(event_key(*event))  # nobody has to wait for it
        self._host.trace(
            Dropped(self._host.now(), self._host.node, reason, message, event.publisher, event.sequence)
        )

    # Questions.

    def subscriptions(self) -> list[Subscription]:
        """The standing ones, by number."""
        return [self._subscriptions[number] for number in sorted(self._subscriptions)]

    @property
    def plain_subscriptions(self) -> int:
        """How many stand that have no modulator."""
        return len(self._index)

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    def lived_through(self, age: Micros) -> bool:
        """Whether this node was up when an event of this age was published."""
        return age <= self._host.now() - self.booted_at

    def wants(self, event: Event) -> bool:
        """Whether a local application would get this event."""
        return self._host.node in event.destinations or (
            event.wants_subscribers and bool(self._index.match(self.readable(event)))
        )

    def readable(self, event: Event) -> Event:
        """As local applications may see it. A sealed event is carried and stored as it is, and opened here
        for the exact match; one that we cannot read stays sealed, for subscribers of its type."""
        if self.opener is None or not is_sealed(event):
            return event
        return self.opener.open(event) or event

    # Private.

    def _finds_room(self, event: Event, hops: int, age: Micros) -> bool:
        try:
            self.keep(event, hops, age)
        except StoreFullError:
            # Standing subscriptions get it now; later ones wait until it can be kept.
            self.unkept.add(StoredEvent(event, self._host.now() + event.lifetime - age, hops))
            self.drop(event.id, DropReason.STORE_FULL, "store")
            return False
        return True

    # Order.

    def _waits(self, event: Event, is_kept: bool, lives_for: Micros) -> bool:
        """Whether an event that has just come is held back until its predecessor is here."""
        if not self._lacks_predecessor(event):
            return False
        is_near = self.held_back.knows(event.publisher, event.sequence - event.after)
        wait = min(WAIT_MAX if is_near else STRANGER_WAIT, lives_for // 2)
        if not self.wants(event):
            self._early[event_key(*event.id)] = self._host.now() + wait  # for who comes meanwhile
            return False
        if not self._gets_all and not self._wants_chain(event):
            return False
        if not is_kept:
            self.held_back.let_pass += 1  # it may be held in the store, and nowhere else
            return False
        return self._hold(event, wait)

    def _came_too_early(self, stored: StoredEvent, now: Micros) -> bool:
        """Whether a stored event, or one before it, would still be held back if somebody had wanted it."""
        event = stored.event
        if not self._lacks_predecessor(event):
            return False
        key = event_key(*event.id)
        # Or the strategy has it, and will bring it in its turn.
        follows = key - event.after in self.held_back or key not in self._seen
        wait = STRANGER_WAIT if follows else self._early.get(key, now) - now
        return wait > 0 and self._hold(event, min(wait, (stored.expires_at - now) // 2))

    def _lacks_predecessor(self, event: Event) -> bool:
        if not 0 < event.after <= event.sequence:
            return False
        predecessor = event.publisher * PUBLISHER + event.sequence - event.after  # `event_key`
        return predecessor in self.held_back.held or predecessor not in self._seen

    def _wants_chain(self, event: Event) -> bool:
        """Whether what this node wants here is wanted whatever its content, so that the one before comes."""
        try:
            wanted = Filter.topic(event.topic) if event.topic else Filter.everything()
        except FilterError:
            return False  # a topic from the air that no filter can name
        return self._host.node in event.destinations or any(
            self._subscriptions[number].filter.covers(wanted)
            for number in self._index.match(self.readable(event))
        )

    def _hold(self, event: Event, wait: Micros) -> bool:
        key, stored = event_key(*event.id), self.store.find(event.id)
        if stored is None or key in self.held_back:  # another copy of one that was not kept at first
            return stored is not None
        size = 0 if is_chunk(event) else stored.size
        self.held_back.make_room(size)
        if not self._lacks_predecessor(event):
            return False  # it was among those that had to go
        self.held_back.hold(key, key - event.after, wait, size)
        return True

    def _go(self, event: EventKey) -> None:
        """An event that was held back is handed over."""
        stored = self.store.find(EventId(*divmod(event, PUBLISHER)))
        if stored is not None:
            self._hand_over(stored.event, stored.hops, self._host.now(), stored.expires_at)

    def _on_handed_over(self, event: Event) -> None:
        self.held_back.came(event.publisher, event.sequence)
        if self.held_back.held:
            self.held_back.on_handed_over(event_key(*event.id))

    def _is_tried_again(self, event: EventKey) -> bool:
        return not self.unkept.is_refused and self.unkept.discard(event)

    def _has_room_now(self, unkept: StoredEvent) -> bool:
        return self.store.has_room(
            len(unkept.event.payload),
            self._host.now(),
            self.store.superseded_by(unkept.event),
            hops=unkept.hops,
        )

    def _is_kept_now(self, unkept: StoredEvent) -> bool:
        """The store takes an event that it had refused; whoever waited for that gets it."""
        event, now = unkept.event, self._host.now()
        try:
            self.keep(event, unkept.hops, now + event.lifetime - unkept.expires_at)
        except StoreFullError:
            return False
        self._hand_over(event, unkept.hops, now, unkept.expires_at)
        self._on_handed_over(event)
        if self._watcher is not None:
            self._watcher.on_kept_late(event)
        return True

    def _hand_over(self, event: Event, hops: int, now: Micros, expires_at: Micros) -> None:
        if self.opener is not None:
            event = self.readable(event)
        destinations = event.destinations
        matched = self._index.match(event) if event.multimode or not destinations else []
        if not matched and self._host.node not in destinations:
            return
        key = event.publisher * PUBLISHER + event.sequence  # `event_key`
        if not self._shared:
            if self._handed_over.observe(key, now, expires_at):
                self._application.on_event(_made(Delivery, (event, tuple(matched), hops, False)))
            return
        for application, numbers in self._by_application(matched):
            if self._handed_over.observe(application << APPLICATION_AT | key, now, expires_at):
                self._application.on_event(_made(Delivery, (event, tuple(numbers), hops, False)))

    def _by_application(self, numbers: list[int]) -> list[tuple[int, list[int]]]:
        if not numbers:
            return [(0, [])]  # addressed to this node: handed over once for all
        if len(numbers) == 1:
            return [(self._subscriptions[numbers[0]].application, numbers)]
        parts: dict[int, list[int]] = {}
        for number in numbers:
            parts.setdefault(self._subscriptions[number].application, []).append(number)
        return list(parts.items())


def in_order_of_publication(stored: list[StoredEvent]) -> Iterator[StoredEvent]:
    """Each publisher's events in the order of their numbers, where the same publisher's stood before."""
    by_publisher: dict[NodeId, list[StoredEvent]] = {}
    for one in sorted(stored, key=lambda one: one.event.sequence, reverse=True):
        by_publisher.setdefault(one.event.publisher, []).append(one)
    for one in stored:
        yield by_publisher[one.event.publisher].pop()
