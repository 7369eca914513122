"""What the opportunistic overlay costs: the whole of figure 7's setting, and topology updates by size.

Run: `python benchmarks/opportunistic.py`. Prints seconds for 600 simulated seconds with 100 nodes and 40
brokers, and for 20, 40 and 80 brokers how many octets a broker sends per link that changed.
"""

import time
from typing import Any

from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.trace import OverlayChanged, Transmitted
from roamcast.units import micros

DURATION_S = 600.0
WARMUP_S = 15.0


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


def main() -> None:
    print("brokers  wall s  changed links  updates kB  octets per update and changed link")
    for brokers in (20, 40, 80):
        scenario = scenario_from(tables(brokers))
        began = time.perf_counter()
        trace = Simulation(scenario).run().trace
        wall_s = time.perf_counter() - began
        warm = micros(WARMUP_S)
        changed = sum(
            change.change.startswith("neighbour") for change in trace.of(OverlayChanged) if change.t >= warm
        )
        sizes = [f.size for f in trace.of(Transmitted) if f.message == "update" and f.t >= warm]
        # Each change is told once over each link of the overlay: per broker that hears of it.
        each = sum(sizes) / changed / brokers
        print(f"{brokers:7}  {wall_s:6.1f}  {changed:13}  {sum(sizes) / 1000:10.0f}  {each:10.1f}")


if __name__ == "__main__":
    main()
