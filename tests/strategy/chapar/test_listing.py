"""Tables of any size in messages that fit a frame and that everyone can read."""

import pytest
from msgspec.structs import replace
from tests.strategy.chapar.network import OPTIONS, Network, line

from roamcast.event import EventId
from roamcast.strategy.chapar.consistency_check import list_tables
from roamcast.strategy.chapar.messages import CODEC, Lists, is_between
from roamcast.trace import Dropped, DropReason

LARGE = 2**31 - 2_000  # live nodes have numbers like this


def read_back(messages: list[Lists]) -> list[Lists]:
    encoded = [CODEC.encode(message) for message in messages]
    assert max(map(len, encoded)) <= 1_400
    return [message for message in map(CODEC.decode, encoded) if isinstance(message, Lists)]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 9_000, 20_000])
def test_parts_list_everything_once_and_say_where_they_are_complete(count: int) -> None:
    events = [EventId(LARGE + number // 50, number) for number in range(count)]
    versions = [(LARGE + number, number + 1) for number in range(count // 10)]
    parts = read_back(list_tables(events, versions, events[-3:], to=3))
    assert [key for part in parts for key in part.events or ()] == events
    assert [pair for part in parts for pair in part.versions or ()] == versions
    for key in (EventId(0, 0), *events[::97], EventId(2**60, 5)):
        assert sum(is_between(key, part.first_event, part.end_event) for part in parts) == 1
    for subscriber in (0, *(subscriber for subscriber, _ in versions[::97]), 2**60):
        assert sum(part.tells_of_subscriber(subscriber) for part in parts) == 1


def test_a_table_that_need_not_be_listed_is_not() -> None:
    (part,) = list_tables(None, [(1, 1)], [])
    assert part.events is None and part.versions == ((1, 1),)
    assert part.tells_of_subscriber(7)


@pytest.mark.long
def test_five_thousand_memorized_events_cross_a_healed_partition_within_two_periods() -> None:
    options = replace(OPTIONS, consistency_interval=10.0)
    network = Network(4, [(0, 1), (2, 3)], options=options, has_olsr=True)
    network.subscribe(3, "a = 1")
    network.run(3)
    for _ in range(50):
        for _ in range(100):
            network.publish(0, {"a": 1}, lifetime=600.0)
        network.run(1)
    network.connect(line(4))
    network.run(20)
    order = [key for _, node, key in network.delivered if node == 3]
    assert len(order) == 5_000 and order == sorted(order)
    refused = [drop for drop in network.trace.of(Dropped) if drop.reason is DropReason.WIRE]
    assert refused == []
