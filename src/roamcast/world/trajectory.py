"""Motion: per node, a piecewise-linear path with a clock on the integer microsecond grid.

Mobility models and trace readers make `Motion`; contact plans, the simulator's `position()` and the
path metrics read it. Between two knots a node moves on a straight line at constant speed. A gap is a
time in which the node is absent (a recording that was interrupted, a vehicle that left).

Contacts are computed from `Pieces`, the same as one flat table. A piece is one leg of one node, from a knot
to the next, gaps left out. A piece is closed-open in time, `[start, end)`, and begins and ends on the integer
grid, so the pieces of a node tile its presence without holes or overlaps. A knot with a gap on both sides (or
the only knot of a path) is an instant, not a piece: it has no duration, so there is no contact.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from roamcast.units import Micros

Numbers = npt.NDArray[np.int64]
Times = Numbers
Metres = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One node's knots. Before the first and after the last knot the node is absent."""

    times: Times  # strictly increasing, microseconds
    x: Metres
    y: Metres
    # gap[k]: the node is absent between knot k and knot k + 1 (open interval). Length: knots - 1.
    gap: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        knots = len(self.times)
        assert knots >= 1 and len(self.x) == len(self.y) == knots and len(self.gap) == knots - 1
        assert bool(np.all(np.diff(self.times) > 0)), "knots must be strictly increasing in time"

    @staticmethod
    def of(knots: list[tuple[Micros, float, float]]) -> "Trajectory":
        """A path from `(time, x, y)` rows without gaps."""
        times, x, y = zip(*knots, strict=True)
        return Trajectory(
            np.array(times, dtype=np.int64),
            np.array(x, dtype=np.float64),
            np.array(y, dtype=np.float64),
            np.zeros(len(knots) - 1, dtype=np.bool_),
        )

    def position(self, time: Micros) -> tuple[float, float] | None:
        """Where the node is, or None while it is absent."""
        where = self.position_and_velocity(time)
        return None if where is None else where[:2]

    def position_and_velocity(self, time: Micros) -> tuple[float, float, float, float] | None:
        """Metres, and metres per second of the leg that begins or lasts at `time`."""
        k = int(np.searchsorted(self.times, time, side="right")) - 1
        if k < 0 or time > self.times[-1]:
            return None
        x, y = float(self.x[k]), float(self.y[k])
        start = int(self.times[k])
        if k == len(self.times) - 1:
            return x, y, 0.0, 0.0
        if self.gap[k]:
            return (x, y, 0.0, 0.0) if time == start else None
        span = int(self.times[k + 1]) - start
        dx, dy = float(self.x[k + 1]) - x, float(self.y[k + 1]) - y
        share = (time - start) / span
        return x + dx * share, y + dy * share, dx * 1e6 / span, dy * 1e6 / span


@dataclass(frozen=True, eq=False)
class Motion:
    """The paths of all nodes; node numbers are list positions."""

    trajectories: list[Trajectory]
    # What the recording called each node; empty for models, whose nodes are just numbers.
    names: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        return len(self.trajectories)

    @cached_property
    def begins(self) -> Micros:
        return min(int(path.times[0]) for path in self.trajectories)

    @cached_property
    def ends(self) -> Micros:
        return max(int(path.times[-1]) for path in self.trajectories)

    def shifted(self, by: Micros) -> "Motion":
        """The same motion on another clock, e.g. a recording that should begin at 0."""
        paths = [Trajectory(p.times + by, p.x, p.y, p.gap) for p in self.trajectories]
        return Motion(paths, self.names)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Straight pieces of motion: columns of equal length, one row per piece."""

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
