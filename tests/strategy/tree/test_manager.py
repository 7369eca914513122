"""The overlay manager in its two forms."""

import subprocess
import sys
from pathlib import Path

from roamcast.host import Channel, Host
from roamcast.strategy.tree.overlay.manager import ProactiveManager, ReactiveManager
from roamcast.strategy.tree.overlay.parameters import TreeOptions, TreePreset
from roamcast.testing import FakeHost
from roamcast.units import SECOND, NodeId

EXAMPLE = Path(__file__).parents[3] / "examples" / "keep_connected.py"
OPTIONS = TreeOptions(preset=TreePreset.DRIVING)


class Air:
    """Carries what fake hosts have sent, in steps of 10 ms, to everyone."""

    def __init__(self) -> None:
        self.hosts: dict[tuple[NodeId, Channel], FakeHost] = {}

    def host(self, node: NodeId, channel: Channel) -> Host:
        return self.hosts.setdefault((node, channel), FakeHost(node, seed=node))

    def run(self, seconds: float, layers: dict[NodeId, dict[Channel, object]]) -> None:
        for _ in range(round(seconds * 100)):
            for (node, channel), host in sorted(self.hosts.items()):
                sent, host.sent = host.sent, []
                for each in sent:
                    for other in sorted(layers):
                        if other != node and each.to in (None, other):
                            layers[other][channel].on_receive(node, each.frame.payload)  # type: ignore[attr-defined]
            for host in self.hosts.values():
                host.advance(SECOND // 100)


class Owner:
    def __init__(self) -> None:
        self.objects: list[bytes] = []

    def process_object(self, data: bytes) -> None:
        self.objects.append(data)


def test_the_proactive_manager_finds_its_neighbours_and_carries_objects_to_all() -> None:
    air = Air()
    owners = {node: Owner() for node in range(4)}
    managers = {
        node: ProactiveManager(lambda channel, node=node: air.host(node, channel), OPTIONS, owners[node])  # type: ignore[misc]
        for node in owners
    }
    for node, manager in managers.items():
        for channel, layer in manager.layers.items():
            air.hosts[node, channel].attach(layer)
        manager.start()
    air.run(12, {node: dict(manager.layers) for node, manager in managers.items()})
    assert sum(len(manager.neighbours()) for manager in managers.values()) == 2 * 3  # a tree
    managers[2].send_object(b"to all")
    air.run(1, {node: dict(manager.layers) for node, manager in managers.items()})
    assert [owner.objects for owner in owners.values()] == [[b"to all"], [b"to all"], [], [b"to all"]]


class Peer:
    """A connector that notes what it is asked; opening takes no time."""

    def __init__(self, number: NodeId, peers: dict[NodeId, "Peer"]) -> None:
        self.links: set[NodeId] = set()
        self.opened: list[str] = []
        self._number = number
        self._peers = peers

    def id(self) -> NodeId:
        return self._number

    def neighbours(self) -> list[NodeId]:
        return sorted(self.links)

    def url(self) -> str:
        return f"test://{self._number}"

    def open_link(self, url: str) -> None:
        self.opened.append(url)
        other = int(url.removeprefix("test://"))
        self.links.add(other)
        self._peers[other].links.add(self._number)

    def close_link(self, neighbour: NodeId) -> None:
        self.links.discard(neighbour)


def test_the_reactive_manager_opens_a_link_in_place_of_a_lost_one() -> None:
    air = Air()
    peers: dict[NodeId, Peer] = {}
    managers: dict[NodeId, ReactiveManager] = {}
    for node in range(3):
        peers[node] = Peer(node, peers)
        managers[node] = ReactiveManager(air.host(node, Channel.STRATEGY), OPTIONS, peers[node])
        air.hosts[node, Channel.STRATEGY].attach(managers[node])
        managers[node].on_start()
    layers: dict[NodeId, dict[Channel, object]] = {
        node: {Channel.STRATEGY: manager} for node, manager in managers.items()
    }
    air.run(12, layers)
    assert {node: peer.neighbours() for node, peer in peers.items()} == {
        node: manager.tree_neighbours() for node, manager in managers.items()
    }
    assert sum(len(peer.links) for peer in peers.values()) == 2 * 2
    leaf = next(node for node, peer in peers.items() if len(peer.links) == 1)
    (other,) = peers[leaf].links
    opened = sum(len(peer.opened) for peer in peers.values())
    for a, b in ((leaf, other), (other, leaf)):
        peers[a].links.discard(b)
        managers[a].signal_lost_neighbour(b)
    air.run(12, layers)
    assert sum(len(peer.opened) for peer in peers.values()) == opened + 1
    assert sum(len(peer.links) for peer in peers.values()) == 2 * 2


def test_the_example_keeps_tcp_peers_connected() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=90, check=True
    )
    assert done.stdout.startswith("six peers start:\n")
    assert done.stdout.count("\n") == 3 + 6 + 5 + 6
