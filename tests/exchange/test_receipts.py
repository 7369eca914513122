"""Receipts at those who confirm: who, when, and how few where few are wanted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exchange.rig import ExchangeNetwork

from roamcast.errors import WireError
from roamcast.event import Event, Publication, Value
from roamcast.exchange import Question, exchanges
from roamcast.filter import Filter
from roamcast.testing import line, mesh
from roamcast.units import SECOND
from roamcast.wire.exchange import APPLICATIONS, RECEIPT, ReceiptWanted, encode_wanted, wanted_of

THREE = Question(5 * SECOND, 3, receipts=True)


def listening(nodes: int, links: list[tuple[int, int]], strategy: str = "flooding") -> ExchangeNetwork:
    network = ExchangeNetwork(nodes, strategy, links=links)
    for member in network.members.values():
        if member.number:
            member.session.subscribe(Filter.topic("news"))
    network.run(30.0)
    return network


def grid(wide: int) -> list[tuple[int, int]]:
    across = [(at, at + 1) for at in range(wide * wide) if (at + 1) % wide]
    return across + [(at, at + wide) for at in range(wide * wide - wide)]


@pytest.mark.parametrize(
    ("strategy", "links"), [("flooding", mesh(60)), ("flooding", grid(10)), ("tree", grid(10))]
)
def test_three_receipts_of_a_hundred_make_no_storm(strategy: str, links: list[tuple[int, int]]) -> None:
    nodes = 1 + max(max(link) for link in links)
    network = listening(nodes, links, strategy)
    asked = network.members[0].ask(Publication(topic="news"), THREE)
    network.run(6.0)
    assert asked.is_over and len(asked.deliveries) == 3
    assert network.receipts <= 10  # measured: 3 and 4
    got = [len(member.got) for member in network.members.values()]
    assert got == [0] + [1] * (nodes - 1)  # everyone has the event, and nobody saw "enough"


def test_all_are_wanted_and_all_confirm() -> None:
    network = listening(30, mesh(30))
    asked = network.members[0].ask(Publication(topic="news"), Question(5 * SECOND, 29, receipts=True))
    network.run(6.0)
    assert asked.nodes == list(range(1, 30)) and asked.is_over


def test_a_deadline_that_is_short_shortens_the_wait() -> None:
    network = listening(30, mesh(30))
    asked = network.members[0].ask(Publication(topic="news"), Question(SECOND // 5, 29, receipts=True))
    network.run(1.0)
    assert len(asked.deliveries) == 29


def test_a_node_that_hands_it_to_nobody_does_not_confirm_and_two_programs_are_one_receipt() -> None:
    network = listening(3, line(3))
    listener = network.members[1]
    listener.applications.open(lambda _: None).subscribe(Filter.topic("#"))
    network.members[2].session.close()
    asked = network.members[0].ask(Publication(topic="news"), THREE)
    network.run(6.0)
    assert asked.nodes == [1] and asked.is_over  # at the deadline
    assert asked.deliveries[0].event.attributes[APPLICATIONS] == 2


def test_who_comes_after_the_deadline_of_a_memorized_event_does_not_confirm() -> None:
    network = listening(3, line(3), "epidemic")
    late = network.members[2]
    asked = network.members[0].ask(Publication(topic="other", lifetime=60 * SECOND), THREE)
    network.run(2.0)
    network.members[1].session.subscribe(Filter.topic("other"))
    network.run(4.0)
    late.session.subscribe(Filter.topic("other"))
    network.run(4.0)
    assert asked.nodes == [1]
    assert [event.topic for event in late.got] == ["other"]
    assert not network.members[0].counters.counts


def test_a_wish_that_is_none_is_counted_and_the_event_delivered() -> None:
    network = listening(2, line(2))
    wishes: list[Value] = ["", "[]", "[1,2]", 7.5, None, '["x",1,1,[]]', f"[{2**63},1,1,[]]", "[" * 2_000]
    for wish in wishes:
        network.members[0].session.publish(Publication({RECEIPT: wish}, topic="news"))
        network.run(0.5)
    member = network.members[1]
    assert len(member.got) == len(wishes)
    assert member.counters.counts == {"receipts_dropped_total:malformed": len(wishes)}


def test_a_flood_of_events_that_want_receipts_makes_no_flood_of_receipts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchanges, "WAITING_MAX", 150)
    network = listening(2, line(2))
    member = network.members[1]
    for number in range(200):
        wish = encode_wanted(ReceiptWanted(number, 5 * SECOND, 1))
        network.members[0].session.publish(Publication({RECEIPT: wish}, topic="news"))
    network.run(0.5)
    assert member.exchanges.receipts_sent <= exchanges.PER_SECOND
    assert member.counters.counts["receipts_dropped_total:too_many"] == 200 - member.exchanges.receipts_sent
    assert len(member.got) == 200


def test_enough_counts_only_for_events_of_its_own_publisher() -> None:
    network = listening(3, mesh(3))
    asked = network.members[0].ask(Publication(topic="news"), THREE)
    assert asked.inquiry is not None and asked.inquiry.event is not None
    sequence = asked.inquiry.event.sequence
    network.members[1].session.publish(Publication({RECEIPT: sequence}, topic="news"))
    network.run(6.0)
    assert asked.nodes == [1, 2]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_wish_or_a_wire_error(text: str) -> None:
    event = Event(1, 2, {RECEIPT: text})
    try:
        wanted = wanted_of(event)
    except WireError:
        return
    assert wanted_of(Event(1, 2, {RECEIPT: encode_wanted(wanted)})) == wanted
