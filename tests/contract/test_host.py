"""The promises of `roamcast.host.Host`, checked on every runtime that implements it.

A runtime joins by adding a `Harness` to `HARNESSES`: a way to make a few connected hosts and to let
time pass. The suite speaks of promises only, never of a runtime's insides.
"""

from collections.abc import Callable
from typing import Protocol

import pytest

from roamcast.host import Channel, Frame, Host, Kind, Layer, TimerName
from roamcast.runtime.sim.csma import CsmaMedium
from roamcast.runtime.sim.disk import DiskMedium
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.host import SimHost
from roamcast.runtime.sim.ideal import IdealMedium
from roamcast.runtime.sim.links import Links
from roamcast.runtime.sim.medium import Medium
from roamcast.streams import stream
from roamcast.trace import Trace
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId
from roamcast.world.radio import Csma, Disk


class Harness(Protocol):
    """Nodes 0, 1 and 2: 0 and 1 hear each other, 2 hears nobody."""

    def host(self, node: NodeId) -> Host: ...

    def attach(self, node: NodeId, layer: Layer) -> None: ...

    def run(self, by: Micros) -> None: ...

    def inside(self, action: Callable[[], None]) -> None:
        """Run `action` as an input of its own at the present instant."""
        ...


class SimHarness:
    def __init__(self, make: Callable[[Engine, Links, Trace], Medium]) -> None:
        self.engine = Engine()
        links = Links(3)
        links.plan(0, 1, True)
        links.plan(1, 0, True)
        trace = Trace()
        self.medium = make(self.engine, links, trace)
        self.hosts = [
            SimHost(n, Channel.STRATEGY, self.engine, self.medium, trace, stream(1, "node", n), {}, None)
            for n in range(3)
        ]

    def host(self, node: NodeId) -> Host:
        return self.hosts[node]

    def attach(self, node: NodeId, layer: Layer) -> None:
        self.hosts[node].attach(layer)
        self.medium.receivers[Channel.STRATEGY][node] = layer.on_receive

    def run(self, by: Micros) -> None:
        self.engine.run(self.engine.now + by)

    def inside(self, action: Callable[[], None]) -> None:
        self.engine.at(self.engine.now, lambda _: action())


HARNESSES: dict[str, Callable[[], Harness]] = {
    "sim-ideal": lambda: SimHarness(lambda e, links, t: IdealMedium(e, links, t, stream(1, "radio"), 0.0)),
    "sim-disk": lambda: SimHarness(lambda e, links, t: DiskMedium(e, links, t, stream(1, "radio"), Disk())),
    "sim-csma": lambda: SimHarness(
        lambda e, links, t: CsmaMedium(e, links, t, stream(1, "radio"), Csma(), 1)
    ),
}


@pytest.fixture(params=sorted(HARNESSES))
def harness(request: pytest.FixtureRequest) -> Harness:
    return HARNESSES[request.param]()


