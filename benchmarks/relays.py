"""How many nodes relay in OLSR, whom the ties go to, and what it costs: the two rules side by side.

    python benchmarks/relays.py [--part counts,load] [--seeds 11,12,…] [--duration SECONDS] [--json]

counts   40 nodes at 1 m/s with a range of 250 m in squares of seven sides: the mean number of nodes with a
         non-empty selector set from 60 s on, beside those of an independent packet simulator, ns-3. It takes,
         of neighbours that reach equally many, the one heard first (its D(y) is always 0), as `first_heard`
         does; and its nodes start anywhere in the square, as they do here. Exit code 1 if `first_heard`
         is off by more than 15 %. Runs must be long: at the boot all hear each other in the same order, and
         the order differs more from node to node the longer they walk.
load     the demo's forty walkers (range 150 m) at 400, 600 and 800 m, bare OLSR: relays, control frames and
         octets per second, and how unequal the nodes' shares are: the most octets that one node sent, over
         the mean node's
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from roamcast.lab.run import runs
from roamcast.lab.run.tables import records
from roamcast.scenario import scenario_from
from roamcast.trace import Transmitted

TIES = ("lowest_address", "first_heard")
COMPARABLE = "first_heard"
INDEPENDENT = {300: 2.3, 450: 11.6, 600: 19.5, 800: 24.9, 1000: 25.3, 1300: 23.2, 1600: 17.3}  # ns-3's relays
WITHIN = 0.15
LOAD_SIDES = (400, 600, 800)
WARMUP = 60.0
WALKERS = {"model": "random_waypoint", "speed": [0.5, 2.0], "pause": [0.0, 30.0]}
SPEED = 1.0
NODES = 40

Row = dict[str, Any]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--part", default="counts,load")
    arguments.add_argument("--seeds", default="11,12,13")
    arguments.add_argument("--duration", type=float, default=600.0)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    parts = options.part.split(",")
    right = True
    for row in rows(parts, seeds, options.duration):
        right = right and row.get("within", True)
        words = (
            json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items())
        )
        print(words, flush=True)
    return 0 if right else 1


def rows(parts: list[str], seeds: list[int], duration: float) -> Iterator[Row]:
    if "counts" in parts:
        yield from (counted(side, seeds, duration) for side in INDEPENDENT)
    if "load" in parts:
        yield from (loaded(side, ties, seeds, duration) for side in LOAD_SIDES for ties in TIES)


def counted(side: int, seeds: list[int], duration: float) -> Row:
    """One side of the square: relays by both rules, and whether the comparable one agrees."""
    ours = {ties: statistics.mean(relays(side, ties, seed, duration) for seed in seeds) for ties in TIES}
    difference = ours[COMPARABLE] / INDEPENDENT[side] - 1
    return {
        "side_m": side,
        "independent": INDEPENDENT[side],
        **{ties: round(mean, 1) for ties, mean in ours.items()},
        "difference": round(difference, 3),
        "within": abs(difference) <= WITHIN,
    }


def relays(side: int, ties: str, seed: int, duration: float) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".ns_movements") as file:
        file.write(movements(side, Random(f"{side} {seed}"), duration))
        file.flush()
        mobility = {"model": "trace", "file": file.name, "format": "ns2"}
        return float(run(None, 250.0, mobility, ties, seed, duration).metrics["mprs_mean"] or 0)


def movements(side: int, random: Random, duration: float) -> str:
    """Random waypoint from uniform places. Our own model begins in its stationary distribution, in which
    nodes are denser in the middle; at this speed that takes longer to come about than a run lasts."""
    lines: list[str] = []
    for node in range(NODES):
        x, y = random.uniform(0, side), random.uniform(0, side)
        lines += [f"$node_({node}) set X_ {x:.3f}", f"$node_({node}) set Y_ {y:.3f}"]
        at = 0.0
        while at < duration:
            to_x, to_y = random.uniform(0, side), random.uniform(0, side)
            lines.append(f'$ns_ at {at:.3f} "$node_({node}) setdest {to_x:.3f} {to_y:.3f} {SPEED}"')
            at += math.hypot(to_x - x, to_y - y) / SPEED + 0.01
            x, y = to_x, to_y
    return "\n".join(lines) + "\n"


def loaded(side: int, ties: str, seeds: list[int], duration: float) -> Row:
    """One of the demo's areas: what the relays cost, and who pays."""
    results = [run(side, 150.0, WALKERS, ties, seed, duration) for seed in seeds]
    sent = [
        [frame for frame in records(result.tables, Transmitted) if frame.t >= WARMUP * 1e6]
        for result in results
    ]
    measured = duration - WARMUP
    return {
        "side_m": side,
        "ties": ties,
        "relays": round(statistics.mean(result.metrics["mprs_mean"] or 0 for result in results), 1),
        "frames_per_s": round(statistics.mean(len(frames) for frames in sent) / measured, 1),
        "octets_per_s": round(statistics.mean(sum(f.size for f in frames) for frames in sent) / measured),
        "busiest_over_mean": round(statistics.mean(busiest_over_mean(frames) for frames in sent), 2),
    }


def busiest_over_mean(frames: list[Transmitted]) -> float:
    octets: Counter[int] = Counter()
    for frame in frames:
        octets[frame.node] += frame.size
    return max(octets.values()) / statistics.mean(octets.values())


def run(
    side: int | None, range_m: float, mobility: dict[str, Any], ties: str, seed: int, duration: float
) -> runs.RunResult:
    """`side` of None: the movements say where the nodes are."""
    area = {} if side is None else {"area": [float(side), float(side)]}
    return runs.simulate(
        scenario_from(
            {
                "scenario": {"name": "relays", "duration": duration, "warmup": WARMUP, "seed": seed},
                "world": {
                    "nodes": NODES,
                    "range": range_m,
                    "mobility": mobility,
                    "radio": {"model": "csma"},
                    **area,
                },
                "workload": {"rate": 0.0},
                "strategy": {"name": "flooding"},
                "underlay": {"name": "olsr", "options": {"relay_ties": ties}},
            }
        )
    )


if __name__ == "__main__":
    sys.exit(main())
