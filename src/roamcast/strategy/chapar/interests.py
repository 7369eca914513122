"""What the applications of this node want, as filter identifiers with a version.

Several subscriptions may have one identifier; only the first and the last of them are a change. The version
counts the changes and survives a crash, so that no broker takes an old state for the newer one.
"""

from collections.abc import MutableMapping
from typing import NamedTuple

from roamcast.broker.core import Subscription
from roamcast.kit.numbers import StableCounter
from roamcast.strategy.chapar.tables.identifiers import IdentifierLayout, matches

VERSION_BLOCK = 1_000
"""How many versions one stable write reserves. Chosen by us: more mean fewer writes."""
VERSION_MAX = 2**62  # a register that claims more is hostile


class Move(NamedTuple):
    """One change of the interests."""

    version: int
    filter_id: int
    stands: bool


class VersionedInterests:
    def __init__(self, layout: IdentifierLayout, stable: MutableMapping[str, bytes]) -> None:
        self._layout = layout
        self._counts: dict[int, int] = {}
        self._versions = StableCounter(stable, "chapar version", VERSION_BLOCK)
        # Versions before a crash were below the reserved one; 0 is "never wanted anything".
        self.version = self._versions.next

    def add(self, subscription: Subscription) -> Move | None:
        filter_id = self._layout.filter_id(subscription.filter)
        self._counts[filter_id] = count = self._counts.get(filter_id, 0) + 1
        return self._move(filter_id, True) if count == 1 else None

    def remove(self, subscription: Subscription) -> Move | None:
        filter_id = self._layout.filter_id(subscription.filter)
        count = self._counts.get(filter_id, 0) - 1
        if count > 0:
            self._counts[filter_id] = count
            return None
        if self._counts.pop(filter_id, None) is None:
            return None
        return self._move(filter_id, False)

    def overtake(self, version: int) -> None:
        """A broker knows a later version of ours than we do (our storage was lost): continue above it."""
        if self.version < version < VERSION_MAX:
            self._count_up(version + 1)

    def filter_ids(self) -> frozenset[int]:
        return frozenset(self._counts)

    def select(self, event_id: int) -> bool:
        """Whether some filter may match an event with this identifier."""
        return any(matches(filter_id, event_id) for filter_id in self._counts)

    def _move(self, filter_id: int, stands: bool) -> Move:
        self._count_up(self.version + 1)
        return Move(self.version, filter_id, stands)

    def _count_up(self, version: int) -> None:
        self._versions.skip_to(version)
        self.version = self._versions.take()
