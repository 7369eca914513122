"""The audio stream over emulated nodes, in real time."""

from pathlib import Path

import pytest
from tests.examples.test_audio import run, tune

__all__ = ["tune"]


@pytest.mark.long
def test_a_stream_over_five_emulated_nodes_with_a_cut(tune: Path, tmp_path: Path) -> None:
    done = run("stream.py", "emulate", str(tune), str(tmp_path / "out"))
    if "cannot" in done.stderr or "namespace" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert [line.partition(" packets")[0] for line in done.stdout.splitlines()] == [
        f"node {node}: 79 of 79" for node in range(1, 5)
    ]
    assert (tmp_path / "out" / "node-4.wav").read_bytes() == tune.read_bytes()
