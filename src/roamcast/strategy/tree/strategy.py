"""The strategy itself: the overlay below, content-based routing above, one host for both.

Every node is a dispatcher, whatever the scenario's broker roles say: the tree spans all nodes of a
partition, as in the acyclic-overlay work.
"""

from typing import Any

import msgspec

from roamcast.broker.core import Subscription
from roamcast.event import Event
from roamcast.host import TimerName
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.tree.content.neighbour import TIMER as CONTENT_TIMER
from roamcast.strategy.tree.content.router import ContentRouter
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.parameters import TreeOptions
from roamcast.units import NodeId, micros


class TreeStrategyOptions(TreeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The overlay's options and those of content-based routing, in one flat table."""

    def underlay_options(self) -> dict[str, Any]:
        """The beacons beneath are part of the protocol (BEACON_INTERVAL, ALLOWED_BEACON_LOSS)."""
        return msgspec.structs.asdict(self.beacons())


class Tree(Strategy):
    def __init__(self, context: StrategyContext, options: TreeStrategyOptions) -> None:
        self.router = ContentRouter(context.host, context.broker, options, micros(options.jitter))
        self.overlay = Overlay(context.host, context.underlay, options, self.router)
        self.router.attach(self.overlay.protocol)
        # Not a method that calls it: of all calls of a node, this is the most frequent one.
        self.on_receive = self.overlay.protocol.on_receive  # type: ignore[method-assign]
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

    def on_timer(self, name: TimerName) -> None:
        if isinstance(name, tuple) and name[0] == CONTENT_TIMER:
            self.router.on_timer(name)
        else:
            self.overlay.on_timer(name)

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
