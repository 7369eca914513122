"""Epidemic: flood what is new, and keep comparing digests. Our own default for small fleets in the field.

Not one of the five papers. Flooding reaches every node that is connected at that moment; anti-entropy (Demers
and others, 1987; over radio, Vahdat and Becker's epidemic routing, 2000) carries memorized events across
partitions and repairs losses of the radio. Subscriptions are not sent.

A broadcast reaches the sender's neighbours, and beacons name those. So each copy that is heard covers its
sender and the sender's neighbours; when all of our own neighbours are covered, another copy would reach
nobody new (Peng and Lu, "On the reduction of broadcast redundancy in mobile ad hoc networks", 2000). Beacons
are up to an interval old and frames get lost, so this can be wrong; the next digest then repairs it.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec

from roamcast.broker.store import StoredEvent
from roamcast.chunks import is_chunk
from roamcast.event import Count, Event, EventClass, EventId
from roamcast.host import Kind, SendFailure
from roamcast.kit.custody import Custody
from roamcast.kit.newcomers import Newcomers
from roamcast.kit.protocol import MessageLayer, Timer, Timers, WireMessage, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.repair import (
    PUBLISHERS_MAX,
    Answers,
    HeldRuns,
    Holdings,
    Requests,
    events_of,
    missing,
    runs_of,
    unseen_of,
)
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, Micros, NodeId, micros
from roamcast.wire import Codec

# Chosen by us.
ANSWERS_MAX = 10_000  # that wait
WANTED_MAX = 1_000  # events in one request
MEETING_DELAY: Micros = 20 * MILLISECOND  # at most, before the digest for a new neighbour
UNCHANGED_TURNS = 5  # an unchanged digest is sent only once in so many intervals
CROWD = 5  # so many others that heard a copy, or more, and a relay waits for the whole jitter


class EpidemicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in seconds. The defaults are chosen by us."""

    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # seconds; a relay waits up to this
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops
    # Do not pass a copy on if, by the beacons, all neighbours have heard one (Peng and Lu, 2000).
    suppress: bool = True
    digest_interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds
    # Seconds for which a real-time event is offered to neighbours that missed it.
    recent_time: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0
    recent_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # real-time events kept for that
    request_max: Annotated[int, msgspec.Meta(ge=1, le=WANTED_MAX)] = 64  # events in one request
    request_timeout: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.5  # seconds; then it asks again
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # copies that wait for their turn
    beacon_interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] = 1.0  # seconds
    allowed_beacon_loss: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2  # beacons in a row

    def underlay_options(self) -> dict[str, Any]:
        """For `beacons`, which this strategy runs on."""
        return {"interval": self.beacon_interval, "allowed_loss": self.allowed_beacon_loss, "prompt": True}


# Messages.

Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]
Held = Annotated[tuple[HeldRuns, ...], msgspec.Meta(max_length=PUBLISHERS_MAX)]


class FloodedEvent(WireMessage, frozen=True, tag=1):
    """An event for all who hear it. `hops`: radio hops before this one; `age`: time since publication."""

    name = "copy"
    kind = Kind.DATA

    event: Event
    hops: Hops
    age: Count

    @property
    def event_id(self) -> EventId:
        return self.event.id


class Handed(FloodedEvent, frozen=True, tag=2):
    """An event for the neighbour that asked for it."""

    name = "handed"


class PassedOn(FloodedEvent, frozen=True, tag=6):
    """An event for all who hear it, from a node that could not keep it: those before it still have to."""

    name = "passed on"


class HoldingsDigest(WireMessage, frozen=True, tag=3):
    """The events that the sender can give."""

    name = "digest"

    held: Held


class WantEvents(WireMessage, frozen=True, tag=4):
    """Publisher and sequence of each event wanted, one after the other."""

    name = "want"

    events: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * WANTED_MAX)]


