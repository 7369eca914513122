"""Streams over a network that loses, repeats, reorders and forgets."""

from random import Random

import pytest

from roamcast.host import Kind
from roamcast.strategy.opportunistic.reliable import (
    WINDOW,
    Acknowledgement,
    Letter,
    Reliable,
    Segment,
)
from roamcast.testing import FakeHost
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId


class End:
    """One node: its streams, what arrived, and what it was told."""

    def __init__(self, network: "Network", number: NodeId, stable: dict[str, bytes]) -> None:
        self.network, self.number = network, number
        self.host = FakeHost(node=number, stable=stable, now=network.now)
        self.host.attach(self)  # type: ignore[arg-type]
        self.streams = Reliable(self.host, self, self)
        self.arrived: list[tuple[NodeId, bytes]] = []
        self.resets: list[tuple[NodeId, list[bytes]]] = []
        self.unreachable: list[NodeId] = []

    def send(self, to: NodeId, message: Segment | Acknowledgement, letter: Letter) -> None:
        self.network.carry(self.number, to, message)

    def on_letter(self, sender: NodeId, body: bytes, hops: int, held: Micros) -> None:
        self.arrived.append((sender, body))

    def on_reset(self, peer: NodeId, unconfirmed: list[Letter]) -> None:
        self.resets.append((peer, [letter.body for letter in unconfirmed]))

    def on_unreachable(self, peer: NodeId) -> None:
        self.unreachable.append(peer)

    def on_timer(self, name: object) -> None:
        self.streams.on_timer(name)


class Network:
    def __init__(
        self, seed: int, *, loss: float = 0.0, repeat: float = 0.0, delay: Micros = MILLISECOND
    ) -> None:
        self.random = Random(seed)
        self.loss, self.repeat, self.delay = loss, repeat, delay
        self.now: Micros = 0
        self.is_cut = False
        self.stable: dict[NodeId, dict[str, bytes]] = {1: {}, 2: {}}
        self.ends = {number: End(self, number, self.stable[number]) for number in (1, 2)}
        self._flying: list[tuple[Micros, int, NodeId, NodeId, Segment | Acknowledgement]] = []
        self._count = 0

    def carry(self, sender: NodeId, to: NodeId, message: Segment | Acknowledgement) -> None:
        if self.is_cut:
            return
        for _ in range(2 if self.random.random() < self.repeat else 1):
            if self.random.random() >= self.loss:
                self._count += 1
                arrival = self.now + 1 + int(self.random.random() * self.delay)
                self._flying.append((arrival, self._count, sender, to, message))

    def run(self, duration: Micros, step: Micros = 5 * MILLISECOND) -> None:
        until = self.now + duration
        while self.now < until:
            self.now += step
            due = sorted(flight for flight in self._flying if flight[0] <= self.now)
            self._flying = [flight for flight in self._flying if flight[0] > self.now]
            for _, _, sender, to, message in due:
                self.ends[to].streams.on_datagram(sender, message, 1)
            for end in self.ends.values():
                end.host.advance(step)

    def restart(self, number: NodeId) -> End:
        self.ends[number] = End(self, number, self.stable[number])
        return self.ends[number]


def letter(number: int) -> Letter:
    return Letter(b"%d" % number, Kind.DATA, "test")


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


@pytest.mark.parametrize("seed", range(40))
def test_everything_arrives_once_and_in_order_over_any_bad_network(seed: int) -> None:
    random = Random(f"schedule {seed}")
    network = Network(
        seed,
        loss=random.choice([0.0, 0.1, 0.3, 0.5]),
        repeat=random.choice([0.0, 0.2]),
        delay=random.choice([1, 20, 400]) * MILLISECOND,
    )
    one, other = network.ends[1], network.ends[2]
    sent = {1: 0, 2: 0}
    for _ in range(30):
        for number, end, peer in ((1, one, 2), (2, other, 1)):
            for _ in range(random.choice([0, 0, 1, 5, WINDOW + 5])):
                assert end.streams.send(peer, letter(sent[number]))
                sent[number] += 1
        network.is_cut = random.random() < 0.2
        network.run(random.choice([10, 100, 1000]) * MILLISECOND)
    network.is_cut, network.loss = False, min(network.loss, 0.3)
    network.run(600 * SECOND, 50 * MILLISECOND)
    assert [body for _, body in other.arrived] == bodies(*range(sent[1]))
    assert [body for _, body in one.arrived] == bodies(*range(sent[2]))
    assert not one.resets and not other.resets
    assert one.streams.waiting(2) == other.streams.waiting(1) == 0


