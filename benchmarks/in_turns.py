"""How many times as fast as an earlier version: each strategy's cases, before and now in turns.

    python benchmarks/in_turns.py REVISION|FOLDER [--rounds N] [--only CASE]… [--json]

A folder is one that holds the package, such as an unpacked wheel.
Each run is a process of its own, one after the other: before, now, before, now. A figure is processor time
over that of a fixed loop timed beside it. Shown are the medians of both and the median, lowest and highest of
the rounds' quotients. Where a protocol was changed in between, its cost is in the quotient: `actions` tells.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import series

Tables = dict[str, Any]  # a scenario file's


class RunError(Exception):
    """One of the versions cannot play the case; the text is the last line that it said."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", nargs="?", help="a revision of git, or a folder that holds the package")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", metavar="CASE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.before is None:  # the process of one run: the scenario comes in, the figures go out
        print(json.dumps(one_run(json.load(sys.stdin))))
        return 0
    cases = {name: tables for name, tables in all_cases().items() if not options.only or name in options.only}
    if unknown := set(options.only or []) - set(cases):
        series.refuse(f"case {sorted(unknown)[0]!r} is unknown; there are {', '.join(all_cases())}")
    with sources_of(options.before) as before:
        for name, tables in cases.items():
            try:
                row = compared(tables, before, series.ROOT / "src", options.rounds)
            except RunError as error:  # such as an option that the earlier version does not have
                print(f"{name:24} not compared: {str(error)[:100]}", flush=True)
                continue
            print(json.dumps({"case": name, **row}) if options.json else as_text(name, row), flush=True)
    return 0


def compared(tables: Tables, before: Path, now: Path, rounds: int) -> dict[str, Any]:
    pairs = [(in_a_process(tables, before), in_a_process(tables, now)) for _ in range(rounds)]
    quotients = [old["over_calibration"] / new["over_calibration"] for old, new in pairs]
    return {
        "before": round(statistics.median(old["over_calibration"] for old, _ in pairs), 2),
        "now": round(statistics.median(new["over_calibration"] for _, new in pairs), 2),
        "times_as_fast": round(statistics.median(quotients), 2),
        "lowest": round(min(quotients), 2),
        "highest": round(max(quotients), 2),
        "actions": [pairs[0][0]["actions"], pairs[0][1]["actions"]],
    }


def as_text(name: str, row: dict[str, Any]) -> str:
    return (
        f"{name:24} {row['before']:8.2f} -> {row['now']:8.2f}  {row['times_as_fast']:5.2f} times as fast"
        f" ({row['lowest']:.2f} to {row['highest']:.2f})  actions {row['actions'][0]} -> {row['actions'][1]}"
    )


def in_a_process(tables: Tables, sources: Path) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": str(sources)}
    command = [sys.executable, __file__]
    answer = subprocess.run(
        command, env=environment, input=json.dumps(tables), capture_output=True, text=True, check=False
    )
    if answer.returncode:
        raise RunError(answer.stderr.strip().splitlines()[-1])
    figures: dict[str, Any] = json.loads(answer.stdout)
    return figures


def one_run(tables: Tables) -> dict[str, Any]:
    from roamcast.runtime.sim import Simulation
    from roamcast.scenario import scenario_from

    simulation = Simulation(scenario_from(tables))
    calibration = series.calibration()
    began = time.process_time()
    result = simulation.run()
    spent = time.process_time() - began
    calibration = min(calibration, series.calibration())
    return {"over_calibration": spent / calibration, "actions": result.sim_events}


def all_cases() -> dict[str, Tables]:
    """A few processor seconds each, so the long benchmarks are cut short."""
    import olsr
    import opportunistic
    import tree
    from roamcast.lab.published import selected
    from roamcast.scenario.load import with_settings

    examples = series.ROOT / "examples"
    crowd = tomllib.loads((examples / "crowd.toml").read_text())
    (figure,) = selected("odmrp/figure-10-crowds")
    experiment = figure.experiment("full")
    plan = next(
        p for p in experiment.runs() if p.axes["strategy"].get("options", {}).get("grouping") == "k_means"
    )
    return {
        "flooding": tomllib.loads((examples / "flooding-csma.toml").read_text()),
        **{
            f"crowd/{strategy}": crowd | {"strategy": {"name": strategy}}
            for strategy in ("epidemic", "tree", "chapar", "odmrp", "opportunistic")
        },
        "olsr/600": olsr.tables(600.0, 300.0),
        "olsr/1000": olsr.tables(1000.0, 300.0),
        "tree/evolved": shortened(tree.table_case("evolved"), 200.0),
        "tree/original": shortened(tree.table_case("original"), 200.0),
        "odmrp/figure-10": shortened(with_settings(experiment.tables, plan.axes.items()), 30.0),
        "opportunistic/figure-7": shortened(opportunistic.tables(40), 200.0),
    }


def shortened(tables: Tables, seconds: float) -> Tables:
    workload = tables["workload"]
    if workload.get("stop", 0.0) > seconds:
        workload = workload | {"stop": seconds}
    return tables | {"scenario": tables["scenario"] | {"duration": seconds}, "workload": workload}


@contextmanager
def sources_of(version: str) -> Iterator[Path]:
    if (Path(version) / "roamcast").is_dir():
        yield Path(version).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(series.ROOT), "archive", version, "src"], stdout=subprocess.PIPE, check=False
        )
        if archive.returncode:
            series.refuse(f"{version!r} is neither a revision nor a folder with the package")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder) / "src"


if __name__ == "__main__":
    sys.exit(main())
