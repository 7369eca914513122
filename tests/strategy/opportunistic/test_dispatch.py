"""A producer's home broker: who gets an event by a message, when it is flooded, and what is said with it."""

import pytest
from tests.strategy.opportunistic.station import Outgoing, PartLayer, shared_of

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.opportunistic import dispatch
from roamcast.strategy.opportunistic.consumers import EventTarget
from roamcast.strategy.opportunistic.copies import EventCopy, FloodBase
from roamcast.strategy.opportunistic.dispatch import LEARNING, Dispatch
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import CarryMessage, ClientRow, Head, Interest
from roamcast.testing import FakeHost
from roamcast.trace import Dropped
from roamcast.underlay.base import Underlay
from roamcast.units import NodeId

PRODUCER = 50


class Twenty(Underlay):
    def known_nodes(self) -> list[NodeId]:
        return list(range(2, 21))

    def distance(self, to: NodeId) -> int | None:
        return 1


class Setting(PartLayer):
    def __init__(self) -> None:
        self.host, self.streams = FakeHost(1), Outgoing()
        self.flooded: list[tuple[int, FloodBase]] = []
        shared = shared_of(self.host, Twenty(), self.streams)
        self.consumers = shared.consumers
        floods = Floods(shared, lambda copy, flood: self.flooded.append((copy.event.sequence, flood)))
        self.dispatch = Dispatch(shared, floods)
        self.host.attach(self)
        self.host.advance(LEARNING)

    def wants(self, *consumers: NodeId) -> None:
        for consumer in consumers:
            interest = Interest(0, Filter.everything().encode())
            self.consumers.update(consumer, 1, ClientRow(1, 1, False, (interest,)))

    def publish(self, sequence: int, previous: int | None = None) -> None:
        before = sequence if previous is None else previous
        self.dispatch.on_published(EventCopy(Event(PRODUCER, sequence), before, 0, 0, self.host.now()))

    def bases(self) -> list[tuple[NodeId, int]]:
        found = [
            (to, message.base) for to, message in self.streams.written if isinstance(message, CarryMessage)
        ]
        self.streams.written.clear()
        return found


def test_each_message_says_which_event_the_consumer_was_sent_before() -> None:
    setting = Setting()
    setting.wants(2)
    setting.publish(0)
    setting.publish(1)
    setting.wants(3)
    setting.publish(2)
    assert setting.bases() == [(2, 0), (2, 1), (2, 2), (3, 2)] and not setting.flooded


def test_an_event_for_a_quarter_of_the_network_is_flooded_and_names_who_was_sent_others_since() -> None:
    setting = Setting()
    setting.wants(2, 3, 4, 5, 6)
    setting.publish(0)
    setting.consumers.forget(6)
    setting.publish(1)
    setting.wants(6)
    setting.publish(2)
    assert setting.flooded == [(0, FloodBase(0, ())), (2, FloodBase(1, (4, 6, 8, 10)))]
    assert setting.bases() == [(2, 1), (3, 1), (4, 1), (5, 1)]


def test_who_published_elsewhere_meanwhile_is_a_stranger() -> None:
    setting = Setting()
    setting.wants(2)
    setting.publish(0)
    setting.publish(9, previous=8)  # 7 went through another broker
    assert setting.bases() == [(2, 0), (2, 8)]


def test_a_consumer_that_was_not_known_hears_what_was_sent_and_all_are_flooded_to_for_a_while() -> None:
    setting = Setting()
    setting.wants(2)
    setting.publish(0)
    setting.wants(3)
    setting.dispatch.on_consumer(EventTarget(3, False))
    assert (3, Head(3, False, PRODUCER, 0, False)) in setting.streams.written
    setting.publish(1)
    assert setting.flooded == [(1, FloodBase(1, (4, 6)))]
    setting.host.advance(LEARNING)
    setting.publish(2)
    assert [sequence for sequence, _ in setting.flooded] == [1]


def test_a_producer_that_is_forgotten_is_forgotten_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two tables that belong together one had a bound; the next new consumer raised `KeyError`."""
    monkeypatch.setattr(dispatch, "PRODUCERS_MAX", 3)
    setting = Setting()
    setting.wants(2)
    for producer in range(4):
        setting.dispatch.on_published(EventCopy(Event(100 + producer, 0), 0, 0, 0, setting.host.now()))
    setting.streams.written.clear()
    setting.dispatch.on_consumer(EventTarget(7, False))
    heads = [message.producer for _, message in setting.streams.written if isinstance(message, Head)]
    assert heads == [101, 102, 103]
    assert [record.message for record in setting.host.records if isinstance(record, Dropped)] == ["publish"]
