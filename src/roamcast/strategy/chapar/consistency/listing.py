"""Lists of what the tables hold, in messages that fit a frame and every receiver can read.

A table of thousands of entries is listed in parts. Each says from where to where it is complete
(`messages.Lists`), so that a receiver handles it by itself, whether or not the others arrive.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from roamcast.event import EventId
from roamcast.strategy.chapar.messages import Lists, is_between
from roamcast.units import NodeId

PART = 64  # entries of each table: about 1,200 octets even where node numbers are large. Chosen by us


class ListPart(NamedTuple):
    """Some entries of a table, and the span of which they are all. `end` of None: to the last."""

    entries: tuple[Any, ...]
    first: Any
    end: Any


def list_tables(
    events: Sequence[EventId] | None,
    versions: Sequence[tuple[NodeId, int]] | None,
    missing: Sequence[EventId],
    to: NodeId | None = None,
) -> list[Lists]:
    """The messages that list both tables; each table in increasing order, or None where it need not be."""
    told: list[Lists] = []
    event_parts = _parts(events, lambda event: event, (0, 0))
    version_parts = _parts(versions, lambda version: version[0], 0)
    for of_events, of_versions in zip_longest(event_parts, version_parts):
        part = Lists(to=to)
        if of_events is not None:
            entries, first, end = of_events
            lacking = tuple(event for event in missing[:PART] if is_between(event, first, end))
            part = Lists(entries, None, lacking, to, first, end)
        elif events is None and not told:
            part = Lists(missing=tuple(missing[:PART]), to=to)
        if of_versions is not None:
            entries, first, end = of_versions
            part = Lists(
                part.events,
                entries,
                part.missing,
                to,
                part.first_event,
                part.end_event,
                first,
                end,
            )
        told.append(part)
    return told or [Lists(missing=tuple(missing[:PART]), to=to)]


def _parts(table: Sequence[Any] | None, key: Any, first: Any) -> list[ListPart]:
    if table is None:
        return []
    parts = []
    for at in range(0, max(1, len(table)), PART):
        end = key(table[at + PART]) if at + PART < len(table) else None
        parts.append(ListPart(tuple(table[at : at + PART]), first, end))
        first = end
    return parts
