"""Faults by hand: two terminals, one that emulates and one that cuts, as a person uses them."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError
from roamcast.lab.run import tables
from roamcast.runtime.emulate.emulation import PREFIX
from roamcast.runtime.emulate.programs import happen
from roamcast.runtime.emulate.stage import Stage
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published
from roamcast.units import SECOND

SCENARIO = """
[scenario]
name = "pair"
duration = 24.0
warmup = 1.0
[world]
nodes = 2
area = [10.0, 10.0]
range = 40.0
mobility = { model = "static" }
radio = { model = "disk" }
[roles]
publishers = [0]
subscribers = [1]
[workload]
rate = 5.0
size = 100
[strategy]
name = "flooding"
"""


def terminal(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """A command as a person starts it; its temporary folder tells it apart from emulations of others."""
    return subprocess.Popen(
        [sys.executable, "-m", "roamcast", *words],
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(folder: Path, *words: str) -> tuple[int, str]:
    ended = terminal(folder, *words)
    out, errors = ended.communicate(timeout=90)
    return ended.returncode, (out or errors).strip()


@pytest.mark.realtime
@pytest.mark.usefixtures("namespaces")
def test_a_link_is_cut_and_healed_and_a_node_killed_from_a_second_terminal(tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text(SCENARIO)
    emulation = terminal(tmp_path, "emulate", str(tmp_path / "pair.toml"), "--out", str(tmp_path / "out"))
    try:
        end = time.monotonic() + 60
        while (first := said(tmp_path, "fault", "cut", "0-1"))[0] != 0:
            assert "no emulation runs here" in first[1] and emulation.poll() is None, first
            assert time.monotonic() < end
        assert first[1].startswith("cut 0-1 at ") and first[1].endswith(" s")
        (place,) = tmp_path.glob(f"{PREFIX}*")

        def fault(words: str) -> tuple[int, str]:  # in this process: a start takes a second or more
            ended = CliRunner().invoke(app, ["fault", "--of", str(place), *words.split()])
            return ended.exit_code, (ended.stdout or ended.stderr).strip()

        time.sleep(1)
        # What cannot be is one line with what can; the emulation goes on.
        for words, problem in (
            ("cut 0-2", "is 'cut 0-2'; allowed: nodes 0 to 1, two for a link"),
            ("cut 1-1", "is 'cut 1-1'; allowed: nodes 0 to 1, two for a link"),
            ("cut 1", "is 'cut 1'; allowed: cut 2-3, heal 2-3, crash 3, restart 3 (any nodes)"),
            ("restart 1", "is 'restart 1', but that node is running already"),
        ):
            assert fault(words) == (2, f"roamcast: fault: {problem}")
        assert fault("heal 1-0")[0] == 0
        time.sleep(3)
        assert fault("crash 1")[0] == 0
        assert fault("crash 1") == (2, "roamcast: fault: is 'crash 1', but that node is down already")
        time.sleep(1)
        assert fault("restart 1")[0] == 0
        shown, errors = emulation.communicate(timeout=90)
        assert emulation.returncode == 0, errors
    finally:
        emulation.kill()
        emulation.wait()
    assert "delivery_ratio" in shown
    read = tables.read(str(tmp_path / "out"))
    cut, healed, crashed, restarted = tables.records(read, FaultHappened)
    assert [one.kind for one in (cut, healed, crashed, restarted)] == ["cut", "heal", "crash", "restart"]
    assert [one.up for one in tables.records(read, LinkChanged)] == [True, False, True]
    arrived = {one.sequence for one in tables.records(read, Delivered)}
    sent = tables.records(read, Published)
    during = [one for one in sent if cut.t <= one.t < healed.t]
    assert len(during) >= 3 and not any(one.sequence in arrived for one in during)
    between = [one for one in sent if healed.t + 2 * SECOND <= one.t < crashed.t - SECOND // 2]
    assert between and all(one.sequence in arrived for one in between)  # two seconds: they meet again
    code, why = said(tmp_path, "why", str(tmp_path / "out"))
    assert code == 0 and "the subscriber was down" in why


@pytest.mark.parametrize("place", ["nothing", "a socket that nobody serves"])
def test_without_an_emulation_it_is_one_line_and_exit_code_2(tmp_path: Path, place: str) -> None:
    if place != "nothing":
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(Stage(tmp_path).control))
    ended = CliRunner().invoke(app, ["fault", "--of", str(tmp_path), "cut", "2-3"])
    assert ended.exit_code == 2 and ended.stdout == ""
    problem = f"no emulation runs in {tmp_path}; one takes some seconds to start"
    assert ended.stderr == f"roamcast: fault: {problem}\n"


def test_of_several_emulations_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    places = [tmp_path / f"{PREFIX}{name}" for name in "ab"]
    for place in places:
        place.mkdir()
        Stage(place).control.touch()
    with pytest.raises(
        InputError, match=f"--of: is needed, for several run; allowed: {places[0]}, {places[1]}"
    ):
        happen("cut 0-1")
