"""Layers of one's own on the live radio: both overlay managers, over real sockets on the loopback."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from tests.contract.test_host import free_port

from roamcast.errors import InputError
from roamcast.host import Channel
from roamcast.runtime.live.layers import LiveLayers
from roamcast.runtime.live.settings import AirSettings
from roamcast.sealing import GroupKey, Identity, KeyRing
from roamcast.strategy.tree.overlay.manager import ProactiveManager, ReactiveManager
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

pytestmark = pytest.mark.realtime
OPTIONS = TreeOptions(hello_interval=0.2, discover_timeout=0.2, reconnection_trigger=1, request_retries=1)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


class Owner:
    def __init__(self) -> None:
        self.objects: list[bytes] = []

    def process_object(self, data: bytes) -> None:
        self.objects.append(data)


def test_a_proactive_manager_carries_objects_and_says_goodbye() -> None:
    async def play() -> None:
        ring, air = KeyRing(GroupKey.generate()), AirSettings(interface="lo", port=free_port())
        lives = [LiveLayers(Identity.generate(), ring, air) for _ in range(3)]
        owners = [Owner() for _ in lives]
        managers = [
            ProactiveManager(live.host, OPTIONS, owner) for live, owner in zip(lives, owners, strict=True)
        ]
        for live, manager in zip(lives, managers, strict=True):
            await live.start(manager)
        await until(lambda: sum(len(manager.neighbours()) for manager in managers) == 4)
        lives[0].handle(managers[0].send_object, b"to everybody")
        await until(lambda: [owner.objects for owner in owners] == [[], [b"to everybody"], [b"to everybody"]])
        # By its goodbye: silence is noticed after more than one beacon interval, a second each.
        leaf = min(range(3), key=lambda number: len(managers[number].neighbours()))
        await lives[leaf].stop()
        async with asyncio.timeout(1.0):
            while any(lives[leaf].node in manager.neighbours() for manager in managers if manager.runs):
                await asyncio.sleep(0.01)
        for live in lives:
            await live.stop()  # again: does nothing

    asyncio.run(play())


class Links:
    """A connector whose links are only noted."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.open: set[NodeId] = set()

    def id(self) -> NodeId:
        return self.node

    def neighbours(self) -> list[NodeId]:
        return sorted(self.open)

    def url(self) -> str:
        return str(self.node)

    def open_link(self, url: str) -> None:
        self.open.add(int(url))

    def close_link(self, neighbour: NodeId) -> None:
        self.open.discard(neighbour)


def test_a_reactive_manager_is_told_of_a_lost_link_by_an_input(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        ring, air = KeyRing(GroupKey.generate()), AirSettings(interface="lo", port=free_port())
        lives = [LiveLayers(Identity.generate(number), ring, air) for number in (1, 2)]
        owners = [Links(live.node) for live in lives]
        managers = [
            ReactiveManager(live.host(Channel.STRATEGY), OPTIONS, owner)
            for live, owner in zip(lives, owners, strict=True)
        ]
        for live, manager in zip(lives, managers, strict=True):
            await live.start(manager)
        for _ in range(2):
            await until(lambda: [manager.tree_neighbours() for manager in managers] == [[2], [1]])
            for live, owner, manager in zip(lives, owners, managers, strict=True):
                owner.open.clear()
                live.handle(manager.signal_lost_neighbour, 3 - live.node)
            assert [manager.tree_neighbours() for manager in managers] == [[], []]
        assert sum(manager.is_leader for manager in managers) >= 1
        for live in lives:
            await live.stop()
        assert [live.counters.total("handler_errors_total") for live in lives] == [0, 0]

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert caplog.records == []


def test_an_interface_that_is_not_there_is_refused_and_nothing_stays_open() -> None:
    async def play() -> None:
        live = LiveLayers(
            Identity.generate(1), KeyRing(GroupKey.generate()), AirSettings(address="192.0.2.1")
        )
        await live.start(ProactiveManager(live.host, OPTIONS, Owner()))

    with pytest.raises(InputError, match=r"192\.0\.2\.1"):
        asyncio.run(play())
