"""Contacts of a recording of any size: the steps that workers take.

1. `Gather`: all fixes of a bucket of nodes to knots, per node in order of time.
2. `CutPieces`: knots of a bucket to straight pieces of motion, sorted into the groups they belong to.
3. `FindContacts`: groups to their contacts, by the core's own closed form (`world/crossings.py`).

A group is a chunk of time and a cell of the plane. A node belongs to every cell that its path during the
chunk, grown by half the range, touches; so two nodes that come within range share at least one cell. A pair
is computed only in the first cell that both share, so no contact is found twice. Pieces of motion are not
cut at the borders of chunks; contacts are, exactly, and are joined afterwards (`plan_file.py`).

Steps hand over files, which every worker sees, and not rows through Spark: sending pieces through a shuffle
took half of the time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.recordings.shares import batches, write_batches
from roamcast.lab.storage import Storage
from roamcast.units import Micros
from roamcast.world.candidates import candidate_pairs, repeated, windows
from roamcast.world.crossings import pair_intervals, touching_joined
from roamcast.world.formats.fixes import Conflict, MapProjection
from roamcast.world.trajectory import Metres, Numbers, Pieces

SKETCH = 128  # times that stand for all pieces of a bucket; chosen by us
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
CONTACTS = pa.schema(
    [("sender", pa.int32()), ("receiver", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
)
_GROUPS = b"groups"  # in the metadata of a file of pieces: the group of each record batch

ContactGroup: TypeAlias = tuple[int, int, int]
"""Chunk, and the two numbers of the cell."""


class TwoPlaces(NamedTuple):
    """A node at two places at one time; shares and lines of both rows."""

    node: int
    time: Micros
    share_before: int
    line_before: int
    share: int
    line: int


class Gathered(NamedTuple):
    """The content of a bucket."""

    bucket: int
    knots: int
    pieces: int = 0
    starts: tuple[Micros, ...] = ()  # quantiles of the times at which pieces begin
    together: float = 0.0  # how many nodes are present at a time, on average and without far-off fixes
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

    folder: Storage
    shares: range
    names: dict[str, int]  # of all nodes, once: a share's file has its own
    max_gap: Micros | None
    on_conflict: Conflict

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
        write_batches(self.folder, knots_file(bucket), KNOTS, [_batch((node, time, x, y, absent), KNOTS)])
        starts, together = _sketch(time[:-1][~absent[1:]], time[1:][~absent[1:]])
        return Gathered(
            bucket,
            len(node),
            int(np.count_nonzero(~absent)),
            starts,
            together,
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
        for share, batch, names in batches(self.folder, self.shares, bucket):
            number = np.array([self.names[name] for name in names], dtype=np.int64)
            name, time, x, y, line, returns = (column.to_numpy(zero_copy_only=False) for column in batch)
            node = number[name] if len(name) else name.astype(np.int64)
            parts.append((node, time, x, y, returns, np.full(len(name), share), line))
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _sketch(start: Numbers, end: Numbers) -> tuple[tuple[Micros, ...], float]:
    """Quantiles of the starts, and how many pieces last at a time between the first and the last tenth."""
    if len(start) == 0:
        return (), 0.0
    ordered = np.sort(start)
    at = (np.arange(SKETCH) * len(start)) // SKETCH
    low, high = int(ordered[len(start) // 10]), int(ordered[len(start) - 1 - len(start) // 10])
    lasting = np.maximum(np.minimum(end, high) - np.maximum(start, low), 0)
    together = float(np.sum(lasting)) / (high - low) if high > low else float(len(start))
    return tuple(ordered[np.unique(at)].tolist()), together


def knots_file(bucket: int) -> str:
    return f"knots-{bucket:06d}.arrow"


@dataclass(frozen=True)
class SumPlaces:
    """For recordings in degrees, the sums of a bucket from which the map's origin follows: of latitudes, and
    of longitudes east of `first`. Each as parts that add up to it without rounding, so that neither the
    number of buckets nor their order matters."""

    folder: Storage
    first: float

    def __call__(self, bucket: int) -> tuple[list[float], list[float]]:
        with self.folder.opened(knots_file(bucket)) as source:
            knots = pa.ipc.open_file(source).read_all()
        beyond = knots.column("x").to_numpy() - self.first
        east = beyond - 360.0 * np.round(beyond / 360.0)
        return _exact_sum(knots.column("y").to_numpy()), _exact_sum(east)


def _exact_sum(values: npt.NDArray[np.float64]) -> list[float]:
    parts: list[float] = []
    while rest := math.fsum([*values.tolist(), *(-part for part in parts)]):
        parts.append(rest)
    return parts


@dataclass(frozen=True)
class ContactGrid:
    """How time and the plane are divided. Times count from the recording's first fix."""

    begins: Micros
    borders: tuple[Micros, ...]  # of the chunks, from 0 to the recording's duration
    side: float | None  # of a cell, metres; None: the plane is one cell
    range_m: float
    nodes: int
    origin: MapProjection | None  # for recordings in degrees

    @property
    def duration(self) -> Micros:
        return self.borders[-1]

    @property
    def chunks(self) -> int:
        return len(self.borders) - 1


