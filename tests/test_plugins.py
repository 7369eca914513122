"""Parts from outside the tree: beside a file, installed, by entry point; and a bad one harms nobody."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roamcast import plugins
from roamcast.errors import InputError, ScenarioError
from roamcast.lab.run.runs import simulate
from roamcast.lab.sweep.experiment import experiment_from, load_experiment
from roamcast.plugins import load_modules
from roamcast.registry import Plugin, PluginError
from roamcast.scenario import load_scenario, scenario_from
from roamcast.strategy import STRATEGIES
from roamcast.world.mobility import MOBILITY

STRATEGY = """
from roamcast.strategy import STRATEGIES
from roamcast.strategy.flooding import Flooding, FloodingOptions

class {name}Options(FloodingOptions, frozen=True, kw_only=True):
    depth: int = {depth}  # how deep

STRATEGIES.add("{name}", {name}Options, Flooding, default_underlay="none")
"""
WORLD: dict[str, Any] = {
    "nodes": 3,
    "area": [300.0, 300.0],
    "range": 120.0,
    "mobility": {"model": "static", "positions": [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0]]},
}


def strategy(name: str, depth: int = 1) -> str:
    return STRATEGY.format(name=name, depth=depth)


def tables(name: str, *modules: str, **world: Any) -> dict[str, Any]:
    return {
        "scenario": {"name": "plugged", "duration": 5.0, "modules": list(modules)},
        "world": WORLD | world,
        "strategy": {"name": name},
    }


@pytest.fixture(autouse=True)
def _leave_nothing_behind() -> Iterator[None]:
    yield
    for root in list(plugins._beside):
        plugins._forget(root)


def install(folder: Path, distribution: str, points: dict[str, str], **modules: str) -> None:
    """A distribution as pip would leave it: its modules and its entry points in the group of strategies."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {module}" for name, module in points.items()]
    (info / "entry_points.txt").write_text("[roamcast.strategies]\n" + "\n".join(lines) + "\n")


# Beside a file.


def test_a_strategy_beside_the_scenario_file_runs(tmp_path: Path) -> None:
    (tmp_path / "beside_one.py").write_text(strategy("besideone"))
    (tmp_path / "s.toml").write_text(
        '[scenario]\nname = "s"\nduration = 5.0\nmodules = ["beside_one"]\n'
        "[world]\nnodes = 3\narea = [99.0, 99.0]\nrange = 200.0\n[world.mobility]\nmodel = 'static'\n"
        '[strategy]\nname = "besideone"\noptions = { depth = 3 }\n'
    )
    scenario = load_scenario(tmp_path / "s.toml")
    assert simulate(scenario).metrics["delivery_ratio"] == 1.0
    assert scenario_from(scenario.to_dict(), tmp_path) == scenario, "a trace says which modules it needs"
    assert STRATEGIES.origin("besideone") == str(tmp_path / "beside_one.py")


def test_a_package_beside_the_file_and_a_module_listed_before_it(tmp_path: Path) -> None:
    (tmp_path / "deep_numbers.py").write_text("DEPTH = 9\n")
    package = tmp_path / "packed"
    package.mkdir()
    (package / "__init__.py").write_text("from packed import inner\n")
    (package / "inner.py").write_text("import deep_numbers\n" + strategy("packed"))
    scenario = scenario_from(tables("packed", "deep_numbers", "packed"), tmp_path)
    assert scenario.strategy.parsed().depth == 1  # type: ignore[attr-defined]
    experiment = experiment_from(
        "e", tables("packed", "deep_numbers", "packed"), {"workload.rate": [1]}, tmp_path
    )
    assert sorted(experiment.files) == ["deep_numbers.py", "packed/__init__.py", "packed/inner.py"]


def test_a_file_that_changed_is_loaded_anew(tmp_path: Path) -> None:
    for depth in (1, 2):
        (tmp_path / "changing.py").write_text(strategy("changing", depth))
        scenario = scenario_from(tables("changing", "changing"), tmp_path)
        assert scenario.strategy.parsed().depth == depth  # type: ignore[attr-defined]


def test_the_code_of_a_plugin_is_part_of_what_is_swept(tmp_path: Path) -> None:
    prints = []
    for depth in (1, 2):
        (tmp_path / "swept.py").write_text(strategy("swept", depth))
        prints.append(
            experiment_from("e", tables("swept", "swept"), {"workload.rate": [1]}, tmp_path).fingerprint
        )
    assert prints[0] != prints[1]


