"""Whatever well-formed message a member sends, to any strategy or underlay: no exception, no long work.

A message costs its receiver no more than `PROCESSOR_MAX`, handlers and timers included; what it makes a node
send counts where it arrives. A failure names the seed; what was found is kept below as a named test.
"""

import importlib
import time
from random import Random
from typing import Any

import pytest
from tests.contract.hostile import MessageMaker

from roamcast.host import Layer, SendFailure
from roamcast.kit.anti_entropy import HoldingsDigest
from roamcast.kit.protocol import MessageLayer
from roamcast.kit.repair import HeldRuns
from roamcast.runtime.sim.medium import Job
from roamcast.strategy import STRATEGIES
from roamcast.strategy.base import Strategy
from roamcast.strategy.odmrp import messages as odmrp
from roamcast.strategy.opportunistic.messages import NodeDigest
from roamcast.testing.network import Link, Network, line

NODES = 6
LINKS: list[Link] = [*line(4), (4, 5), (1, 4)]
PROCESSOR_MAX = 0.04  # seconds, on any machine that runs the tests; the worst so far is a tenth of it
MESSAGES = 300
SEEDS = 3

CASES = [
    *((strategy, None) for strategy in STRATEGIES.own_names()),
    ("epidemic", "aodv"),
    ("epidemic", "olsr"),
]


class HostileNetwork:
    def __init__(self, strategy: str, underlay: str | None, seed: int) -> None:
        self.draw = draw = Random(seed)
        self.network = network = Network(NODES, strategy, links=LINKS, underlay=underlay, seed=seed)
        self._send = network.medium.send
        network.medium.send = self.send  # type: ignore[method-assign]
        protocol = importlib.import_module(type(network.node(0).strategy).__module__.rpartition(".")[0])
        own = importlib.import_module(type(network.node(0).strategy).__module__)
        self.maker = MessageMaker(draw, NODES, own if protocol.__name__ == "roamcast.strategy" else protocol)
        for node in range(NODES):
            network.subscribe(node, draw.choice(["", "level > 3"]))
        network.run(draw.choice([1.0, 5.0, 20.0]))
        for node in range(NODES):
            network.publish(node, {"level": node}, lifetime=draw.choice([0.0, 60.0]), topic="a/b")
        network.run(1.0)
        for payload in network.payloads()[-200:]:
            self.maker.learn(payload)

    def send(self, job: Job) -> None:
        """As a live radio does: who is not there, or is the sender itself, is not in range."""
        if job.to is not None and job.to >= NODES:
            if job.on_failure is not None:
                self.network.engine.at(self.network.engine.now, job.on_failure, SendFailure.LINK)
            return
        self._send(job)

    def message(self, number: int) -> tuple[Layer, bytes]:
        """To a layer of a node."""
        draw, network = self.draw, self.network
        node = network.node(number)
        layer: Layer = node.strategy if draw.random() < 0.75 else node.underlay
        heard = network.payloads()[-200:]
        if layer is node.strategy and heard and draw.random() < 0.15:
            return layer, self.maker.damaged(draw.choice(heard))
        return layer, octets_for(layer, self.maker)

    def play(self, messages: int) -> list[str]:
        """The most expensive ones, and what was raised."""
        found: list[str] = []
        draw, network = self.draw, self.network
        for number in range(messages):
            node = draw.randrange(NODES)
            layer, payload = self.message(node)
            sender = draw.choice([*(one for one in range(NODES) if one != node), NODES + 1, 2**31 - 1])
            begun = time.process_time()
            try:
                layer.on_receive(sender, payload)
                spent = time.process_time() - begun
                if draw.random() < 0.3:
                    network.run(draw.choice([0.001, 0.1, 1.0, 3.0]))
            except Exception as error:
                found.append(f"message {number}: {error!r}: {payload.hex()[:400]}")
                raise
            if spent > PROCESSOR_MAX and (again := self.again(layer, sender, payload)) > PROCESSOR_MAX:
                found.append(f"message {number}: {again * 1e3:.0f} ms: {payload.hex()[:400]}")
            if draw.random() < 0.02:
                network.publish(draw.randrange(NODES), {"level": draw.randrange(9)}, lifetime=60.0)
        return found

    def again(self, layer: Layer, sender: int, payload: bytes) -> float:
        """A message that seemed long: another process, or the collector, may have been in the way."""
        begun = time.process_time()
        layer.on_receive(sender, payload)
        return time.process_time() - begun


def octets_for(layer: Any, maker: MessageMaker) -> bytes:
    if isinstance(layer, MessageLayer):
        return maker.make(layer.messenger._codec)
    if type(layer).__name__ == "Olsr":
        return maker.olsr_packet()
    if type(layer).__name__ == "Aodv":
        return maker.aodv_message()
    return maker.make_any() if isinstance(layer, Strategy) else b"\x01"  # to a layer that has no messages


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("strategy", "underlay"), CASES)
def test_no_well_formed_message_raises_or_takes_long(strategy: str, underlay: str | None, seed: int) -> None:
    assert HostileNetwork(strategy, underlay, seed).play(MESSAGES) == []


# What was found.


def test_odmrp_hears_of_a_type_that_no_filter_can_name() -> None:
    network = Network(2, "odmrp", links=line(2))
    network.subscribe(1, "level > 3")
    network.run(3.0)
    network.node(0).strategy.advertise(["\0", "x" * 256, "a\0b"])  # as a client may register them
    network.run(6.0)
    requests = [odmrp.CODEC.decode(payload) for payload in network.payloads()]
    assert any(isinstance(one, odmrp.JoinRequest) and len(one.advertisements) == 3 for one in requests)


@pytest.mark.parametrize("strategy", ["epidemic", "opportunistic"])
def test_a_few_octets_that_claim_everything_cost_milliseconds(strategy: str) -> None:
    """17 octets once took 125 ms of each neighbour."""
    runs = (HeldRuns(7, (0, 2**63 - 1)),)
    uneven = tuple(HeldRuns(node, (0, 19_000 if node == 9 else 0)) for node in range(10, 200))
    for held in (runs, uneven):
        digest = HoldingsDigest(held) if strategy == "epidemic" else NodeDigest(7, held)
        # The least of some: what is over it is the collector's, or another process's.
        assert min(processor_time(strategy, digest) for _ in range(5)) < PROCESSOR_MAX


def processor_time(strategy: str, digest: HoldingsDigest | NodeDigest) -> float:
    """What a message costs a node that has not heard it before."""
    network = Network(2, strategy, links=line(2))
    network.subscribe(1)
    network.run(3.0)
    codec = network.node(1).strategy.messenger._codec  # type: ignore[attr-defined]
    begun = time.process_time()
    network.hear(1, 0, codec.encode(digest))
    return time.process_time() - begun
