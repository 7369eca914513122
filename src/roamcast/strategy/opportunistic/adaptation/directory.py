"""Broker information behind one interface (`services.py: Directory`).

`OwnTable` asks this broker's own tables, as the overlays have it. `CentralDirectory` is the channels' broker
information server, embedded in one node; `CentralClient` is every other broker's way to it. Both search as
the channels say (4.1): brokers in the order of their distance, the first that carries less. And where a
client has come into another network, the server names the broker there (3.1, step 1).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from roamcast.host import Host
from roamcast.kit.tables import ExpiringDict, unreported
from roamcast.strategy.opportunistic.adaptation.monitor import OpenQuestions, Send
from roamcast.strategy.opportunistic.adaptation.services import Alternative, BrokerFacts, BrokerManager
from roamcast.strategy.opportunistic.messages import (
    FARTHEST,
    FULL,
    Ask,
    Location,
    Report,
    ServerAnswer,
    Volunteer,
)
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.units import SECOND, Micros, NodeId

RECORDS_MAX = 4_096
LIFETIME: Micros = 60 * SECOND  # of what nobody has said again
ANSWER_WITHIN: Micros = 10 * SECOND
FAR = 1e6  # hops: nobody knows how many
DISTANCES_MAX = 255  # in one report

Found = Callable[[NodeId | None], None]
OnFacts = Callable[[BrokerFacts | None], None]


def nearest(nodes: Iterable[NodeId], distance: Callable[[NodeId], float | None]) -> NodeId | None:
    """Ties go to the lower number."""
    far = [(away, node) for node in nodes if (away := distance(node)) is not None]
    return min(far)[1] if far else None


class OwnTable(NodePart):
    """What this broker has heard of others by the overlay's own updates."""

    def __init__(
        self, shared: SharedParts, brokers: BrokerManager, volunteers: Callable[[], list[NodeId]]
    ) -> None:
        """`volunteers`: nodes that would be brokers."""
        super().__init__(shared)
        self._brokers = brokers
        self._volunteers = volunteers

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        """The client has looked in the same rows, at the distances from its own place."""
        on_found(None)

    def less_loaded(self, load: float, on_found: Found) -> None:
        brokers, own = self._brokers, self._host.node
        known = self._overlay.topology.reachable()
        able = [other for other in known if other != own and brokers.load(other) < load]
        on_found(nearest(able, lambda broker: brokers.path(own, broker)))

    def willing(self, on_found: Found) -> None:
        on_found(nearest(self._volunteers(), self._underlay.distance))

    def about(self, broker: NodeId, on_found: OnFacts) -> None:
        """Loads travel with the topology rows; all else is a question to a monitor or to a server."""
        is_known = self._overlay.topology.is_broker(broker)
        on_found(BrokerFacts(self._brokers.load(broker)) if is_known else None)


class BrokerRecord(NamedTuple):
    """What a broker reported; `until`: it counts."""

    load: float
    accepts: bool
    until: Micros
    distances: dict[NodeId, int]
    memory: int
    location: Location | None


