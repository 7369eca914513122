"""One node: the layers put together, and what its applications call.

A runtime makes one `Host` per layer and calls the layers it gets back in `layers`; a crash throws the
whole `Node` away and a restart builds a new one over the same stable storage.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from roamcast.broker.core import Application, Broker, OnArrival, Subscription
from roamcast.broker.store import EventStore
from roamcast.chunks import MARK
from roamcast.errors import EventError, InputError
from roamcast.event import Event, Publication
from roamcast.filter import Filter
from roamcast.host import Channel, Host, Layer
from roamcast.modulator import Meter, ModulatorSpec, make
from roamcast.sealing.content import ContentKeys
from roamcast.strategy import STRATEGIES, StrategyContext, TunesUnderlay, default_underlay
from roamcast.strategy.base import Machine
from roamcast.trace import Published, Subscribed
from roamcast.underlay import UNDERLAYS, Oracle, UnderlayContext
from roamcast.underlay.addresses import Addresses, RoutingTable
from roamcast.underlay.base import OpenAir
from roamcast.units import Micros, NodeId

ADVERTISED_MAX = 1_000  # types that one node may advertise; chosen by us


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
        addresses: Addresses | None = None,
        routing_table: RoutingTable | None = None,
        open_air: OpenAir | None = None,
        content: ContentKeys | None = None,
        *,
        is_traced: bool = True,
        meter: Meter | None = None,
        machine: Machine | None = None,
        on_arrival: OnArrival | None = None,
    ) -> None:
        self._host = hosts(Channel.STRATEGY)
        self._is_traced = is_traced  # False: nobody reads the trace, so costly records are not made
        self.declared = STRATEGIES.declared(config.strategy)
        self.broker = Broker(
            self._host,
            application,
            store=store,
            opener=content,
            on_arrival=on_arrival,
            gets_all=self.declared.stores_everywhere,
        )
        self._content = content
        # Why this node accepts nothing that it would have to hand over later; empty: it does.
        self.unpromised = "" if self.declared.hands_over else _unpromised(config.strategy)
        self.underlay = UNDERLAYS.make(
            config.underlay or self.declared.default_underlay,
            UnderlayContext(hosts(Channel.UNDERLAY), oracle, addresses, routing_table, open_air),
            _underlay_options(config),
        )
        self.strategy = STRATEGIES.make(
            config.strategy,
            StrategyContext(self._host, self.broker, self.underlay, config.is_broker, meter, machine),
            config.strategy_options,
        )
        self._advertised: Counter[str] = Counter()  # how many applications advertise each type
        self.broker.watch(self.strategy)
        self.underlay.listen(self.strategy)

    @property
    def number(self) -> NodeId:
        return self._host.node

    @property
    def layers(self) -> dict[Channel, Layer]:
        """Who handles the frames and timers of each channel, lowest layer first."""
        return {Channel.UNDERLAY: self.underlay, Channel.STRATEGY: self.strategy}

    def start(self) -> None:
        self.broker.start()
        for layer in self.layers.values():
            layer.on_start()

    def stop(self) -> None:
        """Tell the layers, the highest first, that the node is about to stop in good order."""
        for layer in reversed(self.layers.values()):
            layer.on_stop()

    @property
    def is_leaving(self) -> bool:
        return any(layer.is_leaving for layer in self.layers.values())

    def publish(self, publication: Publication, sequence: int | None = None) -> Event:
        """Publish an event; subscribers on this node get it first. `sequence`: reserved for it earlier.

        `StoreFullError` if it is memorized and this node can keep no more: then nothing has been published.
        """
        event = self.broker.create(publication, sequence)
        carried = self._sealed(event) if publication.sealed else event
        is_kept = publication.lifetime > 0
        if is_kept:
            self.broker.keep(carried, 0)
            if MARK not in event.attributes:  # a chunk's whole has taken its place
                self.broker.order.published(event, event.sequence, self._host.now() + event.lifetime)
        if self._is_traced:
            self._host.trace(published_record(self._host.now(), event))
        self.broker.deliver(carried, 0, is_kept=is_kept)
        self.strategy.publish(carried)
        return event

    def advertise(self, type: str) -> None:
        """Announce that events of a type will come, so that the way to their subscribers exists before them.
        It stands until it is withdrawn, as often as it was advertised. `InputError` if this strategy takes
        no advertisements, or the type is none."""
        if not self.declared.takes_advertisements:
            able = " or ".join(STRATEGIES.names_with(lambda declared: declared.takes_advertisements))
            raise InputError(
                "advertisement", f"is given, but this node's strategy takes none; allowed: {able}"
            )
        Publication(type=type)  # EventError for what no event can have
        if type not in self._advertised and len(self._advertised) >= ADVERTISED_MAX:
            raise InputError("advertisement", f"is one too many; a node may have {ADVERTISED_MAX}")
        self._advertised[type] += 1
        self.strategy.advertise(sorted(self._advertised))

    def withdraw(self, type: str) -> None:
        """End an advertisement; `InputError` if there is none, or no longer."""
        if type not in self._advertised:
            raise InputError(
                f"advertisement {type[:40]!r}", "is not there to be withdrawn; allowed: once each"
            )
        self._advertised[type] -= 1
        if not self._advertised[type]:
            del self._advertised[type]
        self.strategy.advertise(sorted(self._advertised))

    def _sealed(self, event: Event) -> Event:
        if self._content is None:
            raise EventError("sealed", "needs a content key, this node has none")
        identifier = self.strategy.seal_id(event)
        if identifier is None:
            able = ", ".join(STRATEGIES.names_with(lambda declared: declared.carries_sealed))
            raise EventError("sealed", f"needs a strategy that carries sealed events: {able}")
        return self._content.seal(event, identifier)

    def subscribe(
        self, number: int, wanted: Filter, application: int = 0, modulator: ModulatorSpec | None = None
    ) -> None:
        """`modulator`: the function that a broker applies to the events. `InputError` if no broker of this
        strategy runs modulators: then nothing has been subscribed to."""
        if modulator is not None:
            self._refuse_unless_run(modulator)
        self._host.trace(Subscribed(self._host.now(), self._host.node, number, str(wanted), True))
        self.broker.subscribe(Subscription(number, wanted, application, modulator))

    def check_modulator(self, modulator: ModulatorSpec) -> None:
        """InputError if no broker of this strategy runs consumers' functions, or this function cannot be made
        here. One that cannot be made at its broker is removed there, and its owner is notified."""
        self._refuse_unless_run(modulator)
        make(modulator)

    def _refuse_unless_run(self, modulator: ModulatorSpec) -> None:
        if not self.declared.runs_modulators:
            able = " or ".join(STRATEGIES.names_with(lambda declared: declared.runs_modulators))
            raise InputError(
                "modulator",
                f"is {modulator.name!r}, but this node's strategy runs none; allowed: with {able}",
            )

    def unsubscribe(self, number: int) -> None:
        self._host.trace(Subscribed(self._host.now(), self._host.node, number, "", False))
        self.broker.unsubscribe(number)


def _unpromised(strategy: str) -> str:
    able = ", ".join(STRATEGIES.names_with(lambda declared: declared.hands_over))
    return f"{strategy} does not bring events to nodes that were away or killed; strategies that do: {able}"


def published_record(t: Micros, event: Event) -> Published:
    """The trace record of a publication."""
    return Published(
        t,
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


def _underlay_options(config: NodeConfig) -> msgspec.Struct | None:
    """As configured; if the strategy chooses the underlay, its options may also set those of the underlay."""
    if config.underlay is not None or not isinstance(config.strategy_options, TunesUnderlay):
        return config.underlay_options
    options_type = UNDERLAYS.options_type(default_underlay(config.strategy))
    return msgspec.convert(config.strategy_options.underlay_options(), options_type)
