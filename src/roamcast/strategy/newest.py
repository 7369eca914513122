"""In which order to ask for events that were missed: what is new must not wait for what is old."""

from collections.abc import Iterable

from roamcast.event import EventId, event_ids
from roamcast.units import NodeId


def newest_first(events: Iterable[EventId]) -> list[EventId]:
    """Of each publisher the newest first, publishers in turn: an identifier has a number, and no time that
    could be compared with another publisher's."""
    numbers: dict[NodeId, list[int]] = {}
    for publisher, sequence in events:
        numbers.setdefault(publisher, []).append(sequence)
    turns: list[tuple[int, EventId]] = []
    for publisher, sequences in numbers.items():
        sequences.sort(reverse=True)
        turns.extend(enumerate(event_ids(publisher, sequences)))
    turns.sort()
    return [event for _, event in turns]
