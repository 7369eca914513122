"""A few nodes of any strategy on given links: whole stacks in virtual time, without a scenario file.

network = Network(3, "gossip", links=line(3))
network.subscribe(2, "level > 3")
network.publish(0, {"level": 5})
network.run(1.0)                                     # seconds
assert network.delivered == [Arrival(2, 0, 0)]       # node 2 got event 0 of node 0
network.cut((1, 2))

The radio is ideal: who has a link receives at once, unless `loss` takes the frame. The same arguments and
calls give the same run, to the last draw.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from roamcast.broker.core import Application, Delivery, Subscription
from roamcast.broker.store import EventStore, StoredEvent, StoreFullError
from roamcast.event import Event, EventId, Publication, Value
from roamcast.filter import Filter
from roamcast.host import Channel, Host
from roamcast.node import Node, NodeConfig
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import IdealMedium, Job
from roamcast.runtime.sim.nodes import SimulatedNodes
from roamcast.strategy import STRATEGIES
from roamcast.streams import stream
from roamcast.trace import Trace, Transmitted
from roamcast.units import Micros, NodeId, micros

Link = tuple[NodeId, NodeId]


class Arrival(NamedTuple):
    """An application got an event. Its own publications do not count."""

    node: NodeId
    publisher: NodeId
    sequence: int


def line(nodes: int) -> list[Link]:
    """0 – 1 – 2 – …"""
    return [(node, node + 1) for node in range(nodes - 1)]


def mesh(nodes: int) -> list[Link]:
    """A link between every two nodes."""
    return [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]


class Network:
    def __init__(
        self,
        nodes: int,
        strategy: str,
        *,
        links: Iterable[Link] = (),
        options: Mapping[str, Any] | None = None,
        underlay: str | None = None,
        loss: float = 0.0,
        seed: int = 1,
        disks: int = 0,
    ) -> None:
        """`disks`: each node has one for so many memorized events, as a live node has; 0: memory alone, which
        a crash loses."""
        self.engine = Engine()
        self.trace = Trace()
        self.links = RadioLinks(nodes)
        self.medium = _Overheard(self.engine, self.links, self.trace, stream(seed, "radio"), loss)
        self.delivered: list[Arrival] = []
        self.misdelivered: list[Arrival] = []  # what nobody at that node had asked for
        self._config = NodeConfig(
            strategy, msgspec.convert(dict(options or {}), STRATEGIES.options_type(strategy)), underlay
        )
        self._wanted: list[dict[int, Filter]] = [{} for _ in range(nodes)]
        self._number = 0
        self._disks = disks
        self.stores: dict[NodeId, DiskStore] = {}
        for a, b in links:
            self._plan(a, b, True)
        self._simulated = SimulatedNodes(self._make, self.engine, self.links, self.medium, self.trace, seed)
        self.nodes = self._simulated.nodes
        self._simulated.boot_all()

    # What applications do.

    def subscribe(self, node: NodeId, wanted: str | Filter = "") -> int:
        """By a filter or a SQL condition; empty: everything. Gives the subscription's number."""
        chosen = (
            wanted if isinstance(wanted, Filter) else Filter.sql(wanted) if wanted else Filter.everything()
        )
        self._number += 1
        self._wanted[node][self._number] = chosen
        self.node(node).subscribe(self._number, chosen)
        return self._number

    def unsubscribe(self, node: NodeId, number: int) -> None:
        del self._wanted[node][number]
        self.node(node).unsubscribe(number)

    def publish(
        self,
        node: NodeId,
        attributes: Mapping[str, Value] | None = None,
        *,
        topic: str = "",
        to: Sequence[NodeId] = (),
        multimode: bool = False,
        lifetime: float = 0.0,
    ) -> Event:
        """Publish an event; with a `lifetime` in seconds it is memorized."""
        return self.node(node).publish(
            Publication(
                dict(attributes or {}),
                topic=topic,
                destinations=tuple(to),
                multimode=multimode,
                lifetime=micros(lifetime),
            )
        )

    # What the world does.

    def run(self, seconds: float) -> None:
        self.engine.run(self.engine.now + micros(seconds))

    def connect(self, *links: Link) -> None:
        for a, b in links:
            self._change(a, b, True)

    def cut(self, *links: Link) -> None:
        for a, b in links:
            self._change(a, b, False)

    def crash(self, number: NodeId) -> None:
        """Volatile state is lost, and no other node gets a message about it."""
        self._simulated.crash(number)

    def restart(self, number: NodeId) -> None:
        """The node boots again with its stable storage; its application renews its subscriptions."""
        node = self._simulated.restart(number)
        for subscription, wanted in sorted(self._wanted[number].items()):
            node.broker.subscribe(Subscription(subscription, wanted))

    def hear(self, node: NodeId, sender: NodeId, payload: bytes) -> None:
        """Deliver a frame of these octets, made by the test, to the strategy of a node."""
        self.node(node).strategy.on_receive(sender, payload)

    # Questions.

    def node(self, number: NodeId) -> Node:
        node = self.nodes[number]
        assert node is not None, f"node {number} is down"
        return node

    def frames(self) -> list[Transmitted]:
        """Every frame on the air so far, with who received it."""
        return self.trace.of(Transmitted)

    def payloads(self) -> list[bytes]:
        """What the strategies put into their frames so far."""
        return list(self.medium.payloads)

    # Private.

    def _make(self, number: NodeId, host: Callable[[Channel], Host]) -> Node:
        store = None
        if self._disks:
            store = DiskStore(self._disks, self.stores.get(number), self.engine.now)
            self.stores[number] = store
        node = Node(self._config, host, self._application(number), self.links, store)
        if store is not None:
            store.settled = node.strategy.settled
        return node

    def _application(self, number: NodeId) -> Application:
        return _Recorder(self, number)

    def _plan(self, a: NodeId, b: NodeId, up: bool) -> None:
        self.links.plan(a, b, up)
        self.links.plan(b, a, up)

    def _change(self, a: NodeId, b: NodeId, up: bool) -> None:
        if self.links.linked(a, b) == up:
            return
        self._plan(a, b, up)
        self._simulated.report_link(a, b, up)

    def _arrived(self, number: NodeId, delivery: Delivery) -> None:
        event = delivery.event
        if event.publisher == number:
            return
        arrival = Arrival(number, event.publisher, event.sequence)
        self.delivered.append(arrival)
        # Matched one by one, not by the broker's index, because this checks the broker.
        asked = event.wants_subscribers and any(one.matches(event) for one in self._wanted[number].values())
        if not asked and number not in event.destinations:
            self.misdelivered.append(arrival)


class DiskStore(EventStore):
    """What a node has stored is there again after a crash; while it `refuses`, the disk is full."""

    def __init__(self, entries_max: int, before: "DiskStore | None", now: Micros) -> None:
        super().__init__(entries_max=entries_max)
        self.refuses = False
        for kept in [] if before is None else before.standing(now):
            self.keep(kept.event, kept.expires_at, kept.hops, now)

    def _write(self, entry: StoredEvent, before: EventId | None, now: Micros) -> None:
        if self.refuses:
            raise StoreFullError("the disk is full")


class _Overheard(IdealMedium):
    """Keeps what strategies send, for tests that send it again, or something like it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.payloads: list[bytes] = []

    def send(self, job: Job) -> None:
        if job.channel is Channel.STRATEGY:
            self.payloads.append(job.frame.payload)
        super().send(job)


class _Recorder:
    """The application of one node."""

    def __init__(self, network: Network, node: NodeId) -> None:
        self._network = network
        self._node = node

    def on_event(self, delivery: Delivery) -> None:
        self._network._arrived(self._node, delivery)
