"""What the radio reports and what a node refuses: a busy radio is no broken link, a stale one is named."""

from roamcast.broker.core import Broker, Delivery
from roamcast.event import Event, EventId
from roamcast.host import SendFailure
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.tree.content.messages import CODEC as CONTENT
from roamcast.strategy.tree.content.messages import Routed
from roamcast.strategy.tree.courier import AGREEMENT_ATTEMPTS, Courier
from roamcast.strategy.tree.messages import CODEC, Close, Data, Probe
from roamcast.strategy.tree.strategy import Tree, TreeStrategyOptions
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND, NodeId


class Ignores:
    def on_event(self, delivery: Delivery) -> None:
        """Not here."""


class Alone:
    """An underlay without neighbours."""

    def neighbours(self) -> list[NodeId]:
        return []


class Couriers:
    """A courier whose frames fail as the test says."""

    def __init__(self) -> None:
        self.host = FakeHost(0)
        self.undelivered: list[NodeId] = []
        self.courier = Courier(self.host, 0.01, 3, self.undelivered.append)
        self.host.attach(self)  # type: ignore[arg-type]

    def on_timer(self, name: tuple[object, ...]) -> None:
        if name[1] == "again":
            self.courier.on_again(1, 7)
        else:
            assert isinstance(name[2], int)
            self.courier.on_later(name[2])

    def run(self, failure: SendFailure, seconds: int) -> None:
        answered = 0
        for _ in range(seconds * 100):
            self.host.advance(SECOND // 100)
            while answered < len(self.host.sent):
                on_failure = self.host.sent[answered].on_failure
                answered += 1
                if on_failure is not None:
                    on_failure(failure)


def test_a_hop_that_a_broken_link_fails_is_given_up_and_the_link_with_it() -> None:
    couriers = Couriers()
    couriers.courier.hop(1, Close(7), own=True)
    couriers.run(SendFailure.LINK, 2)
    assert len(couriers.host.sent) == 3 and couriers.undelivered == [1]


def test_a_hop_that_finds_our_own_queue_full_says_nothing_about_the_link() -> None:
    couriers = Couriers()
    couriers.courier.hop(1, Close(7), own=True)
    couriers.run(SendFailure.QUEUE_FULL, 2)
    assert len(couriers.host.sent) == 3 and couriers.undelivered == []


def test_an_agreement_is_given_up_after_attempts_on_the_air_not_in_the_queue() -> None:
    couriers = Couriers()
    couriers.courier.agree(1, 7, Probe(7), own=True)
    couriers.run(SendFailure.QUEUE_FULL, 5)
    assert couriers.undelivered == [] and couriers.courier.is_agreeing(1, 7)
    before = len(couriers.host.sent)
    couriers.run(SendFailure.LINK, 60)
    assert couriers.undelivered == [1]
    assert len(couriers.host.sent) - before <= AGREEMENT_ATTEMPTS


def test_an_event_over_a_link_that_we_gave_up_is_traced_as_stale_by_its_name() -> None:
    host = FakeHost(0)
    tree = Tree(
        StrategyContext(host, Broker(host, Ignores()), Alone()),  # type: ignore[arg-type]
        TreeStrategyOptions(),
    )
    host.attach(tree)
    tree.on_start()
    event = Event(5, 17, {"level": 3})
    tree.on_receive(1, CODEC.encode(Data(99, CONTENT.encode(Routed(event, 0, 0)))))
    tree.on_receive(1, CODEC.encode(Data(99, b"no message")))
    drops = [record for record in host.records if isinstance(record, Dropped)]
    assert [(drop.reason, drop.publisher, drop.sequence) for drop in drops] == [
        (DropReason.STALE, *EventId(5, 17)),
        (DropReason.STALE, None, None),
    ]
