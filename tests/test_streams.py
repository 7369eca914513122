import os
import subprocess
import sys

import pytest

from roamcast.streams import stream


def test_a_stream_is_the_same_each_time_and_unlike_any_other() -> None:
    first = [stream(1, "node", 7).random() for _ in range(3)]
    assert first[0] == first[1] == first[2]
    others = [stream(2, "node", 7), stream(1, "node", 8), stream(1, "node"), stream(1, "node", 7, "a")]
    assert len({first[0], *(other.random() for other in others)}) == 5


def test_a_stream_does_not_depend_on_the_process() -> None:
    program = "from roamcast.streams import stream; print(stream(1, 'roles', 3).random())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert printed == {f"{stream(1, 'roles', 3).random()}\n"}


def test_a_name_with_a_slash_could_be_two_names() -> None:
    with pytest.raises(AssertionError):
        stream(1, "a/b")
