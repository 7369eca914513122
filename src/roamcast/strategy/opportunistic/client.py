"""A node as a client (sections 2.4, 3.6): its home broker, what it publishes and what modulators made for it.

It looks for the nearest broker every `broker_discovery` seconds and tells its home broker what it found; the
home broker decides. With `discovery = "prompt"` it also looks soon after the underlay reports that routes
have changed, at most as often as `kit/rates.py: Prompt` allows, and says only what is news. By itself it
chooses only at first, and when its home broker is lost: that begins a new generation, in which deliveries are
counted from 0 again.

Each event says which one its producer published before it, so order does not depend on the home brokers that
events go through.
"""

from collections import deque

from roamcast.event import Event
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import Timer, random_below
from roamcast.kit.rates import Prompt
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.consumers import GENERATIONS_MAX, generation_of
from roamcast.strategy.opportunistic.copies import EventCopy
from roamcast.strategy.opportunistic.messages import (
    CURSORS_MAX,
    FULL,
    INTERESTS_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
    AttachMessage,
    BrokerRow,
    Deliver,
    Here,
    Interest,
    ModulatorFailed,
    NewHome,
    NotHome,
    PublishMessage,
    Returned,
    Skip,
    StreamMessage,
)
from roamcast.strategy.opportunistic.overlay import Near
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts, StreamHandlers
from roamcast.strategy.opportunistic.stream import UNREACHABLE_AFTER
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId, micros

GENERATION = "opportunistic-generation"  # key in stable storage
HELD_MAX = 10_000
EARLY_MAX = 1_000
BURST_MAX = (
    8  # changes of the interests that are told at once, in each `BURST_PERIOD`: later ones share a message
)
BURST_PERIOD: Micros = SECOND // 10
RETRY: Micros = SECOND
BEST_PERIOD: Micros = SECOND
FAR = 255

TO_A_HOME = (AttachMessage, Here, PublishMessage)


