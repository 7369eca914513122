"""Which neighbours relay for us: the heuristic of RFC 3626, section 8.3.1, as a function over sets.

A relay set covers every strict 2-hop neighbour: what a node sends and its relays repeat reaches all nodes two
hops away. The smaller the set, the fewer repeats.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roamcast.wire.olsr import WILL_ALWAYS, WILL_NEVER, Address


class RelayCandidate(NamedTuple):
    """A symmetric neighbour: how willing it is, and the main addresses of its own symmetric neighbours."""

    willingness: int
    reached: frozenset[Address]


def select_relays(
    own: Address, neighbours: Mapping[Address, RelayCandidate], *, by_degree: bool = True
) -> frozenset[Address]:
    """The multipoint relays of node `own`. Of neighbours that reach equally many, the one of the highest
    degree is taken (`by_degree`); ties that remain go to the one that comes first in `neighbours`."""
    members = frozenset((own, *neighbours))
    # N2 as seen through each neighbour; a neighbour that never relays reaches nothing. Its size is
    # D(y) of step 2: the neighbour's degree without our own neighbours and ourselves.
    through = {
        address: candidate.reached - members
        for address, candidate in neighbours.items()
        if candidate.willingness != WILL_NEVER
    }
    relays = [address for address in through if neighbours[address].willingness == WILL_ALWAYS]  # step 1
    only_way_to = _reached_once(through.values())
    for address, targets in through.items():  # step 3
        if address not in relays and not targets.isdisjoint(only_way_to):
            relays.append(address)
    uncovered = set().union(*through.values()).difference(*(through[address] for address in relays))
    while uncovered:  # step 4
        best = _best(uncovered, neighbours, through, by_degree)
        relays.append(best)
        uncovered -= through[best]
    return _without_needless(relays, neighbours, through)


def _reached_once(sets: Iterable[frozenset[Address]]) -> set[Address]:
    once: set[Address] = set()
    again: set[Address] = set()
    for targets in sets:
        again |= once & targets
        once |= targets
    return once - again


def _best(
    uncovered: set[Address],
    neighbours: Mapping[Address, RelayCandidate],
    through: Mapping[Address, frozenset[Address]],
    by_degree: bool,
) -> Address:
    """Of those that reach anything new: the most willing, then most new targets, then highest degree."""
    best, best_merit = 0, (-1, 0, 0)
    for address, targets in through.items():  # in the caller's order, and only a better one replaces
        new = len(targets & uncovered)
        if new:
            merit = (neighbours[address].willingness, new, len(targets) if by_degree else 0)
            if merit > best_merit:
                best, best_merit = address, merit
    return best


def _without_needless(
    relays: list[Address],
    neighbours: Mapping[Address, RelayCandidate],
    through: Mapping[Address, frozenset[Address]],
) -> frozenset[Address]:
    """Step 5: drop, the least willing first and of those the last in order, relays whose targets the others
    cover."""
    kept = set(relays)
    last_first = [address for address in reversed(list(through)) if address in kept]
    for address in sorted(last_first, key=lambda address: neighbours[address].willingness):
        if neighbours[address].willingness == WILL_ALWAYS:
            continue
        if through[address] <= set().union(*(through[other] for other in kept if other != address)):
            kept.discard(address)
    return frozenset(kept)
