"""A small network of overlays with bad weather, driven by hand or by a seed, checked after every step.

Every handler call of every node is one step. After each, if the node's links, upstream or label changed,
the whole overlay is checked: no cycle, and (evolved protocol) the two invariants of the proof in
`docs/protocols/tree.md`. The definition is the strict one: a link counts from the instant at which both ends
hold its number, be it only as an offer at one of them.
"""

from collections.abc import Callable, Iterable, MutableMapping
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from roamcast.host import Frame, Position, SendFailure, TimerName
from roamcast.strategy.tree.overlay.evolved import Evolved
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.manager import ObjectTree
from roamcast.strategy.tree.overlay.messages import CODEC, OverlayMessage
from roamcast.strategy.tree.overlay.multicast_table import OverlayListener
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.trace import Dropped, DropReason, OverlayChanged, Record
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

Pair = tuple[NodeId, NodeId]
STEPS_MAX = 60_000  # a schedule takes some thousands


def pair(a: NodeId, b: NodeId) -> Pair:
    return (a, b) if a < b else (b, a)


class Weather(NamedTuple):
    loss: float = 0.0
    delay: tuple[Micros, Micros] = (MILLISECOND, MILLISECOND)
    detection: tuple[Micros, Micros] = (0, 0)  # until an end notices that a link came or went
    replay: float = 0.0  # share of frames that arrive a second time, up to 10 s later


class Sent(NamedTuple):
    at: Micros
    sender: NodeId
    to: NodeId | None
    message: OverlayMessage


