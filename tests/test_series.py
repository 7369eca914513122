"""`benchmarks/series.py`, the command behind `make bench`, on a copy with two small benchmarks."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "series.py"
BENCHMARK = """
import os, sys, series
for line in os.environ["FIGURES"].split(";"):
    name, value, better, judged = line.split(",")
    series.give(name, float(value), better=better, judged=judged == "judged")
sys.exit(int(os.environ.get("EXIT", 0)))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(SCRIPT, tmp_path / "benchmarks")
    (tmp_path / "benchmarks" / "chapar.py").write_text(BENCHMARK)
    return tmp_path


IMPROVES = """
import pathlib, series
runs = pathlib.Path(__file__).with_suffix(".runs")
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
first = runs.read_text() == "x"
series.give("time", 3.0 if first else 2.1)
series.give("rate", 10.0 if first else 7.0, better="higher")
"""


def bench(tree: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(tree / "benchmarks" / "series.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def write_rows(tree: Path, *rows: Any) -> None:
    (tree / "benchmarks" / "series.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def figure(value: float, better: str = "lower", judged: bool = True) -> dict[str, Any]:
    return {"value": value, "better": better, "judged": judged}


def test_a_loss_of_more_than_a_sixth_fails_and_names_case_and_both_figures(tree: Path) -> None:
    first = bench(
        tree,
        "chapar",
        "--record",
        "first",
        FIGURES="time,2,lower,judged;rate,10,higher,judged;loose,1,lower,no",
    )
    assert first.returncode == 0, first.stderr
    (row,) = [json.loads(line) for line in (tree / "benchmarks" / "series.jsonl").read_text().splitlines()]
    assert row["note"] == "first" and row["cases"]["chapar: rate"] == figure(10, "higher")
    same = bench(tree, "chapar", FIGURES="time,2.29,lower,judged;rate,8.8,higher,judged;loose,9,lower,no")
    assert same.returncode == 0 and "0 lost" in same.stdout
    worse = bench(tree, "chapar", FIGURES="time,2.31,lower,judged;rate,8.6,higher,judged")
    assert worse.returncode == 1
    assert "LOST chapar: time: 2.31, was 2 (lower is better)" in worse.stdout
    assert "LOST chapar: rate: 8.6, was 10 (higher is better)" in worse.stdout
    result = json.loads((tree / "out" / "bench.json").read_text())
    assert result["cases"]["chapar: time"] == figure(2.31)
    assert str(tree) not in json.dumps(result)


def test_each_case_is_compared_with_the_last_row_that_has_it(tree: Path) -> None:
    write_rows(
        tree,
        {"cases": {"chapar: a": figure(1), "chapar: b": figure(1)}},
        {"cases": {"chapar: a": figure(2), "sealing: c": figure(1)}},
    )
    assert bench(tree, "chapar", FIGURES="a,2,lower,judged;b,1,lower,judged").returncode == 0
    gone = bench(tree, "chapar", FIGURES="a,2,lower,judged")
    assert (
        gone.returncode == 1 and "MISSING chapar: b: was 1" in gone.stdout
    )  # but not sealing: not asked for


def test_a_benchmark_that_fails_or_misses_its_goal_fails_all(tree: Path) -> None:
    ended = bench(tree, "chapar", FIGURES="a,2,lower,judged", EXIT="1")
    assert ended.returncode == 1 and "chapar fails, or misses its goal" in ended.stdout
    assert "a" in (tree / "out" / "bench.json").read_text()  # what it gave is kept


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{"cases": ', "no JSON"),
        ("[1]", "a row is an object"),
        ('{"cases": {"unheard: x": {}}}', "'unheard: x' is of no known benchmark"),
        ('{"cases": {"chapar: x": {"value": 0}}}', "'chapar: x' needs a value above 0"),
        (
            '{"cases": {"chapar: x": {"value": 1, "better": "more", "judged": true}}}',
            "better (lower, higher)",
        ),
    ],
)
def test_a_damaged_series_is_one_line(tree: Path, row: str, problem: str) -> None:
    (tree / "benchmarks" / "series.jsonl").write_text(f'{{"cases": {{}}}}\n{row}\n')
    ended = bench(tree, "chapar", FIGURES="a,1,lower,judged")
    assert ended.returncode == 2 and ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("bench: series.jsonl, line 2: ") and problem in line


def test_an_unknown_benchmark_is_one_line(tree: Path) -> None:
    ended = bench(tree, "chapr")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("bench: benchmark 'chapr' is unknown; there are chapar, ")


def test_every_benchmark_of_the_list_exists() -> None:
    names = bench(SCRIPT.parents[1], "?").stderr.partition("there are ")[2].strip().split(", ")
    assert "matching" in names
    for name in names:
        assert (SCRIPT.parent / f"{name}.py").exists(), name


def test_what_seems_lost_is_measured_once_more_and_the_better_figure_counts(tree: Path) -> None:
    (tree / "benchmarks" / "chapar.py").write_text(IMPROVES)
    write_rows(tree, {"cases": {"chapar: time": figure(2), "chapar: rate": figure(10, "higher")}})
    done = bench(tree, "chapar")
    assert done.returncode == 0, done.stdout
    cases = json.loads((tree / "out" / "bench.json").read_text())["cases"]
    assert cases["chapar: time"]["value"] == 2.1 and cases["chapar: rate"]["value"] == 10
    assert (tree / "benchmarks" / "chapar.runs").read_text() == "xx"
