"""The broker network follows the physical one (section 2.3): look for neighbours, tell what has changed."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import TimeCame, TopologyReceived


class BrokerTopology(Adaptor):
    """ "Interesting events are a time event and a broker propagation event" (section 3.5)."""

    def subscribe(self) -> None:
        self.channel.subscribe(TimeCame, self.process, lambda event: event.name == "broker_update")
        self.channel.subscribe(TopologyReceived, self.process)

    def process(self, event: TimeCame | TopologyReceived) -> None:
        if isinstance(event, TimeCame):
            self.brokers.discover_neighbours()
        self.brokers.propagate()
