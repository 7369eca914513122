"""Order: each publisher's memorized events, topic by topic, reach a subscriber as they were published.

An event says how many numbers back its predecessor is (`Event.after`): the one before it of its publisher
with the same topic, destinations and QoS of MQTT (5.0, section 4.6, asks for no more). That is one octet on
the air in most cases. Copies take different ways, and hand-over after a cut brings thousands, so events
overtake each other; the node of the subscriber holds back what came too early until its predecessor is here.
Relays pass everything on at once.

A wait has bounds, because a predecessor may never come: it was pushed out everywhere, or its lifetime is
over.

- `WAIT_MAX`, and half of what is left of the event's lifetime.
- `STRANGER_WAIT` for a predecessor from before the first event that this node has of the publisher, and for
  what a restart finds in the store: it may not exist any more.
- `HELD_MAX` events, and half of the store: what waits cannot be pushed out, and must not keep out what it
  waits for. A strategy that can do without an event for now takes no more (`Broker.has_room_for`); with the
  others, the one that has waited for longest goes.

Whatever is handed over without its predecessor is counted (`let_pass`). Nobody waits for a predecessor that
would not come here. With strategies that bring a node only what it wants, these are the ones that a filter on
content leaves out; who wants a topic whatever the content wants the predecessor too, for it has the same one.

Of retained messages only the newest counts: they have no place in the order. A payload in chunks has the
place at which it was begun; its chunks follow each other, and what comes next follows the last of them.
Real-time events come as they come.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from roamcast.broker.retained import FLAGS, RETAINED, is_retained
from roamcast.broker.seen import EventKey
from roamcast.broker.store import EventStore
from roamcast.chunks import MARK
from roamcast.event import Event, Publication, Value
from roamcast.host import CoreTimer, Host
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
WAIT_MAX: Micros = 60 * SECOND
STRANGER_WAIT: Micros = 5 * SECOND  # a few rounds of repair
HELD_MAX = 10_000
PUBLISHERS_MAX = 10_000
TOPICS_MAX = 10_000
TICK: Micros = SECOND // 4  # how often waits are looked at, while there are any

Chain: TypeAlias = tuple[str, Value, tuple[NodeId, ...]]
"""What events that follow each other have in common."""


class LastPublished(NamedTuple):
    sequence: int
    expires_at: Micros


class OwnOrder:
    """Which of the events that this node publishes is the last of its chain."""

    def __init__(self) -> None:
        # Forgotten ones, and those of an earlier boot that are not in the store, claim nothing.
        self._last: BoundedDict[Chain, LastPublished] = BoundedDict(TOPICS_MAX, unreported)
        # What a restart has found in the store, and what has taken its place again behind a later one: both
        # by number, and no more than an earlier boot has left.
        self._stood: dict[Chain | None, list[LastPublished]] = {}
        # What stood before those that have a place and are not published yet; and before refused ones.
        self._begun: BoundedDict[int, LastPublished | None] = BoundedDict(TOPICS_MAX, unreported)
        self._given_up: BoundedDict[int, LastPublished | None] = BoundedDict(TOPICS_MAX, unreported)

    def after(self, publication: Publication, sequence: int, now: Micros) -> int:
        """How far back the predecessor is; 0: there is none."""
        chain = chain_of(publication) if publication.lifetime else None
        if chain is None:
            return 0
        if publication.attributes.get(MARK):
            return 1  # the chunk before
        last = self._before(sequence, chain)
        return 0 if last is None or last.expires_at <= now else max(0, sequence - last.sequence)

    def stood(self, event: Event, last: int, expires_at: Micros) -> None:
        """An earlier boot has published it, and it is in the store. They come in the order of numbers."""
        self.published(event, last, expires_at)
        self._stood.setdefault(chain_of(event), []).append(LastPublished(last, expires_at))

    def published(self, event: Event | Publication, last: int, expires_at: Micros) -> None:
        """The event is kept. `last`: its number, or that of its last chunk."""
        if self._begun:
            self._begun.pop(last, None)
        chain = chain_of(event)
        if chain is None:
            return
        before = self._last.get(chain)
        if before is None or before.sequence < last:
            self._last.renew(chain, LastPublished(last, expires_at))

    def begin(self, frame: Publication, first: int, count: int, now: Micros) -> None:
        """A place for what has its numbers and is published later: a payload in so many chunks, a message
        that is not on the disk yet, or what an earlier boot has left, in the order of its numbers. What is
        published meanwhile follows."""
        chain = chain_of(frame) if frame.lifetime else None
        if chain is not None and first not in self._begun:
            last = first + count - 1
            is_again = last in self._given_up
            before = self._given_up.pop(last) if is_again else self._before(first, chain)
            self.published(frame, last, now + frame.lifetime)
            self._begun[first] = before
            if self._last[chain].sequence > last:
                insort(self._stood.setdefault(chain, []), LastPublished(last, now + frame.lifetime))

    def end(self, first: int) -> None:
        """A payload in chunks is published."""
        self._begun.pop(first, None)

    def give_up(self, first: int, count: int) -> None:
        """What had a place is refused: what is published from now on does not wait for it."""
        if first in self._begun:
            self._given_up[first + count - 1] = self._begun.pop(first)

    def _before(self, sequence: int, chain: Chain) -> LastPublished | None:
        last = self._begun[sequence] if sequence in self._begun else self._last.get(chain)
        if last is not None and last.sequence >= sequence:  # an earlier boot has published them out of order
            stood = self._stood.get(chain, [])
            at = bisect_left(stood, sequence, key=lambda one: one.sequence)
            last = stood[at - 1] if at else None
        while last is not None and last.sequence in self._given_up:
            last = self._given_up[last.sequence]
        return last


class WaitingEvent(NamedTuple):
    predecessor: EventKey
    until: Micros
    size: int  # in the store; 0 for a chunk, which has room of its own


class HeldBack:
    """The events of this node's store that wait for their predecessors."""

    def __init__(self, host: Host, store: EventStore, hand_over: Callable[[EventKey], object]) -> None:
        self._host = host
        self._store = store
        self._hand_over = hand_over
        self.held: dict[EventKey, WaitingEvent] = {}  # in the order of arrival
        self._count = self._bytes = 0  # of those that are no chunks
        self._followers: dict[EventKey, list[EventKey]] = {}
        self._first: BoundedDict[NodeId, int] = BoundedDict(PUBLISHERS_MAX, unreported)
        self._timer = CoreTimer(self._on_tick)
        self.let_pass = 0

    def __contains__(self, event: object) -> bool:
        return event in self.held

    def __len__(self) -> int:
        return len(self.held)

    def came(self, publisher: NodeId, sequence: int) -> None:
        """A memorized event of this publisher is here."""
        if sequence < self._first.get(publisher, sequence + 1):
            self._first[publisher] = sequence

    def knows(self, publisher: NodeId, sequence: int) -> bool:
        """Whether this node has had an event of the publisher from before this one."""
        return self._first.get(publisher, sequence) < sequence

    def has_room(self, size: int) -> bool:
        """Whether one more event of so many octets may wait."""
        count, octets = self._count + (size > 0), self._bytes + size
        return (
            len(self.held) < HELD_MAX
            and 2 * count <= self._store.entries_max
            and 2 * octets <= self._store.bytes_max
        )

    def make_room(self, size: int) -> None:
        while self.held and not self.has_room(size):
            self.pass_by(next(iter(self.held)))

    def hold(self, event: EventKey, predecessor: EventKey, wait: Micros, size: int) -> None:
        if not self.held:
            self._host.set_timer(self._timer, self._host.now() + TICK)
        self.held[event] = WaitingEvent(predecessor, self._host.now() + wait, size)
        self._count += size > 0
        self._bytes += size
        self._followers.setdefault(predecessor, []).append(event)

    def pass_by(self, event: EventKey) -> None:
        """It goes without its predecessor; if that one is here and waits itself, both go, in their order."""
        self.let_pass += 1
        while event in self.held:
            event = self.held[event].predecessor
        self.on_handed_over(event)  # as if it had come

    def on_handed_over(self, event: EventKey) -> None:
        """What waited for this event goes, and what waited for that, in turn."""
        gone = deque((event,))
        while gone:
            for follower in self._followers.pop(gone.popleft(), ()):
                self._taken_out(follower)
                self._hand_over(follower)
                gone.append(follower)

    def _taken_out(self, event: EventKey) -> WaitingEvent:
        held = self.held.pop(event)
        self._count -= held.size > 0
        self._bytes -= held.size
        return held

    def _on_tick(self) -> None:
        now = self._host.now()
        for event in [event for event, held in self.held.items() if held.until <= now]:
            if event in self.held:
                self.pass_by(event)
        if self.held:
            self._host.set_timer(self._timer, now + TICK)


def chain_of(event: Event | Publication) -> Chain | None:
    """None: it has no place in the order."""
    flags = event.attributes.get(FLAGS)
    if type(flags) is int and flags >= RETAINED and is_retained(event):
        return None
    return event.topic, flags, event.destinations
