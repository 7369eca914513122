"""Sessions of the applications on one node: who gets what, and when."""

from collections.abc import Iterator

import pytest

from roamcast.applications import AdmissionOutcome, Applications
from roamcast.broker.core import Delivery
from roamcast.broker.store import EventStore, StoreFullError
from roamcast.errors import InputError
from roamcast.event import EventId, Publication
from roamcast.filter import Filter
from roamcast.host import Channel, Host
from roamcast.modulator import ModulatorSpec
from roamcast.node import Node, NodeConfig
from roamcast.testing import FakeHost
from roamcast.units import SECOND, Micros


class Clock:
    """A gate that only counts."""

    def __init__(self, host: FakeHost) -> None:
        self.entered = 0
        self._host = host

    def enter(self) -> None:
        self.entered += 1

    def now(self) -> Micros:
        return self._host.now()


def node(strategy: str = "epidemic") -> tuple[Applications, Clock]:
    hosts = {channel: FakeHost(node=1) for channel in Channel}
    gate = Clock(hosts[Channel.STRATEGY])
    applications = Applications(gate)

    def host(channel: Channel) -> Host:
        return hosts[channel]

    applications.bind(Node(NodeConfig(strategy), host, applications))
    return applications, gate


def test_each_application_gets_a_matching_event_once_with_its_own_subscriptions() -> None:
    applications, _ = node()
    first: list[Delivery] = []
    second: list[Delivery] = []
    one = applications.open(first.append)
    other = applications.open(second.append)
    numbers = (one.subscribe(Filter.topic("a/#")), one.subscribe(Filter.topic("a/b")))
    number = other.subscribe(Filter.topic("a/+"))
    other.publish(Publication(topic="a/b"))
    assert [sorted(delivery.subscriptions) for delivery in first] == [sorted(numbers)]
    assert [delivery.subscriptions for delivery in second] == [(number,)]


def test_an_application_that_comes_later_still_gets_what_is_memorized_and_each_only_once() -> None:
    applications, _ = node()
    early: list[Delivery] = []
    late: list[Delivery] = []
    session = applications.open(early.append)
    session.subscribe(Filter.topic("news"))
    session.publish(Publication(topic="news", lifetime=60 * SECOND))
    applications.open(late.append).subscribe(Filter.topic("news"))
    session.subscribe(Filter.everything())  # the first session has had it
    assert (len(early), len(late)) == (1, 1)


def test_what_a_receiver_does_is_an_input_of_its_own_not_a_call_into_a_running_handler() -> None:
    applications, gate = node()
    log: list[str] = []

    def answer(delivery: Delivery) -> None:
        log.append(delivery.event.topic)
        if delivery.event.topic == "question":
            session.publish(Publication(topic="answer"))
            log.append("published")  # and not delivered yet: the first hand-over has not ended

    session = applications.open(answer)
    session.subscribe(Filter.everything())
    session.publish(Publication(topic="question"))
    assert log == ["question", "published", "answer"]
    assert gate.entered == 3


def test_a_subscription_that_ended_while_its_event_waited_gets_nothing() -> None:
    applications, _ = node()
    log: list[str] = []
    leaving = applications.open(lambda _: log.append("left"))
    staying = applications.open(lambda _: leaving.close())
    staying.subscribe(Filter.everything())
    leaving.subscribe(Filter.everything())
    staying.publish(Publication())  # matched both, in the order of their subscriptions
    assert log == []


def test_a_modulator_that_the_strategy_cannot_run_is_refused_and_nothing_stands() -> None:
    applications, _ = node()
    session = applications.open(lambda _: None)
    with pytest.raises(InputError, match="runs none"):
        session.subscribe(Filter.everything(), ModulatorSpec.of("projection", {"attributes": []}))
    assert applications.node.broker.subscriptions() == []
    session.close()


def test_an_addressed_event_goes_to_the_applications_that_asked_for_it() -> None:
    applications, _ = node()
    log: list[str] = []
    applications.open(lambda _: log.append("plain")).subscribe(Filter.everything())
    applications.open(lambda _: log.append("addressed"), addressed=True)
    applications.open(lambda _: None).publish(Publication(destinations=(1,)))
    assert log == ["addressed"]