@dataclass(frozen=True)
class CutPieces:
    """Step 2, for one bucket: its pieces in a file, one record batch for each group."""

    folder: Storage
    layout: ContactGrid

    def __call__(self, bucket: int) -> list[tuple[ContactGroup, int]]:
        """The groups of the bucket, and how many pieces each has."""
        with self.folder.opened(knots_file(bucket)) as source:
            knots = pa.ipc.open_file(source).read_all()
        chunk, cells, pieces = self._pieces(*(column.to_numpy() for column in knots.itercolumns()))
        cell_x, cell_y, first_x, first_y = cells
        order = np.lexsort((pieces.start, cell_y, cell_x, chunk))
        pieces = pieces.take(order)
        keys = np.stack([chunk[order], cell_x[order], cell_y[order]], axis=1)
        opening = np.flatnonzero(np.append(True, np.any(keys[1:] != keys[:-1], axis=1))[: len(order)])
        counts = np.diff(opening, append=len(order)).tolist()
        groups = [tuple(key) for key in keys[opening].tolist()]
        places = (pieces.x, pieces.y, pieces.vx, pieces.vy)
        columns = (first_x[order], first_y[order], pieces.node, pieces.start, pieces.end, *places)
        schema = PIECES.with_metadata({_GROUPS: msgspec.json.encode(groups)})
        whole = _batch(columns, schema)
        parts = (whole.slice(begin, count) for begin, count in zip(opening.tolist(), counts, strict=True))
        write_batches(self.folder, pieces_file(bucket), schema, parts)
        return list(zip(groups, counts, strict=True))

    def _pieces(
        self,
        node: Numbers,
        time: Numbers,
        x: Metres,
        y: Metres,
        absent: npt.NDArray[np.bool_],
    ) -> tuple[Numbers, list[Numbers], Pieces]:
        """Chunks, cells and pieces; a piece of several groups comes once for each."""
        if self.layout.origin is not None:
            x, y = self.layout.origin.to_metres(y, x)
        leg = np.flatnonzero(~absent[1:])
        start, end = time[leg] - self.layout.begins, time[leg + 1] - self.layout.begins
        span = (end - start).astype(np.float64)
        vx, vy = (x[leg + 1] - x[leg]) / span, (y[leg + 1] - y[leg]) / span
        pieces = Pieces(node[leg].astype(np.int64), start, end, x[leg], y[leg], vx, vy)
        borders = np.array(self.layout.borders)
        row, chunk = repeated(
            np.searchsorted(borders, start, side="right") - 1,
            np.searchsorted(borders, end - 1, side="right") - 1,
        )
        pieces = pieces.take(row)
        if self.layout.side is None:
            return chunk, [np.zeros(len(row), dtype=np.int64)] * 4, pieces
        row, cells = self._cells(pieces, chunk, self.layout.side)
        return chunk[row], cells, pieces.take(row)

    def _cells(self, pieces: Pieces, chunk: Numbers, side: float) -> tuple[Numbers, list[Numbers]]:
        """Row numbers, each repeated per cell of its node in the chunk; the cell; the node's lowest cell."""
        if len(chunk) == 0:
            return chunk, [chunk] * 4
        borders = np.array(self.layout.borders)
        begin, end = np.maximum(pieces.start, borders[chunk]), np.minimum(pieces.end, borders[chunk + 1])
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
        row, cell_x = repeated(low[0], high[0])
        again, cell_y = repeated(low[1][row], high[1][row])
        row, cell_x = row[again], cell_x[again]
        return row, [cell_x, cell_y, low[0][row], low[1][row]]


