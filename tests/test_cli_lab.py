"""The commands that go through Spark, as a user meets them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roamcast.cli import app

SCENARIO = """
[scenario]
name = "small"
duration = 5.0
[world]
nodes = 6
area = [200.0, 200.0]
range = 120.0
[world.mobility]
model = "random_waypoint"
speed = [1.0, 5.0]
pause = [0.0, 1.0]
[strategy]
name = "flooding"
"""
EXPERIMENT = """
[experiment]
name = "small"
scenario = "small.toml"
replications = 2
[axes]
"world.nodes" = [4, 6]
"""


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SCENARIO)
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.mark.spark
def test_sweep_then_report_then_nothing_is_written_over(experiment: Path) -> None:
    out = experiment.parent / "out"
    swept = call("sweep", experiment, "--out", out)
    assert swept.exit_code == 0, swept.stderr
    assert swept.stdout.startswith("4 of 4 runs")
    reported = call("report", out)
    assert reported.exit_code == 0
    assert Path(reported.stdout.strip()).read_text().startswith("<!DOCTYPE html>")
    again = call("sweep", experiment, "--out", out)
    assert again.exit_code == 2 and "--resume" in again.stderr


@pytest.mark.spark
def test_reproduce_a_published_figure_on_seeds_of_ones_own(tmp_path: Path) -> None:
    """A small one, from the command to what a person sees."""
    readme, results, out = tmp_path / "README.md", tmp_path / "results.md", tmp_path / "out"
    readme.write_text("<!-- reproduction: begin -->\n<!-- reproduction: end -->\n")
    command = ("reproduce", "opportunistic/channels-11", "--seed", "801", "--seeds", "2", "--out", out)
    ended = call(*command, "--page", results, "--counts", readme)
    assert ended.exit_code == 0, ended.stderr
    estimate, *_, last = ended.stdout.strip().splitlines()
    assert estimate.startswith("4 runs, about 0 minutes on 2 cores") and "up to 2 in a cell" in estimate
    assert last.startswith("Of 0 published numbers: none; of 4 claims in words: ")
    rows = json.loads((out / "reproduction.json").read_text())
    assert {tuple(row["seeds"]) for row in rows} == {(801, 802)}
    assert last in results.read_text() and "seeds 801, 802." in results.read_text()
    assert "| Opportunistic channels | claims in words | 4 |" in readme.read_text()
    again = call(*command)
    assert again.exit_code == 2 and "--resume" in again.stderr
    assert call(*command, "--resume").stdout.strip().splitlines()[-1] == last


@pytest.mark.spark
def test_contacts_writes_the_plan_of_a_recording(tmp_path: Path) -> None:
    trace = tmp_path / "walk.csv"
    trace.write_text("node,time,x,y\n0,0,0,0\n0,10,0,0\n1,0,100,0\n1,10,0,0\n")
    out = tmp_path / "plan.csv"
    result = call("contacts", trace, "--range", "50", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "1 contacts of 2 nodes, from 4 fixes" in result.stdout
    assert "5,0,1,up" in out.read_text().replace("5.0,", "5,")  # node 1 comes within 50 m after 5 s
    assert call("contacts", trace, "--range", "50", "--out", out).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("report", "absent"), "absent"),
        (("reproduce", "nobody/figure-1"), "opportunistic"),
        (("reproduce", "opportunistic", "--profile", "slow"), "quick"),
        (("sweep", "absent.toml", "--out", "out"), "absent.toml"),
        (("contacts", "absent.csv", "--range", "50", "--out", "plan.csv"), "absent.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert expected in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_json_output_is_parseable_for_every_strategy(tmp_path: Path) -> None:
    from roamcast.strategy import STRATEGIES

    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    for name in STRATEGIES.own_names():
        result = call("simulate", path, "--set", f"strategy.name={name}", "--json")
        assert result.exit_code == 0, name
        assert json.loads(result.stdout)["run"]["strategy"] == name


def test_a_sweep_with_failed_runs_says_so_and_exits_with_1(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How runs come to fail and are run again is tested on `sweep` itself; here, what the user sees."""
    from roamcast.lab.sweep import sweep

    monkeypatch.setattr(sweep, "sweep", lambda *_: sweep.SweepResult(done=197, failed=3, total=200, ran=200))
    result = call("sweep", experiment, "--out", experiment.parent / "out")
    assert result.exit_code == 1
    assert "197 of 200" in result.stdout
    assert "3 runs failed" in result.stderr and "--resume" in result.stderr
