"""What waits: messages for a node out of reach, and memorized events for consumers that subscribe later."""

from typing import cast

from tests.strategy.opportunistic.station import COUNTING, PLAIN, Near, Outgoing, PartLayer, shared_of

from roamcast.event import Event, EventClass
from roamcast.strategy.opportunistic.dispatch import Backlog
from roamcast.strategy.opportunistic.messages import CarryMessage, Deliver, Keep, NotHome, Skip
from roamcast.strategy.opportunistic.strategy import Undeliverable
from roamcast.testing import FakeHost
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId

OWN, PEER, CONSUMER, HOME, PRODUCER = 1, 2, 7, 3, 50


class Waiting(PartLayer):
    def __init__(self) -> None:
        self.host, self.streams = FakeHost(OWN), Outgoing()
        self.undeliverable = Undeliverable(shared_of(self.host, Near(), self.streams, keep_realtime=60.0))
        self.host.attach(self)


def deliver(number: int, age: Micros) -> Deliver:
    return Deliver(Event(PRODUCER, number), age, 1, 1, number, 1)


def test_events_for_a_node_out_of_reach_are_given_up_in_time_and_the_rest_waits() -> None:
    waiting = Waiting()
    old, young, word = deliver(0, 61 * SECOND), deliver(1, SECOND), NotHome(1)
    for message in (old, young, word):
        waiting.streams.write(PEER, message)
    waiting.streams.silent.add(PEER)
    waiting.undeliverable.on_unreachable(PEER)
    waiting.host.advance(6 * SECOND)
    assert waiting.streams.to(PEER) == [Skip(1, 0, 1), young, word]  # its reader does not wait for it
    assert [reason for reason, *_ in waiting.streams.dropped] == [DropReason.EXPIRED]


def test_nothing_is_given_up_once_the_node_answers_again() -> None:
    waiting = Waiting()
    waiting.streams.write(PEER, deliver(0, 61 * SECOND))
    waiting.undeliverable.on_unreachable(PEER)
    waiting.host.advance(6 * SECOND)
    assert len(waiting.streams.to(PEER)) == 1 and waiting.streams.dropped == []
    waiting.streams.confirmed()
    waiting.host.advance(60 * SECOND)
    assert waiting.host.timers() == {}  # nothing waits: nobody looks


class Keeping:
    def __init__(self) -> None:
        self.host, self.streams = FakeHost(OWN), Outgoing()
        self.backlog = Backlog(shared_of(self.host, Near(), self.streams))

    def publish(self, sequence: int, lifetime: Micros, publisher: NodeId = PRODUCER) -> Event:
        kind = EventClass.MEMORIZED if lifetime else EventClass.REALTIME
        event = Event(publisher, sequence, event_class=kind, lifetime=lifetime)
        self.backlog.keep(Keep(event, 0, 1))
        return event


def test_a_later_subscriber_gets_memorized_events_that_live_and_their_age() -> None:
    keeping = Keeping()
    event = keeping.publish(0, 100 * SECOND)
    keeping.publish(1, 0)
    keeping.publish(2, 5 * SECOND)
    keeping.host.advance(30 * SECOND)
    keeping.backlog.serve(CONSUMER, HOME, (PLAIN, COUNTING))
    messages = [(to, cast(CarryMessage, message)) for to, message in keeping.streams.written]
    assert sorted((to, one.is_modulated, one.event, one.age) for to, one in messages) == [
        (HOME, True, event, 30 * SECOND),
        (CONSUMER, False, event, 30 * SECOND),
    ]
    assert all(one.is_stored for _, one in messages)


def test_a_broker_that_ends_gives_what_it_keeps_to_another() -> None:
    keeping, heir = Keeping(), Keeping()
    keeping.publish(0, 100 * SECOND)
    keeping.host.advance(40 * SECOND)
    keeping.backlog.give_to(PEER)
    ((to, keep),) = keeping.streams.written
    assert to == PEER and isinstance(keep, Keep) and keep.age == 40 * SECOND
    heir.backlog.keep(keep.aged(SECOND))
    heir.backlog.keep(Keep(Event(PRODUCER, 9), 0, 1))  # nothing to be kept
    heir.backlog.serve(CONSUMER, HOME, (PLAIN,))
    ((to, message),) = heir.streams.written
    assert to == CONSUMER and isinstance(message, CarryMessage) and message.age == 41 * SECOND
