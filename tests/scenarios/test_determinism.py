"""The same scenario and seed give the same trace, byte for byte, in any process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roamcast import strategy

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


def trace_bytes(folder: Path, hash_seed: str, *settings: str) -> dict[str, str]:
    """Run the command as a user does; the digest of each file it wrote."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO)
    out = folder / f"out-{hash_seed}-{len(list(folder.iterdir()))}"
    command = [sys.executable, "-m", "roamcast", "simulate", str(scenario), "--out", str(out)]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


@pytest.mark.parametrize("strategy", strategy.names())
def test_two_processes_with_different_hash_seeds_write_the_same_bytes(strategy: str, tmp_path: Path) -> None:
    setting = f"strategy.name={strategy}"
    first = trace_bytes(tmp_path, "1", setting)
    assert "transmissions.parquet" in first
    assert first == trace_bytes(tmp_path, "2", setting)


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    first, second = trace_bytes(tmp_path, "1"), trace_bytes(tmp_path, "1", "scenario.seed=8")
    assert first["transmissions.parquet"] != second["transmissions.parquet"]
