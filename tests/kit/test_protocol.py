"""Timers, messages and the layer that speaks them, on a host that the test drives by hand."""

from typing import Any

import pytest

from roamcast.event import EventId
from roamcast.host import Kind
from roamcast.kit.protocol import MessageLayer, Timer, Timers, WireMessage, overflow_traced
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.units import NodeId
from roamcast.wire import Codec


class Question(WireMessage, frozen=True, tag=1):
    name = "question"

    about: int


class Parcel(WireMessage, frozen=True, tag=2):
    name = "parcel"
    kind = Kind.DATA

    publisher: int
    sequence: int

    @property
    def event_id(self) -> EventId:
        return EventId(self.publisher, self.sequence)


CODEC: Codec[Any] = Codec("test", 1, Question | Parcel)


class Listener(MessageLayer):
    def __init__(self, host: FakeHost) -> None:
        super().__init__(host, CODEC)
        self.heard: list[tuple[NodeId, WireMessage]] = []
        self.handlers = {
            Question: lambda sender, message: self.heard.append((sender, message)),
            Parcel: lambda sender, message: self.heard.append((sender, message)),
        }


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(node=7)


@pytest.fixture
def layer(host: FakeHost) -> Listener:
    layer = Listener(host)
    host.attach(layer)
    return layer


def test_a_timer_calls_its_action_once_at_the_time_it_was_last_set_to(
    host: FakeHost, layer: Listener
) -> None:
    fired: list[int] = []
    timer = Timer(host, lambda: fired.append(host.now()))
    timer.at(50)
    timer.after(20)  # moves it
    host.advance(100)
    assert fired == [20]
    timer.after(5)
    timer.cancel()
    host.advance(100)
    assert fired == [20]


def test_two_timers_of_one_action_do_not_move_each_other(host: FakeHost, layer: Listener) -> None:
    fired: list[int] = []
    first, second = (Timer(host, lambda: fired.append(host.now())) for _ in range(2))
    first.at(10)
    second.at(30)
    host.advance(100)
    assert fired == [10, 30]


def test_a_random_wait_stays_below_its_bound(host: FakeHost, layer: Listener) -> None:
    fired: list[int] = []
    timer = Timer(host, lambda: fired.append(host.now()))
    for round_ in range(100):
        timer.within(7)
        host.advance(10)
        assert 0 <= fired[-1] - 10 * round_ < 7
    assert len({at % 10 for at in fired}) > 3


def test_each_key_has_a_timer_of_its_own(host: FakeHost, layer: Listener) -> None:
    fired: list[tuple[str, int]] = []
    asking = Timers[str](host, lambda key: fired.append((key, host.now())))
    telling = Timers[str](host, lambda key: fired.append((key.upper(), host.now())))
    asking.at("a", 10)
    asking.at("b", 20)
    asking.at("a", 30)  # moves only its own
    asking.at("c", 15)
    asking.cancel("c")
    telling.at("a", 25)  # the same key of others is another timer
    telling.after("b", 40)
    telling.cancel("b")
    host.advance(100)
    assert fired == [("b", 20), ("A", 25), ("a", 30)]


def test_a_message_is_sent_under_its_own_name_and_kind(host: FakeHost, layer: Listener) -> None:
    layer.messenger.send(Question(3))
    layer.messenger.send(Parcel(4, 9), to=5, own=False)
    question, parcel = (sent.frame for sent in host.sent)
    assert (question.kind, question.message, question.event, question.own) == (
        Kind.CONTROL,
        "question",
        None,
        True,
    )
    assert (parcel.kind, parcel.message, parcel.event, parcel.own) == (
        Kind.DATA,
        "parcel",
        EventId(4, 9),
        False,
    )
    assert [sent.to for sent in host.sent] == [None, 5]


def test_what_arrives_is_handled_by_its_class_and_what_is_no_message_is_traced(
    host: FakeHost, layer: Listener
) -> None:
    layer.on_receive(2, CODEC.encode(Question(3)))
    layer.on_receive(4, CODEC.encode(Parcel(1, 2)))
    layer.on_receive(5, b"\x01nonsense")
    assert layer.heard == [(2, Question(3)), (4, Parcel(1, 2))]
    (dropped,) = host.records
    assert isinstance(dropped, Dropped)
    assert (dropped.reason, dropped.message, dropped.node) == (DropReason.WIRE, "test", 7)


def test_a_full_table_is_traced_with_its_bound(host: FakeHost, layer: Listener) -> None:
    overflow_traced(host, "hello", "links_max")("key", "value")
    layer.messenger.overflow("copy", "recent_max", EventId(3, 4))
    first, second = host.records
    assert isinstance(first, Dropped) and isinstance(second, Dropped)
    assert (first.reason, first.detail, first.publisher) == (DropReason.STORE_FULL, "links_max", None)
    assert (second.detail, second.publisher, second.sequence) == ("recent_max", 3, 4)
