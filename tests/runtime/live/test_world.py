"""Whole live nodes in virtual time: what a node touches is its `NodeWorld`, so a seed repeats every octet."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runtime.live.virtual import Cable, run_virtual

from roamcast.broker.core import Delivery
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.settings import (
    AirSettings,
    KeySettings,
    LiveSettings,
    NodeSettings,
    PartSettings,
)
from roamcast.sealing import GroupKey, Identity

GROUP = GroupKey(bytes(range(32))).to_text()
KEYS = [Identity(bytes([number] * 32), number).to_text() for number in (1, 2, 3)]


def wanted(number: int, strategy: str) -> LiveSettings:
    return LiveSettings(
        node=NodeSettings(number=number + 1, state="state.db"),
        keys=KeySettings(identity=KEYS[number], group=(GROUP,)),
        air=AirSettings(interface="eth0", own_port=5_000),
        strategy=PartSettings(name=strategy),
    )


def conversation(strategy: str, seed: int) -> tuple[Cable, list[tuple[float, int]]]:
    """Three nodes for two minutes; one publishes, all subscribe. What the cable carried, and the arrivals."""
    arrivals: list[tuple[float, int]] = []

    async def play(cable: Cable) -> None:
        def arrival_at(number: int) -> Callable[[Delivery], None]:
            return lambda delivery: arrivals.append((cable.loop.now, number))

        nodes = [
            await LiveNode.start(wanted(n, strategy), Path(), cable.machine(seed * 10 + n)) for n in range(3)
        ]
        for node in nodes:
            session = node.applications.open(arrival_at(node.number))
            session.subscribe(Filter.everything())
        publisher = nodes[0].applications.open(lambda delivery: None)
        await asyncio.sleep(60)
        for _ in range(20):
            publisher.publish(Publication({"level": 1}, lifetime=30_000_000))
            await asyncio.sleep(3)
        assert all(node.status().uptime > 119 for node in nodes)
        for node in nodes:
            await node.stop()

    return run_virtual(play), arrivals


@pytest.mark.parametrize("strategy", ["flooding", "epidemic", "chapar"])
def test_two_minutes_of_three_nodes_take_no_time_and_repeat_to_the_octet(strategy: str) -> None:
    first, arrived = conversation(strategy, 1)
    assert len(arrived) == 60 and first.loop.now > 119
    again, arrived_again = conversation(strategy, 1)
    assert arrived_again == arrived and again.sent == first.sent
    other, _ = conversation(strategy, 2)
    assert other.sent != first.sent, "another seed is another run"
