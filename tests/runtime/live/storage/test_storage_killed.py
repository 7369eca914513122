"""SIGKILL at any instant: what was acknowledged is there, no number is used again."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.realtime

KILLS = 30


def test_a_node_that_is_killed_thirty_times_loses_nothing_and_repeats_no_number(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    program = Path(__file__).with_name("killed_node.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "node.db"), str(KILLS), str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    ready, used, durable, retained = map(int, done.stdout.split())
    assert ready > KILLS // 4 and used > durable > 10 and retained, done.stdout  # else it proves nothing
