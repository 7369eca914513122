"""An overloaded broker gives half of its modulators to the nearest less loaded one (channels, 4.1)."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import Measured, Overloaded
from roamcast.strategy.opportunistic.adaptation.services import Services
from roamcast.units import Micros, NodeId


class LoadBalancing(Adaptor):
    """Half, as the paper has it: fewer relocations than one after the other. Where no broker has room for
    that, half of it, and so on to the smallest modulator alone: else a broker would stay overloaded although
    another has room."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._rests_until: Micros = 0

    def subscribe(self) -> None:
        self.channel.subscribe(Measured, self.process, self._is_over)

    def process(self, event: Measured) -> None:
        now, load = int(event.values["now"]), float(event.values["load"])
        lightest_first = sorted(self.clients.modulated(), key=self._cost_of_moving)
        if now >= self._rests_until and lightest_first:
            self._rests_until = now + self.limits.rest
            self._give(lightest_first[: max(len(lightest_first) // 2, 1)], load)

    def _cost_of_moving(self, client: NodeId) -> tuple[bool, float, NodeId]:
        """This node's own client goes last: nowhere else is its way so short."""
        return client == self.brokers.own, self.clients.work(client), client

    def _is_over(self, event: Measured) -> bool:
        own = event.kind == "load" and event.node == self.brokers.own and self.limits.overload_control
        return own and float(event.values["load"]) > self.limits.overload

    def _give(self, part: list[NodeId], load: float) -> None:
        # Less loaded, and with room for what comes: else two brokers would hand it to and fro.
        room = self.limits.overload - sum(map(self.clients.work, part))
        self.directory.less_loaded(min(load, room), lambda broker: self._to(broker, part, load))

    def _to(self, broker: NodeId | None, part: list[NodeId], load: float) -> None:
        if broker is not None:
            for client in part:
                self.relocation.migrate(client, broker, self.limits.overload)
        elif len(part) > 1:
            self._give(part[: len(part) // 2], load)
        else:
            self.channel.publish(Overloaded(self.brokers.own, load))
