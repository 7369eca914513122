"""The ideal underlay: neighbours and shortest paths as they are at this instant, without any traffic.

For studies that leave routing out, as the opportunistic-overlay simulations do (section 4.1), and as
the best case that a real underlay is measured against. It exists only in a simulation;
a live node that names it is refused. It reports changes of the node's own neighbours; changes further away
show only in its answers.
"""

from roamcast.errors import InputError
from roamcast.underlay.base import NoOptions, Underlay, UnderlayContext
from roamcast.units import NodeId


class IdealOptions(NoOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to choose."""


class IdealUnderlay(Underlay):
    def __init__(self, context: UnderlayContext, options: IdealOptions) -> None:
        super().__init__()
        if context.oracle is None:
            raise InputError("underlay", "is 'ideal'; allowed here: underlays that need no simulated world")
        self._node = context.host.node
        self._oracle = context.oracle

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._report_up(neighbour)
        self._report_routes()

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._report_down(neighbour)
        self._report_routes()

    def neighbours(self) -> list[NodeId]:
        return self._oracle.neighbours(self._node)

    def next_hop(self, to: NodeId) -> NodeId | None:
        return self._oracle.next_hop(self._node, to)

    def known_nodes(self) -> list[NodeId]:
        return [node for node in self._oracle.connected(self._node) if node != self._node]

    def distance(self, to: NodeId) -> int | None:
        return self._oracle.distance(to, self._node)  # the same both ways: one search for all questions here
