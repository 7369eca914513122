"""Who is a broker (Chapar, section 4.2, *Special cases*), and the vectors of the nodes around (HNV, ANV,
NNV).

Brokers are the multipoint relays. Where there are fewer than two, the nodes with the lowest index among the
available ones fill up to two; a node that knows nobody is its own broker. Every node computes this from its
own routing table, so that no election message is sent. Tables may differ for a moment: a node that is
taken for a broker and is none answers `Decline`. What begins and ends with a role: `inheritance.py`.
"""

from collections.abc import Collection, Iterable
from enum import Enum

from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar.node_vectors import NodeBits, NodeVector, vector_of
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.units import NodeId

BROKERS_MIN = 2  # section 4.2, *Special cases*


class Role(Enum):
    """What this node does with its tables."""

    NODE = "node"  # has none
    BROKER = "broker"
    DISMISSED = "dismissed"  # was a broker; keeps its tables for the dismissal transient time
    LEAVING = "leaving"  # that time is over: drops them as soon as a broker has all they hold


TRANSITIONS: dict[tuple[Role, str], Role] = {
    (Role.NODE, "appointed"): Role.BROKER,  # inherits
    (Role.BROKER, "dismissed"): Role.DISMISSED,  # checks out
    (Role.DISMISSED, "appointed"): Role.BROKER,  # neither drops nor inherits tables
    (Role.DISMISSED, "time is over"): Role.LEAVING,  # checks out again
    (Role.LEAVING, "appointed"): Role.BROKER,
    (Role.LEAVING, "checked out"): Role.NODE,  # drops its tables
}


def elected(relays: Iterable[NodeId], available: Collection[NodeId]) -> list[NodeId]:
    """The brokers, in increasing order. `available` (ANV) includes the node that asks."""
    brokers = set(relays) & set(available)
    others = sorted(set(available) - brokers)
    return sorted([*brokers, *others[: max(0, BROKERS_MIN - len(brokers))]])


class Brokers:
    """This node's role, and the brokers as it computed them last."""

    def __init__(self, context: StrategyContext, options: ChaparOptions, addresses: NodeBits) -> None:
        self._node = context.host.node
        self._underlay = context.underlay
        self._are_all = options.brokers == "all"
        self._addresses = addresses
        self.host_vector = addresses.bit(self._node)  # HNV
        self.role = Role.NODE
        self.elected: frozenset[NodeId] = frozenset()

    def elect(self) -> None:
        """Compute the brokers from the current routes."""
        underlay = self._underlay
        if self._are_all:
            self.elected = frozenset([*underlay.known_nodes(), self._node])
            return
        relays = underlay.relays()
        # The usual case needs no routes, which the underlay would have to compute just for this. A relay
        # within one hop proves that the relays are of this network, not of one that the node has left.
        if len(relays) < BROKERS_MIN or {*underlay.neighbours(), self._node}.isdisjoint(relays):
            relays = elected(relays, [*underlay.known_nodes(), self._node])
        self.elected = frozenset(relays)

    def turn(self, cause: str) -> None:
        """One transition of the role."""
        self.role = TRANSITIONS[self.role, cause]

    @property
    def is_broker(self) -> bool:
        return self.role is Role.BROKER

    @property
    def has_tables(self) -> bool:
        """A broker, or one that was dismissed and keeps its tables for a while."""
        return self.role is not Role.NODE

    def adjacent(self) -> list[NodeId]:
        """The brokers among the neighbours."""
        return [node for node in self._underlay.neighbours() if node in self.elected]

    def plain_neighbours(self) -> NodeVector:
        """NNV: the neighbours that are no brokers."""
        around = self._underlay.neighbours()
        return vector_of(self._addresses, (node for node in around if node not in self.elected))

    def available_vector(self) -> NodeVector:
        """ANV, this node included."""
        return vector_of(self._addresses, self._underlay.known_nodes()) | self.host_vector
