"""What sweeps cost on Spark, in two parts.

    python benchmarks/sweep.py [--part pool,short] [--runs 300 900] [--json]

pool    64 runs of about a second as Spark tasks, against a process pool that writes the same segments. Both
        are measured in this one process, with as many workers as there are cores, in turns, so that other
        load on the machine affects both; the start of the session apart. Exit code 1 if the ratio is above
        the goal
short   many short runs: files, and processor seconds. Each size is swept in a fresh process with a session
        of its own. Processor seconds of the runs are those of the command, its Java and its workers; those
        of the stage after the runs (verifying, tables, Spark's SQL over a sample) are of the command and
        its Java. Exit code 1 if that stage is above its goal for 300 runs
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import series
from roamcast.lab.run.runs import simulate
from roamcast.lab.spark.session import mapped, session
from roamcast.lab.spark.settings import usable_cores
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.jobs import Batch, Item, SweepJob, batched, run_jobs

RATIO_MAX = 1.1
STAGE_SECONDS_MAX = 5.0  # processor seconds, for 300 runs
POOL_RUNS, TURNS = 64, 4
TRIAL_SECONDS = 20.0  # simulated
WALKERS: dict[str, Any] = {
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
SHORT = """
[scenario]
name = "short"
duration = 10.0
seed = 1

[world]
nodes = 10
area = [300.0, 300.0]
range = 120.0
mobility = { model = "random_waypoint", speed = [1.0, 20.0], pause = [1.0, 1.0] }

[roles]
publishers = 2

[workload]
rate = 2.0

[strategy]
name = "flooding"
"""
# A sweep in this process, in two parts: the runs, and what follows. Prints what each took.
MEASURED = """
import json, os, sys, time, psutil
from roamcast.lab.spark.session import session
from roamcast.lab.sweep.experiment import load_experiment
from roamcast.lab.sweep.sweep import Sweep, run_sweeps

def spent(workers):
    # Of this process and Java; of the workers too, as long as none of them has ended.
    family = psutil.Process().children(recursive=True)
    counted = [p for p in family if p.status() != "zombie" and (workers or p.name() == "java")]
    return sum(sum(process.cpu_times()[:2]) for process in [psutil.Process(), *counted])

def timed(work, workers=False):
    wall, processor = time.monotonic(), spent(workers)
    made = work()
    return made, time.monotonic() - wall, spent(workers) - processor

_, start_s, start_cpu_s = timed(session)
experiment, check_s, _ = timed(lambda: load_experiment(sys.argv[1]))
made = Sweep(experiment, sys.argv[2], False)
_, runs_s, runs_cpu_s = timed(lambda: run_sweeps(None, [made]), workers=True)
result, stage_s, stage_cpu_s = timed(made.finish)
assert result.failed == 0
print(json.dumps({
    "runs": result.total, "verified": result.verified, "start_s": start_s, "start_cpu_s": start_cpu_s,
    "check_s": check_s, "runs_s": runs_s, "runs_cpu_s": runs_cpu_s, "stage_s": stage_s, "stage_cpu_s":
    stage_cpu_s, "run_s": sum(record.seconds for record in made.folder.records().values()),
}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", default="pool,short")
    parser.add_argument("--runs", type=int, nargs="+", default=[300, 900])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts: dict[str, Callable[[], bool]] = {
        "pool": partial(against_pool, options.json),
        "short": partial(short_runs, options.runs, options.json),
    }
    met = [parts[name]() for name in options.part.split(",")]
    return int(not all(met))


# Spark beside a process pool.


def against_pool(as_json: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        result = in_turns(runs_of_about(1.0, POOL_RUNS), Path(folder))
    series.give("over a process pool", result["ratio"], judged=False)  # wall-clock
    if as_json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:20} {value:10.2f}")
        print(f"Spark over a process pool: {result['ratio']:.2f} (goal: at most {RATIO_MAX})")
    return result["ratio"] <= RATIO_MAX


def runs_of_about(seconds: float, runs: int) -> Experiment:
    """An experiment whose runs take about this long here: simulated time is scaled after a trial run."""
    trial = experiment_from("trial", WALKERS, {"world.nodes": [50]})
    took = [timed(lambda: simulate(trial.scenario(trial.runs()[0])), time.process_time) for _ in range(3)]
    duration = max(2.0, round(TRIAL_SECONDS * seconds / min(took), 1))
    tables = {**WALKERS, "scenario": {**WALKERS["scenario"], "duration": duration}}
    return experiment_from("overhead", tables, {"world.nodes": [50]}, replications=runs)


def in_turns(experiment: Experiment, folder: Path) -> dict[str, float]:
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


# Many short runs.


def short_runs(counts: Sequence[int], as_json: bool) -> bool:
    found = [swept(count) for count in counts]
    series.give("after 300 runs", found[0]["stage_cpu_s"] / series.calibration(), judged=False)  # mostly Java
    if as_json:
        print(json.dumps(found))
    else:
        for name in found[0]:
            print(f"{name:14}", *(f"{each[name]:12,.2f}" for each in found))
        for before, after in itertools.pairwise(found):
            more = after["runs"] - before["runs"]
            for name in ("runs_cpu_s", "stage_cpu_s", "files"):
                print(f"{name} of 1,000 runs more: {(after[name] - before[name]) / more * 1000:.1f}")
    slow = [each for each in found if each["runs"] <= 300 and each["stage_cpu_s"] > STAGE_SECONDS_MAX]
    return not slow


def swept(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "short.toml").write_text(SHORT)
        cells = max(1, count // 10)
        text = f'[experiment]\nname = "short"\nscenario = "short.toml"\nreplications = {count // cells}\n'
        text += f'[axes]\n"workload.rate" = {{ from = 1.0, to = 3.0, count = {cells} }}\n'
        (base / "E.toml").write_text(text)
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-c", MEASURED, base / "E.toml", base / "out"],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        found: dict[str, Any] = json.loads(ended.stdout)
        files = Storage.open(base / "out").files()
        return found | {
            "total_s": time.monotonic() - began,
            "files": len(files),
            "megabytes": sum(files.values()) / 1e6,
        }


if __name__ == "__main__":
    sys.exit(main())
