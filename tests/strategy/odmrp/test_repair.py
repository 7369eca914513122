"""What was lost, or came while a node was away, is named, asked for and handed over."""

import pytest
from tests.strategy.odmrp.test_mesh import FAR, LEAF, ME, NEAR, WOODS, Lone, data, request, row

from roamcast.event import Event, EventClass
from roamcast.kit.repair import HeldRuns
from roamcast.strategy.odmrp.messages import (
    Carried,
    DataPacket,
    HandedEvent,
    HeldEvents,
    HeldGroup,
    JoinRequest,
    LackedEvents,
)
from roamcast.strategy.odmrp.repair import TELLINGS
from roamcast.strategy.odmrp.summary.summary import EventDigest
from roamcast.testing import FakeHost, Network, line
from roamcast.units import SECOND

PALMER = EventDigest.of(Event(FAR, 0, {"player": "palmer"})).encode()


def held(digest: bytes, *sequences: int) -> HeldGroup:
    return HeldGroup(digest, (), tuple(HeldRuns(FAR, (number, number)) for number in sequences))


def wanted(node: Lone) -> list[tuple[int, tuple[int, ...]]]:
    carried = node.sent(Carried)
    return [(one.target, one.content.events) for one in carried if isinstance(one.content, LackedEvents)]


# Recent events.


def test_who_wants_a_named_event_and_lacks_it_asks_and_nobody_else() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, data(1))
    node.hears(NEAR, HeldEvents((held(WOODS, 1, 2), held(PALMER, 3))))
    assert wanted(node) == [(NEAR, (FAR, 2))]
    node.hears(NEAR, Carried(NEAR, ME, 0, HandedEvent(1, 0, Event(FAR, 2, {"player": "woods"}))))
    assert [event.sequence for event in node.got.events] == [1, 2]


def test_who_gets_no_answer_asks_once_more() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, HeldEvents((held(WOODS, 2),)))
    node.host.advance(10 * SECOND)
    assert wanted(node) == [(NEAR, (FAR, 2))] * 2


def test_a_relay_asks_for_the_members_behind_it() -> None:
    node = Lone()
    node.hears(NEAR, request())
    node.hears(LEAF, row())
    node.hears(NEAR, HeldEvents((held(WOODS, 2), held(PALMER, 3))))
    assert wanted(node) == [(NEAR, (FAR, 2))]
    node.hears(NEAR, Carried(NEAR, ME, 0, HandedEvent(1, 0, Event(FAR, 2, {"player": "woods"}))))
    node.host.advance(3 * SECOND)
    (named, *_) = node.sent(HeldEvents)  # so that they ask, in turn
    assert named.groups == (held(WOODS, 2),)


def test_a_relay_names_what_it_passed_on_a_few_times_and_gives_it_to_who_asks() -> None:
    node = Lone()
    node.hears(NEAR, request())
    node.hears(LEAF, row())
    node.hears(NEAR, data(1))
    node.host.advance(100_000)
    assert len(node.sent(DataPacket)) == 1 and node.sent(HeldEvents) == []  # most are about to get it
    node.host.advance(4 * SECOND)
    assert [one.groups for one in node.sent(HeldEvents)] == [(held(WOODS, 1),)] * TELLINGS
    node.hears(LEAF, Carried(LEAF, ME, 0, LackedEvents((FAR, 1, FAR, 9))))
    (handed,) = [one for one in node.sent(Carried) if isinstance(one.content, HandedEvent)]
    assert handed.target == LEAF and handed.content.event.sequence == 1


@pytest.mark.parametrize(("octet", "soonest"), [(1, 150_000), (32, 300_000)])
def test_on_a_fast_radio_an_event_is_named_soon_and_on_a_slow_one_later(octet: int, soonest: int) -> None:
    class Radio(FakeHost):
        def airtime(self, octets: int) -> int:
            return octet * octets

    node = Lone(Radio(node=ME))
    node.hears(NEAR, request())
    node.hears(LEAF, row())
    node.hears(NEAR, data(1))
    node.host.advance(soonest - 1)
    assert node.sent(HeldEvents) == []  # most are about to get it
    node.host.advance(soonest + 1)
    assert len(node.sent(HeldEvents)) == 1


def test_without_repair_nothing_is_named() -> None:
    node = Lone(repair=False, grouping="none")
    node.wants("player = 'woods'")
    node.hears(NEAR, data(1, digest=b""))
    node.host.advance(20 * SECOND)
    assert node.sent(HeldEvents) == []


