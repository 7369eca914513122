import pytest

from roamcast.host import Kind
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import UnderlayContext
from roamcast.underlay.beacons import CODEC, Beacon, BeaconOptions, Beacons, BriefBeacon, LadenBriefBeacon
from roamcast.units import SECOND


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def on_neighbour_up(self, neighbour: int) -> None:
        self.heard.append(("up", neighbour))

    def on_neighbour_down(self, neighbour: int) -> None:
        self.heard.append(("down", neighbour))

    def on_routes_changed(self) -> None:
        pass


@pytest.fixture
def parts() -> tuple[Beacons, FakeHost, Listener]:
    host = FakeHost(node=1)
    beacons = Beacons(UnderlayContext(host), BeaconOptions(interval=1.0, allowed_loss=2, jitter=0.0))
    host.attach(beacons)
    listener = Listener()
    beacons.listen(listener)
    return beacons, host, listener


def says(*heard: int) -> bytes:
    return CODEC.encode(Beacon(heard))


def test_a_node_that_does_not_hear_us_is_no_neighbour(parts: tuple[Beacons, FakeHost, Listener]) -> None:
    beacons, _, listener = parts
    beacons.on_receive(2, says(3, 4))
    assert beacons.neighbours() == [] and listener.heard == []
    beacons.on_receive(2, says(1, 3))
    assert beacons.neighbours() == [2] and listener.heard == [("up", 2)]
    assert beacons.next_hop(2) == 2 and beacons.distance(2) == 1 and beacons.next_hop(3) is None


def test_a_neighbour_that_stops_hearing_us_is_none_any_more(
    parts: tuple[Beacons, FakeHost, Listener],
) -> None:
    beacons, _, listener = parts
    beacons.on_receive(2, says(1))
    beacons.on_receive(2, says())
    assert listener.heard == [("up", 2), ("down", 2)]


def test_two_missing_beacons_are_allowed_and_three_are_not(
    parts: tuple[Beacons, FakeHost, Listener],
) -> None:
    beacons, host, listener = parts
    beacons.on_receive(2, says(1))
    host.advance(int(3.4 * SECOND))
    assert beacons.neighbours() == [2]
    host.advance(int(0.2 * SECOND))
    assert beacons.neighbours() == [] and listener.heard[-1] == ("down", 2)


def test_beacons_go_out_every_interval_and_name_whom_we_hear(
    parts: tuple[Beacons, FakeHost, Listener],
) -> None:
    beacons, host, _ = parts
    beacons.on_start()
    beacons.on_receive(7, says())
    beacons.on_receive(3, says())
    host.advance(3 * SECOND)
    assert [sent.frame.kind for sent in host.sent] == [Kind.CONTROL] * 3
    assert CODEC.decode(host.sent[0].frame.payload) == Beacon((3, 7))


def test_garbage_is_counted_and_nothing_else(parts: tuple[Beacons, FakeHost, Listener]) -> None:
    beacons, host, _ = parts
    beacons.on_receive(2, b"\xff\x00garbage")
    assert beacons.neighbours() == []
    assert [type(r) for r in host.records] == [Dropped]
    record = host.records[0]
    assert isinstance(record, Dropped) and record.reason is DropReason.WIRE


def test_thousands_of_past_neighbours_leave_no_state(parts: tuple[Beacons, FakeHost, Listener]) -> None:
    beacons, host, _ = parts
    for node in range(2, 5_000):
        beacons.on_receive(node, says(1))
    host.advance(10 * SECOND)
    assert beacons.neighbours() == [] and host.timers() == {}


def test_a_prompt_node_answers_one_it_hears_for_the_first_time_and_not_without_end() -> None:
    host = FakeHost(node=1)
    beacons = Beacons(UnderlayContext(host), BeaconOptions(interval=4.0, jitter=0.0, prompt=True))
    host.attach(beacons)
    beacons.on_start()
    while not host.sent:
        host.advance(SECOND // 10)
    sent = len(host.sent)
    host.advance(2 * SECOND)
    beacons.on_receive(2, says())
    host.advance(SECOND // 10)
    assert [CODEC.decode(one.frame.payload) for one in host.sent[sent:]] == [Beacon((2,))]
    for _ in range(100):  # a deaf stranger, or a liar, every 10 ms
        beacons.on_receive(3, says())
        host.advance(SECOND // 100)
    assert len(host.sent) - sent <= 3
    assert beacons.neighbours_of(3) == [] and beacons.neighbours_of(2) == []
    beacons.on_receive(2, says(1, 7))
    assert beacons.neighbours_of(2) == [1, 7]


def prompt_node(**options: float) -> tuple[Beacons, FakeHost]:
    """Node 1, which has just sent its first beacon."""
    host = FakeHost(node=1)
    beacons = Beacons(UnderlayContext(host), BeaconOptions(jitter=0.0, prompt=True, **options))  # type: ignore[arg-type]
    host.attach(beacons)
    beacons.on_start()
    while not host.sent:
        host.advance(SECOND // 10)
    host.sent.clear()
    host.advance(SECOND)
    return beacons, host


def test_a_prompt_node_tells_one_that_heard_it_first_that_it_hears_it_too() -> None:
    """Without that the other one, whose beacon named us, would wait an interval for ours to name it."""
    beacons, host = prompt_node(interval=4.0)
    beacons.on_receive(2, says(1))
    host.advance(SECOND // 10)
    assert [CODEC.decode(one.frame.payload) for one in host.sent] == [Beacon((2,))]
    beacons.on_receive(2, says(1))  # known: nothing to say
    host.advance(SECOND // 10)
    assert len(host.sent) == 1


def test_a_prompt_node_beacons_when_frames_of_another_begin_to_be_accepted() -> None:
    beacons, host = prompt_node(interval=4.0)
    beacons.on_acquainted(2)
    host.advance(SECOND // 10)
    assert len(host.sent) == 1


def test_brief_beacons_say_that_nothing_has_changed() -> None:
    host = FakeHost(node=1)
    options = BeaconOptions(interval=1.0, allowed_loss=2, jitter=0.0, brief=True)
    beacons = Beacons(UnderlayContext(host), options)
    host.attach(beacons)
    beacons.on_start()
    sent: list[type] = []
    for second in range(12):
        beacons.on_receive(2, says(1) if second % 4 == 0 else CODEC.encode(BriefBeacon()))
        if second > 5:
            beacons.on_receive(3, CODEC.encode(LadenBriefBeacon(b"x")))  # it may not hear us
        host.advance(SECOND)
        sent.append(type(CODEC.decode(host.sent[-1].frame.payload)))
    assert beacons.neighbours() == [2] and beacons.neighbours_of(2) == [1]
    brief, named = BriefBeacon, Beacon
    assert sent == [named, named, brief, brief, named, brief, named, named, brief, brief, named, brief]


def test_a_node_alone_beacons_at_its_own_pace_and_at_the_common_one_in_company() -> None:
    beacons, host = prompt_node(interval=0.5, lone_interval=5.0)
    host.advance(4 * SECOND)
    assert len(host.sent) == 1  # at 5 s
    for _ in range(8):
        beacons.on_receive(2, says(1))
        host.advance(SECOND // 2)
    assert 8 <= len(host.sent) - 1 <= 10
    host.advance(2 * SECOND)  # 2 is gone after 1.75 s
    host.sent.clear()
    host.advance(10 * SECOND)
    assert len(host.sent) == 2
