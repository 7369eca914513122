"""Aggregated subscriptions in a graph (section 3.4.2): which entry covers which.

An entry lies below every entry that covers it, so an event that matches an entry matches those above it too.
The search for one match therefore looks at the roots only, and the search for all goes down only from
entries that matched. Edges that follow from others (by transitivity) are left out.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.entry import SummaryEntry
from roamcast.strategy.odmrp.summary.merging import order

Owner = TypeVar("Owner", bound=int | str)


class CoveringGraph(Generic[Owner]):
    """Built once, of pairs of owner and entry; owners of equal entries share a node."""

    def __init__(self, owned: Iterable[tuple[Owner, SummaryEntry]]) -> None:
        self._owners: dict[SummaryEntry, list[Owner]] = {}
        for owner, entry in owned:
            self._owners.setdefault(entry, []).append(owner)
        self._entries = sorted(self._owners, key=order)  # an entry comes before those it covers
        self.roots: list[SummaryEntry] = []  # in `order`
        self.below: dict[SummaryEntry, list[SummaryEntry]] = {entry: [] for entry in self._entries}
        for number, entry in enumerate(self._entries):
            self._place(entry, self._entries[:number])

    def matches(self, digest: EventDigest) -> bool:
        """Does at least one subscription match? Then the message is published."""
        return any(map(digest.satisfies, self.roots))

    def owners(self, digest: EventDigest) -> list[Owner]:
        """Whose subscriptions match, sorted."""
        found: set[Owner] = set()
        seen = set(self.roots)
        waiting = list(self.roots)
        while waiting:
            entry = waiting.pop()
            if digest.satisfies(entry):
                found.update(self._owners[entry])
                fresh = [each for each in self.below[entry] if each not in seen]
                seen.update(fresh)
                waiting += fresh
        return sorted(found)

    def _place(self, entry: SummaryEntry, earlier: list[SummaryEntry]) -> None:
        coverers = {other: None for other in earlier if other.covers(entry)}
        # An entry that covers another coverer has a child on the path to it, which covers `entry` too.
        parents = [one for one in coverers if not any(child in coverers for child in self.below[one])]
        for parent in parents:
            self.below[parent].append(entry)
        if not parents:
            self.roots.append(entry)
