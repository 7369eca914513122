"""How fast OLSR is simulated: 40 nodes at walking pace, 2 s HELLO and 5 s TC on `csma`, an hour of it.

    python benchmarks/olsr.py [--duration SECONDS] [--side METRES]… [--profile] [--json]

Prints, for each side of the square, the seconds on one core, simulator events and receptions per second, and
the share of each part when profiled. Exits 1 when an hour needs more than 60 s of processor time (a shorter
`--duration` is judged in proportion). An independent packet simulator in C++ needs about 430 s at 600 m and
130 s at 1000 m. The calibration line (a fixed pure-Python loop) relates this machine to others.
"""

import argparse
import cProfile
import json
import pstats
import sys
import time
from typing import Any

import series
from roamcast.runtime.sim import Simulation
from roamcast.scenario import Scenario, scenario_from
from roamcast.trace import Transmitted

HOUR = 3600.0
LIMIT_S = 60.0  # for an hour
PARTS = {
    "olsr": ("underlay/", "wire/olsr"),
    "radio": ("runtime/sim/csma", "runtime/sim/medium", "runtime/sim/links"),
    "engine": ("runtime/sim/engine", "runtime/sim/host", "runtime/sim/simulation"),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--duration", type=float, default=HOUR)
    arguments.add_argument("--side", type=float, action="append")
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    rows = [measure(side, options.duration) for side in options.side or [600.0, 1000.0]]
    for row in rows:
        if options.profile:
            row["share"] = shares(Simulation(scenario(row["side_m"], options.duration)))
        row["calibration_s"] = round(series.calibration(), 3)
        series.give(f"{row['side_m']:.0f} m", row["processor_s"] / row["calibration_s"])
        if options.json:
            print(json.dumps(row))
        else:
            print(*(f"{name} {value}" for name, value in row.items()), sep="\n", end="\n\n")
    limit = LIMIT_S * options.duration / HOUR
    return 0 if all(row["processor_s"] <= limit for row in rows) else 1


def measure(side: float, duration: float) -> dict[str, Any]:
    simulation = Simulation(scenario(side, duration))
    began = time.process_time()
    result = simulation.run()
    # Processor time: on a shared machine wall-clock time depends on the other processes.
    processor_s = time.process_time() - began
    sent = result.trace.of(Transmitted)
    received = sum(record.received.bit_count() for record in sent)
    return {
        "side_m": side,
        "simulated_s": duration,
        "processor_s": round(processor_s, 2),
        "wall_s": round(result.wall_s, 2),
        "transmissions": len(sent),
        "receptions": received,
        "events_per_s": round(result.sim_events / processor_s),
        "receptions_per_s": round(received / processor_s),
    }


def scenario(side: float, duration: float) -> Scenario:
    return scenario_from(tables(side, duration))


def tables(side: float, duration: float) -> dict[str, Any]:
    return {
        "scenario": {"name": "olsr", "duration": duration, "seed": 1},
        "world": {
            "nodes": 40,
            "area": [side, side],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 1.0], "pause": [0.0, 0.0]},
            "radio": {"model": "csma"},
        },
        "workload": {"rate": 0.0},
        "strategy": {"name": "flooding"},
        "underlay": {"name": "olsr", "options": {"hello_interval": 2.0, "tc_interval": 5.0}},
    }


def shares(simulation: Simulation) -> dict[str, float]:
    """The share of own time per part; built-ins are counted where they are called from."""
    profiler = cProfile.Profile(builtins=False)
    profiler.runcall(simulation.run)
    seconds = dict.fromkeys([*PARTS, "other"], 0.0)
    statistics: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own, _, _) in statistics.items():
        part = next((name for name, marks in PARTS.items() if any(mark in file for mark in marks)), "other")
        seconds[part] += own
    total = sum(seconds.values())
    return {part: round(own / total, 3) for part, own in seconds.items()}


if __name__ == "__main__":
    sys.exit(main())
