"""One node: the layers put together, and the door for its applications.

A runtime makes one `Host` per layer and calls the layers it gets back in `layers`; a crash throws the
whole `Node` away and a restart builds a new one over the same stable storage.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from roamcast.broker.core import Application, Broker, Subscription
from roamcast.broker.store import EventStore
from roamcast.event import Event, EventClass, Value
from roamcast.filter import Filter
from roamcast.host import Channel, Host, Layer
from roamcast.strategy import STRATEGIES, StrategyContext, TunesUnderlay, default_underlay
from roamcast.trace import Published, Subscribed
from roamcast.underlay import UNDERLAYS, Oracle, UnderlayContext
from roamcast.units import Micros, NodeId


class NodeConfig(NamedTuple):
    """Which parts a node is made of. Options of None are the part's defaults."""

    strategy: str
    strategy_options: msgspec.Struct | None = None
    underlay: str | None = None  # None: the strategy's own choice
    underlay_options: msgspec.Struct | None = None
    is_broker: bool = True


class Node:
    def __init__(
        self,
        config: NodeConfig,
        hosts: Callable[[Channel], Host],
        application: Application,
        oracle: Oracle | None = None,
        store: EventStore | None = None,
    ) -> None:
        self._host = hosts(Channel.STRATEGY)
        self.broker = Broker(self._host, application, store=store)
        self.underlay = UNDERLAYS.make(
            config.underlay or default_underlay(config.strategy),
            UnderlayContext(hosts(Channel.UNDERLAY), oracle),
            _underlay_options(config),
        )
        self.strategy = STRATEGIES.make(
            config.strategy,
            StrategyContext(self._host, self.broker, self.underlay, config.is_broker),
            config.strategy_options,
        )
        self.broker.watch(self.strategy)
        self.underlay.listen(self.strategy)

    @property
    def layers(self) -> dict[Channel, Layer]:
        """Who handles the frames and timers of each channel, lowest layer first."""
        return {Channel.UNDERLAY: self.underlay, Channel.STRATEGY: self.strategy}

    def start(self) -> None:
        for layer in self.layers.values():
            layer.on_start()

    def publish(
        self,
        attributes: Mapping[str, Value],
        *,
        payload: bytes = b"",
        topic: str = "",
        type: str = "",
        event_class: EventClass = EventClass.REALTIME,
        lifetime: Micros = 0,
        destinations: tuple[NodeId, ...] = (),
        multimode: bool = False,
    ) -> Event:
        """Publish an event; subscribers on this node get it first.

        `StoreFullError` if it is memorized and this node can keep no more: then nothing has been published.
        """
        event = self.broker.create(
            attributes,
            payload=payload,
            topic=topic,
            type=type,
            event_class=event_class,
            lifetime=lifetime,
            destinations=destinations,
            multimode=multimode,
        )
        if event_class is EventClass.MEMORIZED:
            self.broker.keep(event, 0)
        self._host.trace(
            Published(
                self._host.now(),
                event.publisher,
                event.sequence,
                event.event_class.value,
                event.lifetime,
                len(event.payload),
                event.topic,
                event.type,
                msgspec.json.encode(event.attributes).decode(),
                event.destinations,
                event.multimode,
            )
        )
        self.broker.deliver(event, 0)
        self.strategy.publish(event)
        return event

    def subscribe(self, number: int, wanted: Filter, application: int = 0) -> None:
        self._host.trace(Subscribed(self._host.now(), self._host.node, number, str(wanted), True))
        self.broker.subscribe(Subscription(number, wanted, application))

    def unsubscribe(self, number: int) -> None:
        self._host.trace(Subscribed(self._host.now(), self._host.node, number, "", False))
        self.broker.unsubscribe(number)


def _underlay_options(config: NodeConfig) -> msgspec.Struct | None:
    """As configured; where the strategy brings its own underlay, its options may speak for that too."""
    if config.underlay is not None or not isinstance(config.strategy_options, TunesUnderlay):
        return config.underlay_options
    options_type = UNDERLAYS.options_type(default_underlay(config.strategy))
    return msgspec.convert(config.strategy_options.underlay_options(), options_type)
