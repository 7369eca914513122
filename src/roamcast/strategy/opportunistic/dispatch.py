"""From producers to consumers (section 2.1), at the producer's home broker.

An event goes to each consumer by a message (`CarryMessage`) along the overlay's route to the consumer's home
broker. The broker remembers for each consumer which event it was sent last, and says so with the next: so a
reader knows whether it lacks one.

Or it goes to all nodes by one flood (not with `dissemination = "overlay"`, the paper's way):

- It is for a good part of the network.
- It is memorized and short: every node keeps it, so that it outlives whoever has published it.
- A consumer cannot be reached, or has not confirmed a message for a while: whoever meets it may bring it.
- The broker has just started, or has heard of a consumer that it did not know: there may be more of them, and
  whoever hears a flood knows what it wants.

Memorized events that went by messages are kept for consumers that subscribe later (`Backlog`).
"""

from dataclasses import dataclass
from itertools import islice

import msgspec

from roamcast.broker.store import StoreFullError
from roamcast.event import Event, EventClass, EventId
from roamcast.kit.protocol import overflow_traced
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.consumers import EventTarget, opened
from roamcast.strategy.opportunistic.copies import EventCopy, FloodBase
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import CarryMessage, Head, Interest, Keep
from roamcast.strategy.opportunistic.readers import carried, mark
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId

LEARNING: Micros = 10 * SECOND  # so long a broker floods that has heard of somebody new
FLOOD_LEAST = 4  # consumers, and one in so many of the nodes there are: then an event is flooded
FLOOD_SHARE = 4
FEW_NODES = 4  # of which one consumer is enough
SHORT_OCTETS = 1_500  # of a longer one the octets count, not the frames
DIRECT_NAMED_MAX = 32
PRODUCERS_MAX = 4_096
DISPATCHED_MAX = 4_096  # events of which a second copy may come


@dataclass(slots=True)
class DispatchState:
    """What the dispatch knows of one producer."""

    last: int = -1  # the event that came last
    flooded: int | None = None  # … that was flooded last; None: another broker knows
    sent: dict[EventTarget, int] | None = None  # … that was sent last, to each since then; None: no event was