class CentralDirectory:
    """The server. It hears reports, and answers questions from what it heard last."""

    def __init__(self, host: Host, send: Send) -> None:
        self._host = host
        self._send = send
        self._brokers: ExpiringDict[NodeId, BrokerRecord] = ExpiringDict(
            RECORDS_MAX, unreported, lambda record: record.until
        )
        self._volunteers: ExpiringDict[NodeId, Micros] = ExpiringDict(RECORDS_MAX, unreported, int)

    def on_message(self, sender: NodeId, message: Report | Volunteer | Ask) -> None:
        until = self._host.now() + LIFETIME
        match message:
            case Report(load, accepts, pairs, memory, location):
                distances = dict(zip(pairs[::2], pairs[1::2], strict=False))
                self._brokers[sender] = BrokerRecord(load / 100, accepts, until, distances, memory, location)
                self._volunteers.pop(sender, None)
            case Volunteer():
                self._volunteers[sender] = until
                self._brokers.pop(sender, None)
            case Ask():
                self._send(sender, self.answer(sender, message))

    def answer(self, asker: NodeId, ask: Ask) -> ServerAnswer:
        self._brokers.expire(self._host.now())
        self._volunteers.expire(self._host.now())
        if ask.about is not None:
            known = self._brokers.get(ask.about)
            if known is None:
                return ServerAnswer(ask.number)
            load = round(100 * known.load)
            return ServerAnswer(ask.number, ask.about, load, 0, known.memory, known.location)
        if ask.near is not None:
            broker = self._nearest_below(asker, FULL / 100, ask.near)
            if broker is None:
                return ServerAnswer(ask.number)
            load = round(100 * self._brokers[broker].load)
            return ServerAnswer(ask.number, broker, load, int(self._distance(ask.near, broker)))
        if ask.below is None:
            willing = [node for node in self._volunteers if node != asker]
            return ServerAnswer(ask.number, nearest(willing, lambda node: self._distance(asker, node)))
        return ServerAnswer(ask.number, self._nearest_below(asker, ask.below / 100, asker))

    def _nearest_below(self, asker: NodeId, load: float, place: NodeId) -> NodeId | None:
        """The broker nearest to `place` that carries less than `load` and accepts more, the asker apart."""
        able = [node for node, one in self._brokers.items() if one.accepts and one.load < load]
        return nearest((n for n in able if n != asker), lambda node: self._distance(place, node))

    def _distance(self, origin: NodeId, node: NodeId) -> float:
        """As the first one says, else as the other does; one that nobody has measured comes last."""
        if origin == node:
            return 0.0
        first, other = self._brokers.get(origin), self._brokers.get(node)
        if first is not None and node in first.distances:
            return float(first.distances[node])
        return FAR if other is None else float(other.distances.get(origin, FAR))


class CentralClient(NodePart):
    """A broker's way to the server. A question without an answer ends as "nobody" (`give_up`)."""

    def __init__(self, shared: SharedParts, server: NodeId) -> None:
        super().__init__(shared)
        self._server = server
        self._questions: OpenQuestions[ServerAnswer] = OpenQuestions(self._host)
        self.give_up = self._questions.give_up

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        def answered(answer: ServerAnswer | None) -> None:
            if answer is None or answer.node is None or answer.hops >= FAR:
                on_found(None)
            else:
                on_found(Alternative(answer.node, answer.load / 100, answer.hops))

        self._ask(None, near, answered)

    def less_loaded(self, load: float, on_found: Found) -> None:
        self._ask(max(round(100 * load), 0), None, lambda answer: on_found(_node_of(answer)))

    def willing(self, on_found: Found) -> None:
        self._ask(None, None, lambda answer: on_found(_node_of(answer)))

    def about(self, broker: NodeId, on_found: OnFacts) -> None:
        def answered(answer: ServerAnswer | None) -> None:
            if answer is None or answer.node != broker:
                on_found(None)
            else:
                on_found(BrokerFacts(answer.load / 100, answer.memory, answer.location))

        self._ask(None, None, answered, broker)

    def report(self, load: float, memory: int) -> None:
        """This broker's load, what memory it has left, and where it is, for those who ask."""
        topology, own = self._overlay.topology, self._host.node
        lengths = ((other, topology.length(own, other)) for other in topology.reachable())
        known = [(other, length) for other, length in lengths if length is not None][:DISTANCES_MAX]
        hundredths = min(round(100 * load), FULL)
        pairs = tuple(number for pair in known for number in pair)
        location = own_location(self._host)
        self._streams.write(
            self._server, Report(hundredths, hundredths < FULL, pairs, max(memory, 0), location)
        )

    def on_answer(self, sender: NodeId, message: ServerAnswer) -> None:
        self._questions.answered(sender, message.number, message)

    def _ask(
        self,
        below: int | None,
        near: NodeId | None,
        on_answer: Callable[[ServerAnswer | None], None],
        about: NodeId | None = None,
    ) -> None:
        number = self._questions.ask(self._server, ANSWER_WITHIN, on_answer)
        if number is not None:
            self._streams.write(self._server, Ask(number, below, near, about))


def own_location(host: Host) -> Location | None:
    """To the metre; None: this node does not know, or is where nobody is."""
    here = host.position()
    if here is None or not (abs(here.x) <= FARTHEST and abs(here.y) <= FARTHEST):
        return None
    return round(here.x), round(here.y)


def _node_of(answer: ServerAnswer | None) -> NodeId | None:
    return None if answer is None else answer.node