class GroupsOfChunk(NamedTuple):
    """What one worker searches at a time: groups of one chunk, and the buckets that have pieces of them."""

    chunk: int
    number: int
    groups: tuple[ContactGroup, ...]
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class FindContacts:
    """Step 3: the contacts of some groups, sorted, in a file. They are cut at the borders of their chunk."""

    folder: Storage
    layout: ContactGrid

    def __call__(self, wanted: GroupsOfChunk) -> int:
        begin = self.layout.borders[wanted.chunk]
        parts = self._parts(wanted)
        found = [self._found(group, parts[group]) for group in wanted.groups]
        pair, start, end = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((pair, start))
        pair, start, end = pair[order], start[order] + begin, end[order] + begin
        contacts = _batch((pair // self.layout.nodes, pair % self.layout.nodes, start, end), CONTACTS)
        write_batches(self.folder, contacts_file(wanted.chunk, wanted.number), CONTACTS, [contacts])
        return len(pair)

    def _parts(self, wanted: GroupsOfChunk) -> dict[ContactGroup, list[pa.RecordBatch]]:
        parts: dict[ContactGroup, list[pa.RecordBatch]] = {group: [] for group in wanted.groups}
        for bucket in wanted.buckets:
            with self.folder.opened(pieces_file(bucket)) as source:
                reader = pa.ipc.open_file(source)
                groups = msgspec.json.decode(reader.schema.metadata[_GROUPS], type=list[tuple[int, int, int]])
                for number, group in enumerate(groups):
                    if group in parts:
                        parts[group].append(reader.get_batch(number))
        return parts

    def _found(self, group: ContactGroup, parts: list[pa.RecordBatch]) -> tuple[Numbers, Numbers, Numbers]:
        """The pairs of one group and when they meet, counted from the begin of their chunk."""
        chunk, cell_x, cell_y = group
        begin, until = self.layout.borders[chunk : chunk + 2]
        arrays = ([column.to_numpy() for column in part.columns] for part in parts)
        columns = [np.concatenate(column) for column in zip(*arrays, strict=True)]
        first_x, first_y, node, start, end, x, y, vx, vy = columns
        node, start, end = node.astype(np.int64), start - begin, end - begin
        order = np.lexsort((node, start))
        pieces = Pieces(node, start, end, x, y, vx, vy).take(order)
        first_x, first_y = first_x[order], first_y[order]
        found: list[tuple[Numbers, Numbers, Numbers]] = []
        for window in windows(pieces, self.layout.range_m, until - begin):
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
        return touching_joined(found)


def pieces_file(bucket: int) -> str:
    return f"pieces-{bucket:06d}.arrow"


def contacts_file(chunk: int, number: int) -> str:
    return f"contacts-{chunk:06d}-{number:06d}.arrow"


def contacts_of(folder: Storage, chunk: int, files: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """What step 3 wrote for a chunk."""
    parts = []
    for number in range(files):
        with folder.opened(contacts_file(chunk, number)) as source:
            parts.append(pa.ipc.open_file(source).read_all())
    table = pa.concat_tables(parts)
    sender, receiver, start, end = (column.to_numpy().astype(np.int64) for column in table.itercolumns())
    return sender, receiver, start, end


def _batch(columns: Sequence[npt.NDArray[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cell(place: Metres, side: float) -> Numbers:
    return np.floor(place / side).astype(np.int64)
