"""What adaptors ask and order (sections 3.3 to 3.5), over the broker's tables and its handoffs."""

from collections.abc import Callable, Mapping, Sequence

from roamcast.host import Host
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.clients import Client
from roamcast.strategy.opportunistic.dispatch import Dispatch
from roamcast.strategy.opportunistic.handoff import Handoffs
from roamcast.strategy.opportunistic.messages import Nearer
from roamcast.units import SECOND, NodeId


class ClientManager:
    """The clients of this broker (CIT), and how to move them."""

    def __init__(self, host: Host, brokers: BrokerManager, dispatch: Dispatch, handoffs: Handoffs) -> None:
        self._host = host
        self._brokers = brokers
        self._dispatch = dispatch
        self._handoffs = handoffs
        # A client's nearest broker discovery message, for whoever decides about homes.
        self.on_discovery: Callable[[NodeId, Nearer], None] = lambda client, message: None

    def on_nearer(self, node: NodeId, message: Nearer) -> None:
        """Section 2.4: step 1 comes in from a client."""
        client = self._dispatch.clients.get(node)
        if client is None or client.generation != message.generation or self._handoffs.is_moving(node):
            return
        client.heard_at = self._host.now()
        client.distance = message.home_distance
        self._brokers.on_load_heard(message.broker, message.load)
        if client.access is not None:
            # Its modulators were placed elsewhere on purpose: only where they deliver to has changed.
            between = self._brokers.path_length(self._host.node, message.broker)
            is_better = between is not None and between + message.distance <= message.home_distance
            client.access = message.broker if is_better else None
            client.access_at = self._host.now()
            return
        self.on_discovery(node, message)

    # Section 3.4.

    def relocate(
        self, client: NodeId, to: NodeId, on_done: Callable[[bool], None] = lambda moved: None
    ) -> bool:
        """Horizontal relocation: the client and its modulators go to another broker."""
        return self._handoffs.relocate(client, to, on_done)

    def upstream(self, client: NodeId, on_done: Callable[[bool], None] = lambda moved: None) -> bool:
        """One broker nearer to the producers: the neighbour on the overlay with the shortest average path.
        What the modulators make still goes through the broker nearest to the client."""
        paths = []
        for near in self._brokers.neighbours():
            path = self._brokers.mean_path_from_producers(near.broker)
            if path is not None:
                paths.append((path, near.broker))
        here = self._brokers.mean_path_from_producers(self._host.node)
        if not paths or here is None or min(paths)[0] >= here:
            return False
        row = self._dispatch.clients.get(client)
        access = self._host.node if row is None or row.access is None else row.access
        return self._place(client, min(paths)[1], access, on_done)

    def downstream(self, client: NodeId, on_done: Callable[[bool], None] = lambda moved: None) -> bool:
        """One broker nearer to the client: the next on the way to the broker nearest to it."""
        row = self._dispatch.clients.get(client)
        if row is None or row.access is None:
            return False  # they are there
        path = self._brokers.path(row.access)
        return len(path) > 1 and self._place(client, path[1], row.access, on_done)

    def _place(self, client: NodeId, to: NodeId, access: NodeId, on_done: Callable[[bool], None]) -> bool:
        row = self._dispatch.clients.get(client)
        if row is None:
            return False
        before = row.access

        def done(moved: bool) -> None:
            if not moved:
                row.access = before
            on_done(moved)

        row.access = None if access == to else access
        if self._handoffs.relocate(client, to, done):
            return True
        row.access = before
        return False

    # For adaptors: orders.

    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        self._handoffs.relocate(client, to, below=None if below is None else max(round(100 * below), 0))

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        self._place(client, to, access, lambda moved: None)

    # For adaptors: questions.

    def clients(self) -> list[NodeId]:
        return sorted(self._dispatch.clients)

    def modulated(self) -> list[NodeId]:
        rows = self._dispatch.clients.values()
        return sorted(row.node for row in rows if row.has_modulators and self._handoffs.may_move(row.node))

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        """All producers there are, by what their home brokers say of them (BIT)."""
        brokers = [*self._brokers.topology.reachable(), self._host.node]
        return [broker for broker in brokers for _ in range(self._brokers.producers_of(broker))]

    def distance(self, client: NodeId) -> float:
        row = self._dispatch.clients.get(client)
        return 0.0 if row is None else float(row.distance)

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        row = self._dispatch.clients.get(client)
        return {} if row is None else row.traffic.octets_from

    def work(self, client: NodeId) -> float:
        row = self._dispatch.clients.get(client)
        return 0.0 if row is None else self._share(row.work(self._host.now()))

    # Questions.

    def rows(self) -> list[Client]:
        """CIT."""
        return [self._dispatch.clients[node] for node in sorted(self._dispatch.clients)]

    def load(self) -> int:
        """Of this broker, hundredths of its capacity, as it will be when those on the move have moved. So a
        decision counts at once, not when an average has followed it."""
        now = self._host.now()
        staying = sum(
            row.work(now)
            for row in self._dispatch.clients.values()
            if row.has_modulators and not self._handoffs.is_moving(row.node)
        )
        return round(100 * self._share(staying + self._handoffs.work_coming()))

    def _share(self, work: float) -> float:
        return work / SECOND / self._dispatch.processor.capacity


class Brokers:
    """The Broker Manager as adaptors see it (`adaptation/services.py`)."""

    def __init__(
        self,
        host: Host,
        manager: BrokerManager,
        create: Callable[[NodeId], None],
        retire: Callable[[], None],
    ) -> None:
        self._host = host
        self._manager = manager
        self._create = create
        self._retire = retire

    @property
    def own(self) -> NodeId:
        return self._host.node

    def load(self, broker: NodeId) -> float:
        return (self._manager.load_of(broker) or 0) / 100

    def path(self, start: NodeId, end: NodeId) -> float | None:
        # From the end, which is the same for many questions; links are the same both ways.
        return self._manager.path_length(end, start)

    def discover_neighbours(self) -> None:
        self._manager.discover_neighbours()

    def propagate(self) -> None:
        self._manager.propagate()

    def rebuild_routes(self) -> None:
        self._manager.rebuild_routes()

    def create(self, node: NodeId) -> None:
        self._create(node)

    def retire(self) -> None:
        self._retire()
