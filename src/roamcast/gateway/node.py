"""What gateways need of the node they serve. `runtime.live.LiveNode` has it; tests have a double."""

from collections.abc import Callable
from typing import Protocol

from roamcast.applications import Applications
from roamcast.broker.store import StoreFullError
from roamcast.event import EventId
from roamcast.exchange import Exchanges, NodeCounters
from roamcast.runtime.live.storage.database import NodeStorage
from roamcast.runtime.live.world import NodeWorld
from roamcast.units import Micros, NodeId
from roamcast.wire.status import EventWay, NodeStatus


class GatewayNode(Protocol):
    @property
    def world(self) -> NodeWorld:
        """The node's clocks and chance are its gateways' too."""
        ...

    @property
    def number(self) -> NodeId: ...

    @property
    def name(self) -> str: ...

    @property
    def applications(self) -> Applications: ...

    @property
    def exchanges(self) -> Exchanges: ...

    @property
    def storage(self) -> NodeStorage | None: ...

    @property
    def counters(self) -> NodeCounters: ...

    def now(self) -> Micros:
        """The node's clock, on which stored events expire."""
        ...

    def when_durable(
        self, callback: Callable[[], None], on_failure: Callable[[StoreFullError], object] | None = None
    ) -> None:
        """Call back once what was written so far survives a crash."""
        ...

    def status(self) -> NodeStatus:
        """What this node is, and how it is."""
        ...

    def way_of(self, event: EventId) -> EventWay:
        """Which way an event went, as far as this node knows."""
        ...

    def revoke(self, device: NodeId, *, undo: bool = False) -> None:
        """Exclude a lost device from the network, or accept it again."""
        ...

    def forget(self, device: NodeId) -> None:
        """Another device has this number from now on; `InputError` if no key is known for it."""
        ...
