"""Several envelopes in one frame, and one frame for several neighbours."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.host import Kind, SendFailure
from roamcast.strategy.opportunistic.envelope import BUNDLE_OCTETS, HEARD_LATELY, ArrivedContent, Transport
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    AnyStreamMessage,
    Bundle,
    BundledCarry,
    CarryMessage,
    Envelope,
    Here,
    StreamAcknowledgement,
    StreamSegment,
    octets,
)
from roamcast.strategy.opportunistic.stream import STREAMS_PER_BOOT
from roamcast.testing import FakeHost
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, NodeId

OWN, LEFT, RIGHT = 1, 2, 3
EVENT = Event(OWN, 7, payload=b"e" * 100)


def segment(message: AnyStreamMessage, number: int = 0) -> StreamSegment:
    return StreamSegment(STREAMS_PER_BOOT, number, 0, 0, message)


def carry(consumer: NodeId) -> CarryMessage:
    return CarryMessage(EVENT, 0, 0, consumer, False, 7, False, 7, 0)


CONTROL = Here(1, 2, False)


class Cross(Underlay):
    """Even nodes are to the left, odd ones to the right, all of them two hops away but the neighbours."""

    def __init__(self, nodes: int = 6) -> None:
        super().__init__()
        self.nodes = nodes
        self.failures: list[NodeId] = []

    def next_hop(self, to: NodeId) -> NodeId | None:
        return LEFT if to % 2 == 0 else RIGHT

    def distance(self, to: NodeId) -> int | None:
        return 1 if to in (LEFT, RIGHT) else 2

    def known_nodes(self) -> list[NodeId]:
        return list(range(2, self.nodes))

    def on_link_failure(self, neighbour: NodeId) -> None:
        self.failures.append(neighbour)


class Setting:
    def __init__(self, nodes: int = 6, own: NodeId = OWN) -> None:
        self.host = FakeHost(node=own)
        self.underlay = Cross(nodes)
        self.got: list[ArrivedContent] = []
        self.transport = Transport(self.host, self.underlay)
        self.host.attach(self)  # type: ignore[arg-type]

    def on_timer(self, name: Any) -> None:
        name.due()

    def forward(self, to: NodeId) -> None:
        self.transport.send(to, segment(carry(to)))

    def hear(self, sender: NodeId, frame: object) -> None:
        assert isinstance(frame, Envelope | Bundle)
        self.got += self.transport.on_frame(sender, frame)

    def sent(self) -> list[tuple[NodeId | None, object]]:
        return [(one.to, FRAMES.decode(one.frame.payload)) for one in self.host.sent]


def test_what_has_the_next_hop_in_common_goes_in_one_frame_and_arrives_whole() -> None:
    setting = Setting()
    for to in (4, 6, 8):
        setting.forward(to)
    setting.host.advance(0)
    ((neighbour, bundle),) = setting.sent()
    assert neighbour == LEFT and isinstance(bundle, Bundle)
    assert bundle.events == (EVENT,) and len(setting.host.sent[0].frame.payload) < 2 * octets(EVENT)
    assert setting.host.sent[0].frame.event == EVENT.id and setting.host.sent[0].frame.kind is Kind.DATA
    there = Setting(own=6)
    there.hear(OWN, bundle)
    assert there.got == [(OWN, segment(carry(6)), 1)]


def test_copies_for_several_neighbours_are_one_broadcast_of_which_each_takes_its_own() -> None:
    setting = Setting(nodes=100)
    for to in (4, 5, 7):
        setting.forward(to)
    setting.host.advance(0)
    ((neighbour, bundle),) = setting.sent()
    assert neighbour is None and isinstance(bundle, Bundle) and bundle.next_hops == (LEFT, RIGHT, RIGHT)
    there = Setting(own=RIGHT)
    there.hear(OWN, bundle)
    there.host.advance(SECOND)
    passed: list[NodeId] = []
    for _, frame in there.sent():
        if isinstance(frame, Bundle):
            passed.extend(envelope.to for envelope in frame.envelopes)
        elif isinstance(frame, Envelope):
            passed.append(frame.to)
    assert sorted(passed) == [5, 7]


def test_control_is_sent_at_once_to_a_quiet_neighbour_and_then_together() -> None:
    setting = Setting()
    for number in range(5):
        setting.transport.send(4, segment(CONTROL, number))
        setting.host.advance(MILLISECOND)
    assert len(setting.sent()) == 1
    setting.host.advance(SECOND)
    assert [len(f.envelopes) for _, f in setting.sent() if isinstance(f, Bundle)] == [4]


def test_a_later_acknowledgement_takes_the_place_of_an_earlier_one() -> None:
    setting = Setting()
    for expected in (1, 2, 3):
        setting.transport.send(4, StreamAcknowledgement(9, expected, 1, expected - 1, 0))
    setting.host.advance(SECOND)
    ((_, envelope),) = setting.sent()
    there = Setting(own=4)
    there.hear(OWN, envelope)
    assert [content.expected for _, content, _ in there.got] == [3]  # type: ignore[union-attr]


def test_no_frame_is_made_longer_than_gets_through() -> None:
    setting = Setting()
    for to in range(4, 200, 2):
        setting.transport.send(to, segment(CONTROL, to))
    setting.host.advance(SECOND)
    assert len(setting.host.sent) > 1
    assert all(len(one.frame.payload) <= BUNDLE_OCTETS for one in setting.host.sent)


def test_an_envelope_is_not_sent_back_to_where_it_came_from() -> None:
    setting = Setting()
    setting.hear(LEFT, Envelope(9, 4, 3, (), segment(CONTROL)))
    setting.hear(RIGHT, Envelope(9, 4, 3, (), segment(CONTROL)))
    setting.host.advance(SECOND)
    assert [to for to, _ in setting.sent()] == [LEFT]


def test_a_neighbour_that_was_heard_lately_is_there_and_its_frame_has_collided() -> None:
    setting = Setting()
    setting.transport.on_heard(LEFT)
    for expected in ([], [LEFT]):
        setting.transport.send(4, segment(CONTROL))
        setting.host.advance(0)
        failed = setting.host.sent[-1].on_failure
        assert failed is not None
        failed(SendFailure.LINK)
        assert setting.underlay.failures == expected
        setting.host.advance(HEARD_LATELY)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 70), max_size=6), st.integers(0, 3), st.integers(0, 2))
def test_bundles_of_strangers_stop_nobody(next_hops: list[int], place: int, events: int) -> None:
    """They may name events that are not there, or more or fewer next hops than envelopes."""
    setting = Setting()
    stranger = BundledCarry(place, 0, 0, OWN, False, 7, False, 7, 0)
    with suppress(WireError):
        envelopes = (Envelope(2, OWN, 0, (), segment(stranger)), Envelope(2, 4, 0, (), segment(stranger)))
        bundle = Bundle(envelopes, (EVENT,) * events, tuple(next_hops))
        setting.hear(LEFT, FRAMES.decode(FRAMES.encode(bundle)))
    setting.hear(LEFT, Envelope(2, OWN, 0, (), segment(stranger)))
    setting.host.advance(SECOND)
    whole = [arrival.content for arrival in setting.got]
    assert whole in ([], [segment(carry(OWN))]) and (not whole or place < events)
