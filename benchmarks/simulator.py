"""How fast the simulator is: the flooding case of 50 nodes on `csma`, 100 simulated seconds.

    python benchmarks/simulator.py [--runs N] [--json]

Prints wall seconds (best of N, one core), transmissions and receptions per second, and the share of
each part, from a second, profiled run. Exits 1 when the best run needs more than 4 s; a busy machine
needs more runs, not a softer limit. The calibration line (a fixed pure-Python loop) lets figures from
different machines be compared as ratios.
"""

import argparse
import cProfile
import pstats
import sys
import time
from pathlib import Path
from typing import Any

import series
from roamcast.runtime.sim import Simulation
from roamcast.scenario import load_scenario
from roamcast.trace import Transmitted

SCENARIO = Path(__file__).parent.parent / "examples" / "flooding-csma.toml"
LIMIT_S = 4.0
PARTS = {
    "radio": ("runtime/sim/csma", "runtime/sim/medium", "runtime/sim/links"),
    "engine": ("runtime/sim/engine", "runtime/sim/host", "runtime/sim/simulation"),
    "protocol": ("strategy/", "broker/", "wire/", "filter/", "event.py", "underlay/", "node.py"),
    "trace": ("trace.py",),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    scenario = load_scenario(SCENARIO)
    calibration = series.calibration()
    began = time.process_time()
    results = [Simulation(scenario).run() for _ in range(options.runs)]
    processor_s = (time.process_time() - began) / options.runs
    best = min(result.wall_s for result in results)
    sent = results[0].trace.of(Transmitted)
    received = sum(record.received.bit_count() for record in sent)
    shares = profile(Simulation(scenario))
    figures: dict[str, Any] = {
        "simulated_s": scenario.scenario.duration,
        "wall_s": round(best, 3),
        "wall_over_calibration": round(best / calibration, 2),
        "transmissions": len(sent),
        "receptions": received,
        "receptions_per_s": round(received / best),
        "events_per_s": round(results[0].sim_events / best),
        "share": {part: round(share, 3) for part, share in shares.items()},
    }
    series.give("flooding, 50 nodes", processor_s / calibration)
    series.show(figures, options.json)
    return 0 if best <= LIMIT_S else 1


def profile(simulation: Simulation) -> dict[str, float]:
    """The share of own time per part; built-ins are counted where they are called from."""
    profiler = cProfile.Profile(builtins=False)
    profiler.runcall(simulation.run)
    seconds = dict.fromkeys([*PARTS, "other"], 0.0)
    statistics: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own, _, _) in statistics.items():
        part = next((name for name, marks in PARTS.items() if any(mark in file for mark in marks)), "other")
        seconds[part] += own
    total = sum(seconds.values())
    return {part: own / total for part, own in seconds.items()}


if __name__ == "__main__":
    sys.exit(main())
