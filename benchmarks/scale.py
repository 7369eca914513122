"""How the simulator and the lab grow: 50, 500 and 5,000 walkers at the same density, 60 simulated seconds.

    python benchmarks/scale.py [--nodes N]… [--strategy NAME]… [--duration SECONDS] [--subscribers N]
        [--picture FILE] [--json]

50 nodes to a square kilometre with a range of 250 m on `csma`, five publishers with an event every five
seconds, everyone subscribed, or so many: each event is wanted everywhere, so the work per node does not
depend on the number of nodes. Each case runs in a process of its own. Printed per case: processor time to
build the world, to run it, to make tables and metrics, to write the trace, and to ask `why` of one event;
microseconds and octets per reception, milliseconds per node and simulated second, octets of control
messages per node and simulated second. A goal is missed (exit code 1) where time or memory per reception
grows by more than 1.3 from the smallest to the largest case, octets of control messages by more than 1.5, or
a case needs more than 4 GB.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from roamcast.event import EventId
from roamcast.lab.run import tables as trace_tables
from roamcast.lab.run.runs import measured, run_info
from roamcast.lab.why import inquest
from roamcast.runtime.sim import Simulation
from roamcast.scenario import Scenario, scenario_from
from roamcast.trace import Published, Transmitted

NODES = (50, 500, 5_000)
STRATEGIES = ("epidemic", "tree")
GROWTH_MAX = 1.3
CONTROL_GROWTH_MAX = 1.5
MEGABYTES_MAX = 4_000

Row = dict[str, Any]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, action="append")
    arguments.add_argument("--strategy", action="append")
    arguments.add_argument("--duration", type=float, default=60.0)
    arguments.add_argument("--subscribers", type=int, default=0, help="0: all nodes")
    arguments.add_argument("--picture", type=Path)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--case", nargs=2, metavar=("STRATEGY", "NODES"), help="one case, in this process")
    options = arguments.parse_args()
    if options.case:
        strategy, nodes = options.case
        print(json.dumps(case(strategy, int(nodes), options.duration, options.subscribers)))
        return 0
    rows = []
    for strategy in options.strategy or STRATEGIES:
        for nodes in options.nodes or NODES:
            rows.append(in_a_process(strategy, nodes, options.duration, options.subscribers))
            print(json.dumps(rows[-1]) if options.json else as_text(rows[-1]), flush=True)
    if options.picture:
        draw(rows, options.picture)
    growth = ratios(rows)
    print(
        json.dumps(growth)
        if options.json
        else "\n".join(f"{name:40} {value}" for name, value in growth.items())
    )
    too_large = any(row["megabytes"] > MEGABYTES_MAX for row in rows)
    grown = any(
        value > (CONTROL_GROWTH_MAX if "control" in name else GROWTH_MAX) for name, value in growth.items()
    )
    return 1 if too_large or grown else 0


def ratios(rows: Sequence[Row]) -> dict[str, float]:
    """By how much the largest case of each strategy is above the smallest."""
    found = {}
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        ordered = sorted(
            (row for row in rows if row["strategy"] == strategy), key=lambda row: int(row["nodes"])
        )
        for figure in (
            "us_per_reception",
            "octets_per_reception",
            "ms_per_node_and_s",
            "control_octets_per_node_and_s",
        ):
            found[f"{strategy}_{figure}"] = round(ordered[-1][figure] / ordered[0][figure], 2)
    return found


def in_a_process(strategy: str, nodes: int, duration: float, subscribers: int) -> Row:
    command = [sys.executable, __file__, "--case", strategy, str(nodes), "--duration", str(duration)]
    command += ["--subscribers", str(subscribers)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    row: Row = json.loads(answer)
    return row


def case(strategy: str, nodes: int, duration: float, subscribers: int) -> Row:
    began = time.process_time()
    scene = scenario(strategy, nodes, duration, subscribers)
    simulation = Simulation(scene)
    built = time.process_time()
    started_with = megabytes()
    result = simulation.run()
    ran = time.process_time()
    megabytes_run = megabytes()
    received = sum(record.received.bit_count() for record in result.trace.of(Transmitted))
    transmissions = len(result.trace.of(Transmitted))
    control = sum(one.size for one in result.trace.of(Transmitted) if one.kind == "control")
    last = result.trace.of(Published)[-1]
    info = run_info(scene, result.roles, runtime="sim", sim_events=result.sim_events, wall_s=result.wall_s)
    del simulation
    counted = time.process_time()
    run = measured(scene, result.trace, info)
    measured_at = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder) / "trace")
        written = time.process_time()
        tables = trace_tables.read(Path(folder) / "trace")
        inquest.explain(tables, info, EventId(last.publisher, last.sequence), None)
        explained = time.process_time()
    spent = ran - built
    return {
        "strategy": strategy,
        "nodes": nodes,
        "built_s": round(built - began, 2),
        "run_s": round(spent, 2),
        "metrics_s": round(measured_at - counted, 2),
        "write_s": round(written - measured_at, 2),
        "why_s": round(explained - written, 2),
        "megabytes": round(megabytes_run),
        "megabytes_with_metrics": round(megabytes()),
        "transmissions": transmissions,
        "receptions": received,
        "delivery_ratio": run.metrics["delivery_ratio"],
        "us_per_reception": round(1e6 * spent / received, 2),
        "octets_per_reception": round(1e6 * (megabytes_run - started_with) / received),
        "ms_per_node_and_s": round(1e3 * spent / nodes / duration, 3),
        "control_octets_per_node_and_s": round(control / nodes / duration, 1),
    }


def scenario(strategy: str, nodes: int, duration: float, subscribers: int) -> Scenario:
    side = 1000.0 * math.sqrt(nodes / 50)
    return scenario_from(
        {
            "scenario": {"name": "scale", "duration": duration, "warmup": min(5.0, duration / 4), "seed": 1},
            "world": {
                "nodes": nodes,
                "area": [side, side],
                "range": 250.0,
                "mobility": {"model": "random_waypoint", "speed": [0.5, 2.0], "pause": [0.0, 30.0]},
                "radio": {"model": "csma"},
            },
            "roles": {"publishers": 5, "subscribers": subscribers or "all"},
            "workload": {"rate": 0.2, "size": 200},
            "strategy": {"name": strategy},
        }
    )


def megabytes() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def as_text(row: Row) -> str:
    return "  ".join(f"{name} {value}" for name, value in row.items())


def draw(rows: Sequence[Row], file: Path) -> None:
    """Time and memory per reception over the number of nodes, one line per strategy."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, name, label in zip(
        axes,
        ("us_per_reception", "octets_per_reception"),
        ("microseconds per reception", "octets per reception"),
        strict=True,
    ):
        for strategy in dict.fromkeys(row["strategy"] for row in rows):
            points = [(row["nodes"], row[name]) for row in rows if row["strategy"] == strategy]
            axis.plot(*zip(*points, strict=True), marker="o", label=strategy)
        axis.set(xscale="log", xlabel="nodes", ylabel=label)
        ticks = sorted({row["nodes"] for row in rows})
        axis.set_xticks(ticks, [f"{nodes:,}" for nodes in ticks])
        axis.minorticks_off()
        axis.set_ylim(0, 1.2 * max(row[name] for row in rows))
        axis.legend(loc="lower right")
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
