"""One broadcast for several receivers, and what makes up for its losses."""

import pytest
from msgspec.structs import replace
from tests.strategy.chapar.network import OPTIONS, Network

from roamcast.host import Channel
from roamcast.strategy.chapar.messages import CODEC, Carry, Recap, Request, Spread
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, NodeId

# Publisher 0 beside broker 1; relays 2 and 3 with a leaf each, 4 and 5; 6 and 7 are neighbours of 1.
TREE = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (1, 6), (1, 7)]


def settled(subscribers: list[NodeId]) -> Network:
    network = Network(8, TREE, options=replace(OPTIONS, consistency_interval=1_000.0))
    network.run(1)
    for node in subscribers:
        network.subscribe(node, "a = 1")
    network.run(10)
    network.medium.sent.clear()
    return network


def deaf(network: Network, sender: NodeId, receiver: NodeId, kind: type) -> None:
    """The receiver misses messages of one kind from one neighbour."""
    chapar = network.places[receiver].chapar
    handle = chapar.on_receive

    def on_receive(from_: NodeId, payload: bytes) -> None:
        if from_ != sender or not isinstance(CODEC.decode(payload), kind):
            handle(from_, payload)

    network.medium.receivers[Channel.STRATEGY][receiver] = on_receive


def test_one_frame_per_relay_serves_all() -> None:
    network = settled([4, 5, 6, 7])
    event = network.publish(0, {"a": 1})
    network.run(2)
    assert network.got(event) == {4: 1, 5: 1, 6: 1, 7: 1}
    assert sorted(sender for sender, _, _ in network.frames(Spread)) == [1, 2, 3]
    assert [(sender, to) for sender, to, _ in network.frames(Carry)] == [(0, 1)]
    assert network.frames(Request) == []


def test_a_next_hop_that_missed_the_broadcast_gets_its_part_by_unicast() -> None:
    network = settled([4, 5, 6])
    deaf(network, 1, 2, Spread)
    event = network.publish(0, {"a": 1})
    network.run(1)
    assert network.got(event) == {4: 1, 5: 1, 6: 1}
    assert [(sender, to) for sender, to, _ in network.frames(Carry)] == [(0, 1), (1, 2), (2, 4)]


def test_a_next_hop_that_was_not_heard_passes_the_event_on_once() -> None:
    network = settled([4, 5, 6])
    deaf(network, 2, 1, Spread)
    event = network.publish(0, {"a": 1})
    network.run(1)
    assert network.got(event) == {4: 1, 5: 1, 6: 1}
    assert [(sender, to) for sender, to, _ in network.frames(Carry)] == [(0, 1), (1, 2)]
    assert sorted(sender for sender, _, _ in network.frames(Spread)) == [1, 2, 3]


def test_a_neighbour_that_missed_the_broadcast_asks_when_it_hears_of_it() -> None:
    network = settled([4, 5, 6, 7])
    deaf(network, 1, 6, Spread)
    event = network.publish(0, {"a": 1})
    network.run(2)
    assert network.got(event) == {4: 1, 5: 1, 6: 1, 7: 1}
    assert [(sender, to) for sender, to, _ in network.frames(Request)] == [(6, 1)]


def test_a_next_hop_that_was_not_heard_but_tells_of_the_event_needs_no_unicast() -> None:
    network = settled([4, 5, 6])
    for _ in range(4):
        network.places[
            1
        ].chapar._recapitulation.timeout.on_missed()  # a full medium: there is time to hear it
    deaf(network, 2, 1, Spread)
    event = network.publish(0, {"a": 1})
    network.run(4)
    assert network.got(event) == {4: 1, 5: 1, 6: 1}
    assert [(sender, to) for sender, to, _ in network.frames(Carry)] == [(0, 1)]


@pytest.mark.parametrize(
    ("missed_by", "is_full", "carries", "spreads"),
    [([6], False, [(1, 6)], 1), ([6, 7], False, [], 2), ([6], True, [], 2)],
)
def test_who_asks_alone_on_a_calm_medium_gets_a_unicast_and_all_others_one_broadcast(
    missed_by: list[NodeId], is_full: bool, carries: list[tuple[NodeId, NodeId]], spreads: int
) -> None:
    network = settled([4, 5, 6, 7])
    if is_full:
        network.places[1].chapar._recapitulation.timeout.on_confirmed(SECOND)
    for node in missed_by:
        deaf(network, 1, node, Spread)
    event = network.publish(0, {"a": 1})
    network.run(0.1)
    for node in missed_by:
        network.medium.receivers[Channel.STRATEGY][node] = network.places[node].chapar.on_receive
    network.run(2)
    assert network.got(event) == {4: 1, 5: 1, 6: 1, 7: 1}
    assert sorted(sender for sender, _, _ in network.frames(Request)) == missed_by
    assert [(sender, to) for sender, to, _ in network.frames(Carry)] == [(0, 1), *carries]
    assert [sender for sender, _, _ in network.frames(Spread)].count(1) == spreads


