"""Contact plans on Spark: time, memory and cost per fix, beside the core's plan in memory.

    python benchmarks/spark_contacts.py [--json] [--vehicles N]… [--stray]
    python benchmarks/spark_contacts.py --steps [--vehicles N] [--stray] [--limit MB]

500, 1,000 and 2,000 vehicles on a street grid, one fix per second for an hour, range 100 m, at the same
density (one vehicle per 200 m × 200 m). The trace is a CSV file made here. Each case runs in a process of its
own; time counts from the trace on disk to the plan on disk, the start of the Spark session apart; memory is
the largest sum of the resident memory of that process and all below it (Java, Python workers), sampled from
/proc four times a second; shared pages count once per process.

The baseline is the core: the same file read and planned in memory by one process. The contacts must be equal.

Exit code 1 if 2,000 vehicles take 30 s or 8 GB or more, or a plan differs from the core's. `--stray` adds a
fix of one vehicle 30 days later.

`--steps` runs what workers do, task after task, in one process without Spark, and says how many processor
seconds each step takes: a busy machine disturbs that less. `--limit` allows that process so much memory for
its data (RLIMIT_DATA), so that a trace that is larger shows that none of it is held as a whole.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

VEHICLES = (500, 1000, 2000)
AREA_PER_VEHICLE = 200.0 * 200.0  # m²
BLOCK = 100.0  # m between streets
DURATION_S = 3600
RANGE_M = 100.0
SECONDS_ALLOWED = 30.0
MEGABYTES_ALLOWED = 8000.0
SAMPLE_SECONDS = 0.25


def main() -> int:
    arguments = argparse.ArgumentParser(description="time and memory of contact plans on Spark")
    arguments.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    arguments.add_argument("--vehicles", type=int, action="append", help="instead of 500, 1000 and 2000")
    arguments.add_argument("--stray", action="store_true", help="add one fix 30 days later")
    arguments.add_argument(
        "--steps", action="store_true", help="processor seconds of each step, without Spark"
    )
    arguments.add_argument("--limit", type=int, metavar="MB", help="memory of --steps")
    arguments.add_argument("--case", nargs=3, metavar=("WAY", "TRACE", "PLAN"), help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.case:
        way, trace, plan = chosen.case
        print(json.dumps(by_spark(Path(trace), Path(plan)) if way == "spark" else in_memory(Path(trace))))
        return 0
    if chosen.steps:
        return by_steps((chosen.vehicles or [VEHICLES[-1]])[0], chosen.stray, chosen.limit)
    report = benchmark(chosen.vehicles or list(VEHICLES), chosen.stray, quiet=chosen.json)
    if chosen.json:
        print(json.dumps(report))
    return 0 if report["within_limits"] and report["equal"] else 1


def benchmark(sizes: list[int], stray: bool, *, quiet: bool) -> dict[str, Any]:
    if not quiet:
        heads = f"{'way':8} {'vehicles':>8} {'fixes':>9} {'contacts':>9}"
        print(f"{heads} {'seconds':>8} {'µs/fix':>7} {'peak MB':>8}")
    results = []
    with tempfile.TemporaryDirectory(prefix="roamcast-benchmark-") as name:
        folder = Path(name)
        for vehicles in sizes:
            trace = folder / f"{vehicles}.csv"
            write_trace(trace, vehicles, stray)
            for way in ("spark", "core"):
                result = in_own_process(way, vehicles, trace, folder / f"{vehicles}.parquet")
                results.append(result)
                if not quiet:
                    print(
                        f"{way:8} {vehicles:8d} {result['fixes']:9d} {result['contacts']:9d}"
                        f" {result['seconds']:8.1f} {result['seconds'] / result['fixes'] * 1e6:7.2f}"
                        f" {result['megabytes']:8.0f}",
                        flush=True,
                    )
            trace.unlink()
    spark = [result for result in results if result["way"] == "spark"]
    core = [result for result in results if result["way"] == "core"]
    report = {
        "results": results,
        "seconds_over_core": [a["seconds"] / b["seconds"] for a, b in zip(spark, core, strict=True)],
        "equal": all(a["digest"] == b["digest"] for a, b in zip(spark, core, strict=True)),
        "within_limits": spark[-1]["seconds"] < SECONDS_ALLOWED
        and spark[-1]["megabytes"] < MEGABYTES_ALLOWED,
    }
    if not quiet:
        ratios = ", ".join(f"{ratio:.2f}" for ratio in report["seconds_over_core"])
        print(f"Spark / core in memory: {ratios}")
        print("plans equal the core's" if report["equal"] else "PLANS DIFFER FROM THE CORE'S")
        print("within limits" if report["within_limits"] else "over the limits of 30 s and 8 GB")
    return report


def by_steps(vehicles: int, stray: bool, limit: int | None) -> int:
    import resource

    import pyarrow as pa  # type: ignore[import-untyped]

    from roamcast.lab.recordings import contacts, recording

    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own reserves a gigabyte at once

    def mapped(_: object, work: Any, values: Any) -> list[Any]:
        begin = time.process_time()
        made = [work(value) for value in values]
        print(
            f"{type(work).__name__:18} {len(values):5d} tasks {time.process_time() - begin:8.1f} s",
            flush=True,
        )
        return made

    here: dict[str, Any] = {"mapped": mapped, "parallelism": lambda _: 2, "is_remote": lambda _: True}
    here["with_session"] = lambda _, work: work(None)
    for module in (contacts, recording):
        for name in here.keys() & vars(module).keys():
            setattr(module, name, here[name])
    with tempfile.TemporaryDirectory(prefix="roamcast-benchmark-") as folder:
        trace = Path(folder) / "trace.csv"
        write_trace(trace, vehicles, stray)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit * 1_000_000, limit * 1_000_000))
        begin = time.process_time()
        found = contacts.contacts(trace, RANGE_M, Path(folder) / "plan.parquet")
        elapsed = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(
            f"{found.contacts} contacts of {found.fixes} fixes, {trace.stat().st_size / 1e6:.0f} MB of text"
        )
        print(f"{elapsed:.1f} processor seconds, {peak:.0f} MB at the peak")
    return 0


def write_trace(path: Path, vehicles: int, stray: bool = False) -> None:
    """Vehicles that drive along streets and turn at random at crossings, one row per vehicle and second."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]

    chance = np.random.default_rng(1)
    blocks = max(2, round(math.sqrt(vehicles * AREA_PER_VEHICLE) / BLOCK))
    crossing = chance.integers(0, blocks, (vehicles, 2)).astype(np.float64)
    heading = chance.integers(0, 4, vehicles)
    along = chance.random(vehicles)  # share of the block that is behind the vehicle
    speed = chance.uniform(5.0, 15.0, vehicles) / BLOCK
    steps = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)], dtype=np.float64)
    node = np.arange(vehicles)
    schema = pa.schema([("node", pa.int64()), ("time", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    plain = arrow_csv.WriteOptions(include_header=False)
    with path.open("wb") as file, arrow_csv.CSVWriter(file, schema, write_options=plain) as writer:
        file.write(b"node,time,x,y\n")
        for second in range(DURATION_S):
            place = (crossing + steps[heading] * along[:, None]) * BLOCK
            place = np.round(place, 2)
            columns = [node, np.full(vehicles, second), place[:, 0], place[:, 1]]
            writer.write_table(pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
            along = along + speed
            arrived = np.flatnonzero(along >= 1.0)
            crossing[arrived] += steps[heading[arrived]]
            along[arrived] -= 1.0
            heading[arrived] = chance.integers(0, 4, len(arrived))
            ahead = crossing[arrived] + steps[heading[arrived]]
            off = ((ahead < 0) | (ahead > blocks)).any(axis=1)
            inwards = (heading[arrived] + 2) % 4
            heading[arrived] = np.where(off, inwards, heading[arrived])
    if stray:
        with path.open("ab") as file:
            file.write(b"0,%d,0,0\n" % (DURATION_S + 30 * 86_400))


def in_own_process(way: str, vehicles: int, trace: Path, plan: Path) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--case", way, str(trace), str(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        memory = TreeMemory(process.pid)
        output, _ = process.communicate()
        peak = memory.stop()
    if process.returncode:
        raise SystemExit(f"{way} with {vehicles} vehicles failed")
    result: dict[str, Any] = json.loads(output)
    return {"way": way, "vehicles": vehicles, "megabytes": peak / 1e6, **result}


class TreeMemory:
    """The largest resident memory of a process and its descendants together."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _sample(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._ended.wait(SAMPLE_SECONDS):
            parents, pages = {}, {}
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it ended meanwhile
                parents[int(entry.name)], pages[int(entry.name)] = int(fields[1]), int(fields[21])
            total = sum(size for process, size in pages.items() if self._is_ours(process, parents)) * page
            self._peak = max(self._peak, total)

    def _is_ours(self, process: int, parents: dict[int, int]) -> bool:
        while process != self._root and process in parents:
            process = parents[process]
        return process == self._root


def by_spark(trace: Path, plan: Path) -> dict[str, Any]:
    from roamcast.lab.recordings.contacts import contacts, read_plan
    from roamcast.lab.spark.session import session

    begin = time.perf_counter()
    session().range(1).count()
    session_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    summary = contacts(trace, RANGE_M, plan)
    elapsed = time.perf_counter() - begin
    return {
        "fixes": summary.fixes,
        "contacts": summary.contacts,
        "seconds": elapsed,
        "session_seconds": session_seconds,
        "digest": digest(read_plan(plan)),
    }


def in_memory(trace: Path) -> dict[str, Any]:
    from roamcast.world.crossings import contact_plan
    from roamcast.world.formats import read_motion

    begin = time.perf_counter()
    motion = read_motion(trace)
    plan = contact_plan(motion.shifted(-motion.begins), RANGE_M, motion.ends - motion.begins)
    elapsed = time.perf_counter() - begin
    fixes = sum(len(path.times) for path in motion.trajectories)
    return {"fixes": fixes, "contacts": len(plan), "seconds": elapsed, "digest": digest(plan)}


def digest(plan: Any) -> str:
    import hashlib

    columns = (plan.sender, plan.receiver, plan.start, plan.end)
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
