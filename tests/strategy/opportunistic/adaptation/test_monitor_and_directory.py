"""Readings that travel, and broker information from near and far."""

from collections.abc import Callable

from roamcast.strategy.opportunistic.adaptation.channel import SystemChannel
from roamcast.strategy.opportunistic.adaptation.events import Measured
from roamcast.strategy.opportunistic.adaptation.messages import (
    AdaptationLetter,
    Answer,
    Ask,
    Reading,
    Report,
    Unwatch,
    Volunteer,
    Watch,
)
from roamcast.strategy.opportunistic.adaptation.monitor import WATCH_LIFETIME, WATCHES_MAX, ResourceMonitor
from roamcast.strategy.opportunistic.adaptation.services import BrokerRecord
from roamcast.strategy.opportunistic.directory import (
    ANSWER_WITHIN,
    LIFETIME,
    CentralClient,
    CentralDirectory,
    nearest_below,
)
from roamcast.testing import FakeHost
from roamcast.units import NodeId

A, B, C = 1, 2, 3
QUIET = {"was_made": 0, "retiring": 0}


class Watched:
    """Two monitors and the letters between them."""

    def __init__(self) -> None:
        self.sent: list[AdaptationLetter] = []
        self.heard: list[Measured] = []
        self.source = ResourceMonitor(
            FakeHost(A), SystemChannel(), lambda to, letter: self.sent.append(letter)
        )
        channel = SystemChannel()
        channel.subscribe(Measured, self.heard.append)
        self.client = ResourceMonitor(FakeHost(B), channel, lambda to, letter: self._to_source(letter))

    def _to_source(self, letter: AdaptationLetter) -> None:
        assert isinstance(letter, Watch | Unwatch)
        self.source.on_letter(B, letter)


def test_the_filter_works_at_the_source() -> None:
    two = Watched()
    number = two.client.watch(A, "load", "load > 0.8")
    two.source.measured("load", {**QUIET, "now": 1, "load": 0.5})
    two.source.measured("memory", {"now": 1, "octets": 5, "load": 0.9})
    assert two.sent == []  # neither was sent at all
    two.source.measured("load", {**QUIET, "now": 2, "load": 0.9})
    (reading,) = two.sent
    assert isinstance(reading, Reading)
    two.client.on_letter(A, reading)
    assert two.heard == [Measured("load", A, {**QUIET, "now": 2.0, "load": 0.9})]
    two.client.on_letter(C, reading)  # nobody asked C
    assert len(two.heard) == 1
    two.client.unwatch(A, number)
    two.source.measured("load", {"now": 3, "load": 0.9})
    assert len(two.sent) == 1


def test_sampling_asks_every_source_and_local_adaptors_hear_it() -> None:
    channel = SystemChannel()
    heard: list[Measured] = []
    channel.subscribe(Measured, heard.append)
    monitor = ResourceMonitor(FakeHost(A), channel, lambda to, letter: None)
    monitor.add("latency", lambda: [{"peer": B, "micros": 700}, {"peer": C, "micros": 900}])
    monitor.sample()
    assert [event.values["micros"] for event in heard] == [700, 900]


def test_watches_end_are_bounded_and_may_be_rubbish() -> None:
    sent: list[AdaptationLetter] = []
    host = FakeHost(A)
    monitor = ResourceMonitor(host, SystemChannel(), lambda to, letter: sent.append(letter))
    monitor.on_letter(B, Watch(1, "load", b"\xff\xff"))
    everything = Watched()
    kept: list[Watch] = []
    everything.source.on_letter = lambda sender, letter: kept.append(letter)  # type: ignore[method-assign,assignment,arg-type]
    everything.client.watch(A, "load", "load >= 0")
    for number in range(WATCHES_MAX + 5):
        monitor.on_letter(B, Watch(number, "load", kept[0].filter))
    monitor.measured("load", {"load": 1.0})
    assert len(sent) == WATCHES_MAX
    host.advance(WATCH_LIFETIME)
    monitor.measured("load", {"load": 1.0})
    assert len(sent) == WATCHES_MAX


def test_the_nearest_that_carries_less_and_accepts() -> None:
    records = [BrokerRecord(1, 0.1), BrokerRecord(2, 0.9), BrokerRecord(3, 0.2), BrokerRecord(4, 0.0, False)]
    distances: dict[NodeId, float | None] = {1: 5, 2: 1, 3: 2, 4: 1}
    assert nearest_below(records, 0.5, distances.get) == 3
    assert nearest_below(records, 0.15, distances.get) == 1
    assert nearest_below(records, 0.05, distances.get) is None
    assert nearest_below(records, 0.5, {1: 2, 3: 2}.get) == 1  # a tie: the lower number
    assert nearest_below(records, 0.5, {2: 1}.get) is None  # no way to the others


class Central:
    """A directory on node 9 and a client on A; letters arrive when told to."""

    def __init__(self) -> None:
        self.host, self.asker = FakeHost(9), FakeHost(A)
        self.questions: list[AdaptationLetter] = []
        self.answers: list[AdaptationLetter] = []
        self.server = CentralDirectory(self.host, lambda to, letter: self.answers.append(letter))
        self.client = CentralClient(
            self.asker, 9, lambda to, letter: self.questions.append(letter), lambda: [(B, 4), (C, 2)]
        )

    def carry(self) -> None:
        for letter in self.questions:
            assert isinstance(letter, Report | Ask)
            self.server.on_letter(A, letter)
        for answer in self.answers:
            assert isinstance(answer, Answer)
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
    central.client.report(0.95)
    central.carry()
    central.server.on_letter(B, Report(10, True))
    central.server.on_letter(C, Report(50, True))
    assert central.ask(lambda done: central.client.less_loaded(0.9, done)) == [C]  # 2 hops, B is at 4
    assert central.ask(lambda done: central.client.less_loaded(0.3, done)) == [B]
    central.host.advance(LIFETIME + 1)
    central.server.on_letter(B, Report(10, True))
    assert central.ask(lambda done: central.client.less_loaded(0.9, done)) == [B]  # C has been silent


def test_volunteers_are_found_until_they_are_brokers() -> None:
    central = Central()
    central.server.on_letter(7, Volunteer())
    assert central.ask(central.client.willing) == [7]
    central.server.on_letter(7, Report(0, True))
    assert central.ask(central.client.willing) == [None]


def test_a_question_without_an_answer_ends_as_nobody_and_strangers_do_not_answer() -> None:
    central = Central()
    found: list[NodeId | None] = []
    central.client.willing(found.append)
    central.client.on_answer(8, Answer(1, 5))
    central.asker.advance(ANSWER_WITHIN)
    central.client.on_timer()
    central.client.on_answer(9, Answer(1, 5))  # too late
    assert found == [None]
