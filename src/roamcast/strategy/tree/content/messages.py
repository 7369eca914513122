"""The messages of content-based routing between tree neighbours.

| tag | message | name in the trace | says |
|---|---|---|---|
| 1 | `FilterUpdate` | `subscription` | how the set of filters that I want from you has changed |
| 2 | `UpdateAcknowledgement` | `acknowledge` | which version of your set I hold, or that I lost track |
| 3 | `Refresh` | `refresh` | which version of my set you should hold |
| 4 | `Routed` | `event`, `recovery` | an event on its way |
| 5 | `EventOffer` | `digest` | events that I have and you may have missed (push) |
| 6 | `WantAnswer` | `request` | which of those you should send |
| 8 | `Received` | `receipt` | they have come: offer me more |
| 7 | `Pull` | `digest` | events that I have; send what else I should have (pull) |
| 9 | `Cast` | `event`, `recovery` | an event on its way to several neighbours, in one broadcast |
| 10 | `Tally` | `tally` | how many broadcasts have gone to each of you |
| 11 | `MissedBroadcasts` | `request` | which of them did not come |
"""

from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import Count, Event, EventId
from roamcast.filter import Filter
from roamcast.units import Micros
from roamcast.wire import Codec

ENTRIES_MAX = 4_096  # filters or event ids in one message; chosen by us

Ids: TypeAlias = Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=ENTRIES_MAX)]


class ContentMessageBase(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class FilterUpdate(ContentMessageBase, frozen=True, tag=1):
    """From version `base` of the sender's set to `version`; base 0 is the empty set.

    `add` gives each filter with its age: for how long someone has wanted it. A set too large for one
    message comes in several; the receiver acts on it when the one marked `complete` has come.
    """

    session: Count
    base: Count
    version: Count
    complete: bool
    add: Annotated[tuple[tuple[bytes, Count], ...], msgspec.Meta(max_length=ENTRIES_MAX)]
    remove: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=ENTRIES_MAX)]


class UpdateAcknowledgement(ContentMessageBase, frozen=True, tag=2):
    session: Count
    version: Count
    lost: bool = False  # the last update does not build on the version I hold: send the whole set


class Refresh(ContentMessageBase, frozen=True, tag=3):
    session: Count
    version: Count
    digest: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]


class Routed(ContentMessageBase, frozen=True, tag=4):
    """`hops`: links before this one; `age`: time since publication; `again`: sent for recovery."""

    event: Event
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)]
    age: Count
    again: bool = False
    number: Count = 0  # of the broadcast that did not arrive; 0: none


Counts: TypeAlias = Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=ENTRIES_MAX)]
"""For each neighbour that the message is meant for, how many broadcasts have gone over our link to it."""


class Cast(ContentMessageBase, frozen=True, tag=9):
    """As `Routed`; `counts` include this one, and are empty where recovery is off."""

    event: Event
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)]
    age: Count
    again: bool
    counts: Counts


class Tally(ContentMessageBase, frozen=True, tag=10):
    counts: Counts


class MissedBroadcasts(ContentMessageBase, frozen=True, tag=11):
    numbers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=ENTRIES_MAX)]


class EventOffer(ContentMessageBase, frozen=True, tag=5):
    number: Count
    events: Ids


class WantAnswer(ContentMessageBase, frozen=True, tag=6):
    """The answer to the offer of that number, for as many of its events as were `examined`."""

    number: Count
    examined: Count
    events: Ids


class Pull(ContentMessageBase, frozen=True, tag=7):
    """All events younger than `horizon` (microseconds) that I have."""

    horizon: Count
    events: Ids


class Received(ContentMessageBase, frozen=True, tag=8):
    number: Count


ContentMessage: TypeAlias = (
    FilterUpdate
    | UpdateAcknowledgement
    | Refresh
    | Routed
    | EventOffer
    | WantAnswer
    | Pull
    | Received
    | Cast
    | Tally
    | MissedBroadcasts
)

CODEC: Codec[ContentMessage] = Codec("content", 1, ContentMessage)


class FilterChange(msgspec.Struct, frozen=True):
    """A `FilterUpdate` with its filters decoded, and their ages turned into instants of this node's clock."""

    session: int
    base: int
    version: int
    complete: bool
    add: dict[Filter, Micros]
    remove: tuple[Filter, ...]


def change_of(update: FilterUpdate, now: Micros) -> FilterChange:
    """WireError where an octet string is no filter."""
    return FilterChange(
        update.session,
        update.base,
        update.version,
        update.complete,
        {Filter.decode(encoded): now - age for encoded, age in update.add},
        tuple(Filter.decode(encoded) for encoded in update.remove),
    )


def event_ids(pairs: tuple[tuple[int, int], ...]) -> list[EventId]:
    return [EventId(publisher, sequence) for publisher, sequence in pairs]
