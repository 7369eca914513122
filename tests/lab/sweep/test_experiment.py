"""Experiment files: the grid they mean, and the one line that tells what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from roamcast.errors import InputError, ScenarioError
from roamcast.lab.sweep.experiment import experiment_from, load_experiment
from roamcast.scenario import Scenario, scenario_from

SCENARIO = """
[scenario]
name = "walkers"
duration = 10.0
seed = 5
[world]
nodes = 6
area = [100.0, 100.0]
range = 50.0
[world.mobility]
model = "random_waypoint"
speed = [1.0, 2.0]
pause = [0.0, 0.0]
[strategy]
name = "flooding"
"""


def write(folder: Path, experiment: str, scenario: str = SCENARIO) -> Path:
    (folder / "walkers.toml").write_text(scenario)
    path = folder / "e.toml"
    path.write_text(experiment)
    return path


def head(extra: str = "") -> str:
    return f'[experiment]\nname = "areas"\nscenario = "walkers.toml"\n{extra}\n[axes]\n'


def axis(values: str, folder: Path, key: str = '"world.range"') -> list[Any]:
    (axis_values,) = load_experiment(write(folder, f"{head()}{key} = {values}")).axes.values()
    return list(axis_values)


def test_every_combination_is_run_with_every_seed_counted_from_the_scenarios(tmp_path: Path) -> None:
    text = f'{head("replications = 2")}"world.nodes" = [4, 5]\n"world.area" = [[9.0, 9.0], [8.0, 8.0]]'
    runs = load_experiment(write(tmp_path, text)).runs()
    assert [(r.cell, r.axes["world.nodes"], r.axes["world.area"], r.seed) for r in runs] == [
        (0, 4, [9.0, 9.0], 5),
        (0, 4, [9.0, 9.0], 6),
        (1, 4, [8.0, 8.0], 5),
        (1, 4, [8.0, 8.0], 6),
        (2, 5, [9.0, 9.0], 5),
        (2, 5, [9.0, 9.0], 6),
        (3, 5, [8.0, 8.0], 5),
        (3, 5, [8.0, 8.0], 6),
    ]
    assert len({run.run for run in runs}) == 8


def test_a_run_has_its_cells_values_and_its_seed(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, f'{head("seeds = [30, 7]")}"world.nodes" = [4, 5]'))
    scenario = experiment.scenario(experiment.runs()[3])
    assert (scenario.nodes, scenario.seed) == (5, 7)


def test_run_names_are_the_same_each_time_and_change_with_the_scenario(tmp_path: Path) -> None:
    text = f'{head()}"world.nodes" = [4]'
    names = [run.run for run in load_experiment(write(tmp_path, text)).runs()]
    assert [run.run for run in load_experiment(write(tmp_path, text)).runs()] == names
    changed = SCENARIO.replace("range = 50.0", "range = 51.0")
    assert [run.run for run in load_experiment(write(tmp_path, text, changed)).runs()] != names


def test_ranges_include_both_ends_and_are_exact(tmp_path: Path) -> None:
    assert axis("{from = 0.1, to = 0.5, step = 0.1}", tmp_path) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert axis("{from = 10, to = 30, count = 3}", tmp_path) == [10, 20, 30]
    assert axis("{from = 3, to = 1, step = -1}", tmp_path) == [3, 2, 1]
    assert axis("{from = 1, to = 2, count = 3}", tmp_path) == [1.0, 1.5, 2.0]
    assert axis("{from = 1.0, to = 2.4, step = 1}", tmp_path) == [1.0, 2.0]
    whole = axis("{from = 4, to = 6, step = 1}", tmp_path, '"world.nodes"')
    assert whole == [4, 5, 6] and all(type(value) is int for value in whole)


def test_keys_need_no_quotes(tmp_path: Path) -> None:
    text = f"{head()}world.nodes = [4]\nworld.range = {{from = 1.0, to = 2.0, count = 2}}"
    assert load_experiment(write(tmp_path, text)).axes == {"world.nodes": (4,), "world.range": (1.0, 2.0)}


def test_seeds_as_an_axis_are_the_seeds_of_every_cell(tmp_path: Path) -> None:
    text = f'{head()}"scenario.seed" = [1, 2]\n"world.nodes" = [4]'
    experiment = load_experiment(write(tmp_path, text))
    assert experiment.seeds == (1, 2) and list(experiment.axes) == ["world.nodes"]


@pytest.mark.parametrize(
    ("experiment", "parts"),
    [
        (f'{head()}"world.nodez" = [4]', ["world.nodez", "did you mean `nodes`"]),
        (f'{head()}"wrld.nodes" = [4]', ["wrld"]),
        (f'{head()}"world.nodes" = []', ["axes.world.nodes", "empty list"]),
        (head(), ["axes", "at least one"]),
        ('[experiment]\nname = "x"\nscenario = "walkers.toml"\n', ["axes", "at least one"]),
        (f'{head()}"world.nodes" = [4, -3]', ["world.nodes", "-3"]),
        (f'{head()}"world.nodes" = 4', ["axes.world.nodes", "a list"]),
        (f'{head()}"world.nodes" = [4, 4]', ["axes.world.nodes[1]", "4 again"]),
        (f'{head()}"world.nodes" = {{from = 1, to = 5}}', ["axes.world.nodes", "step"]),
        (f'{head()}"world.nodes" = {{from = 1, to = 5, step = -1}}', ["axes.world.nodes.step", "-1"]),
        (f'{head()}"world.nodes" = {{from = 1, to = 5, count = 1}}', ["axes.world.nodes.count", "1"]),
        (f'{head()}"world.nodes" = {{from = 1, to = "x", step = 1}}', ["axes.world.nodes.to", '"x"']),
        (f'{head()}"world.range" = {{from = 1, to = nan, step = 1}}', ["world.range", "nan"]),
        (f'{head()}"strategy.name" = ["flooding", "fludding"]', ["strategy.name", "fludding", "flooding"]),
        (f'{head("replications = 0")}"world.nodes" = [4]', ["experiment.replications", "0"]),
        (f'{head("replicas = 3")}"world.nodes" = [4]', ["experiment.replicas"]),
        (f'{head("seeds = [1, 1]")}"world.nodes" = [4]', ["experiment.seeds", "twice"]),
        (f'{head("seeds = [-1]")}"world.nodes" = [4]', ["experiment.seeds"]),
        (f'{head("seeds = [1]")}"scenario.seed" = [4]', ["experiment.seeds", "axes.scenario.seed"]),
        (f'{head("replications = 50_001")}"world.nodes" = [4, 5]', ["100,002", "100,000"]),
        (f'{head()}"world.range" = {{from = 1, to = 2, step = 1e-9}}', ["1,000,000,001", "100,000"]),
        (f'{head()}"world.nodes" = [4]\n"world.nodes.x" = [4]', ["world.nodes.x"]),
    ],
)
def test_bad_experiments_get_one_line_with_key_and_value(
    tmp_path: Path, experiment: str, parts: list[str]
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_experiment(write(tmp_path, experiment))
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(tmp_path / "e.toml"))
    for part in parts:
        assert part in text


def test_an_axis_value_that_only_another_axis_makes_impossible_is_shown_with_it(tmp_path: Path) -> None:
    text = f'{head()}"world.nodes" = [8, 4]\n"roles.publishers" = [2, 6]'
    with pytest.raises(
        ScenarioError, match=r"roles\.publishers: is 6.*with world\.nodes = 4, roles\.publishers = 6"
    ):
        load_experiment(write(tmp_path, text))


def test_a_fault_of_the_scenario_itself_is_told_of_its_file(tmp_path: Path) -> None:
    broken = SCENARIO.replace("duration = 10.0", "duration = -1.0")
    with pytest.raises(ScenarioError) as caught:
        load_experiment(write(tmp_path, f'{head()}"world.nodes" = [4]', broken))
    assert str(caught.value).startswith(f"{tmp_path / 'walkers.toml'}: scenario.duration")


def test_a_missing_scenario_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(f'{head()}"world.nodes" = [4]')
    with pytest.raises(InputError, match=r"walkers\.toml"):
        load_experiment(tmp_path / "e.toml")


def test_the_files_that_runs_read_belong_to_the_experiment(tmp_path: Path) -> None:
    tables = {
        "scenario": {"name": "links", "duration": 5.0},
        "world": {"contacts": "a.csv"},
        "strategy": {"name": "flooding"},
    }
    axes = {"world.contacts": ["a.csv", "b.csv"]}
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("time,i,j,state\n0,0,1,up\n")
    before = experiment_from("x", tables, axes, tmp_path)
    assert list(before.files) == ["a.csv", "b.csv"]
    assert experiment_from("x", tables, axes, tmp_path).fingerprint == before.fingerprint
    (tmp_path / "b.csv").write_text("time,i,j,state\n1,0,1,up\n")
    assert experiment_from("x", tables, axes, tmp_path).fingerprint != before.fingerprint


def test_a_named_variant_sets_several_keys_at_once(tmp_path: Path) -> None:
    text = (
        '[experiment]\nname = "areas"\nscenario = "walkers.toml"\nreplications = 2\n'
        "[variants.place.square]\n[variants.place.field]\n"
        'world.area = [900.0, 900.0]\n"world.mobility.speed" = [3.0, 4.0]\n'
        "[axes]\nworld.nodes = [4, 5]\n"
    )
    experiment = load_experiment(write(tmp_path, text))
    plans = experiment.runs()
    assert experiment.axes == {"place": ("square", "field"), "world.nodes": (4, 5)}
    assert [(plan.axes["place"], plan.axes["world.nodes"]) for plan in plans[::2]] == [
        ("square", 4),
        ("square", 5),
        ("field", 4),
        ("field", 5),
    ]
    square, field = experiment.scenario(plans[0]), experiment.scenario(plans[-1])
    assert (square.world.area, field.world.area) == ((100.0, 100.0), (900.0, 900.0))
    assert (field.nodes, field.seed, field.world.range) == (5, 6, 50.0)
    changed = load_experiment(write(tmp_path, text.replace("4.0]", "5.0]"))).runs()
    assert [a.run == b.run for a, b in zip(plans, changed, strict=True)] == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    ("variants", "problem"),
    [
        ("[variants.place]", "variants.place: is empty"),
        ("[variants.place.square]\nscenario.seed = 4", "variants.place.square: sets scenario.seed"),
        ("[variants.place.square]\nworld.nodes = -1", "world.nodes"),
    ],
)
def test_bad_variants_get_one_line(tmp_path: Path, variants: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_experiment(write(tmp_path, f"{head()}{variants}"))
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_of_very_many_cells_some_are_checked_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []

    def counted(*arguments: Any, **others: Any) -> Scenario:
        checked.append(arguments)
        return scenario_from(*arguments, **others)

    monkeypatch.setattr("roamcast.lab.sweep.experiment.scenario_from", counted)
    axes = "world.nodes = [4, 5]\nworld.range = { from = 50.0, to = 60.0, count = 50000 }\n"
    experiment = load_experiment(write(tmp_path, f"{head('replications = 1')}{axes}"))
    assert len(experiment.run(99_999).axes) == 2 and len(checked) < 3_000
    with pytest.raises(ScenarioError, match=r"world\.nodes"):
        load_experiment(write(tmp_path, f"{head('replications = 1')}{axes.replace('4, 5', '4, -5')}"))
