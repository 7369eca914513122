"""Several datagrams in one frame, and one frame for several neighbours."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.event import EventId
from roamcast.host import Kind, SendFailure
from roamcast.strategy.opportunistic.wire.congestion import CUT_EVERY, FIRST_LIMIT, LEAST_LIMIT, Congestion
from roamcast.strategy.opportunistic.wire.messages import (
    FRAMES,
    Bundle,
    Content,
    Datagram,
)
from roamcast.strategy.opportunistic.wire.outbox import BUNDLE_OCTETS
from roamcast.strategy.opportunistic.wire.reliable import (
    STREAMS_PER_BOOT,
    Letter,
    StreamAcknowledgement,
    StreamSegment,
)
from roamcast.strategy.opportunistic.wire.transport import HEARD_LATELY, Transport
from roamcast.testing import FakeHost
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, NodeId

OWN, LEFT, RIGHT = 1, 2, 3
EVENT = EventId(OWN, 7)
ENDING = b"e" * 100
CONTROL = Letter(b"", Kind.CONTROL, "here")
CARRY = Letter(b"", Kind.DATA, "carry", EVENT, ENDING)


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
        self.got: list[tuple[NodeId, Content, int]] = []
        self.transport = Transport(self.host, self.underlay, lambda *got: self.got.append(got))
        self.host.attach(self.transport)  # type: ignore[arg-type]

    def forward(self, to: NodeId, number: int = 0) -> None:
        stream = STREAMS_PER_BOOT + to
        self.transport.send(to, StreamSegment(stream, number, 0, 0, b"head" + bytes([to]) + ENDING), CARRY)

    def sent(self) -> list[tuple[NodeId | None, object]]:
        return [(one.to, FRAMES.decode(one.frame.payload)) for one in self.host.sent]


def test_what_has_the_next_hop_in_common_goes_in_one_frame_and_arrives_whole() -> None:
    setting = Setting()
    for to in (4, 6, 8):
        setting.forward(to)
    setting.host.advance(0)
    ((neighbour, bundle),) = setting.sent()
    assert neighbour == LEFT and isinstance(bundle, Bundle)
    assert bundle.shared == (ENDING,) and len(setting.host.sent[0].frame.payload) < 2 * len(ENDING) + 100
    assert setting.host.sent[0].frame.event == EVENT and setting.host.sent[0].frame.kind is Kind.DATA
    there = Setting(own=6)
    there.transport.on_frame(OWN, bundle)
    ((origin, segment, hops),) = there.got
    assert (origin, hops) == (OWN, 1)
    assert isinstance(segment, StreamSegment) and segment.body == b"head" + bytes([6]) + ENDING


def test_copies_for_several_neighbours_are_one_broadcast_of_which_each_takes_its_own() -> None:
    setting = Setting(nodes=100)
    for to in (4, 5, 7):
        setting.forward(to)
    setting.host.advance(0)
    ((neighbour, bundle),) = setting.sent()
    assert neighbour is None and isinstance(bundle, Bundle) and bundle.next_hops == (LEFT, RIGHT, RIGHT)
    there = Setting(own=RIGHT)
    there.transport.on_frame(OWN, bundle)
    there.host.advance(SECOND)
    passed: list[NodeId] = []
    for _, frame in there.sent():
        if isinstance(frame, Bundle):
            passed.extend(datagram.to for datagram in frame.datagrams)
        elif isinstance(frame, Datagram):
            passed.append(frame.to)
    assert sorted(passed) == [5, 7]


def test_control_is_sent_at_once_to_a_quiet_neighbour_and_then_together() -> None:
    setting = Setting()
    for number in range(5):
        setting.transport.send(4, StreamSegment(9, number, 0, 0, b"x"), CONTROL)
        setting.host.advance(MILLISECOND)
    assert len(setting.sent()) == 1
    setting.host.advance(SECOND)
    assert [len(f.datagrams) for _, f in setting.sent() if isinstance(f, Bundle)] == [4]


def test_a_later_acknowledgement_takes_the_place_of_an_earlier_one() -> None:
    setting = Setting()
    label = Letter(b"", Kind.CONTROL, "acknowledgement")
    for expected in (1, 2, 3):
        setting.transport.send(4, StreamAcknowledgement(9, expected, 1, expected - 1, 0), label)
    setting.host.advance(SECOND)
    ((_, datagram),) = setting.sent()
    there = Setting(own=4)
    assert isinstance(datagram, Datagram)
    there.transport.on_frame(OWN, datagram)
    assert [content.expected for _, content, _ in there.got] == [3]  # type: ignore[union-attr]


def test_no_frame_is_made_longer_than_gets_through() -> None:
    setting = Setting()
    for to in range(4, 200, 2):
        setting.transport.send(to, StreamSegment(9, to, 0, 0, b"x"), CONTROL)
    setting.host.advance(SECOND)
    assert len(setting.host.sent) > 1
    assert all(len(one.frame.payload) <= BUNDLE_OCTETS for one in setting.host.sent)


def test_a_datagram_is_not_sent_back_to_where_it_came_from() -> None:
    setting = Setting()
    setting.transport.on_frame(LEFT, Datagram(9, 4, 3, (), b"", 0))
    setting.transport.on_frame(RIGHT, Datagram(9, 4, 3, (), b"", 0))
    setting.host.advance(SECOND)
    assert [to for to, _ in setting.sent()] == [LEFT]


def test_a_neighbour_that_was_heard_lately_is_there_and_its_frame_has_collided() -> None:
    setting = Setting()
    setting.transport.on_heard(LEFT)
    for expected in ([], [LEFT]):
        setting.transport.send(4, StreamSegment(9, 1, 0, 0, b"x"), CONTROL)
        setting.host.advance(0)
        failed = setting.host.sent[-1].on_failure
        assert failed is not None
        failed(SendFailure.LINK)
        assert setting.underlay.failures == expected
        setting.host.advance(HEARD_LATELY)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 70), max_size=6), st.binary())
def test_bundles_of_strangers_stop_nobody(places: list[int], letter: bytes) -> None:
    setting = Setting()
    with suppress(WireError):
        bundle = Bundle((Datagram(2, OWN, 0, (), b"x", 0),), tuple(places), (letter,), tuple(places))
        setting.transport.on_frame(LEFT, FRAMES.decode(FRAMES.encode(bundle)))  # type: ignore[arg-type]
    setting.host.advance(SECOND)


def test_few_repeats_are_under_way_after_losses_and_more_with_every_confirmation() -> None:
    congestion = Congestion()
    congestion.on_confirmed()
    assert congestion.limit == FIRST_LIMIT + 1
    for number in range(10):
        congestion.on_lost(number * CUT_EVERY)
        congestion.on_lost(number * CUT_EVERY + 1)  # lost together
    assert congestion.limit == LEAST_LIMIT
    congestion.on_confirmed()
    assert LEAST_LIMIT < congestion.limit <= LEAST_LIMIT + 1
