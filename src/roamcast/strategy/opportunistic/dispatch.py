"""From producers to consumers (section 2.1), at the producer's home broker, and in every node that reads.

An event goes to each consumer by a letter (`CarryLetter`) along the overlay's route to the consumer's home
broker, or, where it is for a good part of the network, to all nodes by one flood. The broker remembers for
each consumer which event it was sent last, and says so with the next: so a reader knows whether it lacks one.

A broker that has just started, or hears of a consumer that it did not know, floods for a while: there may be
more that it does not know, and whoever hears a flood knows what it wants.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from roamcast.broker.core import Broker
from roamcast.broker.store import StoreFullError
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.strategy.opportunistic.consumers import Consumers, EventTarget
from roamcast.strategy.opportunistic.copies import Copies, EventCopy, FloodBase
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import CarryLetter, Head, Interest, Keep
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.pulls import Pulls, carried
from roamcast.strategy.opportunistic.readers import EventReader, mark
from roamcast.strategy.opportunistic.stream import Post
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId

LEARNING: Micros = 10 * SECOND  # so long a broker floods that has heard of somebody new
FLOOD_LEAST = 4  # consumers, and one in so many of the nodes there are: then an event is flooded
FLOOD_SHARE = 4
FEW_NODES = 4  # of which one consumer is enough
SHORT_OCTETS = 1_500  # of a longer one the octets count, not the frames
DIRECT_NAMED_MAX = 32
PRODUCERS_MAX = 4_096


class NodeReading:
    """What this node reads: for its own applications, and for the modulators of clients at home here."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        core: Broker,
        options: OpportunisticOptions,
        post: Post,
        copies: Copies,
        consumers: Consumers,
    ) -> None:
        self._host = host
        self._core = core
        self._copies = copies
        self.own = EventReader(host.node, is_modulated=False, since=host.now(), on_next=self._on_own)
        self.modulated: dict[NodeId, EventReader] = {}
        self.pulls = Pulls(
            host,
            underlay,
            options,
            post,
            copies,
            readers=self._all,
            filters=self._filters,
            home_of=lambda producer: _home(consumers, producer),
        )
        self._consumers = consumers

    # Inputs.

    def on_subscribed(self) -> None:
        """This node's application; what was before its first subscription is not for it."""
        if self._core.plain_subscriptions == 1:
            self.own.since = self._host.now()

    def on_flooded(self, copy: EventCopy, flood: FloodBase) -> None:
        for reader in (self.own, *self.modulated.values()):
            base = copy.previous if reader.mark in flood.direct else flood.base
            self._take(reader, copy, base)

    def on_carried(self, copy: EventCopy, carry: CarryLetter) -> None:
        """An event for one reader of this node."""
        reader = self.find(carry.consumer, carry.is_modulated)
        if reader is self.own and carry.is_stored:
            self._on_own(copy)
        elif reader is not None:
            self._take(reader, copy, carry.base)

    def on_head(self, head: Head) -> None:
        reader = self.find(head.consumer, head.is_modulated)
        if reader is not None:
            reader.on_head(head.producer, head.until, self._host.now(), is_all=head.is_all)
            if not head.is_all:
                self.pulls.on_hole()

    def begin(self, reader: EventReader) -> None:
        """A client with modulators is at home here now; what this node has of its events is read first."""
        self.modulated[reader.consumer] = reader
        for producer in self._copies.producers():
            after = reader.cursors.get(producer, -1) + 1
            for copy in self._copies.of(producer, after, 1 << 62):
                flood = self._copies.flood(copy.event.id)
                if flood is not None and copy.published_at >= reader.since:
                    base = copy.previous if reader.mark in flood.direct else flood.base
                    self._take(reader, copy, base)

    def end(self, consumer: NodeId) -> None:
        self.modulated.pop(consumer, None)

    def find(self, consumer: NodeId, is_modulated: bool) -> EventReader | None:
        if is_modulated:
            return self.modulated.get(consumer)
        return self.own if consumer == self._host.node else None

    # Private.

    def _all(self) -> Iterator[EventReader]:
        yield self.own
        yield from list(self.modulated.values())

    def _take(self, reader: EventReader, copy: EventCopy, base: int) -> None:
        if reader is self.own and not self._reads_own(copy.event):
            return
        reader.take(copy, base, self._host.now())
        if reader.has_waiting():
            self.pulls.on_hole()

    def _reads_own(self, event: Event) -> bool:
        """A node without subscriptions keeps no order of what is not for it."""
        if event.publisher == self._host.node:
            return self._host.node in event.destinations  # the core has served its subscriptions
        if self._core.plain_subscriptions:
            return True
        if self._host.node in event.destinations:
            return True
        copy = self._copies.find(event.id)
        if copy is not None and event.event_class is EventClass.MEMORIZED:
            self._on_own(copy)  # for its own later subscriptions
        return False

    def _on_own(self, copy: EventCopy) -> None:
        """A real-time event from before the first subscription is not for it: after a restart it would come a
        second time."""
        event = copy.event
        is_early = copy.published_at < self.own.since and self._host.node not in event.destinations
        if is_early and event.event_class is not EventClass.MEMORIZED:
            return
        self._core.deliver(event, copy.hops, copy.age(self._host.now()))

    def _filters(self, reader: EventReader) -> tuple[bytes, ...]:
        if reader is self.own:
            return tuple(one.filter.encode() for one in self._core.subscriptions() if one.modulator is None)
        row = self._consumers.find(reader.consumer)
        return () if row is None else tuple(i.filter for i in row.interests if i.modulator is not None)


