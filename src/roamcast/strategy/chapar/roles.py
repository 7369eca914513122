"""Who is a broker (Chapar, section 4.2, *Special cases*, *Inheritance and Dismissal*).

Brokers are the multipoint relays. Where there are fewer than two, the nodes with the lowest index among the
available ones fill up to two; a node that knows nobody is its own broker. Every node computes this from its
own routing table, so that no election message is sent. Tables may differ for a moment: a node that is
taken for a broker and is none answers `Decline`.
"""

from collections.abc import Collection, Iterable
from enum import Enum

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
    for node in sorted(available):
        if len(brokers) >= BROKERS_MIN:
            break
        brokers.add(node)
    return sorted(brokers)
