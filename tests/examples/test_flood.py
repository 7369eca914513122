"""Flood watch: water is neither lost nor made, flows downhill, and goes on in another broker."""

import subprocess
import sys
import time
import zlib
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.examples.live_nodes import nodes_with_functions

FOLDER = Path(__file__).parents[2] / "examples" / "flood"
sys.path.insert(0, str(FOLDER))

import flood_functions  # type: ignore[import-not-found]  # noqa: E402
import flood_watch  # type: ignore[import-not-found]  # noqa: E402

from roamcast.errors import InputError, WireError  # noqa: E402
from roamcast.event import PAYLOAD_BYTES_MAX, Event  # noqa: E402
from roamcast.lab.studies.flood import rain  # noqa: E402
from roamcast.lab.studies.flood.runoff import (  # noqa: E402
    STEPS,
    Grid,
    Runoff,
    RunoffParameters,
    read_terrain,
    register_runoff,
)
from roamcast.modulator import ModulatorSpec, make  # noqa: E402
from roamcast.modulator.base import STATE_BYTES_MAX  # noqa: E402
from roamcast.modulator.built_in import BoundingBoxParameters  # noqa: E402

MM = 1_000


def runoff(ground: Grid, infiltration: int = 0) -> Runoff:
    return Runoff(RunoffParameters(infiltration=infiltration), ground)


def total(model: Runoff) -> int:
    return int(model.depth.sum() + model.infiltrated + model.left)


@pytest.mark.parametrize("seed", range(5))
def test_no_drop_is_lost_or_made(seed: int) -> None:
    chance = np.random.default_rng(seed)
    model = runoff(chance.integers(0, 50_000, (12, 9)), infiltration=200)
    for _ in range(20):
        model.step(chance.integers(0, 5_000, (12, 9)))
        assert total(model) == model.rained and model.depth.min() >= 0
    assert model.left > 0 and model.infiltrated > 0


def test_water_flows_downhill_and_gathers_in_the_hollow() -> None:
    ground = np.full((5, 5), 100 * MM)
    ground[1:4, 1:4] = 50 * MM
    ground[2, 2] = 0
    rained = np.zeros((5, 5), np.int64)
    rained[1, 1] = 8 * MM  # on the step above the hollow
    model = runoff(ground)
    for _ in range(10):
        model.step(rained * (model.rained == 0))
    assert model.depth[2, 2] >= 8 * MM - 1 and total(model) == model.rained  # 1 cannot be halved


def test_nothing_flows_uphill() -> None:
    ground = np.full((3, 3), 10 * MM)
    ground[1, 1] = 0
    model = runoff(ground)
    deep = np.zeros((3, 3), np.int64)
    deep[1, 1] = 4 * MM
    model.step(deep)
    assert model.depth.tolist() == deep.tolist() and model.left == 0


def test_the_border_lets_water_out() -> None:
    model = runoff(np.zeros((1, 2), np.int64))
    model.step(np.full((1, 2), 1 << STEPS))
    assert model.depth.max() <= 1 << 1 and total(model) == model.rained


def event(number: int) -> Event:
    payload = rain.grid(number, rain.hourly()).tobytes()
    return Event(0, number, {"rows": 100, "columns": 100, "quantity": "rain"}, payload)


def test_it_goes_on_in_another_broker_and_all_fits_into_an_event_and_a_state() -> None:
    register_runoff()
    spec = ModulatorSpec.of("runoff")
    stays, leaves = make(spec), make(spec)
    for number in (230, 231, 232):
        assert stays.process(event(number)) == leaves.process(event(number))
    state = leaves.state()
    assert len(state) <= STATE_BYTES_MAX
    arrives = make(spec)
    arrives.restore(state)
    content = arrives.process(event(233))
    assert content == stays.process(event(233)) and arrives.state() == stays.state()
    assert content is not None and len(content.payload) == 40_000 <= PAYLOAD_BYTES_MAX
    with pytest.raises(WireError):
        arrives.restore(state[:-1])


