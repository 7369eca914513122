"""Sending events over tree links: by unicast or in one broadcast, with repeats, at a limited rate.

The option `forwarding` chooses. By unicast the radio acknowledges and repeats. One broadcast serves several
neighbours, and those who missed it ask for it (`gaps.py`). `mixed` uses unicast for one neighbour and
broadcast for several. Events that a link or the radio could not take wait here, in the send queue of their
link, and not in the radio's queue, where they would block events for other neighbours. All links share one
allowance for sending again (`pace.py`).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from roamcast.event import EventClass, EventId
from roamcast.host import Host, Kind, SendFailure
from roamcast.strategy.repetition import Backoff
from roamcast.strategy.tree.content.gaps import HeardCasts, SentCasts
from roamcast.strategy.tree.content.messages import CODEC, Cast, MissedBroadcasts, Routed, Tally
from roamcast.strategy.tree.content.options import ContentOptions, Forwarding
from roamcast.strategy.tree.content.pace import RecoveryPace
from roamcast.strategy.tree.content.recent import EventCopy
from roamcast.trace import Dropped, DropReason
from roamcast.units import MILLISECOND, Micros, NodeId, micros

TIMER = "content"  # first part of all timer names of this layer; the overlay shares the host
# Chosen by us. Longer delays cost latency of recovered events and save control frames.
BURST = 2  # waiting events sent together
ASK_DELAY: Micros = 40 * MILLISECOND  # at least, at most twice; the missing event may still arrive
TALLY_DELAY: Micros = 250 * MILLISECOND  # from the last broadcast to the `Tally`


class TreeLinks(Protocol):
    """The part of the overlay that this layer uses."""

    def send(
        self,
        neighbour: NodeId,
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
        on_failure: Callable[[SendFailure], None] | None = None,
    ) -> None: ...

    def spread(
        self,
        neighbours: Iterable[NodeId],
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
    ) -> None: ...


class CarrierOwner(Protocol):
    """The router, which records which neighbour has which event."""

    def on_sent(self, neighbour: NodeId, event: EventId) -> None: ...

    def on_not_sent(self, neighbour: NodeId, event: EventId) -> None:
        """The radio could not deliver the event; it is sent again later or given up."""
        ...

    def on_given_up(self, neighbour: NodeId, event: EventId) -> None:
        """Every attempt failed, though the link still exists."""
        ...


class Carrier:
    def __init__(self, host: Host, options: ContentOptions, jitter: Micros, owner: CarrierOwner) -> None:
        self._host = host
        self._options = options
        self._jitter = jitter
        self._owner = owner
        self._overlay: TreeLinks | None = None
        self._link_queues: dict[NodeId, LinkQueue] = {}
        self._retry_interval = micros(options.event_retry_interval)
        self._lifetime = micros(options.recovery_time)
        self._pace = RecoveryPace(micros(options.event_pace))
        self._paced_until: Micros = 0
        self._last_served: NodeId = -1
        self._casts: dict[int, tuple[EventCopy, tuple[NodeId, ...]]] = {}  # waiting for their jitter to end
        self._number = 0
        self._counts_gaps = options.recovery != "none"
        self._asking = Backoff(micros(options.recovery_interval))  # `gaps.TRIES` ends it

    def attach(self, overlay: TreeLinks) -> None:
        self._overlay = overlay

    # Links.

    def on_link_up(self, neighbour: NodeId) -> None:
        self._link_queues[neighbour] = LinkQueue()

    def on_link_down(self, neighbour: NodeId) -> list[EventId]:
        """Returns the events that still waited for it."""
        link_queue = self._link_queues.pop(neighbour)
        self._host.cancel_timer((TIMER, "gap", neighbour))
        return [attempt.copy.event.id for attempt in (*link_queue.fresh, *link_queue.repeats)]

    def on_new_life(self, neighbour: NodeId) -> None:
        """A new incarnation of the link at the neighbour's end: broadcasts are counted from the beginning."""
        link_queue = self._link_queues[neighbour]
        link_queue.sent, link_queue.heard = SentCasts(), HeardCasts()

    # Sending.

    def send(self, neighbours: list[NodeId], copy: EventCopy) -> None:
        """To each of these tree neighbours."""
        forwarding = self._options.forwarding
        if forwarding is Forwarding.BROADCAST or (forwarding is Forwarding.MIXED and len(neighbours) > 1):
            self._cast_soon(tuple(neighbours), copy)
            return
        for neighbour in neighbours:
            attempt = UnicastAttempt(neighbour, copy)
            link_queue = self._link_queues[neighbour]
            if copy.again or link_queue.fresh or self._host.now() < link_queue.paused_until:
                self._queue(link_queue, attempt)
            else:
                self._send(link_queue, attempt)

    def send_again(self, neighbour: NodeId, copy: EventCopy, number: int = 0) -> None:
        """By unicast, within the allowance; `number`: of the broadcast that did not arrive."""
        link_queue = self._link_queues[neighbour]
        if all(waiting.copy.event.id != copy.event.id for waiting in link_queue.repeats):
            self._queue(link_queue, UnicastAttempt(neighbour, copy, number))

    def is_repeating(self, neighbour: NodeId) -> bool:
        """Whether events wait here to be sent to it again."""
        return bool(self._link_queues[neighbour].repeats)

    # Inputs.

    def on_timer(self, name: str, which: int) -> None:
        match name:
            case "cast":
                self._cast(which)
            case "waiting":
                self._send_waiting()
            case "gap":
                self._ask(which)
            case "tally":
                self._tell_tally()

    def on_routed(self, neighbour: NodeId, routed: Routed) -> None:
        link_queue = self._link_queues.get(neighbour)
        if link_queue is not None and routed.number and link_queue.heard.on_recovered(routed.number):
            self._ask(neighbour)

    def on_counts(self, neighbour: NodeId, message: Cast | Tally) -> None:
        link_queue = self._link_queues.get(neighbour)
        node = self._host.node
        number = next((count for each, count in message.counts if each == node), None)
        if link_queue is None or number is None:
            return
        heard = link_queue.heard
        new_gap = heard.on_cast(number) if isinstance(message, Cast) else heard.on_tally(number)
        if new_gap and not link_queue.is_asking:
            link_queue.is_asking = True
            self._set_timer("gap", neighbour, ASK_DELAY + self._some_of(ASK_DELAY))

    def on_missed(self, neighbour: NodeId, missed: MissedBroadcasts) -> None:
        link_queue = self._link_queues.get(neighbour)
        if link_queue is None:
            return
        self._pace.on_loss(self._host.now())
        for number in missed.numbers:
            copy = link_queue.sent.find(number)
            if copy is not None:
                self._owner.on_not_sent(neighbour, copy.event.id)
                self.send_again(neighbour, copy, number)

    # Unicast.

    def _send(self, link_queue: "LinkQueue", attempt: "UnicastAttempt") -> None:
        assert self._overlay is not None
        copy = attempt.copy
        event = copy.event
        age = max(0, self._host.now() - copy.published_at)
        if not attempt.is_repeat:
            self._pace.on_fresh()
        self._owner.on_sent(attempt.neighbour, event.id)
        self._overlay.send(
            attempt.neighbour,
            CODEC.encode(Routed(event, copy.hops, age, copy.again, attempt.number)),
            kind=Kind.DATA,
            message="recovery" if attempt.is_repeat else "event",
            event=event.id,
            own=copy.hops == 0 and not attempt.is_repeat,
            on_failure=lambda failure: self._on_failed(link_queue, attempt, failure),
        )

    def _on_failed(self, link_queue: "LinkQueue", attempt: "UnicastAttempt", failure: SendFailure) -> None:
        event = attempt.copy.event.id
        self._owner.on_not_sent(attempt.neighbour, event)
        if self._link_queues.get(attempt.neighbour) is not link_queue:
            return
        now = self._host.now()
        if failure is SendFailure.QUEUE_FULL:
            self._pace.on_loss(now)
            self._queue(link_queue, attempt, first=True)
            return
        link_queue.paused_until = now + self._retry_interval
        attempt.failures += 1
        if attempt.failures <= self._options.event_retries:
            self._queue(link_queue, attempt, first=True)
        else:
            self._owner.on_given_up(attempt.neighbour, event)

    def _queue(self, link_queue: "LinkQueue", attempt: "UnicastAttempt", *, first: bool = False) -> None:
        """Waiting events are sent a few at a time: first those not sent before, then repeats, in order."""
        if len(link_queue.fresh) + len(link_queue.repeats) >= self._options.pending_max:
            self._drop(attempt.copy, DropReason.QUEUE_FULL)
            return
        waiting = link_queue.repeats if attempt.is_repeat else link_queue.fresh
        if first:
            waiting.appendleft(attempt)
        else:
            waiting.append(attempt)
        self._wake()

    def _send_waiting(self) -> None:
        now = self._host.now()
        for _ in range(BURST):
            link_queue = self._next_link_queue(lambda link_queue: link_queue.fresh)
            if link_queue is not None:
                self._send(link_queue, link_queue.fresh.popleft())
                continue
            link_queue = self._next_link_queue(lambda link_queue: link_queue.repeats)
            if link_queue is None or not self._pace.take(now):
                break
            self._send(link_queue, link_queue.repeats.popleft())
        self._paced_until = now + self._pace.interval
        self._wake()

    def _next_link_queue(
        self, waiting_in: Callable[["LinkQueue"], "deque[UnicastAttempt]"]
    ) -> "LinkQueue | None":
        """The next queue that has something to send and may, round robin over the neighbours."""
        now = self._host.now()
        order = sorted(self._link_queues, key=lambda node: (node <= self._last_served, node))
        for neighbour in order:
            link_queue = self._link_queues[neighbour]
            waiting = waiting_in(link_queue)
            while waiting and self._is_late(waiting[0].copy):
                self._drop(waiting.popleft().copy, DropReason.EXPIRED)
            if waiting and link_queue.paused_until <= now:
                self._last_served = neighbour
                return link_queue
        return None

    def _is_late(self, copy: EventCopy) -> bool:
        """Too old to be sent: nobody would keep it for recovery either."""
        memorized = copy.event.event_class is EventClass.MEMORIZED
        return not memorized and self._host.now() - copy.published_at >= self._lifetime

    def _wake(self) -> None:
        now = self._host.now()
        link_queues = self._link_queues.values()
        due = [link_queue.paused_until for link_queue in link_queues if link_queue.fresh]
        repeats = [link_queue.paused_until for link_queue in link_queues if link_queue.repeats]
        if repeats:
            due.append(max(min(repeats), self._pace.next_at(now)))
        if due:
            self._host.set_timer((TIMER, "waiting", 0), max(now, self._paced_until, min(due)))

    # Broadcast.

    def _cast_soon(self, neighbours: tuple[NodeId, ...], copy: EventCopy) -> None:
        """After a random delay: receivers of one broadcast may not hear each other, and would collide."""
        if len(self._casts) >= self._options.pending_max:
            self._drop(copy, DropReason.QUEUE_FULL)
            return
        self._number += 1
        self._casts[self._number] = (copy, neighbours)
        self._set_timer("cast", self._number, self._some_of(self._jitter))

    def _cast(self, which: int) -> None:
        assert self._overlay is not None
        copy, neighbours = self._casts.pop(which)
        event = copy.event
        to = [neighbour for neighbour in neighbours if neighbour in self._link_queues]
        counts: tuple[tuple[NodeId, int], ...] = ()
        if self._counts_gaps:
            counts = tuple((neighbour, self._link_queues[neighbour].sent.add(copy)) for neighbour in to)
            self._set_timer("tally", 0, TALLY_DELAY)
        if not copy.again:
            self._pace.on_fresh()
        for neighbour in to:
            self._owner.on_sent(neighbour, event.id)
        age = max(0, self._host.now() - copy.published_at)
        self._overlay.spread(
            to,
            CODEC.encode(Cast(event, copy.hops, age, copy.again, counts)),
            kind=Kind.DATA,
            message="recovery" if copy.again else "event",
            event=event.id,
            own=copy.hops == 0 and not copy.again,
        )

    def _tell_tally(self) -> None:
        assert self._overlay is not None
        untold = [
            (node, link_queue.sent)
            for node, link_queue in sorted(self._link_queues.items())
            if link_queue.sent.count > link_queue.sent.tallied
        ]
        counts = tuple((node, sent.count) for node, sent in untold)
        for _, sent in untold:
            sent.tallied = sent.count
        if counts:
            self._overlay.spread(
                [node for node, _ in counts],
                CODEC.encode(Tally(counts)),
                kind=Kind.CONTROL,
                message="tally",
                event=None,
                own=False,
            )

    def _ask(self, neighbour: NodeId) -> None:
        assert self._overlay is not None
        link_queue = self._link_queues[neighbour]
        numbers = link_queue.heard.take_missing()
        link_queue.is_asking = bool(numbers)
        if numbers:
            self._overlay.send(
                neighbour,
                CODEC.encode(MissedBroadcasts(tuple(numbers))),
                kind=Kind.CONTROL,
                message="request",
                event=None,
                own=False,
            )
            wait = self._asking.wait(link_queue.heard.tries - 1)
            self._set_timer("gap", neighbour, wait + self._some_of(ASK_DELAY))

    # Private.

    def _drop(self, copy: EventCopy, reason: DropReason) -> None:
        event = copy.event
        self._host.trace(
            Dropped(self._host.now(), self._host.node, reason, "event", event.publisher, event.sequence)
        )

    def _set_timer(self, name: str, which: int, after: Micros) -> None:
        self._host.set_timer((TIMER, name, which), self._host.now() + after)

    def _some_of(self, interval: Micros) -> Micros:
        return int(self._host.random.random() * interval)


class LinkQueue:
    """The send queues of one tree link, in one incarnation of it, and both counts of its broadcasts."""

    def __init__(self) -> None:
        self.fresh: deque[UnicastAttempt] = deque()
        self.repeats: deque[UnicastAttempt] = deque()
        self.paused_until: Micros = 0
        self.sent = SentCasts()
        self.heard = HeardCasts()
        self.is_asking = False


class UnicastAttempt:
    """An event on its way over one link by unicast."""

    __slots__ = ("copy", "failures", "neighbour", "number")

    def __init__(self, neighbour: NodeId, copy: EventCopy, number: int = 0) -> None:
        self.neighbour = neighbour
        self.copy = copy
        self.number = number  # of the broadcast that did not arrive; 0: none
        self.failures = 0

    @property
    def is_repeat(self) -> bool:
        return self.copy.again or self.number > 0