class Dispatch(NodePart):
    def __init__(self, shared: SharedParts, floods: Floods) -> None:
        super().__init__(shared)
        self._floods = floods
        self._learned_at = self._host.now() + LEARNING
        self._producers: BoundedDict[NodeId, DispatchState] = BoundedDict(
            PRODUCERS_MAX, overflow_traced(self._host, "publish", "producers")
        )
        self._dispatched: BoundedDict[EventId, None] = BoundedDict(DISPATCHED_MAX, unreported)
        # Readers that did not confirm a message, and until when none is sent to them.
        self._silent: BoundedDict[NodeId, Micros] = BoundedDict(PRODUCERS_MAX, unreported)

    # Inputs.

    def on_published(self, copy: EventCopy) -> bool:
        """An event of a producer that is at home here; whether messages take it, and nobody else has it."""
        event = copy.event
        producer, sequence = event.id
        state = self._producers.get(producer)
        if event.id in self._dispatched:
            return False  # a second copy: it was confirmed too late
        self._dispatched[event.id] = None
        if state is not None and sequence < state.last:
            return self._dispatch_late(copy)
        if state is None or state.last != copy.previous - 1:
            # It has published through another broker meanwhile, so only that broker knows what was sent to
            # whom.
            state = self._producers[producer] = DispatchState()
        state.last = sequence
        targets = self._consumers.matching(event)
        if self._is_for_all(event, targets):
            self._flood(copy, state)
            return False
        self._send(copy, state, targets)
        return True

    def on_unreachable(self, peer: NodeId) -> None:
        """It has not confirmed a message for a while: maybe others can reach it. What it was sent is flooded
        as well, where that may be; the messages stay."""
        self._silent.renew(peer, self._host.now() + LEARNING)
        for message in self._streams.unconfirmed(peer):
            if (
                not isinstance(message, CarryMessage)
                or message.is_stored
                or not self._may_flood(message.event)
            ):
                continue
            event = message.event.id
            state, copy = self._producers.get(event.publisher), self._copies.find(event)
            if state is not None and copy is not None and self._copies.flood(event) is None:
                self._flood_late(copy, state)

    def on_consumer(self, target: EventTarget) -> None:
        """One that was not known: it may lack what others were sent."""
        self._learned_at = max(self._learned_at, self._host.now() + LEARNING)
        for producer, state in self._producers.items():
            if state.sent is not None and target not in state.sent:
                state.sent[target] = -1
                to = self.reader_of(target)
                if to is not None:
                    self._streams.write(to, Head(*target, producer, state.last, False))

    def send_heads(self, target: EventTarget, to: NodeId) -> None:
        """A consumer has another home, and nobody knows what the one before had: it shall ask."""
        for producer, state in self._producers.items():
            last = -1 if state.sent is None else state.sent.get(target, -1)
            if last >= 0:
                self._streams.write(to, Head(*target, producer, last, False))

    # Questions.

    def reader_of(self, target: EventTarget) -> NodeId | None:
        """Which node reads for a consumer; None: nobody knows just now."""
        if not target.is_modulated:
            return target.consumer
        row = self._consumers.find(target.consumer)
        return row.home if row is not None and self._overlay.is_alive(row.home, row.boot) else None

    # Private.

    def _may_flood(self, event: Event) -> bool:
        """Of a long one the octets count: it waits for its way to open."""
        return self._options.dissemination != "overlay" and len(event.payload) <= SHORT_OCTETS

    def _is_for_all(self, event: Event, targets: list[EventTarget]) -> bool:
        if self._options.dissemination == "overlay":
            return False
        if not self._may_flood(event):
            return self._costs_more(targets)
        is_learning = self._host.now() < self._learned_at
        if is_learning or event.event_class is EventClass.MEMORIZED or self._is_wide(targets):
            return True
        return self._costs_more(targets) or not all(map(self._is_in_reach, targets))

    def _is_in_reach(self, target: EventTarget) -> bool:
        to = self.reader_of(target)
        if to is None or self._silent.get(to, 0) > self._host.now():
            return False
        return to == self._host.node or self._underlay.distance(to) is not None

    def _is_wide(self, targets: list[EventTarget]) -> bool:
        """Whether an event is for a good part of the network. This is also true for a node that is alone:
        whoever comes later shall have the event."""
        nodes = len(self._underlay.known_nodes()) + 1
        least = FLOOD_LEAST if nodes > FEW_NODES else 1
        wanted = max(least, -(-nodes // FLOOD_SHARE))
        if nodes == 1 or len(targets) < wanted:
            return nodes == 1
        own, distance = self._host.node, self._underlay.distance
        near = (one for one, _ in targets if one == own or distance(one) is not None)
        return sum(1 for _ in islice(near, wanted)) == wanted

    def _costs_more(self, targets: list[EventTarget]) -> bool:
        """Whether messages would take more transmissions than a flood, which every node may pass on."""
        readers = {self.reader_of(target) for target in targets}
        hops = (self._underlay.distance(node) for node in readers if node)
        return sum(one or 0 for one in hops) > len(self._underlay.known_nodes()) + 1

    def _flood(self, copy: EventCopy, state: DispatchState) -> None:
        base = copy.previous if state.flooded is None else state.flooded + 1
        direct = tuple(sorted(mark(*target) for target in state.sent or ()))
        if len(direct) > DIRECT_NAMED_MAX:
            base, direct = copy.previous, ()
        state.flooded, state.sent = copy.event.sequence, None
        self._floods.send(copy, FloodBase(base, direct))

    def _dispatch_late(self, copy: EventCopy) -> bool:
        """Its number was reserved, and later ones were published before it: in no order with others."""
        targets = self._consumers.matching(copy.event)
        if self._is_for_all(copy.event, targets):
            self._floods.send(copy, FloodBase(copy.event.sequence, ()))
            return False
        self._copies.add(copy, None)
        for target in targets:
            to = self.reader_of(target)
            if to is not None:
                message = carried(copy, *target, copy.event.sequence, self._host.now())
                self._streams.write(to, msgspec.structs.replace(message, is_stored=True))
        return True

    def _flood_late(self, copy: EventCopy, state: DispatchState) -> None:
        """One that was sent by messages, and others after it. Readers that may have been sent something
        between the last flood and this event must not skip it."""
        producer, sequence = copy.event.id
        before = self._copies.flooded_before(copy.event.id)
        between = [] if before is None else self._copies.of(producer, before + 1, sequence)
        sent = {mark(*target) for one in between for target in self._consumers.matching(one.event)}
        if before is None or len(sent) > DIRECT_NAMED_MAX:
            before, sent = copy.previous - 1, set()
        state.flooded = max(-1 if state.flooded is None else state.flooded, sequence)
        later = {target: last for target, last in (state.sent or {}).items() if last > sequence}
        state.sent = later or None
        self._floods.send(copy, FloodBase(before + 1, tuple(sorted(sent))))

    def _send(self, copy: EventCopy, state: DispatchState, targets: list[EventTarget]) -> None:
        now = self._host.now()
        self._copies.add(copy, None)
        flooded = -1 if state.flooded is None else state.flooded
        sent = state.sent = {} if state.sent is None else state.sent
        for target in targets:
            base = max(sent.get(target, -1), flooded) + 1 or copy.previous
            sent[target] = copy.event.sequence
            to = self.reader_of(target)
            if to is not None:
                self._streams.write(to, carried(copy, *target, base, now))


class Backlog(NodePart):
    """Memorized events kept for consumers that subscribe later: by the home brokers of their producers, where
    they went by messages. What was flooded every node has; for a client's modulators its home takes it out of
    its own store."""

    def __init__(self, shared: SharedParts) -> None:
        super().__init__(shared)
        # What was given to this node as a broker.
        self._kept: set[EventId] = set()

    def keep(self, message: Keep) -> None:
        """A client of ours has published it, or a broker that ends gives it to us. This node's own
        application gets its copy by the way of all others."""
        event, age = message.event, message.age
        if event.event_class is not EventClass.MEMORIZED or age >= event.lifetime:
            return
        try:
            self._core.keep(event, message.hops, age)
        except StoreFullError:
            self._core.drop(event.id, DropReason.STORE_FULL, "store")
        self._kept.add(event.id)

    def give_to(self, broker: NodeId) -> None:
        """We end: another broker shall keep what was given to us for later subscribers."""
        for keep in self._standing():
            self._streams.write(broker, keep)

    def serve(self, consumer: NodeId, home: NodeId, interests: tuple[Interest, ...]) -> None:
        """A consumer has subscribed to something new."""
        is_ours = home == self._host.node
        for event, age, hops in map(msgspec.structs.astuple, self._standing(is_all=is_ours)):
            matching = [interest for interest in interests if _matches(interest, event)]
            for is_modulated in {interest.modulator is not None for interest in matching}:
                if is_modulated or (event.publisher != consumer and event.id in self._kept):
                    message = CarryMessage(event, age, hops, consumer, is_modulated, 0, True, 0, 0)
                    self._streams.write(home if is_modulated else consumer, message)

    def _standing(self, *, is_all: bool = False) -> list[Keep]:
        self._kept = {event for event in self._kept if event in self._core.store}
        now = self._host.now()
        return [
            Keep(one.event, max(one.event.lifetime - (one.expires_at - now), 0), min(one.hops, 255))
            for one in (self._core.store.standing(now) if self._kept or is_all else ())
            if is_all or one.event.id in self._kept
        ]


def _matches(interest: Interest, event: Event) -> bool:
    wanted = opened(interest.filter)
    return wanted is not None and event.wants_subscribers and wanted.matches(event)
