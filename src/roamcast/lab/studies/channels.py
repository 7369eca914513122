"""The simulation of the opportunistic channels paper (section 3.3, figures 8 and 9), by its cost model.

One mobile host, one or five fixed sources and a broker on every node of a generated network. A message costs
the shortest path from its source to the host's broker plus the one from there to the host. A relocation costs
each of its protocol messages times the distance it travels. `normal` keeps its first broker; `oc1` and `oc2`
use the home broker adaptors `simple` and `complex`, the same classes as in the strategy.

All three channels see the same network, sources, walk and messages, so that only the channel differs.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec

from roamcast.lab.run.runs import RunResult
from roamcast.lab.run.tables import RunInfo
from roamcast.lab.studies.study import Study
from roamcast.strategy.opportunistic.adaptation.adaptors import Adaptor, ComplexHomeBroker, SimpleHomeBroker
from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered, SystemChannel
from roamcast.strategy.opportunistic.adaptation.services import Alternative, BrokerFacts, Services
from roamcast.streams import stream
from roamcast.units import NodeId
from roamcast.world.graph import Behaviour, Generator, Graph, Stay, generated, walk

AREA = (1000.0, 1000.0)
CLIENT: NodeId = 0  # the only client; its number has no meaning

Distances = list[list[int]]  # plain lists: fastest for millions of look-ups of single entries


class ChannelsStudy(Study, frozen=True):
    READINGS: ClassVar[tuple[str, ...]] = (
        "cost_per_message",
        "delivery_per_message",
        "relocation_per_message",
        "relocations_per_move",
        "saved_best",
    )

    channel: Literal["normal", "oc1", "oc2"] = "oc2"
    behaviour: Behaviour = "random"
    # Moves of the host per message that it receives, from whichever source.
    ratio: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.01
    sources: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    generator: Generator = "waxman"
    nodes: Annotated[int, msgspec.Meta(ge=3, le=2_000)] = 100
    moves: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_000
    roam: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    networks: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10  # per seed; the figure is their mean

    def run(self, seed: int) -> RunResult:
        costs = [cost(self, seed, network) for network in range(self.networks)]
        as_normal = msgspec.structs.replace(self, channel="normal")
        normal = [cost(as_normal, seed, network) for network in range(self.networks)]
        figures = (
            _mean([one.per_message() for one in costs]),
            _mean([one.delivery / one.messages for one in costs]),
            _mean([one.relocation / one.messages for one in costs]),
            _mean([one.relocations / self.moves for one in costs]),
            max(
                1 - one.per_message() / other.per_message() for one, other in zip(costs, normal, strict=True)
            ),
        )
        info = RunInfo(name="channels", strategy=self.channel, seed=seed, nodes=self.nodes, duration=0)
        return RunResult(info, {}, dict(zip(self.READINGS, figures, strict=True)))

    def weight(self) -> float:
        return 1_000.0  # about a second; measured

    @classmethod
    def figures(cls) -> tuple[str, ...]:
        return cls.READINGS


class ChannelCost(NamedTuple):
    messages: int
    delivery: int  # the sum over all messages
    relocation: int  # the sum over all relocations
    relocations: int

    def per_message(self) -> float:
        return (self.delivery + self.relocation) / self.messages


def cost(parameters: ChannelsStudy, seed: int, network: int = 0) -> ChannelCost:
    """One walk over one network."""
    graph, distances = _network(parameters.generator, parameters.nodes, seed, network)
    random = stream(seed, "walk", network)
    sources = sorted(random.sample(range(parameters.nodes), parameters.sources))
    stays = walk(graph, parameters.behaviour, random, parameters.roam)
    return follow(
        distances,
        sources,
        list(itertools.islice(stays, parameters.moves + 1)),
        1 / parameters.ratio,
        {"normal": None, "oc1": SimpleHomeBroker, "oc2": ComplexHomeBroker}[parameters.channel],
    )


def follow(
    distances: Distances,
    sources: Sequence[NodeId],
    stays: Sequence[Stay],
    messages_per_stay: float,
    adaptor: type[Adaptor] | None,
) -> ChannelCost:
    """The host's messages come at even intervals, from each source in turn."""
    channel = OneClientChannel(distances, sources, home=stays[0].place)
    if adaptor is not None:
        adaptor(channel.services()).subscribe()
    messages = delivery = 0
    time = 0.0
    for stay in stays:
        channel.host_moves(stay.place)
        time += stay.length * messages_per_stay
        come = math.ceil(time)  # those at 0, 1, 2, … before `time`
        for number, source in enumerate(sources):
            turns = _turns(come, number, len(sources)) - _turns(messages, number, len(sources))
            delivery += turns * channel.cost_of_message(source)
        messages = come
    return ChannelCost(max(messages, 1), delivery, channel.relocation_cost, channel.relocations)


