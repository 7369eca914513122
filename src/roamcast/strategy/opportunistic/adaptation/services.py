"""What an adaptor may ask and do: the basic component layer and the relocation layer (sections 3.3, 3.4).

Protocols, not classes: the strategy implements them over its tables, the studies of `lab/channels.py` over a
generated network, tests by hand. An adaptor sees nothing else, which is why the same class decides in all.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from roamcast.strategy.opportunistic.adaptation.channel import SystemChannel
from roamcast.units import Micros, NodeId


class BrokerManager(Protocol):
    """BNT, BIT, BTT and BRT behind questions."""

    @property
    def own(self) -> NodeId: ...

    def load(self, broker: NodeId) -> float:
        """Share of its capacity that its modulators take, as last heard; 0 if nothing was."""
        ...

    def path(self, start: NodeId, end: NodeId) -> float | None:
        """Length of the overlay path between two brokers on this broker's view; None: none known."""
        ...

    def discover_neighbours(self) -> None:
        """Section 2.3, step 1: look for neighbours, drop those that are too far."""
        ...

    def propagate(self) -> None:
        """Section 2.3, step 2: tell the neighbours what has changed."""
        ...

    def create(self, node: NodeId) -> None:
        """Ask a willing node to become a broker."""
        ...

    def retire(self) -> None:
        """Be a broker no more. Only once no client is left."""
        ...


class ClientManager(Protocol):
    """CIT behind questions, and what is known of the producers."""

    def clients(self) -> Sequence[NodeId]:
        """Those that are at home here."""
        ...

    def modulated(self) -> Sequence[NodeId]:
        """Of them, those with a modulator, and that no relocation is moving already."""
        ...

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        """The home brokers of the producers whose events this client gets, one entry per producer."""
        ...

    def distance(self, client: NodeId) -> float:
        """From this broker to the client, in the unit of `BrokerManager.path`."""
        ...


class Relocation(Protocol):
    def migrate(self, client: NodeId, to: NodeId) -> None:
        """Start the eight steps. A client that is being moved already, or is not ours, stays as it is."""
        ...


class BrokerRecord(NamedTuple):
    """A broker as a directory knows it."""

    broker: NodeId
    load: float
    accepts: bool = True  # whether it takes load from others


class Directory(Protocol):
    """Broker information (channels, 2.2). Answers may come at once or after a question over the network."""

    def less_loaded(self, load: float, on_found: Callable[[NodeId | None], None]) -> None:
        """The nearest broker, seen from the asking one, that carries less than `load` and accepts more."""
        ...

    def willing(self, on_found: Callable[[NodeId | None], None]) -> None:
        """The nearest node that is no broker and would be one."""
        ...

    def report(self, load: float) -> None:
        """This broker's load, for those who ask."""
        ...


class Limits(NamedTuple):
    """The adaptors' parameters, from the strategy's options."""

    overload: float = 0.8  # share of capacity
    overload_control: bool = True
    idle: float = 0.2  # a broker made at run time retires below it …
    idle_for: Micros = 30_000_000  # … when it has been so for so long
    placement_gain: float = 0.1  # the least share of the traffic that a move must save
    rest: Micros = 10_000_000  # between two relocations for the same reason: loads need time to settle


class Services(NamedTuple):
    brokers: BrokerManager
    clients: ClientManager
    relocation: Relocation
    directory: Directory
    channel: SystemChannel
    limits: Limits = Limits()
