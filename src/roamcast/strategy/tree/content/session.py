"""Keeping a neighbour's copy of a set of filters equal to ours, over a link that loses messages.

For each direction of a link there is one `FilterAnnouncement` (the sender) and one `NeighbourTable` (the
receiver). The sender has at most one update outstanding and repeats it until it is acknowledged. Changes
in between go into the next update, so a burst of changes costs one message. Each update names the version it
builds on. A receiver that does not hold this version says so and gets the whole set.

A session is one incarnation of a link on the sender's side. Session numbers of a node only increase (its
boots are counted in stable storage), so that a delayed message of an earlier incarnation is never taken for
a new one. Neither class knows the clock or the radio.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from enum import Enum

from roamcast.filter import Filter
from roamcast.strategy.tree.content.messages import (
    ENTRIES_MAX,
    FilterChange,
    FilterUpdate,
    Refresh,
    UpdateAcknowledgement,
)
from roamcast.units import Micros


class FilterAnnouncement:
    """The filters that this node announces to one neighbour."""

    def __init__(self, session: int, bytes_max: int) -> None:
        self.session = session
        self.outstanding: FilterUpdate | None = None
        self.told: set[Filter] = set()  # what the neighbour holds once the outstanding update has arrived
        self._bytes_max = bytes_max
        self._version = 0
        self._continues = False  # whether the neighbour holds a version that an update can build on
        self._complete = False

    def next_update(
        self, wanted: Collection[Filter], age_of: Callable[[Filter], Micros]
    ) -> FilterUpdate | None:
        """The next update towards `wanted`; None if one is outstanding or nothing has changed.

        It stays `outstanding` until acknowledged. `age_of` gives the age of each added filter.
        """
        if self.outstanding is not None:
            return None
        added = [each for each in wanted if each not in self.told]
        gone = [each for each in self.told if each not in wanted]
        if self._complete and not added and not gone:
            return None
        add, remove, complete = self._fitting(added, gone)
        base = self._version if self._continues else 0
        self._version += 1
        self.outstanding = FilterUpdate(
            self.session,
            base,
            self._version,
            complete,
            tuple((each.encode(), age_of(each)) for each in add),
            tuple(each.encode() for each in remove),
        )
        self.told.update(add)
        self.told.difference_update(remove)
        self._continues = True
        self._complete = complete
        return self.outstanding

    def on_acknowledge(self, answer: UpdateAcknowledgement) -> bool:
        """True if the outstanding update is settled, and the next one may be sent."""
        if answer.session != self.session:
            return False
        if answer.lost:
            self.restart()
            return True
        if self.outstanding is None or answer.version != self.outstanding.version:
            return False
        self.outstanding = None
        return True

    def restart(self) -> None:
        """The neighbour holds nothing that an update could build on: the next one has the whole set."""
        self.outstanding = None
        self.told = set()
        self._continues = self._complete = False

    @property
    def is_settled(self) -> bool:
        """Whether the neighbour has acknowledged the whole set."""
        return self._complete and self.outstanding is None

    def refresh(self) -> Refresh | None:
        """The reminder; None while an update is outstanding, which is repeated anyway."""
        if not self.is_settled:
            return None
        return Refresh(self.session, self._version, digest_of(self.told))

    def _fitting(self, added: list[Filter], gone: list[Filter]) -> tuple[list[Filter], list[Filter], bool]:
        """As many changes as one message carries, at least one; sorted: equal sets give equal octets."""
        changes = [(each, True) for each in sorted(added, key=Filter.encode)]
        changes += [(each, False) for each in sorted(gone, key=Filter.encode)]
        room = self._bytes_max
        fitting = 0
        for each, _ in changes[:ENTRIES_MAX]:
            room -= len(each.encode())
            if room < 0 and fitting:
                break
            fitting += 1
        taken = changes[:fitting]
        return (
            [each for each, is_new in taken if is_new],
            [each for each, is_new in taken if not is_new],
            fitting == len(changes),
        )


class Outcome(Enum):
    STALE = "stale"  # of an earlier session: no answer
    REPEATED = "repeated"  # known: acknowledge again
    APPLIED = "applied"
    LOST = "lost"  # does not build on the version we hold, or has too many filters


class NeighbourTable:
    """The filters that one neighbour announced to this node."""

    def __init__(self, filters_max: int) -> None:
        self.session = -1
        self.version = 0
        self._filters_max = filters_max
        self._staged: dict[Filter, Micros] = {}
        self._complete = False

    def on_change(self, change: FilterChange) -> Outcome:
        if change.session < self.session:
            return Outcome.STALE
        if change.session == self.session and change.version <= self.version:
            return Outcome.REPEATED
        if change.base and (change.session, change.base) != (self.session, self.version):
            return Outcome.LOST
        staged = dict(self._staged) if change.base else {}
        for each in change.remove:
            staged.pop(each, None)
        staged.update(change.add)
        if len(staged) > self._filters_max:
            return Outcome.LOST
        self.session = change.session
        self.version = change.version
        self._staged = staged
        self._complete = change.complete
        return Outcome.APPLIED

    def table(self) -> dict[Filter, Micros] | None:
        """Each wanted filter with the time since which it is wanted; None while the set is not complete."""
        return dict(self._staged) if self._complete else None

    def agrees(self, refresh: Refresh) -> bool:
        return (
            (refresh.session, refresh.version) == (self.session, self.version)
            and self._complete
            and digest_of(self._staged) == refresh.digest
        )

    def is_behind(self, refresh: Refresh) -> bool:
        """Whether the reminder is of this session or a later one, and so worth an answer."""
        return refresh.session >= self.session


def digest_of(filters: Iterable[Filter]) -> bytes:
    """The same for equal sets on every node."""
    sum_ = hashlib.blake2b(digest_size=8)
    for encoded in sorted(each.encode() for each in filters):
        sum_.update(len(encoded).to_bytes(4, "big"))
        sum_.update(encoded)
    return sum_.digest()
