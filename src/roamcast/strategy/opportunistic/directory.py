"""Broker information behind one interface (`adaptation/services.py: Directory`).

`OwnTable` asks this broker's own tables, as the overlays have it. `CentralDirectory` is the channels' broker
information server, embedded in one node; `CentralClient` is every other broker's way to it. Both search as
the channels say (4.1): brokers in the order of their distance, the first that carries less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roamcast.host import Host
from roamcast.strategy.opportunistic.adaptation.messages import (
    AdaptationLetter,
    Answer,
    Ask,
    Report,
    Volunteer,
)
from roamcast.strategy.opportunistic.adaptation.services import BrokerManager, BrokerRecord
from roamcast.strategy.opportunistic.wire.messages import FULL
from roamcast.units import SECOND, Micros, NodeId

RECORDS_MAX = 4_096
QUESTIONS_MAX = 64
LIFETIME: Micros = 60 * SECOND  # of what nobody has said again
ANSWER_WITHIN: Micros = 10 * SECOND

Found = Callable[[NodeId | None], None]
Send = Callable[[NodeId, AdaptationLetter], None]


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
                self._send(sender, Answer(message.number, self.answer(sender, message.below)))

    def _forget_silent(self, since: Micros) -> None:
        self._brokers = {node: known for node, known in self._brokers.items() if known.heard_at >= since}
        self._volunteers = {node: at for node, at in self._volunteers.items() if at >= since}

    def answer(self, asker: NodeId, below: int | None) -> NodeId | None:
        since = self._host.now() - LIFETIME
        asking = self._brokers.get(asker)

        def distance(node: NodeId) -> float | None:
            """By the asker's word, else by the other's; one that nobody has measured comes last."""
            if asking is not None and node in asking.distances:
                return asking.distances[node]
            other = self._brokers.get(node)
            return float("inf") if other is None else other.distances.get(asker, float("inf"))

        if below is None:
            return nearest([n for n, at in self._volunteers.items() if at >= since and n != asker], distance)
        alive = [k.record for n, k in self._brokers.items() if k.heard_at >= since and n != asker]
        return nearest_below(alive, below / 100, distance)


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
        self._open: dict[int, tuple[Found, Micros]] = {}

    def less_loaded(self, load: float, on_found: Found) -> None:
        self._ask(max(round(100 * load), 0), on_found)

    def willing(self, on_found: Found) -> None:
        self._ask(None, on_found)

    def report(self, load: float) -> None:
        pairs = tuple(number for pair in self._distances()[:255] for number in pair)
        hundredths = min(round(100 * load), FULL)
        self._send(self._server, Report(hundredths, hundredths < FULL, pairs))

    def on_answer(self, sender: NodeId, message: Answer) -> None:
        if sender == self._server and message.number in self._open:
            self._open.pop(message.number)[0](message.node)

    def on_timer(self) -> None:
        """Called now and then: give up what was never answered."""
        for number in [n for n, (_, until) in self._open.items() if until <= self._host.now()]:
            self._open.pop(number)[0](None)

    def _ask(self, below: int | None, on_found: Found) -> None:
        if len(self._open) >= QUESTIONS_MAX:
            on_found(None)
            return
        self._numbers += 1
        self._open[self._numbers] = (on_found, self._host.now() + ANSWER_WITHIN)
        self._send(self._server, Ask(self._numbers, below))
