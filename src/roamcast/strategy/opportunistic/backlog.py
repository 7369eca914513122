"""Events kept for consumers that this broker hears of later.

Memorized events wait in the node's store for subscriptions still to come. And a broker that has just started
does not know whom its first events are for: those are young, and are kept until everyone has had the time to
say what it wants.

Nothing is sent from here: `registrations.py` asks when a subscription is news.
"""

from collections import deque
from collections.abc import Callable

from roamcast.broker.core import Broker
from roamcast.broker.store import StoreFullError
from roamcast.event import Event, EventClass, EventId
from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import Arrival, Client
from roamcast.strategy.opportunistic.messages import Interest, Keep
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId, micros

LEARNING_MORE: Micros = 2 * SECOND  # after the period in which clients say that they are there
YOUNG_MAX = 1_000


class Backlog:
    def __init__(self, host: Host, core: Broker, options: OpportunisticOptions, post: Post) -> None:
        self._host = host
        self._core = core
        self._post = post
        self._learned_at = host.now() + micros(options.broker_discovery) + LEARNING_MORE
        self._young: deque[Arrival] = deque(maxlen=YOUNG_MAX)
        # Of a broker made at run time: which memorized events were given to it as a broker. Others' are
        # stored in this node, too, and their home brokers serve them.
        self.kept: set[EventId] | None = None
        self.later: Callable[[], Micros] = lambda: 0  # how much longer, where there are many brokers
        # While a broker made at run time learns of consumers, their subscriptions are no news to the others.
        self.is_learning: Callable[[], bool] = lambda: False

    # Inputs.

    def on_published(self, arrival: Arrival, hops: int) -> None:
        """A client of ours has published. `hops`: as they are stored, not cut to an octet."""
        event = arrival.event
        is_young = self.is_beginning() or self.is_learning()
        if event.event_class is EventClass.MEMORIZED:
            if event.publisher != self._host.node:
                self._keep(event, hops, arrival.age)
            if self.kept is not None:
                self.kept.add(event.id)
        elif is_young:
            self._young.append(arrival)

    def on_keep(self, message: Keep, held: Micros) -> None:
        """A broker that ends gives us what it kept."""
        age = message.age + held
        if message.event.event_class is EventClass.MEMORIZED and age < message.event.lifetime:
            self._keep(message.event, message.hops, age)
            if self.kept is not None:
                self.kept.add(message.event.id)

    def give_to(self, broker: NodeId) -> None:
        """We end: another broker shall keep what was given to us for later subscribers."""
        now = self._host.now()
        for one in self._core.store.standing(now):
            if self.kept is not None and one.event.id not in self.kept:
                continue
            age = max(one.event.lifetime - (one.expires_at - now), 0)
            self._post.write(broker, Keep(one.event, age, min(one.hops, 255)))

    def forget(self) -> None:
        """Now and then: what is over."""
        if self.kept is not None:
            self.kept.intersection_update([event for event in self.kept if event in self._core.store])
        if not self.is_beginning():
            self._young.clear()

    # Questions.

    def is_young(self, event: Event) -> bool:
        """Whether those who are not served yet will get it with what came before."""
        is_realtime = event.event_class is not EventClass.MEMORIZED
        return self.is_beginning() and is_realtime and not event.destinations

    def is_beginning(self) -> bool:
        """The time in which everyone says that it is there."""
        return self._host.now() < self._learned_at + self.later()

    def matching(self, consumer: NodeId, interests: tuple[Interest, ...]) -> list[Arrival]:
        """Memorized events of our producers, for subscriptions made after them; and what came before we could
        know of these."""
        now = self._host.now()
        probe = Client(consumer, 0, 0)
        probe.wants(interests)
        stored = [
            Arrival(self._host.node, one.event, one.event.lifetime - (one.expires_at - now), one.hops, now)
            for one in self._core.store.standing(now)
            if (self.kept is None or one.event.id in self.kept) and not self.is_learning()
        ]
        return [arrival for arrival in stored + list(self._young) if _is_for(probe, arrival.event)]

    # Private.

    def _keep(self, event: Event, hops: int, age: Micros) -> None:
        """For later subscribers. This node's own application gets its copy by the way of all others."""
        try:
            self._core.keep(event, hops, age)
        except StoreFullError:
            self._core.drop(event.id, DropReason.STORE_FULL, "store")


def _is_for(probe: Client, event: Event) -> bool:
    is_own = event.publisher == probe.node  # its plain subscriptions are served already
    return any(not is_own or one.modulator is not None for one in probe.matching(event))
