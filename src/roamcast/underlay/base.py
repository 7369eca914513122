"""What a strategy may ask about the network around its node.

OLSR, a kernel routing table, beacons or the simulator's own knowledge answer the same four questions,
so a strategy runs over any of them. Listeners hear of changes at the instant the underlay learns them.
"""

from typing import NamedTuple, Protocol

from roamcast.host import Host, Layer
from roamcast.units import NodeId


class NeighbourListener(Protocol):
    """A strategy that wants to hear of neighbours."""

    def on_neighbour_up(self, neighbour: NodeId) -> None: ...

    def on_neighbour_down(self, neighbour: NodeId) -> None: ...


class Oracle(Protocol):
    """Knowledge of the whole world, which only a simulator has."""

    def neighbours(self, node: NodeId) -> list[NodeId]: ...

    def next_hop(self, node: NodeId, to: NodeId) -> NodeId | None: ...

    def distance(self, node: NodeId, to: NodeId) -> int | None: ...


class UnderlayContext(NamedTuple):
    """What an underlay is built from."""

    host: Host
    oracle: Oracle | None = None  # None outside simulation


class Underlay(Layer):
    """The base: no neighbours, no routes. Real underlays override the questions."""

    def __init__(self) -> None:
        self._listener: NeighbourListener | None = None

    def listen(self, listener: NeighbourListener) -> None:
        self._listener = listener

    def neighbours(self) -> list[NodeId]:
        """One-hop neighbours with a link in both directions, in increasing order."""
        return []

    def next_hop(self, to: NodeId) -> NodeId | None:
        """The neighbour on the way to `to`; None where no route is known."""
        return None

    def distance(self, to: NodeId) -> int | None:
        """Hops to `to`; None where no route is known."""
        return None

    def _report_up(self, neighbour: NodeId) -> None:
        if self._listener is not None:
            self._listener.on_neighbour_up(neighbour)

    def _report_down(self, neighbour: NodeId) -> None:
        if self._listener is not None:
            self._listener.on_neighbour_down(neighbour)


class NoUnderlay(Underlay):
    """For strategies that only broadcast: no traffic, no knowledge."""
