"""The figures of all benchmarks, and whether they got worse: what `make bench` runs.

    python benchmarks/series.py [NAME …] [--record NOTE]   run these (all), compare, write out/bench.json

Each benchmark gives its figures with `give`. A figure is a ratio to a fixed loop timed beside it, or another
quotient of one run, never seconds: so a busy or slower machine does not matter. It is compared with the last
row of `benchmarks/series.jsonl` that has it; a loss of more than 15% fails (exit 1), unless the figure is
known to vary more than that and is only recorded. Machines have slow minutes, so what seems lost is measured
once more, and the better figure counts. A benchmark that misses its own goal fails too.
`--record` appends the run as a row. A damaged file or an unknown name is one line, exit 2.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, NoReturn

ROOT = Path(__file__).parents[1]
SERIES = ROOT / "benchmarks" / "series.jsonl"
RESULT = ROOT / "out" / "bench.json"
LOSS_MAX = 0.15
FIGURES_FILE = "ROAMCAST_BENCH_FIGURES"  # where a benchmark leaves its figures for this command
# Quickest first. Not among them: emulation, pressure and live_traces, which need real
# time or root; player, which needs a browser; cluster, which takes half an hour.
BENCHMARKS = (
    *("chapar", "summary", "sealing", "simulator", "opportunistic", "contact_plan", "matching"),
    *("tree", "odmrp", "olsr", "footprint", "live", "mqtt", "sweep", "spark_contacts"),
)

Better = Literal["lower", "higher"]


def give(name: str, value: float, better: Better = "lower", judged: bool = True) -> None:
    """One figure of the benchmark that is running; nothing happens where it runs alone."""
    path = os.environ.get(FIGURES_FILE)
    if path:
        with open(path, "a") as file:
            figure = {"name": name, "value": float(f"{value:.4g}"), "better": better, "judged": judged}
            file.write(json.dumps(figure) + "\n")


def calibrate() -> float:
    """Processor seconds of a fixed piece of pure Python, to relate this machine and moment to others."""
    began = time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number & 7
    return time.process_time() - began


def calibration() -> float:
    """The best of three, to be taken right beside what is measured."""
    return min(calibrate() for _ in range(3))


def show(figures: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:44} {value}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", metavar="NAME")
    parser.add_argument("--record", metavar="NOTE", help="append a row to the series, with this note")
    options = parser.parse_args()
    for name in options.benchmarks:
        if name not in BENCHMARKS:
            refuse(f"benchmark {name!r} is unknown; there are {', '.join(BENCHMARKS)}")
    rows = rows_of(SERIES)
    chosen = options.benchmarks or BENCHMARKS
    cases, failed = measured(chosen)
    if doubted := [name for name in chosen if compared(cases, rows, [name])]:
        again, failed_again = measured(doubted)
        cases |= {case: better_of(figure, cases.get(case, figure)) for case, figure in again.items()}
        failed = [line for line in failed if line.split()[0] not in doubted] + failed_again
    row = {
        "date": datetime.date.today().isoformat(),
        "note": options.record or "",
        "python": platform.python_version(),
        "cases": cases,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(row, indent=1) + "\n")
    lost = compared(cases, rows, chosen)
    for line in [*failed, *lost]:
        print(line)
    if options.record is not None:
        with SERIES.open("a") as file:
            file.write(json.dumps(row) + "\n")
    print(f"{len(cases)} figures in {RESULT.relative_to(ROOT)}; {len(lost)} lost, {len(failed)} failed")
    return 1 if failed or lost else 0


def measured(benchmarks: tuple[str, ...] | list[str]) -> tuple[dict[str, Any], list[str]]:
    """The figures by case, and a line for each benchmark that failed."""
    cases: dict[str, Any] = {}
    failed = []
    for benchmark in benchmarks:
        print(f"== {benchmark}", flush=True)
        with tempfile.NamedTemporaryFile() as file:
            command = [sys.executable, str(ROOT / "benchmarks" / f"{benchmark}.py")]
            ended = subprocess.run(command, env=os.environ | {FIGURES_FILE: file.name}, check=False)
            for line in Path(file.name).read_text().splitlines():
                figure = json.loads(line)
                cases[f"{benchmark}: {figure.pop('name')}"] = figure
        if ended.returncode:
            what = "fails, or misses its goal," if ended.returncode == 1 else f"ended with {ended.returncode}"
            failed.append(f"{benchmark} {what}")
    return cases, failed


def compared(cases: dict[str, Any], rows: list[dict[str, Any]], benchmarks: Any) -> list[str]:
    """A line for each case that lost more than `LOSS_MAX`, and for each that a benchmark no longer gives."""
    last: dict[str, Any] = {}
    for row in rows:
        last |= row["cases"]
    lines = []
    for case, before in last.items():
        if case.partition(":")[0] not in benchmarks or not before["judged"]:
            continue
        if case not in cases:
            lines.append(f"MISSING {case}: was {before['value']:g}")
            continue
        now, was = cases[case]["value"], before["value"]
        worse = now / was if before["better"] == "lower" else was / now
        if worse > 1 + LOSS_MAX:
            lines.append(f"LOST {case}: {now:g}, was {was:g} ({before['better']} is better)")
    return lines


def better_of(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    first, second = sorted((one, other), key=lambda figure: float(figure["value"]))
    return first if one["better"] == "lower" else second


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        where = f"{path.name}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            refuse(f"{where}: no JSON: {error}")
        if not isinstance(row, dict) or not isinstance(row.get("cases"), dict):
            refuse(f"{where}: a row is an object with date, note, python and cases")
        for case, figure in row["cases"].items():
            if case.partition(":")[0] not in BENCHMARKS:
                refuse(f"{where}: case {case!r} is of no known benchmark")
            if not is_figure(figure):
                refuse(f"{where}: {case!r} needs a value above 0, better (lower, higher) and judged")
        rows.append(row)
    return rows


def is_figure(figure: Any) -> bool:
    return (
        isinstance(figure, dict)
        and isinstance(figure.get("value"), int | float)
        and figure["value"] > 0
        and figure.get("better") in ("lower", "higher")
        and isinstance(figure.get("judged"), bool)
    )


def refuse(problem: str) -> NoReturn:
    print(f"bench: {problem}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
