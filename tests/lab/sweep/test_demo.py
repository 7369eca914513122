"""The demo covers every strategy there is, and its table says what was measured."""

from pathlib import Path

import pytest

from roamcast.cli.screen import aligned
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
    figures = {
        "delivery_ratio": {0: {1: 0.5, 2: 0.5}},
        "latency_p50": {0: {1: 0.0123}},
        "hops_mean": {0: {1: 2.0}},
        "delivered": {0: {1: 10.0}},
        "control_bytes": {0: {1: 500.0}},
        "data_bytes": {0: {1: 1500.0}},
    }
    heads, rows = short_table(Results(description, [], figures))
    assert heads[:2] == ["strategy\n", "delivered\nof all"]
    expected = ["flooding", "0.500 ±0.000", "–", "12.3", "2.00", "200"]
    assert rows == [expected, ["tree", "–", "–", "–", "–", "–"]]


def test_the_short_table_of_the_demo_fits_eighty_columns() -> None:
    axes = {key: list(values) for key, values in demo_experiment().axes.items()}
    description = Description(experiment="demo", roamcast="0", scenario={}, axes=axes, seeds=[1, 2])
    cells = range(len(STRATEGIES.own_names()) * len(AREAS))
    wide = {1: 0.1234567, 2: 0.9999999}
    many = {1: 1_234_567.0, 2: 7_654_321.0}
    names = ("delivery_ratio", "delivery_of_limit", "latency_p50", "hops_mean")
    figures = {name: dict.fromkeys(cells, wide) for name in names}
    figures |= {name: dict.fromkeys(cells, many) for name in ("control_bytes", "data_bytes")}
    figures["delivered"] = {cell: {1: 10.0, 2: 10.0} for cell in cells}
    heads, rows = short_table(Results(description, [], figures))
    lines = aligned(heads, rows, words=(0, 1)).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) == 3 + len(cells)


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
    assert "serves this scenario best" in found.verdict[0]
    assert len(list((tmp_path / "out" / "play").iterdir())) == len(found.rows), "a run of each cell plays"
    assert found.player is not None and Path(found.player).is_file()
