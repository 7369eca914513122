"""The strategy itself: the overlay below, content-based routing above, one host for both.

Every node is a dispatcher, whatever the scenario's broker roles say: the tree spans all nodes of a
partition, as in the acyclic-overlay work.
"""

from typing import Any

from roamcast.broker.core import Subscription
from roamcast.event import Event
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.tree.content.router import ContentRouter
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId


class Tree(Strategy):
    def __init__(self, context: StrategyContext, options: TreeOptions) -> None:
        def make_overlay(listener: ContentRouter) -> Overlay:
            self.overlay = Overlay(context.host, context.underlay, options, listener)
            return self.overlay

        self.router = ContentRouter(context.host, context.broker, options, make_overlay)
        # Not a method that calls it: of all calls of a node, this is the most frequent one.
        self.on_receive = self.overlay.on_receive  # type: ignore[method-assign]
        self._broker = context.broker
        self._has_published = False

    def publish(self, event: Event) -> None:
        self._has_published = True
        self._tell_membership()
        self.router.publish(event)

    def on_start(self) -> None:
        self.overlay.on_start()
        self.router.on_start()

    def on_stop(self) -> None:
        self.overlay.on_stop()

    def on_timer(self, name: Any) -> None:
        name.due()

    def on_subscribed(self, subscription: Subscription) -> None:
        self._tell_membership()
        self.router.on_subscribed(subscription)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._tell_membership()
        self.router.on_unsubscribed(subscription)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self.overlay.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self.overlay.on_neighbour_down(neighbour)

    def _tell_membership(self) -> None:
        self.overlay.protocol.set_member(self._has_published or self._broker.has_subscriptions)
