"""What Spark costs: a sweep's runs as Spark tasks, against a plain process pool that writes the same files.

Both are measured in this one process, with as many workers as there are cores, in turns, so that other load
on the machine affects both. The start of the session and the metrics of the sweep are measured separately.
Exits 1 if the ratio is above the goal.

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

from roamcast.lab.run.runs import simulate
from roamcast.lab.spark.session import session, usable_cores
from roamcast.lab.sweep.experiment import Experiment, RunPlan, experiment_from
from roamcast.lab.sweep.folder import SweepFolder, runs_table
from roamcast.lab.sweep.sweep import RunTask, make_tables, run_all

RATIO_MAX = 1.25
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
    plans = experiment.runs()
    by_pool, by_spark = SweepFolder(folder / "pool"), SweepFolder(folder / "spark")
    for made in (by_pool, by_spark):
        made.claim(experiment, resume=False)
    pool_s = spark_s = 0.0
    with ProcessPoolExecutor(usable_cores(), mp_context=get_context("fork")) as pool:
        pool_s += timed(lambda: list(pool.map(abs, range(usable_cores()))))  # forks, before Java is there
        start_s = timed(start)
        for turn in range(TURNS):
            share = [(plan, 0) for plan in plans[turn::TURNS]]
            pool_s += timed(partial(run_in_pool, pool, experiment, by_pool, share))
            spark_s += timed(partial(run_all, session(), experiment, by_spark, share))
    records = [by_spark.record(plan.run) for plan in plans]
    pool_records = [by_pool.record(plan.run) for plan in plans]
    assert all(record.status == "ok" for record in records + pool_records), records[0].error
    runs = runs_table(experiment, list(zip(plans, records, strict=True)))
    tables_s = timed(lambda: make_tables(session(), experiment, by_spark, runs))
    return {
        "runs": len(plans),
        "workers": usable_cores(),
        "pool_s_per_run": sum(record.seconds for record in pool_records) / len(plans),
        "spark_s_per_run": sum(record.seconds for record in records) / len(plans),
        "session_start_s": start_s,
        "pool_s": pool_s,
        "spark_s": spark_s,
        "tables_s": tables_s,
        "ratio": spark_s / pool_s,
    }


def start() -> None:
    """Start a session with its Python workers, as the pool has its own: both start once per sweep."""
    session().sparkContext.parallelize(range(usable_cores()), usable_cores()).map(abs).collect()


def run_in_pool(
    pool: ProcessPoolExecutor, experiment: Experiment, folder: SweepFolder, share: list[tuple[RunPlan, int]]
) -> None:
    list(pool.map(RunTask(folder.path, experiment.tables, experiment.base), share))


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


if __name__ == "__main__":
    sys.exit(main())
