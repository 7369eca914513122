"""An overloaded broker gives half of its modulators to the nearest less loaded one (channels, 4.1)."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import Measured, Overloaded
from roamcast.strategy.opportunistic.adaptation.services import Services
from roamcast.units import Micros, NodeId


class LoadBalancing(Adaptor):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._rests_until: Micros = 0

    def subscribe(self) -> None:
        self.channel.subscribe(Measured, self.process, self._is_over)

    def process(self, event: Measured) -> None:
        modulated = sorted(self.clients.modulated())
        # Half, as the paper has it: fewer relocations than one after the other. A single modulator stays: it
        # would only carry the overload elsewhere.
        half = modulated[(len(modulated) + 1) // 2 :]
        if event.values["now"] < self._rests_until or not half:
            return
        self._rests_until = int(event.values["now"]) + self.limits.rest
        load = float(event.values["load"])
        # Less loaded, and with room for what comes: else two brokers would hand it to and fro.
        room = self.limits.overload - load * len(half) / len(modulated)
        self.directory.less_loaded(min(load, room), lambda broker: self._give(half, broker, load))

    def _is_over(self, event: Measured) -> bool:
        own = event.kind == "load" and event.node == self.brokers.own
        return own and float(event.values["load"]) > self.limits.overload

    def _give(self, half: list[NodeId], broker: NodeId | None, load: float) -> None:
        if broker is None:
            self.channel.publish(Overloaded(self.brokers.own, load))
        else:
            for client in half:
                self.relocation.migrate(client, broker)