class Network:
    def __init__(
        self,
        nodes: Iterable[NodeId],
        links: Iterable[Pair] = (),
        *,
        options: TreeOptions | None = None,
        weather: Weather = Weather(),  # noqa: B008 (a constant)
        seed: int = 1,
        allow_cycles: bool = False,
    ) -> None:
        self.now: Micros = 0
        self.options = options or TreeOptions()
        self.weather = weather
        self.random = Random(seed)
        self.links: set[Pair] = {pair(*each) for each in links}
        self.sent: list[Sent] = []
        self.records: list[OverlayChanged] = []
        self.cycles: list[Micros] = []
        self.received: list[tuple[NodeId, NodeId, bytes]] = []
        self.lose: Callable[[NodeId, NodeId, OverlayMessage], bool] = lambda sender, to, message: False
        self.steps = 0
        self.dropped: list[Dropped] = []
        self.refused = 0  # frames that were no message
        self.objects_sent = 0
        self.objects_received = 0
        self.rest_s = 0.0  # how long it took to come to rest, if somebody measured
        self._seed = seed
        self._allow_cycles = allow_cycles
        self._queue: list[tuple[Micros, int, Callable[[], None]]] = []
        self._number = 0
        self._boots: dict[NodeId, int] = {}
        self._stable: dict[NodeId, MutableMapping[str, bytes]] = {}
        self._reported: set[tuple[NodeId, NodeId]] = set()
        self.nodes: dict[NodeId, NetworkNode] = {}
        for node in nodes:
            self.boot(node)

    # The world.

    def at(self, time: Micros, action: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._queue, (time, self._number, action))

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heappop(self._queue)
            action()
            self.steps += 1
            assert self.steps < STEPS_MAX, f"seed {self._seed}: messages without end at {self.now}"
        self.now = until

    def boot(self, number: NodeId) -> None:
        self._boots[number] = self._boots.get(number, 0) + 1
        random = Random(f"{self._seed}/{number}/{self._boots[number]}")
        node = NetworkNode(self, number, random, self._stable.setdefault(number, {}))
        self.nodes[number] = node
        self._step(node, node.overlay.on_start)
        for link in sorted(self.links):
            if number in link:
                self._notice(link)

    def crash(self, number: NodeId) -> None:
        self.nodes.pop(number).alive = False
        self._reported = {each for each in self._reported if each[0] != number}
        for link in sorted(self.links):
            if number in link:
                self._notice(link)

    def connect(self, *links: Pair) -> None:
        self._change(links, up=True)

    def cut(self, *links: Pair) -> None:
        self._change(links, up=False)

    def works(self, a: NodeId, b: NodeId) -> bool:
        return pair(a, b) in self.links and a in self.nodes and b in self.nodes

    # Questions.

    def tree(self) -> set[Pair]:
        """The overlay: links that both ends hold under the same number."""
        edges = set()
        for number, node in self.nodes.items():
            for peer, link in node.held():
                other = self.nodes.get(peer)
                if other is not None and (number, link) in other.held():
                    edges.add(pair(number, peer))
        return edges

    def open_tree(self) -> set[Pair]:
        """The links that both ends give to the layer above."""
        return {
            pair(number, peer)
            for number, node in self.nodes.items()
            for peer in node.overlay.neighbours()
            if peer in self.nodes and number in self.nodes[peer].overlay.neighbours()
        }

    def leaders(self) -> list[NodeId]:
        return sorted(number for number, node in self.nodes.items() if node.table.is_leader)

    def parent(self, node: NodeId) -> NodeId | None:
        return self.nodes[node].table.parent

    def components(self, edges: Iterable[Pair]) -> list[list[NodeId]]:
        group = {number: number for number in self.nodes}

        def root(node: NodeId) -> NodeId:
            while group[node] != node:
                node = group[node]
            return node

        for a, b in edges:
            if a in group and b in group:
                group[root(a)] = root(b)
        found: dict[NodeId, list[NodeId]] = {}
        for number in sorted(self.nodes):
            found.setdefault(root(number), []).append(number)
        return sorted(found.values())

    def faults_at_rest(self) -> list[str]:
        """What is wrong with a network whose links have not changed for long."""
        physical = self.components(self.links)
        tree = self.open_tree()
        if self.options.membership == "users":
            return self._faults_of_members(physical, tree)
        faults = []
        if self.components(tree) != physical:
            faults.append(f"overlay {self.components(tree)} does not span {physical}")
        if len(tree) != len(self.nodes) - len(physical):
            faults.append(f"{len(tree)} links over {len(self.nodes)} nodes in {len(physical)} parts")
        for part in physical:
            leaders = [node for node in part if node in self.leaders()]
            if len(leaders) != 1:
                faults.append(f"{part} has leaders {leaders}")
            elif any(self.nodes[node].table.label.leader != leaders[0] for node in part):
                faults.append(f"{part} does not agree on its leader {leaders[0]}")
        for number, node in self.nodes.items():
            held = {peer for peer in node.table.links if pair(number, peer) not in tree}
            if held:
                faults.append(f"{number} holds links to {sorted(held)} alone")
        return faults

    def _faults_of_members(self, physical: list[list[NodeId]], tree: set[Pair]) -> list[str]:
        """The members of a partition are one tree; whoever else is on it is needed there."""
        faults = []
        parts = self.components(tree)
        for part in physical:
            members = [node for node in part if self.nodes[node].protocol.is_member]
            on_tree = [each for each in parts if set(each) & set(members)]
            if len(on_tree) > 1:
                faults.append(f"members {members} are in {on_tree}")
            leaders = [node for node in part if self.nodes[node].table.is_leader]
            if len(leaders) != bool(members) or not set(leaders) <= set(members):
                faults.append(f"{part} with members {members} has leaders {leaders}")
            for other in set(part) - set(members):
                links = [link for link in tree if other in link]
                if len(links) == 1 or (links and not any(other in each for each in on_tree)):
                    faults.append(f"{other} is no member and has links {links}")
        for number, node in self.nodes.items():
            held = {peer for peer in node.table.links if pair(number, peer) not in tree}
            if held:
                faults.append(f"{number} holds links to {sorted(held)} alone")
        return faults

    def of(self, kind: type[OverlayMessage]) -> list[Sent]:
        return [each for each in self.sent if isinstance(each.message, kind)]

    # What hosts do.

    def transmit(
        self,
        sender: NodeId,
        to: NodeId | None,
        frame: Frame,
        on_failure: Callable[[SendFailure], None] | None,
    ) -> None:
        message = CODEC.decode(frame.payload)
        self.sent.append(Sent(self.now, sender, to, message))
        hearers = sorted(self.nodes) if to is None else [to]
        for hearer in hearers:
            if hearer != sender:
                self._pass(sender, hearer, frame.payload, message, on_failure if to is not None else None)

    def _pass(
        self,
        sender: NodeId,
        hearer: NodeId,
        payload: bytes,
        message: OverlayMessage,
        on_failure: Callable[[SendFailure], None] | None,
    ) -> None:
        weather, random = self.weather, self.random
        lost = not self.works(sender, hearer) or random.random() < weather.loss
        lost = lost or self.lose(sender, hearer, message)
        when = self.now + random.randint(*weather.delay)
        origin = self.nodes.get(sender)

        def arrive() -> None:
            node = self.nodes.get(hearer)
            if node is not None and self.works(sender, hearer):
                self._step(node, lambda: node.overlay.on_receive(sender, payload))

        def fail() -> None:
            assert on_failure is not None
            if origin is not None and origin.alive:
                self._step(origin, lambda: on_failure(SendFailure.LINK))

        if not lost:
            self.at(when, arrive)
        if not lost and random.random() < weather.replay:
            self.at(when + round(10 * SECOND * random.random() ** 4), arrive)
        # An acknowledgement can be lost too, and a loss can go unnoticed.
        acknowledged = not lost and random.random() >= weather.loss / 4
        noticed = random.random() >= weather.loss / 4
        if on_failure is not None and not acknowledged and noticed:
            self.at(when, fail)

    def _change(self, links: Iterable[Pair], *, up: bool) -> None:
        for a, b in links:
            link = pair(a, b)
            (self.links.add if up else self.links.discard)(link)
            self._notice(link)

    def _notice(self, link: Pair) -> None:
        """Each end notices by itself, later, what the link is like then."""
        for end, other in (link, link[::-1]):
            self.at(
                self.now + self.random.randint(*self.weather.detection),
                lambda end=end, other=other: self._report(end, other),  # type: ignore[misc]
            )

    def _report(self, end: NodeId, other: NodeId) -> None:
        node = self.nodes.get(end)
        up = self.works(end, other)
        if node is None or up == ((end, other) in self._reported):
            return
        if up:
            self._reported.add((end, other))
            self._step(node, lambda: node.overlay.on_neighbour_up(other))
        else:
            self._reported.discard((end, other))
            self._step(node, lambda: node.overlay.on_neighbour_down(other))

    def step(self, number: NodeId, action: Callable[[], None]) -> None:
        """Something that a node's owner does."""
        self._step(self.nodes[number], action)

    def _step(self, node: "NetworkNode", action: Callable[[], None]) -> None:
        action()
        state = node.state()
        if state != node.last_state:
            node.last_state = state
            self.check()

    def check(self) -> None:
        edges = self.tree()
        if len(edges) + len(self.components(edges)) > len(self.nodes):
            self.cycles.append(self.now)
            assert self._allow_cycles, f"seed {self._seed}: cycle at {self.now}: {sorted(edges)}"
        for a, b in sorted(edges):
            if not isinstance(self.nodes[a].protocol, Evolved):
                continue
            one, other = self.nodes[a].table, self.nodes[b].table
            below = [(x, y) for x, y, n in ((one, other, b), (other, one, a)) if x.parent == n]
            assert below, f"seed {self._seed}: link {a}-{b} has no lower end at {self.now}"
            if len(below) == 1:
                lower, upper = below[0]
                assert upper.label.better_than(lower.label), (
                    f"seed {self._seed}: link {a}-{b} goes against the labels at {self.now}"
                )


