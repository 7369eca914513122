"""Recorded mobility and contacts: reads files as `Motion` and `ContactPlan`, and writes them.

Read in this order: `text.py` (text to values, with the place of every fault), `fixes.py` (values to motion),
`motion_tables.py`, `motion_xml.py` and `ns2.py` (formats of paths), `contact_tables.py` (formats of
contacts), `guess.py` (the format of a file); this file chooses among them. The formats for users:
`docs/study/formats.md`.

Left out: heights, headings and speeds of any format; BonnMotion's three-dimensional files; The ONE's
message events; SUMO's persons; GPX routes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roamcast.errors import FileError, InputError
from roamcast.units import Micros, micros
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats import contact_tables, guess, motion_tables, motion_xml, ns2
from roamcast.world.formats.contact_tables import ContactOptions, ReadContacts
from roamcast.world.formats.fixes import Conflict, Fix, FixStream, MapProjection, MotionOptions, Tracks
from roamcast.world.trajectory import Motion

__all__ = [
    "CONTACT_FORMATS",
    "MOTION_FORMATS",
    "Fix",
    "MapProjection",
    "ReadContacts",
    "read_contacts",
    "read_motion",
    "write_contacts",
    "write_motion",
]


@dataclass(frozen=True)
class MotionFormat:
    """A format of paths: its fixes, its writer if it has one, and its defaults."""

    streams: Callable[[Path, MotionOptions], Iterator[FixStream]]
    write: Callable[[Motion, Path], None] | None = None
    max_gap: Micros | None = None
    conflict: Conflict = "error"
    read: Callable[[Path, MotionOptions], Motion] | None = None  # where paths do not follow from fixes alone


@dataclass(frozen=True)
class ContactFormat:
    """A format of contacts."""

    read: Callable[[Path, ContactOptions], ReadContacts]
    write: Callable[[ContactPlan, Path], None] | None = None
    tail: Micros = 0


MOTION_FORMATS: dict[str, MotionFormat] = {
    "bonnmotion": MotionFormat(motion_tables.bonnmotion, motion_tables.write_bonnmotion),
    "cabs": MotionFormat(motion_tables.cabs, max_gap=motion_tables.CABS_MAX_GAP),
    "csv": MotionFormat(motion_tables.csv_fixes, motion_tables.write_csv),
    "fcd": MotionFormat(motion_xml.fcd),
    "gpx": MotionFormat(motion_xml.gpx),
    "ns2": MotionFormat(ns2.fixes, ns2.write, read=ns2.read),
    "one": MotionFormat(motion_tables.one_movement, conflict="last"),
}

CONTACT_FORMATS: dict[str, ContactFormat] = {
    "haggle": ContactFormat(
        partial(contact_tables.read_rows, contact_tables.haggle_rows), tail=contact_tables.HAGGLE_TAIL
    ),
    "one": ContactFormat(contact_tables.read_one, contact_tables.write_one),
    "plan": ContactFormat(contact_tables.read_plan, contact_tables.write_plan),
    "sociopatterns": ContactFormat(partial(contact_tables.read_rows, contact_tables.sociopatterns_rows)),
}


def read_motion(
    path: str | Path,
    format: str | None = None,
    *,
    max_gap: float | None = None,
    conflict: Conflict | None = None,
    geographic: bool = False,
    origin: tuple[float, float] | None = None,
    duration: float | None = None,
) -> Motion:
    """The paths in a file or folder, on the recording's own clock (see `Motion.shifted`).

    `max_gap`: seconds; a node is absent between fixes further apart (None: the format's default; `math.inf`:
    never). `conflict`: what to do with two places at one time. `geographic`: an FCD file holds longitude and
    latitude. `origin`: latitude and longitude that become (0, 0) (None: the mean of all fixes). `duration`:
    seconds that nodes of an ns-2 file at least stay (None: until the last one comes to rest); formats of
    fixes end where they end.
    """
    path = Path(path)
    _must_exist(path)
    known = sorted(MOTION_FORMATS)
    chosen = MOTION_FORMATS[_chosen(path, format or guess.motion_format(path), known)]
    gap = chosen.max_gap
    if max_gap is not None:
        gap = None if max_gap == math.inf else micros(_positive("max_gap", max_gap))
    options = MotionOptions(
        max_gap=gap,
        conflict=conflict or chosen.conflict,
        geographic=geographic,
        origin=None if origin is None else MapProjection(*origin),
        duration=None if duration is None else micros(_positive("duration", duration)),
    )
    if chosen.read is not None:
        return chosen.read(path, options)
    tracks = Tracks()
    for stream in chosen.streams(path, options):
        tracks.collect(stream)
    return tracks.motion(str(path), options)


def read_contacts(
    path: str | Path,
    format: str | None = None,
    *,
    tail: float | None = None,
    duration: float | None = None,
    nodes: int | None = None,
) -> ReadContacts:
    """The contacts in a file, on the recording's own clock, and the names of the nodes.

    `tail`: seconds added to the end of every contact (None: the format's default). `duration`: seconds; links
    that are never taken down last until then (or until the last row, if that is later); without it they are
    an error. `nodes`: how many nodes there are, where the file does not mention all.
    """
    path = Path(path)
    _must_exist(path)
    known = sorted(CONTACT_FORMATS)
    chosen = CONTACT_FORMATS[_chosen(path, format or guess.contacts_format(path), known)]
    options = ContactOptions(
        tail=chosen.tail if tail is None else micros(_positive("tail", tail, zero=True)),
        duration=None if duration is None else micros(_positive("duration", duration)),
        nodes=nodes,
    )
    return chosen.read(path, options)


def write_motion(motion: Motion, path: str | Path, format: str) -> None:
    """Write paths; the file appears whole or not at all. `.gz` compresses."""
    writers = {name: kind.write for name, kind in MOTION_FORMATS.items() if kind.write}
    writers[_chosen(Path(path), format, sorted(writers))](motion, Path(path))


def write_contacts(plan: ContactPlan, path: str | Path, format: str) -> None:
    """Write a plan; the file appears whole or not at all. `.gz` compresses."""
    writers = {name: kind.write for name, kind in CONTACT_FORMATS.items() if kind.write}
    writers[_chosen(Path(path), format, sorted(writers))](plan, Path(path))


def _chosen(path: Path, format: str | None, known: list[str]) -> str:
    if format is None:
        raise guess.refusal(path, known)
    if format not in known:
        raise FileError(str(path), f"format is {format!r}; known are {', '.join(known)}")
    return format


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise FileError(str(path), "does not exist")


def _positive(name: str, seconds: float, *, zero: bool = False) -> float:
    if not (0 <= seconds <= 1e11 and (zero or seconds > 0)):
        raise InputError(
            name, f"is {seconds}; it is a number of seconds {'from' if zero else 'above'} 0 to 1e11"
        )
    return seconds
