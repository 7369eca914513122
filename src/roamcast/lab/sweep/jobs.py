"""The runs of sweeps as Spark tasks: a task does a batch of a sweep's runs, and the largest batches come
first.

Several sweeps go through Spark together, so that no core waits for the end of one before the next begins. A
run keeps its own results, in segments (`folder.py`), with the figures that it measured; only the names of
what was committed come back, because rows that travel through Spark cost more than the runs. An error inside
a run becomes its record, so it never ends the sweep. Spark repeats the batch of a worker that died; what was
committed of it is not run again, and a run that keeps killing its workers is recorded as failed.
"""

import atexit
import gc
import heapq
import shutil
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from socket import gethostname
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import SparkSession

from roamcast.errors import RoamcastError
from roamcast.lab.spark.session import cores_of, mapped
from roamcast.lab.spark.settings import TASK_FAILURES_MAX
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment, RunPlan
from roamcast.lab.sweep.folder import FAILED, OK, RunRecord, SweepFolder
from roamcast.registry import PluginError

ITEMS_MAX = 256  # in a batch; chosen by us: 100,000 short runs make some hundred segments
# Of estimated work in a batch, least and most, on a cluster. Its cores are not known: with dynamic allocation
# it has few when a sweep begins, and gets more where more tasks wait than it has cores for. So batches are
# cut by time, as for many cores; 5 s make Spark's own work for a task (some 20 ms) 0.4 %. Chosen by us.
BATCH_SECONDS = 5.0, 60.0
CLUSTER_CORES = 200
COMMIT_ROWS = 1_000_000  # in a segment, at most by one run more; some 100 MB of memory
CARRIED_MAX = 1_000_000  # octets of the files that go with a job; chosen by us: what costs nothing to send

Carried: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names relative to the scenario's folder, and contents."""


class Batch(NamedTuple):
    """Runs of one sweep that one task does, in this order."""

    job: int
    items: tuple[int, ...]
    weight: float  # about how many seconds it takes


class Item(NamedTuple):
    number: int
    weight: float


def run_jobs(
    spark: SparkSession, jobs: Sequence["SweepJob"], items: Sequence[Sequence[Item]]
) -> list[list[str]]:
    """Do the runs of all sweeps, in one Spark job; the manifests of all batches."""
    cores = cores_of(spark)
    made = batched(items, cores) if cores is not None else batched(items, CLUSTER_CORES, BATCH_SECONDS[0])
    return mapped(spark, _Task(tuple(jobs)), made)


@dataclass(frozen=True)
class _Task:
    """What a worker does with one batch. Sent once per Spark job."""

    jobs: tuple["SweepJob", ...]

    def __call__(self, batch: Batch) -> list[str]:
        context = TaskContext.get()
        deaths = 0 if context is None else context.attemptNumber()
        return self.jobs[batch.job].work(batch.items, deaths)


def batched(items: Sequence[Sequence[Item]], workers: int, least: float = 0.0) -> list[Batch]:
    """Batches of each job's items, longest items and largest batches first.

    Each batch takes half of an equal share of the weight that is left: large batches while there is much to
    do, single items at the end, so that all workers end at about the same time. None is cut to less than
    `least`, or takes more than `BATCH_SECONDS`, unless it is a single item.
    """
    waiting = [sorted(of_job, key=lambda item: (-item.weight, item.number)) for of_job in items]
    left = sum(item.weight for of_job in waiting for item in of_job)
    heads = [(-of_job[0].weight, job, 0) for job, of_job in enumerate(waiting) if of_job]
    heapq.heapify(heads)
    made = []
    while heads:
        _, job, at = heapq.heappop(heads)  # of the job whose longest item is the longest
        taken: list[int] = []
        weight = 0.0
        while at < len(waiting[job]) and len(taken) < ITEMS_MAX:
            item = waiting[job][at]
            if taken and weight + item.weight > min(max(left / (2 * workers), least), BATCH_SECONDS[1]):
                break
            taken.append(item.number)
            weight += item.weight
            at += 1
        left -= weight
        made.append(Batch(job, tuple(taken), weight))
        if at < len(waiting[job]):
            heapq.heappush(heads, (-waiting[job][at].weight, job, at))
    return sorted(made, key=lambda batch: -batch.weight)


# On a worker.


