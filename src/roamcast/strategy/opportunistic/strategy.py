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
    ADAPTATION_LETTERS,
    FRAMES,
    HOPS_MAX,
    BrokerRow,
    Bundle,
    CarryLetter,
    ClientRow,
    Deliver,
    Envelope,
    EventLetter,
    Fetch,
    Flooded,
    Head,
    Here,
    Letter,
    NodeDigest,
    RingAnswer,
    RingSearch,
    RowNumbers,
    Rows,
    Skip,
    WantFlooded,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.readers import NodeReading
from roamcast.strategy.opportunistic.shared import LetterHandlers, NodePart, SharedParts
from roamcast.strategy.opportunistic.stream import UNREACHABLE_AFTER, LetterPost
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
        self._post = LetterPost(context.host, self._transport, self)
        self._shared = shared = SharedParts.of(context, options, self._post, self._on_row)
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
        self._letters: LetterHandlers = {  # those for a broker apart
            **self.client.letters,
            CarryLetter: self._on_carry_letter,
            Fetch: self._reading.on_fetch,
            Head: self._reading.on_head,
            **dict.fromkeys(ADAPTATION_LETTERS, self._on_adaptation),
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
        self._post.try_now(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._floods.on_neighbour_down(neighbour)

    def on_routes_changed(self) -> None:
        self._post.on_routes_changed()
        self.client.on_routes_changed()

    # Inputs from the streams.

    def on_letter(self, sender: NodeId, letter: Letter, hops: int, held: Micros) -> None:
        if isinstance(letter, EventLetter):
            letter = letter.travelled(hops, held)
        handler = self._letters.get(type(letter))
        if handler is not None:
            handler(sender, letter, held)
        elif self.broker is None:
            answer_for_no_broker(self._shared, sender, letter)
        else:
            self.broker.on_letter(sender, letter, held)
            if isinstance(letter, Here) and self.broker.clients.on_here(sender, letter):
                self.adaptation.on_discovery(sender, letter)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letter]) -> None:
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
            self._post.on_content(*arrival)

    def _on_adaptation(self, sender: NodeId, letter: Letter, held: Micros) -> None:
        if self.adaptation.on_letter(sender, letter):
            self._make_broker(was_made=True).on_start()
            self.client.on_role_changed()

    def _on_carry_letter(self, sender: NodeId, carry: CarryLetter, held: Micros) -> None:
        self._on_carry(carry)

    def _on_carry(self, carry: CarryLetter) -> None:
        """An event for a consumer that this node reads for, or that is on the move."""
        if carry.is_modulated and self.broker is not None and self.broker.handoffs.on_carry(carry):
            return
        if self._reading.on_carried(carry) or not carry.is_modulated:
            return
        row = self._shared.consumers.find(carry.consumer)
        if row is not None and row.home != self.host.node and carry.hops < HOPS_MAX:
            self._post.write(row.home, carry)  # it was moved, and the sender had not heard of it
        else:
            self._post.drop(DropReason.STALE, "carry", carry.event.id, carry.consumer)


class Undeliverable(NodePart):
    """What waits for a node that cannot be reached: looked through every few seconds, and given up in time.

    Every node has such letters: brokers' for readers and for clients, clients' publications for a home
    broker. `OpportunisticOptions.is_over` decides about the events among them; everything else waits.
    """

    def __init__(self, shared: SharedParts) -> None:
        super().__init__(shared)
        self._timers = Timers(self._host, self._look_through)

    def on_unreachable(self, peer: NodeId) -> None:
        self._timers.after(peer, LOOK_THROUGH_EVERY)

    def _look_through(self, peer: NodeId) -> None:
        """Drop what has waited too long for `peer`; the rest is written again in its order. A letter that had
        arrived without our knowing then arrives twice; the receiver recognises it by its number or
        identity."""
        if not self._post.waiting(peer):
            return
        self._timers.after(peer, LOOK_THROUGH_EVERY)
        if self._post.silence(peer) < UNREACHABLE_AFTER:
            return  # it can be reached again, and letters are on their way
        if not any(map(self._is_over, self._post.unconfirmed(peer))):
            return
        for letter in self._post.abandon(peer):
            if not self._is_over(letter):
                self._post.write(peer, letter)
                continue
            self._post.drop(DropReason.EXPIRED, letter.name, letter.event_id, peer)
            if isinstance(letter, Deliver):
                self._post.write(peer, Skip(letter.generation, letter.number, letter.number + 1))

    def _is_over(self, letter: Letter) -> bool:
        return isinstance(letter, EventLetter) and self._options.is_over(letter.event, letter.age)
