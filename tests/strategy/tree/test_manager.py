"""The overlay manager in its two forms."""

import subprocess
import sys
from pathlib import Path

import pytest

from roamcast.errors import InputError
from roamcast.host import Channel, Host
from roamcast.strategy.tree.overlay.manager import ProactiveManager, ReactiveManager
from roamcast.strategy.tree.overlay.messages import CODEC, Close, TreeData
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.testing import FakeHost
from roamcast.units import SECOND, NodeId

EXAMPLE = Path(__file__).parents[3] / "examples" / "keep_connected.py"
OPTIONS = TreeOptions(preset="driving")


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


class Proactive:
    """Four proactive managers in range of each other, and their tree."""

    def __init__(self) -> None:
        self.air = Air()
        self.owners = {node: Owner() for node in range(4)}
        self.managers = {node: self._manager(node) for node in self.owners}
        for node, manager in self.managers.items():
            for channel, layer in manager.layers.items():
                self.air.hosts[node, channel].attach(layer)
            manager.start()
        self.run(12)
        assert sum(len(manager.neighbours()) for manager in self.managers.values()) == 2 * 3  # a tree

    def run(self, seconds: float) -> None:
        self.air.run(seconds, {node: dict(manager.layers) for node, manager in self.managers.items()})

    def objects(self) -> list[list[bytes]]:
        return [owner.objects for owner in self.owners.values()]

    def _manager(self, node: NodeId) -> ProactiveManager:
        return ProactiveManager(lambda channel: self.air.host(node, channel), OPTIONS, self.owners[node])


def test_the_proactive_manager_finds_its_neighbours_and_carries_objects_to_all() -> None:
    network = Proactive()
    network.managers[2].send_object(b"to all")
    network.run(1)
    assert network.objects() == [[b"to all"], [b"to all"], [], [b"to all"]]


def test_an_object_of_70_000_octets_is_refused_and_one_of_60_000_arrives() -> None:
    network = Proactive()
    with pytest.raises(InputError, match="has 70000 octets; at most 60000 are allowed"):
        network.managers[2].send_object(bytes(70_000))
    network.managers[2].send_object(bytes(60_000))
    network.run(1)
    assert network.objects() == [[bytes(60_000)], [bytes(60_000)], [], [bytes(60_000)]]


def test_a_replayed_object_frame_is_processed_once() -> None:
    network = Proactive()
    network.managers[2].send_object(b"once")
    frames = [each for each in network.air.hosts[2, Channel.STRATEGY].sent if each.frame.message == "object"]
    network.run(1)
    for replayed in frames * 3:
        assert replayed.to is not None
        network.managers[replayed.to].layers[Channel.STRATEGY].on_receive(2, replayed.frame.payload)
    network.run(1)
    assert network.objects() == [[b"once"], [b"once"], [], [b"once"]]


def test_a_stopped_proactive_manager_is_silent_and_the_others_go_on_without_it() -> None:
    network = Proactive()
    (stopped,) = [node for node, each in network.managers.items() if len(each.neighbours()) > 1][:1]
    network.managers[stopped].stop()
    network.run(12)
    left = [node for node in network.managers if node != stopped]
    assert sum(len(network.managers[node].neighbours()) for node in left) == 2 * 2
    assert network.managers[stopped].neighbours() == []
    network.managers[left[0]].send_object(b"we are three")
    network.run(1)
    assert network.owners[stopped].objects == []
    assert [network.owners[node].objects for node in left[1:]] == [[b"we are three"]] * 2
    assert not any(network.air.hosts[stopped, channel].sent for channel in Channel)
    with pytest.raises(InputError, match="does not run"):
        network.managers[stopped].send_object(b"too late")
    network.managers[stopped].stop()  # twice is no error


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


def test_a_stopped_reactive_manager_has_its_links_closed_and_the_others_connect() -> None:
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
    (middle,) = [node for node, peer in peers.items() if len(peer.links) == 2]
    managers[middle].stop()
    assert peers[middle].links == set()
    air.run(12, layers)
    assert managers[middle].tree_neighbours() == []
    first, second = (node for node in managers if node != middle)
    assert managers[first].tree_neighbours() == [second] == peers[first].neighbours()
    managers[middle].stop()


def test_a_reactive_manager_takes_data_for_no_message_of_the_overlay() -> None:
    air = Air()
    peers: dict[NodeId, Peer] = {}
    managers: dict[NodeId, ReactiveManager] = {}
    for node in range(2):
        peers[node] = Peer(node, peers)
        managers[node] = ReactiveManager(air.host(node, Channel.STRATEGY), OPTIONS, peers[node])
        air.hosts[node, Channel.STRATEGY].attach(managers[node])
        managers[node].on_start()
    air.run(12, {node: {Channel.STRATEGY: manager} for node, manager in managers.items()})
    assert managers[0].tree_neighbours() == [1]
    link = managers[0]._overlay.table.links[1].number
    managers[0].on_receive(1, CODEC.encode(TreeData(link, CODEC.encode(Close(link)))))
    assert managers[0].tree_neighbours() == [1]
    managers[0].on_receive(1, CODEC.encode(Close(link)))
    assert managers[0].tree_neighbours() == []


def test_the_example_keeps_tcp_peers_connected() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=90, check=True
    )
    assert done.stdout.startswith("six peers start:\n")
    assert done.stdout.count("\n") == 3 + 6 + 5 + 6
