"""Readings that travel, and broker information from near and far."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest
from tests.strategy.opportunistic.station import Near, Outgoing, shared_of

from roamcast.errors import WireError
from roamcast.filter import Filter
from roamcast.host import Position
from roamcast.strategy.opportunistic.adaptation.directory import (
    ANSWER_WITHIN,
    LIFETIME,
    CentralClient,
    CentralDirectory,
    nearest,
)
from roamcast.strategy.opportunistic.adaptation.events import Measured, SystemChannel
from roamcast.strategy.opportunistic.adaptation.monitor import (
    PONG_WITHIN,
    WATCH_LIFETIME,
    WATCHES_MAX,
    Pings,
    ResourceMonitor,
)
from roamcast.strategy.opportunistic.adaptation.services import Alternative, BrokerFacts
from roamcast.strategy.opportunistic.messages import (
    FARTHEST,
    FRAMES,
    FULL,
    Ask,
    BrokerRow,
    Envelope,
    Latencies,
    Pong,
    Reading,
    Report,
    ServerAnswer,
    StreamMessage,
    StreamSegment,
    Unwatch,
    Volunteer,
    Watch,
)
from roamcast.testing import FakeHost
from roamcast.units import SECOND, NodeId

A, B, C = 1, 2, 3
QUIET = {"was_made": 0, "retiring": 0}


class Watched:
    """Two monitors and the messages between them."""

    def __init__(self) -> None:
        self.sent: list[StreamMessage] = []
        self.heard: list[Measured] = []
        self.source = ResourceMonitor(
            FakeHost(A), SystemChannel(), lambda to, message: self.sent.append(message)
        )
        channel = SystemChannel()
        channel.subscribe(Measured, self.heard.append)
        self.client = ResourceMonitor(FakeHost(B), channel, lambda to, message: self._to_source(message))

    def _to_source(self, message: StreamMessage) -> None:
        assert isinstance(message, Watch | Unwatch)
        self.source.on_message(B, message)


def test_the_filter_works_at_the_source() -> None:
    two = Watched()
    number = two.client.watch(A, "load", "load > 0.8")
    two.source.measured("load", {**QUIET, "now": 1, "load": 0.5})
    two.source.measured("memory", {"now": 1, "octets": 5, "load": 0.9})
    assert two.sent == []  # neither was sent at all
    two.source.measured("load", {**QUIET, "now": 2, "load": 0.9})
    (reading,) = two.sent
    assert isinstance(reading, Reading)
    two.client.on_message(A, reading)
    assert two.heard == [Measured("load", A, {**QUIET, "now": 2.0, "load": 0.9})]
    two.client.on_message(C, reading)  # nobody asked C
    assert len(two.heard) == 1
    two.client.unwatch(A, number)
    two.source.measured("load", {"now": 3, "load": 0.9})
    assert len(two.sent) == 1


def test_a_filter_spans_several_kinds() -> None:
    """Channels, 2.2: only when the topology changes and the processor's load exceeds 80%."""
    two, heard = Watched(), list[Measured]()
    two.client.watch(A, "topology", "load_load > 0.8 AND neighbours < 3")
    two.source._channel.subscribe(
        Measured, heard.append, two.source.condition("topology", Filter.sql("load_load > 0.8"))
    )
    changed = {"now": 1, "brokers": 5, "neighbours": 2}
    two.source.measured("topology", changed)  # no load is known yet
    for load in (0.5, 0.9):
        two.source.measured("load", {**QUIET, "now": 1, "load": load})  # no change of the topology
    assert two.sent == [] and heard == []
    two.source.measured("topology", changed)
    two.source.measured("topology", {**changed, "neighbours": 3})
    (reading,) = two.sent
    two.client.on_message(A, reading)  # type: ignore[arg-type]
    assert two.heard == [Measured("topology", A, changed)] and len(heard) == 2
    two.source.measured("load", {**QUIET, "now": 2, "load": 0.8})
    two.source.measured("topology", changed)
    assert len(two.sent) == 1 and len(heard) == 2


def test_sampling_asks_every_source_and_local_adaptors_hear_it() -> None:
    channel = SystemChannel()
    heard: list[Measured] = []
    channel.subscribe(Measured, heard.append)
    monitor = ResourceMonitor(FakeHost(A), channel, lambda to, message: None)
    monitor.add("latency", lambda: [{"peer": B, "micros": 700}, {"peer": C, "micros": 900}])
    monitor.sample()
    assert [event.values["micros"] for event in heard] == [700, 900]


