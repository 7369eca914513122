"""The topology set: which relay was chosen by whom, according to TC messages (RFC 3626, section 9.5).

The RFC keeps a tuple with a deadline per pair of relay and advertised neighbour. Here the tuples that one
TC body made share one deadline: a TC that repeats its predecessor renews them all by one look-up.
"""

from roamcast.units import Micros
from roamcast.wire.olsr import Address, Tc, is_newer

NOBODY: frozenset[Address] = frozenset()


class Advertisement:
    """What one originator advertises. A set too large for one TC comes in several of the same number."""

    __slots__ = ("ansn", "destinations", "parts", "size")

    def __init__(self, tc: Tc, until: Micros) -> None:
        self.ansn = tc.ansn
        self.parts = {tc.advertised: until}
        self.destinations = tc.advertised  # of all parts
        self.size = size_of(tc.advertised)

    def add(self, part: frozenset[Address], until: Micros) -> None:
        self.parts[part] = until
        self.destinations = self.destinations | part
        self.size += size_of(part)

    def forget_expired(self, now: Micros) -> None:
        self.parts = {part: until for part, until in self.parts.items() if now < until}
        self.destinations = NOBODY.union(*self.parts)
        self.size = sum(map(size_of, self.parts))


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
        is_further_part = known is not None and tc.ansn == known.ansn
        grows_by = size_of(tc.advertised) - (0 if known is None or is_further_part else known.size)
        if self._tuples + grows_by > self._tuples_max:
            return None
        self._tuples += grows_by
        before = NOBODY if known is None else known.destinations
        if known is not None and tc.ansn == known.ansn:
            known.add(tc.advertised, until)
        else:
            known = self.table[originator] = Advertisement(tc, until)
        return known.destinations != before

    def relays(self) -> list[Address]:
        """Originators that somebody chose as relay, increasing."""
        return sorted([address for address, known in self.table.items() if known.destinations])

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether the topology changed, and a time before which it will not change by expiry."""
        if self._purge_at is None or now < self._purge_at:
            return False, self._purge_at
        changed = False
        self._purge_at = None
        for originator, known in list(self.table.items()):
            first = min(known.parts.values())
            if first <= now:
                changed = True
                self._tuples -= known.size
                known.forget_expired(now)
                self._tuples += known.size
                if not known.parts:
                    del self.table[originator]
                    continue
                first = min(known.parts.values())
            if self._purge_at is None or first < self._purge_at:
                self._purge_at = first
        return changed, self._purge_at


def size_of(part: frozenset[Address]) -> int:
    """In tuples. An empty part takes a place as well: its number protects against older TCs."""
    return len(part) or 1