class HadEvents(WireMessage, frozen=True, tag=5):
    """For a neighbour whose digest named these events: the sender has had them, and holds them no more."""

    name = "had"

    had: Held


EpidemicMessage = FloodedEvent | Handed | PassedOn | HoldingsDigest | WantEvents | HadEvents
CODEC: Codec[EpidemicMessage] = Codec("epidemic", 1, EpidemicMessage)


class WaitingCopy(NamedTuple):
    event: Event
    hops: int  # so far
    age: Micros  # at its arrival
    arrived: Micros
    is_kept: bool
    covered: set[NodeId]


class Audience(Newcomers):
    """Who would hear a broadcast. A newcomer counts as a neighbour that has nothing.

    A node that has lost its last neighbour broadcasts nothing of its own: whoever comes next meets it first,
    and then gets its events by the digest. The cars of `examples/emulate/driving.toml` sent 63% of their
    copies to nobody."""

    def __init__(self, underlay: Underlay, *, suppress: bool) -> None:
        super().__init__()
        self._underlay = underlay
        self._suppress = suppress
        self._had_any = False  # an underlay may name none, ever

    def on_up(self, node: NodeId) -> None:
        super().on_up(node)
        self._had_any = True

    def may_hear(self, now: Micros) -> bool:
        """Whether a broadcast may reach somebody."""
        return not (self._suppress and self._had_any) or bool(self._all(now))

    def lacks(self, covered: set[NodeId], now: Micros) -> bool:
        """Whether a copy would reach a neighbour that has none. Without any known neighbour it is sent: a new
        neighbour's beacon may not have come yet."""
        neighbours = self._all(now) if self._suppress else []
        return not neighbours or not covered.issuperset(neighbours)

    def crowd(self, sender: NodeId) -> int:
        """How many others heard what `sender` broadcast: up to `CROWD`, and that if it is not known.

        Where few can send at once there is little to wait for: along a line the wait is a fifth.
        """
        heard_by = self._underlay.neighbours_of(sender)
        return min(CROWD, len(heard_by) - 1) if heard_by else CROWD

    def _all(self, now: Micros) -> list[NodeId]:
        return self._underlay.neighbours() + self.lately(now)


