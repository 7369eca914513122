"""The topology set: which relay was chosen by whom, according to TC messages (RFC 3626, section 9.5).

The RFC keeps a tuple with a deadline per pair of relay and advertised neighbour. Here the tuples that one
TC body made share one deadline: a TC that repeats its predecessor renews them all by one look-up.
"""

from roamcast.units import Micros
from roamcast.wire.olsr import Address, Tc, is_newer

NOBODY: frozenset[Address] = frozenset()


class Advertisement:
    """What one originator advertises. A set too large for one TC comes in several of the same number."""

    __slots__ = ("ansn", "destinations", "parts")

    def __init__(self, ansn: int) -> None:
        self.ansn = ansn
        self.parts: dict[frozenset[Address], Micros] = {}
        self.destinations: frozenset[Address] = NOBODY  # of all parts

    def gather(self) -> None:
        self.destinations = NOBODY.union(*self.parts)


class TopologySet:
    def __init__(self, tuples_max: int) -> None:
        self._tuples_max = tuples_max
        self._tuples = 0
        self._purge_at: Micros | None = None  # no deadline is earlier
        self.table: dict[Address, Advertisement] = {}  # by originator

    def on_tc(self, originator: Address, tc: Tc, until: Micros) -> bool | None:
        """Whether the topology changed; None if there was no room."""
        if self._purge_at is None or until < self._purge_at:
            self._purge_at = until
        known = self.table.get(originator)
        if known is not None:
            if tc.ansn == known.ansn:
                if tc.advertised in known.parts:
                    known.parts[tc.advertised] = until
                    return False
            elif is_newer(known.ansn, tc.ansn):
                return False  # a newer TC has overtaken it
        forgotten = 0 if known is None or tc.ansn == known.ansn else _size(known)
        # An empty part takes a place as well: its number protects against older TCs.
        if self._tuples - forgotten + max(1, len(tc.advertised)) > self._tuples_max:
            return None
        before = NOBODY if known is None else known.destinations
        if known is None or tc.ansn != known.ansn:
            known = self.table[originator] = Advertisement(tc.ansn)
        known.parts[tc.advertised] = until
        known.gather()
        self._tuples += max(1, len(tc.advertised)) - forgotten
        return known.destinations != before

    def relays(self) -> list[Address]:
        """Originators that somebody chose as relay, increasing."""
        return sorted(address for address, known in self.table.items() if known.destinations)

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether the topology changed, and a time before which it will not change by expiry."""
        if self._purge_at is None or now < self._purge_at:
            return False, self._purge_at
        changed = False
        self._purge_at = None
        for originator, known in list(self.table.items()):
            ended = [part for part, until in known.parts.items() if until <= now]
            for part in ended:
                del known.parts[part]
                self._tuples -= max(1, len(part))
                changed = True
            if not known.parts:
                del self.table[originator]
                continue
            if ended:
                known.gather()
            first = min(known.parts.values())
            if self._purge_at is None or first < self._purge_at:
                self._purge_at = first
        return changed, self._purge_at


def _size(known: Advertisement) -> int:
    return sum(max(1, len(part)) for part in known.parts)
