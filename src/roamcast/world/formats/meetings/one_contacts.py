"""The ONE's connection events: `time CONN a b up|down`, sorted by time, separated by blanks or tabs.

Files made from Bluetooth sightings (Haggle) hold both sides of a meeting as `a b` and `b a`, overlapping:
each side is followed on its own and the plan holds their union. A contact that goes up and down at the same
instant has no duration, in The ONE and here, unless the caller asks for a `tail`. Other events of The ONE
(messages) are refused.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from roamcast.errors import FileError
from roamcast.units import Micros
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats.meetings.encounters import (
    ContactOptions,
    ReadContacts,
    Switch,
    intervals,
    numbered,
)
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.saving import save_lines
from roamcast.world.formats.text.source import lines, opened, rows


def read(path: Path, options: ContactOptions) -> ReadContacts:
    with opened(path) as stream:
        switches = parse_switches(lines(stream, str(path)), str(path))
        found = intervals(switches, str(path), options, either_side=True)
    return numbered(found, str(path), options)


def parse_switches(lines: Iterable[str], where: str) -> Iterator[Switch]:
    before = 0
    for here, line, fields in rows(lines, where):
        if len(fields) != 5 or fields[1] != "CONN" or fields[4] not in ("up", "down"):
            raise FileError(here, f"{numbers.shown(' '.join(fields))}; a row is time CONN a b up|down")
        time = numbers.time_of(fields[0], here)
        if time < before:
            raise FileError(here, f"time {fields[0]} comes after a later one; rows are sorted by time")
        before = time
        a, b = numbers.name_of(fields[2], here), numbers.name_of(fields[3], here)
        if a == b:
            raise FileError(here, f"node {a} is in contact with itself")
        yield Switch(time, a, b, fields[4] == "up", line)


def write(plan: ContactPlan, path: Path) -> None:
    if plan.directed:
        raise FileError(str(path), "The ONE's links have both directions; this plan is directed")
    save_lines(
        path, (f"{numbers.seconds_text(time)} CONN {a} {b} {state}" for time, state, a, b in changes(plan))
    )


def changes(plan: ContactPlan) -> list[tuple[Micros, str, int, int]]:
    """`(time, down or up, sender, receiver)`, sorted: at one instant links go down before others come up."""
    pairs = list(zip(plan.sender.tolist(), plan.receiver.tolist(), strict=True))
    ups = [(time, "up", a, b) for time, (a, b) in zip(plan.start.tolist(), pairs, strict=True)]
    downs = [(time, "down", a, b) for time, (a, b) in zip(plan.end.tolist(), pairs, strict=True)]
    return sorted(ups + downs)  # "down" < "up"
