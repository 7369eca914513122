"""BonnMotion movements: one line per node, `t x y t x y …` (seconds, metres), often gzipped.

Nodes are numbered by line, as BonnMotion does. Lines that begin with `#` are comments. Times increase along a
line. The three-dimensional form (`t x y z`) is refused: positions here have two dimensions.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from roamcast.errors import FileError
from roamcast.world.formats.motion.fixes import Fix, MotionOptions, Tracks
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.saving import save_lines
from roamcast.world.formats.text.source import lines, opened, rows
from roamcast.world.trajectory import Motion

# A line holds the whole path of a node. Chosen by us: enough for about a million waypoints.
LINE_BYTES_MAX = 1 << 26


def read(path: Path, options: MotionOptions) -> Motion:
    tracks = Tracks()
    with opened(path) as stream:
        text = lines(stream, str(path), bytes_max=LINE_BYTES_MAX)
        tracks.collect(parse_fixes(text, str(path)), str(path))
    return tracks.motion(str(path), options)


def parse_fixes(lines: Iterable[str], where: str) -> Iterator[Fix]:
    for node, (here, line, fields) in enumerate(rows(lines, where)):
        if _looks_three_dimensional(fields):
            raise FileError(here, "is a three-dimensional path (t x y z …); only t x y … can be read")
        if len(fields) % 3:
            raise FileError(here, f"has {len(fields)} numbers; a path is t x y, repeated")
        before = -1
        for k in range(0, len(fields), 3):
            time = numbers.time_of(fields[k], here, f"time of waypoint {k // 3 + 1}")
            x = numbers.metres_of(fields[k + 1], here, f"x of waypoint {k // 3 + 1}")
            y = numbers.metres_of(fields[k + 2], here, f"y of waypoint {k // 3 + 1}")
            if time < before:
                raise FileError(
                    here, f"goes back in time at waypoint {k // 3 + 1} ({fields[k]} s); times rise"
                )
            before = time
            yield Fix(str(node), time, x, y, line)


def write(motion: Motion, path: Path) -> None:
    for node, trajectory in enumerate(motion.trajectories):
        if trajectory.gap.any():
            raise FileError(str(path), f"BonnMotion cannot hold gaps, and node {node} has one")
    save_lines(path, _paths(motion))


def _paths(motion: Motion) -> Iterator[str]:
    for path in motion.trajectories:
        knots = zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True)
        yield " ".join(f"{numbers.seconds_text(time)} {x!r} {y!r}" for time, x, y in knots)


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
