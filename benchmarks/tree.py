"""The tree on 50 nodes for 910 simulated seconds: table 4.3 of the acyclic-overlay work.

    python benchmarks/tree.py [--runs N] [--json]

Runs the largest case (10 senders, 50 receivers, 2000 m x 2000 m, 10 m/s) as `roamcast reproduce` does, with
the evolved and with the original protocol, and once with our additions and recovery, which that table leaves
out. Prints processor seconds (best of N, one core), also as a multiple of a fixed pure-Python loop timed in
the same run, so that figures from different machines can be compared. Exits 1 when a run of the table needs
20 s or more.
"""

import argparse
import json
import sys
import time
from typing import Any

import series
from roamcast.lab.published import selected
from roamcast.runtime.sim import Simulation
from roamcast.scenario import Scenario, scenario_from
from roamcast.scenario.load import with_settings

LIMIT_S = 20.0
RECOVERED = {"recovery": "push"}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=1)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    cases = {name: scenario_from(table_case(name)) for name in ("evolved", "original")}
    cases["recovery"] = recovering()
    figures: dict[str, Any] = {}
    for name, scenario in cases.items():
        calibration = series.calibration()
        seconds, events = min(measured(scenario) for _ in range(options.runs))
        series.give(name, seconds / calibration)
        figures[name] = {
            "processor_s": round(seconds, 2),
            "over_calibration": round(seconds / calibration, 1),
            "sim_events": events,
            "simulated_over_processor_s": round(scenario.scenario.duration / seconds, 1),
        }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:10} " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    slowest = max(figures[name]["processor_s"] for name in ("evolved", "original"))
    return 0 if slowest < LIMIT_S else 1


def table_case(protocol: str) -> dict[str, Any]:
    """The run of the published table, in its full length, as a scenario file has it."""
    (figure,) = selected("tree/table-4-3")
    experiment = figure.experiment("full")
    plan = next(
        plan
        for plan in experiment.runs()
        if plan.axes["strategy.options"]["protocol"] == protocol
        and not plan.axes["strategy.options"].get("additions", False)
        and plan.axes["world.area"] == [2000.0, 2000.0]
        and plan.axes["roles"]["subscribers"] == "all"
    )
    return with_settings(experiment.tables, plan.axes.items())


def recovering() -> Scenario:
    (figure,) = selected("tree/table-4-3")
    return scenario_from(with_settings(figure.file.scenario, [("strategy.options", RECOVERED)]))


def measured(scenario: Scenario) -> tuple[float, int]:
    simulation = Simulation(scenario)
    began = time.process_time()
    result = simulation.run()
    return time.process_time() - began, result.sim_events


if __name__ == "__main__":
    sys.exit(main())
