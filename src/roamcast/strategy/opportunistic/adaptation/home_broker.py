"""Which broker is a client's home: the adaptors `simple` and `complex` (channels, 3.1; overlays, 2.4)."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.comparison import compare_in_time, is_fewer_hops
from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered
from roamcast.strategy.opportunistic.adaptation.services import Alternative


class SimpleHomeBroker(Adaptor):
    """Always the nearest broker, however loaded and wherever the producers are."""

    def subscribe(self) -> None:
        self.channel.subscribe(BrokerDiscovered, self.process)

    def process(self, found: BrokerDiscovered) -> None:
        """Step 1 of the channels: whom the broker information server names, if there is one."""
        self.directory.alternative(found.candidate, lambda other: self.consider(_by(found, other)))

    def consider(self, found: BrokerDiscovered) -> None:
        if found.candidate != self.brokers.own:
            self.relocation.migrate(found.client, found.candidate)


class ComplexHomeBroker(SimpleHomeBroker):
    """The five steps of the overlays' section 2.4: loads first, then the average path from all producers.

    The other broker's load counts as it would be with the client: else the client would be what overloads it,
    and come back. The other has the last word, for it may have taken others meanwhile."""

    def consider(self, found: BrokerDiscovered) -> None:
        own, other = self.brokers.own, found.candidate
        if other == own:
            return
        work = self.clients.work(found.client)
        # Overload says nothing about a client that takes no time of a processor, as most producers.
        has_limit = self.limits.overload_control and work > 0
        limit = self.limits.overload if has_limit else float("inf")
        load, other_load = self.brokers.load(own), found.load + work
        below = max(limit, load) if has_limit else None
        if load > limit and other_load > limit:
            self._move_if(other_load < load, found, below)
        elif load > limit or other_load > limit:
            self._move_if(load > limit, found, below)
        else:
            self._compare(found, below)

    def _compare(self, found: BrokerDiscovered, below: float | None) -> None:
        own, sources = self.brokers.own, self.clients.source_brokers(found.client)

        def compared(is_shorter: bool | None) -> None:
            if is_shorter is None:
                is_shorter = is_fewer_hops(found, own, sources, self.brokers.path)
            self._move_if(is_shorter, found, below)

        if self.limits.by_latency and self.latencies is not None:
            compare_in_time(self.latencies, found, own, sources, compared)
        else:
            compared(None)

    def _move_if(self, moves: bool, found: BrokerDiscovered, below: float | None) -> None:
        if moves:
            self.relocation.migrate(found.client, found.candidate, below)


def _by(found: BrokerDiscovered, other: Alternative | None) -> BrokerDiscovered:
    """None: nobody knows better than the client."""
    if other is None:
        return found
    return found._replace(candidate=other.broker, load=other.load, distance=found.distance + other.hops)
