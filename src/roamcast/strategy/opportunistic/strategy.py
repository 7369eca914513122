"""The layer: every node is a client, nodes with the broker role are brokers too."""

from collections.abc import Iterable

from roamcast.broker.core import Subscription
from roamcast.event import Event
from roamcast.kit.protocol import MessageLayer, Timers
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.opportunistic.adaptation.layer import Adaptation
from roamcast.strategy.opportunistic.board import BROKER, BoardEntry
from roamcast.strategy.opportunistic.broker import Brokerage, answer_for_no_broker
from roamcast.strategy.opportunistic.client import ClientSide
from roamcast.strategy.opportunistic.envelope import Transport
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import (
    ADAPTATION_MESSAGES,
    FRAMES,
    HOPS_MAX,
    BrokerRow,
    Bundle,
    CarryMessage,
    ClientRow,
    Deliver,
    Envelope,
    EventMessage,
    Fetch,
    Flooded,
    Head,
    Here,
    NodeDigest,
    RingAnswer,
    RingSearch,
    RowNumbers,
    Rows,
    Skip,
    StreamMessage,
    WantFlooded,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.readers import NodeReading
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts, StreamHandlers
from roamcast.strategy.opportunistic.stream import UNREACHABLE_AFTER, PeerStreams
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId

LOOK_THROUGH_EVERY: Micros = 5 * SECOND


class Opportunistic(MessageLayer, Strategy):
    def __init__(self, context: StrategyContext, options: OpportunisticOptions) -> None:
        super().__init__(context.host, FRAMES)
        self._options = options
        self._transport = Transport(
            context.host, context.underlay, self._way, share_frames=options.share_frames
        )
        self._streams = PeerStreams(context.host, self._transport, self)
        self._shared = shared = SharedParts.of(context, options, self._streams, self._on_row)
        self._undeliverable = Undeliverable(shared)
        self._reading = NodeReading(shared)
        self._floods = Floods(shared, self._reading.on_flooded)
        self.client = ClientSide(shared)
        self.adaptation = Adaptation(shared, self.client, self._on_period)
        self.note_sender = self._on_heard
        self.handlers = {
            NodeDigest: self._floods.on_digest,
            Rows: shared.board.on_rows,
            Flooded: self._floods.on_flooded,
            RowNumbers: shared.board.on_numbers,
            WantFlooded: self._floods.on_want,
            RingSearch: shared.overlay.ring.on_search,
            RingAnswer: shared.overlay.ring.on_answer,
            Envelope: self._on_envelope,
            Bundle: self._on_envelope,
        }
        self._handlers: StreamHandlers = {  # those for a broker apart
            **self.client.messages,
            CarryMessage: self._on_carry_message,
            Fetch: self._reading.on_fetch,
            Head: self._reading.on_head,
            **dict.fromkeys(ADAPTATION_MESSAGES, self._on_adaptation),
        }
        self.broker: Brokerage | None = None
        if context.is_broker:
            self._make_broker(was_made=False)

    # Inputs.

    def on_start(self) -> None:
        self._floods.on_start()
        self.adaptation.on_start()
        if self.broker is not None:
            self.broker.on_start()

    def publish(self, event: Event) -> None:
        self.client.publish(event)

    def on_subscribed(self, subscription: Subscription) -> None:
        if subscription.modulator is None:
            self._reading.on_subscribed()
        self.client.on_subscribed(subscription.number)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self.client.on_unsubscribed(subscription.number)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._floods.on_neighbour_up(neighbour)
        self._streams.try_now(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._floods.on_neighbour_down(neighbour)

    def on_routes_changed(self) -> None:
        self._streams.on_routes_changed()
        self.client.on_routes_changed()

    # Inputs from the streams.

    def on_message(self, sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None:
        if isinstance(message, EventMessage):
            message = message.travelled(hops, held)
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(sender, message, held)
        elif self.broker is None:
            answer_for_no_broker(self._shared, sender, message)
        else:
            self.broker.on_message(sender, message, held)
            if isinstance(message, Here) and self.broker.clients.on_here(sender, message):
                self.adaptation.on_discovery(sender, message)

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None:
        self._floods.on_restarted(peer)
        self.client.on_reset(peer, unconfirmed)
        if self.broker is not None:
            self.broker.on_reset(peer, unconfirmed)

    def on_unreachable(self, peer: NodeId) -> None:
        self.client.on_unreachable(peer)
        self._undeliverable.on_unreachable(peer)
        if self.broker is not None:
            self.broker.dispatch.on_unreachable(peer)

    # Questions.

    def overlay_paths(self) -> Iterable[tuple[NodeId, ...]]:
        return () if self.broker is None else self.broker.event_paths()

    # Private.

    def _make_broker(self, *, was_made: bool) -> Brokerage:
        self.broker = Brokerage(self._shared, self._reading, self._floods, self._on_carry, was_made=was_made)
        self.adaptation.on_broker_start(self.broker)
        return self.broker

    def _on_period(self) -> None:
        """A broker that retires ends when the last client is gone, and all is said."""
        if self.broker is not None and self.broker.retirement.is_over():
            self.broker.on_end()
            self.broker = None
            self.adaptation.on_broker_end()
            self.client.on_role_changed()

    def _way(self, to: NodeId) -> tuple[NodeId, ...]:
        return () if self.broker is None else self.broker.way(to)

    def _on_row(self, kind: int, node: NodeId, entry: BoardEntry | None) -> None:
        """News on the board."""
        consumers = self._shared.consumers
        if kind == BROKER:
            self._shared.overlay.on_row(node, entry)
            if entry is not None and isinstance(entry.content, BrokerRow):
                self.client.on_broker_row(node, entry.content)
        elif entry is None:
            consumers.forget(node)
        elif isinstance(entry.content, ClientRow):
            before = consumers.find(node)
            new = consumers.update(node, entry.version, entry.content)
            if self.broker is not None:
                self.broker.on_client_row(node, entry.version, entry.content, before, new)
            if node == self.host.node:
                self.client.on_own_row(entry.version)
        self._floods.on_row()

    def _on_heard(self, sender: NodeId) -> None:
        self._transport.on_heard(sender)
        self._floods.on_heard(sender)

    def _on_envelope(self, sender: NodeId, frame: Envelope | Bundle) -> None:
        for arrival in self._transport.on_frame(sender, frame):
            self._streams.on_content(*arrival)

    def _on_adaptation(self, sender: NodeId, message: StreamMessage, held: Micros) -> None:
        if self.adaptation.on_message(sender, message):
            self._make_broker(was_made=True).on_start()
            self.client.on_role_changed()

    def _on_carry_message(self, sender: NodeId, carry: CarryMessage, held: Micros) -> None:
        self._on_carry(carry)

    def _on_carry(self, carry: CarryMessage) -> None:
        """An event for a consumer that this node reads for, or that is on the move."""
        if carry.is_modulated and self.broker is not None and self.broker.handoffs.on_carry(carry):
            return
        if self._reading.on_carried(carry) or not carry.is_modulated:
            return
        row = self._shared.consumers.find(carry.consumer)
        if row is not None and row.home != self.host.node and carry.hops < HOPS_MAX:
            self._streams.write(row.home, carry)  # it was moved, and the sender had not heard of it
        else:
            self._streams.drop(DropReason.STALE, "carry", carry.event.id, carry.consumer)


class Undeliverable(NodePart):
    """What waits for a node that cannot be reached: looked through every few seconds, and given up in time.

    Every node has such messages: brokers' for readers and for clients, clients' publications for a home
    broker. `OpportunisticOptions.is_over` decides about the events among them; everything else waits.
    """

    def __init__(self, shared: SharedParts) -> None:
        super().__init__(shared)
        self._timers = Timers(self._host, self._look_through)

    def on_unreachable(self, peer: NodeId) -> None:
        self._timers.after(peer, LOOK_THROUGH_EVERY)

    def _look_through(self, peer: NodeId) -> None:
        """Drop what has waited too long for `peer`; the rest is written again in its order. One that had
        arrived without our knowing then arrives twice; the receiver recognises it by its number or
        identity."""
        if not self._streams.waiting(peer):
            return
        self._timers.after(peer, LOOK_THROUGH_EVERY)
        if self._streams.silence(peer) < UNREACHABLE_AFTER:
            return  # it can be reached again, and messages are on their way
        if not any(map(self._is_over, self._streams.unconfirmed(peer))):
            return
        for message in self._streams.abandon(peer):
            if not self._is_over(message):
                self._streams.write(peer, message)
                continue
            self._streams.drop(DropReason.EXPIRED, message.name, message.event_id, peer)
            if isinstance(message, Deliver):
                self._streams.write(peer, Skip(message.generation, message.number, message.number + 1))

    def _is_over(self, message: StreamMessage) -> bool:
        return isinstance(message, EventMessage) and self._options.is_over(message.event, message.age)
