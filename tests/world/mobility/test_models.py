"""What every model promises, whatever its kind of motion."""

import hashlib
from random import Random

import msgspec
import numpy as np
import pytest

from roamcast.errors import ScenarioError
from roamcast.units import SECOND, Micros
from roamcast.world.mobility import Area, Mobility
from roamcast.world.trajectory import Motion

DEFAULTS = [
    {"model": "static"},
    {"model": "random_waypoint"},
    {"model": "fixed_targets"},
    {"model": "random_walk"},
    {"model": "nomadic"},
    {"model": "column"},
    {"model": "city_block"},
    {"model": "pursue"},
]
OTHERS = [
    {"model": "random_waypoint", "speed": [3, 3], "pause": [0, 0]},
    {"model": "fixed_targets", "targets": [[0, 0], [300, 0], [5, 140]], "pause": [0, 0]},
    {"model": "random_walk", "speed": [0, 40], "step": 30, "pause": [0, 5]},
    {"model": "nomadic", "radius": 1000, "roam_pause": [0, 0]},
    {"model": "column", "spacing": 0.5, "radius": 30, "pause": [0, 10]},
    {"model": "city_block", "buildings": False, "stop_probability": 0, "pause": [0, 0]},
    {"model": "city_block", "stop_probability": 1, "acceleration": 0.5, "turn_speed": 100, "block": 1000},
    {"model": "pursue", "pause": [0, 30], "lead_in": 0, "block": 20},
]
AREA: Area = (300.0, 150.0)

# Metres per second that no node of the model may exceed (its own docstring says why).
FASTEST = {
    "static": 0.0,
    "random_waypoint": 3.0,
    "fixed_targets": 1.5,
    "random_walk": 40.0,
    "nomadic": 1.5 + 1.0,
    "column": 1.5 + 0.5,
    "city_block": 20 / 3.6,
    "pursue": 20 / 3.6,
}

tables = pytest.mark.parametrize("table", DEFAULTS + OTHERS, ids=str)


def made(table: object, nodes: int = 8, duration: Micros = 300 * SECOND, seed: int = 1) -> Motion:
    model: Mobility = msgspec.convert(table, type=Mobility)
    model.check(nodes, AREA)
    return model.motion(nodes, AREA, duration, Random(seed))


@tables
def test_paths_cover_the_run_exactly_and_stay_in_the_area(table: object) -> None:
    motion = made(table)
    assert motion.nodes == 8
    for path in motion.trajectories:
        assert (path.times[0], path.times[-1]) == (0, 300 * SECOND)
        assert not path.gap.any()
        assert path.x.min() >= 0 and path.x.max() <= AREA[0]
        assert path.y.min() >= 0 and path.y.max() <= AREA[1]


@tables
@pytest.mark.parametrize("duration", [0, 1, 999_999])
def test_even_a_run_of_no_or_one_microsecond_has_its_knots(table: object, duration: Micros) -> None:
    for path in made(table, duration=duration).trajectories:
        assert path.times[0] == 0
        assert path.times[-1] == duration


@tables
def test_no_node_jumps_or_speeds(table: dict[str, object]) -> None:
    fastest = FASTEST[str(table["model"])]
    for path in made(table).trajectories:
        metres = np.hypot(np.diff(path.x), np.diff(path.y))
        spans = np.diff(path.times)
        # The column's turns are rounded to the nearest microsecond, hence the two microseconds.
        assert (metres <= fastest * (spans + 2) / SECOND + 1e-9).all()


@tables
def test_the_same_seed_gives_the_same_paths_and_another_seed_others(table: object) -> None:
    assert fingerprint(made(table)) == fingerprint(made(table))
    assert fingerprint(made(table)) != fingerprint(made(table, seed=2))


@tables
def test_adding_a_node_leaves_the_others_alone(table: object) -> None:
    few, many = made(table, nodes=5), made(table, nodes=9)
    assert fingerprint(few) == fingerprint(Motion(many.trajectories[:5]))


@tables
def test_a_longer_run_begins_as_the_shorter_one(table: object) -> None:
    short, long = made(table, duration=100 * SECOND), made(table, duration=170 * SECOND)
    for a, b in zip(short.trajectories, long.trajectories, strict=True):
        for time in range(0, 100 * SECOND + 1, 7_654_321):
            assert a.position(time) == pytest.approx(b.position(time), abs=1e-9)


def test_paths_are_the_same_on_every_machine() -> None:
    """Recorded with CPython 3.11 on x86-64. If a change of the models is meant, record them again."""
    assert {str(table["model"]): fingerprint(made(table)) for table in DEFAULTS} == RECORDED


