"""One frame that the relays pass on once: an event for a good part of the network. And what it did not bring.

A tree of routes to so many ends has as many branches as there are nodes. A flood has fewer frames, needs no
route, and who misses one frame hears another. Nobody confirms it; what a node lacks it finds out by itself.

Each node waits for a moment of its own before it passes a flood on. The underlay's relays do so unless they
have heard it often by then (the counter-based scheme of Ni, Tseng, Chen and Sheu, 1999); others, who wait
longer, only if they have heard it from one neighbour alone.

Neighbours say to each other now and then which flooded events they have, and a fingerprint of their rows
(`board.py`). Whoever lacks an event that a neighbour names asks that neighbour for it. So what a flood did
not bring, and what was published behind a partition, is pulled by those who lack it. When two nodes meet they
say so at once, and what one pulls from the other it passes on like a flood: those behind it lack it, too.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from roamcast.broker.store import StoredEvent
from roamcast.event import EventClass, EventId
from roamcast.kit.confirm import RetransmissionTimeout
from roamcast.kit.protocol import Timer, overflow_traced, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.repair import Answers, Requests
from roamcast.kit.tables import BoundedDict, ExpiringDict, unreported
from roamcast.strategy.opportunistic.board import HeardCopies
from roamcast.strategy.opportunistic.consumers import opened
from roamcast.strategy.opportunistic.copies import EventCopy, FloodBase
from roamcast.strategy.opportunistic.messages import HOPS_MAX, WANTED_MAX, Flooded, NodeDigest, WantFlooded
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

JITTER: Micros = 15 * MILLISECOND
HEARD_ENOUGH = 3  # copies, the first included
HEARD_ALONE = 2
OTHERS_LATER: Micros = 40 * MILLISECOND
PENDING_MAX = 1_024

PERIOD: Micros = SECOND
# After a real-time event. On lines that lose a tenth of the frames half a second makes the 95th percentile a
# third shorter than a second does, for a quarter more control; a quarter of a second takes three quarters
# more. A cut line heals in half the time. Memorized events have time.
REALTIME_PERIOD: Micros = 500 * MILLISECOND
ROWS_PERIOD: Micros = 2 * SECOND  # rows that differ for less may be on their way (`board.py: SPREADING`)
YOUNG: Micros = 10 * SECOND  # so long after its start a node says as soon that it has learnt a row
LONGEST: Micros = 10 * SECOND  # a digest that says nothing new is said more and more rarely
NAMED_EVERY = 4  # digests: events that were named in two are named again in one of so many
MEETING: Micros = 20 * MILLISECOND  # at most, before the digest for a new neighbour
MET_FOR: Micros = 2 * SECOND  # so long two nodes that met have much to tell
# A digest may be faster than the flood of its last event (`OTHERS_LATER`), and all who lack an event hear of
# it at the same moment.
ASK_AFTER: Micros = 60 * MILLISECOND
# neighbours that we have just met: what they name did not come by a flood
ASK_MET_AFTER: Micros = 10 * MILLISECOND
FRESH: Micros = 2 * SECOND  # what was missed lately others behind us have missed, too
# Then an event may be asked for again: at first, at least, and at most. The wait follows the time that
# answers take. On a slow channel they queue; what is asked for again meanwhile comes twice, and fills it. So
# the wait is also doubled when an event has to be asked for again, but only if no other was answered in time
# for `ASKED_LONGEST`: one answer in five that gets lost is no slow channel. With 150 ms at least instead of
# 300 the 95th percentile on lines that lose a tenth of the frames is up to a quarter shorter, for no more
# octets.
ASKED_FOR: Micros = 300 * MILLISECOND
ASKED_SHORTEST: Micros = 150 * MILLISECOND
ASKED_LONGEST: Micros = 2 * SECOND
ASKED_AGAIN = 2  # times, before the next digest
ASKED_MAX = 20_000
ANSWERS_MAX = 4_096
NEIGHBOURS_MAX = 1_024


class AskedFor(NamedTuple):
    """`is_named`: by a digest, so the neighbour had it. One that was only missed may have to come there, too,
    and then takes longer than an answer."""

    at: Micros  # first
    times: int
    is_named: bool


class Floods(NodePart):
    def __init__(self, shared: SharedParts, on_copy: Callable[[EventCopy, FloodBase], None]) -> None:
        """`on_copy` gets every flooded event that is new to this node, its own too."""
        super().__init__(shared)
        host = self._host
        self._on_copy = on_copy
        self._relay: Relay[EventId, HeardCopies] = Relay(
            host,
            send=self._broadcast,
            most=PENDING_MAX,
            is_needed=lambda _, one: one.is_needed(self._around, host.now()),
        )
        self._digest_timer = Timer(host, self._say_digest)
        self._ask_timer = Timer(host, self._ask_all)
        self._again_timer = Timer(host, self._ask_again)
        self._requests = Requests(self._copies.is_known, request_max=64, timeout=ASKED_FOR)
        self._answer_time = RetransmissionTimeout(ASKED_FOR, ASKED_SHORTEST, ASKED_LONGEST)
        full = partial(self._messenger.overflow, "want", "answers")
        self._answers: Answers[tuple[NodeId, EventId], None] = Answers(
            host, self._answer, most=ANSWERS_MAX, on_full=full
        )
        self._offering: dict[NodeId, None] = {}  # neighbours that have what we lack
        self._asked_again: dict[NodeId, int] = {}  # those asked, and how many times more for what got lost
        self._met: ExpiringDict[NodeId, Micros] = ExpiringDict(NEIGHBOURS_MAX, unreported, int)
        self._asked: BoundedDict[EventId, AskedFor] = BoundedDict(
            ASKED_MAX, overflow_traced(host, "want", "events asked for")
        )
        self._again_due: Micros = 0
        self._answered_at: Micros = -ASKED_LONGEST  # in time, by whomever
        self._said: NodeDigest | None = None
        self._same_turns = 0  # digests since the events changed or a new neighbour came
        self._wait = PERIOD
        self._due: Micros = 0
        self._forgot_at: Micros = 0
        self._started_at: Micros = 0

    # Floods.

    def send(self, copy: EventCopy, flood: FloodBase) -> None:
        if self._copies.add(copy, flood):
            if self._around.may_hear(self._host.now()):
                self._broadcast(copy.event.id)
            self._on_new(copy, flood)

    def on_flooded(self, sender: NodeId, frame: Flooded) -> None:
        key = frame.event.id
        self._requests.on_copy(sender, key)
        asked = self._asked.pop(key, None)
        is_answer = asked is not None and asked.times > 0
        # Nobody knows which of several requests an answer belongs to (Karn's algorithm, RFC 6298, section 3).
        if asked is not None and asked.times == 1:
            took = self._host.now() - asked.at
            if asked.is_named or took <= ASKED_SHORTEST:
                self._answered_at = self._host.now()
                self._answer_time.on_confirmed(took)
                self._requests.timeout = self._answer_time.wait
        pending = self._relay.find(key)
        # Whom the sender reaches by its last HELLO lacks no copy. Real-time events do not wait for the repair
        # where that is wrong, and an answer goes to one node alone.
        is_covered = frame.event.event_class is EventClass.MEMORIZED and not is_answer
        reached = self._underlay.neighbours_of(sender) if is_covered else ()
        if pending is not None:
            pending.hear(sender, reached)
            return
        if self._copies.is_known(key):
            return
        flood = FloodBase(frame.base, frame.direct)
        published_at = self._host.now() - frame.age
        copy = EventCopy(frame.event, frame.previous, frame.gap, frame.hops + 1, published_at)
        self._copies.add(copy, flood)
        is_for_us = is_answer and frame.age >= FRESH and not self._is_between(sender)
        if frame.hops + 1 < HOPS_MAX and not self._relay.is_full and not is_for_us:
            is_relay = self._underlay.is_relay(self._host.node)
            pending = HeardCopies(HEARD_ENOUGH if is_relay else HEARD_ALONE)
            pending.hear(sender, () if is_relay else reached)
            self._relay.add(
                key, pending, random_below(self._host, JITTER) + (0 if is_relay else OTHERS_LATER)
            )
        self._on_new(copy, flood)
        before = EventId(key.publisher, frame.base - 1)
        # A memorized one has time: the answers to what was asked for may bring it.
        is_due = frame.event.event_class is EventClass.REALTIME or not self._requests.has_offers(sender)
        if frame.base and is_due and not self._copies.is_known(before):
            # Whoever passes one on has the one before it, or gets it soon.
            self._requests.on_missed(sender, before)
            self._asked.setdefault(before, AskedFor(self._host.now(), 0, False))
            self._ask_soon(sender)

    def _on_new(self, copy: EventCopy, flood: FloodBase) -> None:
        is_realtime = copy.event.event_class is EventClass.REALTIME
        self._hasten(REALTIME_PERIOD if is_realtime else PERIOD)  # within it neighbours shall hear of it
        self._on_copy(copy, flood)

    def _broadcast(self, event: EventId, _: HeardCopies | None = None) -> None:
        flooded = self._flooded(event)
        if flooded is not None:
            self._messenger.send(flooded, own=event.publisher == self._host.node)

    def _flooded(self, event: EventId) -> Flooded | None:
        """The copy as it is sent now; None if it was given up."""
        copy, flood = self._copies.find(event), self._copies.flood(event)
        if copy is None or flood is None:
            return None
        age = copy.age(self._host.now())
        return Flooded(copy.event, copy.previous, copy.gap, flood.base, copy.hops, age, flood.direct)

    def _offer_stored(self) -> None:
        """Memorized events from before this start, for whoever lacks them. What was published before each of
        them is not known any more: readers ask its producer."""
        for stored in self._core.store.standing(self._host.now()):
            self._offer(stored)

    def on_restarted(self, peer: NodeId) -> None:
        """What it has confirmed last may not have reached its disk. It has offers of what went by messages;
        of all else it hears by digests in any case."""
        row = self._consumers.find(peer)
        wanted = [opened(one.filter) for one in row.interests] if row is not None else []
        for stored in self._core.store.standing(self._host.now()):
            event = stored.event
            is_wanted = event.wants_subscribers and any(one and one.matches(event) for one in wanted)
            # Of our own it may have been the home broker's copy, for others.
            if is_wanted or peer in event.destinations or not stored.hops:
                self._offer(stored)

    def _offer(self, stored: StoredEvent) -> None:
        event, published_at = stored.event, stored.expires_at - stored.event.lifetime
        copy = EventCopy(event, event.sequence, 0, min(stored.hops, HOPS_MAX), published_at)
        self._copies.add(copy, FloodBase(event.sequence, ()))

    # Digests.

    def on_start(self) -> None:
        self._started_at = self._host.now()
        self._offer_stored()
        self._set(random_below(self._host, PERIOD))

    def on_row(self) -> None:
        """A row has come. Later than for an event: rows are passed on by all, and a digest only says that one
        may have been lost."""
        self._hasten(self._rows_period())

    def on_heard(self, sender: NodeId) -> None:
        """A frame of any kind."""
        if sender not in self._around.known and self._around.meet(sender, self._host.now()):
            self._underlay.on_acquainted(sender)  # it may be waiting for our HELLO, too
            self._meet(sender)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._around.on_up(neighbour)
        self._meet(neighbour)

    def _meet(self, neighbour: NodeId) -> None:
        """A node has come into range; it may come from another part of the network."""
        now = self._host.now()
        self._met.expire(now)
        self._met[neighbour] = now + MET_FOR
        self._board.on_met(neighbour)
        self._same_turns = -1
        if self._due > now + MEETING:
            self._set(random_below(self._host, MEETING))

    def _has_met(self, neighbour: NodeId) -> bool:
        """Whether this node has met another one lately."""
        return self._met.get(neighbour, 0) > self._host.now()

    def _is_between(self, neighbour: NodeId) -> bool:
        """Whether we have just met it, and others before."""
        return self._has_met(neighbour) and not all(map(self._has_met, self._around.known))

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._around.on_down(neighbour)
        self._board.on_lost(neighbour)
        self._answers.forget(lambda key: key[0] == neighbour)
        self._requests.on_neighbour_down(neighbour)

    def on_digest(self, sender: NodeId, digest: NodeDigest) -> None:
        if not self._board.on_fingerprint(sender, digest.rows):
            self.on_row()
        if digest.held is None or (self._said is not None and digest.held == self._said.held):
            return  # it has what we have, or has named it before
        unknown = self._copies.unknown(digest.held)
        if unknown:
            self._requests.on_offer(sender, [], unknown)
            self._ask_soon(sender)
        else:
            self._same_turns = min(self._same_turns, 0)  # it lacks some of ours: they are named again

    def _ask_soon(self, neighbour: NodeId) -> None:
        wait = ASK_MET_AFTER if self._has_met(neighbour) else ASK_AFTER
        if not self._offering or wait < ASK_AFTER:
            self._ask_timer.after(wait + random_below(self._host, wait))
        self._offering[neighbour] = None

    def _say_digest(self) -> None:
        now = self._host.now()
        if now - self._forgot_at >= LONGEST:
            self._forgot_at = now
            self._board.forget_silent()
        digest = NodeDigest(self._board.fingerprint, self._copies.digest())
        self._same_turns += 1
        if self._said is None or digest.held != self._said.held:
            self._wait, self._same_turns = PERIOD, 0
        elif digest.rows != self._said.rows:
            self._wait = self._rows_period()
        else:
            self._wait = min(2 * self._wait, LONGEST)
        self._said = digest
        if self._around.may_hear(now):
            is_brief = self._same_turns > 1 and self._same_turns % NAMED_EVERY
            self._messenger.send(NodeDigest(digest.rows) if is_brief else digest)
        self._set(int(self._wait * (0.9 + 0.2 * self._host.random.random())))

    def _rows_period(self) -> Micros:
        return PERIOD if self._host.now() - self._started_at < YOUNG else ROWS_PERIOD

    def _hasten(self, period: Micros) -> None:
        self._wait = min(self._wait, period)
        if self._due > self._host.now() + period:
            self._set(int(period * (0.5 + 0.5 * self._host.random.random())))

    def _set(self, delay: Micros) -> None:
        self._due = self._host.now() + delay
        self._digest_timer.at(self._due)

    # Requests and answers.

    def on_want(self, sender: NodeId, want: WantFlooded) -> None:
        wanted = map(EventId, want.events[::2], want.events[1::2])
        self._answers.add(((sender, event), None) for event in wanted)

    def _answer(self, key: tuple[NodeId, EventId], _: None) -> int:
        to, event = key
        flooded = self._flooded(event)
        if flooded is None:
            return 0
        frame = self._messenger.frame(flooded, own=event.publisher == self._host.node)
        self._host.unicast(to, frame)
        return len(frame.payload)

    def _ask_all(self) -> None:
        self._again_soon()
        offering, self._offering = self._offering, {}
        for neighbour in reversed(offering):
            self._ask(neighbour)
            self._asked_again.pop(neighbour, None)
            self._asked_again[neighbour] = ASKED_AGAIN

    def _ask_again(self) -> None:
        """What was asked for and has not come."""
        asked, self._asked_again = self._asked_again, {}
        again: dict[NodeId, int] = {}
        for neighbour, times in reversed(asked.items()):  # another one first each time
            self._ask(neighbour)
            if times > 1 and self._requests.has_offers(neighbour):
                again[neighbour] = times - 1
        if again:
            self._again_soon()
            self._asked_again = again

    def _again_soon(self) -> None:
        due = self._host.now() + self._requests.timeout + random_below(self._host, ASK_AFTER)
        if not self._asked_again or due < self._again_due:
            self._again_due = due
            self._again_timer.at(due)

    def _ask(self, neighbour: NodeId) -> None:
        now = self._host.now()
        wanted = self._requests.request(neighbour, now)[:WANTED_MAX]
        if not wanted:
            return
        before = now - ASKED_LONGEST  # what was asked for by then was lost, or its neighbour
        is_again = False
        for event in wanted:
            known = self._asked.get(event)
            if known is None or known.at <= before:
                known = AskedFor(now, 0, True)
            self._asked[event] = known._replace(times=known.times + 1)
            is_again |= known.times > 0
        if is_again and self._answered_at <= before:
            self._answer_time.on_missed()  # not one lost on its way: all answers take longer
            self._requests.timeout = self._answer_time.wait
        self._messenger.send(WantFlooded(tuple(n for event in wanted for n in event)), neighbour)