class Dispatch:
    """A broker's."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        post: Post,
        copies: Copies,
        floods: Floods,
        consumers: Consumers,
        *,
        is_alive: Callable[[NodeId, int], bool],
    ) -> None:
        """`is_alive`: whether a home broker is the one that a client's row speaks of, by its life."""
        self._host = host
        self._underlay = underlay
        self._post = post
        self._copies = copies
        self._floods = floods
        self._consumers = consumers
        self._is_alive = is_alive
        self._learned_at = host.now() + LEARNING
        self._last: dict[NodeId, int] = {}  # of each producer: the event that came last
        self._flooded: dict[NodeId, int] = {}  # … that was flooded last
        self._sent: dict[NodeId, dict[EventTarget, int]] = {}  # … that was sent last, to each since then

    # Inputs.

    def on_published(self, copy: EventCopy) -> None:
        """An event of a producer that is at home here."""
        event = copy.event
        producer, sequence = event.id
        if sequence <= self._last.get(producer, -1):
            return  # a second copy: it was confirmed too late
        if self._last.get(producer, -1) != copy.previous - 1:
            # It has published through another broker meanwhile, and that one knows what was sent to whom.
            self._flooded.pop(producer, None)
            self._sent.pop(producer, None)
        if producer not in self._last and len(self._last) >= PRODUCERS_MAX:
            del self._last[next(iter(self._last))]
        self._last[producer] = sequence
        targets = self._consumers.matching(event)
        is_short = len(event.payload) <= SHORT_OCTETS
        is_learning = self._host.now() < self._learned_at
        if (is_short and (is_learning or self._is_wide(targets))) or self._costs_more(targets):
            self._flood(copy)
        else:
            self._send(copy, targets)

    def on_consumer(self, target: EventTarget) -> None:
        """One that was not known: it may lack what others were sent."""
        self._learned_at = max(self._learned_at, self._host.now() + LEARNING)
        for producer, sent in self._sent.items():
            if target not in sent:
                sent[target] = -1
                to = self.reader_of(target)
                if to is not None:
                    last = self._last[producer]
                    self._post.write(to, Head(target.consumer, target.is_modulated, producer, last, False))

    def send_heads(self, target: EventTarget, to: NodeId) -> None:
        """A consumer has another home, and nobody knows what the one before had: it shall ask."""
        for producer, sent in self._sent.items():
            if sent.get(target, -1) >= 0:
                head = Head(target.consumer, target.is_modulated, producer, sent[target], False)
                self._post.write(to, head)

    # Private.

    def _is_wide(self, targets: list[EventTarget]) -> bool:
        """Whether an event is for a good part of the network. So it is for one who is alone: whoever comes
        shall have it."""
        nodes = len(self._underlay.known_nodes()) + 1
        least = FLOOD_LEAST if nodes > FEW_NODES else 1
        wanted = max(least, -(-nodes // FLOOD_SHARE))
        if nodes == 1 or len(targets) < wanted:
            return nodes == 1
        near = (t for t in targets if t.consumer == self._host.node or self._is_near(t.consumer))
        return sum(1 for _ in islice(near, wanted)) == wanted

    def _costs_more(self, targets: list[EventTarget]) -> bool:
        """Whether letters would take more transmissions than a flood, which every node may pass on."""
        hops = (
            self._underlay.distance(node) for node in {self.reader_of(target) for target in targets} if node
        )
        return sum(one or 0 for one in hops) > len(self._underlay.known_nodes()) + 1

    def _is_near(self, node: NodeId) -> bool:
        return self._underlay.distance(node) is not None

    def _flood(self, copy: EventCopy) -> None:
        producer, sequence = copy.event.id
        sent = self._sent.pop(producer, {})
        base = self._flooded.get(producer, copy.previous - 1) + 1
        direct = tuple(sorted(mark(*target) for target in sent))
        if len(direct) > DIRECT_NAMED_MAX:
            base, direct = copy.previous, ()
        self._flooded[producer] = sequence
        self._floods.send(copy, FloodBase(base, direct))

    def _send(self, copy: EventCopy, targets: list[EventTarget]) -> None:
        producer, sequence = copy.event.id
        now = self._host.now()
        self._copies.add(copy, None)
        sent = self._sent.setdefault(producer, {})
        for target in targets:
            base = max(sent.get(target, -1), self._flooded.get(producer, -1)) + 1 or copy.previous
            sent[target] = sequence
            to = self.reader_of(target)
            if to is not None:
                self._post.write(to, carried(copy, target.consumer, target.is_modulated, base, now))

    def reader_of(self, target: EventTarget) -> NodeId | None:
        """Which node reads for a consumer; None: nobody knows just now."""
        if not target.is_modulated:
            return target.consumer
        row = self._consumers.find(target.consumer)
        return row.home if row is not None and self._is_alive(row.home, row.boot) else None


def _home(consumers: Consumers, producer: NodeId) -> NodeId | None:
    row = consumers.find(producer)
    return None if row is None else row.home


class Backlog:
    """Memorized events kept for consumers that subscribe later: by the home brokers of their producers."""

    def __init__(self, host: Host, core: Broker, post: Post) -> None:
        self._host = host
        self._core = core
        self._post = post
        # What was given to this node as a broker. Others' are stored here, too, and their brokers serve them.
        self._kept: set[EventId] = set()

    # Inputs.

    def on_published(self, copy: EventCopy) -> None:
        """A client of ours has published."""
        event = copy.event
        if event.event_class is EventClass.MEMORIZED:
            if event.publisher != self._host.node:
                self._keep(event, copy.hops, copy.age(self._host.now()))
            self._kept.add(event.id)

    def on_keep(self, message: Keep, held: Micros) -> None:
        """A broker that ends gives us what it kept."""
        age = message.age + held
        if message.event.event_class is EventClass.MEMORIZED and age < message.event.lifetime:
            self._keep(message.event, message.hops, age)
            self._kept.add(message.event.id)

    def give_to(self, broker: NodeId) -> None:
        """We end: another broker shall keep what was given to us for later subscribers."""
        now = self._host.now()
        for one in self._core.store.standing(now):
            if one.event.id in self._kept:
                age = max(one.event.lifetime - (one.expires_at - now), 0)
                self._post.write(broker, Keep(one.event, age, min(one.hops, 255)))

    def serve(self, consumer: NodeId, home: NodeId, interests: tuple[Interest, ...]) -> None:
        """A consumer has subscribed to something new."""
        self._kept = {event for event in self._kept if event in self._core.store}
        now = self._host.now()
        for one in self._core.store.standing(now) if self._kept else ():
            event = one.event
            if event.id not in self._kept:
                continue
            age = event.lifetime - (one.expires_at - now)
            matching = [interest for interest in interests if _matches(interest, event)]
            for is_modulated in {interest.modulator is not None for interest in matching}:
                if is_modulated or event.publisher != consumer:
                    hops = min(one.hops, 255)
                    letter = CarryLetter(event, age, hops, consumer, is_modulated, 0, True, 0, 0)
                    self._post.write(home if is_modulated else consumer, letter)

    # Private.

    def _keep(self, event: Event, hops: int, age: Micros) -> None:
        """For later subscribers. This node's own application gets its copy by the way of all others."""
        try:
            self._core.keep(event, hops, age)
        except StoreFullError:
            self._core.drop(event.id, DropReason.STORE_FULL, "store")


def _matches(interest: Interest, event: Event) -> bool:
    try:
        return event.wants_subscribers and Filter.decode(interest.filter).matches(event)
    except WireError:
        return False  # what cannot be read matches nothing
