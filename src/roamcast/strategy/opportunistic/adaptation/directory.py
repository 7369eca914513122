"""Broker information behind one interface (`adaptation/services.py: Directory`).

`OwnTable` asks this broker's own tables, as the overlays have it. `CentralDirectory` is the channels' broker
information server, embedded in one node; `CentralClient` is every other broker's way to it. Both search as
the channels say (4.1): brokers in the order of their distance, the first that carries less. And where a
client has come into another network, the server names the broker there (3.1, step 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roamcast.host import Host
from roamcast.strategy.opportunistic.adaptation.services import Alternative, BrokerManager, BrokerRecord
from roamcast.strategy.opportunistic.messages import (
    FULL,
    Answer,
    Ask,
    Letter,
    Report,
    Volunteer,
)
from roamcast.units import SECOND, Micros, NodeId

RECORDS_MAX = 4_096
QUESTIONS_MAX = 64
LIFETIME: Micros = 60 * SECOND  # of what nobody has said again
ANSWER_WITHIN: Micros = 10 * SECOND
FAR = 1e6  # hops: nobody knows how many

Found = Callable[[NodeId | None], None]
Send = Callable[[NodeId, Letter], None]


def nearest_below(
    records: Sequence[BrokerRecord], load: float, distance: Callable[[NodeId], float | None]
) -> NodeId | None:
    """The nearest broker that carries less than `load` and accepts more; ties go to the lower number."""
    able = [record.broker for record in records if record.accepts and record.load < load]
    return nearest(able, distance)


def nearest(nodes: Sequence[NodeId], distance: Callable[[NodeId], float | None]) -> NodeId | None:
    far = [(away, node) for node in nodes if (away := distance(node)) is not None]
    return min(far)[1] if far else None


class OwnTable:
    """What this broker has heard of others by the overlay's own updates."""

    def __init__(
        self,
        brokers: BrokerManager,
        known: Callable[[], Sequence[NodeId]],
        volunteers: Callable[[], Sequence[NodeId]],
        distance: Callable[[NodeId], float | None],
    ) -> None:
        """`known`: the brokers in the tables; `volunteers`, `distance`: nodes that would be brokers, and
        how far any node is."""
        self._brokers = brokers
        self._known = known
        self._volunteers = volunteers
        self._distance = distance

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        """The client has looked in the same rows, at the distances from its own place."""
        on_found(None)

    def less_loaded(self, load: float, on_found: Found) -> None:
        own = self._brokers.own
        records = [BrokerRecord(b, self._brokers.load(b)) for b in self._known() if b != own]
        on_found(nearest_below(records, load, lambda broker: self._brokers.path(own, broker)))

    def willing(self, on_found: Found) -> None:
        on_found(nearest(list(self._volunteers()), self._distance))

    def report(self, load: float) -> None:
        """Loads travel with the topology rows."""


@dataclass
class Known:
    record: BrokerRecord
    heard_at: Micros
    distances: dict[NodeId, int] = field(default_factory=dict)


class CentralDirectory:
    """The server. It hears reports, and answers questions from what it heard last."""

    def __init__(self, host: Host, send: Send) -> None:
        self._host = host
        self._send = send
        self._brokers: dict[NodeId, Known] = {}
        self._volunteers: dict[NodeId, Micros] = {}  # when they last said so

    def on_letter(self, sender: NodeId, message: Report | Volunteer | Ask) -> None:
        now = self._host.now()
        if len(self._brokers) + len(self._volunteers) >= RECORDS_MAX:
            self._forget_silent(now - LIFETIME)
        match message:
            case Report():
                if sender in self._brokers or len(self._brokers) < RECORDS_MAX:
                    distances = dict(zip(message.distances[::2], message.distances[1::2], strict=False))
                    record = BrokerRecord(sender, message.load / 100, message.accepts)
                    self._brokers[sender] = Known(record, now, distances)
                self._volunteers.pop(sender, None)
            case Volunteer():
                if sender in self._volunteers or len(self._volunteers) < RECORDS_MAX:
                    self._volunteers[sender] = now
                self._brokers.pop(sender, None)
            case Ask():
                self._send(sender, self.answer(sender, message))

    def _forget_silent(self, since: Micros) -> None:
        self._brokers = {node: known for node, known in self._brokers.items() if known.heard_at >= since}
        self._volunteers = {node: at for node, at in self._volunteers.items() if at >= since}

    def answer(self, asker: NodeId, ask: Ask) -> Answer:
        since = self._host.now() - LIFETIME
        alive = [k.record for n, k in self._brokers.items() if k.heard_at >= since and n != asker]
        if ask.near is not None:
            place = ask.near
            broker = nearest_below(alive, FULL / 100, lambda node: self._distance(place, node))
            if broker is None:
                return Answer(ask.number)
            load = round(100 * self._brokers[broker].record.load)
            return Answer(ask.number, broker, load, int(self._distance(place, broker)))
        if ask.below is None:
            willing = [n for n, at in self._volunteers.items() if at >= since and n != asker]
            return Answer(ask.number, nearest(willing, lambda node: self._distance(asker, node)))
        found = nearest_below(alive, ask.below / 100, lambda node: self._distance(asker, node))
        return Answer(ask.number, found)

    def _distance(self, origin: NodeId, node: NodeId) -> float:
        """By the first one's word, else by the other's; one that nobody has measured comes last."""
        if origin == node:
            return 0.0
        first, other = self._brokers.get(origin), self._brokers.get(node)
        if first is not None and node in first.distances:
            return float(first.distances[node])
        return FAR if other is None else float(other.distances.get(origin, FAR))


class CentralClient:
    """A broker's way to the server. A question without an answer ends as "nobody" (`on_timer`)."""

    def __init__(
        self, host: Host, server: NodeId, send: Send, distances: Callable[[], Sequence[tuple[NodeId, int]]]
    ) -> None:
        self._host = host
        self._server = server
        self._send = send
        self._distances = distances
        self._numbers = 0
        self._open: dict[int, tuple[Callable[[Answer | None], None], Micros]] = {}

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        def answered(answer: Answer | None) -> None:
            if answer is None or answer.node is None or answer.hops >= FAR:
                on_found(None)
            else:
                on_found(Alternative(answer.node, answer.load / 100, answer.hops))

        self._ask(None, near, answered)

    def less_loaded(self, load: float, on_found: Found) -> None:
        self._ask(
            max(round(100 * load), 0), None, lambda answer: on_found(None if answer is None else answer.node)
        )

    def willing(self, on_found: Found) -> None:
        self._ask(None, None, lambda answer: on_found(None if answer is None else answer.node))

    def report(self, load: float) -> None:
        pairs = tuple(number for pair in self._distances()[:255] for number in pair)
        hundredths = min(round(100 * load), FULL)
        self._send(self._server, Report(hundredths, hundredths < FULL, pairs))

    def on_answer(self, sender: NodeId, message: Answer) -> None:
        if sender == self._server and message.number in self._open:
            self._open.pop(message.number)[0](message)

    def on_timer(self) -> None:
        """Called now and then: give up what was never answered."""
        for number in [n for n, (_, until) in self._open.items() if until <= self._host.now()]:
            self._open.pop(number)[0](None)

    def _ask(
        self, below: int | None, near: NodeId | None, on_answer: Callable[[Answer | None], None]
    ) -> None:
        if len(self._open) >= QUESTIONS_MAX:
            on_answer(None)
            return
        self._numbers += 1
        self._open[self._numbers] = (on_answer, self._host.now() + ANSWER_WITHIN)
        self._send(self._server, Ask(self._numbers, below, near))
