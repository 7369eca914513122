"""SocioPatterns face-to-face contacts: `t i j` rows, a contact during the 20 s up to t, in any order.

Further columns (classes, departments) are ignored. Adjacent rows of a pair join to one contact.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from roamcast.errors import FileError
from roamcast.units import SECOND
from roamcast.world.formats.meetings.encounters import ContactOptions, Encounter, ReadContacts, numbered
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import lines, opened, rows

# The badges' time resolution.
SLOT = 20 * SECOND


def read(path: Path, options: ContactOptions) -> ReadContacts:
    with opened(path) as stream:
        found = list(parse_contacts(lines(stream, str(path)), str(path)))
    return numbered([e._replace(end=e.end + options.tail) for e in found], str(path), options)


def parse_contacts(lines: Iterable[str], where: str) -> Iterator[Encounter]:
    for here, _, fields in rows(lines, where):
        if len(fields) < 3:
            raise FileError(here, f"has {len(fields)} fields; a row is t i j")
        time = numbers.time_of(fields[0], here)
        if time < SLOT:
            raise FileError(
                here, f"t is {fields[0]}; a contact covers the 20 s up to t, so t is 20 s or later"
            )
        a, b = numbers.name_of(fields[1], here, "i"), numbers.name_of(fields[2], here, "j")
        if a == b:
            raise FileError(here, f"node {a} is in contact with itself")
        yield Encounter(a, b, time - SLOT, time)
