"""Which nodes a path leads to, over any links.

Sets of nodes are integers, bit n for node n: a breadth-first search is then a few operations on whole sets,
and a thousand of them take less time than reading their links. `hearers` gives the set that hears a node.
"""

from collections.abc import Callable, Iterator

from roamcast.trace import NodeSet
from roamcast.units import NodeId


def members(nodes: NodeSet) -> list[NodeId]:
    """The nodes of a set, in increasing order. They are taken from the highest down, so that what is left of
    a set of thousands of nodes gets shorter."""
    found = []
    while nodes:
        highest = nodes.bit_length() - 1
        found.append(highest)
        nodes ^= 1 << highest
    found.reverse()
    return found


def rings(sources: NodeSet, hearers: Callable[[NodeId], NodeSet]) -> Iterator[list[NodeId]]:
    """The nodes at 0, 1, 2, … hops from the sources, each ring in increasing order."""
    seen = frontier = sources
    while frontier:
        ring = members(frontier)
        yield ring
        reached = 0
        for node in ring:
            reached |= hearers(node)
        frontier = reached & ~seen
        seen |= frontier


def parents(sources: NodeSet, hearers: Callable[[NodeId], NodeSet]) -> dict[NodeId, NodeId]:
    """For each node that the sources can reach: the node before it on a shortest path.

    Of several shortest paths the one through the lowest node numbers is taken.
    """
    found: dict[NodeId, NodeId] = {}
    seen = frontier = sources
    while frontier:
        reached = 0
        for node in members(frontier):
            new = hearers(node) & ~seen
            seen |= new
            reached |= new
            found.update(dict.fromkeys(members(new), node))
        frontier = reached
    return found