RECORDED = {
    "static": "a2f3245907ed53b1",
    "random_waypoint": "f3415e7da143fa0b",
    "fixed_targets": "9e535867345696d3",
    "random_walk": "0f4a3c63de363589",
    "nomadic": "f1deb68b24e13064",
    "column": "f9470844ff15e86a",
    "city_block": "f1aa06b1493b4a3c",
    "pursue": "ee06171e2f6393f6",
}


def fingerprint(motion: Motion) -> str:
    digest = hashlib.sha256()
    for path in motion.trajectories:
        for column in (path.times, path.x, path.y):
            digest.update(np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize(
    ("table", "key", "allowed"),
    [
        ({"model": "static", "positions": [[1, 1]]}, "positions", "one per node, 8"),
        ({"model": "static", "positions": [[1, 1]] * 7 + [[301, 1]]}, "positions[7]", "in the area"),
        ({"model": "static", "positions": [[float("nan"), 1]] * 8}, "positions[0]", "in the area"),
        ({"model": "random_waypoint", "speed": [2, 1]}, "speed", "min <= max"),
        ({"model": "random_waypoint", "speed": [0, 1]}, "speed", "never end"),
        ({"model": "random_waypoint", "speed": [-1, 1]}, "speed", "0 < min"),
        ({"model": "random_waypoint", "speed": [1, float("inf")]}, "speed", "min <= max"),
        ({"model": "random_waypoint", "speed": [float("nan"), 1]}, "speed", "min <= max"),
        ({"model": "random_waypoint", "pause": [-1, 1]}, "pause", "0 <= min"),
        ({"model": "random_waypoint", "pause": [9, 1]}, "pause", "min <= max"),
        ({"model": "fixed_targets", "targets": 1}, "targets", "2 to"),
        ({"model": "fixed_targets", "targets": [[1, 1]]}, "targets", "2 to"),
        ({"model": "fixed_targets", "targets": [[1, 1], [1, 1]]}, "targets[1]", "must differ"),
        ({"model": "fixed_targets", "targets": [[1, 1], [1, 151]]}, "targets[1]", "in the area"),
        ({"model": "random_walk", "step": 0}, "step", ">="),
        ({"model": "random_walk", "step": 1e9}, "step", "up to"),
        ({"model": "nomadic", "radius": 0}, "radius", "> 0"),
        ({"model": "nomadic", "roam_speed": [0, 1]}, "roam_speed", "0 < min"),
        ({"model": "nomadic", "roam_pause": [2, 1]}, "roam_pause", "min <= max"),
        ({"model": "column", "spacing": -1}, "spacing", "> 0"),
        ({"model": "column", "radius": float("nan")}, "radius", "> 0"),
        ({"model": "city_block", "block": 0}, "block", "> 0"),
        ({"model": "city_block", "block": 0.1}, "block", "at most 1000"),
        ({"model": "city_block", "block": 10}, "street_width", "less than a block"),
        ({"model": "city_block", "street_width": 0}, "street_width", "> 0"),
        ({"model": "city_block", "stop_probability": 1.1}, "stop_probability", "0 to 1"),
        ({"model": "city_block", "stop": [25, 5]}, "stop", "min <= max"),
        ({"model": "city_block", "acceleration": 0.01}, "acceleration", ">= 0.1"),
        ({"model": "city_block", "turn_speed": 0}, "turn_speed", "> 0"),
        ({"model": "pursue", "follower_speed": [0, 1]}, "follower_speed", "0 < min"),
        ({"model": "pursue", "lead_in": -1}, "lead_in", ">= 0"),
    ],
    ids=str,
)
def test_impossible_values_name_the_key_the_value_and_what_is_allowed(
    table: object, key: str, allowed: str
) -> None:
    model: Mobility = msgspec.convert(table, type=Mobility)
    with pytest.raises(ScenarioError) as error:
        model.check(8, AREA)
    assert error.value.where == f"world.mobility.{key}"
    assert allowed in error.value.problem
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "table", [{"model": "teleport"}, {"model": "static", "speed": [1, 2]}, {"model": "nomadic", "radios": 1}]
)
def test_unknown_models_and_keys_are_no_mobility(table: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(table, type=Mobility)


def test_static_nodes_stand_where_they_were_put() -> None:
    places = [[1.5, 2.0], [300.0, 150.0]]
    motion = made({"model": "static", "positions": places}, nodes=2)
    for path, place in zip(motion.trajectories, places, strict=True):
        assert [path.position(t) for t in (0, 1, 300 * SECOND)] == [tuple(place)] * 3


def test_models_without_streets_have_no_walls() -> None:
    for table in DEFAULTS:
        model: Mobility = msgspec.convert(table, type=Mobility)
        assert bool(model.walls(AREA)) == (table["model"] in ("city_block", "pursue"))
