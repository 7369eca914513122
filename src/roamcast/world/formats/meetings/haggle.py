"""CRAWDAD cambridge/haggle contacts: `id1 id2 start end [count [gap]]` rows in whole seconds, in any order.

A row is what device id1 saw of id2; either side may have missed the other, so the plan holds the union of
both. Start and end are the first and the last scan that heard the other: a device heard once has start = end
(more than half of the Infocom 2005 rows). Both seconds count, so a contact lasts until `end + tail`, with a
tail of 1 s by default. Scans were 120 s apart; a study that wants contacts to last that long sets `tail`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from roamcast.errors import FileError
from roamcast.units import SECOND
from roamcast.world.formats.meetings.encounters import ContactOptions, Encounter, ReadContacts, numbered
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import lines, opened, rows

TAIL = 1 * SECOND


def read(path: Path, options: ContactOptions) -> ReadContacts:
    with opened(path) as stream:
        found = list(parse_contacts(lines(stream, str(path)), str(path)))
    return numbered([e._replace(end=e.end + options.tail) for e in found], str(path), options)


def parse_contacts(lines: Iterable[str], where: str) -> Iterator[Encounter]:
    """The rows as they stand, without the tail."""
    for here, _, fields in rows(lines, where):
        if not 4 <= len(fields) <= 6:
            raise FileError(here, f"has {len(fields)} fields; a row is id1 id2 start end count gap")
        a, b = numbers.name_of(fields[0], here, "id1"), numbers.name_of(fields[1], here, "id2")
        start, end = numbers.time_of(fields[2], here, "start"), numbers.time_of(fields[3], here, "end")
        for what, text in zip(("count", "gap"), fields[4:], strict=False):
            numbers.number_of(text, here, what)
        if a == b:
            raise FileError(here, f"node {a} is in contact with itself")
        if end < start:
            raise FileError(here, f"ends at {fields[3]}, before its start at {fields[2]}")
        yield Encounter(a, b, start, end)
