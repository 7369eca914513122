"""Exact contact plans: time, memory and growth, compared with the usual method, sampling.

    python benchmarks/contact_plan.py [--json]

One hour of random waypoint (1-20 m/s, pauses of 10 s), range 250 m, for 100, 300 and 1,000 nodes at one
node per 100 m × 100 m; then 1,000 nodes in a tenth of the area, where each hears about 150 others. Each
case runs in a process of its own, whose peak memory includes the interpreter and the motion.

The baseline looks at all positions once per second with scipy's k-d tree. It finds the changes to the
second, not to the microsecond, and misses contacts that fall between two samples. Growth and ratios are
in processor seconds, which other work on the machine disturbs less; the limit is in wall-clock seconds.

Exit code 1 if 1,000 nodes at constant density take 30 s or 2 GB or more.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import series

NODES = (100, 300, 1000)
AREA_PER_NODE = 100.0 * 100.0  # m²
DENSE_SIDE = 1000.0  # m
RANGE = 250.0  # m
DURATION_S = 3600
SECONDS_ALLOWED = 30.0
MEGABYTES_ALLOWED = 2000.0


def main() -> int:
    arguments = argparse.ArgumentParser(description="time and memory of exact contact plans")
    arguments.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    arguments.add_argument("--case", nargs=3, metavar=("WHAT", "NODES", "SIDE"), help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.case:
        what, nodes, side = chosen.case
        print(json.dumps(measured(what, int(nodes), float(side))))
        return 0
    report = benchmark(quiet=chosen.json)
    series.give("exact over sampled, 1,000 nodes", report["cpu_over_sampled"][-1])
    if chosen.json:
        print(json.dumps(report))
    return 0 if report["within_limits"] else 1


def benchmark(*, quiet: bool) -> dict[str, Any]:
    sides = [math.sqrt(nodes * AREA_PER_NODE) for nodes in NODES]
    cases = [
        (what, nodes, side) for nodes, side in zip(NODES, sides, strict=True) for what in ("exact", "sampled")
    ]
    cases.append(("exact", NODES[-1], DENSE_SIDE))
    if not quiet:
        print(
            f"{'way':8} {'nodes':>6} {'side m':>7} {'contacts':>9} {'seconds':>8} {'cpu s':>7} {'peak MB':>8}"
        )
    results = []
    for what, nodes, side in cases:
        result = in_own_process(what, nodes, side)
        results.append(result)
        if not quiet:
            print(
                f"{what:8} {nodes:6d} {side:7.0f} {result['contacts']:9d}"
                f" {result['seconds']:8.2f} {result['cpu_seconds']:7.2f} {result['megabytes']:8.0f}",
                flush=True,
            )
    exact = [result for result in results if result["way"] == "exact"][: len(NODES)]
    sampled = [result for result in results if result["way"] == "sampled"]
    largest = exact[-1]
    report = {
        "results": results,
        "growth_exponent": exponent([(r["nodes"], r["cpu_seconds"]) for r in exact]),
        "contacts_exponent": exponent([(r["nodes"], r["contacts"]) for r in exact]),
        "cpu_over_sampled": [
            ours["cpu_seconds"] / theirs["cpu_seconds"] for ours, theirs in zip(exact, sampled, strict=True)
        ],
        "within_limits": largest["seconds"] < SECONDS_ALLOWED and largest["megabytes"] < MEGABYTES_ALLOWED,
    }
    if not quiet:
        ratios = ", ".join(f"{ratio:.2f}" for ratio in report["cpu_over_sampled"])
        growth, contacts = report["growth_exponent"], report["contacts_exponent"]
        print(f"processor seconds grow as nodes^{growth:.2f}, contacts as nodes^{contacts:.2f}")
        print(f"processor seconds, exact / sampled: {ratios}")
        print("within limits" if report["within_limits"] else "over the limits of 30 s and 2 GB")
    return report


def in_own_process(what: str, nodes: int, side: float) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--case", what, str(nodes), repr(side)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def measured(what: str, nodes: int, side: float) -> dict[str, Any]:
    from random import Random

    from roamcast.units import SECOND
    from roamcast.world.crossings import contact_plan
    from roamcast.world.mobility import RandomWaypoint

    model = RandomWaypoint(speed=(1.0, 20.0), pause=(10.0, 10.0))
    motion = model.motion(nodes, (side, side), DURATION_S * SECOND, Random(1))
    begin, begin_cpu = time.perf_counter(), time.process_time()
    if what == "exact":
        contacts = len(contact_plan(motion, RANGE, DURATION_S * SECOND))
    else:
        contacts = contacts_sampled(motion)
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "way": what,
        "nodes": nodes,
        "side": side,
        "contacts": contacts,
        "seconds": elapsed,
        "cpu_seconds": cpu,
        # Linux counts in kibibytes, macOS in bytes.
        "megabytes": peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6,
    }


def contacts_sampled(motion: Any) -> int:
    """The baseline: link-ups between samples taken once a second."""
    import numpy as np
    from scipy.spatial import cKDTree

    looks = np.arange(DURATION_S) * 1e6
    places = np.stack(
        [
            np.stack((np.interp(looks, path.times, path.x), np.interp(looks, path.times, path.y)), axis=1)
            for path in motion.trajectories
        ],
        axis=1,
    )
    contacts = 0
    linked = np.empty(0, dtype=np.int64)
    for look in places:
        pairs = cKDTree(look).query_pairs(RANGE, output_type="ndarray")
        now = np.sort(pairs[:, 0] * motion.nodes + pairs[:, 1])
        contacts += len(np.setdiff1d(now, linked, assume_unique=True))
        linked = now
    return contacts


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of the least-squares line through the logarithms."""
    x, y = [math.log(n) for n, _ in points], [math.log(value) for _, value in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slope / sum((a - mean_x) ** 2 for a in x)


if __name__ == "__main__":
    sys.exit(main())
