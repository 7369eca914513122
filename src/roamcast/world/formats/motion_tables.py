"""Tables of fixes: BonnMotion, cab traces, CSV, The ONE.

**BonnMotion** movements: one line per node, `t x y t x y …` (seconds, metres), often gzipped. Nodes are
numbered by line, as BonnMotion does. Lines that begin with `#` are comments. Times increase along a line. The
three-dimensional form (`t x y z`) is refused: positions here have two dimensions.

**Cab traces** as the Cabspotting project published them: one file per cab, `lat lon occupied unix_time` rows.
A folder of `.txt` files, a tar archive of them (read without unpacking), or one file. The cab's name is the
file's name without its suffix; files whose name begins with `_` or `.` (the list of cabs) are skipped. The
originals are newest first; any order is read. A cab reports about once a minute while it works and not at all
when parked, so fixes more than 300 s apart are a gap unless the caller says otherwise.

**CSV**: a header with `node,time,x,y` (seconds, metres) or `node,time,lat,lon` (seconds, degrees). Columns in
any order, further columns ignored, rows in any order.

**The ONE**'s external movement: `minTime maxTime minX maxX minY maxY [minZ maxZ]`, then `time id x y` rows,
sorted by time. Where a node has two places at one time the last row counts, as in The ONE (the NCCU campus
trace has thousands of such rows). Unlike The ONE, times and places keep their own origin instead of being
moved to the header's minimum, nodes may appear late, and the sampling interval may vary.
"""

import csv
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from roamcast.errors import FileError
from roamcast.units import SECOND
from roamcast.world.formats.fixes import Fix, FixStream, MotionOptions
from roamcast.world.formats.text import (
    damage_as_file_error,
    lines,
    metres_of,
    name_of,
    opened,
    place_of,
    rows,
    save_lines,
    seconds_text,
    shown,
    time_of,
)
from roamcast.world.trajectory import Motion

# A line holds the whole path of a node. Chosen by us: enough for about a million waypoints.
LINE_BYTES_MAX = 1 << 26
CABS_MAX_GAP = 300 * SECOND


# BonnMotion.


def bonnmotion(path: Path, _: MotionOptions) -> Iterator[FixStream]:
    with opened(path) as stream:
        text = lines(stream, str(path), bytes_max=LINE_BYTES_MAX)
        yield FixStream(str(path), parse_bonnmotion(text, str(path)))


def parse_bonnmotion(lines: Iterable[str], where: str) -> Iterator[Fix]:
    for node, (here, line, fields) in enumerate(rows(lines, where)):
        if _looks_three_dimensional(fields):
            raise FileError(here, "is a three-dimensional path (t x y z …); only t x y … can be read")
        if len(fields) % 3:
            raise FileError(here, f"has {len(fields)} numbers; a path is t x y, repeated")
        before = -1
        for k in range(0, len(fields), 3):
            time = time_of(fields[k], here, f"time of waypoint {k // 3 + 1}")
            x = metres_of(fields[k + 1], here, f"x of waypoint {k // 3 + 1}")
            y = metres_of(fields[k + 2], here, f"y of waypoint {k // 3 + 1}")
            if time < before:
                raise FileError(
                    here, f"goes back in time at waypoint {k // 3 + 1} ({fields[k]} s); times rise"
                )
            before = time
            yield Fix(str(node), time, x, y, line)


def write_bonnmotion(motion: Motion, path: Path) -> None:
    _refuse_gaps(motion, path, "BonnMotion")
    save_lines(path, _bonnmotion_lines(motion))


def _bonnmotion_lines(motion: Motion) -> Iterator[str]:
    for path in motion.trajectories:
        knots = zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True)
        yield " ".join(f"{seconds_text(time)} {x!r} {y!r}" for time, x, y in knots)


def _looks_three_dimensional(fields: list[str]) -> bool:
    """Rows of four whose first numbers increase, where rows of three do not fit or do not increase."""
    if len(fields) % 4 or len(fields) < 8:
        return False
    return _rises(fields[::4]) and (len(fields) % 3 != 0 or not _rises(fields[::3]))


def _rises(times: list[str]) -> bool:
    try:
        values = [float(time) for time in times]
    except ValueError:
        return False
    return all(before <= after for before, after in pairwise(values))


# Cab traces.


def cabs(path: Path, _: MotionOptions) -> Iterator[FixStream]:
    seen: set[str] = set()
    for node, where, text in _cabs(path):
        if node in seen:
            raise FileError(where, f"is a second file for cab {node}; one file per cab")
        seen.add(node)
        yield FixStream(where, parse_cab(text, node, where), geographic=True)


def parse_cab(lines: Iterable[str], node: str, where: str) -> Iterator[Fix]:
    """The fixes of a cab, in degrees: `x` is the longitude, `y` the latitude."""
    for here, line, fields in rows(lines, where):
        if len(fields) != 4:
            raise FileError(here, f"has {len(fields)} fields; a row is latitude longitude occupied unix_time")
        longitude, latitude = place_of(fields[1], fields[0], here, geographic=True)
        if fields[2] not in ("0", "1"):
            raise FileError(here, f"occupied is {shown(fields[2])}; it is 0 or 1")
        yield Fix(node, time_of(fields[3], here), longitude, latitude, line)


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
        yield name_of(path.stem, str(path), "cab"), str(path), lines(stream, str(path))


