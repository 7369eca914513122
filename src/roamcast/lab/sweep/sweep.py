"""Sweeps: every run of an experiment as one Spark task, then their metrics as one Spark job.

A task writes its own Parquet files (`folder.py`) and sends nothing back: rows that travel through
Spark cost more than the runs. An error inside a run becomes its record, so it never ends the sweep. Spark
retries the task of a worker that died; a run that keeps killing its workers is recorded as failed.
"""

import gc
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.errors import RoamcastError
from roamcast.lab.run.derived import TABLES
from roamcast.lab.run.metrics import COLUMNS, METRICS, RUN_COLUMNS, query
from roamcast.lab.run.tables import schema, with_run
from roamcast.lab.spark.session import TASK_FAILURES_MAX, with_session
from roamcast.lab.sweep.experiment import Experiment, RunPlan, cells
from roamcast.lab.sweep.folder import (
    FAILED,
    OK,
    RunRecord,
    SweepFolder,
    axis_fields,
    axis_row,
    runs_table,
)
from roamcast.lab.sweep.summary import summary_table
from roamcast.plugins import NOTHING_SHIPPED, Shipment
from roamcast.registry import PluginError
from roamcast.scenario import scenario_from

POLL_SECONDS = 0.5
KEPT = "the runs that ended are kept, and --resume runs the rest"


class Progress(NamedTuple):
    """How far a sweep is. `done` includes `failed`; `seconds_left` is None until a run has ended."""

    done: int
    failed: int
    total: int
    seconds_left: float | None


class SweepResult(NamedTuple):
    """What a folder holds after a sweep. `ran`: how many of its runs this call ran."""

    done: int
    failed: int
    total: int
    ran: int


