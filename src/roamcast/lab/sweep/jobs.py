"""Jobs as Spark tasks: a task works on a batch of a job's items, and the largest batches come first.

A job is anything with numbered items that a worker can do by number: the runs of a sweep, the seeds of a
study. Several jobs go through Spark together, so that no core waits for the end of one before the next
begins. Items keep their own results, in storage; only a short answer per batch comes back.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from roamcast.lab.spark.session import parallelism
from roamcast.lab.spark.tasks import mapped

ITEMS_MAX = 256  # in a batch; chosen by us: 100,000 short runs make some hundred segments
Answer = TypeVar("Answer", covariant=True)


class Job(Protocol[Answer]):
    def work(self, items: Sequence[int], deaths: int) -> Answer:
        """Do these items, on a worker. `deaths`: how many workers died of this batch, or failed in it,
        before."""


class Batch(NamedTuple):
    """Items of one job that one task does, in this order."""

    job: int
    items: tuple[int, ...]
    weight: float  # about how long it takes, in any unit


class Item(NamedTuple):
    number: int
    weight: float


def run_jobs(
    spark: SparkSession, jobs: Sequence[Job[Answer]], items: Sequence[Sequence[Item]]
) -> list[Answer]:
    """Do the items of all jobs, in one Spark job; the answers of all batches."""
    batches = batched(items, parallelism(spark))
    return mapped(spark, _Task(tuple(jobs)), batches)


@dataclass(frozen=True)
class _Task(Generic[Answer]):
    """What a worker does with one batch. Sent once per Spark job."""

    jobs: tuple[Job[Answer], ...]

    def __call__(self, batch: Batch) -> Answer:
        context = TaskContext.get()
        deaths = 0 if context is None else context.attemptNumber()
        return self.jobs[batch.job].work(batch.items, deaths)


def batched(items: Sequence[Sequence[Item]], workers: int) -> list[Batch]:
    """Batches of each job's items, longest items and largest batches first.

    Each batch takes half of an equal share of the weight that is left: large batches while there is much to
    do, single items at the end, so that all workers end at about the same time.
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
            if taken and weight + item.weight > left / (2 * workers):
                break
            taken.append(item.number)
            weight += item.weight
            at += 1
        left -= weight
        made.append(Batch(job, tuple(taken), weight))
        if at < len(waiting[job]):
            heapq.heappush(heads, (-waiting[job][at].weight, job, at))
    return sorted(made, key=lambda batch: -batch.weight)
