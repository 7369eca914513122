"""What every strategy is: a layer that decides where subscriptions and events travel.

Checked against the five papers. Flooding and ODMRP only broadcast; Chapar sends event copies by
unicast to next hops taken from the underlay; the tree keeps per-link tables and needs neighbours up
and down; the opportunistic overlay talks to brokers several hops away and needs routes. All of them
get local subscriptions and publications from the broker core and give arrived events back to it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from roamcast.broker.core import Broker, Subscription
from roamcast.broker.store import StoredEvent
from roamcast.event import Event, Publication
from roamcast.host import Host, Layer
from roamcast.modulator.guard import Meter
from roamcast.underlay.base import Underlay
from roamcast.units import Micros, NodeId


class MachineCounters(NamedTuple):
    """What the machine of a node has used since it started, and what memory it has left."""

    process: Micros  # processor time of the node's own process
    machine: Micros | None  # of all processes together, over all processors; None: nobody can tell
    processors: int
    memory: int | None  # octets that could still be had


class Machine(Protocol):
    """What a runtime on a real machine can tell of it."""

    def read(self) -> MachineCounters: ...


class StrategyContext(NamedTuple):
    """What a strategy is built from."""

    host: Host
    broker: Broker
    underlay: Underlay
    is_broker: bool = True  # may this node serve others as a broker (the scenario's roles)
    meter: Meter | None = None  # how the runtime times consumers' functions; None: by their own claim
    machine: Machine | None = None  # None: there is none but the model's


@runtime_checkable
class TunesUnderlay(Protocol):
    """Options of a strategy that include some of its own underlay's (Chapar's `hello_interval`)."""

    def underlay_options(self) -> dict[str, Any]:
        """By the underlay's names; used only where the scenario names no underlay itself."""
        ...


@runtime_checkable
class NeedsOfUnderlay(Protocol):
    """Options of a strategy that not every underlay can serve."""

    def underlay_needs(self) -> Mapping[str, str]:
        """What the underlay must declare (fields of `UnderlayAbilities`), and why, in a few words."""
        ...


@runtime_checkable
class LimitsModulators(Protocol):
    """Options of a strategy whose brokers run consumers' functions."""

    @property
    def modulator_limit(self) -> float:
        """Seconds that a function may take for one event."""
        ...


@runtime_checkable
class NamesNodes(Protocol):
    """Options that name nodes by their numbers, which must be there (`opportunistic`'s `willing`)."""

    def nodes_named(self) -> Iterable[tuple[str, NodeId]]:
        """The option's name, and the node."""
        ...


@runtime_checkable
class ChecksBrokers(Protocol):
    """Options that may contradict the role `brokers`."""

    def check_brokers(self, brokers: Collection[NodeId]) -> None:
        """`ScenarioError` that names the key, what is wrong and what is allowed."""
        ...


class Strategy(Layer):
    """A strategy overrides what it needs."""

    def publish(self, event: Event) -> None:
        """A local application published. The broker core has numbered it, stored it if it is memorized, and
        served local subscribers; copies that come back are not new to it (`Broker.observe`)."""
        raise NotImplementedError

    def refuses(self, publication: Publication) -> str:
        """Why this strategy would not hand a memorized event over; "": it would."""
        return ""

    def advertise(self, types: Collection[str]) -> None:
        """The types of events that local applications advertise now. For strategies that declare that they
        take advertisements; no other is called."""

    def seal_id(self, clear: Event) -> bytes | None:
        """What brokers need to route an event whose content they cannot read; None: it cannot be routed."""
        return None

    def settled(self, stored: list[StoredEvent]) -> list[StoredEvent]:
        """Of these memorized events, those that a full store may push out: no node that this one knows still
        waits for them. For a strategy that does not know who has what: all but this node's own, which perhaps
        nobody else has."""
        return [one for one in stored if one.hops]

    def overlay_paths(self) -> Iterable[tuple[NodeId, ...]] | None:
        """The paths that events would take now, as this node knows them: for studies of overlays (sampled by
        `sim`). None: this strategy has no overlay paths."""
        return None

    def on_subscribed(self, subscription: Subscription) -> None:
        """A local application subscribed."""

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """A local application unsubscribed."""

    def on_kept_late(self, event: Event) -> None:
        """A memorized event that had come here is kept only now: the store, or the disk, was full. For a
        strategy that offers what it keeps at certain moments, and has not offered this one."""

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """The underlay has a new neighbour."""

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """The underlay lost a neighbour."""

    def on_routes_changed(self) -> None:
        """The underlay's routes or relays changed."""
