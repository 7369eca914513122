"""Content-based routing on an acyclic overlay: what REDS does on its tree (acyclic overlay, section 5.3).

Subscriptions travel over every link of the tree, unless covered by what was announced there already. Events
follow them back, over each link whose table matches, except to those who have them. The overlay below keeps
the tree and calls this layer by its `OverlayListener` interface; this layer keeps the tables consistent and
recovers lost events while the tree is rearranged. The parts:

- `tables.py`, `covering_set.py`, `widening.py`: what each link wants and is announced;
- `announcer.py`, `session.py`: keeping a neighbour's copy of a table equal to ours over a lossy link;
- `recent.py`, `recovery.py`, `pace.py`: recovery of lost events, handing over of memorized ones;
- `neighbour.py`: one record for each tree link, on which all of these work;
- here: messages, timers, and where an event goes.

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

from collections.abc import Sequence
from functools import partial

from roamcast.broker.core import Broker, Subscription
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import Host, Kind, SendFailure, TimerName
from roamcast.kit.numbers import count_boot
from roamcast.kit.protocol import trace_overflow
from roamcast.strategy.tree.content.announcer import Announcer
from roamcast.strategy.tree.content.messages import (
    CODEC,
    Cast,
    ContentMessage,
    Digest,
    FilterChange,
    FilterUpdate,
    Refresh,
    UpdateAcknowledgement,
    Want,
    change_of,
)
from roamcast.strategy.tree.content.neighbour import TIMER, TreeLinks, TreeNeighbour
from roamcast.strategy.tree.content.options import ContentOptions
from roamcast.strategy.tree.content.recent import RecentEvent, RecentEvents
from roamcast.strategy.tree.content.recovery import Recovery
from roamcast.strategy.tree.content.session import Outcome
from roamcast.strategy.tree.content.tables import RoutingTables
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros

BOOTS = "tree-boots"  # key in stable storage
SESSIONS_PER_BOOT = 1 << 32  # any number works that no boot uses up
# Before a node that overheard an event sends it on, in `jitter`s: by then it often knows that its neighbours
# have it. A leaf waits until its neighbour must have sent it. Chosen by us: longer waits save frames, shorter
# ones find short cuts.
PATIENCE = 1
LEAF_PATIENCE = 15
RIVALS = 4  # nodes named in a frame from which on they share a whole `jitter`
HOPS_MAX = 255


class ContentRouter:
    """Listens to the overlay (`on_link_up`, `on_link_down`, `on_receive`, `on_spread`) and to the broker."""

    def __init__(self, host: Host, broker: Broker, options: ContentOptions, jitter: Micros = 0) -> None:
        self._host = host
        self._node = host.node
        self._broker = broker
        self._options = options
        self._jitter = jitter
        self._overlay: TreeLinks | None = None
        self._links: dict[NodeId, TreeNeighbour] = {}
        self._tables = RoutingTables(
            self._links,
            unsubscription_delay=micros(options.unsubscription_delay),
            echo_delay=micros(options.echo_delay),
            filters_max=options.filters_max,
            on_overflow=lambda: trace_overflow(host, "subscription", "GHOSTS_MAX"),
        )
        self._announcer = Announcer(host, options, self._links, self._tables, self._send_control)
        self._recent = RecentEvents(
            events_max=options.recovery_events,
            keep_for=micros(options.recovery_time),
            on_evicted=lambda event, _: trace_overflow(host, "event", "recovery_events", event),
        )
        self._recovery = Recovery(
            host,
            options,
            self._links,
            has=self._has,
            tell=self._tell,
            send=self._send_control,
            cast_again=self._cast_again,
            hand=self._hand,
        )
        self._recovers = options.recovery == "push"
        self._session = count_boot(host.stable, BOOTS) * SESSIONS_PER_BOOT

    def attach(self, overlay: TreeLinks) -> None:
        """Set the overlay, which is built after this router because it needs its listener."""
        self._overlay = overlay

    # Inputs from the node and its applications.

    def on_start(self) -> None:
        self._announcer.on_start()

    def on_subscribed(self, subscription: Subscription) -> None:
        self._tables.on_subscribed(subscription.filter, self._host.now())
        self._announcer.announce_soon()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._tables.on_unsubscribed(subscription.filter)
        self._announcer.announce_soon()

    def publish(self, event: Event) -> None:
        now = self._host.now()
        kept = RecentEvent(event.id, event, 0, now, False, is_named=True)
        self._recent.add(kept, now)
        self._send_on_soon(kept)

    def on_timer(self, name: TimerName) -> None:
        """A timer whose name begins with `TIMER`."""
        match name:
            case (_, "cast", EventId() as event_id):
                self._send_on(event_id)
            case (_, "announce"):
                self._announcer.announce_all()
            case (_, "refresh"):
                self._announcer.remind_all()
            case (_, "retry", int() as neighbour):
                self._announcer.retry(neighbour)
            case (_, "digest"):
                self._recovery.send_digest()
            case (_, "ask"):
                self._recovery.ask()
            case (_, "repeat"):
                self._recovery.send_repeat()
            case (_, "hand"):
                self._recovery.hand_over()

    # Inputs from the overlay.

    def on_link_up(self, neighbour: NodeId) -> None:
        if neighbour in self._links:
            return
        self._session += 1
        link = self._links[neighbour] = self._announcer.neighbour(neighbour, self._session)
        self._tables.on_link_up(link)
        self._announcer.announce_soon()

    def on_link_down(self, neighbour: NodeId) -> None:
        link = self._links.pop(neighbour, None)
        if link is None:
            return
        self._tables.on_link_down(link, self._host.now())
        self._recent.on_link_down(neighbour)
        self._recovery.on_link_down(neighbour)
        link.repetition.end()
        self._announcer.announce_soon()

    def on_receive(self, neighbour: NodeId, payload: bytes) -> None:
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
                self._on_control(self._links[sender], message)
            # Else the link is up at their end before ours; they repeat what matters.
        except WireError as error:
            now, node = self._host.now(), self._host.node
            self._host.trace(Dropped(now, node, DropReason.WIRE, "content", detail=str(error)))

    def _on_control(self, link: TreeNeighbour, message: ContentMessage) -> None:
        match message:
            case FilterUpdate():
                self._on_change(link, change_of(message, self._host.now()))
            case UpdateAcknowledgement():
                self._announcer.on_acknowledge(link, message)
            case Refresh():
                self._announcer.on_refresh(link, message)
            case Want():
                self._on_want(link.neighbour, message)

    # Questions.

    def event_in(self, payload: bytes) -> EventId | None:
        try:
            message = CODEC.decode(payload)
        except WireError:
            return None
        return message.event.id if isinstance(message, Cast) else None

    def table(self, neighbour: NodeId) -> list[Filter] | None:
        """What a neighbour wants, in a fixed order; None before its table has come."""
        table = self._tables.table(neighbour)
        return None if table is None else sorted(table, key=Filter.encode)

    # Tables.

    def _on_change(self, link: TreeNeighbour, change: FilterChange) -> None:
        earlier = link.received.session
        if self._announcer.on_change(link, change) is not Outcome.APPLIED:
            return
        if earlier not in (-1, change.session):
            # The neighbour lost the link and forgot our table; it has a new incarnation. We did not notice.
            self._recent.on_link_down(link.neighbour)
            link.announcement.restart()
            self._announcer.announce(link)
        table = link.received.table()
        if table is not None:
            is_first = link.table is None
            added = self._tables.on_table(link.neighbour, table)
            self._announcer.announce_soon()
            self._offer_missed(link.neighbour, None if is_first else added)

    # The path of an event.

    def _on_event(self, sender: NodeId, cast: Cast, named: Sequence[NodeId]) -> None:
        event_id = cast.event.id
        kept = self._recent.find(event_id)
        is_new = kept is None
        if kept is None:
            kept = self._arrive(event_id, cast)
        if cast.again:
            self._recovery.on_repeat(event_id, named)
        if kept is None:
            return
        kept.told.update(named)
        if sender not in kept.had_by:
            self._show(sender, kept)
        if kept.again:
            if is_new and (self._recovers or cast.event.event_class is EventClass.MEMORIZED):
                self._offer_on(kept)
        elif not named or self._node in named:  # without links a node asks all who hear it
            kept.is_named = True
            self._send_on_soon(kept, rivals=len(named))
        elif is_new:
            self._send_on_soon(kept, PATIENCE)

    def _arrive(self, event_id: EventId, cast: Cast) -> RecentEvent | None:
        """A copy of an event that is not kept; None if it was here long ago, or comes too late."""
        event = cast.event
        lives_for = event.lifetime - cast.age
        if not self._broker.observe(event_id, lives_for):
            return None
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event_id, DropReason.EXPIRED, "event")
            return None
        now = self._host.now()
        hops = min(cast.hops + 1, HOPS_MAX)
        kept = RecentEvent(event_id, event, hops, now - cast.age, cast.again)
        self._recent.add(kept, now)
        self._recovery.on_event(event_id)
        if not cast.again or self._is_wanted_here(event, kept.published_at):
            self._broker.deliver(event, hops, cast.age)
        return kept

    def _show(self, sender: NodeId, kept: RecentEvent) -> None:
        """The sender has shown for the first time that it has the event."""
        kept.had_by.add(sender)
        link = self._links.get(sender)
        if link is not None:
            self._recovery.on_shown(link, kept.id)

    def _is_wanted_here(self, event: Event, published_at: Micros) -> bool:
        """Whether a recovered event is still for us: a real-time event is not for later subscriptions."""
        if event.event_class is EventClass.MEMORIZED or self._host.node in event.destinations:
            return True
        since = self._tables.wanted_here_since(event)
        return since is not None and since <= published_at

    def _send_on_soon(self, kept: RecentEvent, patience: int = 0, rivals: int = RIVALS) -> None:
        """After a random delay: receivers of one broadcast may not hear each other, and would collide. The
        fewer `rivals` were named in the frame, the shorter it is. Without patience goes before with."""
        if kept.is_waiting and patience:
            return
        kept.is_waiting = True
        share = self._host.random.random() * min(rivals, RIVALS) / RIVALS
        at = self._host.now() + int((patience + share) * self._jitter)
        self._host.set_timer((TIMER, "cast", kept.id), at)

    def _send_on(self, event_id: EventId) -> None:
        kept = self._recent.find(event_id)
        if kept is None:
            return
        kept.is_waiting = False
        neighbours = sorted(self._links)
        if kept.is_named:  # else it matters how many want it, those who have it too
            neighbours = [each for each in neighbours if each not in kept.had_by]
        wanting = self._wanting(kept.event, neighbours)
        onward = [each for each in wanting if not kept.reached(each)]
        if not kept.is_named and len(wanting) <= 1:
            # A leaf. Where it wants the event itself, its neighbour sends it on for it, and if not, has none.
            if onward and self._broker.wants(kept.event):
                kept.is_named = True
                self._send_on_soon(kept, LEAF_PATIENCE)
            return
        if kept.hops >= self._options.hop_limit:
            self._broker.drop(event_id, DropReason.EXPIRED, "event")
            return
        if onward or (kept.hops == 0 and not self._links):
            self._recovery.on_fresh()
            self._cast(kept, onward, again=False)
        if self._recovers:
            for neighbour in wanting:
                if neighbour not in kept.had_by:
                    self._recovery.offer(neighbour, (event_id,), prompt=False)

    def _cast(self, kept: RecentEvent, to: list[NodeId], *, again: bool) -> None:
        assert self._overlay is not None
        if not to and not self._overlay.is_overheard:
            return
        for each in to:
            if self._links[each].is_settled:
                kept.told.add(each)
        self._overlay.spread(
            to,
            self._encoded(kept, again=again),
            kind=Kind.DATA,
            message="recovery" if again else "event",
            event=kept.id,
            own=kept.hops == 0 and not again,
        )

    def _encoded(self, kept: RecentEvent, *, again: bool) -> bytes:
        age = max(0, self._host.now() - kept.published_at)
        return CODEC.encode(Cast(kept.event, kept.hops, age, again))

    def _wanting(self, event: Event, neighbours: list[NodeId]) -> list[NodeId]:
        """Those of them over whose links the event goes."""
        if event.destinations:
            if any(each != self._node for each in event.destinations):
                return neighbours
            if not event.multimode:
                return []
        wants = self._tables.wants
        return [each for each in neighbours if wants(each, event)]

    def _is_missed(self, neighbour: NodeId, event: Event, published_at: Micros) -> bool:
        """As `_wanting`, but a real-time event only if it was wanted when it was published."""
        if event.destinations or event.event_class is EventClass.MEMORIZED:
            return bool(self._wanting(event, [neighbour]))
        since = self._tables.wanted_since(neighbour, event)
        return since is not None and since <= published_at

    # Recovery, and memorized events for those who come late.

    def _has(self, event: EventId) -> bool:
        return event in self._recent or event in self._broker.store or self._broker.has_seen(event)

    def _offer_missed(self, neighbour: NodeId, added: list[Filter] | None) -> None:
        """The neighbour has new filters (None: all of them are): offer the events that match them.

        Memorized events of any age; with recovery also recent ones that were wanted, somewhere behind this
        link, when they were published.
        """
        now = self._host.now()

        def is_asked_for(event: Event) -> bool:
            return added is None or any(each.matches(event) for each in added)

        def has(recent: RecentEvent) -> bool:
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
                for recent in self._recent.standing(now)
                if not has(recent)
                and is_asked_for(recent.event)
                and self._is_missed(neighbour, recent.event, recent.published_at)
            ]
        self._recovery.offer(neighbour, missed, prompt=True)

    def _offer_on(self, kept: RecentEvent) -> None:
        for neighbour in sorted(self._links):
            if not kept.reached(neighbour) and self._is_missed(neighbour, kept.event, kept.published_at):
                self._recovery.offer(neighbour, [kept.id], prompt=True)

    def _on_digest(self, sender: NodeId, digest: Digest) -> None:
        find = self._recent.find
        for nodes, events in digest.groups:
            is_asked = self._node in nodes
            for event in events:
                kept = find(event)
                if kept is None:
                    continue
                if sender not in kept.had_by:
                    self._show(sender, kept)
                if is_asked and not kept.is_named and not kept.again:
                    kept.is_named = True  # we overheard it, and are asked now to send it on
                    self._send_on_soon(kept)
        if sender in self._links:
            self._recovery.on_digest(sender, digest)

    def _on_want(self, neighbour: NodeId, want: Want) -> None:
        def was_sent(event: EventId) -> bool:
            kept = self._recent.find(event)
            return kept is not None and neighbour in kept.told

        self._recovery.on_want(neighbour, want, was_sent)

    def _cast_again(self, event: EventId, to: list[NodeId]) -> int:
        """Returns the octets, 0 if it is not kept any more."""
        kept = self._kept(event)
        if kept is None:
            return 0
        self._cast(kept, to, again=True)
        return 1 + len(kept.event.payload)

    def _hand(self, event: EventId, to: NodeId) -> int:
        """Likewise."""
        kept = self._kept(event)
        if kept is None:
            return 0
        assert self._overlay is not None
        kept.told.add(to)
        message = self._encoded(kept, again=True)
        self._overlay.send(
            to,
            message,
            kind=Kind.DATA,
            message="recovery",
            event=event,
            own=False,
            on_failure=partial(self._on_not_handed, to, event),
        )
        return len(message)

    def _on_not_handed(self, neighbour: NodeId, event: EventId, _: SendFailure) -> None:
        if neighbour in self._links:
            self._recovery.offer(neighbour, [event], prompt=False)

    def _kept(self, event: EventId) -> RecentEvent | None:
        """A recent event, or a memorized one of any age."""
        stored = self._broker.store.find(event)
        if stored is None or event in self._recent:
            return self._recent.find(event)
        published_at = stored.expires_at - stored.event.lifetime
        is_over = stored.expires_at <= self._host.now()
        return None if is_over else RecentEvent(event, stored.event, stored.hops, published_at, True)

    # Private.

    def _tell(self, to: list[NodeId], digest: Digest) -> None:
        assert self._overlay is not None
        self._overlay.spread(
            to, CODEC.encode(digest), kind=Kind.CONTROL, message="digest", event=None, own=False
        )

    def _send_control(self, neighbour: NodeId, content: ContentMessage, name: str, own: bool) -> None:
        assert self._overlay is not None
        self._overlay.send(
            neighbour, CODEC.encode(content), kind=Kind.CONTROL, message=name, event=None, own=own
        )
