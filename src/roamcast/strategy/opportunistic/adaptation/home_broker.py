"""Which broker is a client's home: the adaptors `simple` and `complex` (channels, 3.1; overlays, 2.4)."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered


class SimpleHomeBroker(Adaptor):
    """Always the nearest broker, however loaded and wherever the producers are."""

    def subscribe(self) -> None:
        self.channel.subscribe(BrokerDiscovered, self.process)

    def process(self, found: BrokerDiscovered) -> None:
        if found.candidate != self.brokers.own:
            self.relocation.migrate(found.client, found.candidate)


class ComplexHomeBroker(Adaptor):
    """The five steps of the overlays' section 2.4: loads first, then the average path from all producers.

    The other broker's load counts as it would be with the client: else the client would be what overloads it,
    and come back. The other has the last word, for it may have taken others meanwhile."""

    def subscribe(self) -> None:
        self.channel.subscribe(BrokerDiscovered, self.process)

    def process(self, found: BrokerDiscovered) -> None:
        own, other = self.brokers.own, found.candidate
        if other == own:
            return
        work = self.clients.work(found.client)
        # Overload says nothing about a client that takes no time of a processor, as most producers.
        has_limit = self.limits.overload_control and work > 0
        limit = self.limits.overload if has_limit else float("inf")
        load, other_load = self.brokers.load(own), found.load + work
        if load > limit and other_load > limit:
            moves = other_load < load
        elif load > limit or other_load > limit:
            moves = load > limit
        else:
            moves = self._is_shorter(found, own, other)
        if moves:
            self.relocation.migrate(found.client, other, max(limit, load) if has_limit else None)

    def _is_shorter(self, found: BrokerDiscovered, own: int, other: int) -> bool:
        """By the sum over all producers, so that equal paths are equal to the last digit. A producer that has
        no path to one of the two speaks for neither; before any is known only the last part counts."""
        gain, last, compared = 0.0, found.home_distance - found.distance, 0
        for source in self.clients.source_brokers(found.client):
            path, other_path = self.brokers.path(source, own), self.brokers.path(source, other)
            if path is not None and other_path is not None:
                gain += path + last - other_path
                compared += 1
        return gain > 0 if compared else last > 0
