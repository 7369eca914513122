"""The layer: every node is a client, nodes with the broker role are brokers too."""

from collections.abc import Callable, Iterable
from typing import Any, get_args

from roamcast.broker.core import Subscription
from roamcast.errors import WireError
from roamcast.event import Event, EventId
from roamcast.host import TimerName
from roamcast.kit.protocol import KeyedTimer, Timer
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.opportunistic.adaptation.events import SystemChannel
from roamcast.strategy.opportunistic.adaptation.layer import Adaptation, AdaptationLetter
from roamcast.strategy.opportunistic.board import BROKER, Board, BoardEntry
from roamcast.strategy.opportunistic.broker import Brokerage, answer_for_no_broker, on_carry
from roamcast.strategy.opportunistic.client import ClientLetter, ClientSide
from roamcast.strategy.opportunistic.consumers import Consumers
from roamcast.strategy.opportunistic.copies import Copies, EventCopy, FloodBase
from roamcast.strategy.opportunistic.dispatch import NodeReading
from roamcast.strategy.opportunistic.envelope import Transport
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.gossip import Gossip
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    BrokerRow,
    Bundle,
    CarryLetter,
    ClientRow,
    Envelope,
    Fetch,
    Flooded,
    Head,
    Here,
    Letter,
    NodeDigest,
    RowNumbers,
    Rows,
    WantFlooded,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.overlay import BrokerOverlay
from roamcast.strategy.opportunistic.paths import event_paths
from roamcast.strategy.opportunistic.stream import Post
from roamcast.strategy.opportunistic.undeliverable import Undeliverable
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros

CLIENT_LETTERS = get_args(ClientLetter)


