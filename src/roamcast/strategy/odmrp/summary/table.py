"""Many summaries, and which of them an event's digest matches: what a publisher's broker asks for each event.

Few entries are tried one by one, many by bit matrices (`lookup.py`). Those need numpy, which a device may
lack (`roamcast[fast]`): it is loaded with the first large table; without it all are tried one by one.
"""

from collections.abc import Container
from typing import TYPE_CHECKING, Generic, TypeVar

from roamcast.extras import numpy_is_installed
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.summary import Summary

if TYPE_CHECKING:
    from roamcast.strategy.odmrp.summary.lookup import SummaryMatrix

Owner = TypeVar("Owner", bound=int | str)

FEW_ENTRIES = 16  # up to here one by one is as fast as numpy's calls


class SummaryTable(Generic[Owner]):
    """Summaries by key (a node, a group). Changes are cheap; the next lookup rebuilds the matrices."""

    def __init__(self) -> None:
        self._summaries: dict[Owner, Summary] = {}
        self._entries = 0
        self._matrix: SummaryMatrix[Owner] | None = None

    def add(self, key: Owner, summary: Summary) -> None:
        """Keep a summary under a key, in place of the one it had."""
        known = self._summaries.get(key)
        if known is not summary and known != summary:
            self.remove(key)
            self._summaries[key] = summary
            self._entries += len(summary.entries)
            self._matrix = None

    def remove(self, key: Owner) -> None:
        known = self._summaries.pop(key, None)
        if known is not None:
            self._entries -= len(known.entries)
            self._matrix = None

    def keep(self, keys: Container[Owner]) -> None:
        """Remove all others."""
        for key in [key for key in self._summaries if key not in keys]:
            self.remove(key)

    def clear(self) -> None:
        self._summaries.clear()
        self._entries = 0
        self._matrix = None

    def __len__(self) -> int:
        return len(self._summaries)

    def __contains__(self, key: Owner) -> bool:
        return key in self._summaries

    def __getitem__(self, key: Owner) -> Summary:
        return self._summaries[key]

    def matching(self, digest: EventDigest) -> list[Owner]:
        """The keys whose summaries match, sorted."""
        if self._entries <= FEW_ENTRIES or not numpy_is_installed():
            return sorted(owner for owner, summary in self._summaries.items() if summary.matches(digest))
        if self._matrix is None:
            from roamcast.strategy.odmrp.summary.lookup import SummaryMatrix

            self._matrix = SummaryMatrix(self._summaries)
        return self._matrix.matching(digest)
