"""The layer: every node is a client, nodes with the broker role are brokers too."""

from collections.abc import Iterable
from typing import get_args

from roamcast.broker.core import Subscription
from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.host import Kind, TimerName
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.opportunistic.brokerage import Brokerage, answer_for_no_broker
from roamcast.strategy.opportunistic.client import ClientLetter, ClientSide
from roamcast.strategy.opportunistic.discovery import RingSearch
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    Announcement,
    Content,
    Found,
    Letters,
    Search,
    Update,
    UpdateTaken,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.paths import event_paths
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.propagation import ROWS_PER_LIFE, next_life
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.strategy.opportunistic.undeliverable import Undeliverable
from roamcast.strategy.opportunistic.wiring import ADAPTATION_LETTERS, Adaptation
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros

CLIENT_LETTERS = get_args(ClientLetter)


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
            share_frames=options.share_frames,
        )
        self._undeliverable = Undeliverable(context.host, options, self._post)
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
        self.client.own_load = lambda: 0 if self.broker is None else self.broker.load()
        self.adaptation = Adaptation(
            context.host,
            options,
            context.underlay,
            self._post,
            home=lambda: self.client.home,
            need_home=self.client.need_home,
            become_broker=self.become_broker,
            end_broker=self.end_broker,
        )
        self._context = context
        self._sequence = self._post.boot * ROWS_PER_LIFE  # others remember the rows of an earlier boot
        self._was_broker = False
        self.broker: Brokerage | None = None
        if context.is_broker:
            self.broker = self._brokerage()
            self.adaptation.on_broker_start(self.broker)

    # Inputs.

    def on_start(self) -> None:
        self.adaptation.on_start()
        if self.broker is not None:
            self.broker.on_start()

    def become_broker(self, asker: NodeId) -> None:
        """At run time, because another broker asked."""
        assert self.broker is None
        self.broker = self._brokerage(was_made=True)
        self.adaptation.on_broker_start(self.broker)
        self.broker.on_start()
        self.broker.introduction.begin(asker)
        self.client.on_role_changed(is_broker=True)

    def end_broker(self) -> None:
        """The last client is gone, and all is said."""
        assert self.broker is not None
        self._sequence = next_life(self.broker.manager.sequence + 1)
        self.broker.on_end()
        self.broker = None
        self._was_broker = True
        self.adaptation.on_broker_end()
        self.client.on_role_changed(is_broker=False)

    def publish(self, event: Event) -> None:
        self.client.publish(event)

    def on_subscribed(self, subscription: Subscription) -> None:
        self.client.on_interests_changed()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self.client.on_interests_changed()

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "to self" | "spread" | ("reliable" | "bundle" | "spread", _) | ("flood", _, _):
                self._post.on_timer(name)
            case "ring" | ("pass on", _, _):
                self._search.on_timer(name)
            case "discovery" | "home lost" | "leave":
                self.client.on_timer(name)
            case ("look through", int() as peer):
                self._undeliverable.on_timer(peer)
            case "adaptation":
                self.adaptation.on_timer(name)
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
        self._post.transport.on_heard(sender)
        if isinstance(frame, Announcement):
            if self.broker is not None:
                self.broker.manager.on_announcement(sender, frame)
            elif self._was_broker:  # the sender may not have heard that, and need not say it again
                taken = UpdateTaken(frame.update.number, 0)
                self._send(sender, taken, Letter(b"", Kind.CONTROL, "update"))
        elif not isinstance(frame, Search):
            self._post.transport.on_frame(sender, frame)
        elif self._search.on_search(frame) and self.broker is not None:
            found = Found(frame.number, frame.hops + 1, self.broker.manager.load_of(self._host.node) or 0)
            self._send(frame.origin, found, Letter(b"", Kind.CONTROL, "found"))

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._post.nudge(neighbour)

    def on_routes_changed(self) -> None:
        self._post.on_routes_changed()

    # Questions.

    def overlay_paths(self) -> Iterable[tuple[NodeId, ...]]:
        return () if self.broker is None else event_paths(self.broker, self._options)

    # Private.

    def _brokerage(self, *, was_made: bool = False) -> Brokerage:
        return Brokerage(
            self._context,
            self._options,
            self._post,
            self._search,
            sequence=self._sequence,
            was_made=was_made,
        )

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
            case Update():  # we were one; the sender need not say it again
                self._send(sender, UpdateTaken(content.number, 0), Letter(b"", Kind.CONTROL, "update"))
            case UpdateTaken() if self.broker is not None:
                self.broker.manager.on_update_taken(sender, content)

    def _on_letter(self, sender: NodeId, message: Letters, hops: int, held: Micros) -> None:
        if isinstance(message, CLIENT_LETTERS):
            self.client.on_letter(sender, message, hops, held)
        elif isinstance(message, ADAPTATION_LETTERS):
            self.adaptation.on_letter(sender, message)
        elif self.broker is not None:
            self.broker.on_letter(sender, message, hops, held)
        else:
            answer_for_no_broker(self._post, sender, message, held)

    def _on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        self.client.on_reset(peer, unconfirmed)
        if self.broker is not None:
            self.broker.on_reset(peer, unconfirmed)

    def _on_unreachable(self, peer: NodeId) -> None:
        self.client.on_unreachable(peer)
        self._undeliverable.on_unreachable(peer)
