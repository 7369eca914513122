"""Motion as one flat table of straight pieces: the form in which contacts are computed.

A piece is one leg of one node, from a knot to the next, gaps left out. A piece is closed-open in time,
`[start, end)`, and begins and ends on the integer grid, so the pieces of a node tile its presence
without holes or overlaps. A knot with a gap on both sides (or the only knot of a path) is an instant,
not a piece: it has no duration, so there is no contact.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roamcast.units import Micros
from roamcast.world.trajectory import Metres, Motion, Times

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Columns of equal length, one row per piece."""

    node: Numbers
    start: Times
    end: Times
    x: Metres  # position at `start`
    y: Metres
    vx: Metres  # metres per microsecond
    vy: Metres

    def __len__(self) -> int:
        return len(self.node)

    @staticmethod
    def of(motion: Motion, duration: Micros) -> "Pieces":
        """The pieces that last at some time in `[0, duration)`, by start, then node; not clipped to it."""
        paths = motion.trajectories
        if not paths:
            nothing, nowhere = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
            return Pieces(nothing, nothing, nothing, nowhere, nowhere, nowhere, nowhere)
        node = np.repeat(np.arange(len(paths)), [len(path.gap) for path in paths])
        start = np.concatenate([path.times[:-1] for path in paths])
        end = np.concatenate([path.times[1:] for path in paths])
        gap = np.concatenate([path.gap for path in paths])
        x = np.concatenate([path.x[:-1] for path in paths])
        y = np.concatenate([path.y[:-1] for path in paths])
        span = (end - start).astype(np.float64)
        vx = (np.concatenate([path.x[1:] for path in paths]) - x) / span
        vy = (np.concatenate([path.y[1:] for path in paths]) - y) / span
        lasting = np.flatnonzero(~gap & (start < duration) & (end > 0))
        order = lasting[np.lexsort((node[lasting], start[lasting]))]
        return Pieces(node, start, end, x, y, vx, vy).take(order)

    def take(self, rows: Numbers) -> "Pieces":
        return Pieces(
            self.node[rows],
            self.start[rows],
            self.end[rows],
            self.x[rows],
            self.y[rows],
            self.vx[rows],
            self.vy[rows],
        )

    def at(self, time: Times) -> tuple[Metres, Metres]:
        """Positions, one time per row. A time outside its piece gives the line prolonged."""
        since = (time - self.start).astype(np.float64)
        return self.x + self.vx * since, self.y + self.vy * since
