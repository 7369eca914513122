"""Who wants what, and at which home broker: told to every broker, so that any can be a producer's home."""

from collections.abc import Collection
from typing import NamedTuple

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.strategy.opportunistic.messages import Interest
from roamcast.units import Micros, NodeId

CONSUMERS_MAX = 10_000
HANDOFFS_PER_GENERATION = 1 << 20


def first_version(generation: int) -> int:
    """The version of a client's first registration in a generation; each handoff adds one."""
    return generation * HANDOFFS_PER_GENERATION


class Registration(NamedTuple):
    version: int
    home: NodeId
    interests: tuple[Interest, ...]
    renewed_at: Micros


class Consumers:
    def __init__(self) -> None:
        self._registrations: dict[NodeId, Registration] = {}
        self._index: MatchingIndex[tuple[NodeId, int]] = MatchingIndex()
        self._modulated: set[tuple[NodeId, int]] = set()
        self._doubtful: set[NodeId] = set()  # their home may know them no more

    def update(
        self, consumer: NodeId, version: int, home: NodeId, interests: tuple[Interest, ...], now: Micros
    ) -> bool:
        """Take a registration if it is not older than the one known; whether it was taken."""
        known = self._registrations.get(consumer)
        if known is not None and version < known.version:
            return False
        if known is None and len(self._registrations) >= CONSUMERS_MAX:
            return False
        if known is None or known.interests != interests:
            self._replace(consumer, () if known is None else known.interests, interests)
        self._registrations[consumer] = Registration(version, home, interests, now)
        self._doubtful.discard(consumer)
        return True

    def find(self, consumer: NodeId) -> Registration | None:
        return self._registrations.get(consumer)

    def versions(self, but_at: NodeId) -> list[tuple[NodeId, int]]:
        """Of all registrations, by consumer, but for those at one home broker."""
        standing = sorted(self._registrations.items())
        return [(consumer, known.version) for consumer, known in standing if known.home != but_at]

    def consumers(self) -> list[NodeId]:
        return sorted(self._registrations)

    def matching(self, event: Event) -> dict[NodeId, list[NodeId]]:
        """The consumers that an event is for, by home broker, in increasing order."""
        own = event.publisher  # its plain subscriptions are served already; its modulators are not
        matched = self._index.match(event) if event.wants_subscribers else []
        found = {
            consumer for consumer, number in matched if consumer != own or (own, number) in self._modulated
        }
        found.update(node for node in event.destinations if node in self._registrations and node != own)
        by_home: dict[NodeId, list[NodeId]] = {}
        for consumer in sorted(found):
            by_home.setdefault(self._registrations[consumer].home, []).append(consumer)
        return by_home

    def renew(self, consumer: NodeId, version: int, home: NodeId, now: Micros) -> bool:
        """The home broker says that this registration still stands; False if it is not the one known."""
        known = self._registrations.get(consumer)
        if known is None or (known.version, known.home) != (version, home):
            return False
        self._registrations[consumer] = known._replace(renewed_at=now)
        self._doubtful.discard(consumer)
        return True

    def doubt(self, home: NodeId) -> list[NodeId]:
        """A home broker has restarted: who was there, and until news come is nowhere."""
        here = sorted(consumer for consumer, known in self._registrations.items() if known.home == home)
        self._doubtful.update(here)
        return here

    def is_doubtful(self, consumer: NodeId) -> bool:
        return consumer in self._doubtful

    def forget_silent(self, before: Micros, spared: Collection[NodeId]) -> None:
        """Soft state: a home broker renews its registrations; who is not renewed is gone."""
        for consumer in [
            c for c, known in self._registrations.items() if known.renewed_at < before and c not in spared
        ]:
            self._replace(consumer, self._registrations.pop(consumer).interests, ())
            self._doubtful.discard(consumer)

    def _replace(self, consumer: NodeId, old: tuple[Interest, ...], new: tuple[Interest, ...]) -> None:
        for interest in old:
            key = (consumer, interest.number)
            self._modulated.discard(key)
            if key in self._index:
                self._index.remove(key)
        for interest in new:
            if interest.modulator is not None:
                self._modulated.add((consumer, interest.number))
            try:
                self._index.add((consumer, interest.number), Filter.decode(interest.filter))
            except WireError:
                continue  # what cannot be read matches nothing
