"""Who is asked for events answers as far as it has every one of them."""

import pytest
from tests.strategy.opportunistic.station import PLAIN, Station

from roamcast.event import Event
from roamcast.strategy.opportunistic.copies import EventCopy
from roamcast.strategy.opportunistic.messages import CarryMessage, Fetch, Head
from roamcast.units import NodeId

HOME, CONSUMER, PRODUCER = 1, 7, 50


def answer(producer: NodeId, had: list[int]) -> tuple[list[int], list[int]]:
    """To a question for 0 to 5: which events are sent, and until which one that is said to be all."""
    station = Station(HOME)
    for sequence in had:
        station.copies.add(EventCopy(Event(producer, sequence), sequence, 0, 1, 0), None)
    fetch = Fetch(CONSUMER, False, producer, 0, 5, 10**9, (PLAIN.filter,))
    station.reading.on_fetch(CONSUMER, fetch, 0)
    messages = station.streams.to(CONSUMER)
    sent = [message.event.sequence for message in messages if isinstance(message, CarryMessage)]
    return sent, [message.until for message in messages if isinstance(message, Head) and message.is_all]


@pytest.mark.parametrize(
    ("had", "sent", "until"),
    [
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [5]),
        ([0, 1, 3, 5], [0, 1], [1]),  # another home of the producer had 2
        ([2, 3], [], []),
        ([], [], []),
    ],
)
def test_a_home_says_no_more_than_it_knows(had: list[int], sent: list[int], until: list[int]) -> None:
    assert answer(PRODUCER, had) == (sent, until)


def test_the_producer_itself_knows_what_is_not_to_be_had() -> None:
    assert answer(HOME, [0, 3]) == ([0, 3], [5])
