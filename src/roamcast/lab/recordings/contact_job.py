"""Contacts of a recording of any size: the steps that workers take.

1. `Gather`: all fixes of a bucket of nodes to knots, per node in order of time.
2. `SendPieces`: knots to straight pieces of motion, each sent to the groups it belongs to.
3. `FindContacts`: one group to its contacts, by the core's own closed form (`world/crossings.py`).

A group is a chunk of time and a cell of the plane. A node belongs to every cell that its path during the
chunk, grown by half the range, touches; so two nodes that come within range share at least one cell. A pair
is computed only in the first cell that both share, so no contact is found twice. Pieces of motion are not
cut at the borders of chunks; contacts are, exactly, and are joined afterwards (`contacts.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.recordings.share_files import ShareReport, batches
from roamcast.units import Micros
from roamcast.world.candidates import candidate_pairs, windows
from roamcast.world.crossings import pair_intervals
from roamcast.world.formats.motion.fixes import Conflict
from roamcast.world.formats.motion.projection import MapProjection
from roamcast.world.pieces import Numbers, Pieces
from roamcast.world.trajectory import Metres

BATCH_ROWS = 1 << 16  # chosen by us: bounds what one record batch takes in a worker
# Rounding must not keep a node out of a cell: boxes grow by this share of the largest coordinate. Chosen by
# us: far above the rounding of a double (1e-16), far below any radio range.
ROUNDING = 1e-9

KNOTS = pa.schema(
    [
        ("node", pa.int32()),
        ("time", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("returns", pa.bool_()),  # absent between the knot before and this one; true for a node's first
    ]
)
PIECES = pa.schema(
    [
        ("chunk", pa.int64()),
        ("cell_x", pa.int32()),
        ("cell_y", pa.int32()),
        ("first_x", pa.int32()),  # the lowest cell of the node in this chunk
        ("first_y", pa.int32()),
        ("node", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("vx", pa.float64()),
        ("vy", pa.float64()),
    ]
)
GROUP = ["chunk", "cell_x", "cell_y"]
CONTACTS = pa.schema(
    [
        ("sender", pa.int32()),
        ("receiver", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("open", pa.bool_()),  # touches a border of its chunk: it may go on in the next
    ]
)


class TwoPlaces(NamedTuple):
    """A node at two places at one time; shares and lines of both rows."""

    node: int
    time: Micros
    share_before: int
    line_before: int
    share: int
    line: int


class Gathered(NamedTuple):
    """What a bucket holds."""

    bucket: int
    knots: int
    pieces: int = 0
    present: int = 0  # microseconds that pieces last, added up
    begins: int = 0
    ends: int = 0
    left: float = 0.0  # in the recording's own coordinates
    right: float = 0.0
    bottom: float = 0.0
    top: float = 0.0
    first_x: float | None = None  # of the first knot of node 0
    conflict: TwoPlaces | None = None


@dataclass(frozen=True)
class Gather:
    """Step 1, for one bucket."""

    shares: str
    reports: list[ShareReport]
    names: dict[str, int]
    max_gap: Micros | None
    on_conflict: Conflict
    folder: str

    def __call__(self, bucket: int) -> Gathered:
        columns = self._columns(bucket)
        node, time, x, y, returns, share, line = columns
        if len(node) == 0:
            return Gathered(bucket, 0)
        # The sort is stable: rows of the same time keep the recording's order, so the last row counts.
        order = np.lexsort((time, node))
        node, time, x, y, returns, share, line = (column[order] for column in columns)
        same = (node[1:] == node[:-1]) & (time[1:] == time[:-1])
        if self.on_conflict == "error":
            differs = np.flatnonzero(same & ((x[1:] != x[:-1]) | (y[1:] != y[:-1])))
            if len(differs):
                k = int(differs[0])
                places = (share[k], line[k], share[k + 1], line[k + 1])
                conflict = TwoPlaces(int(node[k]), int(time[k]), *map(int, places))
                return Gathered(bucket, 0, conflict=conflict)
        first = np.flatnonzero(np.append(True, ~same))
        last = np.append(first[1:], len(node)) - 1
        returns = np.logical_or.reduceat(returns, first)
        node, time, x, y = node[first], time[first], x[last], y[last]
        fresh = np.append(True, node[1:] != node[:-1])
        apart = np.append(0, np.diff(time))
        absent = fresh | returns
        if self.max_gap is not None:
            absent |= apart > self.max_gap
        self._write(bucket, node, time, x, y, absent)
        return Gathered(
            bucket,
            len(node),
            int(np.count_nonzero(~absent)),
            int(np.sum(apart[~absent])),
            int(time.min()),
            int(time.max()),
            float(x.min()),
            float(x.max()),
            float(y.min()),
            float(y.max()),
            float(x[0]) if node[0] == 0 else None,
        )

    def _columns(self, bucket: int) -> tuple[npt.NDArray[Any], ...]:
        parts = []
        for share, batch, names in batches(Path(self.shares), self.reports, bucket):
            number = np.array([self.names[name] for name in names], dtype=np.int64)
            name, time, x, y, line, returns = (column.to_numpy(zero_copy_only=False) for column in batch)
            node = number[name] if len(name) else name.astype(np.int64)
            parts.append((node, time, x, y, returns, np.full(len(name), share), line))
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def _write(self, bucket: int, *columns: npt.NDArray[Any]) -> None:
        table = pa.Table.from_arrays(
            [pa.array(column).cast(field.type) for column, field in zip(columns, KNOTS, strict=True)],
            schema=KNOTS,
        )
        target = knots_file(Path(self.folder), bucket)
        partial = target.with_suffix(f".{id(table)}.partial")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, KNOTS) as writer:
            writer.write_table(table)
        partial.replace(target)


def knots_file(folder: Path, bucket: int) -> Path:
    return folder / f"knots-{bucket:06d}.arrow"


@dataclass(frozen=True)
class ContactGrid:
    """How time and the plane are divided. Times count from the recording's first fix."""

    begins: Micros
    duration: Micros
    chunk: Micros  # length
    side: float | None  # of a cell, metres; None: the plane is one cell
    range_m: float
    nodes: int
    origin: MapProjection | None  # for recordings in degrees


