"""What the opportunistic overlay costs: figure 7's whole setting, and its rows by what has changed.

Run: `python benchmarks/opportunistic.py`. It ends with code 1 if a limit is broken:

- 600 simulated seconds with 100 nodes and 40 brokers take at most 10 s of one core.
- In that setting with 20, 40 and 80 brokers, what a broker spends on rows per link that changed anywhere does
  not grow with the number of brokers. Every broker has to hear of every change, so this is the least that a
  view of the whole overlay in each broker can cost.
"""

import sys
import time
from itertools import pairwise
from typing import Any

import series
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.trace import OverlayChanged, Transmitted
from roamcast.units import micros

DURATION_S = 600.0
WARMUP_S = 15.0
FIGURE_7_BROKERS = 40
FIGURE_7_LIMIT_S = 10.0
BROKERS = (20, 40, 80)
TOLERANCE = 1.05
ROWS = ("rows", "numbers", "digest")


def main() -> int:
    faults = whole_runs()
    for fault in faults:
        print(f"LIMIT BROKEN: {fault}")
    return 1 if faults else 0


def whole_runs() -> list[str]:
    faults = []
    spent = {}
    print("600 s, 100 nodes, update every 50 s")
    print("brokers  core s  changed links     rows kB  octets per broker and changed link")
    for brokers in BROKERS:
        scenario = scenario_from(tables(brokers))
        calibration = series.calibration()
        began = time.process_time()
        trace = Simulation(scenario).run().trace
        core_s = time.process_time() - began
        series.give(f"{brokers} brokers", core_s / calibration)
        warm = micros(WARMUP_S)
        changed = sum(
            change.change.startswith("neighbour") for change in trace.of(OverlayChanged) if change.t >= warm
        )
        octets = sum(f.size for f in trace.of(Transmitted) if f.message in ROWS and f.t >= warm)
        spent[brokers] = octets / changed / brokers
        print(f"{brokers:7}  {core_s:6.1f}  {changed:13}  {octets / 1000:10.0f}  {spent[brokers]:10.1f}")
        if brokers == FIGURE_7_BROKERS and core_s > FIGURE_7_LIMIT_S:
            faults.append(f"figure 7's setting takes {core_s:.1f} s, at most {FIGURE_7_LIMIT_S:.0f}")
    for fewer, more in pairwise(BROKERS):
        if spent[more] > TOLERANCE * spent[fewer]:
            faults.append(f"{spent[more]:.1f} octets with {more} brokers, {spent[fewer]:.1f} with {fewer}")
    return faults


def tables(brokers: int) -> dict[str, Any]:
    return {
        "scenario": {"name": "updates", "duration": DURATION_S, "warmup": WARMUP_S, "seed": 1},
        "world": {
            "nodes": 100,
            "area": [1000.0, 1000.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [10.0, 10.0]},
        },
        "roles": {"brokers": brokers, "publishers": 1, "subscribers": 1},
        "workload": {"rate": 0.01},
        "underlay": {"name": "ideal"},
        "strategy": {"name": "opportunistic", "options": {"broker_update": 50.0, "paths": "brokers"}},
    }


if __name__ == "__main__":
    sys.exit(main())
