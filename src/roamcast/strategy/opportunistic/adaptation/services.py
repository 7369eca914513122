"""What an adaptor may ask and do: the basic component layer and the relocation layer (sections 3.3, 3.4).

Protocols, not classes: the strategy implements them over its tables, the studies of `lab/studies/channels.py`
over a generated network, tests by hand. An adaptor sees nothing else, which is why the same class decides
in all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from roamcast.filter import Filter
from roamcast.strategy.opportunistic.adaptation.events import Measured, SystemChannel
from roamcast.units import Micros, NodeId


class BrokerManager(Protocol):
    """BNT, BIT, BTT and BRT behind questions."""

    @property
    def own(self) -> NodeId:
        """This broker."""

    def load(self, broker: NodeId) -> float:
        """Share of its capacity that its modulators take, as last heard; 0 if nothing was."""

    def path(self, start: NodeId, end: NodeId) -> float | None:
        """Length of the overlay path between two brokers on this broker's view; None: none known."""

    def discover_neighbours(self) -> None:
        """Section 2.3, step 1: look for neighbours, drop those too far away. `NeighboursFound` follows."""

    def propagate(self) -> None:
        """Section 2.3, step 2: tell the neighbours what has changed."""

    def hops(self, node: NodeId) -> int | None:
        """How far any node is in the physical network; None: no way leads to it."""

    def could_be_broker(self, node: NodeId) -> bool:
        """Whether a node is none and would be one."""

    def create(self, node: NodeId) -> None:
        """Ask a willing node to become a broker."""

    def retire(self) -> None:
        """Take no new clients, and stop being a broker once the last is gone."""


class ClientManager(Protocol):
    """CIT behind questions, and what is known of the producers."""

    def clients(self) -> Sequence[NodeId]:
        """Those that are at home here."""

    def modulated(self) -> Sequence[NodeId]:
        """Of them, those with a modulator, and that no relocation is moving already."""

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        """The home brokers of the producers whose events this client gets, one entry per producer."""

    def distance(self, client: NodeId) -> float:
        """From this broker to the client, in the unit of `BrokerManager.path`."""

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        """What came in for the client's modulators lately, by the producers' home broker."""

    def octets_of(self, client: NodeId) -> Mapping[NodeId, float]:
        """The same by the producers themselves."""

    def work(self, client: NodeId) -> float:
        """The share of this broker's capacity that the client's modulators took lately."""


class Relocation(Protocol):
    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        """Start the eight steps. A client that is being moved already, or is not ours, stays as it is. With
        `below` the other broker refuses if its load would not stay below."""

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        """The client's modulators shall run at `to`, although `access` is the broker nearest to it."""

    def upstream(self, client: NodeId) -> bool:
        """Its modulators go one broker nearer to the producers; False: there is none nearer (3.4)."""

    def downstream(self, client: NodeId) -> bool:
        """Its modulators go one broker nearer to the client; False: they are there."""


class Alternative(NamedTuple):
    """A broker that a client could have for its home."""

    broker: NodeId
    load: float
    hops: int  # from the broker that was asked about


class BrokerFacts(NamedTuple):
    """What a broker has said of itself; None: nothing."""

    load: float
    memory: int | None = None  # octets left for messages that wait
    location: tuple[int, int] | None = None  # metres, where it knows its own


class Directory(Protocol):
    """Broker information (channels, 2.2). Answers may come at once or after a question over the network."""

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        """The broker nearest to `near`, itself first, that takes clients (channels, 3.1, step 1). None: no
        one knows better than who asks, because there is no server or it does not answer."""

    def less_loaded(self, load: float, on_found: Callable[[NodeId | None], None]) -> None:
        """The nearest broker, seen from the asking one, that carries less than `load` and accepts more."""

    def willing(self, on_found: Callable[[NodeId | None], None]) -> None:
        """The nearest node that is no broker and would be one."""

    def about(self, broker: NodeId, on_found: Callable[[BrokerFacts | None], None]) -> None:
        """What that broker has said of itself; None: it is not known."""


class Monitor(Protocol):
    """Readings of this node and of others (`monitor.py` says of what), by filters."""

    def condition(self, kind: str, wanted: Filter) -> Callable[[Measured], bool]:
        """Whether a reading on our channel is this node's own of that kind, and meets the condition."""

    def watch(self, node: NodeId, kind: str, condition: str) -> int:
        """Readings that meet the condition, in SQL over their values, come to our channel as `Measured`."""

    def unwatch(self, node: NodeId, number: int) -> None: ...


class LatencyService(Protocol):
    """Half round trips of pings (`monitor.py`)."""

    def ask(
        self, at: NodeId, to: Sequence[NodeId], on_measured: Callable[[Mapping[NodeId, Micros]], None]
    ) -> None:
        """From the broker `at` to each of these nodes; who does not answer in time is left out."""


class Limits(NamedTuple):
    """The adaptors' parameters, from the strategy's options."""

    overload: float = 0.8  # share of capacity
    overload_control: bool = True
    idle: float = 0.2  # a broker made at run time retires below it …
    idle_for: Micros = 30_000_000  # … when it has been so for so long
    placement_gain: float = 0.1  # the least share of the traffic that a move must save
    by_latency: bool = False  # paths are compared in time, not in hops
    rest: Micros = 10_000_000  # between two relocations for the same reason: loads need time to settle


class Services(NamedTuple):
    brokers: BrokerManager
    clients: ClientManager
    relocation: Relocation
    directory: Directory
    channel: SystemChannel
    limits: Limits = Limits()
    monitor: Monitor | None = None
    latencies: LatencyService | None = None