def relocation_cost(
    distances: Distances, host: NodeId, source: NodeId, destination: NodeId, suppliers: Sequence[NodeId]
) -> int:
    """The messages of section 3.2, each times the distance it travels.

    The host tells its broker where it is; HANDOFF, ACK and the HANDOFF with the modulator between the two
    brokers; DETOUR to each supplier, and its ACK to both.
    """
    between = 3 * distances[source][destination]
    per_supplier = (2 * distances[source][s] + distances[s][destination] for s in suppliers)
    return int(distances[host][source] + between + sum(per_supplier))


class OneClientChannel:
    """The managers that an adaptor queries, over a known network with one mobile client."""

    def __init__(self, distances: Distances, sources: Sequence[NodeId], home: NodeId) -> None:
        self._distances = distances
        self._sources = sources
        self._home = self._place = home
        self._channel = SystemChannel()
        self.relocation_cost = self.relocations = 0

    def services(self) -> Services:
        return Services(self, self, self, self, self._channel)

    def host_moves(self, place: NodeId) -> None:
        """A network-level handoff: the broker of the new access point is the nearest one."""
        if place == self._place:
            return
        self._place = place
        away = float(self._distances[self._home][place])
        self._channel.publish(BrokerDiscovered(CLIENT, place, 0.0, away, 0.0))

    def cost_of_message(self, source: NodeId) -> int:
        return int(self._distances[source][self._home] + self._distances[self._home][self._place])

    # BrokerManager, of whichever broker is the home.

    @property
    def own(self) -> NodeId:
        return self._home

    def load(self, broker: NodeId) -> float:
        return 0.0

    def path(self, start: NodeId, end: NodeId) -> float:
        return float(self._distances[start][end])

    def discover_neighbours(self) -> None:
        pass

    def propagate(self) -> None:
        pass

    def hops(self, node: NodeId) -> int | None:
        return None

    def could_be_broker(self, node: NodeId) -> bool:
        return False

    def create(self, node: NodeId) -> None:
        pass  # "brokers are pre-created onto all nodes" (section 3)

    def retire(self) -> None:
        pass

    # ClientManager.

    def clients(self) -> Sequence[NodeId]:
        return (CLIENT,)

    def modulated(self) -> Sequence[NodeId]:
        return (CLIENT,)

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        return self._sources

    def distance(self, client: NodeId) -> float:
        return float(self._distances[self._home][self._place])

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        return {}

    octets_of = octets_from

    def work(self, client: NodeId) -> float:
        return 0.0

    # Relocation.

    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        self.relocation_cost += relocation_cost(self._distances, self._place, self._home, to, self._sources)
        self.relocations += 1
        self._home = to

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        self.migrate(client, to)

    def upstream(self, client: NodeId) -> bool:
        return False

    def downstream(self, client: NodeId) -> bool:
        return False

    # Directory: the host names the broker of its access point; no adaptor here looks for less loaded brokers.

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        on_found(None)

    def less_loaded(self, load: float, on_found: Callable[[NodeId | None], None]) -> None:
        on_found(None)

    def willing(self, on_found: Callable[[NodeId | None], None]) -> None:
        on_found(None)

    def about(self, broker: NodeId, on_found: Callable[[BrokerFacts | None], None]) -> None:
        on_found(None)


@lru_cache(maxsize=256)
def _network(generator: Generator, nodes: int, seed: int, number: int) -> tuple[Graph, Distances]:
    graph = generated(generator, nodes, AREA, stream(seed, "network", number))
    return graph, graph.distances.tolist()


def _turns(messages: int, number: int, sources: int) -> int:
    """How many of the first `messages` come from the source with this number."""
    return (messages + sources - 1 - number) // sources


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
