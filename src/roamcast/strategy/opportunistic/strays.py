"""Events for a consumer of which this broker does not know, for the moment, where it is at home.

A home broker that has restarted knows its clients no more; until they have come back to it, or chosen
another, what is for them waits with whoever has it. Nothing here is for ever: what waits is bounded, by
number and by a registration's lifetime, and each event by the discard function (`partition.py`).
"""

from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import Arrival
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.partition import is_over
from roamcast.strategy.opportunistic.post import Post
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros

STRAYS_MAX = 10_000  # of all consumers together


class Strays:
    def __init__(self, host: Host, options: OpportunisticOptions, post: Post) -> None:
        self._host = host
        self._options = options
        self._post = post
        self._waiting: dict[NodeId, list[Arrival]] = {}
        self._until: dict[NodeId, Micros] = {}
        self._count = 0

    def hold(self, consumer: NodeId, arrival: Arrival) -> None:
        if self._count >= STRAYS_MAX:
            self._post.drop(DropReason.QUEUE_FULL, "stray", arrival.event.id, consumer)
            return
        self._count += 1
        self._waiting.setdefault(consumer, []).append(arrival)
        lifetime = micros(self._options.registration_lifetime)
        self._until.setdefault(consumer, self._host.now() + lifetime)

    def release(self, consumer: NodeId) -> list[Arrival]:
        """What waited for this consumer and is still worth something, in its order."""
        waiting = self._waiting.pop(consumer, [])
        self._until.pop(consumer, None)
        self._count -= len(waiting)
        return [arrival for arrival in waiting if not self._is_over(consumer, arrival)]

    def forget(self) -> None:
        """Now and then: consumers that nobody has claimed for a registration's lifetime are no more."""
        now = self._host.now()
        for consumer in [consumer for consumer, until in self._until.items() if until <= now]:
            for arrival in self.release(consumer):
                self._post.drop(DropReason.STALE, "stray", arrival.event.id, consumer)

    def _is_over(self, consumer: NodeId, arrival: Arrival) -> bool:
        age = arrival.age + self._host.now() - arrival.at
        over = is_over(arrival.event, age, self._options)
        if over:
            self._post.drop(DropReason.EXPIRED, "stray", arrival.event.id, consumer)
        return over
