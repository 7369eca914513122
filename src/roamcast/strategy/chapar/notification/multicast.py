"""The virtual multicast tree: who is notified now, and who is reached through which neighbour.

Equations (2), (3), (4), (6) and (7) of Chapar, section 4.2, as functions of vectors. The tree is never built:
each node that holds the event divides the remaining destinations among its next hops.

The paper writes ⊕ to remove a subset from a set. If it is no subset (the preceding broker is not among the
neighbours that are no brokers), ⊕ would add it; so here that is `& ~`.
"""

from collections.abc import Callable
from typing import NamedTuple

from roamcast.strategy.chapar.tables.node_vector import NO_NODES, NodeBits, NodeVector
from roamcast.units import NodeId


class Branches(NamedTuple):
    """One step of the tree. `notified` is NSNV, `groups` the RNV of each next hop."""

    notified: NodeVector
    groups: dict[NodeId, NodeVector]
    stranded: NodeVector  # destinations without a next hop


def step(
    destinations: NodeVector,
    host: NodeVector,
    neighbours: NodeVector,
    preceding: NodeVector,
    next_hop: Callable[[NodeId], NodeId | None],
    addresses: NodeBits,
) -> Branches:
    """Divide EDNV at one node. `neighbours` (NNV) are those that are no brokers: a neighbouring broker is
    reached as the next hop of its own group, and passes the event on if it must."""
    now = notified(destinations, host, neighbours, preceding)
    groups: dict[NodeId, NodeVector] = {}
    stranded = NO_NODES
    for node in addresses.nodes(destinations & ~now):  # equation (3): the new EDNV
        hop = next_hop(node)
        if hop is None:
            stranded |= addresses.bit(node)
        else:
            groups[hop] = groups.get(hop, NO_NODES) | addresses.bit(node)
    return Branches(now, dict(sorted(groups.items())), stranded)


def notified(
    destinations: NodeVector, host: NodeVector, neighbours: NodeVector, preceding: NodeVector
) -> NodeVector:
    """Equation (2): NSNV = EDNV ∧ (HNV ∨ (NNV ⊕ BNV))."""
    return destinations & (host | neighbours & ~preceding)


def available(subscribers: NodeVector, known: NodeVector) -> NodeVector:
    """The last line of Algorithm 1: ASNV = SNV ∧ ANV."""
    return subscribers & known


def multimode(original: NodeVector, available_subscribers: NodeVector) -> NodeVector:
    """Equation (7): EDNV = EDNV ∨ ASNV."""
    return original | available_subscribers


def returned(unavailable: NodeVector, neighbours: NodeVector) -> NodeVector:
    """Equation (4): NSNV = USNV ∧ NNV."""
    return unavailable & neighbours


def without(unavailable: NodeVector, gone: NodeVector) -> NodeVector:
    """Equations (5) and (6): USNV ⊕ NSNV, and USNV ⊕ (USNV ∧ ANV)."""
    return unavailable ^ unavailable & gone
