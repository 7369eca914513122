"""Which neighbours relay for us: the heuristic of RFC 3626, section 8.3.1, over sets.

A relay set covers every strict 2-hop neighbour: what a node sends and its relays repeat reaches all nodes two
hops away. The smaller the set, the fewer repeats.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from roamcast.wire.olsr import WILL_ALWAYS, WILL_NEVER, Address

BITS_MAX = 1_024  # chosen by us; more addresses two hops away are counted anew for each selection

RelayCandidate: TypeAlias = tuple[int, frozenset[Address]]
"""A symmetric neighbour: how willing it is, and the main addresses of its own symmetric neighbours."""


def select_relays(
    own: Address, neighbours: Mapping[Address, RelayCandidate], *, by_degree: bool = True
) -> frozenset[Address]:
    """The multipoint relays of node `own`. Of neighbours that reach equally many, the one of the highest
    degree is taken (`by_degree`); ties that remain go to the one that comes first in `neighbours`."""
    return RelaySelection(own, by_degree=by_degree).select(neighbours)


class RelaySelection:
    """The same for a node that selects again and again. From one selection to the next few of its neighbours
    change, so what the others reach, as integers with a bit for each address, is kept."""

    def __init__(self, own: Address, *, by_degree: bool) -> None:
        self._own = own
        self._by_degree = by_degree
        self._members: frozenset[Address] = frozenset()
        self.bits: dict[Address, int] = {}  # of those who are two hops away, or were
        self._known: dict[Address, tuple[frozenset[Address], int]] = {}  # whom it reaches, and these as bits

    def select(
        self, neighbours: Mapping[Address, RelayCandidate], others: Iterable[Address] = ()
    ) -> frozenset[Address]:
        """`others`: neighbours over other interfaces, who are no candidates and no targets (section 8.3)."""
        through = self._through(neighbours, frozenset((self._own, *neighbours, *others)))
        once = again = 0
        for targets in through.values():
            again |= once & targets
            once |= targets
        only_way_to = once ^ again
        relays: list[Address] = []
        uncovered = once
        for address, targets in through.items():  # steps 1 and 3
            if targets & only_way_to or neighbours[address][0] == WILL_ALWAYS:
                relays.append(address)
                uncovered &= ~targets
        while uncovered:  # step 4
            best = self._best(uncovered, neighbours, through)
            relays.append(best)
            uncovered &= ~through[best]
        return _without_needless(relays, neighbours, through)

    def _through(
        self, neighbours: Mapping[Address, RelayCandidate], members: frozenset[Address]
    ) -> dict[Address, int]:
        """N2 as seen through each neighbour; a neighbour that never relays reaches nothing. Its size is
        D(y) of step 2: the neighbour's degree without our own neighbours and ourselves."""
        if members != self._members or len(self.bits) > BITS_MAX:
            self._members, self.bits, self._known = members, {}, {}
        bits, before, self._known = self.bits, self._known, {}
        through: dict[Address, int] = {}
        for address, (willingness, reached) in neighbours.items():
            if willingness != WILL_NEVER:
                known = before.get(address)
                if known is None or known[0] is not reached:
                    targets = 0
                    for target in reached - members:
                        if target not in bits:
                            bits[target] = 1 << len(bits)
                        targets |= bits[target]
                    known = reached, targets
                self._known[address] = known
                through[address] = known[1]
        return through

    def _best(
        self, uncovered: int, neighbours: Mapping[Address, RelayCandidate], through: Mapping[Address, int]
    ) -> Address:
        """Of those that reach anything new: the most willing, then most new targets, then highest degree."""
        best, best_merit = 0, (-1, 0, 0)
        for address, targets in through.items():  # in the caller's order, and only a better one replaces
            new = targets & uncovered
            if new:
                degree = targets.bit_count() if self._by_degree else 0
                merit = (neighbours[address][0], new.bit_count(), degree)
                if merit > best_merit:
                    best, best_merit = address, merit
        return best


def _without_needless(
    relays: list[Address], neighbours: Mapping[Address, RelayCandidate], through: Mapping[Address, int]
) -> frozenset[Address]:
    """Step 5: drop, the least willing first and of those the last in order, relays whose targets the others
    cover."""
    kept = dict.fromkeys(address for address in reversed(list(through)) if address in relays)
    for address in sorted(kept, key=lambda address: neighbours[address][0]):
        if neighbours[address][0] == WILL_ALWAYS:
            continue
        others = 0
        for other in kept:
            if other != address:
                others |= through[other]
        if not through[address] & ~others:
            del kept[address]
    return frozenset(kept)
