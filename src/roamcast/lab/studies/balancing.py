"""What load balancing gains as consumers join (opportunistic channels, section 4.2, figures 13 and 14).

Brokers have a capacity and modulators a cost, both modelled; the decisions are those of the strategy's
adaptors `load_balancing` and `broker_creation`, asked by each broker whenever a consumer has joined. An
event goes to every broker, which runs its consumers' modulators one after the other. The adaptive channel
may make brokers on machines that stand by; the normal one keeps its single broker.

Figure 13's modulators are a loop and its events small; figure 14's transcode a video whose frames come at a
fixed rate, and what a player shows is at most that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from roamcast.lab.studies.study import STUDIES, Study
from roamcast.strategy.opportunistic.adaptation.adaptor import start
from roamcast.strategy.opportunistic.adaptation.channel import SystemChannel
from roamcast.strategy.opportunistic.adaptation.events import Measured
from roamcast.strategy.opportunistic.adaptation.services import BrokerRecord, Limits, Services
from roamcast.strategy.opportunistic.directory import nearest_below
from roamcast.units import NodeId


class BalancingParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    adaptive: bool = True
    consumers: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 16
    machines: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 8  # that can run a broker
    # A broker with more modulators than this is overloaded (the paper: "after 6 consumers have joined").
    modulators_max: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 6
    modulator_ms: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 10.0  # on a broker of capacity 1
    send_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 0.5  # to one consumer or broker
    source_rate: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 30.0  # frames per second


def run(parameters: BalancingParameters, seed: int) -> dict[str, float]:
    """Deterministic: every seed gives the same result."""
    farm = Farm(parameters)
    for consumer in range(parameters.consumers):
        farm.join(consumer)
    busiest = max(len(consumers) for consumers in farm.consumers.values())
    work = busiest * (parameters.modulator_ms + parameters.send_ms)
    return {
        "brokers": float(len(farm.consumers)),
        "event_ms": work + parameters.send_ms * len(farm.consumers),
        "frame_rate": min(parameters.source_rate, 1_000 / work),
    }


class Farm:
    """All brokers. Broker 0 exists from the beginning, and consumers join it. The distance between two
    brokers is given by their node numbers."""

    def __init__(self, parameters: BalancingParameters) -> None:
        self._parameters = parameters
        # A broker is over its limit with one modulator more than it may have.
        self.unit = 1.0 / (parameters.modulators_max + 1)
        self.limits = Limits(overload=(parameters.modulators_max + 0.5) * self.unit, rest=0)
        self.consumers: dict[NodeId, list[NodeId]] = {}
        self._channels: dict[NodeId, SystemChannel] = {}
        self._joined = 0
        self.make(0)

    def make(self, broker: NodeId) -> None:
        self.consumers[broker] = []
        site = Site(self, broker)
        self._channels[broker] = site.channel
        start(("load_balancing", "broker_creation"), site.services())

    def join(self, consumer: NodeId) -> None:
        """A consumer joins broker 0; then all brokers read their monitors until none changes anything."""
        self.consumers[0].append(consumer)
        if not self._parameters.adaptive:
            return
        for _ in range(2 * self._parameters.machines):
            before = {broker: list(consumers) for broker, consumers in self.consumers.items()}
            for broker in list(self.consumers):
                self._joined += 1
                values = {"now": self._joined, "load": self.load(broker), "was_made": int(broker != 0)}
                self._channels[broker].publish(Measured("load", broker, values))
            if before == self.consumers:
                return

    def load(self, broker: NodeId) -> float:
        return len(self.consumers[broker]) * self.unit

    def free_machine(self) -> NodeId | None:
        free = (node for node in range(self._parameters.machines) if node not in self.consumers)
        return next(free, None)


class Site:
    """The managers that the adaptors of one broker query."""

    def __init__(self, farm: Farm, own: NodeId) -> None:
        self._farm = farm
        self._own = own
        self.channel = SystemChannel()

    def services(self) -> Services:
        return Services(self, self, self, self, self.channel, self._farm.limits)

    @property
    def own(self) -> NodeId:
        return self._own

    def load(self, broker: NodeId) -> float:
        return self._farm.load(broker)

    def path(self, start: NodeId, end: NodeId) -> float | None:
        return float(abs(start - end))

    def discover_neighbours(self) -> None:
        pass

    def propagate(self) -> None:
        pass

    def rebuild_routes(self) -> None:
        pass

    def create(self, node: NodeId) -> None:
        self._farm.make(node)

    def retire(self) -> None:
        pass

    def clients(self) -> Sequence[NodeId]:
        return self._farm.consumers[self._own]

    def modulated(self) -> Sequence[NodeId]:
        return self._farm.consumers[self._own]

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        return (0,)

    def distance(self, client: NodeId) -> float:
        return 1.0

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        return {}

    def work(self, client: NodeId) -> float:
        return self._farm.unit

    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        self._farm.consumers[self._own].remove(client)
        self._farm.consumers[to].append(client)

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        self.migrate(client, to)

    def less_loaded(self, load: float, on_found: Callable[[NodeId | None], None]) -> None:
        others = [BrokerRecord(b, self._farm.load(b)) for b in self._farm.consumers if b != self._own]
        on_found(nearest_below(others, load, lambda broker: self.path(self._own, broker)))

    def willing(self, on_found: Callable[[NodeId | None], None]) -> None:
        on_found(self._farm.free_machine())

    def report(self, load: float) -> None:
        pass


STUDIES.add(Study("balancing", BalancingParameters, run, ("brokers", "event_ms", "frame_rate")))
