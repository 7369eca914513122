"""What a sweep of many short runs costs: files, and processor seconds of its tasks and of what follows them.

Each size is swept in a fresh process with a session of its own. Processor seconds of the runs are those of
the command, its Java and its workers; those of the stage after the runs (verifying, tables, Spark's SQL over
a sample) are of the command and its Java. Exits 1 if that stage is above its goal for 300 runs.

    python benchmarks/sweep.py [--runs 300 900] [--json]
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import series
from roamcast.lab.storage import Storage

STAGE_SECONDS_MAX = 5.0  # processor seconds, for 300 runs
SCENARIO = """
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
    parser.add_argument("--runs", type=int, nargs="+", default=[300, 900])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [measured(count) for count in options.runs]
    series.give("after 300 runs", found[0]["stage_cpu_s"] / series.calibration(), judged=False)  # mostly Java
    if options.json:
        print(json.dumps(found))
    else:
        for name in found[0]:
            print(f"{name:14}", *(f"{each[name]:12,.2f}" for each in found))
        for before, after in itertools.pairwise(found):
            more = after["runs"] - before["runs"]
            for name in ("runs_cpu_s", "stage_cpu_s", "files"):
                print(f"{name} of 1,000 runs more: {(after[name] - before[name]) / more * 1000:.1f}")
    slow = [each for each in found if each["runs"] <= 300 and each["stage_cpu_s"] > STAGE_SECONDS_MAX]
    return int(bool(slow))


def measured(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "short.toml").write_text(SCENARIO)
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