def test_what_is_stored_can_be_asked_for_again() -> None:
    applications, _ = node()
    session = applications.open(lambda _: None)
    session.publish(Publication(topic="kept", lifetime=60 * SECOND))
    session.publish(Publication(topic="gone"))
    assert [stored.event.topic for stored in session.stored(Filter.everything())] == ["kept"]
    assert session.stored(Filter.topic("other")) == []


class Pressed:
    """A mesh that takes no real-time event, and asks the publisher of another one to wait."""

    why = "the mesh is slow"

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses

    def sheds(self, publication: Publication) -> bool:
        return True

    def charge(self) -> float:
        return 0.5

    def bulk_wait(self) -> float:
        return 0.0


def test_a_publication_is_accepted_or_waits_or_is_shed_or_refused() -> None:
    applications, _ = node()
    session = applications.open(lambda delivery: None)
    realtime, memorized = Publication(topic="a"), Publication(topic="a", lifetime=60 * SECOND)
    assert session.publish(realtime).outcome is AdmissionOutcome.ACCEPTED
    applications.pressure = Pressed()
    shed = session.publish(realtime)
    assert shed.outcome is AdmissionOutcome.SHED and shed.published is None
    with pytest.raises(InputError, match="was shed: the mesh is slow"):
        _ = shed.event
    for publication, must_arrive in ((memorized, False), (realtime, True)):
        accepted = session.publish(publication, must_arrive=must_arrive)
        assert (accepted.outcome, accepted.wait) == (AdmissionOutcome.ACCEPTED, 0.5)
    store = applications.node.broker.store = EventStore(entries_max=1)
    store.settled = lambda stored: []  # others still need all of it
    assert session.publish(memorized).outcome is AdmissionOutcome.ACCEPTED
    full = session.publish(memorized)
    assert full.outcome is AdmissionOutcome.WAIT and full.published is None
    with pytest.raises(StoreFullError):
        _ = full.event
    assert session.publish(realtime, is_admitted=True).event.topic == "a"
    applications.pressure = Pressed(refuses=True)
    assert session.publish(realtime, must_arrive=True).outcome is AdmissionOutcome.REFUSED
    assert session.publish(Publication(topic="a", payload=bytes(100_000))).outcome is AdmissionOutcome.REFUSED


def test_what_the_strategy_would_not_hand_over_is_refused_with_the_reason() -> None:
    applications, _ = node("flooding")
    session = applications.open(lambda delivery: None)
    refused = session.publish(Publication(topic="a", lifetime=60 * SECOND))
    assert refused.outcome is AdmissionOutcome.REFUSED and applications.published == 0
    with pytest.raises(InputError, match=r"flooding does not bring events .* strategies that do: .*epidemic"):
        _ = refused.event
    with pytest.raises(InputError, match="flooding"):  # a large one too, before its octets come
        session.begin(Publication(topic="a", lifetime=60 * SECOND), 100_000, bytes(16))
    retained = Publication({"mqtt": 4}, topic="a", lifetime=60 * SECOND)
    for promised_nothing in (Publication(topic="a"), retained):
        assert session.publish(promised_nothing).outcome is AdmissionOutcome.ACCEPTED


def test_what_a_full_store_asks_is_looked_up_and_never_counted_anew() -> None:
    """A3 of the attack on live nodes: for each question a set was made of all events owed to all clients."""

    class Owed:
        asked = 0

        def __contains__(self, event: object) -> bool:
            self.asked += 1
            return event == owed_one

        def __iter__(self) -> Iterator[EventId]:
            raise AssertionError("all of them, for one question")

    applications, _ = node()
    session = applications.open(lambda delivery: None)
    events = [session.publish(Publication(topic="a", lifetime=60 * SECOND)).event.id for _ in range(20)]
    owed, owed_one = Owed(), events[3]
    applications.owed.append(owed)
    stored = applications.node.broker.store.standing(0)
    assert [one.event.id for one in applications.settled(stored)] == events[:3] + events[4:]
    assert owed.asked == 20
