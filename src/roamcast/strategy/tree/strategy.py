"""The strategy itself: the overlay below, content-based routing above, one host for both.

Every node is a dispatcher, whatever the scenario's broker roles say: the tree spans all nodes of a
partition, as in the acyclic-overlay work. Routing is what REDS does on its tree (section 5.3).

Subscriptions travel over every link of the tree, unless covered by what was announced there already. Events
follow them back, over each link whose table matches, except to those who have them. The overlay below keeps
the tree and calls this layer by its `OverlayListener` interface; this layer keeps the tables consistent and
recovers lost events while the tree is rearranged. The parts:

- `content/tables.py`, `content/covering_set.py`: what each link wants and is announced;
- `content/announcer.py`: keeping a neighbour's copy of a table equal to ours over a lossy link;
- `content/recovery.py`: recovery of lost events, handing over of memorized ones;
- here: where an event goes, and the events of the last seconds.

An event goes to all neighbours that want it in one broadcast, as MAODV forwards data. Every node in range
hears it, whether the frame names it or not, and for each it is an arrival: handed over, remembered, sent on
to those of its own neighbours that want it and are not known to have it. So an event takes short cuts past
nodes of its path and past links that have just broken, into other trees too. Two things keep that from
becoming a flood: a node that is not named waits, and by then usually knows that its neighbours have the
event; and one with a single link over which the event is wanted leaves it to the others.

Explicit destinations: an event that names nodes is flooded over the tree, because a table of all
nodes at every link would have to be maintained for events that are rare. It stops at a node that is its
only destination.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from roamcast.broker.core import Subscription
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import SendFailure
from roamcast.kit.protocol import Handlers
from roamcast.kit.relay import Relay
from roamcast.kit.tables import OnEvicted
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.tree.content.announcer import Announcer
from roamcast.strategy.tree.content.messages import (
    CODEC,
    Cast,
    Digest,
    FilterUpdate,
    LinkMessenger,
    Refresh,
    UpdateAcknowledgement,
    Want,
)
from roamcast.strategy.tree.content.recovery import Recovery
from roamcast.strategy.tree.content.tables import RoutingTables
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.multicast_table import OverlayListener
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros

# Before a node that overheard an event sends it on, in `jitter`s: by then it often knows that its neighbours
# have it. A leaf waits until its neighbour must have sent it. Chosen by us: longer waits save frames, shorter
# ones find short cuts.
OVERHEARD_WAIT = 1
LEAF_WAIT = 15
CONTENDERS = 4  # nodes named in a frame from which on they share a whole `jitter`
HOPS_MAX = 255


class Tree(Strategy, OverlayListener):
    """Listens to the overlay (`on_link_up`, `on_link_down`, `on_data`, `on_spread`) and to the broker."""

    def __init__(self, context: StrategyContext, options: TreeOptions) -> None:
        host = self.host = context.host
        self.options = options
        self._node = host.node
        self._broker = context.broker
        self.overlay = self.make_overlay(context)
        # Not a method that calls it: of all calls of a node, this is the most frequent one.
        self.on_receive = self.overlay.on_receive  # type: ignore[method-assign]
        self.messenger = LinkMessenger(host, self.overlay)
        self.tables = RoutingTables(options, partial(self.messenger.overflow, "subscription", "GHOSTS_MAX"))
        self.announcer = Announcer(self.messenger, options, self.tables)
        self._links = self.tables.links
        self.recent = KeptEvents(options, self._on_evicted)
        self._relay: Relay[EventId, KeptEvent] = Relay(
            host, send=self._send_on, most=options.recovery_events, is_needed=self._is_kept
        )
        self._recovery = Recovery(self)
        self._recovers = options.recovery == "push"
        self._jitter = micros(options.jitter)
        self._has_published = False
        self._handlers: Handlers = {
            FilterUpdate: self._on_update,
            UpdateAcknowledgement: self.announcer.on_acknowledge,
            Refresh: self.announcer.on_refresh,
            Want: self._recovery.on_want,
        }

    def make_overlay(self, context: StrategyContext) -> Overlay:
        return Overlay(context.host, context.underlay, self.options, self)

    # Inputs from the node and its applications.

    def on_start(self) -> None:
        self.overlay.on_start()
        self.announcer.on_start()

    def on_stop(self) -> None:
        self.overlay.on_stop()

    def on_timer(self, name: Any) -> None:
        name.due()

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self.overlay.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self.overlay.on_neighbour_down(neighbour)

    def on_subscribed(self, subscription: Subscription) -> None:
        self._set_member()
        self.tables.on_subscribed(subscription.filter, self.host.now())
        self.announcer.announce_soon()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._set_member()
        self.tables.on_unsubscribed(subscription.filter)
        self.announcer.announce_soon()

    def on_kept_late(self, event: Event) -> None:
        kept = self.recent.find(event.id)
        for neighbour in self._wanting(event, sorted(self._links)):
            if kept is None or neighbour not in kept.had_by:
                self._recovery.offer(neighbour, [event.id], prompt=True)

    def publish(self, event: Event) -> None:
        self._has_published = True
        self._set_member()
        now = self.host.now()
        kept = self.recent.find(event.id)
        if kept is None:  # else it is tried once more: a large payload that a full disk refused half-way
            kept = KeptEvent(event.id, event, 0, now, False, is_named=True)
            self.recent.add(kept, now)
        self._send_on_soon(kept)

    def _set_member(self) -> None:
        self.overlay.protocol.set_member(self._has_published or self._broker.has_subscriptions)

    # Inputs from the overlay.

    def on_link_up(self, neighbour: NodeId) -> None:
        if neighbour not in self._links:
            self.tables.on_link_up(neighbour)
            self._recovery.on_link_up(neighbour)
            self.announcer.on_link_up(neighbour)

    def on_link_down(self, neighbour: NodeId) -> None:
        if neighbour in self._links:
            self.tables.on_link_down(neighbour, self.host.now())
            self.recent.on_link_down(neighbour)
            self._recovery.on_link_down(neighbour)
            self.announcer.on_link_down(neighbour)

    def on_data(self, neighbour: NodeId, payload: bytes) -> None:
        """A message over a tree link, for us alone."""
        self.on_spread(neighbour, payload, (self._node,))

    def on_spread(self, sender: NodeId, payload: bytes, named: Sequence[NodeId]) -> None:
        """A broadcast that names its receivers; we may be none of them, and the sender no neighbour."""
        try:
            message = CODEC.decode(payload)
            if isinstance(message, Cast):
                self._on_event(sender, message, named)
            elif isinstance(message, Digest):
                self._on_digest(sender, message)
            elif sender in self._links and self._node in named:
                self._handlers[type(message)](sender, message)
            # Else the link is up at their end before ours; they repeat what matters.
        except WireError as error:
            self.messenger.drop(DropReason.WIRE, CODEC.name, detail=str(error))

    # Questions.

    def event_in(self, payload: bytes) -> EventId | None:
        try:
            message = CODEC.decode(payload)
        except WireError:
            return None
        return message.event.id if isinstance(message, Cast) else None

    # Tables.

    def _on_update(self, neighbour: NodeId, update: FilterUpdate) -> None:
        received = self.announcer.sessions[neighbour].received
        earlier = received.session
        if not self.announcer.on_update(neighbour, update):
            return
        if earlier not in (-1, update.session):
            # The neighbour lost the link and forgot our table; it has a new incarnation. We did not notice.
            self.recent.on_link_down(neighbour)
            self.announcer.restart(neighbour)
        table = received.table()
        if table is not None:
            is_first = self._links[neighbour].table is None
            added = self.tables.on_table(neighbour, table)
            self.announcer.announce_soon()
            self._offer_missed(neighbour, None if is_first else added)

    # The path of an event.

    def _on_event(self, sender: NodeId, cast: Cast, named: Sequence[NodeId]) -> None:
        event_id = cast.event.id
        kept = self.recent.find(event_id)
        is_new = kept is None
        if kept is None:
            kept = self._arrive(event_id, cast)
        if cast.again:
            self._recovery.on_repeat(event_id, named)
        if kept is None:
            return
        kept.told.update(named)
        if sender not in kept.had_by:  # it shows for the first time that it has the event
            kept.had_by.add(sender)
            if sender in self._links:
                self._recovery.on_shown(sender, event_id)
        if kept.again:
            if is_new and (self._recovers or cast.event.event_class is EventClass.MEMORIZED):
                self._offer_on(kept)
        elif not named or self._node in named:  # without links a node asks all who hear it
            kept.is_named = True
            self._send_on_soon(kept, contenders=len(named))
        elif is_new:
            self._send_on_soon(kept, OVERHEARD_WAIT)

    def _arrive(self, event_id: EventId, cast: Cast) -> "KeptEvent | None":
        """A copy of an event that is not kept; None if it was here long ago, or comes too late."""
        event = cast.event
        lives_for = event.lifetime - cast.age
        if not self._broker.observe(event_id, lives_for):
            return None
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event_id, DropReason.EXPIRED, "event")
            return None
        now = self.host.now()
        hops = min(cast.hops + 1, HOPS_MAX)
        kept = KeptEvent(event_id, event, hops, now - cast.age, cast.again)
        self.recent.add(kept, now)
        self._recovery.on_event(event_id)
        if not cast.again or self._is_wanted_here(event, kept.published_at):
            self._broker.deliver(event, hops, cast.age)
        return kept

    def _is_wanted_here(self, event: Event, published_at: Micros) -> bool:
        """Whether a recovered event is still for us: a real-time event is not for later subscriptions."""
        if event.event_class is EventClass.MEMORIZED or self._node in event.destinations:
            return True
        since = self.tables.wanted_here_since(event)
        return since is not None and since <= published_at

    def _send_on_soon(self, kept: "KeptEvent", wait: int = 0, contenders: int = CONTENDERS) -> None:
        """After a random delay: receivers of one broadcast may not hear each other, and would collide. The
        fewer `contenders` were named in the frame, the shorter it is. `wait`: so many `jitter`s before that;
        without it, a wait that has begun is cut short."""
        if wait and self._relay.find(kept.id) is not None:
            return
        share = self.host.random.random() * min(contenders, CONTENDERS) / CONTENDERS
        self._relay.cancel(kept.id)
        self._relay.add(kept.id, kept, int((wait + share) * self._jitter))

    def _is_kept(self, event_id: EventId, _: "KeptEvent") -> bool:
        return event_id in self.recent

    def _on_evicted(self, event_id: EventId, _: object) -> None:
        self._relay.cancel(event_id)
        self.messenger.overflow("event", "recovery_events", event_id)

    def _send_on(self, event_id: EventId, kept: "KeptEvent") -> None:
        neighbours = sorted(self._links)
        if kept.is_named:  # else it matters how many want it, those who have it too
            neighbours = [each for each in neighbours if each not in kept.had_by]
        wanting = self._wanting(kept.event, neighbours)
        onward = [each for each in wanting if not kept.reached(each)]
        if not kept.is_named and len(wanting) <= 1:
            # A leaf. If this node wants the event, its neighbour would send it here. A neighbour that has not
            # done so after a wait lacks the event, and gets it from here.
            if onward and self._broker.wants(kept.event):
                kept.is_named = True
                self._send_on_soon(kept, LEAF_WAIT)
            return
        if kept.hops >= self.options.hop_limit:
            self._broker.drop(event_id, DropReason.EXPIRED, "event")
            return
        if onward or (kept.hops == 0 and not self._links):
            self._recovery.pace.on_fresh()
            self._cast(kept, onward, again=False)
        if self._recovers:
            for neighbour in wanting:
                if neighbour not in kept.had_by:
                    self._recovery.offer(neighbour, (event_id,), prompt=False)

    def _cast(self, kept: "KeptEvent", to: list[NodeId], *, again: bool) -> int:
        """Returns the octets."""
        if not to and not self.overlay.is_overheard:
            return 0
        for each in to:
            if self.announcer.has_table_of(each):
                kept.told.add(each)
        own = kept.hops == 0 and not again
        return self.messenger.to_neighbours(to, self._copy(kept, again=again), own=own)

    def _copy(self, kept: "KeptEvent", *, again: bool) -> Cast:
        return Cast(kept.event, kept.hops, max(0, self.host.now() - kept.published_at), again)

    def _wanting(self, event: Event, neighbours: list[NodeId]) -> list[NodeId]:
        """The neighbours to whom the event goes by their tables."""
        if event.destinations:
            if any(each != self._node for each in event.destinations):
                return neighbours
            if not event.multimode:
                return []
        wants = self.tables.wants
        return [each for each in neighbours if wants(each, event)]

    def _is_missed(self, neighbour: NodeId, event: Event, published_at: Micros) -> bool:
        """As `_wanting`, but a real-time event only if it was wanted when it was published."""
        if event.destinations or event.event_class is EventClass.MEMORIZED:
            return bool(self._wanting(event, [neighbour]))
        since = self.tables.wanted_since(neighbour, event)
        return since is not None and since <= published_at

    # Recovery, and memorized events for those who come late.

    def has(self, event: EventId) -> bool:
        return event in self.recent or event in self._broker.store or self._broker.has_seen(event)

    def is_stored(self, event: EventId) -> bool:
        return event in self._broker.store

    def has_kept(self, event: EventId) -> bool:
        """Whether it is memorized and kept here, or has been."""
        return self.is_stored(event) or (event not in self.recent and self._broker.has_seen(event))

    def _offer_missed(self, neighbour: NodeId, added: list[Filter] | None) -> None:
        """The neighbour has new filters (None: all of them are): offer the events that match them.

        Memorized events of any age; with recovery also recent ones that were wanted, somewhere behind this
        link, when they were published.
        """
        now = self.host.now()

        def is_asked_for(event: Event) -> bool:
            return added is None or any(each.matches(event) for each in added)

        def has(recent: "KeptEvent") -> bool:
            # What was meant for it before this link was there may have been lost with another link.
            return neighbour in recent.had_by if added is None else recent.reached(neighbour)

        missed = [
            stored.event.id
            for stored in self._broker.store.standing(now)
            if is_asked_for(stored.event) and self._wanting(stored.event, [neighbour])
        ]
        if self._recovers:
            missed += [
                recent.id
                for recent in self.recent.standing(now)
                if not has(recent)
                and is_asked_for(recent.event)
                and self._is_missed(neighbour, recent.event, recent.published_at)
            ]
        self._recovery.offer(neighbour, missed, prompt=True)
        for event in missed:  # a neighbour that sees that we have the event will not name us in a copy of it
            self._send_on_overheard(self.recent.find(event))

    def _send_on_overheard(self, kept: "KeptEvent | None") -> None:
        """We may have left the event to others. Now others leave it to us, so it is sent."""
        if kept is not None and not kept.is_named and not kept.again:
            kept.is_named = True
            self._send_on_soon(kept)

    def _offer_on(self, kept: "KeptEvent") -> None:
        for neighbour in sorted(self._links):
            if not kept.reached(neighbour) and self._is_missed(neighbour, kept.event, kept.published_at):
                self._recovery.offer(neighbour, [kept.id], prompt=True)

    def _on_digest(self, sender: NodeId, digest: Digest) -> None:
        find = self.recent.find
        for nodes, events in digest.groups:
            is_asked = self._node in nodes
            for event in events:
                kept = find(event)
                if sender in self._links:  # what was shown before a link was new is offered once more
                    self._recovery.on_shown(sender, event)
                if kept is None:
                    continue
                kept.had_by.add(sender)
                if is_asked:
                    self._send_on_overheard(kept)
        if sender in self._links:
            self._recovery.on_digest(sender, digest)

    def cast_again(self, event: EventId, to: list[NodeId]) -> int:
        """Returns the octets, 0 if it is not kept any more."""
        kept = self._kept(event)
        return 0 if kept is None else self._cast(kept, to, again=True)

    def hand(self, event: EventId, to: NodeId) -> int:
        """Likewise."""
        kept = self._kept(event)
        if kept is None:
            return 0
        kept.told.add(to)
        on_failure = partial(self._on_not_handed, to, event)
        return self.messenger.to_neighbour(to, self._copy(kept, again=True), on_failure=on_failure)

    def _on_not_handed(self, neighbour: NodeId, event: EventId, _: SendFailure) -> None:
        if neighbour in self._links:
            self._recovery.offer(neighbour, [event], prompt=False)

    def _kept(self, event: EventId) -> "KeptEvent | None":
        """A recent event, or a memorized one of any age."""
        stored = self._broker.store.find(event)
        if stored is None or event in self.recent:
            return self.recent.find(event)
        published_at = stored.expires_at - stored.event.lifetime
        is_over = stored.expires_at <= self.host.now()
        return None if is_over else KeptEvent(event, stored.event, stored.hops, published_at, True)


class KeptEvent(msgspec.Struct, eq=False, gc=False):
    """An event at this node, and what is known about it. A struct, and without garbage collection, because
    every event makes one at every node.

    It is kept with the nodes in range that have it: one that sent it or named it in a digest certainly has it
    (`had_by`), one for whom a frame with it was meant, ours or another's, probably has it (`told`). When a
    link breaks, the second is cancelled for its other end.
    """

    id: EventId
    event: Event
    hops: int  # links so far
    published_at: Micros  # on this node's clock, computed from the age
    again: bool  # came by recovery: only for subscriptions that are older than the event
    had_by: set[NodeId] = set()
    told: set[NodeId] = set()
    is_named: bool = False  # whether we are asked to send it on

    def reached(self, neighbour: NodeId) -> bool:
        return neighbour in self.had_by or neighbour in self.told


class KeptEvents:
    """Events of the last seconds, kept for neighbours that missed them. Bounded in count and in time since
    publication; in order of arrival.

    The time counts from publication, not from arrival. Otherwise an event that is recovered repeatedly could
    outlive its entries in the duplicate filters of other nodes.
    """

    def __init__(self, options: TreeOptions, on_evicted: OnEvicted[EventId, KeptEvent]) -> None:
        self._keep_for = micros(options.recovery_time)
        self._events_max = options.recovery_events
        self._on_evicted = on_evicted
        # Not a `BoundedDict`: an entry takes 1.0 µs there, and 0.14 µs here.
        self._entries: dict[EventId, KeptEvent] = {}
        self._order: deque[KeptEvent] = deque()
        self.find: Callable[[EventId], KeptEvent | None] = self._entries.get

    def add(self, event: "KeptEvent", now: Micros) -> None:
        # An expired event stays while a younger one that arrived before it does; `standing` leaves it out.
        order, entries = self._order, self._entries
        while order and now - order[0].published_at >= self._keep_for:
            del entries[order.popleft().id]
        if len(order) >= self._events_max:
            evicted = order.popleft()
            del entries[evicted.id]
            self._on_evicted(evicted.id, evicted)
        order.append(event)
        entries[event.id] = event

    def standing(self, now: Micros) -> list[KeptEvent]:
        """The events that are young enough for recovery, in order of arrival."""
        return [each for each in self._order if now - each.published_at < self._keep_for]

    def on_link_down(self, neighbour: NodeId) -> None:
        for entry in self._order:
            entry.told.discard(neighbour)

    def __contains__(self, event: EventId) -> bool:
        return event in self._entries