def test_an_experiment_file_names_modules_too(tmp_path: Path) -> None:
    (tmp_path / "tried.py").write_text(strategy("tried"))
    (tmp_path / "s.toml").write_text(
        '[scenario]\nname = "s"\nduration = 5.0\n[world]\nnodes = 3\narea = [99.0, 99.0]\nrange = 200.0\n'
        "[world.mobility]\nmodel = 'static'\n[strategy]\nname = \"flooding\"\n"
    )
    (tmp_path / "e.toml").write_text(
        '[experiment]\nname = "e"\nscenario = "s.toml"\nmodules = ["tried"]\n'
        '[axes]\n"strategy.name" = ["tried", "flooding"]\n'
    )
    experiment = load_experiment(tmp_path / "e.toml")
    assert experiment.plugins.modules == ["tried"] and "tried.py" in experiment.files


def test_mobility_and_radio_models_come_from_outside(tmp_path: Path) -> None:
    (tmp_path / "own_world.py").write_text(
        "from roamcast.runtime.sim.medium import IdealMedium\n"
        "from roamcast.world.mobility import MOBILITY, Static\n"
        "from roamcast.world.radio import RADIOS, Radio\n"
        "class Row(Static, frozen=True, kw_only=True, tag='row'):\n"
        "    gap: float = 100.0\n"
        "    def motion(self, nodes, area, duration, random):\n"
        "        places = tuple((self.gap * node, 0.0) for node in range(nodes))\n"
        "        return Static(positions=places).motion(nodes, area, duration, random)\n"
        "class Deaf(Radio, frozen=True, kw_only=True, tag='deaf'):\n"
        "    loss: float = 1.0\n"
        "MOBILITY.add('row', Row)\n"
        "RADIOS.add('deaf', Deaf, IdealMedium)\n"
    )
    rowed = scenario_from(tables("flooding", "own_world", mobility={"model": "row"}), tmp_path)
    assert simulate(rowed).metrics["delivery_ratio"] == 1.0
    far = scenario_from(tables("flooding", "own_world", mobility={"model": "row", "gap": 130.0}), tmp_path)
    assert simulate(far).metrics["delivery_ratio"] == 0.0
    deaf = scenario_from(tables("flooding", "own_world", radio={"model": "deaf"}), tmp_path)
    assert simulate(deaf).metrics["delivery_ratio"] == 0.0
    settings = [("world.mobility.model", "row")]
    moved = scenario_from(tables("flooding", "own_world"), tmp_path, settings).world.mobility
    assert type(moved) is MOBILITY.options_type("row")
    assert getattr(moved, "positions", None), "it has that key too"
    with pytest.raises(ScenarioError, match=r"world.mobility.gap: is \"x\"; allowed: a number"):
        scenario_from(tables("flooding", "own_world", mobility={"model": "row", "gap": "x"}), tmp_path)
    with pytest.raises(ScenarioError, match=r'world.mobility.model: is "raw".*"row"'):
        scenario_from(tables("flooding", "own_world", mobility={"model": "raw"}), tmp_path)


# By entry point.


def test_an_entry_point_is_listed_without_being_imported_and_loaded_when_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "far_away", {"faraway": "far_away_strategy"}, far_away_strategy=strategy("faraway"))
    monkeypatch.syspath_prepend(tmp_path)
    assert "faraway" in STRATEGIES.names() and "far_away_strategy" not in sys.modules
    assert STRATEGIES.origin("faraway") == "entry point of far_away 1.0"
    assert simulate(scenario_from(tables("faraway"))).metrics["delivery_ratio"] == 1.0
    experiment = experiment_from("e", tables("faraway"), {"workload.rate": [1.0]})
    assert experiment.plugins.modules == ["far_away_strategy"], "workers import it by name"
    STRATEGIES.remove("faraway")
    del sys.modules["far_away_strategy"]


# Bad plug-ins: one line that names the part and where it came from; the others work.

