"""Content-based routing on an acyclic overlay: what REDS does on its tree (acyclic overlay, section 5.3).

Subscriptions travel over every link of the tree, unless covered by what was announced there already. Events
follow them back, over each link whose table matches, except the one they came from. The overlay below keeps
the tree and calls this layer by its `OverlayListener` interface; this layer keeps the tables consistent and
recovers lost events while the tree is rearranged. The parts:

- `tables.py`: what each link wants and is announced; deferred unsubscription;
- `session.py`: keeping a neighbour's copy of a table equal to ours over a lossy link;
- `recent.py`, `offers.py`: recovery of lost events, handing over of memorized ones;
- `carrier.py`: sending an event over a link; `gaps.py`, `pace.py`;
- here: messages, timers, and where an event goes.

Explicit destinations: an event that names nodes is flooded over the tree, because a table of all
nodes at every link would have to be maintained for events that are rare. It stops at a node that is its
only destination.
"""

import msgspec

from roamcast.broker.core import Broker, Subscription
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import Host, Kind, TimerName
from roamcast.stable import count_boot
from roamcast.strategy.overflow import trace_overflow
from roamcast.strategy.repetition import Backoff, Repetition
from roamcast.strategy.tree.content.carrier import TIMER, Carrier, TreeLinks
from roamcast.strategy.tree.content.messages import (
    CODEC,
    Cast,
    ContentMessage,
    EventOffer,
    FilterChange,
    FilterUpdate,
    MissedBroadcasts,
    Pull,
    Received,
    Refresh,
    Routed,
    Tally,
    UpdateAcknowledgement,
    WantAnswer,
    change_of,
    event_ids,
)
from roamcast.strategy.tree.content.offers import WANTED_MAX, Offers, Wanted
from roamcast.strategy.tree.content.options import ContentOptions
from roamcast.strategy.tree.content.recent import EventCopy, RecentEvent, RecentEvents
from roamcast.strategy.tree.content.session import FilterAnnouncement, NeighbourTable, Outcome
from roamcast.strategy.tree.content.tables import RoutingTables
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros

BOOTS = "tree-boots"  # key in stable storage
SESSIONS_PER_BOOT = 1 << 32  # any number works that no boot uses up

BACKOFF_MAX = 8  # times `table_retry_interval`: the longest wait between repeats; chosen by us