def test_a_restarted_receiver_is_noticed_once_and_what_it_did_not_confirm_comes_back() -> None:
    network = Network(1)
    one, other = network.ends[1], network.ends[2]
    one.streams.send(2, letter(0))
    network.run(SECOND)
    network.is_cut = True
    one.streams.send(2, letter(1))
    one.streams.send(2, letter(2))
    network.run(SECOND)
    other = network.restart(2)
    network.is_cut = False
    network.run(10 * SECOND)
    assert one.resets == [(2, bodies(1, 2))] and other.resets == []
    one.streams.send(2, letter(3))
    network.run(SECOND)
    assert other.arrived == [(1, b"3")]
    other.streams.send(1, letter(9))
    network.run(SECOND)
    assert one.arrived == [(2, b"9")] and len(one.resets) == 1


def test_a_restarted_sender_is_noticed_by_its_first_word() -> None:
    network = Network(1)
    network.ends[1].streams.send(2, letter(0))
    network.run(SECOND)
    one = network.restart(1)
    other = network.ends[2]
    network.is_cut = True
    other.streams.send(1, letter(7))
    network.is_cut = False
    one.streams.send(2, letter(1))
    network.run(SECOND)
    assert other.arrived == [(1, b"0"), (1, b"1")]
    assert other.resets == [(1, bodies(7))]
    assert one.resets == [] and one.arrived == []


def test_silence_is_reported_once_and_ends_with_the_next_confirmation() -> None:
    network = Network(1)
    one = network.ends[1]
    for _ in range(2):
        network.is_cut = True
        one.streams.send(2, letter(0))
        network.run(20 * SECOND, 100 * MILLISECOND)
        network.is_cut = False
        one.streams.nudge(2)
        network.run(SECOND)
    assert one.unreachable == [2, 2]
    assert len(network.ends[2].arrived) == 2


def test_what_is_abandoned_does_not_come_and_the_next_message_does() -> None:
    network = Network(1)
    one, other = network.ends[1], network.ends[2]
    one.streams.send(2, letter(0))
    network.run(SECOND)
    network.is_cut = True
    one.streams.send(2, letter(1))
    assert [given.body for given in one.streams.abandon(2)] == bodies(1)
    network.is_cut = False
    one.streams.send(2, letter(2))
    network.run(SECOND)
    assert [body for _, body in other.arrived] == bodies(0, 2)
    assert one.resets == other.resets == []


def test_a_full_queue_says_no() -> None:
    host = FakeHost(node=1)
    network = Network(1)
    streams = Reliable(host, network.ends[1], network.ends[1], queue_max=3)
    assert [streams.send(2, letter(number)) for number in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("seed", range(20))
def test_forged_datagrams_do_not_stop_a_stream(seed: int) -> None:
    """From outside the streams, with any numbers: nothing crashes, and honest letters still arrive in order,
    unless the forger knows the boot of the peer, which sealing keeps from it."""
    random = Random(seed)
    network = Network(seed)
    one, other = network.ends[1], network.ends[2]
    for number in range(20):
        one.streams.send(2, letter(number))
        forged: list[Segment | Acknowledgement] = [
            Segment(random.randrange(1 << 32), random.randrange(1 << 33), random.randrange(100), 0, b"x"),
            Acknowledgement(random.randrange(1 << 34), random.randrange(1 << 33), 0),
        ]
        other.streams.on_datagram(1, forged[0], 1)
        one.streams.on_datagram(2, forged[1], 1)
        network.run(50 * MILLISECOND)
    network.run(20 * SECOND)
    assert [body for _, body in other.arrived if body != b"x"] == bodies(*range(20))
