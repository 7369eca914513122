"""Which pieces of motion can come within range of each other at all.

Nearly all pairs of pieces are far apart in time or space. Time is cut into windows; in each window a
piece has a bounding box, grown by half the range on every side; only pieces whose boxes meet are
candidates. Boxes that meet are found by a sweep: sorted by their left side, those that can meet one
box follow it without a gap. In wide areas the sweep runs in strips along x, so that the work grows with
the neighbourhood of a node and not with the area's height.

The cut into windows is for speed only: the pieces themselves stay whole, so the crossing times that are
computed from them do not depend on where a window ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roamcast.units import SECOND, Micros
from roamcast.world.trajectory import Metres, Numbers, Pieces

# Rows that are compared at once. Chosen by us: small enough for the columns to stay in a processor's cache,
# large enough to hide numpy's cost per call. The peak memory of the search is a small multiple of it.
CHUNK_ROWS = 1 << 17
# Rounding in a box must not lose a pair: boxes grow by this share of the largest coordinate.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class TimeWindow:
    """A stretch of time and the pieces (row numbers) that last at some time in it."""

    start: Micros
    end: Micros
    rows: Numbers


def windows(pieces: Pieces, reach: float, duration: Micros) -> Iterator[TimeWindow]:
    """`[0, duration)` in stretches of equal length, in order; where no piece begins for longer, in one."""
    length = window_length(pieces, reach, duration)
    lasting = np.empty(0, dtype=np.int64)
    fresh = start = 0
    while start < duration:
        begins_next = int(pieces.start[fresh]) if fresh < len(pieces) else duration
        end = min(max(start + length, begins_next), duration)
        until = int(np.searchsorted(pieces.start, end, side="left"))
        rows = np.concatenate((lasting, np.arange(fresh, until)))
        fresh = until
        yield TimeWindow(start, end, rows)
        lasting = rows[pieces.end[rows] > end]
        start = end


def window_length(pieces: Pieces, reach: float, duration: Micros) -> Micros:
    """The length of a window that costs the least.

    In short windows each pair in range is found many times; in a long one a box is so large that it meets
    many others without a contact. The sum of both costs is smallest where a node moves about as far as its
    range. A finely sampled recording has many pieces in such a time, and only those of the same moment can
    meet: there a window has a few pieces.
    """
    if len(pieces) == 0:
        return max(duration, 1)
    span = (pieces.end - pieces.start).astype(np.float64)
    speed_x, speed_y = np.abs(pieces.vx), np.abs(pieces.vy)
    travelled = float(np.sum((speed_x + speed_y) * span))
    present = float(np.sum(span))
    length = 2.0 * present / len(pieces)
    if travelled > 0.0:
        length = min(length, 1.5 * reach * present / travelled)
    return int(min(max(length, SECOND / 10), max(duration, 1)))


def candidate_pairs(pieces: Pieces, window: TimeWindow, reach: float) -> Iterator[tuple[Numbers, Numbers]]:
    """Pairs of rows, in chunks: at times that overlap, with boxes that meet, the lower node first."""
    box = _Boxes.of(pieces, window, reach)
    strip, entry = box.strips()
    left, right = box.left[entry], box.right[entry]
    # Complex numbers compare by their real part, then by their imaginary one: strip, then left side.
    last = np.searchsorted(strip + 1j * left, strip + 1j * right, side="right")
    followers = last - np.arange(len(entry)) - 1
    first_strip = box.first_strip[entry]
    for a, b in _followed(followers):
        # A pair that shares several strips counts in the first of them.
        once = np.maximum(first_strip[a], first_strip[b]) == strip[a]
        i, j = entry[a[once]], entry[b[once]]
        meets = (
            (box.bottom[i] <= box.top[j])
            & (box.bottom[j] <= box.top[i])
            & (box.start[i] < box.end[j])
            & (box.start[j] < box.end[i])
            & (box.node[i] != box.node[j])
        )
        i, j = i[meets], j[meets]
        ordered = box.node[i] < box.node[j]
        yield window.rows[np.where(ordered, i, j)], window.rows[np.where(ordered, j, i)]


@dataclass(frozen=True, eq=False)
class _Boxes:
    """Where and when each piece of a window is, grown by half the reach on every side."""

    node: Numbers
    start: Numbers
    end: Numbers
    left: Metres
    right: Metres
    bottom: Metres
    top: Metres
    first_strip: Numbers
    last_strip: Numbers

    @staticmethod
    def of(pieces: Pieces, window: TimeWindow, reach: float) -> "_Boxes":
        part = pieces.take(window.rows)
        start, end = np.maximum(part.start, window.start), np.minimum(part.end, window.end)
        x0, y0 = part.at(start)
        x1, y1 = part.at(end)
        farthest = max(float(np.max(np.abs(side), initial=0.0)) for side in (x0, y0, x1, y1))
        margin = reach / 2 + (reach + farthest) * ROUNDING
        left, right = np.minimum(x0, x1) - margin, np.maximum(x0, x1) + margin
        bottom, top = np.minimum(y0, y1) - margin, np.maximum(y0, y1) + margin
        first, last = _strip_numbers(bottom, top)
        return _Boxes(part.node, start, end, left, right, bottom, top, first, last)

    def strips(self) -> tuple[Metres, Numbers]:
        """`(strip, box)` for each strip that a box lies in, sorted by strip, then left side."""
        box, strip = repeated(self.first_strip, self.last_strip)
        order = np.lexsort((self.left[box], strip))
        return strip[order].astype(np.float64), box[order]


def repeated(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Each row repeated once for every number from its `low` to its `high`: the rows, and the numbers."""
    count = high - low + 1
    row = np.repeat(np.arange(len(low)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count - low, count)


def _strip_numbers(bottom: Metres, top: Metres) -> tuple[Numbers, Numbers]:
    """The first and last strip of each box.

    With strips of height h and boxes of height e, the sweep costs about (h + e)² / h per box: least at
    h = e, hardly more at 2 e. Below six box heights a single strip is as good.
    """
    if len(bottom) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    lowest = float(np.min(bottom))
    height = float(np.max(top)) - lowest
    box_height = float(np.mean(top - bottom))
    if height <= 6 * box_height:
        single = np.zeros(len(bottom), dtype=np.int64)
        return single, single
    # Even if one box lies far away from the others, more strips than boxes only cost time.
    strip_height = max(2 * box_height, height / len(bottom))
    first = np.floor((bottom - lowest) / strip_height).astype(np.int64)
    last = np.floor((top - lowest) / strip_height).astype(np.int64)
    return first, last


def _followed(followers: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Each row with each of the `followers[row]` rows right behind it, in chunks."""
    total = np.cumsum(followers)
    begin = 0
    while begin < len(followers):
        done = int(total[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(total, done + CHUNK_ROWS, side="right")), begin + 1)
        count = followers[begin:end]
        row = np.repeat(np.arange(begin, end), count)
        rank = np.arange(len(row)) - np.repeat(total[begin:end] - count - done, count)
        yield row, row + 1 + rank
        begin = end
