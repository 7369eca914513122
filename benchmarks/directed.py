"""Octets, delivery and latency of strategies on the league's scenarios, beside those of an older `epidemic`.

    python benchmarks/directed.py --base OLD/src --seeds 1-3 --strategies epidemic,directed

Each run is a process of its own (`roamcast simulate --json`), `OLD/src` is the source folder of the commit
that is compared with. Both get the same seeds, so worlds and publications are the same. Octets are all
frames' payloads, control included; delivery is of the pairs that were expected. Rows that `--kept` has
already are not run again: delete the file when the code has changed. Per scenario: means over the seeds;
`octets` is the mean of the ratios of each seed, with the half-width of its 95 % interval.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
SCENARIOS = HERE / "src" / "roamcast" / "lab" / "league" / "scenarios"
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 19: 2.09}


def run(source: Path, scenario: str, seed: int, strategy: str, options: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "roamcast", "simulate", str(SCENARIOS / f"{scenario}.toml"), "--json"]
    command += ["--set", f"scenario.seed={seed}", "--set", f"strategy.name={strategy}"]
    for option in options:
        command += ["--set", f"strategy.options.{option}"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    metrics = json.loads(done.stdout)["metrics"]
    metrics["octets"] = metrics["data_bytes"] + metrics["control_bytes"]
    return dict(metrics)


def interval(ratios: list[float]) -> float:
    """Half the width of the mean's 95 % interval."""
    if len(ratios) < 2:
        return math.nan
    return STUDENT.get(len(ratios) - 1, 2.26) * statistics.stdev(ratios) / math.sqrt(len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="source folder of the older code")
    parser.add_argument("--seeds", default="1-3", help="first-last")
    parser.add_argument("--strategies", default="epidemic,directed")
    parser.add_argument(
        "--scenarios", default=",".join(sorted(path.stem for path in SCENARIOS.glob("*.toml")))
    )
    parser.add_argument("--set", action="append", default=[], help="option=value of the new strategies")
    parser.add_argument("--kept", type=Path, help="a file of rows that are used again")
    chosen = parser.parse_args()
    first, last = chosen.seeds.split("-")
    seeds = range(int(first), int(last) + 1)
    rows: dict[str, dict[str, Any]] = {}
    if chosen.kept and chosen.kept.exists():
        rows = {row["key"]: row for row in map(json.loads, chosen.kept.read_text().splitlines())}

    def row(name: str, source: Path, scenario: str, seed: int, strategy: str) -> dict[str, Any]:
        options = [] if name == "base" else chosen.set
        key = " ".join([name, scenario, str(seed), strategy, *options])
        if key not in rows:
            rows[key] = {"key": key, **run(source, scenario, seed, strategy, options)}
            if chosen.kept:
                with chosen.kept.open("a") as file:
                    file.write(json.dumps(rows[key]) + "\n")
        return rows[key]

    heads = ["octets", "±", "delivery", "before", "p50 ms", "before", "p95 ms", "before", "frames"]
    print(f"| scenario | strategy | {' | '.join(heads)} |")
    print("|---" * (2 + len(heads)) + "|")
    for scenario in chosen.scenarios.split(","):
        before = [row("base", chosen.base, scenario, seed, "epidemic") for seed in seeds]
        for strategy in chosen.strategies.split(","):
            after = [row("new", HERE / "src", scenario, seed, strategy) for seed in seeds]
            ratios = [b["octets"] / a["octets"] for a, b in zip(before, after, strict=True)]

            def mean(of: list[dict[str, Any]], name: str) -> float:
                return statistics.fmean(one[name] or 0.0 for one in of)

            cells = [f"{statistics.fmean(ratios):.3f}", f"{interval(ratios):.3f}"]
            for name, scale, digits in (
                ("delivery_ratio", 1, 4),
                ("latency_p50", 1e3, 1),
                ("latency_p95", 1e3, 1),
            ):
                cells += [f"{scale * mean(of, name):.{digits}f}" for of in (after, before)]
            frames = mean(after, "data_messages") / max(mean(before, "data_messages"), 1)
            print(f"| {scenario} | {strategy} | {' | '.join(cells)} | {frames:.2f} |", flush=True)


if __name__ == "__main__":
    main()
