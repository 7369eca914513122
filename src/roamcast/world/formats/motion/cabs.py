"""Cab traces as the Cabspotting project published them: one file per cab, `lat lon occupied unix_time` rows.

A folder of `.txt` files, a tar archive of them (read without unpacking), or one file. The cab's name is the
file's name without its suffix; files whose name begins with `_` or `.` (the list of cabs) are skipped.
The originals are newest first; any order is read. A cab reports about once a minute while it works and
not at all when parked, so fixes more than 300 s apart are a gap unless the caller says otherwise.
"""

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

from roamcast.errors import FileError
from roamcast.units import SECOND
from roamcast.world.formats.motion.fixes import Fix, MotionOptions, Tracks
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import damage_as_file_error, lines, opened, rows
from roamcast.world.trajectory import Motion

MAX_GAP = 300 * SECOND


def read(path: Path, options: MotionOptions) -> Motion:
    tracks = Tracks()
    for node, where, text in _cabs(path):
        if node in tracks:
            raise FileError(where, f"is a second file for cab {node}; one file per cab")
        tracks.collect(parse_fixes(text, node, where), where)
    return tracks.motion(str(path), options, geographic=True)


def parse_fixes(lines: Iterable[str], node: str, where: str) -> Iterator[Fix]:
    """In degrees: `x` is the longitude, `y` the latitude."""
    for here, line, fields in rows(lines, where):
        if len(fields) != 4:
            raise FileError(here, f"has {len(fields)} fields; a row is latitude longitude occupied unix_time")
        latitude, longitude = numbers.latitude_of(fields[0], here), numbers.longitude_of(fields[1], here)
        if fields[2] not in ("0", "1"):
            raise FileError(here, f"occupied is {numbers.shown(fields[2])}; it is 0 or 1")
        yield Fix(node, numbers.time_of(fields[3], here), longitude, latitude, line)


def is_tar(path: Path) -> bool:
    return path.name.endswith((".tar", ".tar.gz", ".tgz"))


def _cabs(path: Path) -> Iterator[tuple[str, str, Iterator[str]]]:
    """`(cab, place for messages, lines)` of each file."""
    if path.is_dir():
        for file in sorted(path.glob("*.txt")):
            if _is_trace(file.name):
                yield from _file(file)
    elif is_tar(path):
        yield from _members(path)
    else:
        yield from _file(path)


def _file(path: Path) -> Iterator[tuple[str, str, Iterator[str]]]:
    with opened(path) as stream:
        yield numbers.name_of(path.stem, str(path), "cab"), str(path), lines(stream, str(path))


def _members(path: Path) -> Iterator[tuple[str, str, Iterator[str]]]:
    # "r|*" reads forwards only: nothing is unpacked to disk, links and devices are never followed.
    with damage_as_file_error(str(path)), closing(tarfile.open(path, "r|*")) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None and name.suffix == ".txt" and _is_trace(name.name):
                where = f"{path}/{name}"
                yield numbers.name_of(name.stem, where, "cab"), where, lines(stream, where)


def _is_trace(name: str) -> bool:
    return not name.startswith(("_", "."))
