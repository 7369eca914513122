"""Pub/Sub ODMRP in the setting of the paper's Figure 10: 100 nodes, 20 publishers, 100 messages each.

    python benchmarks/odmrp.py [--runs N] [--json]

Plays the whole run (110 simulated seconds on the csma radio) with K-means grouping, once with each relay
filter, and flooding beside it. Prints processor seconds (best of N), frames on the air and simulator events
per second. Exits 1 when an ODMRP run needs more than 25 s; a busy machine needs more runs, no softer limit.
"""

import argparse
import sys
import time

import series
from roamcast.lab.published.figure import selected
from roamcast.runtime.sim import Simulation
from roamcast.trace import Transmitted

LIMIT_S = 25.0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=1)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    (figure,) = selected("odmrp/figure-10-crowds")
    experiment = figure.experiment("full")
    figures: dict[str, float] = {}
    slowest = 0.0
    for plan in experiment.runs():
        choice = plan.axes["strategy"]
        wanted = choice["name"] == "flooding" or choice["options"]["grouping"] == "k_means"
        if plan.seed != experiment.seeds[0] or not wanted:
            continue
        calibration = series.calibration()
        name = "_".join([choice["name"], *choice.get("options", {}).values()])
        for _ in range(options.runs):
            simulation = Simulation(experiment.scenario(plan))
            began = time.process_time()
            result = simulation.run()
            spent = time.process_time() - began
            if f"{name}_s" not in figures or spent < figures[f"{name}_s"]:
                figures[f"{name}_s"] = round(spent, 1)
                figures[f"{name}_frames"] = len(result.trace.of(Transmitted))
                figures[f"{name}_events_per_s"] = round(result.sim_events / spent)
        series.give(name, figures[f"{name}_s"] / calibration)
        if choice["name"] == "odmrp":
            slowest = max(slowest, figures[f"{name}_s"])
    series.show(figures, options.json)
    return 0 if slowest <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
