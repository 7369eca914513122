"""Queries: what is newest, what was cut, and what is cleared."""

import pytest
from tests.exchange.rig import ExchangeNetwork, Member

from roamcast.broker.retained import AT, FLAGS, RETAINED
from roamcast.errors import InputError
from roamcast.event import SEALED_TYPE, Event, EventClass, Publication, Value
from roamcast.exchange import FoundEvents, QueryQuestion, exchanges
from roamcast.filter import Filter
from roamcast.testing import line
from roamcast.units import SECOND

SITE = Filter.topic("site/#")


def two(strategy: str = "epidemic") -> tuple[ExchangeNetwork, Member, Member]:
    network = ExchangeNetwork(2, strategy, links=line(2))
    network.run(30.0)
    return network, network.members[0], network.members[1]


def memorize(member: Member, topic: str, payload: bytes, at: int | None = None, seconds: int = 600) -> None:
    attributes: dict[str, Value] = {} if at is None else {FLAGS: RETAINED, AT: at}
    member.session.publish(Publication(attributes, payload, topic, lifetime=seconds * SECOND))


def shown(found: list[FoundEvents]) -> list[tuple[str, bytes]]:
    return [(one.event.topic, one.event.payload) for one in found[0].events]


def test_the_last_of_each_topic_is_the_last_published_whoever_published_it() -> None:
    network, one, other = two()
    for member, text in ((other, b"first"), (one, b"second"), (other, b"third"), (one, b"last")):
        memorize(member, "site/a", text)
        network.run(1.0)
    memorize(other, "site/b", b"only")
    network.run(1.0)
    for member in (one, other):
        found = member.query(SITE, latest=True)
        assert shown(found) == [("site/a", b"last"), ("site/b", b"only")] and found[0].total == 2
        assert len(member.query(SITE)[0].events) == 5
    assert 1.9 * SECOND < found[0].events[0].age < 2.1 * SECOND


def test_of_retained_ones_the_stamp_decides_and_a_cleared_topic_is_not_there() -> None:
    network, one, other = two()
    memorize(one, "site/a", b"newer", at=200)
    memorize(other, "site/a", b"older, but published later", at=100)
    memorize(one, "site/b", b"there", at=100)
    network.run(1.0)
    memorize(other, "site/b", b"", at=200)
    memorize(one, "site/c", b"plain")
    network.run(1.0)
    memorize(other, "site/c", b"retained", at=1)
    network.run(1.0)
    for latest in (False, True):
        found = one.query(SITE, latest=latest)
        assert ("site/a", b"newer") in shown(found) and "site/b" not in dict(shown(found))
    assert shown(found) == [("site/a", b"newer"), ("site/c", b"retained")]


def test_an_answer_is_cut_to_the_newest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    network, one, _ = two()
    for number in range(10):
        memorize(one, f"site/{number}", b"x" * 1000)
        network.run(0.1)
    (found,) = one.query(SITE, limit=3)
    assert [each.event.topic for each in found.events] == ["site/7", "site/8", "site/9"]
    assert found.total == 10
    monkeypatch.setattr(exchanges, "OCTETS_MAX", 4_000)  # each counts 1,500
    (found,) = one.query(SITE)
    assert [each.event.topic for each in found.events] == ["site/8", "site/9"] and found.total == 10


def test_a_payload_too_large_for_an_answer_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    network, one, _ = two()
    memorize(one, "site/small", b"x")
    network.run(0.1)
    memorize(one, "site/large", b"x" * 100_000)
    network.run(5.0)
    monkeypatch.setattr(exchanges, "OCTETS_MAX", 50_000)
    (found,) = one.query(SITE)
    assert [each.event.topic for each in found.events] == ["site/small"] and found.total == 2


def test_what_has_expired_or_is_for_others_is_not_there() -> None:
    network, one, other = two()
    memorize(one, "site/a", b"short", seconds=2)
    other.session.publish(Publication(topic="site/b", destinations=(0,), lifetime=600 * SECOND))
    network.run(3.0)
    assert one.query(SITE)[0] == FoundEvents((), 0)


def test_a_query_waits_for_other_nodes_only_where_they_keep_something_else() -> None:
    for strategy, at_once in (("epidemic", True), ("tree", False)):
        network, one, other = two(strategy)
        memorize(other, "site/a", b"there")
        network.run(1.0)
        found = one.query(SITE)
        assert bool(found) == at_once
        network.run(4.0)
        assert shown(found) == [("site/a", b"there")]


def test_queries_are_bounded_and_end_with_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "OPEN_MAX", 1)
    network, one, _ = two("tree")
    found: list[FoundEvents] = []
    end = one.exchanges.query(QueryQuestion(SITE, SECOND), found.append)
    with pytest.raises(InputError, match="one too many"):
        one.query(SITE)
    end()
    network.run(2.0)
    assert found == [] and network.node(0).broker.subscriptions() == []
    for wrong in (QueryQuestion(SITE, 601 * SECOND), QueryQuestion(SITE, 1, limit=10_001)):
        with pytest.raises(InputError, match="allowed"):
            one.exchanges.query(wrong, found.append)


def test_a_sealed_event_is_found_by_what_is_in_it_where_it_can_be_read() -> None:
    network, one, other = two("flooding")
    for member in (one, other):
        broker = network.node(member.number).broker
        sealed = Event(9, 1, {"eid": ""}, b"secret", "", SEALED_TYPE, EventClass.MEMORIZED, 600 * SECOND)
        broker.keep(sealed, 2)
    clear = Event(9, 1, {}, b"open", "site/a", "", EventClass.MEMORIZED, 600 * SECOND)
    network.node(0).broker.opener = Opener(clear)
    assert shown(one.query(SITE)) == [("site/a", b"open")] == shown(one.query(Filter.everything()))
    assert shown(other.query(SITE)) == [] and len(other.query(Filter.everything())[0].events) == 1


class Opener:
    def __init__(self, clear: Event) -> None:
        self._clear = clear

    def open(self, sealed: Event) -> Event | None:
        return self._clear
