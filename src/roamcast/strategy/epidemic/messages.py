"""The messages. Their bounds are chosen by us."""

from typing import Annotated

import msgspec

from roamcast.event import Count, Event
from roamcast.wire import Codec

PUBLISHERS_MAX = 200  # in one digest
RANGES_MAX = 64  # of one publisher in one digest
WANTED_MAX = 1_000

Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]


class FloodedEvent(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """An event for all who hear it. `hops`: radio hops before this one; `age`: time since publication."""

    event: Event
    hops: Hops
    age: Count


class Handed(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    """An event for the neighbour that asked for it."""

    event: Event
    hops: Hops
    age: Count


class HeldRuns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of one publisher: first and last sequence number of each run, all in one tuple."""

    publisher: Count
    runs: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * RANGES_MAX)]


class HoldingsDigest(msgspec.Struct, frozen=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """The events that the sender can give."""

    held: Annotated[tuple[HeldRuns, ...], msgspec.Meta(max_length=PUBLISHERS_MAX)]


class WantEvents(msgspec.Struct, frozen=True, array_like=True, tag=4, forbid_unknown_fields=True):
    """Publisher and sequence of each event wanted, one after the other."""

    events: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * WANTED_MAX)]


class HadEvents(msgspec.Struct, frozen=True, array_like=True, tag=5, forbid_unknown_fields=True):
    """For a neighbour whose digest named these events: the sender has had them, and holds them no more."""

    had: Annotated[tuple[HeldRuns, ...], msgspec.Meta(max_length=PUBLISHERS_MAX)]


EpidemicMessage = FloodedEvent | Handed | HoldingsDigest | WantEvents | HadEvents
CODEC: Codec[EpidemicMessage] = Codec("epidemic", 1, EpidemicMessage)
