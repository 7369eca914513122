"""Many subscriptions of one client: few messages to its home, which takes up only what has changed."""

from typing import cast

import pytest

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.opportunistic import Opportunistic, consumers
from roamcast.strategy.opportunistic.client import BURST_MAX
from roamcast.strategy.opportunistic.consumers import Consumers
from roamcast.strategy.opportunistic.messages import SUBSCRIPTIONS_MAX, AttachMessage, ClientRow, Interest
from roamcast.testing import Network, line


def _attach_messages(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[AttachMessage]:
    streams = cast(Opportunistic, network.node(0).strategy).client._streams
    written: list[AttachMessage] = []
    write = streams.write

    def counted(to: int, message: object) -> None:
        if isinstance(message, AttachMessage):
            written.append(message)
        write(to, message)  # type: ignore[arg-type]

    monkeypatch.setattr(streams, "write", counted)
    return written


def test_subscriptions_made_together_share_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(2, "opportunistic", links=line(2))
    network.run(10.0)
    network.subscribe(0, Filter.topic("first"))
    network.run(1.0)
    messages = _attach_messages(network, monkeypatch)
    numbers = [network.subscribe(0, Filter.topic(f"site/{number}")) for number in range(200)]
    assert len(messages) == BURST_MAX
    network.run(1.0)
    assert len(messages) == BURST_MAX + 1
    assert [one.number for one in messages[-1].interests][1:] == numbers
    network.publish(1, topic="site/199")
    network.run(1.0)
    assert len(network.delivered) == 1


def test_changes_without_a_pause_are_told_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(2, "opportunistic", links=line(2))
    network.run(10.0)
    for number in range(SUBSCRIPTIONS_MAX + 1):
        network.subscribe(0, Filter.topic(f"site/{number}"))
    network.run(1.0)
    messages = _attach_messages(network, monkeypatch)
    for number in range(200):  # a second: no change puts off the message that waits
        network.subscribe(0, Filter.topic(f"more/{number}"))
        network.run(0.005)
    assert 9 <= len(messages) <= 11


def test_only_changed_filters_are_indexed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interests(topics: list[str]) -> tuple[Interest, ...]:
        return tuple(Interest(int(topic), Filter.topic(topic).encode(), None) for topic in topics)

    known = Consumers()
    event = Event(3, 1, topic="7")
    known.update(5, 1, ClientRow(5, 1, False, interests([str(number) for number in range(200)])))
    assert known.matching(event)
    decoded: list[bytes] = []

    class Counted:
        @staticmethod
        def decode(octets: bytes) -> Filter:
            decoded.append(octets)
            return Filter.decode(octets)

    monkeypatch.setattr(consumers, "Filter", Counted)
    new = known.update(5, 2, ClientRow(5, 1, False, interests([str(n) for n in range(201) if n != 7])))
    assert [one.number for one in new] == [200]
    assert not known.matching(event)
    assert known.matching(Event(3, 2, topic="200"))
    assert len(decoded) == 1
