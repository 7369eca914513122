"""Very many runs: really done on a Spark cluster that loses a worker, and as metadata alone.

    python benchmarks/cluster.py [--part cluster,planned] [--runs 20000] [--planned 100000]

cluster   a standalone master and two workers of one core on loopback, with folders of their own, share only
          an object store (moto). `roamcast sweep` with dynamic allocation brings the shortest runs there are
          into the store; when half of them have ended, one worker is killed with its executor. The same sweep
          is done on this machine alone. All tables must be equal, but for what clocks say. Memory and
          processor time of the command (Python and Java), peak and sum
planned   the runs of an experiment as a sweep's driver has them, without running any: plan, batches,
          manifests written with the figures of one real run, a look at the progress, doubles dropped, tables
          made, results read. Processor seconds of each step, and the peak of memory

Exit code 1 if any table differs or a run is missing. Needs what the tests need (`make install`).
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil
import pyarrow as pa  # type: ignore[import-untyped]
from tests.lab.spark.servers import Cluster
from tests.lab.storage.object_store import object_store_here

from roamcast.lab.notebook import recorded
from roamcast.lab.run.runs import simulate
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import put_manifest
from roamcast.lab.sweep.experiment import RUNS_MAX, Experiment, load_experiment
from roamcast.lab.sweep.folder import MADE_TABLES, OK, TRACE_TABLES, RunRecord, SweepFolder, SweepSegment
from roamcast.lab.sweep.jobs import BATCH_SECONDS, CLUSTER_CORES, ITEMS_MAX, batched
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import Sweep

SEEDS = 20
SCENARIO = """
scenario = { name = "shortest", duration = 1.0 }
world = { contacts = "pair.csv" }
workload = { rate = 2.0 }
strategy = { name = "flooding" }
"""
# Executors come as tasks wait for them, and go when they have none; as hosted Spark is set up.
DYNAMIC = (
    "spark.dynamicAllocation.enabled=true",
    "spark.dynamicAllocation.initialExecutors=0",
    "spark.dynamicAllocation.executorIdleTimeout=10s",
    "spark.executor.cores=1",
    "spark.executor.memory=600m",
)
CLOCKS = ("wall_s", "seconds", "attempt")  # columns, and a metric, that differ from one sweep to the next
LOOK_SECONDS = 3.0
SPARK_VARIABLES = ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")
Made = TypeVar("Made")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", default="cluster,planned")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--planned", type=int, default=RUNS_MAX)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roamcast-") as name:
        folder = Path(name)
        parts: dict[str, Callable[[], bool]] = {
            "cluster": lambda: on_cluster(folder / "cluster", given.runs),
            "planned": lambda: planned(folder / "planned", given.planned),
        }
        met = [parts[part]() for part in given.part.split(",")]  # all of them, whatever the first says
        return int(not all(met))


def written(base: Path, runs: int) -> Path:
    """An experiment of so many runs of a second between two nodes."""
    base.mkdir()
    (base / "pair.csv").write_text("time,i,j,state\n0,0,1,up\n")
    (base / "shortest.toml").write_text(SCENARIO)
    cells = max(runs // SEEDS, 1)
    text = f'experiment = {{ name = "many", scenario = "shortest.toml", replications = {runs // cells} }}\n'
    text += f'axes = {{ "workload.rate" = {{ from = 1.0, to = 3.0, count = {max(cells, 2)} }} }}\n'
    (base / "E.toml").write_text(text)
    return base / "E.toml"


# Really done.


def on_cluster(base: Path, runs: int) -> bool:
    file = written(base, runs)
    total = len(load_experiment(file).runs())
    with object_store_here() as store:
        os.environ.update(store.environment)
        cluster = Cluster(base, store.environment)
        try:
            cluster.start()
            there = Storage.open(store.uri("many"))
            killed = _kill_when_half_is_done(cluster, there, total)
            conf = [text for setting in DYNAMIC for text in ("--conf", setting)]
            command = ["sweep", str(file), "--out", str(there), "--master", cluster.master, *conf]
            print(f"{total:,} runs on a cluster in {_measured(command)}", flush=True)
            print(f"one worker killed after {killed[0]:,} runs" if killed else "no worker was killed in time")
        finally:
            cluster.stop()
        command = ["sweep", str(file), "--out", str(base / "here")]
        print(f"{total:,} runs on this machine in {_measured(command)}", flush=True)
        differ = _differing(there, Storage.open(base / "here"))
        ended = len(SweepFolder(there).records())
        print(f"tables that differ: {', '.join(differ) or 'none'}; {ended:,} runs are in the store")
    return bool(killed) and not differ and ended == total


def _kill_when_half_is_done(cluster: Cluster, there: Storage, total: int) -> list[int]:
    """In a thread. What it returns has an entry once the worker was killed: how many runs had ended."""
    killed: list[int] = []
    folder = SweepFolder(there)

    def look() -> None:
        while not killed:
            time.sleep(LOOK_SECONDS)
            ended = len(folder.records()) if folder.experiment() is not None else 0
            if ended == total:
                return
            if ended >= total / 2:
                cluster.kill_worker()
                killed.append(ended)

    threading.Thread(target=look, daemon=True).start()
    return killed


def _measured(arguments: Sequence[str]) -> str:
    """Run the command; what it took, in words."""
    environment = {name: text for name, text in os.environ.items() if name not in SPARK_VARIABLES}
    began = time.monotonic()
    peak: dict[str, float] = {}
    spent: dict[str, float] = {}
    with subprocess.Popen([sys.executable, "-m", "roamcast", *arguments], env=environment) as started:
        driver = psutil.Process(started.pid)
        while started.poll() is None:
            try:
                java = [child for child in driver.children() if child.name() == "java"]
                for name, processes in (("Python", [driver]), ("Java", java)):
                    for process in processes:
                        peak[name] = max(peak.get(name, 0.0), process.memory_info().rss / 1e6)
                        spent[name] = max(spent.get(name, 0.0), sum(process.cpu_times()[:2]))
            except psutil.Error:
                pass  # it ended just now
            time.sleep(0.25)
    assert started.returncode == 0, f"exit code {started.returncode}"
    parts = [f"{name} {spent[name]:.1f} processor s and {peak[name]:.0f} MB" for name in sorted(peak)]
    return f"{time.monotonic() - began:.0f} s; of the command {', '.join(parts)}"


def _differing(one: Storage, other: Storage) -> list[str]:
    """The tables that are not the same rows, run by run in the same order."""
    found = []
    for name in (*TRACE_TABLES, *MADE_TABLES):
        first, second = (_rows(storage, name) for storage in (one, other))
        if not first.equals(second):
            found.append(name)
    return found


def _rows(storage: Storage, name: str) -> pa.Table:
    table = recorded(storage).arrow(name, None, None)
    table = table.drop_columns([column for column in CLOCKS if column in table.column_names])
    if name == "summary":
        return table.filter(pa.compute.field("metric") != "wall_s")
    return table.take(pa.compute.sort_indices(table["run"]))  # stable, so rows of a run stay in their order


# As metadata.


def planned(base: Path, runs: int) -> bool:
    experiment = _timed("experiment read and checked", lambda: load_experiment(written(base, runs)))
    made = _timed("sweep planned", lambda: Sweep(experiment, base / "out", resume=False))
    with made:
        made.claim()
        items = _timed("first look at what is missing", made.next)
        assert len(items) == len(experiment.runs()) // SEEDS, "one seed of each cell"
        everything = made.missing()
        batches = _timed("batches", lambda: batched([everything], CLUSTER_CORES, BATCH_SECONDS[0]))
        assert sorted(number for batch in batches for number in batch.items) == list(range(len(everything)))
        _timed("manifests written", lambda: _commit(made.folder, experiment))
        with made.watched(lambda progress: None):
            pass
        left = _timed("manifests read, nothing missing", made.missing)
        _timed("doubles looked for", made.folder.drop_doubles)
        result = _timed("checked, and tables made", made.finish)
    results = _timed("results read for a report", lambda: read_results(base / "out"))
    files = Storage.open(base / "out").files()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{result.total:,} runs, {len(batches):,} batches, {len(files):,} files, {peak:.0f} MB at most")
    return not left and result.done == len(results.runs) == len(everything)


def _commit(folder: SweepFolder, experiment: Experiment) -> None:
    """What workers would write, with the figures of one run for all; no rows."""
    plans = experiment.runs()
    one = simulate(experiment.scenario(plans[0]))
    info = msgspec.structs.replace(one.info, scenario={})
    figures = dict(one.metrics)
    digest = folder.code
    for at in range(0, len(plans), ITEMS_MAX):
        records = tuple(
            RunRecord(run=plan.run, status=OK, seconds=0.01, attempt=1, info=info, figures=figures)
            for plan in plans[at : at + ITEMS_MAX]
        )
        segment = SweepSegment(
            name=f"{records[0].run}-{at:08x}",
            version=2,
            roamcast="synthetic",
            experiment=folder.fingerprint,
            code=digest,
            metrics=experiment.metrics(),
            runs=records,
            files={},
        )
        put_manifest(folder.storage, segment.manifest, segment)


def _timed(what: str, work: Callable[[], Made]) -> Made:
    began = time.process_time()
    made = work()
    print(f"{what:34} {time.process_time() - began:8.2f} processor s", flush=True)
    return made


if __name__ == "__main__":
    sys.exit(main())