@dataclass(frozen=True)
class SweepJob:
    """What workers do with the runs of one sweep. The scenario travels as plain values, plug-ins from beside
    a file as their text."""

    storage: Storage
    experiment: Experiment
    attempts: Mapping[int, int]  # of earlier sweeps, by run
    commit_seconds: float
    files: Carried = ()  # that the runs read, if they are small

    def work(self, items: Sequence[int], deaths: int) -> list[str]:
        """Run and commit. Gives the manifests, by their full names. `deaths`: how many workers died of this
        batch, or failed in it, before."""
        folder = SweepFolder(self.storage)
        committed: list[str] = []
        pending: list[tuple[RunRecord, Mapping[str, pa.Table]]] = []
        known = folder.records() if deaths else {}
        began = time.process_time()  # of work, however busy the machine is

        def commit() -> None:
            if pending:
                segment = folder.commit(pending, self.experiment.metrics())
                committed.append(self.storage.name(segment.manifest))
                pending.clear()

        for number in items:
            plan = self.experiment.run(number)
            before = self.attempts.get(number, 0)
            if plan.run in known and known[plan.run].attempt > before:
                continue  # committed before the worker died
            if deaths >= TASK_FAILURES_MAX - 1:  # one more, and Spark would end the sweep
                error = f"given up after its worker died {deaths} times: killed, or out of memory"
                pending.append((_failed(plan, error, 0.0, before + deaths + 1), {}))
                break  # what is left of the batch gets another task
            pending.append(self._ended(plan, before + deaths + 1))
            rows = sum(sum(record.rows.values()) for record, _ in pending)
            # After a death, one by one: so the run that killed the worker is the first that is not there.
            if deaths or rows >= COMMIT_ROWS or time.process_time() - began >= self.commit_seconds:
                commit()
                began = time.process_time()
        commit()
        return committed

    def _ended(self, plan: RunPlan, attempt: int) -> tuple[RunRecord, Mapping[str, pa.Table]]:
        began = time.monotonic()
        try:
            self._load_plugins()
            _settle()
            base = unpacked(self.files) if self.files else self.experiment.base
            result = self.experiment.result(plan, base)
        except Exception as error:
            failed = _failed(plan, _in_a_line(error), time.monotonic() - began, attempt)
            return msgspec.structs.replace(failed, traceback=traceback.format_exc()), {}
        return RunRecord(
            run=plan.run,
            status=OK,
            seconds=time.monotonic() - began,
            attempt=attempt,
            info=msgspec.structs.replace(result.info, scenario={}),
            figures={name: value for name, value in result.metrics.items() if value is not None},
            rows={name: len(table) for name, table in result.tables.items() if len(table)},
        ), result.tables

    def _load_plugins(self) -> None:
        try:
            self.experiment.plugins.unpack()
        except PluginError as error:
            raise PluginError(error.where, f"{error.problem} (on the worker {gethostname()})") from error


def _failed(plan: RunPlan, error: str, seconds: float, attempt: int) -> RunRecord:
    return RunRecord(run=plan.run, status=FAILED, error=error, seconds=seconds, attempt=attempt)


@cache
def _settle() -> None:
    """Prepare a worker process: called once, when all modules are loaded."""
    pa.set_cpu_count(1)  # the other cores have runs of their own
    pa.set_io_thread_count(1)
    # Spark's workers collect garbage after every task: 80 ms spent on modules that are never garbage.
    gc.collect()
    gc.freeze()


def _in_a_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RoamcastError) else f"{type(error).__name__}: {text}".removesuffix(": ")


# Small files that runs read, carried to the workers: a cluster need not share the folder of a scenario.
# Recordings that are larger stay where they are and must be in storage that every worker sees.


def carried(experiment: Experiment) -> Carried:
    """All files that the experiment's runs read; none if they are too large, or outside its
    folder."""
    names = [name for name in experiment.files if name not in experiment.plugins.digests]
    if any(PurePath(name).is_absolute() or ".." in PurePath(name).parts for name in names):
        return ()
    try:
        if sum((experiment.base / name).stat().st_size for name in names) > CARRIED_MAX:
            return ()
        return tuple((name, (experiment.base / name).read_bytes()) for name in names)
    except OSError:  # the run that reads the file will name it, and say why it cannot be read
        return ()


def unpacked(files: Carried) -> Path:
    """On a worker: a folder with the files, made once and removed with this process, or with Spark's own."""
    folder = _unpacked(files)
    if not folder.is_dir():  # the session that it was made for has ended, and this process serves another
        _unpacked.cache_clear()
        folder = _unpacked(files)
    return folder


@cache
def _unpacked(files: Carried) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="roamcast-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
