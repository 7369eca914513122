"""Small networks in virtual time whose nodes have applications and exchanges, as live nodes do."""

from collections.abc import Callable, Sequence
from random import Random

from tests.gateway.mqtt.stand_alone import Counts

from roamcast.applications import Applications, ApplicationSession
from roamcast.broker.core import Application, Delivery
from roamcast.event import Event, Publication
from roamcast.exchange import Exchanges, FoundEvents, Inquiry, QueryQuestion, Question
from roamcast.filter import Filter
from roamcast.testing import Network
from roamcast.units import SECOND, Micros, NodeId
from roamcast.wire.exchange import CORRELATION, FLAGS, response_topic


class Member:
    """One node's applications. It is also the application that the broker core knows."""

    def __init__(self, network: "ExchangeNetwork", number: NodeId) -> None:
        self._network = network
        self.number = number
        self.name = f"node-{number}"
        self.counters = Counts()
        self.got: list[Event] = []
        self.applications = Applications(self)
        self.exchanges = Exchanges(self, self.applications, Random(number), self.counters)
        self.session = self.applications.open(lambda delivery: self.got.append(delivery.event))

    def on_event(self, delivery: Delivery) -> None:
        self.applications.on_event(delivery)
        self._network.engine.at(self._network.engine.now, lambda _: self.applications.drain())

    def enter(self) -> None:
        pass

    def now(self) -> Micros:
        return self._network.engine.now

    def heard(self) -> int:
        return len(self._network.links.neighbours(self.number))

    def later(self, delay: Micros, action: Callable[[], None]) -> Callable[[], None]:
        standing = [action]

        def fire(_: object) -> None:
            for one in standing:
                one()

        self._network.engine.at(self.now() + delay, fire)
        return standing.clear

    def answers(self, topic: str, payload: bytes) -> ApplicationSession:
        """An application that replies to each request on a topic."""

        def receiver(delivery: Delivery) -> None:
            event = delivery.event
            attributes = {FLAGS: 1, CORRELATION: event.attributes[CORRELATION]}
            session.publish(Publication(attributes, payload + event.payload, response_topic(event)))

        session = self.applications.open(receiver)
        session.subscribe(Filter.topic(topic))
        return session

    def ask(self, publication: Publication, question: Question) -> "Asked":
        asked = Asked()
        inquiry = self.exchanges.ask(publication, question, asked.on_answer, asked.on_over)
        inquiry.published(self.session.publish(inquiry.publication).event)
        asked.inquiry = inquiry
        return asked

    def query(self, wanted: Filter, within: Micros = 3 * SECOND, **options: int) -> list[FoundEvents]:
        found: list[FoundEvents] = []
        latest, limit = bool(options.get("latest")), options.get("limit", 100)
        self.exchanges.query(QueryQuestion(wanted, within, latest, limit), found.append)
        return found


class Asked:
    def __init__(self) -> None:
        self.inquiry: Inquiry | None = None
        self.deliveries: list[Delivery] = []
        self.after: list[Micros] = []
        self.is_over = False

    def on_answer(self, delivery: Delivery, after: Micros) -> None:
        assert not self.is_over
        self.deliveries.append(delivery)
        self.after.append(after)

    def on_over(self) -> None:
        assert not self.is_over
        self.is_over = True

    @property
    def nodes(self) -> list[NodeId]:
        return sorted(delivery.event.publisher for delivery in self.deliveries)

    @property
    def payloads(self) -> list[bytes]:
        return sorted(delivery.event.payload for delivery in self.deliveries)


class ExchangeNetwork(Network):
    """`members` by number."""

    def __init__(self, nodes: int, strategy: str, *, links: Sequence[tuple[int, int]]) -> None:
        self.members: dict[NodeId, Member] = {}
        super().__init__(nodes, strategy, links=links)
        for number, member in self.members.items():
            member.applications.bind(self.node(number))

    def _application(self, number: NodeId) -> Application:
        self.members[number] = Member(self, number)
        return self.members[number]

    @property
    def receipts(self) -> int:
        return sum(member.exchanges.receipts_sent for member in self.members.values())