def _members(path: Path) -> Iterator[tuple[str, str, Iterator[str]]]:
    # "r|*" reads forwards only: nothing is unpacked to disk, links and devices are never followed.
    with damage_as_file_error(str(path)), closing(tarfile.open(path, "r|*")) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None and name.suffix == ".txt" and _is_trace(name.name):
                where = f"{path}/{name}"
                yield name_of(name.stem, where, "cab"), where, lines(stream, where)


def _is_trace(name: str) -> bool:
    return not name.startswith(("_", "."))


# CSV.


class FixColumns(NamedTuple):
    """Where each value stands in a row, and how many columns the header has."""

    node: int
    time: int
    x: int
    y: int
    width: int
    geographic: bool


def csv_fixes(path: Path, _: MotionOptions) -> Iterator[FixStream]:
    with opened(path) as stream:
        text = lines(stream, str(path))
        first = next(text, "")
        columns = parse_header(first, f"{path}:1")
        yield FixStream(str(path), parse_csv(chain([first], text), str(path)), columns.geographic)


def parse_header(line: str, where: str) -> FixColumns:
    names = [name.strip().lower() for name in line.split(",")]
    for east, north, geographic in (("x", "y", False), ("lon", "lat", True)):
        wanted = ("node", "time", east, north)
        if all(names.count(name) == 1 for name in wanted):
            node, time, x, y = (names.index(name) for name in wanted)
            return FixColumns(node, time, x, y, len(names), geographic)
    raise FileError(where, f"header is {shown(line)}; it names node,time,x,y or node,time,lat,lon, each once")


def parse_csv(lines: Iterable[str], where: str) -> Iterator[Fix]:
    """The fixes of a CSV, given from its header on. Geographic ones stay in degrees: `x` is the longitude,
    `y` the latitude."""
    text = iter(lines)
    columns = parse_header(next(text, ""), f"{where}:1")
    table = csv.reader(text, strict=True)
    while True:
        here = f"{where}:{table.line_num + 2}"
        try:
            row = next(table, None)
        except csv.Error as problem:
            raise FileError(here, f"is no CSV row ({problem})") from problem
        if row is None:
            return
        if not row:
            continue
        if len(row) != columns.width:
            raise FileError(here, f"has {len(row)} columns, the header {columns.width}")
        time = time_of(row[columns.time].strip(), here)
        x, y = row[columns.x].strip(), row[columns.y].strip()
        place = place_of(x, y, here, geographic=columns.geographic)
        yield Fix(name_of(row[columns.node].strip(), here), time, *place, table.line_num + 1)


def write_csv(motion: Motion, path: Path) -> None:
    """Metres, node by node, under the names of the recording. Gaps are refused: rows cannot express them."""
    _refuse_gaps(motion, path, "CSV")
    save_lines(path, _csv_lines(motion))


def _csv_lines(motion: Motion) -> Iterator[str]:
    yield "node,time,x,y"
    for node, path in enumerate(motion.trajectories):
        name = motion.names[node] if motion.names else str(node)
        if any(mark in name for mark in ',"') or name != name.strip():
            name = '"' + name.replace('"', '""') + '"'
        for time, x, y in zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True):
            yield f"{name},{seconds_text(time)},{x!r},{y!r}"


def _refuse_gaps(motion: Motion, path: Path, format: str) -> None:
    for node, trajectory in enumerate(motion.trajectories):
        if trajectory.gap.any():
            raise FileError(str(path), f"{format} cannot hold gaps, and node {node} has one")


# The ONE.


def one_movement(path: Path, _: MotionOptions) -> Iterator[FixStream]:
    with opened(path) as stream:
        yield FixStream(str(path), parse_one(lines(stream, str(path)), str(path)))


def parse_one(lines: Iterable[str], where: str) -> Iterator[Fix]:
    table = rows(lines, where)
    header = next(table, None)
    if header is None:
        raise FileError(where, "is empty; the first line is minTime maxTime minX maxX minY maxY")
    here, _, bounds = header
    if len(bounds) not in (6, 8):
        raise FileError(
            here, f"has {len(bounds)} numbers; the first line is minTime maxTime minX maxX minY maxY"
        )
    since, until = (time_of(text, here, "time bound") for text in bounds[:2])
    left, right, low, high = (metres_of(text, here, "bound") for text in bounds[2:6])
    before = since
    for here, line, fields in table:
        if len(fields) not in (4, 5):
            raise FileError(here, f"has {len(fields)} fields; a row is time id x y")
        time = time_of(fields[0], here)
        x, y = metres_of(fields[2], here, "x"), metres_of(fields[3], here, "y")
        if not since <= time <= until:
            raise FileError(here, f"time {fields[0]} is outside the header's {bounds[0]} to {bounds[1]}")
        if not (left <= x <= right and low <= y <= high):
            raise FileError(here, f"place ({fields[2]}, {fields[3]}) is outside the header's bounds")
        if time < before:
            raise FileError(here, f"time {fields[0]} comes after a later one; rows are sorted by time")
        before = time
        yield Fix(name_of(fields[1], here, "id"), time, x, y, line)
