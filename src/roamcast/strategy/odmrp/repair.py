"""Repair: a node names the events that it has, and who lacks one that it wants asks for it. Ours, not the
paper's: ODMRP acknowledges no data, and a member that was away has missed it.

- *Recent events*. Who has broadcast an event names it in small frames afterwards (`HeldEvents`), so does who
  got it by a repair. Where a neighbour came or went, all around name what they have until the mesh is
  renewed. A neighbour that wants the event, or forwards for a member that does, asks.
- *Memorized events*. A broker that holds some names them in Join Requests of its own, one per refresh
  interval. One broker of a partition is enough: who hears another name an event is silent about it; of two
  that both name it the one with the lower number goes on. If nobody names it any more (the publisher left,
  crashed, or is in another partition), the other holders do.

The compact form serves here too: events are named together with their digest, so only those ask whom they
concern. Requests and answers are unicast, over the paths that Join Requests leave (`clients.py`); a node
between that has the event answers itself. Mechanisms: `kit/repair.py`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import NamedTuple

from roamcast.broker.core import Broker
from roamcast.broker.seen import EventKey
from roamcast.event import Event, EventId
from roamcast.kit.protocol import Messenger, Timer, Timers, random_below
from roamcast.kit.repair import (
    RECENT_TIME,
    Answers,
    DigestTurns,
    HeldRuns,
    Holdings,
    Requests,
    by_publisher,
    events_of,
    runs,
    runs_of,
    unseen_of,
)
from roamcast.kit.tables import BoundedDict, ExpiringDict, unreported
from roamcast.strategy.odmrp.clients import ClientPost
from roamcast.strategy.odmrp.context import MeshContext
from roamcast.strategy.odmrp.messages import (
    GROUPS_MAX,
    AnyMessage,
    HandedEvent,
    HeldEvents,
    HeldGroup,
    JoinRequest,
    LackedEvents,
)
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us.
TELLINGS = 2  # frames that name a recent event
TELL_DELAY: Micros = 300 * MILLISECOND  # from one to the next
# From an event to the first, and between two frames of a node at least: the time of so many frames of a
# thousand octets, for on a slow radio events are later, and a name that comes too soon costs a copy.
FIRST_FRAMES = 25
FIRST_DELAY: Micros = 150 * MILLISECOND  # at least; at most `TELL_DELAY`
RENAME_INTERVAL: Micros = 2_500 * MILLISECOND
# A neighbour that is silent for so long, and for so many of its usual pauses, is lost.
LOST_AFTER: Micros = SECOND
LOST_PAUSES = 5
AWAY_FOR: Micros = 6 * SECOND  # after such a silence it is a new one, however long its pauses are
ASK_TIMEOUT: Micros = 250 * MILLISECOND  # shorter than the time between two tellings
HOP_DELAY: Micros = 100 * MILLISECOND
REQUEST_MAX = 64  # events in one request
NEIGHBOURS_MAX = 1_024
ANSWERS_MAX = 4_096
ENTRIES_MAX = 512  # of one message that are looked at
SILENT_ROUNDS = 2.5  # refresh intervals without a word of an event, before another holder names it


class ToldEvent(NamedTuple):
    event: Event
    digest: bytes
    times: int  # how often it was named
    due: Micros  # not named before
    until: Micros


class MeshRepair:
    def __init__(
        self,
        messenger: Messenger[AnyMessage],
        broker: Broker,
        context: MeshContext,
        post: ClientPost,
        options: OdmrpOptions,
        concerns: Callable[[NodeId, HeldGroup], bool],
        *,
        carries: bool,
    ) -> None:
        """`concerns`: whether this node wants events of a publisher and a group, for itself or for members
        that it forwards for. `carries`: it takes all memorized events, for others."""
        host = messenger.host
        self._host = host
        self._messenger = messenger
        self._broker = broker
        self._context = context
        self._post = post
        self._concerns = concerns
        self._carries = carries
        self._is_on = options.repair
        self._refresh = micros(options.refresh_interval)
        frames = FIRST_FRAMES * host.airtime(1_000)
        self._first_delay = min(max(frames, FIRST_DELAY), TELL_DELAY)
        self._again_delay = max(2 * frames, ASK_TIMEOUT)
        self._holdings = Holdings(
            broker.store, recent_time=RECENT_TIME, recent_max=options.recent_max, on_evicted=unreported
        )
        self.told: ExpiringDict[EventId, ToldEvent] = ExpiringDict(
            options.recent_max, unreported, lambda told: told.until
        )
        # When each was heard last, and how long its pauses are.
        self._neighbours: BoundedDict[NodeId, tuple[Micros, Micros]] = BoundedDict(NEIGHBOURS_MAX, unreported)
        self._moving_until: Micros = 0  # a neighbour came or went
        self._renamed_at: Micros = -RENAME_INTERVAL
        self._looked_at: Micros = 0
        self._calls = False
        self._tell_timer = Timer(host, self._tell)
        self._tells = False  # the timer is set
        # Of memorized events in this node's store: when another node named each.
        self._named: BoundedDict[EventId, Micros] = BoundedDict(ANSWERS_MAX, unreported)
        self._turns = DigestTurns()
        has_seen = broker.has_seen
        self._recent = Requests(has_seen, request_max=REQUEST_MAX, timeout=ASK_TIMEOUT)
        self._memorized = Requests(has_seen, request_max=REQUEST_MAX, timeout=4 * ASK_TIMEOUT)
        self._offered_at: BoundedDict[NodeId, Micros] = BoundedDict(
            NEIGHBOURS_MAX, lambda node, _: self._memorized.on_neighbour_down(node)
        )
        self._ask_timers = Timers(host, self._ask_again)
        self._again_timers: Timers[NodeId] = Timers(host, lambda holder: self._ask(holder, self._recent))
        self._answers: Answers[tuple[NodeId, EventId], None] = Answers(
            host, self._hand, most=ANSWERS_MAX, on_full=partial(messenger.overflow, "want", "ANSWERS_MAX")
        )

    # Events that come by here.

    def on_event(self, event: Event, hops: int, age: Micros, digest: bytes, *, is_own: bool = False) -> None:
        """The first copy of an event. `is_own`: it enters the mesh here."""
        now = self._host.now()
        if event.lifetime and not is_own:
            self._named[event.id] = now  # by whoever sent it
        elif self._is_on:
            self._holdings.remember(event, hops, age, now)
        self._note_losses(now)
        if self._is_on and (is_own or self._context.concerns(digest)):
            self.tell(event, digest, TELLINGS - 1 if now < self._moving_until else TELLINGS)

    def tell(self, event: Event, digest: bytes, times: int = 0) -> None:
        """Name the event to the neighbours: it was broadcast, or came by a repair. Not at once: most of them
        are about to get it."""
        if self._is_on:
            now = self._host.now()
            self.told[event.id] = ToldEvent(event, digest, times, now + self._first_delay, now + RECENT_TIME)
            if times < TELLINGS:
                self._tell_soon()

    def on_heard(self, neighbour: NodeId) -> None:
        """Any frame has come."""
        now = self._host.now()
        last, pause = self._neighbours.get(neighbour, (now - AWAY_FOR, 0))
        silence = now - last
        self._neighbours[neighbour] = now, (7 * pause + silence) // 8 if pause else min(silence, SECOND)
        if silence >= AWAY_FOR and self._is_on:
            self._neighbours.move_to_end(neighbour)
            self._on_motion(now)

    def _note_losses(self, now: Micros) -> None:
        if now < self._looked_at + LOST_AFTER // 4:
            return
        self._looked_at = now
        lost = self._neighbours.forget(lambda heard: now - heard[0] > max(LOST_AFTER, LOST_PAUSES * heard[1]))
        if lost and self._is_on:
            self._calls = True
            self._on_motion(now)

    def _on_motion(self, now: Micros) -> None:
        """Until the next Join Requests the mesh may have a gap here: name all that there is and comes."""
        if now < self._renamed_at + RENAME_INTERVAL:
            self._moving_until = now + self._refresh
            return
        self._renamed_at, self._moving_until = now, now + self._refresh
        for stored in self._broker.store.standing(now)[-GROUPS_MAX:]:
            event = stored.event
            if event.id not in self.told:
                self.tell(event, self._context.digest(event), TELLINGS - 1)
        for key, told in self.told.items():
            self.told[key] = told._replace(times=min(told.times, TELLINGS - 1))
        if self.told or self._calls:
            self._tell_soon()

    # Asking.

    def on_held(self, sender: NodeId, message: HeldEvents) -> None:
        """A neighbour has these; what it named before and was asked for is asked for again by its next frame,
        or of others."""
        self._check(message.groups)
        if message.is_call and self._is_on:
            self._on_motion(self._host.now())
        self._post.learn(sender, sender)
        self._recent.on_offer(sender, [], self._lacking(message.groups))
        self._ask(sender, self._recent)
        if self._recent.has_offers(sender):  # the request or the answer may be lost
            self._again_timers.after(sender, self._again_delay)

    def on_named(self, sender: NodeId, request: JoinRequest) -> None:
        """A Join Request names memorized events. Who is farther away asks later: those between may have them
        by then, and answer."""
        now, store = self._host.now(), self._broker.store
        source, groups = request.publisher, request.held
        self._post.learn(source, sender)
        for event in events_of(entry for group in groups for entry in group.held):
            if event in store and (source < self._host.node or self._is_named(event, now)):
                self._named[event] = now
        self._memorized.on_offer(source, self._lacking(groups, all_of_them=self._carries), [])
        self._offered_at.renew(source, now)
        if self._memorized.has_offers(source):
            self._ask_timers.after(source, request.hops * HOP_DELAY)

    def on_want(self, asker: NodeId, want: LackedEvents) -> LackedEvents | None:
        """Answer with what is here; returns the rest, for those further on."""
        now = self._host.now()
        asked = [EventId(*pair) for pair in zip(want.events[::2], want.events[1::2], strict=False)]
        here = [event for event in asked if self._holdings.find(event, now) is not None]
        self._answers.add(((asker, event), None) for event in here)
        rest = [event for event in asked if event not in here] if len(here) < len(asked) else []
        return LackedEvents(tuple(number for event in rest for number in event)) if rest else None

    def on_handed(self, giver: NodeId, event: EventId) -> None:
        for requests in (self._recent, self._memorized):
            requests.on_copy(giver, event)
        if self._memorized.has_offers(giver):
            self._ask(giver, self._memorized)

    # Memorized events, in Join Requests.

    def held(self, now: Micros) -> tuple[HeldGroup, ...]:
        """Those in the store that nobody else names; with digests if they are few, else in turn."""
        untold = [stored.event for stored in self._broker.store.standing(now)]
        untold = [event for event in untold if not self._is_named(event.id, now)]
        if len(untold) <= GROUPS_MAX:
            return _groups((event, self._context.digest(event)) for event in untold)
        named = _groups((event, b"") for event in untold if event.destinations)[: GROUPS_MAX - 1]
        rest = by_publisher(event.id for event in untold if not event.destinations)
        others = self._turns.digest(list(rest), lambda publisher: tuple(runs(rest[publisher])))
        return (*named, HeldGroup(b"", (), others))

    @property
    def holds_any(self) -> bool:
        return len(self._broker.store) > 0

    @property
    def silence(self) -> Micros:
        return int(SILENT_ROUNDS * self._refresh)

    def _is_named(self, event: EventId, now: Micros) -> bool:
        """Whether another node named it lately."""
        named_at = self._named.get(event)
        return named_at is not None and now - named_at < self.silence

    # Private.

    def _check(self, groups: Iterable[HeldGroup]) -> None:
        for group in groups:
            if group.digest:
                self._context.check(group.digest)  # raises WireError before any state changes

    def _lacking(self, groups: Iterable[HeldGroup], *, all_of_them: bool = False) -> list[EventKey]:
        entries = islice(((group, entry) for group in groups for entry in group.held), ENTRIES_MAX)
        wanted = (
            entry
            for group, entry in entries
            if not self._has_one(entry) and (all_of_them or self._concerns(entry.publisher, group))
        )
        return unseen_of(tuple(wanted), self._broker.unseen)

    def _has_one(self, entry: HeldRuns) -> bool:
        """Most entries name one event, and most receivers have it: that is found out first."""
        first, last = entry.runs[:2]
        return first == last and len(entry.runs) == 2 and self._broker.has_seen((entry.publisher, first))

    def _ask(self, holder: NodeId, requests: Requests) -> None:
        # Not those that a full store has refused: they would be handed over again and again.
        may_ask = requests is self._recent or self._broker.may_keep
        wanted = requests.request(holder, self._host.now()) if may_ask else ()
        if wanted:
            self._post.send(holder, LackedEvents(tuple(number for event in wanted for number in event)))

    def _ask_again(self, holder: NodeId) -> None:
        """A request or an answer may be lost."""
        if self._host.now() - self._offered_at.get(holder, 0) > self.silence:
            self._memorized.on_neighbour_down(holder)
        self._ask(holder, self._memorized)
        if self._memorized.has_offers(holder):
            self._ask_timers.after(holder, 4 * ASK_TIMEOUT)

    def _hand(self, asked: tuple[NodeId, EventId], _: None) -> int:
        asker, key = asked
        holding = self._holdings.find(key, self._host.now())
        if holding is None:
            return 0
        self._post.send(asker, HandedEvent(holding.hops, holding.age, holding.event))
        return len(holding.event.payload) + 1

    def _tell_soon(self) -> None:
        if not self._tells:
            self._tells = True
            self._tell_timer.after(self._first_delay + random_below(self._host, self._first_delay))

    def _tell(self) -> None:
        self._tells = False
        now = self._host.now()
        self.told.expire(now)
        waiting = [told for told in self.told.values() if told.times < TELLINGS]
        due = [told for told in waiting if told.due <= now][:GROUPS_MAX]
        for told in due:
            self.told[told.event.id] = told._replace(times=told.times + 1, due=now + TELL_DELAY)
        if due or self._calls:
            self._messenger.send(HeldEvents(_groups((told.event, told.digest) for told in due), self._calls))
            self._calls = False
        if waiting:
            self._tell_soon()


def _groups(events: Iterable[tuple[Event, bytes]]) -> tuple[HeldGroup, ...]:
    """Events that concern the same nodes are named together."""
    alike: dict[tuple[bytes | None, tuple[NodeId, ...]], list[EventId]] = {}
    for event, digest in events:
        key = digest if event.wants_subscribers else None, event.destinations
        alike.setdefault(key, []).append(event.id)
    return tuple(HeldGroup(digest, named, runs_of(ids)) for (digest, named), ids in alike.items())
