"""What adaptors ask and order (sections 3.3 to 3.5), beside the Broker Manager of `brokers.py`."""

from collections.abc import Callable
from typing import NamedTuple

from roamcast.host import Host
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.clients import Client
from roamcast.strategy.opportunistic.dispatch import Dispatch
from roamcast.strategy.opportunistic.handoff import Handoffs
from roamcast.strategy.opportunistic.home import Candidate, should_move
from roamcast.strategy.opportunistic.messages import Nearer
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.units import NodeId


class Discovery(NamedTuple):
    """A client's nearest broker discovery message."""

    client: NodeId
    broker: NodeId
    distance: int  # from the client to that broker
    load: int  # of that broker, hundredths
    home_distance: int  # from the client to this broker


class ClientManager:
    """The clients of this broker (CIT), and how to move them."""

    def __init__(
        self,
        host: Host,
        options: OpportunisticOptions,
        brokers: BrokerManager,
        dispatch: Dispatch,
        handoffs: Handoffs,
    ) -> None:
        self._host = host
        self._options = options
        self._brokers = brokers
        self._dispatch = dispatch
        self._handoffs = handoffs
        # An adaptor may take this over.
        self.on_discovery: Callable[[Discovery], None] = self.select_home

    def on_nearer(self, node: NodeId, message: Nearer) -> None:
        """Step 1 comes in from a client."""
        client = self._dispatch.clients.get(node)
        if client is None or client.generation != message.generation or self._handoffs.is_moving(node):
            return
        client.heard_at = self._host.now()
        client.distance = message.home_distance
        if client.access is not None:
            client.access = message.broker  # its modulators were placed elsewhere on purpose
            return
        self.on_discovery(
            Discovery(node, message.broker, message.distance, message.load, message.home_distance)
        )

    def select_home(self, discovery: Discovery) -> None:
        """Step 2, by the paper's five steps, and step 3 if the home shall change."""
        own = self._host.node
        here = self._brokers.mean_path_from_producers(own)
        there = self._brokers.mean_path_from_producers(discovery.broker)
        if here is None or there is None:
            here = there = 0.0
        threshold = round(100 * self._options.overload_threshold) if self._options.overload_control else None
        home = Candidate(self.load(), here + discovery.home_distance)
        found = Candidate(discovery.load, there + discovery.distance)
        if should_move(home, found, threshold):
            self.relocate(discovery.client, discovery.broker)

    def relocate(
        self, client: NodeId, to: NodeId, on_done: Callable[[bool], None] = lambda moved: None
    ) -> bool:
        """Horizontal relocation (section 3.4): the client and its modulators go to another broker."""
        return self._handoffs.relocate(client, to, on_done)

    def upstream(self, client: NodeId, on_done: Callable[[bool], None] = lambda moved: None) -> bool:
        """One broker nearer to the producers: the neighbour on the overlay with the shortest average path."""
        paths = []
        for near in self._brokers.neighbours():
            path = self._brokers.mean_path_from_producers(near.broker)
            if path is not None:
                paths.append((path, near.broker))
        here = self._brokers.mean_path_from_producers(self._host.node)
        if not paths or here is None or min(paths)[0] >= here:
            return False
        return self.relocate(client, min(paths)[1], on_done)

    def downstream(
        self, client: NodeId, access: NodeId, on_done: Callable[[bool], None] = lambda moved: None
    ) -> bool:
        """One broker nearer to the client: the next on the way to `access`, the broker nearest to it."""
        path = self._brokers.path(access)
        return len(path) > 1 and self.relocate(client, path[1], on_done)

    # Questions.

    def clients(self) -> list[Client]:
        return [self._dispatch.clients[node] for node in sorted(self._dispatch.clients)]

    def load(self) -> int:
        """Of this broker, hundredths of its capacity."""
        return self._dispatch.processor.load()