class Recorder(Layer):
    """Writes down every input with its time, and runs what a test hangs on it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.log: list[tuple[str, object, Micros]] = []
        self.react: Callable[[str, object], None] = lambda kind, what: None
        self.depth = 0

    def on_timer(self, name: TimerName) -> None:
        self._handle("timer", name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        self._handle("receive", (sender, payload))

    def _handle(self, kind: str, what: object) -> None:
        self.depth += 1
        assert self.depth == 1, "the host called into a handler that is still running"
        before = self.host.now()
        self.log.append((kind, what, before))
        self.react(kind, what)
        assert self.host.now() == before, "time moved while a handler ran"
        self.depth -= 1


def recorders(harness: Harness) -> list[Recorder]:
    made = [Recorder(harness.host(n)) for n in range(3)]
    for n, recorder in enumerate(made):
        harness.attach(n, recorder)
    return made


def frame(payload: bytes = b"hello", kind: Kind = Kind.DATA) -> Frame:
    return Frame(payload, kind, "test")


def test_a_timer_fires_once_and_never_early(harness: Harness) -> None:
    node, *_ = recorders(harness)
    due = node.host.now() + 30 * MILLISECOND
    node.host.set_timer("tick", due)
    harness.run(29 * MILLISECOND)
    assert node.log == []
    harness.run(SECOND)
    assert [(kind, what) for kind, what, _ in node.log] == [("timer", "tick")]
    assert node.log[0][2] >= due


def test_setting_a_timer_again_moves_it(harness: Harness) -> None:
    node, *_ = recorders(harness)
    node.host.set_timer("tick", node.host.now() + 10 * MILLISECOND)
    node.host.set_timer("tick", node.host.now() + 50 * MILLISECOND)
    harness.run(40 * MILLISECOND)
    assert node.log == []
    harness.run(SECOND)
    assert len(node.log) == 1


def test_timers_of_different_names_are_independent(harness: Harness) -> None:
    node, *_ = recorders(harness)
    node.host.set_timer(("relay", 2), node.host.now() + 20 * MILLISECOND)
    node.host.set_timer(("relay", 1), node.host.now() + 10 * MILLISECOND)
    harness.run(SECOND)
    assert [what for _, what, _ in node.log] == [("relay", 1), ("relay", 2)]


def test_a_cancelled_timer_stays_silent_and_cancelling_nothing_is_no_error(harness: Harness) -> None:
    node, *_ = recorders(harness)
    node.host.set_timer("tick", node.host.now() + 10 * MILLISECOND)
    node.host.cancel_timer("tick")
    node.host.cancel_timer("never set")
    harness.run(SECOND)
    assert node.log == []


def test_a_timer_in_the_past_is_due_at_once_but_not_inside_the_call(harness: Harness) -> None:
    node, *_ = recorders(harness)
    node.react = lambda kind, what: node.host.set_timer("second", 0) if what == "first" else None
    node.host.set_timer("first", node.host.now())
    harness.run(SECOND)
    assert [what for _, what, _ in node.log] == ["first", "second"]


def test_a_broadcast_reaches_neighbours_and_neither_strangers_nor_oneself(harness: Harness) -> None:
    nodes = recorders(harness)
    harness.inside(lambda: nodes[0].host.broadcast(frame()))
    harness.run(SECOND)
    assert [[what for _, what, _ in node.log] for node in nodes] == [[], [(0, b"hello")], []]


def test_an_answer_from_inside_a_handler_is_never_handled_inside_it(harness: Harness) -> None:
    nodes = recorders(harness)
    nodes[1].react = lambda kind, what: nodes[1].host.broadcast(frame(b"answer"))
    harness.inside(lambda: nodes[0].host.broadcast(frame()))
    harness.run(SECOND)  # Recorder asserts that handlers do not nest
    assert [what for _, what, _ in nodes[0].log] == [(1, b"answer")]


def test_unicast_reaches_its_addressee_alone(harness: Harness) -> None:
    nodes = recorders(harness)
    failures: list[str] = []
    harness.inside(lambda: nodes[0].host.unicast(1, frame(), lambda: failures.append("failed")))
    harness.run(SECOND)
    assert [what for _, what, _ in nodes[1].log] == [(0, b"hello")]
    assert failures == []


def test_unicast_to_a_node_out_of_range_fails_once_and_later(harness: Harness) -> None:
    nodes = recorders(harness)
    failures: list[Micros] = []

    def send() -> None:
        nodes[0].host.unicast(2, frame(), lambda: failures.append(nodes[0].host.now()))
        assert failures == [], "the call-back came inside the call"

    harness.inside(send)
    harness.run(SECOND)
    assert len(failures) == 1
    assert nodes[2].log == []


def test_frames_of_one_kind_from_one_sender_arrive_in_order(harness: Harness) -> None:
    nodes = recorders(harness)

    def send() -> None:
        for n in range(20):
            nodes[0].host.unicast(1, frame(bytes([n])))

    harness.inside(send)
    harness.run(SECOND)
    assert [what for _, what, _ in nodes[1].log] == [(0, bytes([n])) for n in range(20)]


def test_the_clock_never_goes_back(harness: Harness) -> None:
    nodes = recorders(harness)
    for n in range(5):
        nodes[0].host.set_timer(("tick", n), nodes[0].host.now() + n * MILLISECOND)
    harness.inside(lambda: nodes[1].host.broadcast(frame()))
    harness.run(SECOND)
    times = [at for _, _, at in nodes[0].log]
    assert times == sorted(times) and len(times) == 6
