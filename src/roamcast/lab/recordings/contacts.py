"""Recorded mobility to a contact plan, on Spark: for traces far larger than memory.

The plan is the one that `world.crossings.contact_plan` computes in memory, interval by interval, on a clock
that begins at 0 with the recording's first fix, as scenarios read recordings. How: `recording.py` (the trace
in parallel), `contact_job.py` (knots, pieces, contacts), this file (the order of the
steps), `plan_file.py` (the plan).

On a cluster the trace and the folder of the plan must be storage that every worker sees. Intermediate files
are in a hidden folder beside the plan, which is removed when the job ends, also when it fails.
"""

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.errors import FileError, InputError
from roamcast.lab.recordings import recording
from roamcast.lab.recordings.contact_job import (
    CONTACTS,
    GROUP,
    PIECES,
    ContactGrid,
    FindContacts,
    Gather,
    Gathered,
    SendPieces,
    knots_file,
)
from roamcast.lab.recordings.plan_file import PlanFile
from roamcast.lab.recordings.recording import Recording
from roamcast.lab.recordings.shares import RecordingSource
from roamcast.lab.spark.session import with_session
from roamcast.units import SECOND
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats.motion.projection import MapProjection
from roamcast.world.formats.text.numbers import seconds_text

# The bounds below are chosen by us. Pieces in one group: a few tens of megabytes in a worker.
GROUP_PIECES = 150_000
# With more nodes than this present at a time the plane is divided too; with fewer, cells only repeat pieces.
CELL_NODES = 20_000
CELL_RANGES_MIN = 10  # side of a cell in ranges, so that few nodes are in two cells
CHUNKS_MIN = 16  # enough tasks to keep all cores busy
CELLS_MAX = 1 << 20  # along one axis; one far-off fix must not overflow the cell numbers
PARTITIONS_MAX = 1024
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
    trace: Path,
    range_m: float,
    out: Path,
    *,
    format: str | None = None,
    max_gap: float | None = None,
    geographic: bool = False,
    master: str | None = None,
    progress: OnProgress | None = None,
) -> ContactsSummary:
    """Write the contact plan of a recording to `out`: `.parquet`, `.csv` or `.csv.gz`.

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
        with _scratch(target.plan) as folder, _watched(spark, progress) as step:
            summary = _contacts(spark, chosen, range_m, target, folder, step)
        return summary._replace(seconds=time.monotonic() - began)

    return with_session(master, find)


def read_plan(path: Path) -> ContactPlan:
    """A plan that `contacts` wrote as Parquet."""
    try:
        table = pq.read_table(path)
        nodes = int(table.schema.metadata[b"nodes"])
        columns = [table.column(name).to_numpy().astype("int64") for name in CONTACTS.names[:4]]
    except (OSError, KeyError, TypeError, pa.ArrowException) as problem:
        raise FileError(str(path), "is no contact plan in Parquet") from problem
    return ContactPlan(nodes, False, *columns)


def _contacts(
    spark: SparkSession,
    trace: RecordingSource,
    range_m: float,
    target: "PlanFile",
    folder: Path,
    step: Callable[[str], None],
) -> ContactsSummary:
    context = spark.sparkContext
    step("reading")
    for name in ("shares", "knots"):
        (folder / name).mkdir()
    recorded = recording.record(context, trace, folder / "shares")
    names = recorded.names()
    numbers = {name: number for number, name in enumerate(names)}
    gather = Gather(
        str(folder / "shares"),
        recorded.reports,
        numbers,
        trace.options.max_gap,
        trace.options.conflict,
        str(folder / "knots"),
    )
    step("sorting")
    found = context.parallelize(range(recorded.buckets), recorded.buckets).map(gather).collect()
    _refuse_conflicts(found, recorded, names)
    shutil.rmtree(folder / "shares")
    layout = _layout(found, len(names), range_m, _origin(found, folder / "knots", trace, recorded))
    step("contacts")
    _write_parts(spark, folder, recorded.buckets, layout, sum(each.pieces for each in found))
    step("plan")
    plan = _joined_at_borders(spark.read.schema(from_arrow_schema(CONTACTS)).parquet(str(folder / "parts")))
    count = target.write(plan, folder, layout, names)
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
    found: Sequence[Gathered], folder: Path, trace: RecordingSource, recorded: Recording
) -> MapProjection | None:
    """The mean of all fixes, as in `MapProjection.around`. Sums are exact, so their order does not matter."""
    if not recorded.geographic:
        return None
    (first,) = (each.first_x for each in found if each.first_x is not None)
    count = sum(each.knots for each in found)
    buckets = [each.bucket for each in found if each.knots]
    latitude = math.fsum(chain.from_iterable(_columns(folder, buckets, "y"))) / count
    beyond = (x - first for part in _columns(folder, buckets, "x") for x in part)
    wrapped = (degrees - 360.0 * round(degrees / 360.0) for degrees in beyond)
    longitude = (first + math.fsum(wrapped) / count + 180.0) % 360.0 - 180.0
    try:
        return MapProjection(latitude, longitude)
    except InputError as problem:
        raise FileError(str(trace.path), f"has its mean place near a pole; the {problem}") from problem


def _columns(folder: Path, buckets: list[int], name: str) -> Iterator[list[float]]:
    for bucket in buckets:
        with pa.memory_map(str(knots_file(folder, bucket))) as source:
            for batch in pa.ipc.open_file(source).read_all().to_batches(max_chunksize=1 << 16):
                yield batch.column(name).to_numpy().tolist()


def _layout(
    found: Sequence[Gathered], nodes: int, range_m: float, origin: MapProjection | None
) -> ContactGrid:
    """Chunks and cells, so that a group has about `GROUP_PIECES` pieces."""
    there = [each for each in found if each.knots]
    begins, ends = min(each.begins for each in there), max(each.ends for each in there)
    duration = ends - begins
    pieces = max(sum(each.pieces for each in there), 1)
    present = sum(each.present for each in there)
    together = present / max(duration, 1)
    cells = math.ceil(together / CELL_NODES)
    length = duration * GROUP_PIECES * cells / pieces
    # A piece that crosses a border is sent to both sides, so chunks are long enough that few do.
    length = max(min(length, duration / CHUNKS_MIN), 4 * present / pieces, SECOND)
    side = None
    if cells > 1:
        width = max(each.right for each in there) - min(each.left for each in there)
        height = max(each.top for each in there) - min(each.bottom for each in there)
        if origin is not None:
            width, height = width * 111_000 * math.cos(math.radians(origin.latitude)), height * 111_000
        extent = max(width, height, 1.0)
        side = max(
            math.sqrt(max(width, extent / CELLS_MAX) * max(height, extent / CELLS_MAX) / cells),
            CELL_RANGES_MIN * range_m,
            extent / CELLS_MAX,
        )
    return ContactGrid(begins, duration, math.ceil(length), side, range_m, nodes, origin)


def _write_parts(spark: SparkSession, folder: Path, buckets: int, layout: ContactGrid, pieces: int) -> None:
    """The contacts of each group, under `parts`."""
    groups = max(layout.duration // layout.chunk, pieces // GROUP_PIECES) + 1
    partitions = min(groups, PARTITIONS_MAX)
    sent = spark.range(0, buckets, 1, buckets).mapInArrow(
        SendPieces(str(folder / "knots"), layout), from_arrow_schema(PIECES)
    )
    find = FindContacts(layout)

    def contacts_of(group: pa.Table) -> pa.Table:  # Spark counts the arguments of plain functions alone
        return find(group)

    found = (
        sent.repartition(partitions, *GROUP)
        .groupBy(*GROUP)
        .applyInArrow(contacts_of, from_arrow_schema(CONTACTS))
    )
    found.write.parquet(str(folder / "parts"))


def _joined_at_borders(parts: DataFrame) -> DataFrame:
    """Join the contacts that were cut where one chunk ends and the next begins."""
    parts.createOrReplaceTempView("roamcast_contact_parts")
    return parts.sparkSession.sql("""
        WITH steps AS (
            SELECT sender, receiver, start, end,
                CASE WHEN start = LAG(end) OVER pair THEN 0 ELSE 1 END AS begins
            FROM roamcast_contact_parts WHERE open
            WINDOW pair AS (PARTITION BY sender, receiver ORDER BY start)),
        numbered AS (
            SELECT *, SUM(begins) OVER (PARTITION BY sender, receiver ORDER BY start) AS contact FROM steps)
        SELECT sender, receiver, start, end FROM roamcast_contact_parts WHERE NOT open
        UNION ALL
        SELECT sender, receiver, MIN(start), MAX(end) FROM numbered GROUP BY sender, receiver, contact""")


# Around the job.


@contextmanager
def _scratch(plan: Path) -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{plan.name}-", dir=plan.parent))
    except OSError as problem:
        raise FileError(str(plan), f"cannot be written: {problem.strerror or problem}") from problem
    try:
        folder.chmod(0o777 & ~_umask())  # workers of a cluster may be other users
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _watched(spark: SparkSession, progress: OnProgress | None) -> Iterator[Callable[[str], None]]:
    """A function to call with the name of each step. `progress` is called from a thread of its own."""
    if progress is None:
        yield lambda name: None
        return
    tracker: Any = spark.sparkContext.statusTracker()
    step = [""]
    ended = threading.Event()

    def begin(name: str) -> None:
        step[0] = name
        progress(name, 0, 0)

    def tell() -> None:
        while not ended.wait(POLL_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
            for stage in stages[-1:]:
                if stage is not None:
                    progress(step[0], stage.numCompletedTasks, stage.numTasks)

    thread = threading.Thread(target=tell, name="contacts-progress", daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        ended.set()
        thread.join()
