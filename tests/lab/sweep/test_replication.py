"""Adaptive replication: when a cell has enough seeds, and what looking before stopping costs."""

import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from roamcast.cli import app
from roamcast.errors import InputError
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.summary import spread
from roamcast.lab.sweep.sweep import SEEDS_FIRST, Replication

SCENARIO = """
[scenario]
name = "place"
duration = 4.0
[world]
nodes = 6
area = [200.0, 200.0]
range = 100.0
mobility = { model = "static" }
[strategy]
name = "flooding"
"""
EXPERIMENT = """
[experiment]
name = "ranges"
scenario = "place.toml"
[axes]
"world.range" = [60.0, 400.0]
"""


def seeds_of(values: list[float], rule: Replication) -> int:
    """How many of these a cell runs with before it stops."""
    seeds = 0
    while (wanted := rule.wanted_by(seeds, values[:seeds])) > seeds:
        seeds = wanted
    return seeds


def test_a_cell_that_is_narrow_at_once_keeps_the_first_seeds() -> None:
    assert seeds_of([0.9, 0.91, 0.9, 0.91, 0.9, 0.5], Replication(0.02)) == SEEDS_FIRST


def test_a_wide_cell_grows_by_what_its_spread_asks_for_and_at_most_doubles() -> None:
    wide = [0.1, 0.9, 0.2, 0.8, 0.5]
    assert Replication(0.02).wanted_by(5, wide) == 10
    assert Replication(0.4).wanted_by(5, wide) == 7  # half of its interval is 0.44: 5 · (0.44 / 0.4)² seeds
    assert Replication(0.02, seeds_max=7).wanted_by(5, wide) == 7


def test_runs_without_a_value_never_make_a_cell_narrow() -> None:
    assert seeds_of([], Replication(0.02, "latency_p50", seeds_max=12)) == 12


@given(st.lists(st.floats(0, 1), min_size=40, max_size=40), st.floats(0.001, 1))
def test_a_cell_stops_when_it_is_narrow_or_at_the_bound(values: list[float], half_width: float) -> None:
    rule = Replication(half_width, seeds_max=40)
    seeds = seeds_of(values, rule)
    assert SEEDS_FIRST <= seeds <= 40 and (rule.is_narrow(values[:seeds]) or seeds == 40)


@pytest.mark.parametrize(("half_width", "least", "most"), [(1.0, 0.925, 0.965), (0.5, 0.895, 0.95)])
def test_the_intervals_of_sequential_stopping_cover_nearly_what_they_say(
    half_width: float, least: float, most: float
) -> None:
    """What `docs/study/lab.md` says of normal values: a little less than 95%."""
    draw = random.Random(7)
    covered = 0
    for _ in range(1_000):
        values = [draw.gauss(0, 1) for _ in range(100)]
        found = spread(values[: seeds_of(values, Replication(half_width))])
        assert found.ci_low is not None and found.ci_high is not None
        covered += found.ci_low <= 0 <= found.ci_high
    assert least <= covered / 1_000 <= most


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (Replication(0.0), "--until-half-width: is 0"),
        (Replication(float("nan")), "--until-half-width: is nan"),
        (Replication(0.1, "delivery"), "--of: is 'delivery', no metric"),
        (Replication(0.1, seeds_max=4), "--seeds-max: is 4"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_one_line(rule: Replication, told: str) -> None:
    with pytest.raises(InputError) as caught:
        rule.check()
    assert str(caught.value).startswith(told)


@pytest.mark.spark
def test_a_sweep_adds_seeds_until_cells_are_narrow_and_names_those_that_hit_the_bound(tmp_path: Path) -> None:
    (tmp_path / "place.toml").write_text(SCENARIO)
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    arguments = [
        "sweep",
        str(tmp_path / "e.toml"),
        "--out",
        str(tmp_path / "out"),
        "--until-half-width",
        "0.1",
    ]
    answer = CliRunner().invoke(app, [*arguments, "--seeds-max", "8"])
    assert answer.exit_code == 0, answer.output
    assert (
        "13 of 13 runs" in answer.output
    )  # eight where links come and go by the seed, five where all hear all
    (wide,) = [line for line in answer.output.splitlines() if "too wide" in line]
    assert "world.range = 60: delivery_ratio" in wide and "with 8 seeds" in wide
    answer = CliRunner().invoke(app, [*arguments, "--seeds-max", "10", "--resume"])
    assert "15 of 15 runs" in answer.output and "2 were run now" in answer.output
    cells = {
        cell: len(seeds) for cell, seeds in read_results(tmp_path / "out").figures["delivery_ratio"].items()
    }
    assert cells == {0: 10, 1: 5}
