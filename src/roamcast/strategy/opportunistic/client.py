"""A node as a client (sections 2.4, 3.6): its home broker, what it publishes and what it gets.

It searches for the nearest broker every `broker_discovery` seconds and tells its home broker what it found;
the home broker decides. By itself it chooses only at first, and when its home broker is lost: that begins a
new generation, in which deliveries are counted from 0 again.

Order per producer survives a change of the producer's home: the client asks the old one whether all that it
was given has arrived where it goes (`Leave`, `Left`), and holds new events back until then.
"""

from collections import deque
from collections.abc import Callable

from roamcast.broker.core import Broker
from roamcast.event import Event
from roamcast.host import Host, TimerName
from roamcast.strategy.opportunistic.discovery import Near, RingSearch
from roamcast.strategy.opportunistic.messages import (
    FULL,
    INTERESTS_BYTES_MAX,
    NO_GENERATION,
    SUBSCRIPTIONS_MAX,
    Attach,
    Deliver,
    Here,
    Interest,
    Leave,
    Left,
    Letters,
    ModulatorFailed,
    Nearer,
    NewHome,
    NotHome,
    Publish,
    Returned,
    Skip,
    Want,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.partition import is_over
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.reliable import UNREACHABLE_AFTER
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId, micros

GENERATION = "opportunistic-generation"  # key in stable storage
HELD_MAX = 10_000
EARLY_MAX = 1_000
RETRY: Micros = SECOND
BEST_PERIOD: Micros = SECOND
WIDE_EVERY = 8  # searches, where the underlay's routes do in between
BEST_WIDE_EVERY = 600
FAR = 255

TO_A_HOME = (Attach, Want, Here, Nearer, Leave, Publish)

ClientLetter = Deliver | NewHome | NotHome | Skip | Returned | ModulatorFailed | Left


class ClientSide:
    """Timers are `"discovery"`, `"home lost"` and `"leave"`."""

    def __init__(
        self,
        host: Host,
        core: Broker,
        underlay: Underlay,
        options: OpportunisticOptions,
        post: Post,
        search: RingSearch,
        is_broker: bool,
    ) -> None:
        self._host = host
        self._core = core
        self._underlay = underlay
        self._options = options
        self._post = post
        self._search = search
        self._is_broker = is_broker
        self.own_load: Callable[[], int] = lambda: 0  # of this node's broker
        is_best = options.mode == "best"
        self._period = BEST_PERIOD if is_best else micros(options.broker_discovery)
        self._wide_every = BEST_WIDE_EVERY if is_best else WIDE_EVERY
        self._by_routes = is_best or options.discovery == "routes"
        self._generation = int.from_bytes(host.stable.get(GENERATION, b""), "big")
        self.home: NodeId | None = None
        self._suspect_since: Micros | None = None  # the home broker does not answer
        self._is_searching = False
        self._produces = False
        self._said_at: Micros = 0  # when `Here` was last sent
        self._known: dict[NodeId, int] = {}  # brokers seen by searches, with their load
        self._searches = 0
        self._expected = 0
        self._refused: set[int] = set()  # subscriptions that are too many for a home broker
        self._early: dict[int, tuple[Deliver, int, Micros]] = {}
        self._skipped: dict[int, int] = {}  # from, until
        self._outlet: NodeId | None = None  # where publications go: the home, or the one before it
        self._leaving = 0  # number of the `Leave` that is not answered yet; 0: none
        self._leaves = 0
        self._held: deque[tuple[Event, Micros]] = deque()  # with the time from which their age counts

    # Inputs from the application.

    def publish(self, event: Event) -> None:
        if not self._produces:
            self._produces = True
            if self.home is not None:
                self._say_here()
        if self._outlet is None or self._leaving or self._held:
            if len(self._held) >= HELD_MAX:
                self._post.drop(DropReason.QUEUE_FULL, "publish", event.id)
                return
            self._held.append((event, self._host.now()))
            self.need_home()
        else:
            self._post.write(self._outlet, Publish(event, 0, 0))

    def on_interests_changed(self) -> None:
        if self.home is None:
            self.need_home()
        else:
            self._post.write(self.home, Want(self._generation, self._interests()))

    # Inputs from the network and the clock.

    def on_timer(self, name: TimerName) -> None:
        if name == "discovery":
            self._host.set_timer("discovery", self._host.now() + self._period)
            if self.home is None or self._adapts:
                self._look()
            is_due = self._host.now() - self._said_at >= micros(self._options.broker_discovery)
            if self.home is not None and self.home != self._host.node and self._adapts and is_due:
                self._say_here()
        elif name == "home lost":
            if self._suspect_since is not None:
                self._look()
        elif name == "leave" and self._leaving:
            assert self._outlet is not None
            self._take_back(self._post.take_back(self._outlet, TO_A_HOME))
            self._left()

    def on_letter(self, sender: NodeId, message: ClientLetter, hops: int, held: Micros) -> None:
        match message:
            case Deliver():
                self._on_deliver(message, hops, held)
            case Skip():
                if message.generation == self._generation and len(self._skipped) < EARLY_MAX:
                    self._skipped[message.first] = message.until
                    self._hand_over_next()
            case NewHome():
                if message.generation == self._generation and sender != self.home:
                    self._on_new_home(sender)
            case NotHome():
                if sender == self.home and message.generation == self._generation:
                    if message.is_broker:
                        self._attach(sender)
                    else:
                        self._on_home_ended()
            case Returned():
                if message.event.publisher == self._host.node:
                    self._on_returned(message.event, self._host.now() - message.age - held)
            case Left():
                if message.number == self._leaving:
                    self._left()
            case ModulatorFailed():
                self._core.notify(message.subscription, "roamcast.modulator_failed", message.problem)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        self._take_back(unconfirmed)
        if peer == self.home:
            self._attach(peer)
        elif peer == self._outlet:
            self._left()

    def on_unreachable(self, peer: NodeId) -> None:
        if peer == self.home and self._adapts and self._suspect_since is None:
            self._suspect_since = self._host.now()
            self._host.set_timer("home lost", self._host.now() + self._patience())
            self._look()

    def on_role_changed(self, is_broker: bool) -> None:
        """This node became a broker, or is one no more; its home may be another's all the same."""
        self._is_broker = is_broker
        self._is_searching = False  # a broker's own searches took the place of ours
        self._known.pop(self._host.node, None)
        if self.home is not None and self._adapts:
            self._look()

    # The home broker.

    @property
    def _adapts(self) -> bool:
        return self._options.mode != "static"

    def _patience(self) -> Micros:
        """After a stream has found that nothing is confirmed."""
        return max(micros(self._options.home_timeout) - UNREACHABLE_AFTER, 0)

    def _is_lost(self) -> bool:
        since = self._suspect_since
        return since is not None and self._host.now() - since >= self._patience()

    def need_home(self) -> None:
        if self.home is None and not self._is_searching:
            self._host.set_timer("discovery", self._host.now() + self._first_period())
            self._look()

    def _first_period(self) -> Micros:
        """Each client searches at moments of its own."""
        return RETRY + int(self._host.random.random() * self._period)

    def _look(self) -> None:
        if self._is_broker:
            self._found([Near(0, self.own_load(), self._host.node)], 0)
            return
        if self._is_searching:
            return  # it ends by itself, and may take longer than a period
        self._searches += 1
        if not self._by_routes:
            self._is_searching = True
            self._search.start(1, self._found)
        elif not self._known or self._searches % self._wide_every == 0:
            self._is_searching = True
            self._search.start_wide(self._found)
        else:
            distances = ((self._underlay.distance(broker), broker) for broker in self._known)
            self._found(sorted(Near(d, self._known[b], b) for d, b in distances if d is not None), FAR)

    def _found(self, found: list[Near], reach: int) -> None:
        self._is_searching = False
        for near in found:
            self._known[near.broker] = near.load
        found = [near for near in found if near.load < FULL or near.broker == self.home]
        if not found:
            if self.home is None:
                # Not all at the same instant again: searches of several clients may have collided.
                later = RETRY + int(self._host.random.random() * RETRY)
                self._host.set_timer("discovery", self._host.now() + later)
            return
        nearest = found[0]
        home = next((near for near in found if near.broker == self.home), None)
        if self.home is None or (home is None and self._is_lost()):
            self._attach(nearest.broker, nearest.distance)
            return
        if home is not None and self._suspect_since is not None:
            self._suspect_since = None
            self._post.nudge(self.home)
        distance = min(self._home_distance(reach + 1), FAR) if home is None else home.distance
        # One that is as near counts too: the way from the producers may be shorter through it.
        other = next((near for near in found if near.broker != self.home), None)
        farthest = distance - 1 if self._options.mode == "best" else distance
        if other is not None and other.distance <= farthest:
            self._post.write(
                self.home, Nearer(self._generation, other.broker, other.distance, other.load, distance)
            )

    def _attach(self, broker: NodeId, distance: int | None = None) -> None:
        self._generation += 1
        self._host.stable[GENERATION] = self._generation.to_bytes(8, "big")
        if self._outlet is not None:
            # What it has confirmed is in its hands; the rest goes through the new home, in the same order.
            self._take_back(self._post.take_back(self._outlet, TO_A_HOME))
        self._suspect_since = None
        self.home = broker
        self._expected = 0
        self._early.clear()
        self._skipped.clear()
        if distance is None:
            distance = self._home_distance(0)
        self._post.write(
            broker, Attach(self._generation, self._interests(), self._produces, min(distance, FAR))
        )
        self._left()

    def _on_home_ended(self) -> None:
        """It is a broker no more."""
        assert self.home is not None
        self._known.pop(self.home, None)
        if self._outlet is not None:
            self._take_back(self._post.take_back(self._outlet, TO_A_HOME))
        self._host.cancel_timer("leave")
        self.home = self._outlet = None
        self._leaving = 0
        self.need_home()

    def _on_returned(self, event: Event, since: Micros) -> None:
        """In the place that it had among those that wait."""
        later = []
        while self._held and self._held[-1][0].sequence > event.sequence:
            later.append(self._held.pop())
        self._held.append((event, since))
        self._held.extend(reversed(later))
        if self._outlet is not None and not self._leaving:
            self._left()

    def _on_new_home(self, broker: NodeId) -> None:
        self.home = broker
        self._suspect_since = None
        self._post.write(broker, Want(self._generation, self._interests()))
        if self._outlet is None or not self._produces:
            self._outlet = broker
        elif self._outlet != broker and not self._leaving:
            self._leaves += 1
            self._leaving = self._leaves
            self._post.write(self._outlet, Leave(self._leaving))
            self._host.set_timer("leave", self._host.now() + micros(self._options.home_timeout))

    def _left(self) -> None:
        """From now on publications go to the home broker; first those that had to wait."""
        self._host.cancel_timer("leave")
        self._leaving = 0
        self._outlet = self.home
        waiting, self._held = self._held, deque()
        for event, since in waiting:
            age = self._host.now() - since
            if self._outlet is None:
                self._held.append((event, since))
            elif is_over(event, age, self._options):
                self._post.drop(DropReason.EXPIRED, "publish", event.id)
            else:
                self._post.write(self._outlet, Publish(event, age, 0))

    def _take_back(self, letters: list[Letters]) -> None:
        """Publications that nobody confirmed wait for another home, before younger ones."""
        for letter in reversed(letters):
            if isinstance(letter, Publish):
                self._held.appendleft((letter.event, self._host.now() - letter.age))

    def _say_here(self) -> None:
        assert self.home is not None
        self._said_at = self._host.now()
        self._post.write(self.home, Here(self._generation, min(self._home_distance(0), FAR), self._produces))

    def _home_distance(self, otherwise: int) -> int:
        if self.home is None or self.home == self._host.node:
            return 0
        distance = self._underlay.distance(self.home)
        return otherwise if distance is None else distance

    def _interests(self) -> tuple[Interest, ...]:
        """As many as a home broker takes; the owners of the others are told, once."""
        taken: list[Interest] = []
        octets = 0
        for one in self._core.subscriptions():
            interest = Interest(one.number, one.filter.encode(), one.modulator)
            octets += interest.octets
            if len(taken) < SUBSCRIPTIONS_MAX and octets <= INTERESTS_BYTES_MAX:
                taken.append(interest)
                self._refused.discard(one.number)
            elif one.number not in self._refused:
                self._refused.add(one.number)
                problem = f"a home takes {SUBSCRIPTIONS_MAX} of them, {INTERESTS_BYTES_MAX} octets in all"
                self._core.notify(one.number, "roamcast.subscription_refused", problem)
        return tuple(taken)

    # Deliveries.

    def _on_deliver(self, message: Deliver, hops: int, held: Micros) -> None:
        if message.generation < self._generation or message.generation == NO_GENERATION:
            self._hand_over(message, hops, held)  # late, from a home that was lost; or from no home at all
        elif message.generation == self._generation and message.number >= self._expected:
            if len(self._early) >= EARLY_MAX:
                self._expected = min(self._early)
            self._early[message.number] = (message, hops, held)
            self._hand_over_next()

    def _hand_over_next(self) -> None:
        while True:
            if self._expected in self._early:
                self._hand_over(*self._early.pop(self._expected))
                self._expected += 1
            elif self._expected in self._skipped:
                self._expected = max(self._skipped.pop(self._expected), self._expected + 1)
            else:
                return

    def _hand_over(self, message: Deliver, hops: int, held: Micros) -> None:
        event, hops = message.event, message.hops + hops
        if message.subscription is None:
            self._core.deliver(event, hops, message.age + held)
        else:
            self._core.deliver_to(event, (message.subscription,), hops)
