"""The same scenario and seed give the same trace, byte for byte, in any process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roamcast.strategy import STRATEGIES

SCENARIO = """
[scenario]
name = "twice"
duration = 20.0
seed = 7
[world]
nodes = 25
area = [600.0, 600.0]
range = [120.0, 200.0]
[world.mobility]
model = "random_waypoint"
speed = [1.0, 20.0]
pause = [0.0, 5.0]
[world.radio]
model = "csma"
loss = 0.1
[roles]
publishers = 5
[workload]
rate = 2.0
match = 0.4
[strategy]
name = "flooding"
[[fault]]
at = 8.0
kind = "crash"
nodes = [3, 4]
[[fault]]
at = 12.0
kind = "restart"
nodes = [4]
[[fault]]
at = 9.0
kind = "cut"
nodes = [10, 11]
"""


RUN = """
import sys
from pathlib import Path
from roamcast.lab.run.runs import simulate
from roamcast.scenario import load_scenario
scenario, out, *strategies = sys.argv[1:]
for name in strategies:
    simulate(load_scenario(scenario, overrides=[f"strategy.name={name}"])).write(Path(out) / name)
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twice") / "scenario.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def folders(scenario: Path) -> list[Path]:
    """Every strategy, by two processes with different hash seeds."""
    folders = [scenario.parent / f"out-{hash_seed}" for hash_seed in "12"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(scenario), str(folder), *STRATEGIES.own_names()],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        for seed, folder in enumerate(folders, start=1)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    return folders


@pytest.mark.parametrize("name", STRATEGIES.own_names())
def test_two_processes_with_different_hash_seeds_write_the_same_bytes(name: str, folders: list[Path]) -> None:
    first, second = (
        {path.name: path.read_bytes() for path in (folder / name).iterdir()} for folder in folders
    )
    assert "transmissions.parquet" in first
    assert first.keys() == second.keys()
    assert [file for file, content in first.items() if second[file] != content] == []


def test_the_command_writes_these_bytes_and_another_seed_others(scenario: Path, folders: list[Path]) -> None:
    for out, seed in (("same", "7"), ("other", "8")):
        command = ["simulate", str(scenario), "--out", str(scenario.parent / out)]
        settings = ["--set", "strategy.name=flooding", "--set", f"scenario.seed={seed}"]
        subprocess.run(
            [sys.executable, "-m", "roamcast", *command, *settings], check=True, capture_output=True
        )
    file = "transmissions.parquet"
    known = (folders[0] / "flooding" / file).read_bytes()
    assert (scenario.parent / "same" / file).read_bytes() == known
    assert (scenario.parent / "other" / file).read_bytes() != known