BAD = {
    "raising": ("raise RuntimeError('no such\\nluck')\n", "cannot be imported.*RuntimeError: no such luck"),
    "missing": ("import nothing_like_this\n", "cannot be imported.*ModuleNotFoundError: No module named"),
    "broken": ("def f(:\n", "cannot be imported.*SyntaxError"),
    "optionless": (
        "from roamcast.strategy import STRATEGIES, Strategy\nSTRATEGIES.add('optionless', dict, Strategy)\n",
        r"strategy 'optionless' \(.*\): has no options struct but <class 'dict'>; allowed: a msgspec.Struct",
    ),
    "namesake": (strategy("flooding"), r"strategy 'flooding' \(.*\): has the name of another, built in"),
    "misspelt": (
        strategy("mispelt").replace("default_underlay", "underlay"),
        "cannot be imported.*TypeError: .*unexpected keyword",
    ),
    "halfway": (strategy("halfway") + "raise OSError('then')\n", "cannot be imported.*OSError: then"),
}


@pytest.mark.parametrize("bad", sorted(BAD))
def test_a_bad_module_beside_a_file_is_told_in_a_line(tmp_path: Path, bad: str) -> None:
    text, problem = BAD[bad]
    (tmp_path / f"{bad}.py").write_text(text)
    with pytest.raises(ScenarioError, match=rf"scenario.modules: has '{bad}', which .*{problem}") as caught:
        scenario_from(tables("flooding", bad), tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path / bad) in str(caught.value)
    assert bad not in STRATEGIES
    assert simulate(scenario_from(tables("flooding"))).metrics["delivery_ratio"] == 1.0


@pytest.mark.parametrize("bad", sorted(BAD))
def test_a_bad_entry_point_is_told_in_a_line_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    text, problem = BAD[bad]
    install(tmp_path, "bad_dist", {"spoilt": f"bad_{bad}"}, **{f"bad_{bad}": text})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ScenarioError, match=rf'strategy.name: is "spoilt": .*{problem}') as caught:
        scenario_from(tables("spoilt"))
    assert "entry point of bad_dist 1.0" in str(caught.value) and "\n" not in str(caught.value)
    assert bad not in STRATEGIES
    assert simulate(scenario_from(tables("flooding"))).metrics["delivery_ratio"] == 1.0


def test_an_entry_point_that_adds_nothing_and_two_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
    install(
        one,
        "one",
        {"empty": "adds_nothing", "double": "adds_nothing", "tree": "adds_nothing"},
        adds_nothing="",
    )
    install(other, "other", {"double": "adds_nothing"})
    with pytest.raises(
        PluginError, match=r"strategy 'empty' \(entry point of one 1.0\): is not in adds_nothing"
    ):
        STRATEGIES.options_type("empty")
    double = r"strategy 'double' \(entry point of one 1.0, entry point of other 1.0\): is brought by several"
    with pytest.raises(PluginError, match=double):
        STRATEGIES.options_type("double")
    assert [str(error) for error in STRATEGIES.shadowed()] == [
        "strategy 'tree' (entry point of one 1.0): has the name of another, built in"
    ]
    assert STRATEGIES.options_type("tree").__name__ == "TreeOptions"


def test_a_module_that_hides_another_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ScenarioError, match=r"has 'json', .*another module has this name"):
        load_modules(["json"], tmp_path, "scenario.modules")


def test_a_model_whose_tag_is_not_its_name(tmp_path: Path) -> None:
    (tmp_path / "mistagged.py").write_text(
        "from roamcast.world.mobility import MOBILITY, Static\n"
        "class Row(Static, frozen=True, tag='raw'): pass\nMOBILITY.add('row', Row)\n"
    )
    with pytest.raises(
        ScenarioError, match=r"mobility model 'row' \(.*\): has the tag 'raw'; allowed: tag='row'"
    ):
        load_modules(["mistagged"], tmp_path, "scenario.modules")
    assert "row" not in MOBILITY


def test_what_a_worker_lacks_is_named_with_where_it_came_from(tmp_path: Path) -> None:
    shipped = plugins.Shipment((Plugin("not_here", "entry point of far_away 1.0"),))
    with pytest.raises(InputError) as caught:
        shipped.unpack()
    assert str(caught.value).startswith(
        "module 'not_here' (entry point of far_away 1.0): cannot be imported: ModuleNotFoundError"
    )


def test_a_shipment_brings_the_code_and_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "shipped.py").write_text(strategy("shipped", 5))
    (loaded,) = load_modules(["shipped"], tmp_path, "scenario.modules")
    (tmp_path / "shipped.py").unlink()
    plugins._forget("shipped")
    plugins.Shipment((loaded,)).unpack()
    assert STRATEGIES.options_type("shipped")().depth == 5  # type: ignore[attr-defined]
    assert STRATEGIES.origin("shipped") == str(tmp_path / "shipped.py")
