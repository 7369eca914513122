"""Recovery of lost events, and the hand-over of memorized ones: one mechanism for all.

Nobody acknowledges a broadcast, but most neighbours show that they have an event: they send it on, or name
it in a digest of their own. To those who have shown nothing after a while, the event is *offered*: a digest
names it, up to three times, and a neighbour that lacks it asks. The same is done with older events when a
link is new or a neighbour's filters are. A recovered event is offered on and not sent on, because most
neighbours have it.

A few events are *repeated*: broadcast, once for all who asked, and whoever overhears it has it too. On a
busy radio that is what recovery mostly does, so it is limited for the neighbourhood and not for each node
(`pace.py`). If a neighbour asks for many that were never sent to it, they are *handed over*, by unicast:
after a break it lacks much, and those around it nothing.

A node asks for the newest events first, and has so many requests open as are answered in time: twice as many
after each window that was answered, half as many when some were not. So a hand-over runs at the speed of the
radio, and after a long break what is new does not wait for what is old.

The constants are chosen by us; docs/protocols/tree-routing.md has what was measured with them.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import filterfalse, islice

from roamcast.event import EventId
from roamcast.host import Host
from roamcast.kit.protocol import trace_overflow
from roamcast.kit.repair import fragments, newest_first
from roamcast.strategy.tree.content.messages import ContentMessage, Digest, Want
from roamcast.strategy.tree.content.neighbour import TIMER, TreeNeighbour
from roamcast.strategy.tree.content.options import ContentOptions
from roamcast.strategy.tree.content.pace import RecoveryPace
from roamcast.units import MILLISECOND, Micros, NodeId, micros

OFFERS = 3  # digests that name an event to a neighbour that stays silent
OFFERS_OF_OWN = 6  # the same for an event of our own: if it is lost here, nobody gets it
OFFERS_MAX = 10_000  # events waiting to be offered to one neighbour
DIGEST_DELAY: Micros = 200 * MILLISECOND  # from an event sent to the digest that names it
PROMPT_DELAY: Micros = 50 * MILLISECOND  # the same for a recovered event, and after a new table
NEXT_DELAY: Micros = 100 * MILLISECOND  # between two digests, while there are events that none has named yet
ASK_DELAY: Micros = 20 * MILLISECOND  # at least, at most twice; the missing event may still arrive
WINDOW_MIN = 16  # events that may be asked for and not here yet; at first, and while answers are missing
WINDOW_MAX = 64
WAITING_MAX = 4_096  # events still to be asked for
TRIES = 3  # requests for one event, before the next digest names it
BURST: Micros = 5 * MILLISECOND  # between two repeats
HAND_MIN = WINDOW_MIN // 2  # events in a request from which on it is a hand-over
HAND_PACE: Micros = 10 * MILLISECOND  # between two bursts of events that are handed over
HAND_BURST = 4  # events, or pieces of large ones


class Recovery:
    def __init__(
        self,
        host: Host,
        options: ContentOptions,
        links: Mapping[NodeId, TreeNeighbour],
        *,
        has: Callable[[EventId], bool],
        tell: Callable[[list[NodeId], Digest], None],
        send: Callable[[NodeId, ContentMessage, str, bool], None],
        cast_again: Callable[[EventId, list[NodeId]], int],
        hand: Callable[[EventId, NodeId], int],
    ) -> None:
        """`has`: whether an event has been here. `tell`: broadcast a digest. `cast_again`: broadcast an event
        for these neighbours, `hand`: send it to one; its octets, 0 if it is not kept any more."""
        self._host = host
        self._links = links
        self._has = has
        self._tell = tell
        self._send = send
        self._cast_again = cast_again
        self._hand = hand
        self._events_max = options.digest_events
        self._interval = micros(options.recovery_interval)
        self._pace = RecoveryPace()
        self._digest_at: Micros | None = None
        self._wanted: dict[EventId, WantedEvent] = {}
        self._asked: dict[EventId, Micros] = {}  # of those wanted; until when the answer may come
        self._window = WINDOW_MIN
        self._repeats: dict[EventId, set[NodeId]] = {}  # who asked for it; the newest request last
        self._handing: dict[EventId, set[NodeId]] = {}  # the same; the newest request first

    # Inputs.

    def offer(self, neighbour: NodeId, events: Iterable[EventId], *, prompt: bool) -> None:
        """These events are to be offered to a neighbour, unless it shows before that it has them."""
        offers = self._links[neighbour].offers
        for event in events:
            if len(offers) >= OFFERS_MAX:
                trace_overflow(self._host, "digest", "OFFERS_MAX")
                break
            offers[event] = 0
        if offers:
            self._digest_within(PROMPT_DELAY if prompt else DIGEST_DELAY)

    def on_shown(self, link: TreeNeighbour, event: EventId) -> None:
        """The neighbour has shown that it has the event."""
        link.offers.pop(event, None)
        if self._repeats or self._handing:
            self._served(event, (link.neighbour,))

    def on_event(self, event: EventId) -> None:
        """The event is here."""
        self._wanted.pop(event, None)
        if self._asked.pop(event, None) is None:
            return
        if len(self._asked) <= self._window // 2 and len(self._wanted) > len(self._asked):
            self._window = min(2 * self._window, WINDOW_MAX)
            self._ask_within(0)

    def on_fresh(self) -> None:
        """We have sent an event for the first time."""
        self._pace.on_fresh()

    def on_repeat(self, event: EventId, served: Iterable[NodeId]) -> None:
        """Another node has sent an event again: the air that it took is not there for us."""
        self._pace.on_others(self._host.now())
        self._served(event, served)

    def on_digest(self, sender: NodeId, digest: Digest) -> None:
        node = self._host.node
        missing = {
            event: WantedEvent(sender)
            for nodes, events in digest.groups
            if node in nodes
            for event in events
            if not self._has(event)
        }
        if not missing:
            return
        wanted = self._wanted | missing
        self._wanted = {event: wanted[event] for event in newest_first(wanted)}
        while len(self._wanted) > WAITING_MAX:
            self._wanted.popitem()
            trace_overflow(self._host, "digest", "WAITING_MAX")
        if not self._asked:
            self._ask_within(ASK_DELAY + int(self._host.random.random() * ASK_DELAY))

    def on_want(self, neighbour: NodeId, want: Want, was_sent: Callable[[EventId], bool]) -> None:
        """`was_sent`: whether the neighbour should have had the event from us before."""
        is_idle = not self._handing
        for event in want.events:
            was_lost = was_sent(event)
            if was_lost:
                self._pace.on_loss(self._host.now())
            if was_lost or len(want.events) < HAND_MIN:
                if event in self._repeats or len(self._repeats) < WAITING_MAX:
                    askers = self._repeats.pop(event, set())
                    self._repeats[event] = askers | {neighbour}
            elif event in self._handing or len(self._handing) < WAITING_MAX:
                self._handing.setdefault(event, set()).add(neighbour)
        self._wake()
        if is_idle:
            self.hand_over()

    def on_link_down(self, neighbour: NodeId) -> None:
        """What it offered must come from others: they will name it."""
        self._wanted = {e: w for e, w in self._wanted.items() if w.source != neighbour}
        self._asked = {e: until for e, until in self._asked.items() if e in self._wanted}

    # Timers.

    def send_digest(self) -> None:
        """One digest for all neighbours to whom something is offered, the newest events first."""
        self._digest_at = None
        neighbours: dict[EventId, list[NodeId]] = {}
        node = self._host.node
        for neighbour, link in sorted(self._links.items()):
            offers = link.offers
            for event in self._to_name(offers):
                times = offers[event] + 1
                if times < OFFERS or (event[0] == node and times < OFFERS_OF_OWN):
                    offers[event] = times
                else:
                    del offers[event]
                if event in neighbours:
                    neighbours[event].append(neighbour)
                else:
                    neighbours[event] = [neighbour]
        groups: dict[tuple[NodeId, ...], list[EventId]] = {}
        for event, named in neighbours.items():
            groups.setdefault(tuple(named), []).append(event)
        if groups:
            told = sorted({node for named in groups for node in named})
            self._tell(told, Digest(tuple((named, tuple(events)) for named, events in groups.items())))
        if any(0 in link.offers.values() for link in self._links.values()):
            self._digest_within(NEXT_DELAY)
        elif any(link.offers for link in self._links.values()):
            self._digest_within(self._interval)

    def ask(self) -> None:
        """Ask for the next events that the window allows, each at the neighbour that named it last."""
        now = self._host.now()
        late = [event for event, until in self._asked.items() if until <= now]
        for event in late:
            del self._asked[event]
            wanted = self._wanted[event]
            if wanted.tries >= TRIES or wanted.source not in self._links:
                del self._wanted[event]
        if late:
            self._window = max(self._window // 2, WINDOW_MIN)
        room = max(0, self._window - len(self._asked))
        until = now + self._interval
        sources: dict[NodeId, list[EventId]] = {}
        for event in list(islice(filterfalse(self._asked.__contains__, self._wanted), room)):
            self._asked[event] = until
            self._wanted[event].tries += 1
            sources.setdefault(self._wanted[event].source, []).append(event)
        for source, events in sorted(sources.items()):
            self._send(source, Want(tuple(events)), "request", False)
        if self._asked:
            self._ask_within(self._interval + int(self._host.random.random() * ASK_DELAY))

    def hand_over(self) -> None:
        """The next few of the events that were asked for and never sent, in the order of the requests."""
        sent = 0
        while self._handing and sent < HAND_BURST:
            event = next(iter(self._handing))
            askers = [node for node in sorted(self._handing.pop(event)) if node in self._links]
            if len(askers) == 1 and (size := self._hand(event, askers[0])):
                self._links[askers[0]].offers.pop(event, None)
                sent += fragments(size)
            elif len(askers) > 1 and (size := self._cast_again(event, askers)):
                self._name_once_more(event, askers)
                sent += fragments(size)
        if self._handing:
            self._host.set_timer((TIMER, "hand"), self._host.now() + HAND_PACE)

    def send_repeat(self) -> None:
        """The event that was asked for last, for all who asked."""
        while self._repeats:
            event = next(reversed(self._repeats))
            askers = [node for node in sorted(self._repeats[event]) if node in self._links]
            if not askers:
                del self._repeats[event]
                continue
            if self._pace.take(self._host.now()):
                del self._repeats[event]
                if self._cast_again(event, askers):
                    self._name_once_more(event, askers)
            break
        self._wake(BURST)

    # Private.

    def _to_name(self, offers: dict[EventId, int]) -> list[EventId]:
        """The newest first; if there are more than one digest holds, those before that none has named."""
        if len(offers) <= self._events_max:
            return list(reversed(offers))
        unnamed = newest_first(event for event, times in offers.items() if not times)
        return (unnamed + [event for event, times in offers.items() if times])[: self._events_max]

    def _name_once_more(self, event: EventId, askers: Iterable[NodeId]) -> None:
        """In case the broadcast is lost too."""
        for node in askers:
            self._links[node].offers[event] = OFFERS - 1
        self._digest_within(self._interval)

    def _served(self, event: EventId, nodes: Iterable[NodeId]) -> None:
        """These nodes have the event from elsewhere."""
        for asked in (self._repeats, self._handing):
            if event in asked:
                asked[event].difference_update(nodes)

    def _wake(self, after: Micros = 0) -> None:
        if self._repeats:
            now = self._host.now()
            self._host.set_timer((TIMER, "repeat"), max(now + after, self._pace.next_at(now)))

    def _digest_within(self, time: Micros) -> None:
        """At a random time in its second half: neighbours that have the same to tell do not collide."""
        at = self._host.now() + time // 2 + int(self._host.random.random() * (time // 2))
        if self._digest_at is None or at < self._digest_at:
            self._digest_at = at
            self._host.set_timer((TIMER, "digest"), at)

    def _ask_within(self, time: Micros) -> None:
        self._host.set_timer((TIMER, "ask"), self._host.now() + time)


class WantedEvent:
    """An event that a neighbour has named and that has not been here."""

    __slots__ = ("source", "tries")

    def __init__(self, source: NodeId) -> None:
        self.source = source
        self.tries = 0
