"""Where a modulator runs: near its source if it shrinks events, near its consumer if it grows them, when that
saves traffic (overlays, section 6, future work); in the producer's or the consumer's own node, too, if that
would be a broker (channels, 2.2: consumers, brokers and providers)."""

from collections.abc import Mapping

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import Measured
from roamcast.units import NodeId


class Placement(Adaptor):
    """Traffic is octets times distance: what comes in, from each producers' broker to the modulator, and what
    goes out, from there to the client's own part of the network."""

    def subscribe(self) -> None:
        self.channel.subscribe(Measured, self.process, self._is_ours)

    def process(self, event: Measured) -> None:
        client, access = int(event.values["client"]), int(event.values["access"])
        octets_from, octets_out = self.clients.octets_from(client), float(event.values["octets_out"])
        own, limit = self.brokers.own, self.limits.overload
        here = self._traffic(own, octets_from, access, octets_out)
        if here is None:
            return
        best, least = own, here * (1 - self.limits.placement_gain)
        for broker in sorted({*octets_from, access} - {own}):
            there = self._traffic(broker, octets_from, access, octets_out)
            has_room = self.brokers.load(broker) + self.clients.work(client) <= limit
            if there is not None and there < least and has_room:
                best, least = broker, there
        if best != own:
            self.relocation.place(client, best, access)

    def _is_ours(self, event: Measured) -> bool:
        return event.kind == "modulator" and event.node == self.brokers.own

    def _traffic(
        self, at: NodeId, octets_from: Mapping[NodeId, float], access: NodeId, octets_out: float
    ) -> float | None:
        last = self.brokers.path(at, access)
        total = 0.0 if last is None else octets_out * last
        for source, octets in octets_from.items():
            path = self.brokers.path(source, at)
            if path is None or last is None:
                return None
            total += octets * path
        return total


class EndBrokers(Adaptor):
    """A willing producer or consumer of a modulator becomes a broker when the modulator is better off there.
    `placement` and the five steps then bring it there, and `broker_removal` ends the broker when it is idle.

    The ways from one end to another are counted through this broker, which no way is longer than."""

    def subscribe(self) -> None:
        own = self.brokers.own
        self.channel.subscribe(Measured, self.process, lambda e: e.kind == "modulator" and e.node == own)

    def process(self, event: Measured) -> None:
        client, octets_out = int(event.values["client"]), float(event.values["octets_out"])
        octets = self.clients.octets_of(client)
        away = {node: hops for node in (*octets, client) if (hops := self.brokers.hops(node)) is not None}
        if client not in away or not octets.keys() <= away.keys():
            return
        here = sum(octets[one] * away[one] for one in octets) + octets_out * away[client]
        costs = []
        for end in sorted(filter(self.brokers.could_be_broker, away)):
            coming = sum(octets[one] * (away[one] + away[end]) for one in octets if one != end)
            going = 0.0 if end == client else octets_out * (away[end] + away[client])
            costs.append((coming + going, end))
        if costs and min(costs)[0] < here * (1 - self.limits.placement_gain):
            self.brokers.create(min(costs)[1])
