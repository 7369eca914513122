"""What the radio reports and what a node refuses: a busy radio is no broken link, a stale one is named."""

from functools import partial

import pytest
from tests.strategy.tree.network import Network, Weather, pair

from roamcast.broker.core import Broker, Delivery
from roamcast.event import Event, EventId
from roamcast.host import Frame, Kind, SendFailure
from roamcast.kit.protocol import Messenger, Timer
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.tree.content.messages import CODEC as CONTENT
from roamcast.strategy.tree.content.messages import Cast
from roamcast.strategy.tree.overlay.courier import AGREEMENT, LINK_ATTEMPTS, TreeCourier
from roamcast.strategy.tree.overlay.messages import (
    CODEC,
    Close,
    Probe,
    RouteReply,
    RouteRequest,
    Sighting,
    TreeData,
)
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.strategy.tree.strategy import Tree
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND, NodeId


class Ignores:
    def on_event(self, delivery: Delivery) -> None:
        """Not here."""


class Alone:
    """An underlay without neighbours."""

    def neighbours(self) -> list[NodeId]:
        return []


class Couriers:
    """A courier whose frames fail as the test says."""

    def __init__(self) -> None:
        self.host = FakeHost(0)
        self.undelivered: list[NodeId] = []
        self.courier = TreeCourier(Messenger(self.host, CODEC), 0, self.undelivered.append)
        self.host.attach(self)  # type: ignore[arg-type]

    def on_timer(self, timer: Timer) -> None:
        timer.due()

    def run(self, failure: SendFailure, seconds: int) -> None:
        answered = 0
        for _ in range(seconds * 100):
            self.host.advance(SECOND // 100)
            while answered < len(self.host.sent):
                on_failure = self.host.sent[answered].on_failure
                answered += 1
                if on_failure is not None:
                    on_failure(failure)


def test_a_hop_that_a_broken_link_fails_is_given_up_and_the_link_with_it() -> None:
    couriers = Couriers()
    couriers.courier.hop(1, Close(7), own=True)
    couriers.run(SendFailure.LINK, 2)
    assert len(couriers.host.sent) == LINK_ATTEMPTS and couriers.undelivered == [1]


def test_a_hop_that_finds_our_own_queue_full_says_nothing_about_the_link() -> None:
    couriers = Couriers()
    couriers.courier.hop(1, Close(7), own=True)
    couriers.run(SendFailure.QUEUE_FULL, 2)
    assert len(couriers.host.sent) == LINK_ATTEMPTS and couriers.undelivered == []


def test_an_agreement_is_given_up_after_attempts_on_the_air_not_in_the_queue() -> None:
    couriers = Couriers()
    couriers.courier.agree(1, 7, Probe(7), own=True)
    couriers.run(SendFailure.QUEUE_FULL, 5)
    assert couriers.undelivered == [] and couriers.courier.is_agreeing(1, 7)
    before = len(couriers.host.sent)
    couriers.run(SendFailure.LINK, 60)
    assert couriers.undelivered == [1]
    assert not AGREEMENT.is_over(len(couriers.host.sent) - before - 1)


def test_an_event_over_a_link_that_we_gave_up_is_traced_as_stale_by_its_name() -> None:
    host = FakeHost(0)
    tree = Tree(
        StrategyContext(host, Broker(host, Ignores()), Alone()),  # type: ignore[arg-type]
        TreeOptions(),
    )
    host.attach(tree)
    tree.on_start()
    event = Event(5, 17, {"level": 3})
    tree.on_receive(1, CODEC.encode(TreeData(99, CONTENT.encode(Cast(event, 0, 0)))))
    tree.on_receive(1, CODEC.encode(TreeData(99, b"no message")))
    drops = [record for record in host.records if isinstance(record, Dropped)]
    assert [(drop.reason, drop.publisher, drop.sequence) for drop in drops] == [
        (DropReason.STALE, *EventId(5, 17)),
        (DropReason.STALE, None, None),
    ]


def test_in_a_crowd_the_first_request_goes_one_hop_and_then_as_far_as_ever() -> None:
    """Nine nodes around a leaf whose upstream goes; R13."""
    for others, reaches in ((9, [1, 2]), (5, [2])):
        crowd = list(range(others + 1))
        network = Network(crowd, [(a, b) for a in crowd for b in range(a)])
        network.run(30)
        leaf = next(node for node in crowd if network.parent(node) is not None)
        network.sent.clear()
        network.lose = lambda sender, to, message: isinstance(message, RouteReply)
        protocol = network.nodes[leaf].protocol
        parent = protocol.table.parent
        assert parent is not None
        network._step(network.nodes[leaf], lambda: protocol.lose(parent, tell=True))  # noqa: B023
        network.run(0.9)
        asked = [
            sent.message.time_to_live
            for sent in network.of(RouteRequest)
            if sent.sender == leaf and isinstance(sent.message, RouteRequest)
        ]
        assert asked == reaches


@pytest.mark.parametrize("is_told", [True, False])
def test_a_leader_is_told_of_another_tree_that_a_member_hears(is_told: bool) -> None:
    """R14, with a periodic search that is far away; without the word of the member the trees stay apart."""
    options = TreeOptions(preset="walking", reconnection_trigger=255)
    size = 5
    nodes = range(2 * size)
    network = Network(nodes, [(n, n + 1) for n in nodes[:-1] if n != size - 1], options=options)
    network.run(20)
    leaders = network.leaders()
    assert len(leaders) == 2
    if not is_told:
        network.lose = lambda sender, to, message: isinstance(message, Sighting)
    # Two members that are no leaders and have someone below them, so that they pass hellos on.
    above = {network.parent(node) for node in nodes}
    left, right = (
        next(node for node in side if node in above and node not in leaders)
        for side in (nodes[:size], nodes[size:])
    )
    network.connect((left, right))
    network.run(15)
    assert (len(network.leaders()) == 1) is is_told


def test_without_additions_a_leader_waits_for_its_turn_and_a_repair_asks_no_crowd() -> None:
    options = TreeOptions(preset="walking", additions=False)
    crowd = list(range(10))
    network = Network(crowd, [(a, b) for a in crowd for b in range(a)], options=options)
    network.run(4)
    assert network.of(RouteRequest) == [], "RECONNECTION_TRIGGER hellos have not passed"
    network.run(40)
    assert network.faults_at_rest() == []
    leaf = next(node for node in crowd if network.parent(node) is not None)
    protocol = network.nodes[leaf].protocol
    parent = protocol.table.parent
    assert parent is not None
    network.sent.clear()
    network._step(network.nodes[leaf], lambda: protocol.lose(parent, tell=True))
    network.run(0.1)
    first = next(s.message for s in network.of(RouteRequest) if s.sender == leaf)
    assert isinstance(first, RouteRequest) and first.time_to_live == 2


# Whom we hear is there (R11); who falls silent is asked (R12).


def linked(**options: object) -> tuple[Network, NodeId, NodeId]:
    """Two nodes with a link, in a world where a lost neighbour is noticed late; the upstream end first."""
    weather = Weather(detection=(20 * SECOND, 20 * SECOND))
    network = Network([0, 1], options=TreeOptions(preset="driving", **options), weather=weather)  # type: ignore[arg-type]
    network.connect((0, 1))
    for node, other in ((0, 1), (1, 0)):
        network._step(network.nodes[node], partial(network.nodes[node].overlay.on_neighbour_up, other))
    network.run(8)
    assert network.open_tree() == {pair(0, 1)}
    below = 0 if network.parent(0) == 1 else 1
    return network, 1 - below, below


def stream(network: Network, sender: NodeId, to: NodeId, seconds: float) -> None:
    for n in range(round(seconds * 10)):
        network.at(
            network.now + n * SECOND // 10,
            lambda: network.nodes[sender].overlay.spread([to], Frame(b"data", Kind.DATA, "test")),
        )
    network.run(seconds)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_node_that_stops_in_good_order_prunes_its_links(leaves: bool) -> None:
    network, above, below = linked()
    leaving = network.nodes[above]
    if leaves:
        network._step(leaving, leaving.overlay.on_stop)
        network.run(0.001)  # what was said last still leaves
    network.crash(above)
    network.run(1)  # that it is away is noticed after 20 s
    assert network.nodes[below].overlay.neighbours() == ([] if leaves else [above])
    assert (network.parent(below) is None) == leaves
    downs = [(record.node, record.peer) for record in network.records if record.change == "link_down"]
    assert downs == ([(above, below), (below, above)] if leaves else [])


def test_a_neighbour_without_beacons_is_kept_while_it_is_heard_and_lost_when_not() -> None:
    network, above, below = linked()
    stream(network, above, below, 1)
    overlay = network.nodes[below].overlay
    overlay.on_neighbour_down(above)  # three beacons lost, on a busy radio
    stream(network, above, below, 5)
    assert overlay.neighbours() == [above]
    overlay.on_neighbour_down(above)
    network.run(3)
    assert overlay.neighbours() == []


def test_a_neighbour_that_comes_back_in_time_is_no_longer_doubted() -> None:
    network, above, below = linked()
    stream(network, above, below, 1)
    overlay = network.nodes[below].overlay
    overlay.on_neighbour_down(above)
    overlay.on_neighbour_up(above)
    network.run(4)
    assert overlay.neighbours() == [above]


def test_an_upstream_that_falls_silent_in_a_stream_is_probed_and_lost_before_beacons_tell() -> None:
    for probes, lost in ((True, True), (False, False)):
        network, above, below = linked(quiet_probes=probes)
        stream(network, above, below, 3)
        asked = len(network.of(Probe))
        network.cut((0, 1))
        network.run(3)
        assert (network.nodes[below].overlay.neighbours() == []) is lost
        assert (len(network.of(Probe)) > asked) is probes


def test_an_upstream_with_nothing_more_to_say_is_asked_once_and_kept() -> None:
    network, above, below = linked()
    stream(network, above, below, 3)
    before = len(network.of(Probe))
    network.run(20)
    assert len(network.of(Probe)) == before + 1
    assert network.nodes[below].overlay.neighbours() == [above]
