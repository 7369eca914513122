"""Requests and receipts at the one who asks: what counts, what is dropped, and when it is over."""

import pytest
from tests.exchange.rig import Asked, ExchangeNetwork, Member

from roamcast.errors import InputError
from roamcast.event import Publication
from roamcast.exchange import Question, inquiries
from roamcast.filter import Filter
from roamcast.testing import line
from roamcast.units import SECOND
from roamcast.wire.exchange import (
    CORRELATION,
    EXPIRY,
    NODE_NAME,
    RESPONSE_TOPIC,
    ReplyAddress,
    addressed,
    reply_address,
    reply_topic,
)

NOW = Question(5 * SECOND, 2)


def two() -> tuple[ExchangeNetwork, Member, Member]:
    network = ExchangeNetwork(2, "flooding", links=line(2))
    network.run(1.0)
    return network, network.members[0], network.members[1]


def asked_by(one: Member, question: Question = NOW) -> tuple[Asked, int]:
    asked = one.ask(Publication(topic="who"), question)
    assert asked.inquiry is not None
    return asked, asked.inquiry.token


def said(other: Member, token: int, payload: bytes = b"", node: int = 0, **attributes: str | int) -> None:
    topic = reply_topic(ReplyAddress(node, token))
    other.session.publish(
        Publication({name.replace("_", "."): value for name, value in attributes.items()}, payload, topic)
    )


def test_a_request_is_what_mqtt_5_has_and_its_reply_is_for_the_asking_node_alone() -> None:
    network, one, other = two()
    other.session.subscribe(Filter.topic("who"))
    other.session.subscribe(Filter.topic("$reply/#"))
    asked, token = asked_by(one)
    network.run(1.0)
    (request,) = other.got
    assert request.attributes == {
        "mqtt": 1,
        RESPONSE_TOPIC: f"$reply/0/{token:016x}",
        CORRELATION: request.attributes[CORRELATION],
        EXPIRY: 5,
    }
    said(other, token, b"I")
    network.run(1.0)
    assert asked.payloads == [b"I"] and not asked.is_over
    assert other.got == [request]  # its own subscription to reply topics gets nothing
    assert asked.deliveries[0].event.destinations == (0,)


def test_a_request_is_over_with_its_last_answer_or_at_its_deadline_and_late_answers_are_counted() -> None:
    network, one, other = two()
    first, token = asked_by(one)
    for _ in range(3):
        said(other, token)
        network.run(0.1)
    assert first.is_over and len(first.deliveries) == 2
    second, token = asked_by(one)
    network.run(4.9)
    assert not second.is_over
    network.run(0.2)
    assert second.is_over
    said(other, token)
    network.run(1.0)
    assert not second.deliveries
    assert one.counters.counts == {"answers_dropped_total:late": 2}


def test_a_forged_reply_is_dropped_and_counted() -> None:
    network, one, other = two()
    asked, token = asked_by(one)
    said(other, token ^ 1)  # no such request
    said(other, token, node=1)  # one of another node: it is published to that node
    for topic in (
        "$reply/0/1",
        "$reply/0/" + "f" * 17,
        "$reply/x/" + "0" * 16,
        "$reply/99999999999999999999/0",
    ):
        other.session.publish(Publication(topic=topic, destinations=(0,)))
    network.run(1.0)
    assert not asked.deliveries
    assert one.counters.counts == {"answers_dropped_total:unknown": 5}
    assert other.counters.counts == {"answers_dropped_total:unknown": 1}


def test_a_receipt_counts_once_for_each_node_and_only_if_it_was_asked_for() -> None:
    network, one, other = two()
    asked, token = asked_by(one, Question(5 * SECOND, 1, receipts=True, named=("bob", "1", "carol")))
    said(other, token, roamcast_node="mallory")  # node 1, whatever its name is
    said(other, token, roamcast_node="carol")  # a second one of the same node; its own comes too
    network.run(1.0)
    assert [delivery.event.attributes[NODE_NAME] for delivery in asked.deliveries] == ["mallory"]
    assert one.counters.counts == {"answers_dropped_total:unasked": 2} and not asked.is_over


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (Question(0), "deadline: is 0 seconds"),
        (Question(86_401 * SECOND), "deadline: is 86401 seconds; allowed: more than 0, at most 86400"),
        (Question(SECOND, 0), "answers: is 0; allowed: 1 to 1000"),
        (Question(SECOND, 1_001, receipts=True), "reached: is 1001"),
        (Question(SECOND, 1, True, tuple(map(str, range(65)))), "reached: names 65 nodes"),
        (Question(SECOND, 1, True, ("bob", "node-0")), "reached: names node-0, this node itself"),
    ],
)
def test_what_nobody_can_want_is_refused(question: Question, problem: str) -> None:
    _, one, _ = two()
    with pytest.raises(InputError, match=problem):
        one.ask(Publication(topic="who"), question)


def test_open_requests_are_bounded_and_a_closed_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiries, "OPEN_MAX", 2)
    network, one, other = two()
    asked, token = asked_by(one)
    asked_by(one)
    with pytest.raises(InputError, match="one too many; a node has at most 2 open"):
        asked_by(one)
    assert asked.inquiry is not None
    asked.inquiry.close()
    asked_by(one)
    said(other, token)
    network.run(10.0)
    assert not asked.deliveries and not asked.is_over  # its owner left, and hears nothing


def test_a_node_named_by_number_becomes_a_destination_beside_the_subscribers() -> None:
    _, one, _ = two()
    named = Question(SECOND, 1, receipts=True, named=("7", "bob"))
    asked = one.ask(Publication(topic="who"), named)
    assert asked.inquiry is not None
    assert (asked.inquiry.publication.destinations, asked.inquiry.publication.multimode) == ((7,), True)
    private = one.ask(Publication(topic="who", destinations=(7, 8)), named)
    assert private.inquiry is not None
    assert (private.inquiry.publication.destinations, private.inquiry.publication.multimode) == (
        (7, 8),
        False,
    )
    with pytest.raises(InputError, match="names node 7, which the event is not addressed to"):
        one.ask(Publication(topic="who", destinations=(8,)), named)


def test_only_a_whole_reply_topic_is_an_address() -> None:
    address = ReplyAddress(2**63 - 1, 2**63 - 1)
    assert reply_address(reply_topic(address)) == address
    to_all = Publication(topic=reply_topic(address) + "/more", destinations=(3,), multimode=True)
    assert addressed(to_all) is to_all
    assert reply_address("$reply/٣/" + "0" * 16) is None  # no digit of ASCII
    private = addressed(Publication(topic=reply_topic(address), destinations=(3,), multimode=True))
    assert (private.destinations, private.multimode) == ((2**63 - 1,), False)
