"""Brokers come and go at run time (channels, 1 and 4.2): one more where none has room, one less where
idle."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import Measured, Overloaded
from roamcast.strategy.opportunistic.adaptation.services import Services
from roamcast.units import Micros, NodeId


class BrokerCreation(Adaptor):
    """Asks the nearest willing node. It is found as less loaded when the balancing looks again."""

    def subscribe(self) -> None:
        self.channel.subscribe(Overloaded, self.process)

    def process(self, event: Overloaded) -> None:
        self.directory.willing(self._create)

    def _create(self, node: NodeId | None) -> None:
        if node is not None:
            self.brokers.create(node)


class BrokerRemoval(Adaptor):
    """Of a broker that was made at run time: idle for long enough, it gives its clients away and ends."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._idle_since: Micros | None = None

    def subscribe(self) -> None:
        own = self.brokers.own
        self.channel.subscribe(Measured, self.process, lambda e: e.kind == "load" and e.node == own)

    def process(self, event: Measured) -> None:
        now, load = int(event.values["now"]), float(event.values["load"])
        if not event.values["retiring"]:
            if load >= self.limits.idle or not event.values["was_made"]:
                self._idle_since = None
                return
            if self._idle_since is None:
                self._idle_since = now
            if now - self._idle_since < self.limits.idle_for:
                return
            self.brokers.retire()
        if self.clients.clients():  # whoever has room for them may have them
            self.directory.less_loaded(self.limits.overload - load, self._give_all)

    def _give_all(self, broker: NodeId | None) -> None:
        if broker is not None:
            for client in self.clients.clients():
                self.relocation.migrate(client, broker)
