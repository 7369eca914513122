"""A node as a client: the home that it chooses, gives up or is given, and what it says to it."""

from typing import Any

import pytest
from tests.strategy.opportunistic.station import COUNT, Near, Outgoing, PartLayer, shared_of

from roamcast.broker.core import Broker, Subscription
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.opportunistic.board import BROKER, BoardEntry
from roamcast.strategy.opportunistic.client import ClientSide
from roamcast.strategy.opportunistic.messages import (
    BROKER_ROWS,
    AttachMessage,
    BrokerRow,
    Deliver,
    Here,
    NewHome,
    NotHome,
    PublishMessage,
    Returned,
    Row,
    Rows,
    Skip,
    StreamMessage,
)
from roamcast.testing import FakeHost
from roamcast.units import SECOND, NodeId

OWN, HOME, OTHER, THIRD, PRODUCER = 7, 1, 2, 3, 50


class Client(PartLayer):
    """Brokers 1, 2 … are known and one hop away."""

    def __init__(self, brokers: tuple[NodeId, ...] = (HOME, OTHER), **options: Any) -> None:
        self.host, self.streams, self.got = FakeHost(OWN), Outgoing(), list[int]()
        self.core = Broker(self.host, self)
        shared = shared_of(self.host, Near(), self.streams, self._on_row, self.core, **options)
        self.board, self.overlay = shared.board, shared.overlay
        self.side = ClientSide(shared)
        self.host.attach(self)
        for broker in brokers:
            self.hear_row(broker, 1, BrokerRow((), boot=1))

    def on_event(self, delivery: Any) -> None:
        self.got.append(delivery.event.sequence)

    def _on_row(self, kind: int, node: NodeId, entry: BoardEntry | None) -> None:
        self.overlay.on_row(node, entry)
        if entry is not None and isinstance(entry.content, BrokerRow):
            self.side.on_broker_row(node, entry.content)

    def hear_row(self, broker: NodeId, version: int, row: BrokerRow) -> None:
        self.board.on_rows(broker, Rows((Row(BROKER, broker, version, 0, BROKER_ROWS.encode(row)),)))

    def hear(self, sender: NodeId, message: Any) -> list[tuple[NodeId, StreamMessage]]:
        self.streams.confirmed()
        self.side.messages[type(message)](sender, message, 0)
        return list(self.streams.written)

    def subscribe(self) -> None:
        self.core.subscribe(Subscription(1, Filter.everything(), modulator=COUNT))
        self.side.on_subscribed(1)

    def attached(self) -> list[tuple[NodeId, AttachMessage]]:
        return [(to, one) for to, one in self.streams.written if isinstance(one, AttachMessage)]


def at_home(**options: Any) -> Client:
    client = Client(**options)
    client.subscribe()
    ((to, attach),) = client.attached()
    assert (to, attach.generation, attach.before) == (HOME, 1, None)
    client.streams.confirmed()
    return client


def test_a_client_whose_home_has_ended_says_to_the_next_which_it_was() -> None:
    """Schedule 50096: the home had handed the client on, and the word of the new one was late."""
    client = at_home()
    client.hear_row(HOME, 2, BrokerRow((), boot=1, is_over=True))
    ((to, attach),) = client.attached()
    assert (to, attach.generation, attach.before) == (OTHER, 2, HOME)


def test_it_says_so_too_if_the_next_broker_is_found_much_later() -> None:
    client = at_home(brokers=(HOME,))
    client.hear_row(HOME, 2, BrokerRow((), boot=1, is_over=True))
    assert client.side.home is None and client.attached() == []
    client.host.advance(5 * SECOND)
    client.hear_row(THIRD, 1, BrokerRow((), boot=1))
    client.host.advance(2 * SECOND)
    ((to, attach),) = client.attached()
    assert (to, attach.before) == (THIRD, HOME)


def test_a_client_that_is_told_of_its_new_home_chooses_none() -> None:
    client = at_home()
    ((to, attach),) = client.hear(OTHER, NewHome(1, 5))
    assert to == OTHER == client.side.home
    assert isinstance(attach, AttachMessage) and (attach.generation, attach.before) == (1, None)
    assert client.hear(THIRD, NewHome(0, 6)) == [] and client.side.home == OTHER  # of another generation


def test_a_home_that_knows_the_client_no_more_is_chosen_again() -> None:
    client = at_home()
    ((to, attach),) = client.hear(HOME, NotHome(1))
    assert to == HOME and isinstance(attach, AttachMessage) and attach.generation == 2
    assert client.hear(OTHER, NotHome(2)) == []  # nobody asked that one


def test_a_home_that_is_silent_for_long_is_given_up_for_another() -> None:
    client = at_home(home_timeout=10.0)
    client.streams.silent.add(HOME)
    client.side.on_unreachable(HOME)
    client.host.advance(12 * SECOND)
    ((to, attach),) = client.attached()
    assert (to, attach.before) == (OTHER, HOME)


