"""Epidemic flooding: copies, digests at intervals and for each new neighbour, requests and answers."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import partial

from roamcast.broker.core import Broker
from roamcast.broker.store import StoredEvent
from roamcast.chunks.form import is_chunk
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.host import Frame, Host, Kind, SendFailure, TimerName
from roamcast.kit.custody import Custody
from roamcast.kit.protocol import trace_overflow
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.burst import fragments
from roamcast.strategy.epidemic.exchange import EventRequests
from roamcast.strategy.epidemic.holdings import DIGEST_READ, Holdings, events_of, missing, runs_of
from roamcast.strategy.epidemic.messages import (
    CODEC,
    FloodedEvent,
    HadEvents,
    Handed,
    HeldRuns,
    HoldingsDigest,
    WantEvents,
)
from roamcast.strategy.epidemic.options import EpidemicOptions
from roamcast.strategy.epidemic.relay import CROWD, RelayQueue
from roamcast.trace import Dropped, DropReason
from roamcast.units import MILLISECOND, Micros, NodeId, micros

ANSWER_PACE: Micros = 10 * MILLISECOND  # pause after a burst of answers, for other senders; chosen by us
ANSWER_BURST = 4  # frames, or pieces of large ones; chosen by us
ANSWERS_MAX = 10_000  # that wait; chosen by us
MEETING_DELAY: Micros = 20 * MILLISECOND  # at most, before the digest for a new neighbour; chosen by us
UNCHANGED_TURNS = 5  # an unchanged digest is sent only once in so many intervals; chosen by us


class Epidemic(Strategy):
    knows_who_has_what = True

    def __init__(self, context: StrategyContext, options: EpidemicOptions) -> None:
        self._host: Host = context.host
        self._broker: Broker = context.broker
        self._underlay = context.underlay
        self._jitter = micros(options.jitter)
        self._hop_limit = options.hop_limit
        self._digest_interval = micros(options.digest_interval)
        self._request_timeout = micros(options.request_timeout)
        self._holdings = Holdings(
            context.broker.store,
            recent_time=micros(options.recent_time),
            recent_max=options.recent_max,
            on_evicted=self._on_forgotten,
        )
        self._relay = RelayQueue(context.underlay, suppress=options.suppress, pending_max=options.pending_max)
        self._exchange = EventRequests(
            context.broker.has_seen,
            request_max=options.request_max,
            timeout=self._request_timeout,
        )
        self._custody = Custody(context.host, context.broker.store)
        self._neighbours: set[NodeId] = set()
        # A request that is repeated while its answer waits is answered once: large events take long.
        self._answers: OrderedDict[tuple[NodeId, EventId], None] = OrderedDict()
        self._last_digest: tuple[HeldRuns, ...] = ()
        self._digest_at: Micros = -self._digest_interval  # when it was sent
        self._unchanged = 0

    # Inputs.

    def on_start(self) -> None:
        self._neighbours.update(self._underlay.neighbours())
        # At a random time: nodes that boot together would otherwise always send together.
        first = int(self._host.random.random() * self._digest_interval)
        self._host.set_timer("digest", self._host.now() + first)

    def publish(self, event: Event) -> None:
        now = self._host.now()
        if event.event_class is EventClass.REALTIME:
            self._holdings.remember(event, 0, 0, now)
        if self._relay.may_be_heard(now):
            self._send(FloodedEvent(event, 0, 0))

    def seal_id(self, clear: Event) -> bytes | None:
        return b""  # every node gets every event

    def settled(self, stored: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
        return self._custody.settled(stored)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            message = CODEC.decode(payload)
        except WireError as error:
            now = self._host.now()
            self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "epidemic", detail=str(error)))
            return
        if sender not in self._neighbours and self._relay.meet(sender, self._host.now()):
            self._underlay.on_acquainted(sender)  # it may be waiting for our beacon, too
        match message:
            case FloodedEvent() | Handed():
                self._on_copy(sender, message)
            case HoldingsDigest(held):
                self._on_digest(sender, held)
            case HadEvents(had):
                self._custody.on_held(sender, events_of(had))
            case WantEvents(events):
                self._on_want(sender, events)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "digest":
                self._send_digest()
                self._host.set_timer("digest", self._host.now() + self._digest_interval)
            case "meeting":
                self._send_digest(also_unchanged=True)
            case "answer":
                self._answer()
            case ("ask", int() as neighbour):
                self._ask(neighbour)
            case EventId():
                self._pass_on(name)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._neighbours.add(neighbour)
        self._custody.on_neighbour_up(neighbour)
        self._relay.on_neighbour_up(neighbour)
        delay = int(self._host.random.random() * MEETING_DELAY)
        self._host.set_timer("meeting", self._host.now() + delay)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._neighbours.discard(neighbour)
        self._custody.on_neighbour_down(neighbour)
        self._exchange.on_neighbour_down(neighbour)
        self._host.cancel_timer(("ask", neighbour))

    # Copies.

    def _on_copy(self, sender: NodeId, copy: FloodedEvent | Handed) -> None:
        event = copy.event
        key = event.id
        lives_for = event.lifetime - copy.age
        if event.lifetime and not self._has_room_for(event):
            return  # the sender keeps it, and offers it again
        self._exchange.on_copy(sender, key)
        if self._broker.observe(key, lives_for):
            self._take(sender, copy, lives_for)
        if event.lifetime:
            self._custody.on_held(sender, (key,))
        self._relay.cover(key, sender, to_all=isinstance(copy, FloodedEvent))
        if isinstance(copy, Handed) and self._exchange.has_offers(sender):
            self._ask(sender)

    def _has_room_for(self, event: Event) -> bool:
        store = self._broker.store
        if self._broker.has_seen(event.id) or is_chunk(event):  # chunks have room of their own
            return True
        return store.has_room(len(event.payload), self._host.now(), store.superseded_by(event))

    def _take(self, sender: NodeId, copy: FloodedEvent | Handed, lives_for: Micros) -> None:
        """The first copy: deliver it, and pass it on after the jitter."""
        event, hops, now = copy.event, copy.hops + 1, self._host.now()
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event.id, DropReason.EXPIRED, "copy")
            return
        self._broker.deliver(event, hops, copy.age)
        self._remember(event, hops, copy.age)
        if hops >= self._hop_limit:
            self._broker.drop(event.id, DropReason.EXPIRED, "copy")
        elif self._relay.full():
            self._broker.drop(event.id, DropReason.QUEUE_FULL, "copy")
        else:
            self._relay.add(event, hops, copy.age, now)
            wait = self._jitter * self._relay.crowd(sender) // CROWD
            self._host.set_timer(event.id, now + int(self._host.random.random() * wait))

    def _pass_on(self, key: EventId) -> None:
        waiting = self._relay.take(key, self._host.now())
        if waiting is not None:
            waited = self._host.now() - waiting.arrived
            self._send(FloodedEvent(waiting.event, waiting.hops, waiting.age + waited))

    def _on_forgotten(self, event: EventId, _: object) -> None:
        """A recent event had to go before its time; without neighbours nobody would have asked for it."""
        if self._neighbours:
            trace_overflow(self._host, "copy", "recent_max", event)

    def _remember(self, event: Event, hops: int, age: Micros) -> None:
        if event.event_class is EventClass.REALTIME:
            self._holdings.remember(event, hops, age, self._host.now())

    # Digests, requests, answers.

    def _on_digest(self, sender: NodeId, held: tuple[HeldRuns, ...]) -> None:
        if not self._exchange.on_offer(sender, DIGEST_READ.events_among(held, self._broker.unseen)):
            trace_overflow(self._host, "digest", "NEIGHBOURS_MAX or OFFERED_MAX")
        if self._broker.store.is_filling:
            self._custody.on_held(sender, events_of(held))
            self._tell_had(sender, held)
        self._ask(sender)
        if self._holdings.any_memorized(missing(held, self._last_digest)):
            # It did not hear our last digest: for neighbours that did not notice its restart it is no new
            # neighbour. What it is requesting right now shows here too, hence the pause. Real-time
            # events leave the digests of different nodes at different times, so they prove nothing.
            delay = int(self._host.random.random() * MEETING_DELAY)
            soonest = self._digest_at + self._digest_interval
            self._host.set_timer("meeting", max(self._host.now() + delay, soonest))

    def _tell_had(self, neighbour: NodeId, held: tuple[HeldRuns, ...]) -> None:
        """What this node has pushed out of its store already is in none of its digests: a neighbour that has
        forgotten, in a restart, that it had given it to us would wait for us in vain."""
        store, has_seen = self._broker.store, self._broker.has_seen
        had = runs_of(event for event in events_of(held) if event not in store and has_seen(event))
        if had and store.settled is not None:
            self._host.unicast(neighbour, Frame(CODEC.encode(HadEvents(had)), Kind.CONTROL, "had"))

    def _send_digest(self, *, also_unchanged: bool = False) -> None:
        if not self._underlay.neighbours():
            return
        held = self._holdings.digest(self._host.now())
        if held == self._last_digest and not also_unchanged:
            self._unchanged += 1
            if self._unchanged % UNCHANGED_TURNS:
                return
        if held != self._last_digest:
            self._unchanged = 0
        self._last_digest = held
        self._digest_at = self._host.now()
        if held or also_unchanged:  # an empty digest to a new neighbour brings its digest in return
            self._host.broadcast(Frame(CODEC.encode(HoldingsDigest(held)), Kind.CONTROL, "digest"))

    def _ask(self, neighbour: NodeId) -> None:
        now = self._host.now()
        # Without room nothing is asked for. Real-time events wait with the others: they are repairs here.
        has_room = self._broker.store.has_room(0, now)
        wanted = self._exchange.request(neighbour, now) if has_room else []
        if wanted:
            numbers = tuple(number for event in wanted for number in event)
            self._host.unicast(neighbour, Frame(CODEC.encode(WantEvents(numbers)), Kind.CONTROL, "want"))
        if self._exchange.has_offers(neighbour):
            # A request or an answer may be lost, and another neighbour may not send what it was asked for.
            self._host.set_timer(("ask", neighbour), now + self._request_timeout)

    def _on_want(self, sender: NodeId, events: tuple[int, ...]) -> None:
        room = ANSWERS_MAX - len(self._answers)
        wanted = zip(events[::2], events[1::2], strict=False)
        idle = not self._answers
        if len(events) // 2 > room:
            trace_overflow(self._host, "want", "ANSWERS_MAX")
        for _, (publisher, sequence) in zip(range(room), wanted, strict=False):
            self._answers[sender, EventId(publisher, sequence)] = None
        if idle:
            self._answer()

    def _answer(self) -> None:
        now = self._host.now()
        sent = 0
        while self._answers and sent < ANSWER_BURST:
            (neighbour, key), _ = self._answers.popitem(last=False)
            holding = self._holdings.find(key, now)
            if holding is None or holding.hops >= self._hop_limit:
                continue
            handed = Handed(holding.event, holding.hops, holding.age)
            frame = Frame(CODEC.encode(handed), Kind.DATA, "handed", key, key.publisher == self._host.node)
            self._host.unicast(neighbour, frame, partial(self._on_failure, neighbour))
            sent += fragments(len(frame.payload))
        if self._answers:
            self._host.set_timer("answer", now + ANSWER_PACE)

    def _on_failure(self, neighbour: NodeId, why: SendFailure) -> None:
        """Drop the other answers to this neighbour: if it is still there, it asks again."""
        if why is SendFailure.LINK:
            self._underlay.on_link_failure(neighbour)
        self._answers = OrderedDict((answer, None) for answer in self._answers if answer[0] != neighbour)

    def _send(self, copy: FloodedEvent) -> None:
        key = copy.event.id
        self._host.broadcast(Frame(CODEC.encode(copy), Kind.DATA, "copy", key, copy.hops == 0))
