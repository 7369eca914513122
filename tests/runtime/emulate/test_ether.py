"""The ether between plain programs: who hears whom does not depend on Roamcast."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.realtime

CUT, HEALED = 1_500_000, 2_100_000
ON_THE_WAY = 10_000  # a frame takes less, but may begin on one side of a change and end on the other
PROGRAM = Path(__file__).with_name("air_of_three.py")


MODELS = ("disk", "csma")


@pytest.fixture(scope="module")
def ethers(
    tmp_path_factory: pytest.TempPathFactory, namespaces: None
) -> "Iterator[dict[str, subprocess.Popen[str]]]":
    """Of each model one, all at the same time: they wait more than they compute."""
    started = {}
    for model in MODELS:
        command = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp(model)), model]
        started[model] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield started
    for program in started.values():
        program.kill()
        program.communicate()


@pytest.mark.parametrize("model", MODELS)
def test_frames_follow_the_plan(model: str, ethers: "dict[str, subprocess.Popen[str]]") -> None:
    said, complaints = ethers[model].communicate()
    assert ethers[model].returncode == 0, complaints
    answer: dict[str, Any] = json.loads(said)
    near, far, speaker = answer["said"]
    numbers, octets = near.split(";")
    heard = json.loads(numbers)
    # The stream and address resolution work, broadcasts reach the neighbour, but not during the cut.
    assert int(octets) == 50_000
    assert heard == sorted(set(heard))
    # Two hops away nothing arrives: the ether is no router.
    assert far == "[];0"
    sent, farther = speaker.split()
    assert farther == "unreachable"
    journal = answer["journal"]
    kinds = {line[0] for line in journal}
    assert kinds >= {"links", "faults", "air", "lateness"}
    air = [line[1:] for line in journal if line[0] == "air"]
    broadcasts = [line for line in air if line[5] == "udp"]
    assert len(broadcasts) == int(sent) > 10
    lost = [number for number, line in enumerate(broadcasts) if line[10] != [1]]
    assert heard == [number for number in range(int(sent)) if number not in lost]
    cut = [number for number, line in enumerate(broadcasts) if CUT <= line[1] < HEALED - ON_THE_WAY]
    edge = [number for number, line in enumerate(broadcasts) if CUT - ON_THE_WAY <= line[1] < HEALED]
    assert len(cut) >= 3 and set(cut) <= set(lost)
    # A shared medium may lose a broadcast to the acknowledgements of the stream; a private one loses none.
    assert len(set(lost) - set(edge)) <= (4 if model == "csma" else 0)
    assert all(line[6] in (1, 2) and line[7] == line[6] + 42 for line in broadcasts)
    if model == "csma":  # whoever sends to an acknowledging neighbour may have to repeat
        assert all(line[9] > 192 for line in air)
    assert {line[5] for line in air} == {"udp", "tcp", "arp"}
