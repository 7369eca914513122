"""Recovery of lost events, and the hand-over of memorized ones: one mechanism for all.

Nobody acknowledges a broadcast, but most neighbours show that they have an event: they send it on, or name
it in a digest of their own. To those who have shown nothing after a while, the event is *offered*: a digest
names it, up to three times, and a neighbour that lacks it asks. The same is done with older events when a
link is new or a neighbour's filters are. The events asked for are broadcast, once for all who asked, and
whoever overhears one has it too. A recovered event is offered on and not sent on, because most neighbours
have it.

A node asks for few events at a time, the newest first, and for the next when they have come. So recovery
runs at the speed of the radio, and after a long break what is new does not wait for what is old. How much is
sent again is limited for the neighbourhood, not for each node (`pace.py`).

The constants are chosen by us; docs/protocols/tree-routing.md has what was measured with them.
"""

from collections.abc import Callable, Iterable, Mapping

from roamcast.event import EventId
from roamcast.host import Host
from roamcast.strategy.overflow import trace_overflow
from roamcast.strategy.tree.content.messages import ContentMessage, Digest, Want, event_ids
from roamcast.strategy.tree.content.neighbour import TIMER, TreeNeighbour
from roamcast.strategy.tree.content.options import ContentOptions
from roamcast.strategy.tree.content.pace import RecoveryPace
from roamcast.units import MILLISECOND, Micros, NodeId, micros

OFFERS = 3  # digests that name an event to a neighbour that stays silent
OFFERS_MAX = 10_000  # events waiting to be offered to one neighbour
DIGEST_DELAY: Micros = 200 * MILLISECOND  # from an event sent to the digest that names it
PROMPT_DELAY: Micros = 50 * MILLISECOND  # the same for a recovered event, and after a new table
ASK_DELAY: Micros = 20 * MILLISECOND  # at least, at most twice; the missing event may still arrive
WANTED_MAX = 8  # events asked for at a time
WAITING_MAX = 4_096  # events still to be asked for
TRIES = 3  # requests for one event, before the next digest names it
BURST: Micros = 5 * MILLISECOND  # between two events sent again


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
        cast_again: Callable[[EventId, list[NodeId]], bool],
    ) -> None:
        """`has`: whether an event has been here. `tell`: broadcast a digest. `cast_again`: broadcast an event
        for these neighbours; False if it is not kept any more."""
        self._host = host
        self._links = links
        self._has = has
        self._tell = tell
        self._send = send
        self._cast_again = cast_again
        self._events_max = options.digest_events
        self._interval = micros(options.recovery_interval)
        self._pace = RecoveryPace()
        self._digest_at: Micros | None = None
        self._wanted: dict[EventId, WantedEvent] = {}
        self._asked: set[EventId] = set()
        self._repeats: dict[EventId, set[NodeId]] = {}  # who asked for it; the newest request last

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

    def on_shown(self, neighbour: NodeId, event: EventId) -> None:
        """The neighbour has shown that it has the event."""
        link = self._links.get(neighbour)
        if link is not None:
            link.offers.pop(event, None)
        askers = self._repeats.get(event)
        if askers is not None:
            askers.discard(neighbour)

    def on_event(self, event: EventId) -> None:
        """The event is here."""
        self._wanted.pop(event, None)
        if event in self._asked:
            self._asked.discard(event)
            if not self._asked and self._wanted:
                self._ask_within(0)

    def on_fresh(self) -> None:
        """We have sent an event for the first time."""
        self._pace.on_fresh()

    def on_repeat(self, event: EventId, served: Iterable[NodeId]) -> None:
        """Another node has sent an event again: the air that it took is not there for us."""
        self._pace.on_others(self._host.now())
        askers = self._repeats.get(event)
        if askers is not None:
            askers.difference_update(served)

    def on_digest(self, sender: NodeId, digest: Digest) -> None:
        node = self._host.node
        missing = {
            event: WantedEvent(sender)
            for nodes, events in digest.groups
            if node in nodes
            for event in event_ids(events)
            if not self._has(event)
        }
        if not missing:
            return
        self._wanted = missing | {e: w for e, w in self._wanted.items() if e not in missing}
        while len(self._wanted) > WAITING_MAX:
            self._wanted.popitem()
            trace_overflow(self._host, "digest", "WAITING_MAX")
        if not self._asked:
            self._ask_within(ASK_DELAY + int(self._host.random.random() * ASK_DELAY))

    def on_want(self, neighbour: NodeId, want: Want, was_sent: Callable[[EventId], bool]) -> None:
        """`was_sent`: whether the neighbour should have had the event from us before."""
        for event in event_ids(want.events):
            if was_sent(event):
                self._pace.on_loss(self._host.now())
            if event in self._repeats or len(self._repeats) < WAITING_MAX:
                askers = self._repeats.pop(event, set())
                self._repeats[event] = askers | {neighbour}
        self._wake()

    def on_link_down(self, neighbour: NodeId) -> None:
        """What it offered must come from others: they will name it."""
        self._wanted = {e: w for e, w in self._wanted.items() if w.source != neighbour}
        self._asked &= self._wanted.keys()

    # Timers.

    def send_digest(self) -> None:
        """One digest for all neighbours to whom something is offered, the newest events first."""
        self._digest_at = None
        neighbours: dict[EventId, list[NodeId]] = {}
        for neighbour, link in sorted(self._links.items()):
            for event in list(reversed(link.offers))[: self._events_max]:
                link.offers[event] += 1
                if link.offers[event] >= OFFERS:
                    del link.offers[event]
                neighbours.setdefault(event, []).append(neighbour)
        groups: dict[tuple[NodeId, ...], list[EventId]] = {}
        for event, named in neighbours.items():
            groups.setdefault(tuple(named), []).append(event)
        if groups:
            told = sorted({node for named in groups for node in named})
            self._tell(told, Digest(tuple((named, tuple(events)) for named, events in groups.items())))
        if any(link.offers for link in self._links.values()):
            self._digest_within(self._interval)

    def ask(self) -> None:
        """Ask for the first few events, each at the neighbour that named it last."""
        self._wanted = {e: w for e, w in self._wanted.items() if w.tries < TRIES and w.source in self._links}
        self._asked = set(list(self._wanted)[:WANTED_MAX])
        sources: dict[NodeId, list[EventId]] = {}
        for event in [each for each in self._wanted if each in self._asked]:
            self._wanted[event].tries += 1
            sources.setdefault(self._wanted[event].source, []).append(event)
        for source, events in sorted(sources.items()):
            self._send(source, Want(tuple(events)), "request", False)
        if sources:
            self._ask_within(self._interval + int(self._host.random.random() * ASK_DELAY))

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
                    for node in askers:  # named once more, in case the repeat is lost too
                        self._links[node].offers[event] = OFFERS - 1
                    self._digest_within(self._interval)
            break
        self._wake(BURST)

    # Private.

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
