"""The demo covers every strategy there is, and its table says what was measured."""

from pathlib import Path

import pytest

from roamcast.lab.sweep import demo as demonstration
from roamcast.lab.sweep.demo import AREAS, REPLICATIONS, demo, demo_experiment, short_table
from roamcast.lab.sweep.results import Description, Results
from roamcast.strategy import STRATEGIES


def test_every_strategy_has_three_seeds_in_every_area() -> None:
    experiment = demo_experiment()
    assert experiment.axes["strategy.name"] == tuple(STRATEGIES.own_names())
    assert len(experiment.seeds) == 3
    assert len(experiment.runs()) == len(STRATEGIES.own_names()) * len(AREAS) * REPLICATIONS


def test_the_short_table_has_a_row_for_each_cell() -> None:
    axes = {"strategy.name": ["flooding", "tree"]}
    description = Description(experiment="demo", roamcast="0", scenario={}, axes=axes, seeds=[1, 2])
    figures = {"delivery_ratio": {0: {1: 0.5, 2: 0.5}}, "hops_mean": {0: {1: 2.0}}}
    heads, rows = short_table(Results(description, [], figures))
    assert heads[:2] == ["strategy.name", "delivery_ratio"]
    assert rows == [["flooding", "0.5000 ± 0", "–", "–", "2.000", "–"], ["tree", "–", "–", "–", "–", "–"]]


@pytest.mark.spark
def test_the_demo_ends_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "demo.toml"
    text = demonstration.SCENARIO.read_text()
    assert "duration = 40.0" in text and "nodes = 40" in text
    text = text.replace("duration = 40.0", "duration = 12.0").replace("nodes = 40", "nodes = 6")
    small.write_text(text)
    monkeypatch.setattr(demonstration, "SCENARIO", small)
    monkeypatch.setattr(demonstration, "REPLICATIONS", 1)
    monkeypatch.setattr(demonstration, "AREAS", AREAS[:1])
    found = demo(tmp_path / "out")
    assert found.failed == 0 and len(found.rows) == len(STRATEGIES.own_names())
    assert found.report == str(tmp_path / "out" / "report.html")
    assert "demo: forty walkers" in Path(found.report).read_text()
