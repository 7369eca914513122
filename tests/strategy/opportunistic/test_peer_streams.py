"""Messages between two nodes: in order and once, to oneself after the current input, aged while they wait."""

from typing import Any

from roamcast.event import Event
from roamcast.host import Layer, SendFailure
from roamcast.strategy.opportunistic.envelope import Transport
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    MESSAGE_OCTETS_MAX,
    Bundle,
    Envelope,
    NotHome,
    PublishMessage,
    Skip,
    StreamMessage,
)
from roamcast.strategy.opportunistic.stream import PeerStreams
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId


class Direct(Underlay):
    def __init__(self) -> None:
        super().__init__()
        self.is_there = True

    def next_hop(self, to: NodeId) -> NodeId | None:
        return to if self.is_there else None

    def distance(self, to: NodeId) -> int | None:
        return 1 if self.is_there else None


class Party(Layer):
    def __init__(self, node: NodeId) -> None:
        self.host, self.underlay = FakeHost(node, seed=node), Direct()
        self.got: list[tuple[NodeId, StreamMessage, int]] = []
        self.unreachable: list[NodeId] = []
        self.transport = Transport(self.host, self.underlay)
        self.streams = PeerStreams(self.host, self.transport, self)
        self.host.attach(self)

    def on_timer(self, name: Any) -> None:
        name.due()

    def on_message(self, sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None:
        self.got.append((sender, message, held))

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None: ...

    def on_unreachable(self, peer: NodeId) -> None:
        self.unreachable.append(peer)

    def hear(self, sender: NodeId, payload: bytes) -> None:
        frame = FRAMES.decode(payload)
        assert isinstance(frame, Envelope | Bundle)
        for arrival in self.transport.on_frame(sender, frame):
            self.streams.on_content(*arrival)


def pass_time(one: Party, other: Party, *, loss: int = 0) -> None:
    """Ten seconds; every `loss`-th frame gets lost, and its sender hears of it."""
    number = 0
    for _ in range(100):
        for party in (one, other):
            party.host.advance(SECOND // 10)
        for sender, receiver in ((one, other), (other, one)):
            sent, sender.host.sent[:] = list(sender.host.sent), []
            for frame in sent:
                number += 1
                if loss and number % loss == 0:
                    if frame.on_failure is not None:
                        frame.on_failure(SendFailure.LINK)
                else:
                    receiver.hear(sender.host.node, frame.frame.payload)


def test_messages_arrive_in_order_and_once_though_frames_get_lost() -> None:
    one, other = Party(1), Party(2)
    messages = [Skip(1, n, n + 1) for n in range(30)]
    for message in messages:
        assert one.streams.write(2, message)
    pass_time(one, other, loss=3)
    pass_time(one, other)
    assert [message for _, message, _ in other.got] == messages
    assert one.streams.is_idle() and one.streams.waiting(2) == 0


def test_what_a_node_says_to_itself_is_handled_after_the_current_input() -> None:
    party = Party(1)
    party.streams.write(1, NotHome(1))
    assert party.got == [] and not party.streams.is_idle()
    party.host.advance(0)
    assert party.got == [(1, NotHome(1), 0)] and party.host.sent == []


def test_messages_for_a_node_out_of_reach_wait_age_and_go_when_a_route_is_found() -> None:
    one, other = Party(1), Party(2)
    one.underlay.is_there = False
    one.streams.write(2, PublishMessage(Event(1, 0), 0, 0, 0, 0))
    one.host.advance(20 * SECOND)
    assert one.unreachable == [2] and one.streams.silence(2) == 20 * SECOND
    (message,) = one.streams.unconfirmed(2)
    assert isinstance(message, PublishMessage) and message.age == 20 * SECOND
    one.underlay.is_there = True
    one.streams.on_routes_changed()
    other.host.advance(20 * SECOND)
    pass_time(one, other)
    ((sender, arrived, held),) = other.got
    assert sender == 1 and isinstance(arrived, PublishMessage) and held == 20 * SECOND


def test_messages_of_some_kinds_are_taken_back_and_others_stay() -> None:
    party = Party(1)
    party.underlay.is_there = False
    for message in (NotHome(1), Skip(1, 0, 1), NotHome(2)):
        party.streams.write(2, message)
    assert party.streams.take_back(2, (NotHome,)) == [NotHome(1), NotHome(2)]
    assert party.streams.unconfirmed(2) == [Skip(1, 0, 1)]


def test_a_message_that_is_too_long_is_dropped_and_counted() -> None:
    party = Party(1)
    long = PublishMessage(Event(1, 0, payload=bytes(MESSAGE_OCTETS_MAX)), 0, 0, 0, 0)
    assert not party.streams.write(2, long)
    reasons = [record.reason for record in party.host.records if isinstance(record, Dropped)]
    assert reasons == [DropReason.WIRE] and party.got == []
