"""What Spark costs: a sweep's runs as Spark tasks, against a process pool that writes the same segments.

Both are measured in this one process, with as many workers as there are cores, in turns, so that other load
on the machine affects both. The start of the session is measured separately. Exits 1 if the ratio is above
the goal.

    python benchmarks/spark_overhead.py [--runs 64] [--seconds 1.0] [--json]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import series
from roamcast.lab.run.runs import simulate
from roamcast.lab.spark.masters import usable_cores
from roamcast.lab.spark.session import session
from roamcast.lab.spark.tasks import mapped
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.jobs import Batch, Item, SweepJob, batched, run_jobs

RATIO_MAX = 1.1
TURNS = 4
TRIAL_SECONDS = 20.0  # simulated
SCENARIO: dict[str, Any] = {
    "scenario": {"name": "walkers", "duration": TRIAL_SECONDS, "seed": 1},
    "world": {
        "nodes": 50,
        "area": [1000.0, 1000.0],
        "range": 250.0,
        "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [10.0, 10.0]},
    },
    "roles": {"publishers": 5, "subscribers": 30},
    "workload": {"rate": 2.0, "size": 256},
    "strategy": {"name": "flooding"},
}


def main() -> int:
    options = parsed_options()
    experiment = runs_of_about(options.seconds, options.runs)
    with tempfile.TemporaryDirectory() as folder:
        result = measured(experiment, Path(folder))
    series.give("over a process pool", result["ratio"], judged=False)  # wall-clock
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:20} {value:10.2f}")
        print(f"Spark over a process pool: {result['ratio']:.2f} (goal: at most {RATIO_MAX})")
    return int(result["ratio"] > RATIO_MAX)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="processor time of each run, about")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def runs_of_about(seconds: float, runs: int) -> Experiment:
    """An experiment whose runs take about this long here: simulated time is scaled after a trial run."""
    trial = experiment_from("trial", SCENARIO, {"world.nodes": [50]})
    took = [timed(lambda: simulate(trial.scenario(trial.runs()[0])), time.process_time) for _ in range(3)]
    duration = max(2.0, round(TRIAL_SECONDS * seconds / min(took), 1))
    tables = {**SCENARIO, "scenario": {**SCENARIO["scenario"], "duration": duration}}
    return experiment_from("overhead", tables, {"world.nodes": [50]}, replications=runs)


def measured(experiment: Experiment, folder: Path) -> dict[str, float]:
    numbers = range(len(experiment.runs()))
    by_pool, by_spark = (SweepFolder(folder / name) for name in ("pool", "spark"))
    for made in (by_pool, by_spark):
        made.claim(experiment)
    pool_job, spark_job = (SweepJob(made.storage, experiment, {}, 10.0) for made in (by_pool, by_spark))
    pool_s = spark_s = 0.0
    with ProcessPoolExecutor(usable_cores(), mp_context=get_context("fork")) as pool:
        pool_s += timed(lambda: list(pool.map(abs, range(usable_cores()))))  # forks, before Java is there
        start_s = timed(start)
        for turn in range(TURNS):
            share = [Item(number, 1.0) for number in numbers[turn::TURNS]]
            pool_s += timed(partial(run_in_pool, pool, pool_job, share))
            spark_s += timed(partial(run_jobs, session(), [spark_job], [share]))
    ended = [list(made.records().values()) for made in (by_pool, by_spark)]
    for records in ended:
        assert len(records) == len(numbers) and all(record.status == "ok" for record in records)
    return {
        "runs": len(numbers),
        "workers": usable_cores(),
        "pool_s_per_run": sum(record.seconds for record in ended[0]) / len(numbers),
        "spark_s_per_run": sum(record.seconds for record in ended[1]) / len(numbers),
        "session_start_s": start_s,
        "pool_s": pool_s,
        "spark_s": spark_s,
        "ratio": spark_s / pool_s,
    }


def start() -> None:
    """Start a session with its Python workers, as the pool has its own: both start once per sweep."""
    mapped(session(), abs, range(usable_cores()))


def run_in_pool(pool: ProcessPoolExecutor, job: SweepJob, share: list[Item]) -> None:
    """The same batches, so that only who runs them differs."""
    list(pool.map(partial(work, job), batched([share], usable_cores())))


def work(job: SweepJob, batch: Batch) -> list[str]:
    return job.work(batch.items, 0)


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


if __name__ == "__main__":
    sys.exit(main())
