"""Memorized events kept for consumers that subscribe later: by the home brokers of their producers."""

from roamcast.broker.core import Broker
from roamcast.broker.store import StoreFullError
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.strategy.opportunistic.events.copies import EventCopy
from roamcast.strategy.opportunistic.wire.messages import CarryLetter, Interest, Keep
from roamcast.strategy.opportunistic.wire.post import LetterPost
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId


class Backlog:
    def __init__(self, host: Host, core: Broker, post: LetterPost) -> None:
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
                    letter = CarryLetter(consumer, is_modulated, 0, True, 0, 0, age, hops, event)
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
