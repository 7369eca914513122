"""Telling neighbours what changed: everybody knows it in the end, and it costs what has changed."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.strategy.opportunistic.messages import CONTENTS, Content, Update, UpdateTaken
from roamcast.strategy.opportunistic.propagation import (
    PEERS_MAX,
    ROWS_PER_LIFE,
    SENT_AT_ONCE_MAX,
    Propagation,
    next_life,
)
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.strategy.opportunistic.rows import Row, RowChange
from roamcast.strategy.opportunistic.topology import Topology
from roamcast.testing import FakeHost
from roamcast.units import SECOND, NodeId

A, B, C = 1, 2, 3


class Broker:
    """A topology table and the telling of it, as `BrokerManager` puts them together."""

    def __init__(self, network: "Network", node: NodeId, boot: int = 1) -> None:
        self.host = FakeHost(node, now=network.now)
        self.boot = boot
        self.topology = Topology(node)
        self.propagation = Propagation(self.host, self.topology, network.sender(node))
        self.sequence = boot * ROWS_PER_LIFE

    def say(self, links: dict[NodeId, int]) -> None:
        if self.propagation.own_sequence > self.sequence:
            self.sequence = next_life(self.propagation.own_sequence)
        self.sequence += 1
        flat = tuple(number for pair in sorted(links.items()) for number in pair)
        self.topology.update(Row(self.host.node, self.sequence, flat, ring=5), self.host.now())

    def known(self) -> list[tuple[int, int, tuple[int, ...]]]:
        return [(row.broker, row.sequence, row.links) for row in self.topology.rows()]


class Network:
    """Brokers that hear each other at once, but for what gets lost. Everything goes through its encoding."""

    def __init__(self, brokers: int, seed: int = 1) -> None:
        self.now = 0
        self.loss = 0.0
        self.octets = 0
        self.said: list[Content] = []
        self._random = Random(seed)
        self._waiting: deque[tuple[NodeId, NodeId, bytes]] = deque()
        self.brokers = [Broker(self, node) for node in range(brokers)]

    def sender(self, node: NodeId) -> Callable[[NodeId, Content, Letter], None]:
        def send(to: NodeId, content: Content, _: Letter) -> None:
            body = CONTENTS.encode(content)
            self.octets += len(body)
            self.said.append(content)
            if self._random.random() >= self.loss:
                self._waiting.append((node, to, body))

        return send

    def deliver(self) -> None:
        while self._waiting:
            sender, to, body = self._waiting.popleft()
            content = CONTENTS.decode(body)
            if to >= len(self.brokers):
                continue
            if isinstance(content, Update):
                self.brokers[to].propagation.on_update(sender, content)
            elif isinstance(content, UpdateTaken):
                self.brokers[to].propagation.on_taken(sender, content)

    def period(self, neighbours: dict[NodeId, set[NodeId]]) -> int:
        """Every broker tells its neighbours once, in the order of their numbers; the octets that took."""
        before = self.octets
        for node, near in neighbours.items():
            self.brokers[node].propagation.tell(sorted(near))
            self.deliver()
        self.now += SECOND
        for broker in self.brokers:
            broker.host.advance(SECOND)
        return self.octets - before

    def restart(self, node: NodeId, boots: int) -> None:
        self.brokers[node] = Broker(self, node, self.brokers[node].boot + boots)
        self.brokers[node].say({})


def line(brokers: int) -> dict[NodeId, set[NodeId]]:
    near: dict[NodeId, set[NodeId]] = {node: set() for node in range(brokers)}
    for one, other in pairwise(range(brokers)):
        near[one].add(other)
        near[other].add(one)
    return near


def all_to_all(brokers: int) -> dict[NodeId, set[NodeId]]:
    return {node: set(range(brokers)) - {node} for node in range(brokers)}


NODES = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), NODES, st.dictionaries(NODES, st.integers(1, 5), max_size=6)),
        st.tuples(st.just("tell"), NODES, st.sets(NODES, max_size=3)),
        st.tuples(st.just("restart"), NODES, st.integers(0, 1)),  # 0: its stable storage is lost, too
        st.tuples(st.just("loss"), st.sampled_from([0, 30, 90]), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(0, 2**16))
def test_when_changes_stop_all_brokers_of_a_component_agree(
    steps: list[tuple[str, int, Any]], seed: int
) -> None:
    network = Network(6, seed)
    for broker in network.brokers:
        broker.say({})
    for kind, node, what in steps:
        match kind:
            case "say":
                network.brokers[node].say({other: hops for other, hops in what.items() if other != node})
            case "tell":
                network.brokers[node].propagation.tell(sorted(what - {node}))
                network.deliver()
            case "restart":
                network.restart(node, what)
            case "loss":
                network.loss = node / 100
    # Two components: 0 to 3, and 4 to 5. A third of all messages is still lost. Rows that do not change are
    # renewed twice, as their brokers do every few periods, and when they hear of a later one of their own.
    network.loss = 0.33
    near = {**line(4), 4: {5}, 5: {4}}
    for period in range(90):
        network.period(near)
        for broker in network.brokers:
            if period in (20, 40) or broker.propagation.own_sequence > broker.sequence:
                row = broker.topology.row(broker.host.node)
                assert row is not None
                broker.say(dict(row.neighbours()))
    is_storage_lost = any(kind == "restart" and what == 0 for kind, _, what in steps)
    for component in ((0, 1, 2, 3), (4, 5)):
        own = {node: network.brokers[node].sequence for node in component}
        views = [network.brokers[node].known() for node in component]
        for view in views:
            assert {broker: sequence for broker, sequence, _ in view if broker in own} == own
            if not is_storage_lost:  # else what is known of the other component may be forgotten for good
                assert view == views[0]
    network.loss = 0.0
    network.period(near)
    assert network.period(near) == 0  # and then nobody says anything


def test_one_row_goes_at_once_and_as_what_has_changed_in_it() -> None:
    network = Network(3)
    one, other = network.brokers[A], network.brokers[B]
    one.say(dict.fromkeys(range(20, 40), 1))
    one.propagation.tell([B])
    network.deliver()
    assert other.known() == one.known()
    one.say({node: 1 if node != 39 else 2 for node in range(21, 40)})
    one.propagation.tell([B])
    network.deliver()
    assert other.known() == one.known()
    change = RowChange(A, ROWS_PER_LIFE + 1, 1, (39, 2, 20, 0), 5, 0, 0)
    assert network.said[2:] == [Update(2, (), (change,)), UpdateTaken(2, 0)]


def test_a_change_to_a_row_that_the_neighbour_lacks_is_asked_for_and_answered_with_the_row() -> None:
    network = Network(3)
    one = network.brokers[A]
    one.say(dict.fromkeys(range(20, 40), 1))
    one.propagation.tell([B])
    network.deliver()
    boot = network.brokers[B].boot
    network.brokers[B] = Broker(network, B, boot)  # it has lost its memory, and A does not know
    one.say(dict.fromkeys(range(20, 39), 1))
    one.propagation.tell([B])
    network.deliver()
    assert network.brokers[B].known() == one.known()


def test_of_many_rows_only_those_are_sent_that_the_neighbour_asks_for() -> None:
    network = Network(12)
    for broker in network.brokers:
        broker.say(dict.fromkeys(range(20, 40), 1))
        broker.propagation.tell([A])
        network.deliver()
    one, other = network.brokers[A], network.brokers[B]
    for node in (4, 5, 6):  # three of them are news for B
        other.topology.update(one.topology.row(node), 0)  # type: ignore[arg-type]
    network.said.clear()
    one.propagation.tell([B])
    network.deliver()
    assert other.known() == one.known()
    offer, question, answer, thanks = network.said
    assert isinstance(offer, Update) and isinstance(question, UpdateTaken) and isinstance(answer, Update)
    assert [row.broker for row in offer.rows] == [A] and len(offer.offered) == 3 * 10  # B knows its own
    assert set(question.wanted[::3]) == {0, 3, 7, 8, 9, 10, 11}
    assert {row.broker for row in answer.rows} == set(question.wanted[::3])
    assert thanks == UpdateTaken(answer.number, 1)


def test_a_row_keeps_its_age_on_its_way() -> None:
    network = Network(3)
    network.brokers[A].say({B: 1})
    for one, other in ((A, B), (B, C)):
        network.period({})
        network.brokers[one].propagation.tell([other % 3])
        network.deliver()
    assert network.brokers[0].topology.made_at(A) == 0


def test_who_restarts_is_told_everything_again() -> None:
    network = Network(3)
    for node in (A, B):
        network.brokers[node].say({})
    near = {A: {B}, B: {A}}
    network.period(near)
    assert network.period(near) == 0
    network.restart(B, 1)
    network.period(near)
    network.period(near)
    assert [row[0] for row in network.brokers[B].known()] == [A, B]


def exchange(brokers: int, rows: int, links: int) -> int:
    """Octets between two neighbours who know the same table, when so many links of so many rows change."""
    network = Network(2)
    one, other = network.brokers
    before = {100 + n: 1 for n in range(brokers // 4)}
    after = {node: 2 if node < 100 + links else 1 for node in before}
    flat_before, flat_after = (tuple(n for pair in x.items() for n in pair) for x in (before, after))
    for node in range(2, brokers):
        one.topology.update(Row(node, ROWS_PER_LIFE + 1, flat_before), 0)
    one.say(before)
    near = {0: {1}, 1: {0}}
    for _ in range(2):
        network.period(near)
    for node in range(2, 1 + rows):
        one.topology.update(Row(node, ROWS_PER_LIFE + 2, flat_after), 0)
    one.say(after)
    spent = network.period(near)
    assert other.known() == one.known() and network.period(near) == 0
    return spent


def test_an_update_costs_what_has_changed_whatever_the_number_of_brokers_and_links() -> None:
    for rows in (1, 2, 5, 15):
        for links in (1, 2, 3, 4):
            costs = {brokers: exchange(brokers, rows, links) for brokers in (40, 80, 120)}
            assert costs[40] == costs[80] == costs[120]
    one, two, three = (exchange(80, 15, links) for links in (1, 2, 3))
    assert two - one == three - two == 15 * 2  # broker and distance of each further link
    assert exchange(80, 15, 1) - exchange(80, 14, 1) < 30  # offered, asked for, answered


def test_what_others_can_make_us_remember_is_bounded() -> None:
    network = Network(1)
    broker = network.brokers[0]
    for sender in range(1, PEERS_MAX + 100):
        broker.propagation.on_update(sender, Update(0, (), (), (5000 + sender, 1, 1)))
    assert len(broker.propagation._peers) == PEERS_MAX
    assert all(not peer.sequences for peer in broker.propagation._peers.values())


def test_a_question_is_answered_once() -> None:
    network = Network(10)
    broker = network.brokers[0]
    for node in range(1, 10):
        broker.topology.update(Row(node, 1, ()), 0)
    broker.propagation.tell([20])
    (offer,) = network.said
    assert isinstance(offer, Update)
    question = tuple(n for node in range(1, 10) for n in (node, 0, 0))
    assert len(question) > 3 * SENT_AT_ONCE_MAX
    for again in (offer.number, offer.number, offer.number + 1, offer.number + 1):
        broker.propagation.on_taken(20, UpdateTaken(again, 1, question))
    assert len(network.said) == 2


def test_more_rows_than_an_update_holds_go_in_several_periods() -> None:
    network = Network(2)
    one, other = network.brokers
    many = tuple(n for node in range(255) for n in (1 << 40 | node, 1))
    for node in range(2, 40):
        one.topology.update(Row(node, 1, many), 0)
    for _ in range(6):
        network.period({0: {1}})
    assert other.known() == one.known()
    assert all(len(CONTENTS.encode(content)) < 65_000 for content in network.said)


def test_a_row_of_ours_with_the_highest_number_does_not_make_us_dumb() -> None:
    network = Network(2)
    one, other = network.brokers
    for sequence in (ROWS_PER_LIFE * 7 + 3, 2**63 - 1):
        one.propagation.on_update(1, Update(0, (Row(0, sequence, ()),)))
    one.say({1: 1})
    assert one.sequence == 8 * ROWS_PER_LIFE + 1
    network.period({0: {1}})
    assert other.known() == one.known()
