"""Offers and their answers, one side each."""

from roamcast.event import EventId
from roamcast.strategy.tree.content.messages import EventOffer, WantAnswer
from roamcast.strategy.tree.content.offers import TRIES, Offers, Wanted

EVENTS = [EventId(1, number) for number in range(5)]
PAIRS = tuple((event.publisher, event.sequence) for event in EVENTS)


def test_an_offer_is_repeated_until_answered_and_given_up_in_the_end() -> None:
    offers = Offers(3)
    offers.add(EVENTS)
    assert [offers.due() for _ in range(TRIES)] == [EventOffer(1, PAIRS[:3])] * TRIES
    assert offers.due() == EventOffer(2, PAIRS[3:])


def test_what_the_neighbour_did_not_look_at_is_offered_again_first() -> None:
    offers = Offers(4)
    offers.add(EVENTS)
    offers.due()
    assert offers.on_answer(WantAnswer(1, 2, PAIRS[:1])) == tuple(EVENTS[:2])
    assert offers.is_busy, "one event is on its way"
    assert not offers.on_received(0)
    assert offers.on_received(1)
    assert not offers.on_received(1)
    assert offers.due() == EventOffer(2, PAIRS[2:])


def test_an_old_answer_changes_nothing() -> None:
    offers = Offers(1)
    offers.add(EVENTS[:2])
    offers.due()
    offers.on_answer(WantAnswer(1, 1, ()))
    assert not offers.is_busy
    offers.due()
    assert offers.on_answer(WantAnswer(1, 1, PAIRS[:1])) == ()
    assert offers.is_busy


def test_all_that_was_asked_for_has_come_with_the_last() -> None:
    wanted = Wanted()
    wanted.on_asked(7, EVENTS[:2])
    assert wanted.on_event(EVENTS[4]) is None
    assert wanted.on_event(EVENTS[1]) is None
    assert wanted.on_event(EVENTS[0]) == 7
    assert wanted.on_event(EVENTS[0]) is None