def test_watches_end_are_bounded_and_may_be_rubbish() -> None:
    sent: list[StreamMessage] = []
    host = FakeHost(A)
    monitor = ResourceMonitor(host, SystemChannel(), lambda to, message: sent.append(message))
    monitor.on_message(B, Watch(1, "load", b"\xff\xff"))
    everything = Watched()
    kept: list[Watch] = []
    everything.source.on_message = lambda sender, message: kept.append(message)  # type: ignore[method-assign,arg-type]
    everything.client.watch(A, "load", "load >= 0")
    for number in range(WATCHES_MAX + 5):
        monitor.on_message(B, Watch(number, "load", kept[0].filter))
    monitor.measured("load", {"load": 1.0})
    assert len(sent) == WATCHES_MAX
    host.advance(WATCH_LIFETIME)
    monitor.measured("load", {"load": 1.0})
    assert len(sent) == WATCHES_MAX


def test_the_nearest_that_carries_less_and_accepts() -> None:
    central = Central()
    distances = (11, 5, 12, 1, 13, 2, 14, 1)
    central.server.on_message(A, Report(95, True, distances))
    for broker, load, accepts in ((11, 10, True), (12, 90, True), (13, 20, True), (14, 0, False)):
        central.server.on_message(broker, Report(load, accepts))
    for below, expected in ((50, 13), (15, 11), (5, None)):
        assert central.server.answer(A, Ask(1, below)) == ServerAnswer(1, expected)
    assert nearest([3, 1, 2], {1: 2, 3: 2}.get) == 1  # a tie: the lower number; no way to the other


class Central:
    """A directory on node 9 and a client on A; messages arrive when told to."""

    def __init__(self) -> None:
        self.host, self.asker = FakeHost(9), FakeHost(A)
        self.questions: list[StreamMessage] = []
        self.answers: list[StreamMessage] = []
        self.server = CentralDirectory(self.host, lambda to, message: self.answers.append(message))
        streams = Outgoing()
        streams.write = self._ask  # type: ignore[method-assign]
        shared = shared_of(self.asker, Near(), streams)
        shared.overlay.topology.update(A, BrokerRow((B, 4, C, 2), 5, boot=1), 0)
        self.client = CentralClient(shared, 9)

    def _ask(self, to: NodeId, message: StreamMessage) -> bool:
        self.questions.append(message)
        return True

    def carry(self) -> None:
        for message in self.questions:
            assert isinstance(message, Report | Ask)
            self.server.on_message(A, message)
        for answer in self.answers:
            assert isinstance(answer, ServerAnswer)
            self.client.on_answer(9, answer)
        self.questions.clear()
        self.answers.clear()

    def ask(self, question: Callable[[Callable[[NodeId | None], None]], None]) -> list[NodeId | None]:
        found: list[NodeId | None] = []
        question(found.append)
        self.carry()
        return found


def test_the_central_directory_answers_by_what_it_heard_last() -> None:
    central = Central()
    assert central.ask(lambda done: central.client.less_loaded(0.9, done)) == [None]
    central.client.report(0.95, 0)
    central.carry()
    central.server.on_message(B, Report(10, True))
    central.server.on_message(C, Report(50, True))
    assert central.ask(lambda done: central.client.less_loaded(0.9, done)) == [C]  # 2 hops, B is at 4
    assert central.ask(lambda done: central.client.less_loaded(0.3, done)) == [B]
    central.host.advance(LIFETIME + 1)
    central.server.on_message(B, Report(10, True))
    assert central.ask(lambda done: central.client.less_loaded(0.9, done)) == [B]  # C has been silent


def test_volunteers_are_found_until_they_are_brokers() -> None:
    central = Central()
    central.server.on_message(7, Volunteer())
    assert central.ask(central.client.willing) == [7]
    central.server.on_message(7, Report(0, True))
    assert central.ask(central.client.willing) == [None]


def test_a_question_without_an_answer_ends_as_nobody_and_strangers_do_not_answer() -> None:
    central = Central()
    found: list[NodeId | None] = []
    central.client.willing(found.append)
    central.client.on_answer(8, ServerAnswer(1, 5))
    central.asker.advance(ANSWER_WITHIN)
    central.client.give_up()
    central.client.on_answer(9, ServerAnswer(1, 5))  # too late
    assert found == [None]


def test_the_server_names_the_broker_of_the_client_s_new_network() -> None:
    """A asks for one near C: C itself; where C is full, the one nearest to it; A itself is no alternative."""
    central = Central()
    central.client.report(0.1, 0)  # of A: 4 hops to B, 2 to C
    central.carry()
    central.server.on_message(B, Report(30, True, (C, 3)))
    central.server.on_message(C, Report(50, True))

    def near(place: NodeId) -> list[Alternative | None]:
        found: list[Alternative | None] = []
        central.client.alternative(place, found.append)
        central.carry()
        return found

    assert near(C) == [Alternative(C, 0.5, 0)]
    central.server.on_message(C, Report(FULL, False))
    assert near(C) == [Alternative(B, 0.3, 3)]
    assert near(8) == [None]  # nobody has measured how far that is
    late: list[Alternative | None] = []
    central.client.alternative(C, late.append)
    central.asker.advance(ANSWER_WITHIN)
    central.client.give_up()
    assert late == [None]


