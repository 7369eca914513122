"""The commands as a user meets them: what they print, what they write, how they exit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roamcast.cli import app

LINE = """
[scenario]
name = "line"
duration = 10.0
[world]
nodes = 3
area = [300.0, 10.0]
range = 120.0
[world.mobility]
model = "static"
positions = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0]]
[workload]
publications = [{ t = 1.0, node = 0 }]
[strategy]
name = "flooding"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "line.toml"
    path.write_text(LINE)
    return path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_simulate_prints_a_table(scenario: Path) -> None:
    result = call("simulate", scenario)
    assert result.exit_code == 0
    assert "delivery_ratio" in result.stdout and "line: flooding, seed 1" in result.stdout


def test_json_is_one_object_on_standard_output_and_nothing_else(scenario: Path) -> None:
    result = call("simulate", scenario, "--json", "--seed", "5", "--set", "strategy.options.hop_limit=1")
    answer = json.loads(result.stdout)
    assert set(answer) == {"run", "metrics"}
    assert answer["run"]["seed"] == 5
    assert answer["metrics"]["delivered"] == 1
    assert answer["metrics"]["cycles"] is None


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("world.nodes=0", "world.nodes"),
        ("world.rnage=5.0", "world.rnage"),
        ("strategy.name=tre", "flooding"),
        ("strategy.options.jitter=-1", "strategy.options.jitter"),
        ("world.radio.model=laser", "csma"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(scenario: Path, setting: str, expected: str) -> None:
    out = scenario.parent / "out"
    result = call("simulate", scenario, "--set", setting, "--out", out)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert expected in result.stderr
    assert not out.exists()


def test_a_missing_scenario_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    result = call("simulate", tmp_path / "absent.toml")
    assert result.exit_code == 2
    assert "absent.toml" in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_out_holds_the_trace_and_is_never_written_over(scenario: Path) -> None:
    out = scenario.parent / "out"
    assert call("simulate", scenario, "--out", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "deliveries.parquet" in before
    assert call("simulate", scenario, "--seed", "2", "--out", out).exit_code == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_why_explains_what_is_missing(scenario: Path) -> None:
    out = scenario.parent / "out"
    call("simulate", scenario, "--set", "strategy.options.hop_limit=1", "--out", out)
    result = call("why", out)
    assert result.exit_code == 0
    assert "1 expected deliver" in result.stdout and "expired" in result.stdout
    answer = json.loads(call("why", out, "--event", "0:0", "--json").stdout)
    assert answer["reasons"] == {"expired": 1}
    assert answer["missing"][0]["node"] == 2
    assert [way["path"] for way in answer["ways"]] == [[0, 1]]


def test_why_of_something_else_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for arguments in ((tmp_path,), (tmp_path / "absent",)):
        result = call("why", *arguments)
        assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1


def test_version_and_help() -> None:
    assert call("--version").stdout.startswith("roamcast ")
    assert "simulate" in call("--help").stdout


def test_a_misspelt_command_is_one_line_that_says_what_may_be_meant() -> None:
    ended = CliRunner().invoke(app, ["subscibe", "-t", "#"])
    assert ended.exit_code == 2 and len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(
        "roamcast: subscibe: is no command (did you mean `subscribe`?); allowed: node,"
    )


def test_help_says_each_command_in_a_whole_sentence_and_keeps_brackets() -> None:
    said = " ".join(call("--help").stdout.split())
    assert (
        "emulate Run one scenario in real time: real nodes in network namespaces, an emulated radio" in said
    )
    assert "..." not in said.removeprefix("Usage: app [OPTIONS] COMMAND [ARGS]...")
    assert "The node's socket; [clients] in its file." in call("publish", "--help").stdout


def test_a_command_without_its_laboratory_is_one_line_and_exit_code_1(scenario: Path) -> None:
    script = "import sys; sys.modules['pyspark'] = None; from roamcast.cli import main; main()"
    arguments = [sys.executable, "-c", script, "sweep", str(scenario), "--out", "out"]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=scenario.parent)
    assert ended.returncode == 1
    assert ended.stderr == (
        "roamcast: sweep needs more than a device has (pyspark is not installed); "
        "allowed: pip install 'roamcast[lab]'\n"
    )


def test_compare_prints_strategies_side_by_side_within_eighty_columns(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = call(
        "simulate", scenario, "--compare", "flooding,epidemic,opportunistic,tree", "--out", out, "--play"
    )
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["epidemic", "flooding", "opportunistic", "tree"]
    *lines, page = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in result.stdout
    heads = [line.split()[1:-1] for line in lines if line.startswith("metric")]
    assert [name for names in heads for name in names] == ["flooding", "epidemic", "opportunistic", "tree"]
    assert next(line for line in lines if line.startswith("delivered ")).split()[-1] == "pairs"
    assert page == str(tmp_path / "out.play.html") and Path(page).read_text().count("x-roamcast-run") == 3


@pytest.mark.parametrize("wanted", ["tree", "tree,tree", "", "tree,nonsense"])
def test_comparing_less_than_two_strategies_or_unknown_ones_is_refused(scenario: Path, wanted: str) -> None:
    result = call("simulate", scenario, "--compare", wanted)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1


def test_simulate_plays_beside_its_folder_and_play_does_it_again(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert call("simulate", scenario, "--out", out, "--play").exit_code == 0
    page = tmp_path / "run.play.html"
    first = page.read_bytes()
    result = call("play", out)
    assert result.exit_code == 0 and result.stdout.strip() == str(page)
    assert page.read_bytes() == first
    assert call("play", out, "--event", "0:0", "--node", "2", "--out", tmp_path / "x.html").exit_code == 0
    assert 'data-start="event=0:0&amp;node=2"' in (tmp_path / "x.html").read_text()
    refused = call("play", out, out, out)
    assert refused.exit_code == 2 and "allowed: one, or two side by side" in refused.stderr
    refused = call("play", out, "--event", "0:7")
    assert refused.exit_code == 2 and "was not published" in refused.stderr


def test_help_has_the_node_first_and_the_laboratory_last() -> None:
    said = call("--help").stdout
    titles = [
        "A node, and what it says:",
        "Programs of a node:",
        "Traces of running nodes:",
        "The laboratory:",
    ]
    assert sorted(titles, key=said.index) == titles
    assert said.index("  node ") < said.index("  publish ") < said.index("  simulate ")
