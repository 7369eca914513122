"""The nodes of a network in virtual time: how they boot, crash and restart, and hear of their neighbours."""

from collections.abc import Callable, MutableMapping, Sequence

from roamcast.host import Channel, Host
from roamcast.node import Node
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.host import SimHost
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import Medium
from roamcast.streams import stream
from roamcast.trace import Trace
from roamcast.units import NodeId
from roamcast.world.trajectory import Trajectory


class SimulatedNodes:
    """`make` stacks the layers of one node over the hosts that it asks for, at each boot anew."""

    def __init__(
        self,
        make: Callable[[NodeId, Callable[[Channel], Host]], Node],
        engine: Engine,
        links: RadioLinks,
        medium: Medium,
        trace: Trace,
        seed: int,
        paths: Sequence[Trajectory] | None = None,
    ) -> None:
        self.nodes: list[Node | None] = [None] * links.nodes  # None: not booted yet, or crashed
        self._make = make
        self._engine = engine
        self._links = links
        self._medium = medium
        self._trace = trace
        self._seed = seed
        self._paths = paths
        self._boots = [0] * links.nodes
        self._hosts: list[list[SimHost]] = [[] for _ in range(links.nodes)]
        self._stable: list[MutableMapping[str, bytes]] = [{} for _ in range(links.nodes)]

    def boot_all(self, _: None = None) -> None:
        """Links that exist from the beginning are reported once all nodes have booted."""
        for number in range(self._links.nodes):
            self._boot(number)
        for number in range(self._links.nodes):
            for neighbour in self._links.neighbours(number):
                self._report(number, neighbour, True)

    def crash(self, number: NodeId) -> None:
        """Volatile state is lost, and no other node gets a message about it."""
        neighbours = self._links.neighbours(number)
        self.nodes[number] = None
        for host in self._hosts[number]:
            host.die()
        for receivers in self._medium.receivers.values():
            receivers[number] = None
        self._links.crash(number)
        self._medium.forget(number)
        for neighbour in neighbours:
            self._report(neighbour, number, False)

    def restart(self, number: NodeId) -> Node:
        """The node boots again with its stable storage."""
        self._links.restart(number)
        node = self._boot(number)
        for neighbour in self._links.neighbours(number):
            self.report_link(number, neighbour, True)
        return node

    def report_link(self, a: NodeId, b: NodeId, up: bool) -> None:
        """Tell both ends, as far as they are up."""
        self._report(a, b, up)
        self._report(b, a, up)

    def _boot(self, number: NodeId) -> Node:
        hosts: dict[Channel, SimHost] = {}

        def host(channel: Channel) -> Host:
            if channel not in hosts:
                # Each boot has random streams of its own: a restarted node does not repeat its draws.
                names = ("node", number, channel.name, self._boots[number])
                hosts[channel] = SimHost(
                    number,
                    channel,
                    self._engine,
                    self._medium,
                    self._trace,
                    stream(self._seed, *names),
                    self._stable[number],
                    None if self._paths is None else self._paths[number],
                )
            return hosts[channel]

        node = self._make(number, host)
        self._boots[number] += 1
        self._hosts[number] = list(hosts.values())
        self.nodes[number] = node
        for channel, layer in node.layers.items():
            hosts[channel].attach(layer)
            self._medium.receivers[channel][number] = layer.on_receive
        node.start()
        return node

    def _report(self, number: NodeId, neighbour: NodeId, up: bool) -> None:
        node = self.nodes[number]
        if node is not None and up:
            node.underlay.on_neighbour_up(neighbour)
        elif node is not None:
            node.underlay.on_neighbour_down(neighbour)