def test_a_client_says_every_period_where_it_is_and_who_is_as_near() -> None:
    client = at_home(broker_discovery=3.0)
    client.host.advance(5 * SECOND)
    here = [(to, one) for to, one in client.streams.written if isinstance(one, Here)]
    assert here and here[0] == (HOME, Here(1, 1, False, OTHER, 1, 0))


def heres(client: Client) -> list[StreamMessage]:
    return [one for _, one in client.streams.written if isinstance(one, Here)]


@pytest.mark.parametrize("discovery", ["periodic", "prompt"])
def test_a_change_of_routes_leads_to_a_look_for_a_nearer_broker_at_once(
    discovery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 2.4; the period alone would take up to a minute."""
    client = at_home(broker_discovery=60.0, discovery=discovery)
    client.host.advance(SECOND)
    client.side.on_routes_changed()  # the other one is as near: no news
    client.host.advance(SECOND)
    assert heres(client) == []
    monkeypatch.setattr(Near, "distance", lambda self, to: 2 if to == HOME else 1)
    client.side.on_routes_changed()
    client.host.advance(SECOND)
    assert heres(client) == ([Here(1, 2, False, OTHER, 1, 0)] if discovery == "prompt" else [])


def test_a_client_that_is_attached_elsewhere_looks_for_a_nearer_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Channels, 3.1: "in response to a network-level handoff"."""
    at = {HOME: 21}
    monkeypatch.setattr(Near, "next_hop", lambda self, to: at.get(to))
    client = at_home(broker_discovery=60.0, discovery="handoff")
    monkeypatch.setattr(Near, "distance", lambda self, to: 2 if to == HOME else 1)
    for now in (21, None, 21):  # routes change, and it is cut off for a while: attached as before
        at.clear() if now is None else at.update({HOME: now})
        client.side.on_routes_changed()
        client.host.advance(SECOND)
    assert heres(client) == []
    at[HOME] = 22
    client.side.on_routes_changed()
    client.host.advance(SECOND)
    assert heres(client) == [Here(1, 2, False, OTHER, 1, 0)]
    client.hear(OTHER, NewHome(1, 5))  # of the new home another node is the next: that is no handoff
    at[OTHER] = 23
    client.side._set_home(OTHER)
    client.streams.confirmed()
    monkeypatch.setattr(Near, "distance", lambda self, to: 2 if to == OTHER else 1)
    client.side.on_routes_changed()
    client.host.advance(SECOND)
    assert heres(client) == []


def test_a_storm_of_changes_is_no_storm_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes change 100 times a second, and the nearest broker with each."""
    client = at_home(brokers=(HOME, OTHER, THIRD), broker_discovery=8.0, discovery="prompt")
    for step in range(4_000):
        nearest = (OTHER, THIRD)[step % 2]
        monkeypatch.setattr(Near, "distance", lambda self, to, at=nearest: 1 if to == at else 3)
        client.side.on_routes_changed()
        client.host.advance(SECOND // 100)
    # Four in a row, then one per 2 s; and what the period says anyway.
    assert 5 <= len(heres(client)) <= 4 + 40 // 2 + 40 // 8 + 1
    before = len(heres(client))
    for _ in range(300):  # the same one is nearest all the time
        client.side.on_routes_changed()
        client.host.advance(SECOND // 100)
    assert len(heres(client)) - before <= 2


def test_a_change_of_routes_ends_the_wait_of_a_node_that_looks_for_its_first_home() -> None:
    client = Client(brokers=(), discovery="prompt")
    client.subscribe()
    client.hear_row(HOME, 1, BrokerRow((), boot=1))
    client.side.on_routes_changed()
    client.host.advance(SECOND // 20)
    assert [to for to, _ in client.attached()] == [HOME]


def test_events_wait_for_a_home_and_come_back_from_one_that_ended() -> None:
    client = Client(brokers=())
    first, second = Event(OWN, 0), Event(OWN, 1)
    client.side.publish(first)
    client.side.publish(second)
    assert client.streams.written == []
    client.hear_row(HOME, 1, BrokerRow((), boot=1))
    client.host.advance(2 * SECOND)
    sent = [one for one in client.streams.to(HOME) if isinstance(one, PublishMessage)]
    assert [(one.event.sequence, one.previous) for one in sent] == [(0, 0), (1, 1)]
    ((to, again),) = client.hear(HOME, Returned(sent[0]))
    assert to == HOME and isinstance(again, PublishMessage) and again.event == first


def test_products_are_handed_over_in_their_order_whatever_way_they_came() -> None:
    client = at_home()
    number = client.core.subscriptions()[0].number
    messages = [Deliver(Event(PRODUCER, n, {"sum": 1}), 0, 1, 1, n, number) for n in range(4)]
    for place in (1, 3, 0):
        client.hear(HOME, messages[place])
    assert client.got == [0, 1]
    client.hear(HOME, Skip(1, 2, 3))
    assert client.got == [0, 1, 3]
    client.hear(HOME, messages[1])
    assert client.got == [0, 1, 3]
