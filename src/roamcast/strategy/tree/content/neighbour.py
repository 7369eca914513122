"""All that this layer keeps about one tree neighbour, for one incarnation of their link.

The router has the only dictionary of neighbours; `tables.py`, `announcer.py` and `recovery.py` work on it.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from roamcast.event import EventId
from roamcast.host import Kind, SendFailure
from roamcast.kit.confirm import Repetition
from roamcast.strategy.tree.content.session import FilterAnnouncement, NeighbourTable
from roamcast.strategy.tree.content.tables import TableLink
from roamcast.units import Micros, NodeId

TIMER = "content"  # first part of all timer names of this layer; the overlay shares the host


class TreeNeighbour(TableLink):
    def __init__(
        self,
        node: NodeId,
        announcement: FilterAnnouncement,
        received: NeighbourTable,
        repetition: Repetition,
    ) -> None:
        super().__init__(node)
        # `announcer.py`: both copies of the two sets of filters.
        self.announcement = announcement
        self.received = received
        self.repetition = repetition  # of the update that awaits its acknowledgement
        self.update_made_at: Micros = 0
        # `recovery.py`: events that it may lack, and how often each was offered, the newest last.
        self.offers: dict[EventId, int] = {}

    @property
    def is_settled(self) -> bool:
        """Whether the neighbour has sent a table: then the link is up at its end and our data is read."""
        return self.received.session >= 0


class TreeLinks(Protocol):
    """The part of the overlay that this layer uses."""

    @property
    def is_overheard(self) -> bool: ...

    def send(
        self,
        neighbour: NodeId,
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
        on_failure: Callable[[SendFailure], None] | None = None,
    ) -> None: ...

    def spread(
        self,
        neighbours: Iterable[NodeId],
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
    ) -> None: ...
