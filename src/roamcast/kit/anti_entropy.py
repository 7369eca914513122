"""Neighbours compare what they hold, and give each other what is lacking (Demers and others, 1987).

The parts of `repair.py` put together, for strategies where every node is to have every event. A node says a
fingerprint of what it holds with each beacon. Whoever holds something else broadcasts a digest soon, unless a
neighbour that holds the same has just done so; a node that lacks some of it asks for it and is handed it.
While all hold the same, nobody sends a digest (as Trickle, RFC 6206, is silent while all are consistent).
Over an underlay whose messages cannot carry a fingerprint, digests are sent at fixed intervals.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Protocol

import msgspec

from roamcast.broker.core import Broker
from roamcast.broker.store import HOPS_MAX
from roamcast.event import Count, Event, EventId
from roamcast.host import Kind, SendFailure
from roamcast.kit.custody import Custody
from roamcast.kit.protocol import Handlers, Messenger, Timer, Timers, WireMessage, random_below
from roamcast.kit.repair import (
    ANSWER_PAUSE,
    FINGERPRINT_BYTES,
    OFFERED_MAX,
    PUBLISHERS_MAX,
    Answers,
    HeldRuns,
    Holding,
    Holdings,
    RecentCopy,
    Requests,
    Said,
    events_of,
    missing,
    runs_of,
    unseen_of,
)
from roamcast.units import MILLISECOND, Micros, NodeId, micros

# Chosen by us.
ANSWERS_MAX = 10_000  # that wait
WANTED_MAX = 1_000  # events in one request
MEETING_DELAY: Micros = 20 * MILLISECOND  # at most, before the digest for a new neighbour
TOLD_AGAIN = 8  # beacons: an unchanged fingerprint is told only in one of so many
YOUTH_BYTES = 2  # milliseconds; `recent_time` is at most 60 s
COMPARED_MAX = 1_000  # memorized events: to name more of them takes milliseconds for each digest that comes
UNCHANGED_TURNS = 5  # an unchanged digest is sent only once in so many intervals

Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]
Held = Annotated[tuple[HeldRuns, ...], msgspec.Meta(max_length=PUBLISHERS_MAX)]


class NodesAround(Protocol):
    """The questions that the repair asks an underlay."""

    def neighbours(self) -> list[NodeId]: ...

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]: ...

    def on_link_failure(self, neighbour: NodeId) -> None: ...

    def on_acquainted(self, neighbour: NodeId) -> None: ...


class RepairOptions(Protocol):
    """Options of the strategy that uses the repair; times are in seconds."""

    @property
    def hop_limit(self) -> int: ...

    @property
    def digest_interval(self) -> float: ...

    @property
    def recent_time(self) -> float: ...

    @property
    def recent_max(self) -> int: ...

    @property
    def request_max(self) -> int: ...

    @property
    def request_timeout(self) -> float: ...


class Handed(WireMessage, frozen=True, tag=2):
    """An event for the neighbour that asked for it. `hops`: radio hops before this one; `age`: time since
    publication."""

    name = "handed"
    kind = Kind.DATA
    relays: ClassVar[None] = None  # it starts anew from here

    event: Event
    hops: Hops
    age: Count

    @property
    def event_id(self) -> EventId:
        return self.event.id


class HandedToAll(Handed, frozen=True, tag=15):
    """The same for all who hear it: several have asked."""

    name = "handed to all"


class HoldingsDigest(WireMessage, frozen=True, tag=3):
    """The events that the sender can give."""

    name = "digest"

    held: Held


class WantEvents(WireMessage, frozen=True, tag=4):
    """Publisher and sequence of each event wanted, one after the other. `uptime` of a sender that has booted
    not long ago, else 0: it must refuse older real-time events (`Broker.deliver`)."""

    name = "want"

    events: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * WANTED_MAX)]
    uptime: Count


class HadEvents(WireMessage, frozen=True, tag=5):
    """For a neighbour whose digest named these events: the sender has had them, and does not hold them any
    more."""

    name = "had"

    had: Held


class TooOld(WireMessage, frozen=True, tag=14):
    """For a neighbour that has asked for these events: they are from before its boot."""

    name = "too old"

    held: Held


class AntiEntropy:
    def __init__(
        self,
        messenger: Messenger[WireMessage],
        broker: Broker,
        around: NodesAround,
        options: RepairOptions,
        *,
        is_compared: bool,
        on_evicted: Callable[[EventId, RecentCopy], object],
        handed: Callable[[Holding], WireMessage],
    ) -> None:
        """`is_compared`: neighbours hear `fingerprint`, and `on_fingerprint` theirs. `handed`: what a
        neighbour that asked for an event is sent."""
        self.host = host = messenger.host
        self._messenger = messenger
        self._broker = broker
        self._around = around
        self._interval = interval = micros(options.digest_interval)
        self._request_timeout = micros(options.request_timeout)
        self._hop_limit = options.hop_limit
        self._recent_time = micros(options.recent_time)
        self._is_compared = is_compared
        self._handed = handed
        self.holdings = Holdings(
            broker.store,
            recent_time=self._recent_time,
            recent_max=options.recent_max,
            on_evicted=on_evicted,
        )
        self._requests = Requests(
            broker.has_seen, request_max=options.request_max, timeout=self._request_timeout
        )
        self._answers: Answers[EventId, set[NodeId]] = Answers(
            host,
            self._hand,
            most=ANSWERS_MAX,
            on_full=partial(messenger.overflow, "want", "ANSWERS_MAX"),
            wait=ANSWER_PAUSE,
        )
        self.custody = Custody(host, broker.store)
        self._digest_timer = Timer(host, self._on_digest_due)
        self._soon_timer = Timer(host, self._send_soon)
        self._is_soon = False
        self._has_met = False  # a neighbour since the last digest: it hears an unchanged one, too
        self._ask_timers = Timers(host, self.ask)
        self._told = b""  # our last fingerprint
        self._silent_turns = 0  # beacons since it was told
        self._said: dict[NodeId, Said] = {}  # by each neighbour; an empty fingerprint: none so far
        self.differing: set[NodeId] = set()  # those who hold something else
        self._agreed: dict[NodeId, int] = {}  # the store that a neighbour said to hold, too
        self._last_digest: tuple[HeldRuns, ...] = ()
        self._digest_at: Micros = -interval  # when it was sent
        self._unchanged = 0
        self.handlers: Handlers = {
            HoldingsDigest: self.on_digest,
            WantEvents: self._on_want,
            HadEvents: lambda sender, message: self.custody.on_held(sender, events_of(message.had)),
            TooOld: self._on_too_old,
        }

    def on_start(self) -> None:
        if not self._is_compared:
            # At a random time: nodes that boot together would otherwise always send together.
            self._digest_timer.within(self._interval)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self.custody.on_neighbour_up(neighbour)
        self._has_met = True
        self._said[neighbour] = Said(b"", self.host.now() - self._recent_time)
        self._told = b""  # it has not heard it
        if not self._is_compared:
            self._soon()

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self.differing.discard(neighbour)
        self._said.pop(neighbour, None)
        self._agreed.pop(neighbour, None)
        self.custody.on_neighbour_down(neighbour)
        self._requests.on_neighbour_down(neighbour)
        self._ask_timers.cancel(neighbour)

    def on_copy(self, sender: NodeId, event: EventId) -> None:
        """An event has come, asked for or not."""
        self._requests.on_copy(sender, event)

    def ask_on(self, sender: NodeId) -> None:
        """A neighbour has handed an event over, and may have more for us."""
        if self._requests.has_offers(sender):
            self.ask(sender)

    # What neighbours hold.

    def fingerprint(self) -> bytes:
        """The fingerprint for the next beacon; empty if it is the same as in the last one. A node that has
        booted not long ago also says when, because it does not want events from before its boot."""
        now, uptime = self.host.now(), self._short_uptime()
        mine = self.holdings.fingerprint(now, now - (uptime or self._recent_time))
        self._silent_turns = self._silent_turns + 1 if mine == self._told else 0
        self._told = mine
        youth = (uptime // MILLISECOND).to_bytes(YOUTH_BYTES, "big") if uptime else b""
        return b"" if self._silent_turns % TOLD_AGAIN else mine + youth

    def on_fingerprint(self, neighbour: NodeId, theirs: bytes) -> None:
        said = self._said.get(neighbour)
        store, now = self._broker.store, self.host.now()
        if said is None or len(theirs or said.fingerprint) < FINGERPRINT_BYTES:
            return
        if theirs:
            uptime = MILLISECOND * int.from_bytes(theirs[FINGERPRINT_BYTES:][:YOUTH_BYTES], "big")
            fingerprint = theirs[:FINGERPRINT_BYTES]
            said = self._said[neighbour] = Said(fingerprint, now - (uptime or self._recent_time))
        if said.since < self._broker.booted_at and self._short_uptime():
            return  # it has what we shall not get, and it compares
        if self.holdings.agrees(said, now):
            self.differing.discard(neighbour)
            if store.is_filling and self._agreed.get(neighbour) != store.fingerprint:
                self._agreed[neighbour] = store.fingerprint
                self.custody.on_held(neighbour, [one.event.id for one in store.standing(now)])
        else:
            self.differing.add(neighbour)
            self._soon()

    def since(self, neighbour: NodeId) -> Micros:
        """From when on a neighbour wants real-time events: since its boot, if that is not long ago."""
        said = self._said.get(neighbour)
        return self.host.now() - self._recent_time if said is None else said.since

    def _soon(self) -> None:
        """Say what we hold; to a new neighbour at once, to others an interval after the last time at
        least."""
        if not self._is_soon:
            self._is_soon = True
            soon = self.host.now() + random_below(self.host, MEETING_DELAY)
            self._soon_timer.at(soon if self._has_met else max(soon, self._digest_at + self._interval))

    def _send_soon(self) -> None:
        self._is_soon = False
        now, agrees = self.host.now(), self.holdings.agrees
        self.differing = {node for node in self.differing if not agrees(self._said[node], now)}
        if self.differing or not self._is_compared:
            self._send_digest(also_unchanged=self._has_met)

    def on_digest(self, sender: NodeId, digest: HoldingsDigest) -> None:
        held = digest.held
        if not self._requests.on_offer(sender, unseen_of(held, self._broker.unseen), []):
            self._messenger.overflow("digest", "OFFERING_MAX or OFFERED_MAX")
        if self._broker.store.is_filling:
            self.custody.on_held(sender, events_of(held))
            self._tell_had(sender, held)
        self.ask(sender)
        if self._is_compared and len(self._broker.store) <= COMPARED_MAX:
            self._compare(sender, held)
        elif self.holdings.any_memorized(missing(held, self._last_digest)):
            # It did not hear our last digest: it has restarted, and its neighbours may not have noticed that.
            # Events that it is requesting right now look the same, hence the pause. Real-time events leave
            # the digests of different nodes at different times, so they prove nothing.
            self._soon()

    def _compare(self, sender: NodeId, held: tuple[HeldRuns, ...]) -> None:
        now = self.host.now()
        mine = self.holdings.whole_digest(now)
        if held == mine:
            if self._is_soon:  # ours would say the same
                self._is_soon = False
                self._soon_timer.cancel()
        elif self.holdings.any_settled(missing(held, mine), now, self.since(sender)):
            self.differing.update(self._said.keys() & {sender})
            self._soon()

    def _tell_had(self, neighbour: NodeId, held: tuple[HeldRuns, ...]) -> None:
        """Name the events of this digest that this node has had and pushed out of its store. They are in none
        of its own digests, so a neighbour that has restarted, and forgotten that it gave them to us, would
        wait for us in vain."""
        store, has_seen = self._broker.store, self._broker.has_seen
        had = runs_of(event for event in events_of(held) if event not in store and has_seen(event))
        if had and store.settled is not None:
            self._messenger.send(HadEvents(had), neighbour)

    def _on_digest_due(self) -> None:
        self._send_digest()
        self._digest_timer.after(self._interval)

    def _send_digest(self, *, also_unchanged: bool = False) -> None:
        if not self._around.neighbours():
            return
        held = self.holdings.digest(self.host.now())
        if held == self._last_digest and not also_unchanged:
            self._unchanged += 1
            if self._unchanged % UNCHANGED_TURNS:
                return
        if held != self._last_digest:
            self._unchanged = 0
        self._last_digest = held
        self._digest_at = self.host.now()
        self._has_met = False
        if held or also_unchanged:  # an empty digest to a new neighbour brings its digest in return
            self._messenger.send(HoldingsDigest(held))

    # Requests and answers.

    def ask(self, neighbour: NodeId) -> None:
        now = self.host.now()
        # Without room, nothing is asked for. Where there is only room for events that came over many hops,
        # little is asked for, because digests do not tell how many hops. Real-time events wait with the
        # others: here they are repairs.
        store, wanted = self._broker.store, []
        if self._broker.may_keep and store.has_room(0, now, hops=HOPS_MAX):
            few = None if store.has_room(0, now) else random_below(self.host, OFFERED_MAX)
            wanted = self._requests.request(neighbour, now, few)
        if wanted:
            self.want(neighbour, wanted)
        if self._requests.has_offers(neighbour):
            # A request or an answer may be lost, and another neighbour may not send what it was asked for.
            self._ask_timers.at(neighbour, now + self._request_timeout)

    def want(self, neighbour: NodeId, events: list[EventId]) -> None:
        flat = tuple(number for event in events for number in event)
        self._messenger.send(WantEvents(flat, self._short_uptime()), neighbour)

    def _short_uptime(self) -> Micros:
        """0 if this node was up when the oldest real-time event that somebody holds was published."""
        uptime = self.host.now() - self._broker.booted_at
        return uptime if uptime < self._recent_time and not self._is_bridge() else 0

    def _is_bridge(self) -> bool:
        """Whether neighbours may hear of each other's events by this node alone: as far as it knows, they are
        not connected without it."""
        near = self._around.neighbours()
        left, reached = set(near[1:]), near[:1]
        while reached and left:
            more = left.intersection(self._around.neighbours_of(reached.pop()))
            left -= more
            reached += more
        return bool(left)

    def _on_want(self, sender: NodeId, want: WantEvents) -> None:
        wanted = [EventId(*event) for event in zip(want.events[::2], want.events[1::2], strict=False)]
        too_old = set[EventId]()
        if want.uptime:
            found = (self.holdings.find(event, self.host.now()) for event in wanted)
            too_old.update(
                one.event.id for one in found if one and not one.event.lifetime and one.age > want.uptime
            )
        if too_old:
            self._messenger.send(TooOld(runs_of(too_old)), sender)
        asked = {event: self._answers.find(event) or set() for event in wanted if event not in too_old}
        for askers in asked.values():
            askers.add(sender)
        self._answers.add(asked.items())

    def _on_too_old(self, sender: NodeId, message: TooOld) -> None:
        if self._short_uptime():
            until = self.host.now() + self._recent_time
            self._requests.on_refused(sender, events_of(message.held), until)

    def _hand(self, key: EventId, askers: set[NodeId]) -> int:
        holding = self.holdings.find(key, self.host.now())
        if holding is None or holding.hops >= self._hop_limit:
            return 0
        message = self._handed(holding)
        if len(askers) > 1 and type(message) is Handed:
            message = HandedToAll(*holding)
        frame = self._messenger.frame(message, own=key.publisher == self.host.node)
        if type(message) is HandedToAll:
            self.host.broadcast(frame)
        else:
            for neighbour in sorted(askers):
                self.host.unicast(neighbour, frame, partial(self._on_failure, neighbour))
        return len(frame.payload)

    def _on_failure(self, neighbour: NodeId, why: SendFailure) -> None:
        """Drop the other answers to this neighbour: if it is still there, it asks again."""
        if why is SendFailure.LINK:
            self._around.on_link_failure(neighbour)
        self._answers.forget(lambda event: self._has_no_other(event, neighbour))

    def _has_no_other(self, event: EventId, neighbour: NodeId) -> bool:
        askers = self._answers.find(event) or set()
        askers.discard(neighbour)
        return not askers
