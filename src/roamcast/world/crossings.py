"""Exact contact plans from piecewise-linear motion.

While two nodes both move on straight lines, their squared distance is a quadratic in time, so they are within
range during one interval whose ends have a closed form. Nothing is sampled: a contact of a single microsecond
is found. Read in this order: `trajectory.py` (motion, and as a table), `candidates.py` (which pieces can meet
at all), this file (when they do), `walls.py` (when a wall stands between them).

On the integer grid a link exists at every microsecond at which the distance is at most the range: from
the first such microsecond to the first at which it is larger, closed-open. Rounding must not decide
ties, so a crossing within `TIE` of a microsecond counts as on it, and there the nodes are in range.

Only + - * / and the square root are used, one numpy operation at a time. IEEE 754 defines their results
to the last bit, so a plan is the same on every machine.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from roamcast.errors import ScenarioError
from roamcast.units import Micros
from roamcast.world.candidates import candidate_pairs, windows
from roamcast.world.contacts import ContactPlan
from roamcast.world.trajectory import Metres, Motion, Numbers, Pieces
from roamcast.world.walls import in_sight

# Microseconds. Rounding moves a crossing by far less (coordinates of 10 km at 1 m/s: about 1e-6).
TIE = 1e-3
# Metres. Two nodes whose distance vector changes by less during a piece stand still to each other.
STILL = 1e-9
# A path that misses the circle by less than about this share of its radius touches it.
TOUCH = 1e-12


def contact_plan(
    motion: Motion,
    ranges: float | Sequence[float],
    duration: Micros,
    walls: npt.NDArray[np.float64] | None = None,
) -> ContactPlan:
    """All links in `[0, duration)`.

    One range for all (or the same for each) gives an undirected plan. Ranges that differ give a
    directed one: a receiver hears a sender while their distance is at most the sender's range. A node
    has no links while it is absent. `walls` has a row `x1, y1, x2, y2` for each straight wall; a link
    does not exist while the line between its ends crosses one.
    """
    reach = _range_of_each(ranges, motion.nodes)
    walls = _checked_walls(walls)
    if duration < 0:
        raise ScenarioError("scenario.duration", f"{duration} µs; allowed: 0 or more")
    directed = motion.nodes > 0 and bool(np.any(reach != reach[0]))
    farthest = float(np.max(reach, initial=0.0))
    pieces = Pieces.of(motion, duration)
    contacts = _Contacts(motion.nodes)
    for window in windows(pieces, farthest, duration):
        for first, second in candidate_pairs(pieces, window, farthest):
            outward = np.ones(len(first), dtype=np.bool_)
            if directed:
                first, second = np.concatenate((first, first)), np.concatenate((second, second))
                outward = np.concatenate((outward, ~outward))
            a, b = pieces.take(first), pieces.take(second)
            start, end = pair_intervals(a, b, reach[np.where(outward, a.node, b.node)])
            start, end = np.maximum(start, window.start), np.minimum(end, window.end)
            row = np.flatnonzero(start < end)
            start, end = start[row], end[row]
            if len(walls):
                seen, start, end = in_sight(a.take(row), b.take(row), start, end, walls)
                row = row[seen]
            a_node, b_node, outward = a.node[row], b.node[row], outward[row]
            contacts.add(np.where(outward, a_node, b_node), np.where(outward, b_node, a_node), start, end)
        contacts.close(window.end)
    return contacts.plan(directed=directed)


def pair_intervals(
    first: Pieces, second: Pieces, reach: npt.NDArray[np.float64] | float
) -> tuple[Numbers, Numbers]:
    """When two pieces are within `reach` metres of each other, row by row.

    Row k of `first` meets row k of `second`; `reach` is one number or one per row. The answer is one
    closed-open interval `(start[k], end[k])` per row, inside the time that both pieces last; where they
    never meet, `start[k] >= end[k]`. One interval is always enough, because the squared distance of
    two straight motions is convex in time.

    This is the building block for other drivers (a Spark job feeds it batches of candidate pairs): it
    is pure, keeps no order between rows, and a row's answer depends on that row alone. Intervals of
    consecutive pieces touch exactly at their common border, so that joining them leaves no holes.
    """
    begin = np.maximum(first.start, second.start)
    span = np.minimum(first.end, second.end) - begin
    lasts = span.astype(np.float64)
    first_x, first_y = first.at(begin)
    second_x, second_y = second.at(begin)
    x, y = second_x - first_x, second_y - first_y
    vx, vy = second.vx - first.vx, second.vy - first.vy
    reach_squared = np.multiply(reach, reach)

    # |(x, y) + (vx, vy) t|² = reach²  is  a t² + 2 b t + c = 0.
    a = vx * vx + vy * vy
    b = x * vx + y * vy
    c = x * x + y * y - reach_squared
    # b² - a c, written without the terms that cancel.
    across = x * vy - y * vx
    discriminant = a * reach_squared - across * across
    root = np.sqrt(np.maximum(discriminant, 0.0))
    # This sum never cancels; the other solution follows from the product of both, c / a. A double
    # solution needs no other: there c and the sum may both be rounding errors only.
    sum_ = -(b + np.where(b < 0.0, -root, root))
    with np.errstate(divide="ignore", invalid="ignore"):
        one = sum_ / a
        other = np.where(root == 0.0, one, c / sum_)
    enters, leaves = np.minimum(one, other), np.maximum(one, other)

    still = a * (lasts * lasts) <= STILL * STILL
    touches = c <= 2.0 * STILL * np.asarray(reach) + STILL * STILL  # |(x, y)| <= reach + STILL
    enters, leaves = np.where(still, 0.0, enters), np.where(still, lasts, leaves)
    reaches = discriminant >= -TOUCH * (a * reach_squared)
    leaves = np.where(np.where(still, touches, reaches), leaves, -2.0)
    # Clipped as real numbers: nearly parallel paths cross at times beyond any integer.
    enters = np.minimum(np.maximum(enters, 0.0), lasts + 2.0)
    leaves = np.minimum(np.maximum(leaves, -2.0), lasts)
    start = np.ceil(enters - TIE).astype(np.int64)
    end = np.floor(leaves + TIE).astype(np.int64) + 1
    return begin + start, begin + np.minimum(end, span)


class _Contacts:
    """Intervals as they are found, window after window, joined where they touch.

    Only what may still grow is kept aside, so the memory needed is that of the finished contacts.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._found: list[tuple[Numbers, Numbers, Numbers]] = []
        self._finished: list[tuple[Numbers, Numbers, Numbers]] = []

    def add(self, sender: Numbers, receiver: Numbers, start: Numbers, end: Numbers) -> None:
        self._found.append((sender * self._nodes + receiver, start, end))

    def close(self, time: Micros) -> None:
        """No interval that begins before `time` will be added any more."""
        pair, start, end = touching_joined(self._found)
        grows = end == time
        self._found = [(pair[grows], start[grows], end[grows])]
        self._finished.append((pair[~grows], start[~grows], end[~grows]))

    def plan(self, *, directed: bool) -> ContactPlan:
        columns = [*self._finished, *self._found] or [(np.empty(0, dtype=np.int64),) * 3]
        self._finished, self._found = [], []
        pair, start, end = (np.concatenate(column) for column in zip(*columns, strict=True))
        del columns
        order = _ordered(start, pair)
        pair, start, end = pair[order], start[order], end[order]
        return ContactPlan(self._nodes, directed, pair // self._nodes, pair % self._nodes, start, end)


def touching_joined(
    found: Sequence[tuple[Numbers, Numbers, Numbers]],
) -> tuple[Numbers, Numbers, Numbers]:
    """Pair, start and end of intervals; those of a pair that touch become one. They never overlap, because
    the pieces of a node tile its time."""
    if not any(len(pair) for pair, _, _ in found):
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, nothing
    pair, start, end = (np.concatenate(column) for column in zip(*found, strict=True))
    order = _ordered(pair, start)
    pair, start, end = pair[order], start[order], end[order]
    first = np.flatnonzero(np.append(True, (pair[1:] != pair[:-1]) | (start[1:] != end[:-1])))
    last = np.append(first[1:], len(pair)) - 1
    return pair[first], start[first], end[last]


def _ordered(major: Numbers, minor: Numbers) -> Numbers:
    """The order by `major`, then `minor`; no two rows have both in common.

    Sorting by one number is several times faster than by two, so they are packed into one if they fit.
    """
    if len(major) == 0:
        return np.empty(0, dtype=np.int64)
    low, lowest = int(major.min()), int(minor.min())
    span, width = int(major.max()) - low + 1, int(minor.max()) - lowest + 1
    if span * width >= 2**63:
        return np.lexsort((minor, major))
    return np.argsort((major - low) * width + (minor - lowest))


def _range_of_each(ranges: float | Sequence[float], nodes: int) -> Metres:
    reach = np.asarray(ranges, dtype=np.float64)
    if reach.ndim == 0:
        reach = np.full(nodes, reach)
    if reach.shape != (nodes,):
        raise ScenarioError(
            "world.range", f"{reach.size} ranges for {nodes} nodes; allowed: one, or one per node"
        )
    wrong = reach[~((reach >= 0.0) & np.isfinite(reach))]
    if len(wrong):
        raise ScenarioError("world.range", f"{wrong[0]}; allowed: metres, 0 or more, finite")
    return reach


def _checked_walls(walls: npt.NDArray[np.float64] | None) -> Metres:
    if walls is None:
        return np.empty((0, 4), dtype=np.float64)
    walls = np.asarray(walls, dtype=np.float64)
    if walls.size == 0:
        return walls.reshape(0, 4)
    if walls.ndim != 2 or walls.shape[1] != 4 or not bool(np.all(np.isfinite(walls))):
        raise ScenarioError("world.walls", f"an array {walls.shape}; allowed: rows x1, y1, x2, y2, finite")
    return walls
