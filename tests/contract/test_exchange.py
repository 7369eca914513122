"""Requests, receipts and queries with every strategy, over three hops: none has to know of them."""

import pytest
from tests.exchange.rig import ExchangeNetwork

from roamcast.event import Publication
from roamcast.exchange import Question
from roamcast.filter import Filter
from roamcast.strategy import STRATEGIES
from roamcast.testing import line
from roamcast.units import SECOND
from roamcast.wire.exchange import APPLICATIONS, NODE_NAME

FORMED = 30.0  # seconds


@pytest.mark.parametrize("strategy", STRATEGIES.own_names())
def test_requests_receipts_and_queries_cross_three_hops(strategy: str) -> None:
    network = ExchangeNetwork(4, strategy, links=line(4))
    one, *_ = members = network.members.values()
    for member in members:
        if member.number >= 2:
            member.answers("add/one", b"%d:" % member.number)
            member.session.subscribe(Filter.topic("news"))
    network.run(FORMED)

    asked = one.ask(Publication(topic="add/one", payload=b"41"), Question(5 * SECOND, 2))
    network.run(6.0)
    assert asked.payloads == [b"2:41", b"3:41"]
    assert asked.is_over and max(asked.after) < 3 * SECOND  # and not at the deadline

    told = one.ask(Publication(topic="news"), Question(5 * SECOND, 2, receipts=True))
    network.run(6.0)
    assert told.nodes == [2, 3] and told.is_over and max(told.after) < 3 * SECOND
    assert told.deliveries[0].event.attributes[APPLICATIONS] == 1

    named = one.ask(Publication(topic="news"), Question(5 * SECOND, 1, receipts=True, named=("node-3", "1")))
    network.run(6.0)
    assert named.nodes == [1, 3] and named.is_over  # 1 has no subscription: it is a destination
    by_name = {
        delivery.event.attributes[NODE_NAME]: delivery.event.attributes for delivery in named.deliveries
    }
    assert by_name["node-1"][APPLICATIONS] == 0 and by_name["node-3"][APPLICATIONS] == 1

    for number, text in ((3, b"old"), (3, b"new"), (2, b"other")):
        topic = "site/b" if number == 2 else "site/a"
        kept = Publication({}, text, topic, lifetime=600 * SECOND)
        network.members[number].session.publish(kept, is_admitted=True)  # with those too that promise nothing
        network.run(2.0)
    if STRATEGIES.declared(strategy).stores_everywhere:
        assert [len(network.node(number).broker.store) for number in range(4)] == [3] * 4
    found = one.query(Filter.topic("site/#"), latest=True)
    network.run(4.0)
    assert [(each.event.topic, each.event.payload) for each in found[0].events] == [
        ("site/a", b"new"),
        ("site/b", b"other"),
    ]
    assert found[0].total == 2
    assert not network.node(0).broker.subscriptions()  # that of the query has ended
    got = [event.topic for member in members for event in member.got]
    assert got == ["news"] * 4  # what serves the exchange itself is shown to nobody
    # Nothing was dropped; the asker said once that it has enough receipts.
    assert [member.counters.counts for member in members] == [{"receipts_enough_total": 1}, {}, {}, {}]
