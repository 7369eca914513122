"""Recorded mobility to a contact plan, on Spark: for traces far larger than memory.

The plan is the one that `world.crossings.contact_plan` computes in memory, interval by interval, on a clock
that begins at 0 with the recording's first fix, as scenarios read recordings. How: `recording.py` (the trace
in parallel), `contact_job.py` (knots, pieces, contacts), this file (the order of the steps), `plan_file.py`
(the plan).

The trace and the plan are paths or URIs (`lab/storage`). On a cluster every worker must see them.
Intermediate files are in a hidden folder beside the plan, which is removed when the job ends, also when it
fails.
"""

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from roamcast.errors import FileError, InputError
from roamcast.lab.recordings import recording
from roamcast.lab.recordings.contact_job import (
    CONTACTS,
    ContactGrid,
    ContactGroup,
    CutPieces,
    FindContacts,
    Gather,
    Gathered,
    GroupsOfChunk,
    SumPlaces,
)
from roamcast.lab.recordings.plan_file import PlanFile
from roamcast.lab.recordings.recording import Recording
from roamcast.lab.recordings.shares import RecordingSource
from roamcast.lab.spark.session import is_remote, mapped, repeated, with_session
from roamcast.lab.storage import Storage
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats import MapProjection
from roamcast.world.formats.text import seconds_text