class Opportunistic(Strategy):
    def __init__(self, context: StrategyContext, options: OpportunisticOptions) -> None:
        host, underlay = context.host, context.underlay
        self._host = host
        self._options = options
        self._context = context
        self._transport = Transport(host, underlay, self._way, share_frames=options.share_frames)
        self._post = Post(host, self._transport, self)
        channel = SystemChannel()
        self._undeliverable = Undeliverable(host, options, self._post)
        self._board = Board(host, underlay, micros(options.registration_lifetime), self._on_row)
        self._overlay = BrokerOverlay(host, underlay, options, channel, self._board, self._post.boot)
        self._consumers = Consumers()
        self._copies = Copies(host, options)
        self._reading = NodeReading(
            host, underlay, context.broker, options, self._post, self._copies, self._consumers
        )
        self._floods = Floods(host, underlay, self._copies, self._on_flooded)
        self._gossip = Gossip(host, self._board, self._copies, self._floods)
        self.client = ClientSide(
            host, context.broker, underlay, options, self._post, self._overlay, self._copies
        )
        self.adaptation = Adaptation(
            host, options, underlay, self._post, channel, self.client, context.machine
        )
        self._on_heard = self._transport.on_heard
        # By type: one look-up for each of the frames that a node hears.
        self._frames: dict[type, Callable[[NodeId, Any], None]] = {
            NodeDigest: self._gossip.on_digest,
            Rows: self._board.on_rows,
            Flooded: self._on_flooded_frame,
            RowNumbers: self._board.on_numbers,
            WantFlooded: self._gossip.on_want,
            Envelope: self._on_envelope,
            Bundle: self._on_envelope,
        }
        self.broker: Brokerage | None = None
        if context.is_broker:
            self._make_broker(was_made=False)

    # Inputs.

    def on_start(self) -> None:
        self._gossip.on_start()
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

    def on_timer(self, name: TimerName) -> None:
        match name:
            case ("flood", int() as publisher, int() as sequence):  # the most frequent
                self._floods.on_timer(EventId(publisher, sequence))
            case "rows" | "numbers":
                self._board.on_timer(name)
            case "digest" | "ask" | "answers":
                self._gossip.on_timer(name)
            case "holes":
                self._reading.pulls.on_timer()
            case "discovery" | "home lost" | "interests":
                self.client.on_timer(name)
            case ("look through", int() as peer):
                self._undeliverable.on_timer(peer)
            case "adaptation":
                self.adaptation.on_timer()
                if self.broker is not None and self.broker.retirement.is_over(is_idle=self._post.is_idle()):
                    self._end_broker()
            case Timer() | KeyedTimer():
                name.due()
            case _:
                if self.broker is not None:  # it may have ended since the timer was set
                    self.broker.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            frame = FRAMES.decode(payload)
        except WireError as error:
            now = self._host.now()
            self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "frame", detail=str(error)))
            return
        self._on_heard(sender)
        self._frames[type(frame)](sender, frame)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._gossip.on_neighbour_up(neighbour)
        self._post.try_now(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._gossip.on_neighbour_down(neighbour)

    def on_routes_changed(self) -> None:
        self._post.on_routes_changed()

    # Questions.

    def overlay_paths(self) -> Iterable[tuple[NodeId, ...]]:
        return () if self.broker is None else event_paths(self.broker, self._options)

    # Private.

    def _make_broker(self, *, was_made: bool) -> None:
        self.broker = Brokerage(
            self._context,
            self._options,
            self._post,
            self._board,
            self._overlay,
            self._consumers,
            self._copies,
            self._floods,
            self._reading,
            was_made=was_made,
        )
        self.adaptation.on_broker_start(self.broker)

    def _end_broker(self) -> None:
        """The last client is gone, and all is said."""
        assert self.broker is not None
        self.broker.on_end()
        self.broker = None
        self.adaptation.on_broker_end()
        self.client.on_role_changed()

    def _way(self, to: NodeId) -> tuple[NodeId, ...]:
        return () if self.broker is None else self.broker.way(to)

    def _on_row(self, kind: int, node: NodeId, entry: BoardEntry | None) -> None:
        """News on the board."""
        if kind == BROKER:
            self._overlay.on_row(node, entry)
            if entry is not None and isinstance(entry.content, BrokerRow):
                self.client.on_broker_row(node, entry.content)
        elif entry is None:
            self._consumers.forget(node)
        elif isinstance(entry.content, ClientRow):
            before = self._consumers.find(node)
            new = self._consumers.update(node, entry.version, entry.content)
            if self.broker is not None:
                self.broker.on_client_row(node, entry.version, entry.content, before, new)
            if node == self._host.node:
                self.client.on_own_row(entry.version)
        self._gossip.on_row()

    def _on_flooded_frame(self, sender: NodeId, frame: Flooded) -> None:
        event = frame.event.id
        is_asked = self._gossip.on_copy(sender, event)
        self._floods.on_flooded(sender, event, frame, is_asked=is_asked)

    def _on_flooded(self, sender: NodeId, copy: EventCopy, flood: FloodBase) -> None:
        self._gossip.on_event()
        self._reading.on_flooded(copy, flood)

    def _on_envelope(self, sender: NodeId, frame: Envelope | Bundle) -> None:
        for arrival in self._transport.on_frame(sender, frame):
            self._post.on_content(*arrival)

    def on_letter(self, sender: NodeId, message: Letter, hops: int, held: Micros) -> None:
        if isinstance(message, CLIENT_LETTERS):
            self.client.on_letter(sender, message, hops, held)
        elif isinstance(message, CarryLetter):
            on_carry(self._host, self._post, self._reading, self._consumers, self.broker, message, hops, held)
        elif isinstance(message, Fetch):
            self._reading.pulls.on_fetch(sender, message)
        elif isinstance(message, Head):
            self._reading.on_head(message)
        elif isinstance(message, AdaptationLetter):
            if self.adaptation.on_letter(sender, message):
                self._make_broker(was_made=True)
                assert self.broker is not None
                self.broker.on_start()
                self.client.on_role_changed()
        elif self.broker is None:
            answer_for_no_broker(self._post, self._consumers, self._overlay, sender, message, held)
        else:
            self.broker.on_letter(sender, message, hops, held)
            if isinstance(message, Here) and self.broker.clients.on_here(sender, message):
                self.adaptation.on_discovery(sender, message)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letter]) -> None:
        self.client.on_reset(peer, unconfirmed)
        if self.broker is not None:
            self.broker.on_reset(peer, unconfirmed)

    def on_unreachable(self, peer: NodeId) -> None:
        self.client.on_unreachable(peer)
        self._undeliverable.on_unreachable(peer)