def test_the_server_says_what_a_broker_has_reported_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    central, found = Central(), list[BrokerFacts | None]()
    monkeypatch.setattr(central.asker, "position", lambda: Position(12.4, -7.6, 0.0, 0.0))
    central.client.report(0.5, 16_000_000)
    central.carry()
    for broker in (A, B):  # nobody has heard of B
        central.client.about(broker, found.append)
        central.carry()
    assert found == [BrokerFacts(0.5, 16_000_000, (12, -8)), None]
    monkeypatch.setattr(central.asker, "position", lambda: Position(float("nan"), 1e300, 0.0, 0.0))
    central.client.report(0.5, -3)  # more waits than is allowed; and no place on this earth
    central.client.about(A, found.append)
    central.carry()
    assert found[-1] == BrokerFacts(0.5, 0, None)


@pytest.mark.parametrize(
    "report",
    [
        Report(1, True, (), -1),
        Report(1, True, (), (1 << 64) - 1),
        Report(1, True, (), 1, (FARTHEST + 1, 0)),
        Report(1, True, (), 1, (0.5, 0)),  # type: ignore[arg-type]
        Report(1, True, (), 1, (1, 2, 3)),  # type: ignore[arg-type]
        ServerAnswer(1, 2, 0, 0, 5, (0, -FARTHEST - 1)),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_decoded(report: Report | ServerAnswer) -> None:
    def carried(message: Report | ServerAnswer) -> bytes:
        return FRAMES.encode(Envelope(A, B, 0, (), StreamSegment(1, 0, 0, 0, message)))

    assert FRAMES.decode(carried(Report(1, True, (), 5, (-FARTHEST, FARTHEST))))
    with pytest.raises(WireError):
        FRAMES.decode(carried(report))


class Pinged:
    """Nodes whose messages take a time of their own, one way."""

    def __init__(self, delays: dict[tuple[NodeId, NodeId], int]) -> None:
        self.delays = delays
        self.now = 0
        self.hosts = {node: FakeHost(node) for pair in delays for node in pair}
        self.sent = 0
        self.under_way: list[tuple[int, int, NodeId, NodeId, StreamMessage]] = []  # when, the how manieth, …
        self.pings = {node: Pings(host, partial(self.send, node)) for node, host in self.hosts.items()}

    def send(self, sender: NodeId, to: NodeId, message: StreamMessage) -> None:
        delay = self.delays.get((sender, to), self.delays.get((to, sender)))
        if delay is not None:
            assert isinstance(message, StreamMessage)
            self.sent += 1
            self.under_way.append((self.now + delay, self.sent, sender, to, message))

    def run(self, until: int) -> None:
        while self.under_way and min(self.under_way)[0] <= until:
            at, _, sender, to, message = first = min(self.under_way)
            self.under_way.remove(first)
            self._advance(at)
            self.pings[to].on_message(sender, message)  # type: ignore[arg-type]
        self._advance(until)

    def _advance(self, at: int) -> None:
        for host in self.hosts.values():
            host.advance(at - self.now)
        self.now = at


def test_half_of_a_round_trip_here_and_from_another_broker() -> None:
    net = Pinged({(A, B): 3_000, (A, C): 10_000, (B, C): 700})
    here: list[Mapping[NodeId, int]] = []
    there: list[Mapping[NodeId, int]] = []
    net.pings[A].ask(A, [A, B, C], here.append)
    net.pings[A].ask(B, [A, B, C], there.append)
    net.run(20_000)
    assert here == [{A: 0, B: 3_000, C: 10_000}]
    assert there == [{A: 3_000, B: 0, C: 700}]


def test_who_does_not_answer_is_left_out_and_a_stranger_s_answer_is_none() -> None:
    net = Pinged({(A, B): 3_000, (B, C): 700})
    found: list[Mapping[NodeId, int]] = []
    net.pings[A].ask(A, [B, C], found.append)
    net.pings[A].on_message(B, Pong(2))  # that was C's
    net.run(PONG_WITHIN)
    assert found == []
    net.pings[A].give_up()
    assert found == [{B: 3_000}]
    net.pings[A].ask(C, [B], found.append)
    net.pings[A].on_message(B, Latencies(1, (B, 1)))  # C was asked
    net.run(PONG_WITHIN + 2 * SECOND + 1_000_000)
    net.pings[A].give_up()
    assert found == [{B: 3_000}, {}]
