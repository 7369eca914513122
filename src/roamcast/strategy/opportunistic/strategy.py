"""The layer: every node is a client, nodes with the broker role are brokers too."""

from collections.abc import Iterable
from typing import get_args

from roamcast.broker.core import Subscription
from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.host import Kind, TimerName
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.client import ClientLetter, ClientSide
from roamcast.strategy.opportunistic.discovery import RingSearch
from roamcast.strategy.opportunistic.dispatch import Dispatch, DispatchLetter
from roamcast.strategy.opportunistic.handoff import HandoffLetter, Handoffs
from roamcast.strategy.opportunistic.managers import ClientManager
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    Content,
    Found,
    Letters,
    Nearer,
    Search,
    Update,
    UpdateTaken,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.paths import event_paths
from roamcast.strategy.opportunistic.places import ModelledMeter
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.units import Micros, NodeId, micros

CLIENT_LETTERS = get_args(ClientLetter)
DISPATCH_LETTERS = get_args(DispatchLetter)
HANDOFF_LETTERS = get_args(HandoffLetter)


class Opportunistic(Strategy):
    def __init__(self, context: StrategyContext, options: OpportunisticOptions) -> None:
        self._host = context.host
        self._options = options
        self._post = Post(
            context.host,
            context.underlay,
            on_content=self._on_content,
            on_letter=self._on_letter,
            on_reset=self._on_reset,
            on_unreachable=self._on_unreachable,
            way=self._way,
        )
        self._search = RingSearch(
            context.host,
            ring_max=options.ring_max,
            ring_wait=micros(options.ring_wait),
            boot=self._post.boot,
        )
        self.client = ClientSide(
            context.host,
            context.broker,
            context.underlay,
            options,
            self._post,
            self._search,
            context.is_broker,
        )
        self.broker = Brokerage(context, options, self._post, self._search) if context.is_broker else None

    # Inputs.

    def on_start(self) -> None:
        if self.broker is not None:
            self.broker.on_start()

    def publish(self, event: Event) -> None:
        self.client.publish(event)

    def on_subscribed(self, subscription: Subscription) -> None:
        self.client.on_interests_changed()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self.client.on_interests_changed()

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "to self" | ("reliable", _):
                self._post.on_timer(name)
            case "ring" | ("pass on", _, _):
                self._search.on_timer(name)
            case "discovery" | "home lost" | "leave":
                self.client.on_timer(name)
            case _:
                assert self.broker is not None
                self.broker.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            frame = FRAMES.decode(payload)
        except WireError as error:
            now = self._host.now()
            self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "frame", detail=str(error)))
            return
        if not isinstance(frame, Search):
            self._post.transport.on_datagram(frame)
        elif self._search.on_search(frame) and self.broker is not None:
            found = Found(frame.number, frame.hops + 1, self.broker.manager.load_of(self._host.node) or 0)
            self._send(frame.origin, found, Letter(b"", Kind.CONTROL, "found"))

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._post.nudge(neighbour)

    # Questions.

    def overlay_paths(self) -> Iterable[tuple[NodeId, ...]]:
        return () if self.broker is None else event_paths(self.broker, self._options)

    # Private.

    def _send(self, to: NodeId, content: Content, letter: Letter) -> None:
        self._post.transport.send(to, content, letter)

    def _way(self, to: NodeId) -> tuple[NodeId, ...]:
        return () if self.broker is None else self.broker.way(to)

    def _on_content(self, sender: NodeId, content: Content, hops: int) -> None:
        match content:
            case Found():
                self._search.on_found(sender, content)
            case Update() if self.broker is not None:
                self.broker.manager.on_update(sender, content)
            case UpdateTaken() if self.broker is not None:
                self.broker.manager.on_update_taken(sender, content)

    def _on_letter(self, sender: NodeId, message: Letters, hops: int, held: Micros) -> None:
        if isinstance(message, CLIENT_LETTERS):
            self.client.on_letter(sender, message, hops, held)
        elif self.broker is not None:
            self.broker.on_letter(sender, message, hops, held)

    def _on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        self.client.on_reset(peer, unconfirmed)
        if self.broker is not None:
            self.broker.on_reset(peer, unconfirmed)

    def _on_unreachable(self, peer: NodeId) -> None:
        self.client.on_unreachable(peer)
        if self.broker is not None:
            self.broker.on_unreachable(peer)


class Brokerage:
    """The parts of a broker, and which of them each input is for."""

    def __init__(
        self, context: StrategyContext, options: OpportunisticOptions, post: Post, search: RingSearch
    ) -> None:
        self._host = context.host
        self.underlay = context.underlay
        self._post = post
        self.manager = BrokerManager(
            context.host,
            context.underlay,
            options,
            search,
            post.transport.send,
            boot=post.boot,
            load=lambda: self.dispatch.processor.load(),
            producers=lambda: self.dispatch.producers(),
            on_changed=lambda: self.dispatch.on_topology_changed(),
        )
        meter = context.meter or ModelledMeter(micros(options.modulator_limit))
        self.dispatch = Dispatch(context.host, context.broker, options, post, self.manager, meter)
        self.handoffs = Handoffs(context.host, options, post, self.dispatch)
        self.clients = ClientManager(context.host, options, self.manager, self.dispatch, self.handoffs)

    def on_start(self) -> None:
        now, node = self._host.now(), self._host.node
        self._host.trace(OverlayChanged(now, node, "role_on", role="broker"))
        self.manager.on_start()
        self.dispatch.on_start()

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "broker update":
                self.manager.on_timer(name)
            case "renew":
                self.dispatch.on_renew()
            case "processor":
                self.dispatch.processor.on_timer(name)
            case ("look through", int() as peer):
                self.dispatch.on_look_through(peer)
            case (str() as kind, int() as node):
                self.handoffs.on_timer((kind, node))
                self.dispatch.barriers.check()

    def on_letter(self, sender: NodeId, message: Letters, hops: int, held: Micros) -> None:
        if isinstance(message, DISPATCH_LETTERS):
            self.dispatch.on_letter(sender, message, hops, held)
        elif isinstance(message, HANDOFF_LETTERS):
            self.handoffs.on_letter(sender, message, hops, held)
            self.dispatch.barriers.check()
        elif isinstance(message, Nearer):
            self.clients.on_nearer(sender, message)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        self.handoffs.on_reset(peer, unconfirmed)
        self.dispatch.on_reset(peer, unconfirmed)

    def on_unreachable(self, peer: NodeId) -> None:
        self.dispatch.on_unreachable(peer)

    def way(self, to: NodeId) -> tuple[NodeId, ...]:
        """Source routing between brokers; a client is reached by the underlay alone, or through the broker
        nearest to it where its modulators run elsewhere."""
        client = self.dispatch.clients.get(to)
        if client is not None and client.access is not None:
            return self.manager.path(client.access)[1:]
        return self.manager.path(to)[1:-1]