class ContentRouter:
    """Listens to the overlay (`on_link_up`, `on_link_down`, `on_receive`) and to the broker."""

    def __init__(self, host: Host, broker: Broker, options: ContentOptions, jitter: Micros = 0) -> None:
        self._host = host
        self._broker = broker
        self._options = options
        self._overlay: TreeLinks | None = None
        self._links: dict[NodeId, RouterLink] = {}
        self._tables = RoutingTables(
            unsubscription_delay=micros(options.unsubscription_delay),
            echo_delay=micros(options.echo_delay),
            filters_max=options.filters_max,
            on_overflow=lambda: trace_overflow(host, "subscription", "GHOSTS_MAX"),
        )
        self._recent = RecentEvents(
            events_max=options.recovery_events,
            keep_for=micros(options.recovery_time),
            on_evicted=lambda event, _: trace_overflow(host, "event", "recovery_events", event),
        )
        self._carrier = Carrier(host, options, jitter, self)
        # A neighbour that does not answer is probably gone, so updates to it are repeated ever less often.
        retry_interval = micros(options.table_retry_interval)
        self._update_backoff = Backoff(retry_interval, longest=BACKOFF_MAX * retry_interval)
        self._table_refresh_interval = micros(options.table_refresh_interval)
        self._recovery_interval = micros(options.recovery_interval)
        self._session = count_boot(host.stable, BOOTS) * SESSIONS_PER_BOOT

    def attach(self, overlay: TreeLinks) -> None:
        """Set the overlay, which is built after this router because it needs its listener."""
        self._overlay = overlay
        self._carrier.attach(overlay)

    # Inputs from the node and its applications.

    def on_start(self) -> None:
        # At random times: nodes that boot together would otherwise send their reminders together for ever.
        self._set_timer("refresh", self._some_of(self._table_refresh_interval))
        if self._options.recovery == "pull":
            self._set_timer("pull", self._some_of(self._recovery_interval))

    def on_subscribed(self, subscription: Subscription) -> None:
        self._tables.on_subscribed(subscription.filter, self._host.now())
        self._announce_soon()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._tables.on_unsubscribed(subscription.filter)
        self._announce_soon()

    def publish(self, event: Event) -> None:
        now = self._host.now()
        self._remember(event, 0, now)
        self._route(EventCopy(event, 0, now, False), None)

    def on_timer(self, name: TimerName) -> None:
        """A timer whose name begins with `TIMER`."""
        match name:
            case (_, "announce"):
                self._announce_all()
            case (_, "refresh"):
                self._remind_all()
            case (_, "pull"):
                self._pull_from_one()
            case (_, "retry", int() as neighbour):
                self._retry_update(neighbour)
            case (_, "offer", int() as neighbour):
                self._send_offer(neighbour)
            case (_, str() as kind, int() as which):
                self._carrier.on_timer(kind, which)

    # Inputs from the overlay.

    def on_link_up(self, neighbour: NodeId) -> None:
        if neighbour in self._links:
            return
        self._session += 1
        options = self._options
        self._links[neighbour] = RouterLink(
            FilterAnnouncement(self._session, options.table_bytes_max),
            NeighbourTable(options.filters_max),
            Offers(options.digest_events),
            Repetition(self._host, (TIMER, "retry", neighbour), self._update_backoff),
        )
        self._carrier.on_link_up(neighbour)
        self._tables.on_link_up(neighbour)
        self._announce_soon()

    def on_link_down(self, neighbour: NodeId) -> None:
        link = self._links.pop(neighbour, None)
        if link is None:
            return
        for event in self._carrier.on_link_down(neighbour):
            if not self._is_kept(event):
                self._broker.drop(event, DropReason.RETRIES, "event")
        self._tables.on_link_down(neighbour, self._host.now())
        self._recent.on_link_down(neighbour)
        link.repetition.end()
        self._host.cancel_timer((TIMER, "offer", neighbour))
        self._announce_soon()

    def on_receive(self, neighbour: NodeId, payload: bytes) -> None:
        now = self._host.now()
        try:
            message = CODEC.decode(payload)
            change = change_of(message, now) if isinstance(message, FilterUpdate) else None
        except WireError as error:
            self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "content", detail=str(error)))
            return
        link = self._links.get(neighbour)
        if isinstance(message, Routed):
            self._carrier.on_routed(neighbour, message)
            self._on_event(neighbour, message)
        elif isinstance(message, Cast):
            self._carrier.on_counts(neighbour, message)
            self._on_event(neighbour, message)
        elif link is None:
            return  # the link is up at their end before ours; they repeat what matters
        elif change is not None:
            self._on_change(neighbour, link, change)
        else:
            match message:
                case UpdateAcknowledgement():
                    self._on_acknowledge(neighbour, link, message)
                case Refresh():
                    self._on_refresh(neighbour, link, message)
                case EventOffer():
                    self._on_offer(neighbour, link, message)
                case WantAnswer():
                    self._on_want(neighbour, link, message)
                case Received():
                    if link.offers.on_received(message.number):
                        self._send_offer(neighbour)
                case Pull():
                    self._on_pull(neighbour, message)
                case Tally():
                    self._carrier.on_counts(neighbour, message)
                case MissedBroadcasts():
                    self._carrier.on_missed(neighbour, message)

    # Questions.

    def event_in(self, payload: bytes) -> EventId | None:
        try:
            message = CODEC.decode(payload)
        except WireError:
            return None
        return message.event.id if isinstance(message, Routed | Cast) else None

    def table(self, neighbour: NodeId) -> list[Filter] | None:
        """What a neighbour wants, in a fixed order; None before its table has come."""
        table = self._tables.table(neighbour)
        return None if table is None else sorted(table, key=Filter.encode)

    # Tables.

    def _announce_soon(self) -> None:
        """At the end of this instant, so that simultaneous changes share one message."""
        self._host.set_timer((TIMER, "announce"), self._host.now())

    def _announce_all(self) -> None:
        self._tables.on_time(self._host.now())
        for neighbour in self._tables.take_changed():
            self._announce(neighbour)
        due = self._tables.next_due()
        if due is not None:
            self._host.set_timer((TIMER, "announce"), due)

    def _announce(self, neighbour: NodeId) -> None:
        now = self._host.now()

        def age_of(wanted: Filter) -> Micros:
            since = self._tables.outgoing_since(neighbour, wanted)
            return 0 if since is None else max(0, now - since)

        link = self._links[neighbour]
        if link.announcement.next_update(self._tables.outgoing(neighbour), age_of) is not None:
            link.repetition.restart()
            link.update_made_at = now
            self._send_update(neighbour, link)

    def _send_update(self, neighbour: NodeId, link: "RouterLink") -> None:
        update = link.announcement.outstanding
        assert update is not None
        now = self._host.now()
        waited = now - link.update_made_at
        older = tuple((encoded, age + waited) for encoded, age in update.add)
        changed = [Filter.decode(encoded) for encoded in [*(each for each, _ in older), *update.remove]]
        own = bool(changed) and all(self._tables.is_local(each) for each in changed)
        message = msgspec.structs.replace(update, add=older)
        self._send_control(neighbour, message, "subscription", own=own)
        link.repetition.attempt()

    def _retry_update(self, neighbour: NodeId) -> None:
        link = self._links[neighbour]
        if link.announcement.outstanding is None:
            self._announce(neighbour)
        else:
            self._send_update(neighbour, link)

    def _on_change(self, neighbour: NodeId, link: "RouterLink", change: FilterChange) -> None:
        earlier = link.table.session
        match link.table.on_change(change):
            case Outcome.STALE:
                return
            case Outcome.LOST:
                self._send_control(
                    neighbour, UpdateAcknowledgement(change.session, link.table.version, True), "acknowledge"
                )
                return
            case Outcome.APPLIED:
                table = link.table.table()
                if earlier not in (-1, change.session):
                    self._on_new_incarnation(neighbour, link)
                if table is not None:
                    is_first = self._tables.table(neighbour) is None
                    added = self._tables.on_table(neighbour, table)
                    self._announce_soon()
                    self._offer_missed(neighbour, link, None if is_first else added)
            case Outcome.REPEATED:
                pass
        self._send_control(neighbour, UpdateAcknowledgement(change.session, change.version), "acknowledge")

    def _on_new_incarnation(self, neighbour: NodeId, link: "RouterLink") -> None:
        """The neighbour lost the link and forgot our table; it has a new incarnation. We did not notice."""
        self._recent.on_link_down(neighbour)
        self._carrier.on_new_life(neighbour)
        link.announcement.restart()
        self._announce(neighbour)

    def _on_acknowledge(self, neighbour: NodeId, link: "RouterLink", answer: UpdateAcknowledgement) -> None:
        if not link.announcement.on_acknowledge(answer):
            return
        if answer.lost:
            # After a wait: two nodes with different bounds would otherwise exchange messages without a pause.
            link.repetition.wait_again()
            return
        link.repetition.end()
        self._announce(neighbour)
        if self._options.recovery == "pull" and not link.has_pulled and link.announcement.is_settled:
            link.has_pulled = True
            self._send_pull(neighbour)

    def _remind_all(self) -> None:
        for neighbour, link in sorted(self._links.items()):
            reminder = link.announcement.refresh()
            if reminder is not None:
                self._send_control(neighbour, reminder, "refresh")
        self._set_timer("refresh", self._table_refresh_interval)

    def _on_refresh(self, neighbour: NodeId, link: "RouterLink", refresh: Refresh) -> None:
        if link.table.is_behind(refresh) and not link.table.agrees(refresh):
            self._send_control(
                neighbour, UpdateAcknowledgement(refresh.session, link.table.version, True), "acknowledge"
            )

    # The path of an event.

    def _on_event(self, neighbour: NodeId, routed: Routed | Cast) -> None:
        event = routed.event
        link = self._links.get(neighbour)
        if routed.again and link is not None:
            complete = link.wanted.on_event(event.id)
            if complete is not None:
                self._send_control(neighbour, Received(complete), "receipt")
        lives_for = event.lifetime - routed.age
        if not self._broker.observe(event.id, lives_for):
            known = self._recent.find(event.id)
            if known is not None:
                known.had_by.add(neighbour)
            return
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event.id, DropReason.EXPIRED, "event")
            return
        hops = routed.hops + 1
        published_at = self._host.now() - routed.age
        kept = self._remember(event, hops, published_at)
        if kept is not None:
            kept.had_by.add(neighbour)
        if not routed.again or self._is_wanted_here(event, published_at):
            self._broker.deliver(event, hops, routed.age)
        self._route(EventCopy(event, hops, published_at, routed.again), neighbour)

    def _is_wanted_here(self, event: Event, published_at: Micros) -> bool:
        """Whether a recovered event is still for us: a real-time event is not for later subscriptions."""
        if event.event_class is EventClass.MEMORIZED or self._host.node in event.destinations:
            return True
        since = self._tables.wanted_here_since(event)
        return since is not None and since <= published_at

    def _route(self, copy: EventCopy, came_from: NodeId | None) -> None:
        event = copy.event
        onward = [
            neighbour
            for neighbour in sorted(self._links)
            if neighbour != came_from
            and (
                self._is_missed(neighbour, event, copy.published_at)
                if copy.again
                else self._goes_to(neighbour, event)
            )
        ]
        if not onward:
            return
        if copy.hops >= self._options.hop_limit:
            self._broker.drop(event.id, DropReason.EXPIRED, "event")
        else:
            self._carrier.send(onward, copy)

    def _goes_to(self, neighbour: NodeId, event: Event) -> bool:
        if any(each != self._host.node for each in event.destinations):
            return True
        return event.wants_subscribers and self._tables.wants(neighbour, event)

    def _is_missed(self, neighbour: NodeId, event: Event, published_at: Micros) -> bool:
        """As `_goes_to`, but a real-time event only if it was wanted when it was published."""
        if event.destinations or event.event_class is EventClass.MEMORIZED:
            return self._goes_to(neighbour, event)
        since = self._tables.wanted_since(neighbour, event)
        return since is not None and since <= published_at

    # Calls of the carrier.

    def on_sent(self, neighbour: NodeId, event: EventId) -> None:
        kept = self._recent.find(event)
        if kept is not None and self._links[neighbour].is_settled:
            kept.sent_to.add(neighbour)

    def on_not_sent(self, neighbour: NodeId, event: EventId) -> None:
        kept = self._recent.find(event)
        if kept is not None:
            kept.sent_to.discard(neighbour)

    def on_given_up(self, neighbour: NodeId, event: EventId) -> None:
        if self._is_kept(event):
            self._offer(neighbour, self._links[neighbour], [event])

    # Recovery, and memorized events for those who come late.

    def _remember(self, event: Event, hops: int, published_at: Micros) -> RecentEvent | None:
        if self._options.recovery == "none":
            return None
        return self._recent.add(event, hops, published_at, self._host.now())

    def _is_kept(self, event: EventId) -> bool:
        return event in self._broker.store or (self._options.recovery == "push" and event in self._recent)

    def _offer_missed(self, neighbour: NodeId, link: "RouterLink", added: list[Filter] | None) -> None:
        """The neighbour has new filters (None: all of them are): offer the events that match them.

        Memorized events of any age; with `push` also recent ones that were wanted, somewhere behind this
        link, when they were published.
        """
        now = self._host.now()

        def is_asked_for(event: Event) -> bool:
            return added is None or any(each.matches(event) for each in added)

        missed = [
            stored.event.id
            for stored in self._broker.store.standing(now)
            if is_asked_for(stored.event) and self._goes_to(neighbour, stored.event)
        ]
        if self._options.recovery == "push":
            missed += [
                recent.event.id
                for recent in self._recent.standing(now)
                if not recent.reached(neighbour)
                and is_asked_for(recent.event)
                and self._is_missed(neighbour, recent.event, recent.published_at)
            ]
        if missed:
            self._offer(neighbour, link, missed)

    def _offer(self, neighbour: NodeId, link: "RouterLink", events: list[EventId]) -> None:
        if not link.offers.add(events):
            trace_overflow(self._host, "digest", "QUEUE_MAX")
        if not link.offers.is_busy:
            self._host.set_timer((TIMER, "offer", neighbour), self._host.now())

    def _send_offer(self, neighbour: NodeId) -> None:
        if self._carrier.is_repeating(neighbour):
            # The events it asked for still wait here for the radio: no answer was lost.
            self._host.set_timer((TIMER, "offer", neighbour), self._host.now() + self._recovery_interval)
            return
        offer = self._links[neighbour].offers.due()
        if offer is not None:
            self._send_control(neighbour, offer, "digest")
            self._host.set_timer((TIMER, "offer", neighbour), self._host.now() + self._recovery_interval)

    def _on_offer(self, neighbour: NodeId, link: "RouterLink", offer: EventOffer) -> None:
        missing: list[EventId] = []
        examined = 0
        for event in event_ids(offer.events):
            if len(missing) == WANTED_MAX:
                break
            examined += 1
            recent = self._recent.find(event)
            if recent is not None:
                recent.had_by.add(neighbour)
            elif event not in self._broker.store:
                missing.append(event)
        link.wanted.on_asked(offer.number, missing)
        self._send_control(neighbour, WantAnswer(offer.number, examined, tuple(missing)), "request")

    def _on_want(self, neighbour: NodeId, link: "RouterLink", want: WantAnswer) -> None:
        wanted = set(event_ids(want.events))
        stored = {each.event.id: each for each in self._broker.store.standing(self._host.now())}
        for event in link.offers.on_answer(want):
            recent = self._recent.find(event)
            if event not in wanted:
                if recent is not None:
                    recent.had_by.add(neighbour)
            elif recent is not None:
                self._send_again(neighbour, recent.event, recent.hops, recent.published_at)
            elif event in stored:
                kept = stored[event]
                self._send_again(neighbour, kept.event, kept.hops, kept.expires_at - kept.event.lifetime)
        if not link.offers.is_busy:
            self._send_offer(neighbour)

    def _send_again(self, neighbour: NodeId, event: Event, hops: int, published_at: Micros) -> None:
        self._carrier.send_again(neighbour, EventCopy(event, hops, published_at, True))

    def _pull_from_one(self) -> None:
        if self._links:
            self._send_pull(self._host.random.choice(sorted(self._links)))
        self._set_timer("pull", self._recovery_interval)

    def _send_pull(self, neighbour: NodeId) -> None:
        now = self._host.now()
        kept = self._recent.standing(now)
        first = max(0, len(kept) - self._options.digest_events)
        # Events that we have but do not name are older than the horizon.
        ages = [now - recent.published_at for recent in kept[:first]]
        horizon = min([micros(self._options.recovery_time), *ages])
        named = tuple((recent.event.publisher, recent.event.sequence) for recent in kept[first:])
        self._send_control(neighbour, Pull(max(0, horizon), named), "digest")

    def _on_pull(self, neighbour: NodeId, pull: Pull) -> None:
        now = self._host.now()
        named = set(event_ids(pull.events))
        missing: list[EventId] = []
        for recent in self._recent.standing(now):
            if recent.event.id in named:
                recent.had_by.add(neighbour)
            elif (
                neighbour not in recent.had_by
                # An event sent a moment ago may have crossed the digest.
                and not (neighbour in recent.sent_to and now - recent.arrived_at < self._recovery_interval)
                and now - recent.published_at < pull.horizon
                and self._is_missed(neighbour, recent.event, recent.published_at)
            ):
                missing.append(recent.event.id)
        if missing:
            # Offered by identifier and asked for in small parts, not sent at once: see `offers.py`.
            self._offer(neighbour, self._links[neighbour], missing)

    # Private.

    def _send_control(
        self, neighbour: NodeId, content: ContentMessage, name: str, *, own: bool = False
    ) -> None:
        assert self._overlay is not None
        self._overlay.send(
            neighbour, CODEC.encode(content), kind=Kind.CONTROL, message=name, event=None, own=own
        )

    def _set_timer(self, name: str, after: Micros) -> None:
        self._host.set_timer((TIMER, name), self._host.now() + after)

    def _some_of(self, interval: Micros) -> Micros:
        return int(self._host.random.random() * interval)


class RouterLink:
    """One incarnation of a tree link."""

    def __init__(
        self, announcement: FilterAnnouncement, table: NeighbourTable, offers: Offers, repetition: Repetition
    ) -> None:
        self.announcement = announcement
        self.table = table
        self.offers = offers
        self.repetition = repetition  # of the update that awaits its acknowledgement
        self.update_made_at: Micros = 0
        self.has_pulled = False
        self.wanted = Wanted()

    @property
    def is_settled(self) -> bool:
        """Whether the neighbour has sent a table: then the link is up at its end and our data is read."""
        return self.table.session >= 0
