"""The ONE's external movement: `minTime maxTime minX maxX minY maxY [minZ maxZ]`, then `time id x y` rows.

Rows are sorted by time. Where a node has two places at one time the last row counts, as in The ONE (the NCCU
campus trace has thousands of such rows). Unlike The ONE, times and places keep their own origin instead of
being moved to the header's minimum, nodes may appear late, and the sampling interval may vary.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from roamcast.errors import FileError
from roamcast.world.formats.motion.fixes import Fix, MotionOptions, Tracks
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import lines, opened, rows
from roamcast.world.trajectory import Motion


def read(path: Path, options: MotionOptions) -> Motion:
    tracks = Tracks()
    with opened(path) as stream:
        tracks.collect(parse_fixes(lines(stream, str(path)), str(path)), str(path))
    return tracks.motion(str(path), options)


def parse_fixes(lines: Iterable[str], where: str) -> Iterator[Fix]:
    table = rows(lines, where)
    header = next(table, None)
    if header is None:
        raise FileError(where, "is empty; the first line is minTime maxTime minX maxX minY maxY")
    here, _, bounds = header
    if len(bounds) not in (6, 8):
        raise FileError(
            here, f"has {len(bounds)} numbers; the first line is minTime maxTime minX maxX minY maxY"
        )
    since, until = (numbers.time_of(text, here, "time bound") for text in bounds[:2])
    left, right, low, high = (numbers.metres_of(text, here, "bound") for text in bounds[2:6])
    before = since
    for here, line, fields in table:
        if len(fields) not in (4, 5):
            raise FileError(here, f"has {len(fields)} fields; a row is time id x y")
        time = numbers.time_of(fields[0], here)
        x, y = numbers.metres_of(fields[2], here, "x"), numbers.metres_of(fields[3], here, "y")
        if not since <= time <= until:
            raise FileError(here, f"time {fields[0]} is outside the header's {bounds[0]} to {bounds[1]}")
        if not (left <= x <= right and low <= y <= high):
            raise FileError(here, f"place ({fields[2]}, {fields[3]}) is outside the header's bounds")
        if time < before:
            raise FileError(here, f"time {fields[0]} comes after a later one; rows are sorted by time")
        before = time
        yield Fix(numbers.name_of(fields[1], here, "id"), time, x, y, line)
