"""One broker by itself: its parts are real, its letters are recorded and handed in by hand."""

from typing import Any

from roamcast.broker.core import Broker, Delivery
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.host import Layer, TimerName
from roamcast.modulator import ModulatorSpec
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.opportunistic.adaptation.events import SystemChannel
from roamcast.strategy.opportunistic.board import BROKER, Board, BoardEntry
from roamcast.strategy.opportunistic.broker import Brokerage, on_carry
from roamcast.strategy.opportunistic.consumers import Consumers
from roamcast.strategy.opportunistic.copies import Copies
from roamcast.strategy.opportunistic.dispatch import NodeReading
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import (
    BROKER_ROWS,
    CLIENT_ROWS,
    AttachLetter,
    BrokerRow,
    CarryLetter,
    ClientRow,
    Interest,
    Letter,
    Row,
    Rows,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.overlay import BrokerOverlay
from roamcast.testing import FakeHost
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, Micros, NodeId, micros

WORK: Micros = 5 * MILLISECOND  # so long a broker gets for what it has to do
COUNT = ModulatorSpec.of("aggregate", {"attribute": "level", "every": 2})
PLAIN = Interest(0, Filter.everything().encode())
COUNTING = Interest(1, Filter.everything().encode(), COUNT)


class Near(Underlay):
    """Everyone is one hop away."""

    def distance(self, to: NodeId) -> int | None:
        return 1


class Outgoing:
    """What was written and is not confirmed; `silent` peers have owed a confirmation for long."""

    def __init__(self) -> None:
        self.written: list[tuple[NodeId, Letter]] = []
        self.silent: set[NodeId] = set()
        self.dropped: list[Any] = []

    def write(self, to: NodeId, letter: Letter) -> bool:
        self.written.append((to, letter))
        return True

    def to(self, peer: NodeId) -> list[Letter]:
        return [letter for to, letter in self.written if to == peer]

    def confirmed(self) -> list[tuple[NodeId, Letter]]:
        """All of it has arrived."""
        written, self.written = self.written, []
        return written

    def abandon(self, peer: NodeId) -> list[Letter]:
        letters = self.to(peer)
        self.written = [one for one in self.written if one[0] != peer]
        return letters

    def take_back(self, peer: NodeId, kinds: tuple[type[Letter], ...]) -> list[Letter]:
        letters = self.abandon(peer)
        self.written += [(peer, letter) for letter in letters if not isinstance(letter, kinds)]
        return [letter for letter in letters if isinstance(letter, kinds)]

    unconfirmed = to

    def waiting(self, peer: NodeId) -> int:
        return len(self.to(peer))

    def silence(self, peer: NodeId) -> Micros:
        return micros(3_600.0) if peer in self.silent else 0

    def drop(self, *what: Any) -> None:
        self.dropped.append(what)


class Nobody:
    def on_event(self, delivery: Delivery) -> None:
        pass


class Station(Layer):
    def __init__(self, node: NodeId = 1, **options: Any) -> None:
        self.host, self.post = FakeHost(node), Outgoing()
        chosen = OpportunisticOptions(**options)
        host, underlay, core = self.host, Near(), Broker(self.host, Nobody())
        self.board = Board(host, underlay, micros(chosen.registration_lifetime), self._on_row)
        overlay = BrokerOverlay(host, underlay, chosen, SystemChannel(), self.board, 1)
        self.consumers, self.copies = Consumers(), Copies(host, chosen)
        post: Any = self.post
        reading = NodeReading(host, underlay, core, chosen, post, self.copies, self.consumers)
        floods = Floods(host, underlay, self.copies, lambda *_: None)
        context = StrategyContext(host, core, underlay)
        self.overlay = overlay
        self.broker = Brokerage(
            context, chosen, post, self.board, overlay, self.consumers, self.copies, floods, reading
        )
        host.attach(self)
        self.broker.on_start()

    def on_timer(self, name: TimerName) -> None:
        if name in ("rows", "numbers"):
            self.board.on_timer(str(name))
        elif name != "holes":
            self.broker.on_timer(name)

    def _on_row(self, kind: int, node: NodeId, entry: BoardEntry | None) -> None:
        if entry is None:
            return
        if kind == BROKER:
            self.overlay.on_row(node, entry)
        elif isinstance(entry.content, ClientRow):
            before = self.consumers.find(node)
            new = self.consumers.update(node, entry.version, entry.content)
            self.broker.on_client_row(node, entry.version, entry.content, before, new)

    # Inputs.

    def hear(self, sender: NodeId, letter: Letter) -> list[tuple[NodeId, Letter]]:
        """What is written in answer; all that was written before has arrived."""
        self.post.confirmed()
        self.broker.on_letter(sender, letter, 1, 0)
        self.host.advance(WORK)
        return list(self.post.written)

    def hear_row(self, kind: int, node: NodeId, version: int, row: BrokerRow | ClientRow) -> None:
        body = BROKER_ROWS.encode(row) if isinstance(row, BrokerRow) else CLIENT_ROWS.encode(row)
        self.board.on_rows(node, Rows((Row(kind, node, version, 0, body),)))

    def attach_client(self, client: NodeId, *interests: Interest, generation: int = 1, **more: Any) -> None:
        ages = (0,) * len(interests)
        self.broker.on_letter(client, AttachLetter(generation, interests, ages, False, 1, **more), 1, 0)

    def level(self, client: NodeId, publisher: NodeId, sequence: int, level: int) -> None:
        """An event of a producer, for the modulators of a client of ours."""
        carry = CarryLetter(
            Event(publisher, sequence, {"level": level}), 0, 1, client, True, sequence, False, sequence, 0
        )
        post: Any = self.post
        on_carry(self.host, post, self.broker._reading, self.consumers, self.broker, carry, 1, 0)
        self.host.advance(WORK)