class ClientSide(NodePart):
    def __init__(self, shared: SharedParts) -> None:
        super().__init__(shared)
        host, options = self._host, self._options
        self.messages: StreamHandlers = {
            Deliver: self._on_deliver,
            Skip: self._on_skip,
            NewHome: self._on_new_home,
            NotHome: self._on_not_home,
            Returned: self._on_returned,
            ModulatorFailed: self._on_modulator_failed,
        }
        self._discovery = Timer(host, self._discover)
        self._home_lost = Timer(host, self._on_home_lost)
        self._interests_timer = Timer(host, self._say_interests_later)
        self._period = BEST_PERIOD if options.mode == "best" else micros(options.broker_discovery)
        self._adapts = options.mode != "static"
        self._prompt = Prompt(host, self._look_early, self._period)
        self._generations = StableCounter(host.stable, GENERATION, block=16)
        self._generation = self._generations.next
        self.home: NodeId | None = None
        self._home_boot = 0
        self._attached: NodeId | None = None  # to which neighbour, by the route to its home
        self._before: NodeId | None = None  # the home that was given up for this one
        self._suspect_since: Micros | None = None  # the home broker does not answer
        self._is_looking = False  # for a first home
        self._produces = False
        self._said_at: Micros = 0  # when `Here` was last sent
        self._said_nearer: NodeId | None = None  # which broker it named
        self._since: dict[int, Micros] = {}  # when each subscription was made
        self._burst = 0  # changes of the interests in this period
        self._burst_until: Micros = 0
        self._tells_later = False
        self._refused: set[int] = set()  # subscriptions that are too many for a home broker
        self._expected = 0
        self._early: dict[int, Deliver] = {}
        self._skipped: dict[int, int] = {}  # from, until
        # Of each producer, the last event that a product came of.
        self._got: BoundedDict[NodeId, int] = BoundedDict(CURSORS_MAX, unreported)
        self._last = -1  # the last event that was published, and when
        self._last_at: Micros = 0
        self._held: deque[tuple[PublishMessage, Micros]] = (
            deque()
        )  # without a home; with the time of the event

    # Inputs from the application.

    def publish(self, event: Event) -> None:
        now = self._host.now()
        gap = now - self._last_at if self._last >= 0 else 0
        is_late = event.sequence < self._last  # its number was reserved, and others were published meanwhile
        copy = EventCopy(event, event.sequence if is_late else self._last + 1, gap, 0, now)
        self._copies.add(copy, None)
        message = PublishMessage(event, 0, 0, copy.previous, copy.gap)
        self._last, self._last_at = max(event.sequence, self._last), now
        if not self._produces:
            self._produces = True
            if self.home is not None and self.home != self._host.node:
                self._say_here()
        if self.home is not None:
            self._streams.write(self.home, message)
        elif len(self._held) >= HELD_MAX:
            self._streams.drop(DropReason.QUEUE_FULL, "publish", event.id)
        else:
            self._held.append((message, now))
            self.need_home()

    def on_subscribed(self, number: int) -> None:
        self._since[number] = self._host.now()
        self._on_interests_changed()

    def on_unsubscribed(self, number: int) -> None:
        self._since.pop(number, None)
        self._on_interests_changed()

    def _on_interests_changed(self) -> None:
        if self.home is None:
            self.need_home()
            return
        now = self._host.now()
        if now >= self._burst_until:
            self._burst, self._burst_until = 0, now + BURST_PERIOD
        if self._burst < BURST_MAX and len(self._since) <= SUBSCRIPTIONS_MAX:
            self._burst += 1
            self._say_interests()
        elif not self._tells_later:
            self._tells_later = True
            self._interests_timer.at(self._burst_until)

    # Inputs from the network and the clock.

    def _discover(self) -> None:
        self._overlay.search(1, self._look_around)

    def _look_around(self) -> None:
        self._is_looking = False
        if self.home is None:
            self.need_home()
        elif self._adapts:
            self._discovery.after(self._period)
            self._look()

    def on_routes_changed(self) -> None:
        """2.4: "or in response to changes indicated by the underlying physical network protocol"."""
        discovery = self._options.discovery
        if discovery == "periodic" or not self._adapts or self.home == self._host.node:
            return
        if discovery == "handoff":
            # Channels, 3.1: the client is attached to the node that leads to its home.
            attached = self._attachment()
            if attached is None or attached == self._attached:
                return
            self._attached = attached
        self._prompt.ask(len(self._underlay.neighbours()))

    def _attachment(self) -> NodeId | None:
        return None if self.home is None else self._underlay.next_hop(self.home)

    def _look_early(self) -> None:
        self._overlay.search(1, self._look_around_early)

    def _look_around_early(self) -> None:
        if self.home is not None:
            self._look(is_early=True)
        elif self._is_looking:
            self._discover()

    def _on_home_lost(self) -> None:
        if self._suspect_since is not None:
            self._look()

    def _say_interests_later(self) -> None:
        self._tells_later = False
        if self.home is not None:  # the next one will be told all
            self._say_interests()

    def _on_skip(self, sender: NodeId, message: Skip, held: Micros) -> None:
        if message.generation == self._generation and len(self._skipped) < EARLY_MAX:
            self._skipped[message.first] = message.until
            self._hand_over_next()

    def _on_not_home(self, sender: NodeId, message: NotHome, held: Micros) -> None:
        if sender == self.home and message.generation == self._generation:
            if message.is_broker:
                self._attach(sender)
            else:
                self._on_home_ended()

    def _on_modulator_failed(self, sender: NodeId, message: ModulatorFailed, held: Micros) -> None:
        self._core.notify(message.subscription, "roamcast.modulator_failed", message.problem)

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None:
        self._take_back(unconfirmed)
        if peer == self.home:
            self._attach(peer)

    def on_unreachable(self, peer: NodeId) -> None:
        if peer == self.home and self._adapts and self._suspect_since is None:
            self._suspect_since = self._host.now()
            self._home_lost.after(self._home_timeout())

    def on_broker_row(self, broker: NodeId, row: BrokerRow) -> None:
        """News of a broker; our home may say that it does not know us any more."""
        if broker != self.home or broker == self._host.node:
            return
        if row.is_over:
            self._on_home_ended()
        elif row.boot > self._home_boot:
            if self._home_boot:
                self._attach(broker)
            self._home_boot = row.boot

    def on_own_row(self, version: int) -> None:
        """A row about us must not be of a later generation than we know ourselves."""
        generation = generation_of(version)
        if self._generation < generation < GENERATIONS_MAX and self.home is not None:
            self._generations.skip_to(generation)
            self._attach(self.home)

    def on_role_changed(self) -> None:
        """This node became a broker, or stopped being one. Its home may still be another broker."""
        if self.home is not None and self._adapts:
            self._look()

    # The home broker.

    def need_home(self) -> None:
        if self.home is not None or self._is_looking:
            return
        found = [near for near in self._overlay.near() if near.load < FULL]
        if found:
            # Each client looks at moments of its own.
            is_own = self._overlay.near()[0].distance == 0
            first = self._period if is_own else RETRY + random_below(self._host, self._period)
            self._discovery.after(first)
            self._attach(found[0].broker, found[0].distance)
            return
        # Not all at the same instant again.
        self._is_looking = True
        self._discovery.after(RETRY // 2 + int(self._host.random.random() * RETRY // 2))

    def _home_timeout(self) -> Micros:
        """After a stream has found that nothing is confirmed."""
        return max(micros(self._options.home_timeout) - UNREACHABLE_AFTER, 0)

    def _look(self, *, is_early: bool = False) -> None:
        """Step 1: is another broker nearer? And is the home still there? An early look says of another broker
        only that it is nearer now: all else can wait for the period."""
        assert self.home is not None
        if self.home == self._host.node:
            return  # none is nearer
        found = self._overlay.near()
        others = [near for near in found if near.broker != self.home and near.load < FULL]
        if self._is_lost():
            if others:
                self._attach(others[0].broker, others[0].distance)
                return
            self._home_lost.after(RETRY)
        home = next((near for near in found if near.broker == self.home), None)
        distance = FAR if home is None else min(home.distance, FAR)
        # One that is as near counts too: the way from the producers may be shorter through it.
        farthest = distance - 1 if is_early or self._options.mode == "best" else distance
        other = others[0] if others and others[0].distance <= farthest else None
        is_due = self._host.now() - self._said_at >= micros(self._options.broker_discovery)
        is_news = other is not None and not (is_early and other.broker == self._said_nearer)
        if is_news or is_due:
            self._say_here(other)

    def _is_lost(self) -> bool:
        since = self._suspect_since
        if since is None:
            return False
        if self.home is None or self._streams.silence(self.home) < UNREACHABLE_AFTER:
            self._suspect_since = None
            return False
        return self._host.now() - since >= self._home_timeout()

    def _attach(self, broker: NodeId, distance: int | None = None) -> None:
        self._generation = self._generations.take() + 1
        if self.home is not None:
            self._before = self.home if self.home != broker else None
            # The old home is responsible for what it has confirmed; the rest goes through the new home, in
            # the same order.
            self._take_back(self._streams.take_back(self.home, TO_A_HOME))
        self._suspect_since = None
        self._set_home(broker)
        self._expected = 0
        self._early.clear()
        self._skipped.clear()
        self._say_interests(distance)
        self._publish_held()

    def _set_home(self, broker: NodeId) -> None:
        self.home = broker
        self._home_boot = self._overlay.boot_of(broker)
        self._attached = self._attachment()

    def _on_home_ended(self) -> None:
        """Our home is no broker any more. It has handed us over to another one, whose `NewHome` has not come
        yet."""
        assert self.home is not None
        self._take_back(self._streams.take_back(self.home, TO_A_HOME))
        self._before, self.home = self.home, None
        self.need_home()

    def _on_new_home(self, sender: NodeId, message: NewHome, held: Micros) -> None:
        if message.generation != self._generation or sender == self.home:
            return
        if self.home is not None:
            self._take_back(self._streams.take_back(self.home, TO_A_HOME))
        self._set_home(sender)
        self._before = None
        self._suspect_since = None
        self._say_interests()
        self._publish_held()

    def _on_returned(self, sender: NodeId, message: Returned, held: Micros) -> None:
        """A publication came back: it takes the place that it had among those that wait."""
        publication, later = message.publication, []
        if publication.event.publisher != self._host.node:
            return
        while self._held and self._held[-1][0].event.sequence > publication.event.sequence:
            later.append(self._held.pop())
        self._held.append((publication, self._host.now() - publication.age - held))
        self._held.extend(reversed(later))
        if self.home is not None:
            self._publish_held()
        else:
            self.need_home()

    def _publish_held(self) -> None:
        assert self.home is not None
        waiting, self._held = self._held, deque()
        for message, since in waiting:
            age = self._host.now() - since
            if age and self._options.is_over(message.event, age):
                self._streams.drop(DropReason.EXPIRED, "publish", message.event.id)
            else:
                self._streams.write(
                    self.home, PublishMessage(message.event, age, 0, message.previous, message.gap)
                )

    def _take_back(self, messages: list[StreamMessage]) -> None:
        """Publications that nobody confirmed wait for another home, before younger ones."""
        for message in reversed(messages):
            if isinstance(message, PublishMessage):
                self._held.appendleft((message, self._host.now() - message.age))

    def _say_interests(self, distance: int | None = None) -> None:
        assert self.home is not None
        interests = self._interests()
        ages = tuple(self._host.now() - self._since.get(one.number, 0) for one in interests)
        got = tuple(number for pair in self._got.items() for number in pair)
        far = min(self._home_distance() if distance is None else distance, FAR)
        self._streams.write(
            self.home,
            AttachMessage(self._generation, interests, ages, self._produces, far, got, self._before),
        )

    def _say_here(self, other: Near | None = None) -> None:
        assert self.home is not None
        self._said_at, self._said_nearer = self._host.now(), None if other is None else other.broker
        nearer = () if other is None else (other.broker, min(other.distance, FAR), other.load)
        distance = min(self._home_distance(), FAR)
        self._streams.write(self.home, Here(self._generation, distance, self._produces, *nearer))

    def _home_distance(self) -> int:
        if self.home is None or self.home == self._host.node:
            return 0
        distance = self._underlay.distance(self.home)
        return FAR if distance is None else distance

    def _interests(self) -> tuple[Interest, ...]:
        """As many as a home broker takes; the owners of the others are told, once."""
        taken: list[Interest] = []
        octets = 0
        for one in self._core.subscriptions():
            if len(taken) < SUBSCRIPTIONS_MAX and octets <= INTERESTS_BYTES_MAX:
                interest = Interest(one.number, one.filter.encode(), one.modulator)
                octets += interest.octets
                if octets <= INTERESTS_BYTES_MAX:
                    taken.append(interest)
                    self._refused.discard(one.number)
                    continue
            if one.number not in self._refused:
                self._refused.add(one.number)
                problem = f"a home takes {SUBSCRIPTIONS_MAX} of them, {INTERESTS_BYTES_MAX} octets in all"
                self._core.notify(one.number, "roamcast.subscription_refused", problem)
        return tuple(taken)

    # Deliveries.

    def _on_deliver(self, sender: NodeId, message: Deliver, held: Micros) -> None:
        if message.generation < self._generation:
            self._hand_over(message)  # late, from a home that was lost
        elif message.generation == self._generation and message.number >= self._expected:
            if len(self._early) >= EARLY_MAX:
                self._expected = min(self._early)
            self._early[message.number] = message
            self._hand_over_next()

    def _hand_over_next(self) -> None:
        while True:
            if self._expected in self._early:
                self._hand_over(self._early.pop(self._expected))
                self._expected += 1
            elif self._expected in self._skipped:
                self._expected = max(self._skipped.pop(self._expected), self._expected + 1)
            else:
                return

    def _hand_over(self, message: Deliver) -> None:
        producer, sequence = message.event.id
        self._got.renew(producer, max(self._got.get(producer, -1), sequence))
        self._core.deliver_to(message.event, (message.subscription,), message.hops)
