"""The sweep of `tests/lab/sweep/broken_runs.py` with two hundred runs: minutes instead of seconds."""

from pathlib import Path

import pytest
from tests.lab.sweep.broken_runs import some_fail_and_are_mended


@pytest.mark.spark
def test_three_of_two_hundred_fail_and_are_run_again_when_their_cause_is_mended(tmp_path: Path) -> None:
    some_fail_and_are_mended(tmp_path, 200)
