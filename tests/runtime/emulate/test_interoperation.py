"""Our OLSR and a foreign daemon in one network: where `olsrd` and namespaces are there (see the harness)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("interoperation.py")


@pytest.mark.realtime
@pytest.mark.parametrize("shape", ["line", "ring", "grid", "networks", "kernel", "alone"])
def test_olsrd_and_our_nodes_hold_the_same_routes(shape: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HARNESS), "--shape", shape, "--out", str(tmp_path), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout, ended.stderr
    row = json.loads(ended.stdout.splitlines()[-1])
    if "skipped" in row:
        pytest.skip(row["skipped"])
    assert row["right"] and ended.returncode == 0, row
