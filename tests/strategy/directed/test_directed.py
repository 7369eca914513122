"""Where an event goes that few want, and what happens when it cannot go there."""

import pytest

from roamcast.event import EventId, Publication
from roamcast.filter import Filter
from roamcast.strategy.directed import Directed
from roamcast.strategy.directed.distances import GONE, LOST_LATELY
from roamcast.strategy.directed.interests import InterestRow, InterestRows
from roamcast.strategy.directed.messages import CODEC, DirectedCopy, Rider
from roamcast.testing import Network
from roamcast.trace import Transmitted
from roamcast.units import SECOND, NodeId

#   8 - 7 - 6 - 0 - 1 - 2 - 3        3 and 5 want what is above 3
#                   |
#                   4 - 5
LINKS = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5), (0, 6), (6, 7), (7, 8)]


def directed(network: Network, node: NodeId) -> Directed:
    strategy = network.node(node).strategy
    assert isinstance(strategy, Directed)
    return strategy


def formed(links: list[tuple[int, int]] = LINKS, nodes: int = 9, loss: float = 0.0) -> Network:
    """The subscribers have seen that few want what they want, and are found by now."""
    network = Network(nodes, "directed", links=links, loss=loss)
    for subscriber in (3, 5):
        network.subscribe(subscriber, "level > 3")
    network.run(5.0)
    network.publish(0, {"level": 9})
    network.run(10.0)
    return network


def frames_of(network: Network, event: EventId) -> list[Transmitted]:
    of = [frame for frame in network.frames() if (frame.publisher, frame.sequence) == event]
    return [frame for frame in of if frame.attempt == 1]


def test_the_worked_example() -> None:
    """The example of docs/protocols/directed.md."""
    network = formed()
    first = EventId(0, 0)
    assert {frame.message for frame in frames_of(network, first)} == {"copy"}, "no distance was known"
    assert {arrival.node for arrival in network.delivered} == {3, 5}
    assert directed(network, 0).distances.of(3) == 3 and directed(network, 1).distances.of(5) == 2

    second = network.publish(0, {"level": 7}).id
    network.run(2.0)
    sent = [(frame.node, frame.to, frame.message) for frame in frames_of(network, second)]
    assert sorted(sent, key=str) == [
        (0, 1, "directed to one"),
        (1, None, "directed"),
        (2, 3, "directed to one"),
        (4, 5, "directed to one"),
    ]
    copies = [CODEC.decode(octets) for octets in network.payloads() if octets[1:2] == b"\x96"]
    (named,) = [one for one in copies if type(one) is DirectedCopy and one.event.id == second]
    assert named.relays == bytes([0, 2, 0, 4]) and named.duties == (bytes([0, 3]), bytes([0, 5]))
    assert sorted((one.node, one.sequence) for one in network.delivered if one.sequence == 1) == [
        (3, 1),
        (5, 1),
    ]

    third = network.publish(0, {"level": 1}).id
    network.run(2.0)
    assert frames_of(network, third) == [], "nobody wants it"


def test_what_many_want_goes_as_with_epidemic() -> None:
    network = formed()
    for node in range(9):
        network.subscribe(node, "level > 0")
    network.run(5.0)
    event = network.publish(0, {"level": 2}).id
    network.run(2.0)
    assert {frame.message for frame in frames_of(network, event)} == {"copy"}
    assert len([one for one in network.delivered if one.sequence == event.sequence]) == 9 - 1


def test_a_link_that_breaks_is_gone_round() -> None:
    """Before any beacon could say so: by whoever is nearer too, else by all."""
    for links in (LINKS, [*LINKS, (4, 3)], [*LINKS, (8, 3)]):
        network = formed(links)
        network.cut((2, 3))
        event = network.publish(0, {"level": 7}).id
        network.run(3.0)
        got = {one.node for one in network.delivered if one.sequence == event.sequence}
        assert got == ({5} if links == LINKS else {3, 5})


def test_a_subscriber_out_of_reach_is_served_by_all_and_later_when_there_is_a_way_again() -> None:
    network = formed()
    network.cut((2, 3))
    network.run(LOST_LATELY / SECOND - 10)
    sought = network.publish(0, {"level": 7}).id
    network.run(2.0)
    assert {frame.message for frame in frames_of(network, sought)} == {"copy"}, "others may meet it"
    network.run(35.0)
    sought = network.publish(0, {"level": 7}).id
    network.run(2.0)
    assert {frame.message for frame in frames_of(network, sought)} == {"copy"}, "it is sought now and then"
    owed = network.publish(0, {"level": 8}).id
    network.run(2.0)
    assert "copy" not in {frame.message for frame in frames_of(network, owed)}, "and no more than that"
    network.connect((2, 3))
    network.run(6.0)
    network.publish(0, {"level": 9})  # the next time that it is sought
    network.run(4.0)
    assert {one.node for one in network.delivered if one.sequence == owed.sequence} == {3, 5}


