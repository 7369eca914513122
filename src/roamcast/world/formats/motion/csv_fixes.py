"""CSV of fixes: a header with `node,time,x,y` (seconds, metres) or `node,time,lat,lon` (seconds, degrees).

Columns in any order, further columns ignored, rows in any order.
"""

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import FileError
from roamcast.world.formats.motion.fixes import Fix, MotionOptions, Tracks
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.saving import save_lines
from roamcast.world.formats.text.source import lines, opened
from roamcast.world.trajectory import Motion


class Columns(NamedTuple):
    """Where each value stands in a row, and how many columns the header has."""

    node: int
    time: int
    x: int
    y: int
    width: int
    geographic: bool


def read(path: Path, options: MotionOptions) -> Motion:
    tracks = Tracks()
    with opened(path) as stream:
        text = lines(stream, str(path))
        first = next(text, "")
        columns = parse_header(first, f"{path}:1")
        tracks.collect(parse_fixes(chain([first], text), str(path)), str(path))
    return tracks.motion(str(path), options, geographic=columns.geographic)


def parse_header(line: str, where: str) -> Columns:
    names = [name.strip().lower() for name in line.split(",")]
    for east, north, geographic in (("x", "y", False), ("lon", "lat", True)):
        wanted = ("node", "time", east, north)
        if all(names.count(name) == 1 for name in wanted):
            node, time, x, y = (names.index(name) for name in wanted)
            return Columns(node, time, x, y, len(names), geographic)
    raise FileError(
        where, f"header is {numbers.shown(line)}; it names node,time,x,y or node,time,lat,lon, each once"
    )


def parse_fixes(lines: Iterable[str], where: str) -> Iterator[Fix]:
    """From the header on. Geographic fixes stay in degrees: `x` is the longitude, `y` the latitude."""
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
        time = numbers.time_of(row[columns.time].strip(), here)
        x, y = row[columns.x].strip(), row[columns.y].strip()
        if columns.geographic:
            place = numbers.longitude_of(x, here), numbers.latitude_of(y, here)
        else:
            place = numbers.metres_of(x, here, "x"), numbers.metres_of(y, here, "y")
        yield Fix(numbers.name_of(row[columns.node].strip(), here), time, *place, table.line_num + 1)


def write(motion: Motion, path: Path) -> None:
    """Metres, node by node, under the names of the recording. Gaps are refused: rows cannot express them."""
    for node, trajectory in enumerate(motion.trajectories):
        if trajectory.gap.any():
            raise FileError(str(path), f"CSV cannot hold gaps, and node {node} has one")
    save_lines(path, _table(motion))


def _table(motion: Motion) -> Iterator[str]:
    yield "node,time,x,y"
    for node, path in enumerate(motion.trajectories):
        name = motion.names[node] if motion.names else str(node)
        if any(mark in name for mark in ',"') or name != name.strip():
            name = '"' + name.replace('"', '""') + '"'
        for time, x, y in zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True):
            yield f"{name},{numbers.seconds_text(time)},{x!r},{y!r}"
