"""Many subscriptions of one node: lost changes cost one register, of any size."""

from typing import cast

import pytest

from roamcast.filter import Filter
from roamcast.strategy.chapar import Chapar
from roamcast.strategy.chapar.messages import CODEC, InterestChange, InterestRegister, Records, Request
from roamcast.testing import Network, line

STRANGER = 7


def _chapar(network: Network, node: int) -> Chapar:
    return cast(Chapar, network.node(node).strategy)


def _requests(network: Network) -> int:
    asked = [CODEC.decode(payload) for payload in network.payloads()]
    return sum(isinstance(message, Request) and STRANGER in message.subscribers for message in asked)


def test_one_request_for_all_changes_after_a_lost_one() -> None:
    network = Network(2, "chapar", links=line(2))
    network.run(5.0)

    def change(version: int) -> None:
        network.hear(0, 1, CODEC.encode(InterestChange(STRANGER, version, bytes([version]), True)))

    def register(version: int) -> None:
        wanted = tuple(bytes([each]) for each in range(1, version + 1))
        network.hear(0, 1, CODEC.encode(Records((InterestRegister(STRANGER, version, wanted),))))

    change(1)
    for version in range(3, 201):
        change(version)
    assert _requests(network) == 1
    register(100)  # as of when it was asked for: what came since then is asked for again, once
    assert _requests(network) == 2
    register(100)  # a broker that knows no more is not asked again and again
    assert _requests(network) == 2
    register(200)
    assert _requests(network) == 2
    filters = _chapar(network, 0).tables.filters
    assert (filters.version(STRANGER), len(filters.filter_ids(STRANGER))) == (200, 200)
    change(202)  # the next gap is asked for at once
    assert _requests(network) == 3


def test_a_register_of_thousands_of_filters_arrives() -> None:
    network = Network(2, "chapar")
    for number in range(4_500):
        network.subscribe(0, Filter.topic(f"site/{number}/value"))
    network.connect((0, 1))
    network.run(15.0)
    ours, theirs = (_chapar(network, node).tables.filters for node in (0, 1))
    assert len(ours.filter_ids(0)) > 4_100  # hashes of 16 bits: a few are equal
    assert theirs.filter_ids(0) == ours.filter_ids(0)


def test_a_register_that_no_frame_can_hold_asks_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roamcast.strategy.chapar.tables.REGISTER_BYTES_MAX", 100)
    network = Network(2, "chapar")
    for number in range(50):
        network.subscribe(0, Filter.topic(f"site/{number}/value"))
    network.connect((0, 1))
    network.run(15.0)
    assert _chapar(network, 1).tables.filters.filter_ids(0) == [0]
    network.publish(1, topic="site/5/value")
    network.run(1.0)
    assert len(network.delivered) == 1