def test_a_subscriber_that_the_looking_up_broker_does_not_know_is_served_on_the_way() -> None:
    network = settled([4, 5, 6])
    filters = network.places[1].chapar.tables.filters
    network.places[7].chapar._attachment.broker = None  # its subscription reaches nobody
    network.subscribe(7, "a = 1")
    event = network.publish(0, {"a": 1})
    assert not filters.version(7)
    network.run(2)
    assert network.got(event) == {4: 1, 5: 1, 6: 1, 7: 1}


def test_nobody_asks_for_what_its_filters_do_not_select_or_what_it_has() -> None:
    network = settled([4, 5, 6])
    network.subscribe(7, "a = 2")
    network.run(1)
    network.publish(0, {"a": 1})
    network.run(2)
    assert network.frames(Recap) and network.frames(Request) == []
    assert network.drops(DropReason.FALSE_POSITIVE) == []


def test_recapitulations_end() -> None:
    network = settled([4, 5, 6])
    network.publish(0, {"a": 1})
    network.run(5)
    told = len(network.frames(Recap))
    network.run(20)
    assert len(network.frames(Recap)) == told == 2 * 3


def test_events_with_designated_destinations_go_by_unicast() -> None:
    network = settled([])
    event = network.publish(0, {"a": 1}, destinations=(4, 5, 6))
    network.run(2)
    assert network.got(event) == {4: 1, 5: 1, 6: 1}
    assert network.frames(Spread) == []


def test_a_new_neighbour_and_those_behind_it_get_what_was_published_just_before() -> None:
    parts = [(0, 1), (2, 3)]
    network = Network(4, parts, options=replace(OPTIONS, consistency_interval=1_000.0))
    network.subscribe(2, "a = 1")
    network.subscribe(3, "a = 1")
    network.run(20)
    event, unwanted = network.publish(0, {"a": 1}), network.publish(0, {"a": 2})
    network.run(0.5)
    assert network.got(event) == {}
    network.connect([*parts, (0, 2)])
    network.run(3)
    assert network.got(event) == {2: 1, 3: 1}
    assert network.got(unwanted) == {}


def test_what_is_published_while_two_nodes_compare_their_tables_is_told() -> None:
    """They have just met: neither is known to the other as a subscriber yet."""
    network = Network(2, options=replace(OPTIONS, consistency_interval=1_000.0))
    network.subscribe(0, "a = 1")
    network.subscribe(1, "a = 1")
    network.run(5)
    network.connect([(0, 1)])
    events = [network.publish(node, {"a": 1}) for node in (0, 1)]
    network.run(2)
    assert [network.got(event) for event in events] == [{1: 1}, {0: 1}]


def test_a_neighbour_that_has_been_away_for_some_seconds_is_told_of_what_it_missed() -> None:
    network = settled([4, 5, 6, 7])
    network.connect([pair for pair in TREE if pair != (1, 7)])
    network.run(4)
    event = network.publish(0, {"a": 1})
    network.run(2)
    network.connect(TREE)
    network.run(2)
    assert network.got(event) == {4: 1, 5: 1, 6: 1, 7: 1}


def test_a_neighbour_that_was_not_heard_for_a_moment_is_told_nothing() -> None:
    network = settled([4, 5, 6])
    network.publish(0, {"a": 1})
    network.run(1.5)  # all tellings are over, the event can still be asked for
    told = len(network.frames(Recap))
    network.connect([pair for pair in TREE if pair != (1, 7)])
    network.run(0.5)
    network.connect(TREE)
    network.run(3)
    told_to = [to for _, to, _ in network.frames(Recap)]
    assert told_to.count(None) == told == 2 * 3 and 7 not in told_to


def test_a_node_that_lost_a_neighbour_hears_from_another_one_what_it_missed() -> None:
    """Node 6 has broken with 1, which does not know it yet, and goes on to count on its broadcasts."""
    network = Network(8, [*TREE, (6, 2)], options=replace(OPTIONS, consistency_interval=1_000.0))
    network.run(1)
    network.subscribe(6, "a = 1")
    network.subscribe(4, "a = 1")
    network.run(10)
    deaf(network, 1, 6, Spread)
    deaf(network, 2, 6, Spread)
    deaf(network, 1, 6, Recap)
    lost = [network.publish(0, {"a": 1}) for _ in range(3)]
    network.run(0.6)
    network.connect([pair for pair in [*TREE, (6, 2)] if pair != (1, 6)])
    network.run(1)
    assert [network.got(event)[6] for event in lost] == [1, 1, 1]
    assert any(message == Request() for _, _, message in network.frames(Request))


def test_a_listener_whose_hello_is_overdue_gets_one_event_by_unicast_and_the_way_round_is_found() -> None:
    """Node 2 goes from broker 0 to broker 1. Broker 0, which only broadcasts to it, noticed it after 3 s."""
    before, after = [(0, 1), (0, 2), (0, 3), (0, 4)], [(0, 1), (1, 2), (0, 3), (0, 4)]
    network = Network(5, before, options=OPTIONS, has_olsr=True)
    for node in (2, 3):
        network.subscribe(node, "a = 1")
    network.run(12)
    network.connect(after)
    events = []
    for _ in range(16):
        events.append(network.publish(4, {"a": 1}))
        network.run(0.25)
    network.run(4)
    assert [network.got(event) for event in events] == [{2: 1, 3: 1}] * 16
    assert not network.places[0].underlay.is_overdue(1) and not Underlay().is_overdue(1)