def sweep(
    experiment: Experiment,
    out: Path,
    master: str | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> SweepResult:
    """Run what `out` does not have yet, and rebuild its tables.

    With `resume`, what failed before is run again too. On a cluster, `out` and the scenario's folder must
    be storage that every worker sees.
    """
    folder = SweepFolder(out)
    folder.claim(experiment, resume)
    plans = experiment.runs()
    wanted = _wanted(folder, plans)
    if wanted:
        before = folder.recorded()

        def run_missing(spark: SparkSession) -> None:
            """Called again after Java died, it skips the runs that have been recorded since."""
            since = folder.recorded() - before
            run_all(spark, experiment, folder, [each for each in wanted if each[0].run not in since])

        with _watched(folder, plans, wanted, progress):
            with_session(master, run_missing, KEPT)
    records = [folder.record(plan.run) for plan in plans]
    runs = runs_table(experiment, list(zip(plans, records, strict=True)))
    if not folder.is_measured(runs):
        with_session(master, lambda spark: make_tables(spark, experiment, folder, runs), KEPT)
    folder.clean()
    failed = sum(record.status == FAILED for record in records)
    return SweepResult(len(plans) - failed, failed, len(plans), len(wanted))


def run_all(
    spark: SparkSession, experiment: Experiment, folder: SweepFolder, wanted: list[tuple[RunPlan, int]]
) -> None:
    """One task per run; each run comes with the number of attempts that it had before."""
    work = RunTask(folder.path, experiment.tables, experiment.base, experiment.plugins)
    context = spark.sparkContext
    if wanted:
        context.parallelize(wanted, len(wanted)).foreach(work)


def make_tables(spark: SparkSession, experiment: Experiment, folder: SweepFolder, runs: pa.Table) -> None:
    """`metrics` and `summary` from the trace tables; then `runs`, whose presence says that they are done."""
    described = ["cell", *(field.name for field in axis_fields(experiment)), "seed"]
    metrics = _joined(runs.select(["run", *described]), measured(spark, folder, runs))
    folder.put_table("metrics", metrics)
    rows = [axis_row(experiment, axes) for axes in cells(experiment.axes)]
    folder.put_table("summary", summary_table(metrics, list(METRICS), rows, axis_fields(experiment)))
    folder.put_table("runs", runs)


def measured(spark: SparkSession, folder: SweepFolder, runs: pa.Table) -> pa.Table:
    """A row of metrics for each run that is ok, computed in Spark over the trace tables."""
    catalog = spark.newSession()  # so that the tables' names are visible only here
    for kind in TABLES:
        if kind.TABLE in COLUMNS:
            written = from_arrow_schema(with_run(schema(kind).empty_table(), "").schema)
            table = catalog.read.schema(written).parquet(str(folder.path / kind.TABLE))
            table.select("run", *COLUMNS[kind.TABLE]).createOrReplaceTempView(kind.TABLE)
    ended_well = runs.filter(pc.equal(runs["status"], OK)).select(["run", *RUN_COLUMNS])
    catalog.createDataFrame(ended_well).createOrReplaceTempView("runs")
    return catalog.sql(query()).toArrow()


# On the driver.


def _wanted(folder: SweepFolder, plans: list[RunPlan]) -> list[tuple[RunPlan, int]]:
    """The runs that are missing or failed, each with the number of attempts that it had before."""
    recorded = folder.recorded()
    wanted = []
    for plan in plans:
        if plan.run not in recorded:
            wanted.append((plan, 0))
        elif (record := folder.record(plan.run)).status == FAILED:
            wanted.append((plan, record.attempt))
    return wanted


@contextmanager
def _watched(
    folder: SweepFolder,
    plans: list[RunPlan],
    wanted: list[tuple[RunPlan, int]],
    progress: Callable[[Progress], None] | None,
) -> Iterator[None]:
    """Call `progress` with the number of records every `POLL_SECONDS`, from a thread of its own."""
    if progress is None:
        yield
        return
    watch = _Watch(folder, plans, wanted)
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(POLL_SECONDS):
            progress(watch.look())

    progress(watch.look())
    thread = threading.Thread(target=tell, name="sweep-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        progress(watch.look())


class _Watch:
    """Counts the records in the manifest; each is read once."""

    def __init__(self, folder: SweepFolder, plans: list[RunPlan], wanted: list[tuple[RunPlan, int]]) -> None:
        self._folder = folder
        self._total = len(plans)
        self._attempts = {plan.run: attempts for plan, attempts in wanted}
        self._before = len(plans) - len(wanted)
        self._statuses: dict[str, str] = {}
        self._began = time.monotonic()

    def look(self) -> Progress:
        for run in sorted(self._folder.recorded() & self._attempts.keys() - self._statuses.keys()):
            record = self._folder.record(run)
            if record.attempt > self._attempts[run]:  # else it is the failure that is being tried again
                self._statuses[run] = record.status
        ran = len(self._statuses)
        failed = sum(status == FAILED for status in self._statuses.values())
        left = None
        if ran:
            left = (time.monotonic() - self._began) / ran * (len(self._attempts) - ran)
        return Progress(self._before + ran, failed, self._total, left)


def _joined(described: pa.Table, figures: pa.Table) -> pa.Table:
    """Each run's description and figures, in the order of the plan; runs without figures are left out."""
    rows = {run: row for row, run in enumerate(figures["run"].to_pylist())}
    present = [index for index, run in enumerate(described["run"].to_pylist()) if run in rows]
    joined = described.take(pa.array(present, pa.int64()))  # typed: there may be none
    order = pa.array([rows[run] for run in joined["run"].to_pylist()], pa.int64())
    for name in METRICS:
        joined = joined.append_column(name, figures[name].take(order))
    return joined.combine_chunks()


# On a worker.


@dataclass(frozen=True)
class RunTask:
    """What a worker does with one run. Sent once per sweep; the scenario is in it as plain values, plug-ins
    from beside a file as their text."""

    folder: Path
    tables: Mapping[str, Any]
    base: Path
    plugins: Shipment = NOTHING_SHIPPED

    def __call__(self, wanted: tuple[RunPlan, int]) -> None:
        plan, attempts = wanted
        context = TaskContext.get()
        self.run(plan, attempts, 0 if context is None else context.attemptNumber())

    def run(self, plan: RunPlan, attempts: int, deaths: int) -> None:
        """Run and record. `attempts`: those of earlier sweeps; `deaths`: of workers in this sweep."""
        folder = SweepFolder(self.folder)
        began = time.monotonic()
        attempt = attempts + deaths + 1
        if deaths >= TASK_FAILURES_MAX - 1:  # one more, and Spark would end the sweep
            error = f"given up after its worker died {deaths} times: killed, or out of memory"
            folder.put_record(
                RunRecord(run=plan.run, status=FAILED, error=error, seconds=0.0, attempt=attempt)
            )
            return
        try:
            self._run(folder, plan, attempt, began)
        except Exception as error:
            folder.put_record(
                RunRecord(
                    run=plan.run,
                    status=FAILED,
                    error=_in_a_line(error),
                    traceback=traceback.format_exc(),
                    seconds=time.monotonic() - began,
                    attempt=attempt,
                )
            )

    def _run(self, folder: SweepFolder, plan: RunPlan, attempt: int, began: float) -> None:
        from roamcast.lab.run.runs import simulate  # here: the driver needs none of the simulator

        self._load_plugins()
        _settle()
        result = simulate(scenario_from(self.tables, self.base, plan.settings, loads_modules=False))
        folder.put_run(
            plan,
            result.tables,
            RunRecord(
                run=plan.run,
                status=OK,
                seconds=time.monotonic() - began,
                attempt=attempt,
                info=result.info,
            ),
        )

    def _load_plugins(self) -> None:
        try:
            self.plugins.unpack()
        except PluginError as error:
            raise PluginError(error.where, f"{error.problem} (on the worker {gethostname()})") from error


@cache
def _settle() -> None:
    """Once per worker process, when all modules are loaded."""
    pa.set_cpu_count(1)  # the other cores have runs of their own
    pa.set_io_thread_count(1)
    # Spark's workers collect garbage after every task: 80 ms spent on modules that are never garbage.
    gc.collect()
    gc.freeze()


def _in_a_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RoamcastError) else f"{type(error).__name__}: {text}".removesuffix(": ")
