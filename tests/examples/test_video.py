"""The video channel: what a player can show, what its modulator keeps, and both on real nodes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.examples.live_nodes import nodes_with_functions

FOLDER = Path(__file__).parents[2] / "examples" / "video"
sys.path.insert(0, str(FOLDER))

import video  # type: ignore[import-not-found]  # noqa: E402
import video_functions  # type: ignore[import-not-found]  # noqa: E402

from roamcast.errors import WireError  # noqa: E402
from roamcast.event import Event  # noqa: E402
from roamcast.modulator import ModulatorSpec, make  # noqa: E402


def frame(number: int, *, key: bool = False, octets: int = 100) -> Event:
    return Event(1, number, {"number": number, "key": key}, bytes(octets), topic="video/frames")


def test_a_frame_is_shown_only_if_all_before_it_up_to_the_key_frame_came() -> None:
    player = video.Player()
    for number in (3, 10, 11, 13, 14, 20, 21):  # key frames are 10 and 20; 3 has none, 12 is lost
        player.on_frame(frame(number, key=number % 10 == 0), now=number / 10)
    assert (player.came, player.shown, player.octets) == (7, 4, 700)
    assert player.longest_freeze == pytest.approx(0.9)  # from frame 11 to frame 20


def test_half_of_each_group_stays_from_the_key_frame_on_and_octets_shrink() -> None:
    scale = make(ModulatorSpec.of(video_functions.NAME, {"keep": 0.5, "factor": 4, "passes": 0}))
    group = [frame(number, key=number % 6 == 0) for number in range(18)]
    made = [scale.process(one) for one in group]
    kept = [number for number, content in enumerate(made) if content is not None]
    assert kept == [0, 6, 7, 8, 12, 13, 14]  # how long a group is, is known from the one before
    assert {len(content.payload) for content in made if content is not None} == {25}


def test_the_modulator_goes_on_in_another_broker() -> None:
    spec = ModulatorSpec.of(video_functions.NAME, {"keep": 0.5, "passes": 0})
    one, other = make(spec), make(spec)
    for number in range(8):
        one.process(frame(number, key=number % 6 == 0))
    other.restore(one.state())
    for number in range(8, 30):
        event = frame(number, key=number % 6 == 0)
        assert (one.process(event) is None) == (other.process(event) is None)
    with pytest.raises(WireError):
        other.restore(b"nothing")


def test_the_recorded_stream_has_ten_seconds_and_six_key_frames() -> None:
    frames = video.recorded()
    assert len(frames) == 250 and sum(one.is_key for one in frames) == 6
    assert sum(one.octets for one in frames) == 506_093 and max(one.octets for one in frames) == 25_640


@pytest.mark.realtime
def test_a_player_on_another_node_shows_what_the_server_sends(tmp_path: Path) -> None:
    with nodes_with_functions(tmp_path, FOLDER / "video_functions.py") as (server, player):
        program = [sys.executable, str(FOLDER / "video.py")]
        playing = subprocess.Popen(
            [*program, "play", "--socket", str(player), "--seconds", "4", "--factor", "4"],
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(4.0)  # the player's broker is found, and the server knows of it
        serving = [*program, "serve", "--socket", str(server), "--seconds", "4"]
        served = subprocess.run(serving, check=True, capture_output=True, text=True)
        assert served.stdout == "100 frames sent\n"
        said, _ = playing.communicate(timeout=120)
    assert said.startswith("player: 100 frames shown (25.0 a second), 0 of 100 useless"), said
