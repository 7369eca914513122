"""The audio stream: what goes in comes out, gaps are counted, and a source may vanish."""

import subprocess
import sys
import wave
from pathlib import Path

import pytest

AUDIO = Path(__file__).parents[2] / "examples" / "audio"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::ResourceWarning", str(AUDIO / arguments[0]), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture
def tune(tmp_path: Path) -> Path:
    assert run("tune.py", str(tmp_path / "tune.wav"), "--seconds", "10").returncode == 0
    return tmp_path / "tune.wav"


def test_a_stream_over_five_nodes_with_a_cut_has_a_gap_and_the_file_is_recovered(
    tune: Path, tmp_path: Path
) -> None:
    done = run("stream.py", "simulate", str(tune), str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "node 1: 79 of 79 packets (goodput 100.0%), 0 of them late, longest gap 0.0 s"
    gap = float(lines[3].rpartition("longest gap ")[2].removesuffix(" s"))
    assert lines[3].startswith("node 4: 79 of 79 packets (goodput 100.0%)") and 1.5 <= gap <= 4.0
    for node in range(1, 5):
        assert (tmp_path / "out" / f"node-{node}.wav").read_bytes() == tune.read_bytes()


def test_a_source_that_vanishes_leaves_silence_and_is_reported(tune: Path, tmp_path: Path) -> None:
    done = run("stream.py", "simulate", str(tune), str(tmp_path / "out"), "--vanish", "3")
    assert (done.returncode, done.stderr) == (1, "")
    assert "the source fell silent after packet 23" in done.stdout.splitlines()[0]
    with wave.open(str(tmp_path / "out" / "node-1.wav")) as file:
        samples = file.readframes(file.getnframes())
    assert len(samples) == 79 * 4096 and any(samples[: 20 * 4096]) and not any(samples[30 * 4096 :])


def test_what_is_no_sound_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    for name in ("text.wav", "absent.wav"):
        done = run("stream.py", "simulate", str(tmp_path / name), str(tmp_path / "out"))
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and name in done.stderr