@pytest.mark.parametrize("loss", [0.05, 0.1])
def test_on_a_lossy_line_all_arrive(loss: float) -> None:
    network = Network(5, "odmrp", links=line(5), loss=loss)
    for node in (2, 4):
        network.subscribe(node)
    network.run(1.0)
    for _ in range(40):
        network.publish(0, {"a": 1})
        network.run(1.0)
    network.run(10.0)
    # The first ones may come before anybody has joined.
    assert len({(one.node, one.sequence) for one in network.delivered if one.sequence >= 5}) == 2 * 35


def test_on_six_lossy_lines_nearly_all_arrive() -> None:
    arrived = 0
    for seed in range(1, 7):
        network = Network(5, "odmrp", links=line(5), loss=0.1, seed=seed)
        for node in (2, 4):
            network.subscribe(node)
        network.run(1.0)
        for _ in range(40):
            network.publish(0, {"a": 1})
            network.run(1.0)
        network.run(10.0)
        arrived += len({(one.node, one.sequence) for one in network.delivered if one.sequence >= 5})
    assert arrived >= 0.995 * 6 * 2 * 35  # 0.97 when an unanswered request was not repeated


# Memorized events.


def memorized(sequence: int, lifetime: int = 600 * SECOND) -> Event:
    return Event(FAR, sequence, {"player": "woods"}, event_class=EventClass.MEMORIZED, lifetime=lifetime)


def test_a_chain_cut_healed_and_without_its_publisher_serves_a_late_subscriber() -> None:
    network = Network(3, "odmrp", links=line(3))
    network.run(5.0)
    network.cut((1, 2))
    network.publish(0, {"a": 1}, lifetime=600.0)
    network.run(20.0)
    network.connect((1, 2))
    network.crash(0)
    network.run(60.0)
    network.subscribe(2)
    network.run(20.0)
    assert [(one.node, one.sequence) for one in network.delivered] == [(2, 0)]


def test_what_was_memorized_before_a_restart_is_named_again() -> None:
    network = Network(3, "odmrp", links=line(3), disks=10)
    network.run(1.0)
    network.publish(0, {"a": 1}, lifetime=600.0)
    for node in range(3):
        network.crash(node)
    network.run(5.0)
    for node in range(3):
        network.restart(node)
    network.subscribe(2)
    network.run(15.0)
    assert [(one.node, one.sequence) for one in network.delivered] == [(2, 0)]


def test_a_holder_is_silent_while_another_names_the_event_and_then_names_it() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, data(1, event=memorized(1)))
    for sequence in range(1, 5):
        node.hears(NEAR, request(sequence, digests=(), held=(held(WOODS, 1),)))
        node.host.advance(5 * SECOND)
    assert node.sent(JoinRequest)[4:] == []  # it only passes on what it hears
    node.host.advance(30 * SECOND)
    named = [asked.held for asked in node.sent(JoinRequest) if asked.publisher == ME]
    assert named and set(named) == {(held(WOODS, 1),)}


@pytest.mark.parametrize(("other", "goes_on"), [(ME - 1, False), (ME + 1, True)])
def test_of_two_that_name_an_event_the_lower_number_goes_on(other: int, goes_on: bool) -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, data(1, event=memorized(1)))
    node.host.advance(40 * SECOND)
    before = len([asked for asked in node.sent(JoinRequest) if asked.publisher == ME])
    assert before > 0
    for sequence in range(1, 7):
        asked = JoinRequest(
            other, sequence, 0, 25 * SECOND, False, False, (), (), (), 0, (), held=(held(WOODS, 1),)
        )
        node.hears(other, asked)
        node.host.advance(5 * SECOND)
    after = len([asked for asked in node.sent(JoinRequest) if asked.publisher == ME])
    assert (after > before + 1) == goes_on


def test_a_node_between_answers_itself_and_passes_the_rest_on() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, request(digests=(), held=(held(WOODS, 1, 2),)))
    node.hears(NEAR, data(1, event=memorized(1)))
    node.hears(LEAF, Carried(LEAF, FAR, 0, LackedEvents((FAR, 1, FAR, 2))))
    passed = [one for one in node.sent(Carried) if one.origin == LEAF]
    assert [(one.target, one.content.events) for one in passed] == [(FAR, (FAR, 2))]
    handed = [one for one in node.sent(Carried) if isinstance(one.content, HandedEvent)]
    assert [(one.target, one.content.event.sequence) for one in handed] == [(LEAF, 1)]


def test_brokers_carry_what_they_do_not_want_unless_told_otherwise() -> None:
    for carry in (True, False):
        node = Lone(carry=carry)
        node.hears(NEAR, request(digests=(), held=(held(WOODS, 1),)))
        node.host.advance(SECOND // 2)
        assert wanted(node) == ([(FAR, (FAR, 1))] if carry else [])
