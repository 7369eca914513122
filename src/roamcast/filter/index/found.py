"""The matches of one search, and their final order."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from roamcast.filter.index.bitmap import Bitmap
from roamcast.filter.index.conjunction import Conjunction


class MatchesFound:
    """Single matches from tests, many at once from bitmaps."""

    __slots__ = ("_many", "_runs", "_single")

    def __init__(self) -> None:
        self._single: list[Conjunction] = []
        self._many: list[tuple[Bitmap, int]] = []
        self._runs = 0

    def add(self, conjunction: Conjunction) -> None:
        self._single.append(conjunction)

    def add_all(self, conjunctions: Iterable[Conjunction]) -> None:
        self._single.extend(conjunctions)

    def begin_run(self) -> None:
        """The bitmaps that follow are of one block, in the order of adding."""
        self._runs += 1

    def add_many(self, bitmap: Bitmap, matched: int) -> None:
        self._many.append((bitmap, matched))

    def keys(self, once: bool) -> list[Any]:
        """In the order of adding; `once`: a subscription can be found several times."""
        keys: list[Any] = []
        if self._runs == 1 and not self._single:
            for bitmap, matched in self._many:
                keys += bitmap.keys_of(matched)
        else:
            conjunctions = self._single
            for bitmap, matched in self._many:
                conjunctions += bitmap.members_of(matched)
            conjunctions.sort(key=_SEQUENCE)
            keys = [conjunction.key for conjunction in conjunctions]
        return list(dict.fromkeys(keys)) if once else keys


_SEQUENCE = attrgetter("sequence")
