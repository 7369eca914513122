"""The promises of `roamcast.host.Host`, checked on every runtime that implements it.

A runtime joins by adding a `Harness` to `HARNESSES`: a way to make a few connected hosts and to let
time pass. The suite speaks of promises only, never of a runtime's insides.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol

import pytest

from roamcast.host import Channel, Frame, Host, Kind, Layer, SendFailure, TimerName
from roamcast.runtime.live.air import interface
from roamcast.runtime.live.air.radio import Radio
from roamcast.runtime.live.port.clock import Clock, monotonic
from roamcast.runtime.live.port.host import LiveHost
from roamcast.runtime.live.port.inputs import Inputs
from roamcast.runtime.live.port.timers import Timers
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.settings import AirSettings
from roamcast.runtime.sim.csma import CsmaMedium
from roamcast.runtime.sim.disk import DiskMedium
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.host import SimHost
from roamcast.runtime.sim.ideal import IdealMedium
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import Medium
from roamcast.sealing import GroupKey, Identity, KeyRing, Sealer
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

    def close(self) -> None: ...


class SimHarness:
    def __init__(self, make: Callable[[Engine, RadioLinks, Trace], Medium]) -> None:
        self.engine = Engine()
        links = RadioLinks(3)
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

    def close(self) -> None:
        pass


class LivePart:
    """One node's host over real sockets on the loopback, without the layers above."""

    def __init__(self, node: NodeId, ring: KeyRing, air_port: int, loop: asyncio.AbstractEventLoop) -> None:
        counters = Counters()
        self.clock = Clock()
        self.inputs = Inputs(self.clock, counters)
        self.timers = Timers(self.inputs, loop)
        journal = NodeJournal(node, self.clock, counters, None)
        sealer = Sealer(Identity.generate(node), ring, epoch=1)
        settings = AirSettings(interface="lo", port=air_port)
        lo = interface.named("lo", "air.interface")
        self.radio = Radio(loop, settings, lo, sealer, {}, self.inputs, journal, counters)
        self.host = LiveHost(
            node, Channel.STRATEGY, self.clock, self.timers, self.radio, journal, Random(node), {}
        )


class LiveHarness:
    """Real time passes, so a long run ends when nothing is under way any more."""

    QUIET_LOOKS = 3

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        ring = KeyRing(GroupKey.generate())
        here, elsewhere = free_port(), free_port()
        self.parts = [LivePart(n, ring, elsewhere if n == 2 else here, self.loop) for n in range(3)]
        self.errors: list[Exception] = []
        for part in self.parts:
            part.inputs.on_error = self.errors.append
            self.loop.run_until_complete(part.radio.open())
        books = [part.radio.peers for part in self.parts[:2]]
        self.loop.run_until_complete(self.until(lambda: bool(books[0].find(1) and books[1].find(0))))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    def host(self, node: NodeId) -> Host:
        return self.parts[node].host

    def attach(self, node: NodeId, layer: Layer) -> None:
        self.parts[node].host.attach(layer)
        for part in self.parts:
            part.clock.enter()

    def run(self, by: Micros) -> None:
        if by >= SECOND:
            self.loop.run_until_complete(self.quiet(by))
        else:
            # To the instant, and no further: what else is due in the same turn of the loop waits.
            until = max(part.clock.now for part in self.parts) + by

            def stop() -> None:
                raise KeyboardInterrupt

            self.loop.call_later((until - monotonic()) / SECOND, stop)
            with pytest.raises(KeyboardInterrupt):
                self.loop.run_forever()
        if self.errors:
            raise self.errors[0]

    async def quiet(self, by: Micros) -> None:
        end, looks = self.loop.time() + by / SECOND, 0
        while looks < self.QUIET_LOOKS and self.loop.time() < end:
            await asyncio.sleep(0.02)
            looks = 0 if any(len(part.timers) or part.radio.is_busy for part in self.parts) else looks + 1

    def inside(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(self.parts[0].inputs.handle, action)

    def close(self) -> None:
        for part in self.parts:
            part.timers.close()
            self.loop.run_until_complete(part.radio.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


HARNESSES: dict[str, Callable[[], Harness]] = {
    "sim-ideal": lambda: SimHarness(lambda e, links, t: IdealMedium(e, links, t, stream(1, "radio"), 0.0)),
    "sim-disk": lambda: SimHarness(lambda e, links, t: DiskMedium(e, links, t, stream(1, "radio"), Disk())),
    "sim-csma": lambda: SimHarness(
        lambda e, links, t: CsmaMedium(e, links, links, t, stream(1, "radio"), Csma(), 1)
    ),
    "live": LiveHarness,
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.realtime if name == "live" else ()) for name in sorted(HARNESSES)
    ]
)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = HARNESSES[request.param]()
    yield made
    made.close()


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
    failures: list[SendFailure] = []
    harness.inside(lambda: nodes[0].host.unicast(1, frame(), failures.append))
    harness.run(SECOND)
    assert [what for _, what, _ in nodes[1].log] == [(0, b"hello")]
    assert failures == []


def test_unicast_to_a_node_out_of_range_fails_once_and_later(harness: Harness) -> None:
    nodes = recorders(harness)
    failures: list[SendFailure] = []

    def send() -> None:
        nodes[0].host.unicast(2, frame(), failures.append)
        assert failures == [], "the call-back came inside the call"

    harness.inside(send)
    harness.run(SECOND)
    assert failures == [SendFailure.LINK]
    assert nodes[2].log == []


def test_a_full_queue_of_our_own_is_not_taken_for_a_broken_link(harness: Harness) -> None:
    nodes = recorders(harness)
    failures: list[SendFailure] = []

    def send() -> None:
        for _ in range(200):
            nodes[0].host.unicast(1, frame(), failures.append)

    harness.inside(send)
    harness.run(SECOND)
    assert set(failures) <= {SendFailure.QUEUE_FULL}
    assert len(nodes[1].log) + len(failures) == 200


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
