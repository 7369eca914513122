"""What adaptors ask and order (sections 3.3 to 3.5), over the broker's tables and its handoffs."""

from collections.abc import Callable, Mapping, Sequence

from roamcast.strategy.opportunistic.adaptation.monitor import ProcessorWatch
from roamcast.strategy.opportunistic.handoff import Handoffs
from roamcast.strategy.opportunistic.homes import HomeClient, Homes
from roamcast.strategy.opportunistic.messages import Here
from roamcast.strategy.opportunistic.shared import Part, Shared
from roamcast.units import SECOND, NodeId

OnDone = Callable[[bool], None]


def _nothing(moved: bool) -> None:
    """Nobody waits for the end of a relocation."""


class BrokerClients(Part):
    """The clients of this broker (CIT), and how to move them."""

    def __init__(self, shared: Shared, homes: Homes, handoffs: Handoffs) -> None:
        super().__init__(shared)
        self._homes = homes
        self._handoffs = handoffs
        self.processor = ProcessorWatch(self._host, shared.context.machine)

    def on_here(self, node: NodeId, message: Here) -> bool:
        """Section 2.4: step 1 comes in from a client; whether there is something to decide."""
        client = self._homes.clients.get(node)
        if client is None or message.nearer is None or client.generation != message.generation:
            return False
        if self._handoffs.source.is_moving(node):
            return False
        self._overlay.on_load_heard(message.nearer, message.nearer_load)
        if client.access is not None:
            # Its modulators were placed elsewhere on purpose: only where they deliver to has changed.
            between = self._overlay.topology.length(self._host.node, message.nearer)
            is_better = between is not None and between + message.nearer_distance <= message.distance
            client.access = message.nearer if is_better else None
            client.access_at = self._host.now()
            return False
        return True

    # Section 3.4.

    def relocate(
        self, client: NodeId, to: NodeId, on_done: OnDone = _nothing, below: int | None = None
    ) -> bool:
        """Horizontal relocation: the client and its modulators go to another broker. False if it is not at
        home here, or on the move already. `below`: only if the destination's load would stay below, in
        hundredths."""
        return self._handoffs.source.relocate(client, to, on_done, below)

    def upstream(self, client: NodeId, on_done: OnDone = _nothing) -> bool:
        """One broker nearer to the producers: the neighbour on the overlay with the shortest average path.
        What the modulators make still goes through the broker nearest to the client."""
        paths = []
        for near in self._overlay.neighbours():
            path = self._overlay.mean_path_from_producers(near.broker)
            if path is not None:
                paths.append((path, near.broker))
        here = self._overlay.mean_path_from_producers(self._host.node)
        if not paths or here is None or min(paths)[0] >= here:
            return False
        row = self._homes.clients.get(client)
        access = self._host.node if row is None or row.access is None else row.access
        return self._place(client, min(paths)[1], access, on_done)

    def downstream(self, client: NodeId, on_done: OnDone = _nothing) -> bool:
        """One broker nearer to the client: the next on the way to the broker nearest to it."""
        row = self._homes.clients.get(client)
        if row is None or row.access is None:
            return False  # they are there
        path = self._overlay.path(row.access)
        return len(path) > 1 and self._place(client, path[1], row.access, on_done)

    def _place(self, client: NodeId, to: NodeId, access: NodeId, on_done: OnDone) -> bool:
        row = self._homes.clients.get(client)
        if row is None:
            return False
        before = row.access

        def done(moved: bool) -> None:
            if not moved:
                row.access = before
            on_done(moved)

        row.access = None if access == to else access
        if self.relocate(client, to, done):
            return True
        row.access = before
        return False

    # For adaptors: orders.

    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        self.relocate(client, to, below=None if below is None else max(round(100 * below), 0))

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        self._place(client, to, access, _nothing)

    # For adaptors: questions.

    def clients(self) -> list[NodeId]:
        return sorted(self._homes.clients)

    def modulated(self) -> list[NodeId]:
        rows = self._homes.clients.values()
        return sorted(
            row.node for row in rows if row.has_modulators and not self._handoffs.source.is_moving(row.node)
        )

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        """By the producers that its modulators have read; before any, all that there are (BIT)."""
        row = self._homes.clients.get(client)
        read = () if row is None or row.reader is None else row.reader.cursors
        homes = [known.home for known in map(self._consumers.find, read) if known is not None]
        if homes:
            return homes
        brokers = [*self._overlay.topology.reachable(), self._host.node]
        return [broker for broker in brokers for _ in range(self._overlay.producers_of(broker))]

    def distance(self, client: NodeId) -> float:
        row = self._homes.clients.get(client)
        return 0.0 if row is None else float(row.distance)

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        found: dict[NodeId, float] = {}
        for producer, octets in self.octets_of(client).items():
            known = self._consumers.find(producer)
            home = self._host.node if known is None else known.home
            found[home] = found.get(home, 0) + octets
        return found

    def octets_of(self, client: NodeId) -> Mapping[NodeId, float]:
        row = self._homes.clients.get(client)
        return {} if row is None else row.traffic.octets_of

    def work(self, client: NodeId) -> float:
        row = self._homes.clients.get(client)
        return 0.0 if row is None else self._share(row.work(self._host.now()))

    # Questions.

    def rows(self) -> list[HomeClient]:
        """CIT."""
        return [self._homes.clients[node] for node in sorted(self._homes.clients)]

    def load(self) -> int:
        """Of this broker, hundredths of its capacity, as it will be when those on the move have moved. So a
        decision counts at once, not when an average has followed it."""
        now = self._host.now()
        staying = sum(
            row.work(now)
            for row in self._homes.clients.values()
            if row.has_modulators and not self._handoffs.source.is_moving(row.node)
        )
        return round(100 * (self._share(staying + self._handoffs.destination.work_coming()) + self.taken()))

    def taken(self) -> float:
        """The share of this broker's capacity that something else than modulators takes."""
        if not self.processor.is_known:
            return 0.0  # always so in a simulation
        model = self._homes.processor
        return self.processor.taken(model.load() * model.capacity / 100) / model.capacity

    def _share(self, work: float) -> float:
        return work / SECOND / self._homes.processor.capacity


class OverlayView(Part):
    """The overlay as adaptors see it (`services.py: BrokerManager`)."""

    def __init__(self, shared: Shared, create: Callable[[NodeId], None], retire: Callable[[], None]) -> None:
        super().__init__(shared)
        self.create = create
        self.retire = retire
        self.own = self._host.node
        self.discover_neighbours = self._overlay.discover_neighbours
        self.propagate = self._overlay.propagate

    def load(self, broker: NodeId) -> float:
        return (self._overlay.load_of(broker) or 0) / 100

    def path(self, start: NodeId, end: NodeId) -> float | None:
        # From the end, which is the same for many questions; links are the same both ways.
        return self._overlay.topology.length(end, start)

    def hops(self, node: NodeId) -> int | None:
        return 0 if node == self.own else self._underlay.distance(node)

    def could_be_broker(self, node: NodeId) -> bool:
        return self._options.is_willing(node) and not self._overlay.topology.is_broker(node)
