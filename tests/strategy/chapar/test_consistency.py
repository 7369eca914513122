"""The table consistency check against the paper's text, and that it says nothing needless."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.strategy.chapar.network import OPTIONS, Network, clique, line
from tests.strategy.chapar.test_hostile import Around, node

from roamcast.event import Event, EventClass
from roamcast.host import SendFailure
from roamcast.strategy.chapar import ChaparOptions
from roamcast.strategy.chapar.consistency_check import PART
from roamcast.strategy.chapar.messages import (
    CODEC,
    BrokerAnswer,
    Check,
    Decline,
    InterestRegister,
    Lists,
    Memorized,
    Records,
    Request,
)
from roamcast.trace import Dropped
from roamcast.units import SECOND, NodeId

PAPER = ChaparOptions(preset="paper")


def a_broker(options: ChaparOptions) -> tuple[Any, Any]:
    """Node 0, which has just been appointed, as 1 to 3 are; 2 is asked for its tables."""
    around = Around([2, 3])
    host, chapar = node([], options, around)
    host.advance(SECOND)
    around._relays = [0, 1, 2, 3]
    chapar.on_routes_changed()
    host.advance(3 * SECOND)
    assert chapar.brokers.is_broker
    host.sent.clear()
    return host, chapar


def sent(host: Any, kind: type) -> list[tuple[NodeId | None, Any]]:
    decoded = [(each.to, CODEC.decode(each.frame.payload)) for each in host.sent]
    return [(to, message) for to, message in decoded if isinstance(message, kind)]


def an_event(sequence: int) -> Event:
    return Event(9, sequence, {}, event_class=EventClass.MEMORIZED, lifetime=600 * SECOND)


def test_nobody_declines_a_brokers_own_subscription_and_no_broker_offers_it_what_it_has() -> None:
    network = Network(12, clique(range(12)), options=OPTIONS)
    network.run(8)
    event = network.publish(5, {"a": 1}, lifetime=600.0)
    network.run(2)
    network.subscribe(network.brokers()[0], "a = 1")
    network.run(2)
    assert network.got(event) == {network.brokers()[0]: 1}
    assert network.frames(Decline) == [] and network.frames(BrokerAnswer) == []


@pytest.mark.parametrize("preset", ["paper", "prompt"])
def test_a_check_is_answered_at_once_and_to_its_sender_by_the_paper(preset: Any) -> None:
    host, chapar = a_broker(ChaparOptions(preset=preset))
    chapar.on_receive(2, CODEC.encode(Check(b"other", b"")))
    at_once = sent(host, Lists)
    chapar.on_receive(3, CODEC.encode(Lists(to=2)))  # another broker's answer
    host.advance(SECOND)
    later = sent(host, Lists)
    assert ([to for to, _ in at_once], len(later)) == (([2], 1) if preset == "paper" else ([], 0))


def test_an_event_is_a_change_of_the_tables_too() -> None:
    """An answer that waits is left out, because what made the tables differ is on its way; and a check comes
    ahead of time."""
    host, chapar = a_broker(ChaparOptions(consistency_interval=1_000.0))
    host.advance(5 * SECOND)
    host.sent.clear()
    chapar.on_receive(2, CODEC.encode(Check(b"other", b"")))
    chapar.on_receive(2, CODEC.encode(Memorized(an_event(1), 0, 0)))
    host.advance(2 * SECOND)
    assert sent(host, Lists) == [] and len(sent(host, Check)) == 1


def test_what_is_inherited_in_parts_is_not_flooded_again() -> None:
    host, chapar = a_broker(ChaparOptions())
    events = [an_event(sequence) for sequence in range(1, 6)]
    for part, (first, end) in enumerate([((0, 0), (9, 3)), ((9, 3), None)]):
        keys = tuple(event.id for event in events if first <= event.id and (end is None or event.id < end))
        lists = Lists(keys, ((20 + part, 1),), to=0, first_event=first, end_event=end)
        chapar.on_receive(2, CODEC.encode(lists))
    assert [len(request.events) for _, request in sent(host, Request)] == [2, 3]
    for event in events:
        chapar.on_receive(2, CODEC.encode(Memorized(event, 0, 0)))
    chapar.on_receive(
        2, CODEC.encode(Records((InterestRegister(20, 1, ()), InterestRegister(21, 1, ())), True))
    )
    host.advance(SECOND)
    flooded = [message for kind in (Memorized, Records) for to, message in sent(host, kind) if to is None]
    assert flooded == []
    chapar.on_receive(3, CODEC.encode(Memorized(an_event(7), 0, 0)))
    host.advance(SECOND)
    assert len(sent(host, Memorized)) == 1  # else the lines above prove nothing


def test_what_inheritance_asked_for_in_vain_is_forgotten() -> None:
    host, chapar = a_broker(ChaparOptions())
    chapar.on_receive(2, CODEC.encode(Lists((an_event(1).id,), to=0)))
    assert len(chapar._consistency.inherited) == 1
    host.advance(90 * SECOND)
    assert len(chapar._consistency.inherited) == 0


def test_a_lost_request_leaves_those_to_others_alone() -> None:
    host, chapar = a_broker(ChaparOptions())
    chapar.on_receive(2, CODEC.encode(Lists((an_event(1).id,), to=0)))
    chapar.on_receive(3, CODEC.encode(Lists((an_event(2).id,), to=0)))
    asked = [each for each in host.sent if isinstance(CODEC.decode(each.frame.payload), Request)]
    assert [each.to for each in asked] == [2, 3]
    asked[0].on_failure(SendFailure.LINK)
    host.sent.clear()
    chapar.on_receive(1, CODEC.encode(Lists((an_event(1).id, an_event(2).id), to=0)))
    assert [request.events for _, request in sent(host, Request)] == [((9, 1),)]


def test_bounds_of_answers_are_traced() -> None:
    host, chapar = a_broker(replace(ChaparOptions(), pending_max=1))
    for sender in (2, 3):
        chapar.on_receive(sender, CODEC.encode(Check(b"other", b"")))
    for publisher in range(2 * PART):  # each names an event before it that never came
        event = Event(publisher, 2, {}, event_class=EventClass.MEMORIZED, lifetime=600 * SECOND)
        chapar.on_receive(1, CODEC.encode(Memorized(event, 0, 0, ((1, 600 * SECOND),))))
    chapar.on_receive(2, CODEC.encode(Check(b"", b"", True)))
    details = {record.detail for record in host.records if isinstance(record, Dropped)}
    assert {"pending_max", "PART"} <= details


# The paper's own list: a hash of each record of the filter table.


def test_by_hashes_brokers_complete_each_others_tables_and_an_old_register_is_corrected() -> None:
    options = replace(OPTIONS, preset="paper", consistency_interval=5.0, role_interval=0.1)
    network = Network(4, [(0, 1), (2, 3)], options=options)
    network.run(1)
    network.subscribe(0, "a = 1")
    network.run(8)
    network.connect(line(4))
    network.run(16)
    network.subscribe(3, "a = 2")
    network.run(2)
    network.connect([(0, 1), (2, 3)])
    network.run(1)
    network.unsubscribe(0)  # unknown beyond the cut, where an old record stands
    network.subscribe(1, "a = 3")
    network.run(8)
    network.connect(line(4))
    network.run(22)
    tables = [network.places[each].chapar.tables.filters for each in network.brokers()]
    assert len(tables) >= 2 and len({tuple(table.rows()) for table in tables}) == 1
    assert tables[0].filter_ids(0) == [] and len(tables[0].rows()) == 2
    assert any(lists.versions and lists.versions[0][1] == 1 for _, _, lists in network.frames(Lists))


# What rides on HELLOs.


def test_by_the_paper_nodes_and_brokers_agree_without_a_frame_of_their_own() -> None:
    options = replace(OPTIONS, preset="paper", consistency_interval=5.0, role_interval=0.1)
    network = Network(6, clique(range(6)), options=options, has_olsr=True)
    network.run(30)
    network.medium.sent.clear()  # before that each was its own broker
    network.subscribe(5, "a = 1")
    event = network.publish(4, {"a": 1}, lifetime=600.0)
    network.run(30)
    assert network.got(event) == {5: 1}
    own = [(to, message) for _, to, message in network.medium.sent if not isinstance(message, Check)]
    assert {type(message).__name__ for _, message in own} == {"InterestChange", "Memorized"}, own


def test_a_node_that_lost_its_broker_is_known_to_the_next_by_what_rides() -> None:
    options = replace(OPTIONS, preset="paper", consistency_interval=1_000.0, role_interval=0.1)
    network = Network(5, [(0, 1), (0, 4), (1, 4), (2, 3)], options=options, has_olsr=True)
    network.run(20)
    network.subscribe(4, "a = 1")
    network.run(5)
    network.connect([(2, 3), (2, 4), (3, 4)])  # to brokers that have never heard of it
    network.run(30)
    assert network.places[2].chapar.tables.filters.version(4) > 0