class NetworkNode(OverlayListener):
    def __init__(
        self, network: Network, number: NodeId, random: Random, stable: MutableMapping[str, bytes]
    ) -> None:
        self.alive = True
        self.last_state: Any = None
        self.up: list[NodeId] = []
        host = NetworkHost(network, self, number, random, stable)
        aside = NetworkHost(network, self, number, Random(0), stable)  # draws nothing from the node's own
        self.objects = ObjectTree(aside, Underlay(), network.options, self.on_object)
        self.overlay = Overlay(host, Underlay(), network.options, self)
        self.objects.overlay = self.overlay  # with this node between the two, which checks what passes
        self.protocol = self.overlay.protocol
        self.table = self.overlay.table
        self._network = network
        self._number = number
        self._got: set[bytes] = set()

    def held(self) -> set[tuple[NodeId, int]]:
        held = {(link.peer, link.number) for link in self.table.links.values()}
        if isinstance(self.protocol, Evolved):
            held.update((offer.peer, number) for number, offer in self.protocol.offers.items())
        return held

    def state(self) -> Any:
        return self.held(), self.table.parent, self.table.label

    # The overlay's listener.

    def on_link_up(self, neighbour: NodeId) -> None:
        assert neighbour not in self.up
        self.up.append(neighbour)

    def on_link_down(self, neighbour: NodeId) -> None:
        self.up.remove(neighbour)

    def on_data(self, neighbour: NodeId, payload: bytes) -> None:
        assert neighbour in self.up
        self._network.received.append((self._number, neighbour, payload))
        if self._network.objects_sent:
            self.objects.on_data(neighbour, payload)

    def on_object(self, data: bytes, hops: int) -> None:
        """An object comes once, however often its frames do."""
        assert data not in self._got, f"{data!r} comes again to {self._number}"
        self._got.add(data)
        self._network.objects_received += 1

    def on_spread(self, sender: NodeId, payload: bytes, named: list[NodeId]) -> None:
        if self._number in named:
            self.on_data(sender, payload)

    def event_in(self, payload: bytes) -> None:
        """These tests send octets, no events."""

    def send_object(self) -> None:
        self._network.objects_sent += 1
        self.objects.send(b"object %d" % self._network.objects_sent)


class NetworkHost:
    def __init__(
        self,
        network: Network,
        owner: NetworkNode,
        node: NodeId,
        random: Random,
        stable: MutableMapping[str, bytes],
    ) -> None:
        self.node = node
        self.random = random
        self.stable = stable
        self._network = network
        self._owner = owner
        self._timers: dict[TimerName, int] = {}
        self._number = 0

    def now(self) -> Micros:
        return self._network.now

    def set_timer(self, name: TimerName, at: Micros) -> None:
        self._number += 1
        number = self._timers[name] = self._number

        def due() -> None:
            if self._owner.alive and self._timers.get(name) == number:
                del self._timers[name]
                self._network._step(self._owner, lambda: self._owner.overlay.on_timer(name))

        self._network.at(max(at, self._network.now), due)

    def cancel_timer(self, name: TimerName) -> None:
        self._timers.pop(name, None)

    def broadcast(self, frame: Frame) -> None:
        self._network.transmit(self.node, None, frame, None)

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        assert to != self.node
        self._network.transmit(self.node, to, frame, on_failure)

    def airtime(self, octets: int) -> Micros:
        return 0

    def position(self) -> Position | None:
        return None

    def trace(self, record: Record) -> None:
        if isinstance(record, OverlayChanged):
            self._network.records.append(record)
        elif isinstance(record, Dropped):
            self._network.dropped.append(record)
            self._network.refused += record.reason is DropReason.WIRE