@dataclass(frozen=True)
class SendPieces:
    """Step 2, for the buckets of a partition."""

    folder: str
    layout: ContactGrid

    def __call__(self, buckets: Iterator[Any]) -> Iterator[Any]:
        for batch in buckets:
            for bucket in batch.column(0).to_pylist():
                file = knots_file(Path(self.folder), bucket)
                if file.exists():
                    table = self._pieces(file)
                    yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def _pieces(self, file: Path) -> pa.Table:
        with pa.memory_map(str(file)) as source:
            knots = pa.ipc.open_file(source).read_all()
        node, time, x, y, absent = (column.to_numpy() for column in knots.itercolumns())
        if self.layout.origin is not None:
            x, y = self.layout.origin.to_metres(y, x)
        leg = np.flatnonzero(~absent[1:])
        start, end = time[leg] - self.layout.begins, time[leg + 1] - self.layout.begins
        span = (end - start).astype(np.float64)
        vx, vy = (x[leg + 1] - x[leg]) / span, (y[leg + 1] - y[leg]) / span
        pieces = Pieces(node[leg].astype(np.int64), start, end, x[leg], y[leg], vx, vy)
        row, chunk = _spread(start // self.layout.chunk, (end - 1) // self.layout.chunk)
        pieces = pieces.take(row)
        if self.layout.side is None:
            cells = [np.zeros(len(row), dtype=np.int64)] * 4
        else:
            row, cells = self._cells(pieces, chunk, self.layout.side)
            pieces, chunk = pieces.take(row), chunk[row]
        columns = [chunk, *cells, pieces.node, pieces.start, pieces.end, pieces.x, pieces.y]
        arrays = [
            pa.array(column).cast(field.type)
            for column, field in zip([*columns, pieces.vx, pieces.vy], PIECES, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=PIECES)

    def _cells(self, pieces: Pieces, chunk: Numbers, side: float) -> tuple[Numbers, list[Numbers]]:
        """Row numbers, each repeated per cell of its node in the chunk; the cell; the node's lowest cell."""
        if len(chunk) == 0:
            return chunk, [chunk] * 4
        begin = np.maximum(pieces.start, chunk * self.layout.chunk)
        end = np.minimum(pieces.end, (chunk + 1) * self.layout.chunk)
        opens = np.append(True, (pieces.node[1:] != pieces.node[:-1]) | (chunk[1:] != chunk[:-1]))
        group, opening = np.cumsum(opens) - 1, np.flatnonzero(opens)
        low, high = [], []
        for one, other in zip(pieces.at(begin), pieces.at(end), strict=True):
            reach = self.layout.range_m
            farthest = float(max(np.max(np.abs(one)), np.max(np.abs(other))))
            margin = reach / 2 + (reach + farthest) * ROUNDING
            least = np.minimum.reduceat(np.minimum(one, other), opening) - margin
            most = np.maximum.reduceat(np.maximum(one, other), opening) + margin
            low.append(_cell(least, side)[group])
            high.append(_cell(most, side)[group])
        row, cell_x = _spread(low[0], high[0])
        again, cell_y = _spread(low[1][row], high[1][row])
        row, cell_x = row[again], cell_x[again]
        return row, [cell_x, cell_y, low[0][row], low[1][row]]


@dataclass(frozen=True)
class FindContacts:
    """Step 3, for one group."""

    layout: ContactGrid

    def __call__(self, group: pa.Table) -> pa.Table:
        chunk, cell_x, cell_y = (group.column(name)[0].as_py() for name in GROUP)
        begin = chunk * self.layout.chunk
        lasts = min(self.layout.chunk, self.layout.duration - begin)
        columns = {name: group.column(name).to_numpy() for name in PIECES.names[3:]}
        node = columns["node"].astype(np.int64)
        start, end = columns["start"] - begin, columns["end"] - begin
        order = np.lexsort((node, start))
        pieces = Pieces(node, start, end, columns["x"], columns["y"], columns["vx"], columns["vy"]).take(
            order
        )
        first_x, first_y = columns["first_x"][order], columns["first_y"][order]
        found: list[tuple[Numbers, Numbers, Numbers]] = []
        for window in windows(pieces, self.layout.range_m, lasts):
            for one, other in candidate_pairs(pieces, window, self.layout.range_m):
                if self.layout.side is not None:
                    ours = np.maximum(first_x[one], first_x[other]) == cell_x
                    ours &= np.maximum(first_y[one], first_y[other]) == cell_y
                    one, other = one[ours], other[ours]
                a, b = pieces.take(one), pieces.take(other)
                start, end = pair_intervals(a, b, self.layout.range_m)
                start, end = np.maximum(start, window.start), np.minimum(end, window.end)
                meets = start < end
                pair = a.node[meets] * self.layout.nodes + b.node[meets]
                found.append((pair, start[meets], end[meets]))
        pair, start, end = _joined(found)
        # A contact at the recording's own begin or end has no neighbouring chunk; joining it is harmless.
        open_ = (start == 0) | (end == lasts)
        columns_out = (pair // self.layout.nodes, pair % self.layout.nodes, start + begin, end + begin, open_)
        arrays = [pa.array(c).cast(field.type) for c, field in zip(columns_out, CONTACTS, strict=True)]
        return pa.Table.from_arrays(arrays, schema=CONTACTS)


def _joined(found: list[tuple[Numbers, Numbers, Numbers]]) -> tuple[Numbers, Numbers, Numbers]:
    """Intervals of a pair that touch become one. They never overlap: a node's pieces tile its time."""
    if not any(len(pair) for pair, _, _ in found):
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, nothing
    pair, start, end = (np.concatenate(column) for column in zip(*found, strict=True))
    width = int(start.max()) + 1
    # Sorting by one number is several times faster than by two, so they are packed into one if they fit.
    if int(pair.max() + 1) * width < 2**63:
        order = np.argsort(pair * width + start)
    else:
        order = np.lexsort((start, pair))
    pair, start, end = pair[order], start[order], end[order]
    opens = np.append(True, (pair[1:] != pair[:-1]) | (start[1:] != end[:-1]))
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(pair)) - 1
    return pair[first], start[first], end[last]


def _spread(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Each row repeated once for every number from its `low` to its `high`: the rows, and the numbers."""
    count = high - low + 1
    row = np.repeat(np.arange(len(low)), count)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return row, low[row] + rank


def _cell(place: Metres, side: float) -> Numbers:
    return np.floor(place / side).astype(np.int64)