# The bounds below are chosen by us. Pieces in one group: a few tens of megabytes in a worker.
GROUP_PIECES = 150_000
# With more nodes than this present at a time the plane is divided too; with fewer, cells only repeat pieces.
CELL_NODES = 20_000
CELL_RANGES_MIN = 10  # side of a cell in ranges, so that few nodes are in two cells
CHUNKS_MIN = 16  # enough tasks to keep all cores busy
CELLS_MAX = 1 << 20  # along one axis; one far-off fix must not overflow the cell numbers
POLL_SECONDS = 0.5

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""What is being done, tasks done and tasks in all."""


class ContactsSummary(NamedTuple):
    """What a job found. `begins`: the recording's own time (microseconds) at which the plan's clock is 0."""

    nodes: int
    fixes: int
    contacts: int
    seconds: float
    begins: int


def contacts(
    trace: str | Path,
    range_m: float,
    out: str | Path,
    *,
    format: str | None = None,
    max_gap: float | None = None,
    geographic: bool = False,
    master: str | None = None,
    progress: OnProgress | None = None,
) -> ContactsSummary:
    """Write the contact plan of a recording to `out`: `.parquet`, `.csv` or `.csv.gz`. Both are paths or
    URIs.

    `max_gap`: seconds; a node is absent between fixes further apart (None: the format's default; `math.inf`:
    never). `geographic`: an FCD file holds longitude and latitude. Where the recording's names are not
    the plan's numbers, `<plan>.names.csv` says which is which. Nothing is ever written over.
    """
    if not (range_m >= 0.0 and math.isfinite(range_m)):
        raise InputError("range", f"is {range_m}; allowed: metres, 0 or more, finite")
    target = PlanFile.of(out)
    chosen = recording.trace_of(trace, format, max_gap, geographic)

    def find(spark: SparkSession) -> ContactsSummary:
        began = time.monotonic()
        with _scratch(target) as folder, _watched(spark, progress) as step:
            summary = _contacts(spark, chosen, range_m, target, folder, step)
        return summary._replace(seconds=time.monotonic() - began)

    return with_session(master, find)


def read_plan(uri: str | Path) -> ContactPlan:
    """A plan that `contacts` wrote as Parquet."""
    folder, file = Storage.of_file(uri)
    try:
        with folder.opened(file) as source:
            table = pq.read_table(source)
        nodes = int(table.schema.metadata[b"nodes"])
        columns = [table.column(name).to_numpy().astype("int64") for name in CONTACTS.names]
    except (FileError, KeyError, TypeError, pa.ArrowException) as problem:
        raise FileError(str(uri), "is no contact plan in Parquet") from problem
    return ContactPlan(nodes, False, *columns)


def _contacts(
    spark: SparkSession,
    trace: RecordingSource,
    range_m: float,
    target: PlanFile,
    folder: Storage,
    step: Callable[[str], None],
) -> ContactsSummary:
    step("reading")
    recorded = recording.record(spark, trace, folder)
    names = recorded.names()
    numbers = {name: number for number, name in enumerate(names)}
    options = trace.options
    gather = Gather(folder, range(len(recorded.reports)), numbers, options.max_gap, options.conflict)
    step("sorting")
    found = mapped(spark, gather, range(recorded.buckets))
    _refuse_conflicts(found, recorded, names)
    there = [each for each in found if each.knots]
    layout = _layout(there, len(names), range_m, _origin(spark, there, folder, trace, recorded))
    step("pieces")
    cut = mapped(spark, CutPieces(folder, layout), [each.bucket for each in there])
    step("contacts")
    wanted = _groups_of_chunks({each.bucket: groups for each, groups in zip(there, cut, strict=True)})
    mapped(spark, FindContacts(folder, layout), wanted)
    step("plan")
    files = [0] * layout.chunks
    for each in wanted:
        files[each.chunk] += 1
    count = target.write(folder, files, layout, names)
    return ContactsSummary(len(names), recorded.fixes, count, 0.0, layout.begins)


def _refuse_conflicts(found: Sequence[Gathered], recorded: Recording, names: list[str]) -> None:
    conflicts = sorted(each.conflict for each in found if each.conflict is not None)
    if conflicts:
        first = conflicts[0]
        name = names[first.node]
        here = recorded.line(first.share, first.line)
        before = recorded.line(first.share_before, first.line_before)
        raise FileError(
            f"{recorded.file_of(name)}:{here}",
            f"node {name} is at two places at {seconds_text(first.time)} s (see line {before}); "
            "one place per node and microsecond",
        )


def _origin(
    spark: SparkSession,
    found: Sequence[Gathered],
    folder: Storage,
    trace: RecordingSource,
    recorded: Recording,
) -> MapProjection | None:
    """The mean of all fixes, as in `MapProjection.around`. Sums are exact, so their order does not matter."""
    if not recorded.geographic:
        return None
    (first,) = (each.first_x for each in found if each.first_x is not None)
    count = sum(each.knots for each in found)
    sums = mapped(spark, SumPlaces(folder, first), [each.bucket for each in found])
    latitude = math.fsum(part for north, _ in sums for part in north) / count
    east = math.fsum(part for _, east in sums for part in east) / count
    try:
        return MapProjection(latitude, (first + east + 180.0) % 360.0 - 180.0)
    except InputError as problem:
        raise FileError(trace.name, f"has its mean place near a pole; the {problem}") from problem


def _layout(
    found: Sequence[Gathered], nodes: int, range_m: float, origin: MapProjection | None
) -> ContactGrid:
    """Chunks and cells, so that a group has about `GROUP_PIECES` pieces."""
    begins, ends = min(each.begins for each in found), max(each.ends for each in found)
    together = sum(each.together for each in found)
    cells = max(math.ceil(together / CELL_NODES), 1)
    side = None
    if cells > 1:
        width = max(each.right for each in found) - min(each.left for each in found)
        height = max(each.top for each in found) - min(each.bottom for each in found)
        if origin is not None:
            width, height = width * 111_000 * math.cos(math.radians(origin.latitude)), height * 111_000
        extent = max(width, height, 1.0)
        side = max(
            math.sqrt(max(width, extent / CELLS_MAX) * max(height, extent / CELLS_MAX) / cells),
            CELL_RANGES_MIN * range_m,
            extent / CELLS_MAX,
        )
    borders = _borders(found, begins, ends, cells, together)
    return ContactGrid(begins, borders, side, range_m, nodes, origin)


def _borders(
    found: Sequence[Gathered], begins: int, ends: int, cells: int, together: float
) -> tuple[int, ...]:
    """Chunks in which equally many pieces begin, however the recording is spread over time: with chunks of
    equal length, one fix a month later would put all others into one."""
    pieces = sum(each.pieces for each in found)
    # A piece that crosses a border is sent to both sides, so chunks are long enough that few do.
    size = max(min(GROUP_PIECES * cells, pieces / CHUNKS_MIN), 4 * together, 1.0)
    inner = np.empty(0, dtype=np.int64)
    chunks = int(pieces / size)
    if chunks > 1:
        times = np.array([start for each in found for start in each.starts])
        weight = np.repeat(
            [each.pieces / max(len(each.starts), 1) for each in found], [len(each.starts) for each in found]
        )
        order = np.argsort(times, kind="stable")
        before = np.cumsum(weight[order])
        at = np.searchsorted(before, np.arange(1, chunks) * before[-1] / chunks)
        inner = np.unique(times[order][at]) - begins
    inside = inner[(inner > 0) & (inner < ends - begins)].tolist()
    return (0, *inside, ends - begins)


def _groups_of_chunks(cut: dict[int, list[tuple[ContactGroup, int]]]) -> list[GroupsOfChunk]:
    """What workers search: the groups of a chunk, several small ones together."""
    sizes: dict[ContactGroup, int] = {}
    buckets: dict[ContactGroup, set[int]] = {}
    for bucket, groups in cut.items():
        for group, pieces in groups:
            sizes[group] = sizes.get(group, 0) + pieces
            buckets.setdefault(group, set()).add(bucket)
    packs: dict[int, list[list[ContactGroup]]] = {}
    filled: dict[int, int] = {}
    for group in sorted(sizes):
        chunk = group[0]
        if chunk not in packs or filled[chunk] + sizes[group] > GROUP_PIECES:
            packs.setdefault(chunk, []).append([])
            filled[chunk] = 0
        packs[chunk][-1].append(group)
        filled[chunk] += sizes[group]
    return [
        GroupsOfChunk(
            chunk, number, tuple(pack), tuple(sorted(set().union(*(buckets[group] for group in pack))))
        )
        for chunk, found in packs.items()
        for number, pack in enumerate(found)
    ]


# Around the job.


@contextmanager
def _scratch(target: PlanFile) -> Iterator[Storage]:
    name = f".{target.plan}-{uuid.uuid4().hex}"
    try:
        yield target.folder.folder(name)
    finally:
        with suppress(FileError):
            target.folder.delete_folder(name)


@contextmanager
def _watched(spark: SparkSession, progress: OnProgress | None) -> Iterator[Callable[[str], None]]:
    """A function to call with the name of each step. `progress` is called from a thread of its own."""
    if progress is None or is_remote(spark):  # Spark Connect has no tracker
        yield lambda name: progress(name, 0, 0) if progress is not None else None
        return
    tracker: Any = spark.sparkContext.statusTracker()
    step = [""]

    def begin(name: str) -> None:
        step[0] = name
        progress(name, 0, 0)

    def tell() -> None:
        stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
        for stage in stages[-1:]:
            if stage is not None:
                progress(step[0], stage.numCompletedTasks, stage.numTasks)

    with repeated(POLL_SECONDS, tell):
        yield begin
