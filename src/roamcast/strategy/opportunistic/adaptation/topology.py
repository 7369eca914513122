"""The broker network follows the physical one (section 2.3): look for neighbours, tell what has changed."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import NeighboursFound, TimeCame, TopologyReceived


class BrokerTopology(Adaptor):
    """ "Interesting events are a time event and a broker propagation event" (section 3.5); and the end of a
    search, which takes its time here. What others tell is passed on when the next period is over."""

    def subscribe(self) -> None:
        self.channel.subscribe(TimeCame, self.process, lambda event: event.name == "broker_update")
        self.channel.subscribe(NeighboursFound, self.process)
        self.channel.subscribe(TopologyReceived, self.process)

    def process(self, event: TimeCame | NeighboursFound | TopologyReceived) -> None:
        match event:
            case TimeCame():
                self.brokers.discover_neighbours()
            case NeighboursFound():
                self.brokers.propagate()
            case TopologyReceived():
                self.brokers.rebuild_routes()
