"""Recovery of lost events, and the hand-over of memorized ones: one mechanism for all.

Nobody acknowledges a broadcast, but most neighbours show that they have an event: they send it on, or name it
in a digest of their own. To those who have shown nothing after a while, the event is *offered*: a digest
names it, up to three times, and a neighbour that lacks it asks. A memorized event is named for as long as the
link stands: who has it says so. The same is done with older events when a link is new or a neighbour's
filters are. A recovered event is offered to the next nodes and not sent to them, because most of them have
it.

A few events are *repeated*: broadcast, once for all who asked, and whoever overhears it has it too. On a
busy radio that is what recovery mostly does, so it is limited for the neighbourhood and not for each node
(`RecoveryPace`). If a neighbour asks for many that were never sent to it, they are *handed over*, by unicast:
after a break it lacks much, and those around it nothing.

A node asks for the newest real-time events first, so that after a long break what is new does not wait for
what is old; then for memorized ones, the oldest first, because they are handed over in their order. It has so
many requests open as are answered in time: twice as many after each window that was answered, half as many
when some were not. So a hand-over runs at the speed of the radio.

The constants are chosen by us, by runs of `roamcast demo` and of the figure `odmrp/mobility`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import filterfalse, islice
from typing import TYPE_CHECKING

from roamcast.event import EventId
from roamcast.kit.protocol import Timer, random_below
from roamcast.kit.repair import Answers, order_to_ask
from roamcast.strategy.tree.content.messages import Digest, Want
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

if TYPE_CHECKING:  # it imports this module
    from roamcast.strategy.tree.strategy import Tree

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
# The allowance for repeats.
PER_SECOND_MIN = 4.0  # tokens per second; each allows one repeat
PER_SECOND_MAX = 128.0
SHARE = 1.0  # tokens for each event sent for the first time
SAVED_MAX = 64.0  # size of the bucket
CHANGE_INTERVAL: Micros = 250 * MILLISECOND  # between two changes of the rate; losses together count once
CALM: Micros = SECOND  # without a loss before the rate grows


class Recovery:
    def __init__(self, tree: "Tree") -> None:
        host = tree.host
        self._tree = tree
        self._host = host
        self._messenger = tree.messenger
        self._events_max = tree.options.digest_events
        self._interval = micros(tree.options.recovery_interval)
        self.pace = RecoveryPace()
        self._digest_at: Micros | None = None
        # By neighbour: events that it may lack, and how often each was offered, the newest last.
        self._offers: dict[NodeId, dict[EventId, int]] = {}
        self._wanted: dict[EventId, WantedEvent] = {}
        self._asked: dict[EventId, Micros] = {}  # of those wanted; until when the answer may come
        self._window = WINDOW_MIN
        self._repeats: dict[EventId, set[NodeId]] = {}  # who asked for it; the newest request last
        self._handing: Answers[EventId, set[NodeId]] = Answers(
            host, self._hand, most=WAITING_MAX, on_full=self._on_full
        )
        self._digest_timer = Timer(host, self._send_digest)
        self._ask_timer = Timer(host, self._ask)
        self._repeat_timer = Timer(host, self._send_repeat)

    # Inputs.

    def offer(self, neighbour: NodeId, events: Iterable[EventId], *, prompt: bool) -> None:
        """These events are to be offered to a neighbour, unless it shows before that it has them."""
        offers = self._offers[neighbour]
        for event in events:
            if len(offers) >= OFFERS_MAX:
                self._messenger.overflow("digest", "OFFERS_MAX")
                break
            offers[event] = 0
        if offers:
            self._digest_within(PROMPT_DELAY if prompt else DIGEST_DELAY)

    def on_shown(self, neighbour: NodeId, event: EventId) -> None:
        """The neighbour has shown that it has the event."""
        self._offers[neighbour].pop(event, None)
        if self._repeats or self._handing:
            self._served(event, (neighbour,))

    def on_event(self, event: EventId) -> None:
        """The event is here."""
        self._wanted.pop(event, None)
        if self._asked.pop(event, None) is None:
            return
        if len(self._asked) <= self._window // 2 and len(self._wanted) > len(self._asked):
            self._window = min(2 * self._window, WINDOW_MAX)
            self._ask_timer.after(0)

    def on_repeat(self, event: EventId, served: Iterable[NodeId]) -> None:
        """Another node has sent an event again: the air that it took is not there for us."""
        self.pace.on_others(self._host.now())
        self._served(event, served)

    def on_digest(self, sender: NodeId, digest: Digest) -> None:
        node, tree = self._host.node, self._tree
        named = {
            event: at >= digest.recent
            for at, (nodes, events) in enumerate(digest.groups)
            if node in nodes
            for event in events
        }
        had = tuple(filter(tree.has_kept, named))
        if had:
            self._messenger.to_neighbour(sender, Digest((((), had),), 0))
        missing = {event: WantedEvent(sender, kept) for event, kept in named.items() if not tree.has(event)}
        if not missing:
            return
        wanted = self._wanted | missing
        stored = [event for event, one in wanted.items() if one.is_stored]
        self._wanted = {event: wanted[event] for event in order_to_ask(wanted.keys() - stored, stored)}
        while len(self._wanted) > WAITING_MAX:
            last, _ = self._wanted.popitem()
            self._asked.pop(last, None)
            self._messenger.overflow("digest", "WAITING_MAX")
        if not self._asked:
            self._ask_timer.after(ASK_DELAY + random_below(self._host, ASK_DELAY))

    def on_want(self, neighbour: NodeId, want: Want) -> None:
        handed = []
        for event in want.events:
            kept = self._tree.recent.find(event)
            was_lost = kept is not None and neighbour in kept.told  # it should have had the event from us
            if was_lost:
                self.pace.on_loss(self._host.now())
            if was_lost or len(want.events) < HAND_MIN:
                if event in self._repeats or len(self._repeats) < WAITING_MAX:
                    askers = self._repeats.pop(event, set())
                    self._repeats[event] = askers | {neighbour}
                else:
                    self._on_full()
            else:
                handed.append((event, {neighbour, *(self._handing.find(event) or ())}))
        self._wake()
        self._handing.add(handed)

    def on_link_up(self, neighbour: NodeId) -> None:
        self._offers[neighbour] = {}

    def on_link_down(self, neighbour: NodeId) -> None:
        """The link is gone: events that the neighbour offered must come from others, who will name them."""
        del self._offers[neighbour]
        self._wanted = {e: w for e, w in self._wanted.items() if w.source != neighbour}
        self._asked = {e: until for e, until in self._asked.items() if e in self._wanted}

    # Timers.

    def _send_digest(self) -> None:
        """One digest for all neighbours to whom something is offered."""
        self._digest_at = None
        neighbours: dict[EventId, list[NodeId]] = {}
        for neighbour, offers in sorted(self._offers.items()):
            for event in self._to_name(offers):
                times = offers[event] + 1
                most = OFFERS_OF_OWN if event.publisher == self._host.node else OFFERS
                if times < most or self._tree.is_stored(event):
                    offers[event] = times
                else:
                    del offers[event]
                neighbours.setdefault(event, []).append(neighbour)
        groups: dict[tuple[bool, tuple[NodeId, ...]], list[EventId]] = {}
        for event, named in neighbours.items():
            groups.setdefault((self._tree.is_stored(event), tuple(named)), []).append(event)
        if groups:
            told = sorted({node for _, named in groups for node in named})
            recent = sum(not is_stored for is_stored, _ in groups)
            ordered = sorted(groups.items(), key=lambda group: group[0][0])
            digest = Digest(tuple((named, tuple(events)) for (_, named), events in ordered), recent)
            self._messenger.to_neighbours(told, digest)
        if any(0 in offers.values() for offers in self._offers.values()):
            self._digest_within(NEXT_DELAY)
        elif any(self._offers.values()):
            self._digest_within(self._interval)

    def _ask(self) -> None:
        """Ask for the next events that the window allows, each at the neighbour that named it last."""
        now = self._host.now()
        late = [event for event, until in self._asked.items() if until <= now]
        for event in late:
            del self._asked[event]
            wanted = self._wanted[event]
            if wanted.tries >= TRIES or wanted.source not in self._offers:
                del self._wanted[event]
        if late:
            self._window = max(self._window // 2, WINDOW_MIN)
        room = max(0, self._window - len(self._asked))
        sources: dict[NodeId, list[EventId]] = {}
        for event in list(islice(filterfalse(self._asked.__contains__, self._wanted), room)):
            self._asked[event] = now + self._interval
            self._wanted[event].tries += 1
            sources.setdefault(self._wanted[event].source, []).append(event)
        for source, events in sorted(sources.items()):
            self._messenger.to_neighbour(source, Want(tuple(events)))
        if self._asked:
            self._ask_timer.after(self._interval + random_below(self._host, ASK_DELAY))

    def _hand(self, event: EventId, askers: set[NodeId]) -> int:
        """The next of the events that were asked for and never sent; the octets that were sent."""
        linked = sorted(askers & self._offers.keys())
        if len(linked) != 1:
            return self._cast_again(event, linked)
        octets = self._tree.hand(event, linked[0])
        if octets:
            self._offers[linked[0]].pop(event, None)
        return octets

    def _cast_again(self, event: EventId, askers: list[NodeId]) -> int:
        """For all who asked; the octets that were sent. It is named once more, in case this is lost too."""
        octets = self._tree.cast_again(event, askers) if askers else 0
        if octets:
            for node in askers:
                self._offers[node][event] = OFFERS - 1
            self._digest_within(self._interval)
        return octets

    def _send_repeat(self) -> None:
        """The event that was asked for last, for all who asked."""
        while self._repeats:
            event = next(reversed(self._repeats))
            askers = sorted(self._repeats[event] & self._offers.keys())
            if not askers:
                del self._repeats[event]
                continue
            if self.pace.take(self._host.now()):
                del self._repeats[event]
                self._cast_again(event, askers)
            break
        self._wake(BURST)

    # Private.

    def _to_name(self, offers: dict[EventId, int]) -> list[EventId]:
        """If there are more than one digest holds, those first that none has named, in the order in which
        they are asked for."""
        if len(offers) <= self._events_max:
            return list(reversed(offers))
        unnamed = {event for event, times in offers.items() if not times}
        stored = set(filter(self._tree.is_stored, unnamed))
        first = order_to_ask(unnamed - stored, stored)
        return (first + [event for event in offers if event not in unnamed])[: self._events_max]

    def _served(self, event: EventId, nodes: Iterable[NodeId]) -> None:
        """These nodes have the event from elsewhere."""
        for asked in (self._repeats.get(event), self._handing.find(event)):
            if asked is not None:
                asked.difference_update(nodes)

    def _on_full(self) -> None:
        self._messenger.overflow("request", "WAITING_MAX")

    def _wake(self, after: Micros = 0) -> None:
        if self._repeats:
            now = self._host.now()
            self._repeat_timer.at(max(now + after, self.pace.next_at(now)))

    def _digest_within(self, time: Micros) -> None:
        """At a random time in its second half: neighbours that have the same to tell do not collide."""
        at = self._host.now() + time // 2 + random_below(self._host, time // 2)
        if self._digest_at is None or at < self._digest_at:
            self._digest_at = at
            self._digest_timer.at(at)


@dataclass(slots=True)
class WantedEvent:
    """An event that a neighbour has named and that has not been here."""

    source: NodeId
    is_stored: bool
    tries: int = 0


class RecoveryPace:
    """The allowance for sending again: recovery backs off where the radio has no room for it.

    The radio is shared. When it is saturated, repeats only displace events that are sent for the first time,
    and both come too late. So all links of a node share one token bucket, and all nodes in range of each
    other one allowance: a repeat of another node that is overheard takes a token here. The bucket gets one
    token for each event sent for the first time, and some per second, for a tree that has to catch up after a
    repair. The rate per second doubles while it is used up and nothing is lost. It is halved when broadcasts
    were missed, as TCP halves its window."""

    def __init__(self) -> None:
        self.per_second = PER_SECOND_MIN
        self._saved = SAVED_MAX
        self._counted_at: Micros = 0
        self._changed_at: Micros = 0
        self._lost_at: Micros = -CALM

    def on_fresh(self) -> None:
        """An event was sent for the first time."""
        self._saved = min(self._saved + SHARE, SAVED_MAX)

    def on_loss(self, now: Micros) -> None:
        """The radio is busy: a neighbour missed what we sent."""
        self._count(now)
        self._lost_at = now
        if now - self._changed_at >= CHANGE_INTERVAL:
            self._changed_at = now
            self.per_second = max(self.per_second / 2, PER_SECOND_MIN)

    def on_others(self, now: Micros) -> None:
        """Another node has sent an event again."""
        self._count(now)
        self._saved = max(self._saved - 1, 0.0)

    def take(self, now: Micros) -> bool:
        """Take a token: whether one more event may be sent again."""
        self._count(now)
        if self._saved >= 1:
            self._saved -= 1
            return True
        self._grow(now)
        return False

    def next_at(self, now: Micros) -> Micros:
        """When the next token will be there."""
        self._count(now)
        lacking = max(0.0, 1 - self._saved)
        if lacking:
            self._grow(now)
        return now + int(lacking * SECOND / self.per_second) + (1 if lacking else 0)

    def _grow(self, now: Micros) -> None:
        """More is wanted than there is."""
        if now - self._lost_at >= CALM and now - self._changed_at >= CHANGE_INTERVAL:
            self._changed_at = now
            self.per_second = min(2 * self.per_second, PER_SECOND_MAX)

    def _count(self, now: Micros) -> None:
        self._saved = min(self._saved + (now - self._counted_at) * self.per_second / SECOND, SAVED_MAX)
        self._counted_at = now
