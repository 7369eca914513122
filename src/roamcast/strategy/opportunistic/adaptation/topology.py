"""The broker network follows the physical one (section 2.3): look for neighbours, tell what has changed."""

from roamcast.strategy.opportunistic.adaptation.adaptor import Adaptor
from roamcast.strategy.opportunistic.adaptation.events import NeighboursFound, TimeCame


class BrokerTopology(Adaptor):
    """ "Interesting events are a time event and a broker propagation event" (section 3.5). Of the second one
    there is nothing to do: all nodes pass rows on, and routes are found when somebody asks for one. The end
    of a search is an event too: a search takes its time here."""

    def subscribe(self) -> None:
        self.channel.subscribe(TimeCame, self.process, lambda event: event.name == "broker_update")
        self.channel.subscribe(NeighboursFound, self.process)

    def process(self, event: TimeCame | NeighboursFound) -> None:
        match event:
            case TimeCame():
                self.brokers.discover_neighbours()
            case NeighboursFound():
                self.brokers.propagate()