def test_a_box_is_that_part_of_the_whole_map() -> None:
    box = BoundingBoxParameters(top=45, left=30, bottom=65, right=80)
    part = Runoff(RunoffParameters(box=box)).process(event(240))
    whole = Runoff(RunoffParameters()).process(event(240))
    assert part is not None and whole is not None and len(part.payload) == len(whole.payload) // 10
    depth = np.frombuffer(whole.payload, "<f4").reshape(100, 100)
    assert part.payload == depth[45:65, 30:80].tobytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e9])
def test_rubbish_from_a_sensor_changes_nothing(value: float) -> None:
    model = Runoff(RunoffParameters())
    grid = np.full((100, 100), value, "<f4")
    assert model.process(Event(0, 1, {"rows": 100, "columns": 100}, grid.tobytes())) is None
    assert model.process(Event(0, 1, {"rows": 100, "columns": 100}, b"short")) is None
    assert model.rained == 0


def test_the_storm_is_the_gauge_s(tmp_path: Path) -> None:
    gauge = rain.hourly()
    assert len(gauge) == rain.HOURS and max(gauge) == pytest.approx(2.2 * 25.4)  # midnight, 12 September
    for number in (0, 236, 799):
        hour = gauge[number // rain.PER_HOUR]
        assert rain.grid(number, gauge).mean() == pytest.approx(hour / rain.PER_HOUR, rel=1e-4)
    broken = tmp_path / "rain.csv"
    broken.write_text("date,inches\n20130910 02:00,much\n")
    with pytest.raises(InputError, match=r"rain.csv:2"):
        rain.hourly(broken)
    with pytest.raises(InputError, match="ESRI"):
        read_terrain(broken)


def test_maps_arrive_on_all_four_topologies_and_are_drawn(tmp_path: Path) -> None:
    watch = flood_watch.FloodWatch("opportunistic", box=True, events=40)
    means = watch.run()
    assert all(latency is not None for latency in means) and len(watch.maps) >= 39
    last = watch.maps[-1]
    # Event 39 of 40 is quarter 780 of the storm; its rain has fallen 195 and a quarter hours after the begin.
    assert last.depth.shape == (20, 50) and last.place == (45, 30)
    assert last.moment == rain.BEGIN + timedelta(hours=195, minutes=15)
    flood_watch.draw(last, tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_doubles_come_through_to_the_last_digit_and_rubbish_is_none() -> None:
    grid = np.random.default_rng(1).random((100, 100))
    payload = flood_functions.deflated(grid)
    read = flood_functions.inflated(payload, grid.size)
    assert read is not None and (read.reshape(grid.shape) == grid).all()
    for wrong in (b"", b"rubbish", payload[:-5], payload + b"more", zlib.compress(bytes(8 * grid.size + 8))):
        assert flood_functions.inflated(wrong, grid.size) is None
    bomb = zlib.compress(bytes(100_000_000))
    assert flood_functions.inflated(bomb, grid.size) is None


def test_the_model_gives_doubles_for_doubles() -> None:
    model = flood_functions.DoubleRunoff(RunoffParameters(infiltration=0), np.zeros((2, 2), np.int64))
    rain_fallen = np.full((2, 2), 0.123)
    event = Event(1, 1, {"rows": 2, "columns": 2}, flood_functions.deflated(rain_fallen))
    content = model.process(event)
    assert content is not None and model.rained == 4 * 123
    depth = flood_functions.inflated(content.payload, 4)
    assert depth is not None and depth.sum() * MM == pytest.approx(4 * 123 - model.left)


@pytest.mark.realtime
def test_rain_sent_from_one_device_is_seen_as_water_on_another(tmp_path: Path) -> None:
    with nodes_with_functions(tmp_path, FOLDER / "flood_functions.py") as (sender, client):
        program = [sys.executable, str(FOLDER / "live.py")]
        watching = subprocess.Popen(
            [*program, "watch", "--socket", str(client), "--events", "5", "--out", str(tmp_path / "maps")],
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(5.0)  # the client's broker is found, and the sender knows of it
        sending = [*program, "send", "--socket", str(sender), "--events", "5", "--every", "0.3"]
        subprocess.run(sending, check=True, capture_output=True)
        said, _ = watching.communicate(timeout=120)
    assert said.startswith("5 of 5 maps arrived"), said
    assert (tmp_path / "maps" / "depth.png").read_bytes().startswith(b"\x89PNG")
