"""One broker by itself: its parts are real, its messages are recorded and handed in by hand."""

from collections.abc import Callable
from typing import Any, cast

from roamcast.broker.core import Broker, Delivery
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.host import Layer
from roamcast.modulator import ModulatorSpec
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.opportunistic import Opportunistic, OpportunisticOptions
from roamcast.strategy.opportunistic.board import BROKER, BoardEntry
from roamcast.strategy.opportunistic.broker import Brokerage
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import (
    BROKER_ROWS,
    CLIENT_ROWS,
    AttachMessage,
    BrokerRow,
    CarryMessage,
    ClientRow,
    Interest,
    Row,
    Rows,
    StreamMessage,
)
from roamcast.strategy.opportunistic.readers import NodeReading
from roamcast.strategy.opportunistic.shared import SharedParts
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

    boot = 1

    def __init__(self) -> None:
        self.written: list[tuple[NodeId, StreamMessage]] = []
        self.silent: set[NodeId] = set()
        self.dropped: list[Any] = []

    def write(self, to: NodeId, message: StreamMessage) -> bool:
        self.written.append((to, message))
        return True

    def to(self, peer: NodeId) -> list[StreamMessage]:
        return [message for to, message in self.written if to == peer]

    def confirmed(self) -> list[tuple[NodeId, StreamMessage]]:
        """All of it has arrived."""
        written, self.written = self.written, []
        return written

    def abandon(self, peer: NodeId) -> list[StreamMessage]:
        messages = self.to(peer)
        self.written = [one for one in self.written if one[0] != peer]
        return messages

    def take_back(self, peer: NodeId, kinds: tuple[type[StreamMessage], ...]) -> list[StreamMessage]:
        messages = self.abandon(peer)
        self.written += [(peer, message) for message in messages if not isinstance(message, kinds)]
        return [message for message in messages if isinstance(message, kinds)]

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


class PartLayer(Layer):
    """Parts under test, and their timers."""

    def on_timer(self, name: Any) -> None:
        name.due()


def shared_of(
    host: FakeHost,
    underlay: Underlay,
    streams: Any = None,
    on_row: Callable[[int, NodeId, BoardEntry | None], None] = lambda *_: None,
    core: Broker | None = None,
    **options: Any,
) -> SharedParts:
    """What the parts of a node stand on, with messages that are recorded."""
    context = StrategyContext(host, core or Broker(host, Nobody()), underlay)
    return SharedParts.of(context, OpportunisticOptions(**options), streams or cast(Any, Outgoing()), on_row)


class Station(PartLayer):
    def __init__(self, node: NodeId = 1, **options: Any) -> None:
        self.host, self._streams = FakeHost(node), cast(Any, Outgoing())
        self.streams: Outgoing = self._streams
        self._shared = shared = shared_of(self.host, Near(), self.streams, self._on_row, **options)
        self.board, self.overlay = shared.board, shared.overlay
        self.consumers, self.copies = shared.consumers, shared.copies
        self.reading = self._reading = NodeReading(shared)
        floods = Floods(shared, lambda *_: None)
        self.broker = Brokerage(shared, self._reading, floods, self.on_carry)
        self.host.attach(self)
        self.broker.on_start()

    def on_carry(self, carry: CarryMessage) -> None:
        Opportunistic._on_carry(cast(Any, self), carry)

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

    def hear(self, sender: NodeId, message: StreamMessage) -> list[tuple[NodeId, StreamMessage]]:
        """What is written in answer; all that was written before has arrived."""
        self.streams.confirmed()
        self.broker.on_message(sender, message, 0)
        self.host.advance(WORK)
        return list(self.streams.written)

    def hear_row(self, kind: int, node: NodeId, version: int, row: BrokerRow | ClientRow) -> None:
        body = BROKER_ROWS.encode(row) if isinstance(row, BrokerRow) else CLIENT_ROWS.encode(row)
        self.board.on_rows(node, Rows((Row(kind, node, version, 0, body),)))

    def attach_client(self, client: NodeId, *interests: Interest, generation: int = 1, **more: Any) -> None:
        ages = (0,) * len(interests)
        self.broker.on_message(client, AttachMessage(generation, interests, ages, False, 1, **more), 0)

    def level(self, client: NodeId, publisher: NodeId, sequence: int, level: int) -> None:
        """An event of a producer, for the modulators of a client of ours."""
        carry = CarryMessage(
            Event(publisher, sequence, {"level": level}), 0, 1, client, True, sequence, False, sequence, 0
        )
        self.on_carry(carry)
        self.host.advance(WORK)