def test_lost_frames_are_made_up_for() -> None:
    network = formed(loss=0.2)
    events = set()
    for _ in range(30):
        events.add(network.publish(0, {"level": 7}).sequence)
        network.run(1.0)
    network.run(10.0)
    got = [(one.node, one.sequence) for one in network.delivered if one.sequence in events]
    assert sorted(got) == sorted((node, sequence) for node in (3, 5) for sequence in events)


@pytest.mark.parametrize(("octets", "within"), [(256, 1.0), (0, 6.0)])
def test_an_event_for_a_neighbour_that_has_gone_is_not_lost(octets: int, within: float) -> None:
    """1 and 3 are in reach of 0, which broadcasts; 3 has just left towards 8, where nobody has the event. A
    large one is answered; for a small one 0 has to notice that 3 has gone."""
    network = Network(9, "directed", links=[(0, 1), (0, 3), (1, 2), (0, 6), (6, 7), (7, 8)])
    for subscriber in (1, 3):
        network.subscribe(subscriber, "level > 3")
    network.run(5.0)
    network.publish(0, {"level": 9})
    network.run(10.0)
    network.connect((3, 8))
    network.cut((0, 3))
    event = network.node(0).publish(Publication({"level": 7}, b"x" * octets))
    network.run(within)
    assert {one.node for one in network.delivered if one.sequence == event.sequence} == {1, 3}


def test_what_is_published_just_after_two_parts_met_reaches_both() -> None:
    """6 to 8 with a subscriber that 0 has not heard of: the cut comes back before its record could come."""
    network = Network(9, "directed", links=[link for link in LINKS if link != (0, 6)])
    for subscriber in (3, 8):
        network.subscribe(subscriber, "level > 3")
    network.run(5.0)
    network.publish(0, {"level": 9})
    network.run(10.0)
    assert directed(network, 0).distances.of(3) < GONE, "else it would be sought, by all"
    network.connect((0, 6))
    while 6 not in network.node(0).underlay.neighbours():
        network.run(0.01)
    event = network.publish(0, {"level": 7}).id
    network.run(0.5)
    network.cut((0, 6))
    network.run(2.0)
    assert {one.node for one in network.delivered if one.sequence == event.sequence} == {3, 8}


def test_who_subscribes_later_gets_nothing_from_before() -> None:
    network = formed()
    network.publish(0, {"level": 1})
    network.run(3.0)
    network.subscribe(8, "level = 1")
    network.run(10.0)
    assert all(one.node != 8 for one in network.delivered)


def test_lying_distances_cost_frames_and_no_event() -> None:
    """7 says that it is beside both subscribers, whatever it hears."""
    network = formed([*LINKS, (7, 1)])
    for _ in range(12):
        for near in (0, 1, 6):
            strategy = directed(network, near)
            lie = bytes([0, 3, 0x10 | 15, 3, 0, 5, 0x10 | 15, 5])
            strategy.on_rider(7, Rider(entries=lie).encode())
        event = network.publish(0, {"level": 7})
        network.run(1.5)
        got = {one.node for one in network.delivered if one.sequence == event.sequence}
        assert got == {3, 5}


def test_a_forged_record_is_outbid_by_its_owner() -> None:
    network = formed()
    nothing = InterestRows((InterestRow((), (3, 1 << 30)),))
    network.hear(2, 1, CODEC.encode(nothing))
    network.run(5.0)
    for node in range(9):
        record = directed(network, node).interests.records[3]
        assert record.filters == (Filter.sql("level > 3").encode(),) and record.version > 1 << 30


def test_destinations_are_reached_without_any_subscription() -> None:
    network = formed()
    for _ in range(3):
        event = network.publish(0, to=[8])
        network.run(5.0)
        assert (8, event.sequence) in {(one.node, one.sequence) for one in network.delivered}
    assert {frame.message for frame in frames_of(network, event.id)} == {"directed to one"}
    assert directed(network, 0).distances.of(8) < GONE
