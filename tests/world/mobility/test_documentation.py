"""The tables in docs/study/mobility.md are what the code reads."""

import re
import tomllib
from pathlib import Path
from random import Random

import msgspec
import pytest

from roamcast.units import SECOND
from roamcast.world.mobility import Mobility

PAGE = (Path(__file__).parents[3] / "docs" / "study" / "mobility.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
MODELS = Mobility.__args__


def test_all_seven_scenarios_are_there() -> None:
    models = [tomllib.loads(block)["world"]["mobility"]["model"] for block in BLOCKS]
    assert "`area = [120.0, 120.0]` for walkers (1 to 4), `[300.0, 300.0]` for cars (5 to 7" in PAGE
    assert models == [
        "random_waypoint",
        "fixed_targets",
        "nomadic",
        "column",
        "city_block",
        "city_block",
        "pursue",
    ]


@pytest.mark.parametrize("number", range(1, len(BLOCKS) + 1))
def test_each_scenario_runs(number: int) -> None:
    world = tomllib.loads(BLOCKS[number - 1])["world"]
    area = (120.0, 120.0) if number <= 4 else (300.0, 300.0)
    model: Mobility = msgspec.convert(world["mobility"], type=Mobility)
    model.check(10, area)
    motion = model.motion(10, area, 60 * SECOND, Random(1))
    assert (motion.nodes, motion.begins, motion.ends) == (10, 0, 60 * SECOND)


def test_every_model_and_every_parameter_is_described() -> None:
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE))
    for model in MODELS:
        tag = model.__struct_config__.tag
        for parameter in model.__struct_fields__:
            assert f"`{parameter}`" in sections[tag], (tag, parameter)
    assert len(sections) == len(MODELS)
