"""Aggregated subscriptions in a graph (section 3.4.2): which entry covers which.

An entry lies below every entry that covers it, so an event that matches an entry matches those above it too.
The search for one match therefore looks at the roots only, and the search for all goes down only from
entries that matched. Edges that follow from others (by transitivity) are left out.

The levels below the roots keep the pattern when subscriptions change: an entry that comes takes its place
among those that are there, and where one ends, those below it move up. Nothing is computed anew.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.entry import SummaryEntry, order

Owner = TypeVar("Owner", bound=int | str)


class CoveringGraph(Generic[Owner]):
    """Entries by their owners; owners of equal entries share a place in the graph."""

    def __init__(self, owned: Iterable[tuple[Owner, SummaryEntry]] = ()) -> None:
        self._owners: dict[SummaryEntry, set[Owner]] = {}
        self._entries: dict[Owner, tuple[SummaryEntry, ...]] = {}
        self.below: dict[SummaryEntry, list[SummaryEntry]] = {}
        self._above: dict[SummaryEntry, list[SummaryEntry]] = {}
        collected: dict[Owner, list[SummaryEntry]] = {}
        for owner, entry in owned:
            collected.setdefault(owner, []).append(entry)
        for owner, entries in collected.items():
            self.put(owner, entries)

    @property
    def roots(self) -> list[SummaryEntry]:
        """The entries that no other covers, in `order`."""
        return sorted((entry for entry, above in self._above.items() if not above), key=order)

    def put(self, owner: Owner, entries: Iterable[SummaryEntry]) -> None:
        """What an owner wants from now on, in place of what it wanted."""
        wanted = tuple(dict.fromkeys(entries))
        if self._entries.get(owner, ()) == wanted:
            return
        self.remove(owner)
        self._entries[owner] = wanted
        for entry in wanted:
            if entry not in self._owners:
                self._owners[entry] = set()
                self._place(entry)
            self._owners[entry].add(owner)

    def remove(self, owner: Owner) -> None:
        for entry in self._entries.pop(owner, ()):
            self._owners[entry].discard(owner)
            if not self._owners[entry]:
                del self._owners[entry]
                self._take_out(entry)

    def members(self) -> list[Owner]:
        return sorted(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def matches(self, digest: EventDigest) -> bool:
        """Does at least one subscription match? Then the message is published."""
        return any(not above and digest.satisfies(entry) for entry, above in self._above.items())

    def owners(self, digest: EventDigest) -> list[Owner]:
        """Whose subscriptions match, sorted."""
        found: set[Owner] = set()
        waiting = [entry for entry, above in self._above.items() if not above]
        seen = set(waiting)
        while waiting:
            entry = waiting.pop()
            if digest.satisfies(entry):
                found |= self._owners[entry]
                fresh = [each for each in self.below[entry] if each not in seen]
                seen.update(fresh)
                waiting += fresh
        return sorted(found)

    def _place(self, entry: SummaryEntry) -> None:
        """Between those that cover it and those that it covers, in each case the nearest."""
        coverers = [other for other in self.below if other.covers(entry)]
        covered = [other for other in self.below if entry.covers(other)]
        parents = [one for one in coverers if not any(child in coverers for child in self.below[one])]
        children = [one for one in covered if not any(parent in covered for parent in self._above[one])]
        self.below[entry], self._above[entry] = [], []
        for parent in parents:
            for child in [child for child in self.below[parent] if child in children]:
                self._part(parent, child)
            self._join(parent, entry)
        for child in children:
            self._join(entry, child)

    def _take_out(self, entry: SummaryEntry) -> None:
        """Those below it move up to those above it, unless another way leads there."""
        parents, children = self._above[entry], self.below[entry]
        for parent in list(parents):
            self._part(parent, entry)
            for child in children:
                if not any(other.covers(child) for other in self.below[parent]):
                    self._join(parent, child)
        for child in list(children):
            self._part(entry, child)
        del self.below[entry], self._above[entry]

    def _join(self, parent: SummaryEntry, child: SummaryEntry) -> None:
        self.below[parent].append(child)
        self._above[child].append(parent)

    def _part(self, parent: SummaryEntry, child: SummaryEntry) -> None:
        self.below[parent].remove(child)
        self._above[child].remove(parent)
