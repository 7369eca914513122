"""Where a modulator runs (overlays, section 6, future work): near its source if it shrinks events, near its
consumer if it grows them, when that saves traffic."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import Measured
from roamcast.units import NodeId


class Placement(Adaptor):
    """Traffic is octets times distance: what comes in, from the producers' brokers to the modulator, and what
    goes out, from there to the client's own part of the network."""

    def subscribe(self) -> None:
        self.channel.subscribe(Measured, self.process, lambda event: event.kind == "modulator")

    def process(self, event: Measured) -> None:
        client, access = int(event.values["client"]), int(event.values["access"])
        octets_in, octets_out = float(event.values["octets_in"]), float(event.values["octets_out"])
        sources = list(dict.fromkeys(self.clients.source_brokers(client)))
        here = self._traffic(self.brokers.own, sources, access, octets_in, octets_out)
        if here is None:
            return
        best, least = self.brokers.own, here * (1 - self.limits.placement_gain)
        for broker in sorted({*sources, access}):
            there = self._traffic(broker, sources, access, octets_in, octets_out)
            if there is not None and there < least and self.brokers.load(broker) <= self.limits.overload:
                best, least = broker, there
        if best != self.brokers.own:
            self.relocation.migrate(client, best)

    def _traffic(
        self, at: NodeId, sources: list[NodeId], access: NodeId, octets_in: float, octets_out: float
    ) -> float | None:
        last = self.brokers.path(at, access)
        paths = [self.brokers.path(source, at) for source in sources]
        known = [path for path in paths if path is not None]
        if last is None or not known or len(known) < len(paths):
            return None
        return octets_in * sum(known) / len(known) + octets_out * last
