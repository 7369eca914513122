"""The messages of content-based routing between tree neighbours.

| tag | message | name in the trace | says |
|---|---|---|---|
| 1 | `FilterUpdate` | `subscription` | how the set of filters that I want from you has changed |
| 2 | `UpdateAcknowledgement` | `acknowledge` | which version of your set I hold, or that I lost track |
| 3 | `Refresh` | `refresh` | which version of my set you should hold |
| 4 | `Cast` | `event`, `recovery` | an event on its way, in one broadcast for all who want it |
| 5 | `Digest` | `digest` | events that I have and some of you may have missed |
| 6 | `Want` | `request` | which of those you should send |
"""

from collections.abc import Iterable
from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import Count, Event, EventId
from roamcast.host import Host, Kind
from roamcast.kit.protocol import Messenger, OnFailure, WireMessage
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.units import NodeId
from roamcast.wire import Codec

ENTRIES_MAX = 4_096  # filters, nodes or event ids in one list; chosen by us

Ids: TypeAlias = Annotated[tuple[EventId, ...], msgspec.Meta(max_length=ENTRIES_MAX)]
Nodes: TypeAlias = Annotated[tuple[Count, ...], msgspec.Meta(max_length=ENTRIES_MAX)]


class FilterUpdate(WireMessage, frozen=True, tag=1):
    """From version `base` of the sender's set to `version`; base 0 is the empty set.

    `add` gives each filter with its age: for how long someone has wanted it. A set too large for one
    message comes in several; the receiver acts on it when the one marked `complete` has come.
    """

    name = "subscription"

    session: Count
    base: Count
    version: Count
    complete: bool
    add: Annotated[tuple[tuple[bytes, Count], ...], msgspec.Meta(max_length=ENTRIES_MAX)]
    remove: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=ENTRIES_MAX)]


class UpdateAcknowledgement(WireMessage, frozen=True, tag=2):
    name = "acknowledge"

    session: Count
    version: Count
    lost: bool = False  # the last update does not build on the version I hold: send the whole set


class Refresh(WireMessage, frozen=True, tag=3):
    name = "refresh"

    session: Count
    version: Count
    digest: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]


class Cast(WireMessage, frozen=True, tag=4):
    """`hops`: links before this one; `age`: time since publication; `again`: sent for recovery. The overlay's
    frame names the neighbours it is meant for."""

    kind = Kind.DATA

    event: Event
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)]
    age: Count
    again: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return "recovery" if self.again else "event"

    @property
    def event_id(self) -> EventId:
        return self.event.id


class Digest(WireMessage, frozen=True, tag=5):
    """For each group of neighbours, the events that I have and they should. The first `recent` groups are of
    events that are not in my store."""

    name = "digest"

    groups: Annotated[tuple[tuple[Nodes, Ids], ...], msgspec.Meta(max_length=ENTRIES_MAX)]
    recent: Count


class Want(WireMessage, frozen=True, tag=6):
    name = "request"

    events: Ids


ContentMessage: TypeAlias = FilterUpdate | UpdateAcknowledgement | Refresh | Cast | Digest | Want

CODEC: Codec[ContentMessage] = Codec("content", 4, ContentMessage)


class LinkMessenger(Messenger[ContentMessage]):
    """Messages over tree links: to one neighbour, or to several in one broadcast."""

    def __init__(self, host: Host, overlay: Overlay) -> None:
        super().__init__(host, CODEC)
        self._overlay = overlay

    def to_neighbour(
        self,
        neighbour: NodeId,
        message: ContentMessage,
        *,
        own: bool = False,
        on_failure: OnFailure | None = None,
    ) -> int:
        """Returns the octets."""
        frame = self.frame(message, own=own)
        self._overlay.send(neighbour, frame, on_failure)
        return len(frame.payload)

    def to_neighbours(
        self, neighbours: Iterable[NodeId], message: ContentMessage, *, own: bool = False
    ) -> int:
        """Likewise."""
        frame = self.frame(message, own=own)
        self._overlay.spread(neighbours, frame)
        return len(frame.payload)
