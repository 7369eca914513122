"""How a broker that is made at run time, or has restarted, learns who wants what, before it takes a client.

A producer's home broker must know every consumer. So the new one introduces itself to the broker that asked
for it or, after a restart, to its neighbours, and to every broker that it hears of: each tells it where its
clients are at home, counts it among those that are told of changes from then on, and names all consumers and
brokers that it knows itself. The new broker is ready when everyone has answered and it knows all who were
named, or when its patience is over: somebody may be behind a partition. Then only the soft state of
registrations helps. One that is made can wait for as long as a registration lasts, one that has restarted
for `handoff_timeout`: it has clients.
"""

from roamcast.host import Host
from roamcast.strategy.opportunistic.consumers import Consumers
from roamcast.strategy.opportunistic.messages import Introduce, Introduced
from roamcast.strategy.opportunistic.post import Post
from roamcast.units import Micros, NodeId

BROKERS_MAX = 1_000


class Introduction:
    def __init__(self, host: Host, post: Post, consumers: Consumers, patience: Micros) -> None:
        self._host = host
        self._post = post
        self._consumers = consumers
        self._until = host.now() + patience
        self._asked: set[NodeId] = set()
        self._waiting: set[NodeId] = set()
        self._named: dict[NodeId, int] = {}  # consumers, and the version of their registration
        self._is_over = True

    def begin(self, broker: NodeId | None = None) -> None:
        """Ask this one first; without one, the neighbours when they are found."""
        self._is_over = False
        if broker is not None:
            self._ask(broker)

    def on_neighbours(self, brokers: list[NodeId]) -> None:
        """Those found by a search, or the same as before."""
        if self.is_ready():
            return
        if not self._waiting:
            # All have answered, and not all are known: somebody was between two homes just then.
            self._asked.clear()
        for broker in brokers:
            self._ask(broker)

    def on_introduced(self, sender: NodeId, message: Introduced) -> None:
        if self._is_over or sender not in self._waiting:
            return
        self._waiting.discard(sender)
        for consumer, version in zip(message.consumers, message.versions, strict=False):
            self._named[consumer] = max(self._named.get(consumer, 0), version)
        for broker in message.brokers:
            self._ask(broker)

    def is_ready(self) -> bool:
        if not self._is_over:
            is_known = bool(self._asked) and not self._waiting and all(map(self._knows, self._named))
            self._is_over = is_known or self._host.now() >= self._until
        return self._is_over

    def _ask(self, broker: NodeId) -> None:
        if broker not in self._asked and broker != self._host.node and len(self._asked) < BROKERS_MAX:
            self._asked.add(broker)
            self._waiting.add(broker)
            self._post.write(broker, Introduce())

    def _knows(self, consumer: NodeId) -> bool:
        known = self._consumers.find(consumer)
        return known is not None and known.version >= self._named[consumer]