class Epidemic(MessageLayer, Strategy):
    def __init__(self, context: StrategyContext, options: EpidemicOptions) -> None:
        host = context.host
        super().__init__(host, CODEC)
        self._broker = context.broker
        self._underlay = context.underlay
        self._jitter = micros(options.jitter)
        self._hop_limit = options.hop_limit
        self._digest_interval = micros(options.digest_interval)
        self._request_timeout = micros(options.request_timeout)
        self._around = Audience(context.underlay, suppress=options.suppress)
        self._holdings = Holdings(
            context.broker.store,
            recent_time=micros(options.recent_time),
            recent_max=options.recent_max,
            on_evicted=self._on_forgotten,
        )
        self._relay: Relay[EventId, WaitingCopy] = Relay(
            host, send=self._pass_on, most=options.pending_max, is_needed=self._reaches_somebody_new
        )
        self._requests = Requests(
            context.broker.has_seen, request_max=options.request_max, timeout=self._request_timeout
        )
        self._answers: Answers[tuple[NodeId, EventId], None] = Answers(
            host,
            self._hand,
            most=ANSWERS_MAX,
            on_full=partial(self.messenger.overflow, "want", "ANSWERS_MAX"),
        )
        self._custody = Custody(host, context.broker.store)
        self._digest_timer = Timer(host, self._on_digest_due)
        self._meeting_timer = Timer(host, partial(self._send_digest, also_unchanged=True))
        self._ask_timers = Timers(host, self._ask)
        self._last_digest: tuple[HeldRuns, ...] = ()
        self._digest_at: Micros = -self._digest_interval  # when it was sent
        self._unchanged = 0
        self.note_sender = self._meet
        self.handlers = {
            FloodedEvent: self._on_copy,
            Handed: self._on_copy,
            PassedOn: self._on_copy,
            HoldingsDigest: self._on_digest,
            WantEvents: self._on_want,
            HadEvents: lambda sender, message: self._custody.on_held(sender, events_of(message.had)),
        }

    # Inputs.

    def on_start(self) -> None:
        self._around.known.update(self._underlay.neighbours())
        # At a random time: nodes that boot together would otherwise always send together.
        self._digest_timer.within(self._digest_interval)

    def publish(self, event: Event) -> None:
        now = self.host.now()
        if event.event_class is EventClass.REALTIME:
            self._holdings.remember(event, 0, 0, now)
        if self._around.may_hear(now):
            self.messenger.send(FloodedEvent(event, 0, 0))

    def seal_id(self, clear: Event) -> bytes | None:
        return b""  # every node gets every event

    def settled(self, stored: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
        return self._custody.settled(stored)

    def _meet(self, sender: NodeId) -> None:
        if sender not in self._around.known and self._around.meet(sender, self.host.now()):
            self._underlay.on_acquainted(sender)  # it may be waiting for our beacon, too

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._around.on_up(neighbour)
        self._custody.on_neighbour_up(neighbour)
        self._meeting_timer.within(MEETING_DELAY)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._around.on_down(neighbour)
        self._custody.on_neighbour_down(neighbour)
        self._requests.on_neighbour_down(neighbour)
        self._ask_timers.cancel(neighbour)

    # Copies.

    def _on_copy(self, sender: NodeId, copy: FloodedEvent) -> None:
        event = copy.event
        key = event.id
        if event.lifetime and not self._has_room_for(event):
            return  # the sender keeps it, and offers it again
        self._requests.on_copy(sender, key)
        if self._broker.observe(key, event.lifetime - copy.age):
            self._take(sender, copy)
        if event.lifetime and type(copy) is not PassedOn:
            self._custody.on_held(sender, (key,))
        waiting = self._relay.find(key)
        if waiting is not None:
            waiting.covered.add(sender)
            if type(copy) is not Handed:
                waiting.covered.update(self._underlay.neighbours_of(sender))
        if type(copy) is Handed and self._requests.has_offers(sender):
            self._ask(sender)

    def _has_room_for(self, event: Event) -> bool:
        store = self._broker.store
        if self._broker.has_seen(event.id) or is_chunk(event):  # chunks have room of their own
            return True
        return store.has_room(len(event.payload), self.host.now(), store.superseded_by(event))

    def _take(self, sender: NodeId, copy: FloodedEvent) -> None:
        """The first copy: deliver it, and pass it on after the jitter."""
        event, hops, now = copy.event, copy.hops + 1, self.host.now()
        is_memorized = event.event_class is EventClass.MEMORIZED
        if is_memorized and event.lifetime <= copy.age:
            self._broker.drop(event.id, DropReason.EXPIRED, "copy")
            return
        is_kept = self._broker.deliver(event, hops, copy.age)
        if not is_memorized:
            self._holdings.remember(event, hops, copy.age, now)
        if hops >= self._hop_limit:
            self._broker.drop(event.id, DropReason.EXPIRED, "copy")
        elif self._relay.is_full:
            self._broker.drop(event.id, DropReason.QUEUE_FULL, "copy")
        else:
            wait = random_below(self.host, self._jitter * self._around.crowd(sender) // CROWD)
            self._relay.add(event.id, WaitingCopy(event, hops, copy.age, now, is_kept, set()), wait)

    def _reaches_somebody_new(self, _: EventId, copy: WaitingCopy) -> bool:
        return self._around.lacks(copy.covered, self.host.now())

    def _pass_on(self, _: EventId, copy: WaitingCopy) -> None:
        age = copy.age + self.host.now() - copy.arrived
        message = FloodedEvent if copy.is_kept else PassedOn
        self.messenger.send(message(copy.event, copy.hops, age), own=False)

    def _on_forgotten(self, event: EventId, _: object) -> None:
        """A recent event had to go before its time; without neighbours nobody would have asked for it."""
        if self._around.known:
            self.messenger.overflow("copy", "recent_max", event)

    # Digests, requests, answers.

    def _on_digest(self, sender: NodeId, digest: HoldingsDigest) -> None:
        held = digest.held
        if not self._requests.on_offer(sender, unseen_of(held, self._broker.unseen)):
            self.messenger.overflow("digest", "OFFERING_MAX or OFFERED_MAX")
        if self._broker.store.is_filling:
            self._custody.on_held(sender, events_of(held))
            self._tell_had(sender, held)
        self._ask(sender)
        if self._holdings.any_memorized(missing(held, self._last_digest)):
            # It did not hear our last digest: for neighbours that did not notice its restart it is no new
            # neighbour. What it is requesting right now shows here too, hence the pause. Real-time
            # events leave the digests of different nodes at different times, so they prove nothing.
            soon = self.host.now() + random_below(self.host, MEETING_DELAY)
            self._meeting_timer.at(max(soon, self._digest_at + self._digest_interval))

    def _tell_had(self, neighbour: NodeId, held: tuple[HeldRuns, ...]) -> None:
        """What this node has pushed out of its store already is in none of its digests: a neighbour that has
        forgotten, in a restart, that it had given it to us would wait for us in vain."""
        store, has_seen = self._broker.store, self._broker.has_seen
        had = runs_of(event for event in events_of(held) if event not in store and has_seen(event))
        if had and store.settled is not None:
            self.messenger.send(HadEvents(had), neighbour)

    def _on_digest_due(self) -> None:
        self._send_digest()
        self._digest_timer.after(self._digest_interval)

    def _send_digest(self, *, also_unchanged: bool = False) -> None:
        if not self._underlay.neighbours():
            return
        held = self._holdings.digest(self.host.now())
        if held == self._last_digest and not also_unchanged:
            self._unchanged += 1
            if self._unchanged % UNCHANGED_TURNS:
                return
        if held != self._last_digest:
            self._unchanged = 0
        self._last_digest = held
        self._digest_at = self.host.now()
        if held or also_unchanged:  # an empty digest to a new neighbour brings its digest in return
            self.messenger.send(HoldingsDigest(held))

    def _ask(self, neighbour: NodeId) -> None:
        now = self.host.now()
        # Without room nothing is asked for. Real-time events wait with the others: they are repairs here.
        has_room = self._broker.may_keep and self._broker.store.has_room(0, now)
        wanted = self._requests.request(neighbour, now) if has_room else []
        if wanted:
            self.messenger.send(WantEvents(tuple(number for event in wanted for number in event)), neighbour)
        if self._requests.has_offers(neighbour):
            # A request or an answer may be lost, and another neighbour may not send what it was asked for.
            self._ask_timers.at(neighbour, now + self._request_timeout)

    def _on_want(self, sender: NodeId, want: WantEvents) -> None:
        wanted = zip(want.events[::2], want.events[1::2], strict=False)
        self._answers.add(((sender, EventId(*event)), None) for event in wanted)

    def _hand(self, asked: tuple[NodeId, EventId], _: None) -> int:
        neighbour, key = asked
        holding = self._holdings.find(key, self.host.now())
        if holding is None or holding.hops >= self._hop_limit:
            return 0
        frame = self.messenger.frame(Handed(*holding), own=key.publisher == self.host.node)
        self.host.unicast(neighbour, frame, partial(self._on_failure, neighbour))
        return len(frame.payload)

    def _on_failure(self, neighbour: NodeId, why: SendFailure) -> None:
        """Drop the other answers to this neighbour: if it is still there, it asks again."""
        if why is SendFailure.LINK:
            self._underlay.on_link_failure(neighbour)
        self._answers.forget(lambda asked: asked[0] == neighbour)
