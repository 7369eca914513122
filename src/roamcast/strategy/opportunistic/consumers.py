"""Who wants what, and at which home broker: the clients' rows of the board, ready to be matched."""

from typing import NamedTuple

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.strategy.opportunistic.messages import ClientRow, Interest
from roamcast.units import NodeId

HANDOFFS_PER_GENERATION = 1 << 20
GENERATIONS_MAX = 1 << 38


def first_version(generation: int) -> int:
    """The version of a client's first row in a generation; each change adds some."""
    return generation * HANDOFFS_PER_GENERATION


def generation_of(version: int) -> int:
    return version // HANDOFFS_PER_GENERATION


class EventTarget(NamedTuple):
    """A consumer that gets an event: the event itself (plain), or what its modulators at its home make of
    it."""

    consumer: NodeId
    is_modulated: bool


class Consumers:
    def __init__(self) -> None:
        self._rows: dict[NodeId, tuple[int, ClientRow]] = {}
        self._index: MatchingIndex[tuple[NodeId, int]] = MatchingIndex()
        self._indexed: dict[NodeId, tuple[Interest, ...]] = {}  # what the index has of each
        self._changed: dict[NodeId, None] = {}  # where it differs from the rows: most nodes dispatch nothing
        self._modulated: set[tuple[NodeId, int]] = set()

    # Inputs.

    def update(self, consumer: NodeId, version: int, row: ClientRow) -> tuple[Interest, ...]:
        """A newer row; which interests are news. Where a detour has told of a later home, that stays."""
        known = self.find(consumer)
        if known is not None and version < self.version(consumer):
            row, version = (
                ClientRow(known.home, known.boot, row.produces, row.interests),
                self.version(consumer),
            )
        before = () if known is None else known.interests
        if before != row.interests:
            self._changed[consumer] = None
        self._rows[consumer] = version, row
        had = _by_number(before)
        return tuple(interest for interest in row.interests if had.get(interest.number) != interest)

    def switch(self, consumer: NodeId, version: int, home: NodeId, boot: int) -> None:
        """The news of a detour, before the row that says so has come."""
        known = self._rows.get(consumer)
        if known is not None and version > known[0]:
            row = ClientRow(home, boot, known[1].produces, known[1].interests)
            self._rows[consumer] = version, row

    def forget(self, consumer: NodeId) -> None:
        if self._rows.pop(consumer, None) is not None:
            self._changed[consumer] = None

    # Questions.

    def find(self, consumer: NodeId) -> ClientRow | None:
        known = self._rows.get(consumer)
        return None if known is None else known[1]

    def version(self, consumer: NodeId) -> int:
        """The version of the row that stands; -1 if there is none."""
        known = self._rows.get(consumer)
        return -1 if known is None else known[0]

    def consumers(self) -> list[NodeId]:
        return sorted(self._rows)

    def producers(self) -> dict[NodeId, NodeId]:
        """The known producers, each with its home broker."""
        return {node: row.home for node, (_, row) in self._rows.items() if row.produces}

    def matching(self, event: Event) -> list[EventTarget]:
        """Whom an event is for, in increasing order."""
        self._bring_up_to_date()
        own = event.publisher  # its plain subscriptions are served already; its modulators are not
        found: set[EventTarget] = set()
        for key in self._index.match(event) if event.wants_subscribers else ():
            is_modulated = key in self._modulated
            if is_modulated or key[0] != own:
                found.add(EventTarget(key[0], is_modulated))
        found.update(EventTarget(node, False) for node in event.destinations if node != own)
        return sorted(found)

    # Private.

    def _bring_up_to_date(self) -> None:
        for consumer in self._changed:
            row = self.find(consumer)
            self._replace(consumer, () if row is None else row.interests)
        self._changed.clear()

    def _replace(self, consumer: NodeId, new: tuple[Interest, ...]) -> None:
        """Only what differs: a client may change one of hundreds of interests after the other."""
        before, after = _by_number(self._indexed.pop(consumer, ())), _by_number(new)
        if new:
            self._indexed[consumer] = new
        for number, interest in before.items():
            key = (consumer, number)
            if after.get(number) != interest:
                self._modulated.discard(key)
                if key in self._index:
                    self._index.remove(key)
        for number, interest in after.items():
            if before.get(number) != interest:
                self._add((consumer, number), interest)

    def _add(self, key: tuple[NodeId, int], interest: Interest) -> None:
        if interest.modulator is not None:
            self._modulated.add(key)
        wanted = opened(interest.filter)
        if wanted is not None:
            self._index.add(key, wanted)


def opened(filter: bytes) -> Filter | None:
    """The filter in these octets; None if it cannot be read, and then matches nothing."""
    try:
        return Filter.decode(filter)
    except WireError:
        return None


def _by_number(interests: tuple[Interest, ...]) -> dict[int, Interest]:
    return {interest.number: interest for interest in interests}
