"""The verdict names who delivers most for least, says what could be chance, and changes with the place."""

import csv
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from roamcast.lab.report import report
from roamcast.lab.report.figures import ReportedSweep, trade_off
from roamcast.lab.report.layout import layout
from roamcast.lab.report.plots import as_csv, as_svg, write_figures
from roamcast.lab.report.samples import RunSamples, latency_figure, reasons_figure
from roamcast.lab.report.sections import in_words, verdict_of
from roamcast.lab.report.verdict import PlaceVerdict
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.run.runs import simulate
from roamcast.lab.sweep.experiment import experiment_from
from roamcast.lab.sweep.folder import RunRecord, SweepFolder
from roamcast.lab.sweep.results import Description, Results

SEEDS = [1, 2, 3]
AREAS = [[400.0, 400.0], [800.0, 800.0]]


def results(cells: dict[tuple[str, int], tuple[list[float], float]]) -> Results:
    """By strategy and area: delivery per seed, and octets per delivery, of 100 pairs."""
    names = list(dict.fromkeys(name for name, _ in cells))
    areas = sorted({area for _, area in cells})
    axes: dict[str, list[Any]] = {"strategy.name": names, "world.area": [AREAS[area] for area in areas]}
    description = Description(experiment="e", roamcast="0", scenario={}, axes=axes, seeds=SEEDS)
    figures: dict[str, dict[int, dict[int, float]]] = {}
    for (name, area), (ratios, cost) in cells.items():
        cell = names.index(name) * len(areas) + areas.index(area)
        for seed, ratio in zip(SEEDS, ratios, strict=True):
            values = {"delivery_ratio": ratio, "delivered": 100 * ratio, "latency_p95": 0.25}
            values |= {"data_bytes": 60 * cost * ratio, "control_bytes": 40 * cost * ratio}
            for metric, value in values.items():
                figures.setdefault(metric, {}).setdefault(cell, {})[seed] = value
    return Results(description, [], figures)


def verdict(found: Results) -> tuple[PlaceVerdict, list[PlaceVerdict], str]:
    judged = verdict_of(ReportedSweep(found, layout(found.description.axes), []))
    assert judged is not None
    return judged[0], judged[1], " ".join(judged[2])


def test_most_delivered_wins_and_what_costs_less_for_less_is_on_the_front() -> None:
    whole, _, said = verdict(
        results(
            {
                ("flood", 0): ([0.80, 0.81, 0.83], 900.0),
                ("tree", 0): ([0.70, 0.71, 0.73], 200.0),
                ("gossip", 0): ([0.95, 0.96, 0.97], 500.0),
            }
        )
    )
    assert whole.winner.name == "gossip" and whole.front == ["tree", "gossip"]
    assert said.startswith(
        "gossip serves this scenario best: it delivered 0.960 of what was expected, for 500 octets"
    )
    assert "Cheaper, and delivering less: tree: 0.713 for 200 octets, 60% less." in said
    assert "another strategy delivers more for less: flood." in said
    assert "Beyond chance its delivery differs from that of flood" in said


def test_a_hundredth_of_delivery_is_worth_no_price() -> None:
    whole, _, said = verdict(
        results({("dear", 0): ([0.955, 0.955, 0.958], 900.0), ("thrifty", 0): ([0.95, 0.951, 0.95], 300.0)})
    )
    assert whole.winner.name == "thrifty"
    assert "dear delivered about as much for more octets (within 0.01)." in said


def test_what_could_be_chance_is_called_so() -> None:
    _, _, said = verdict(results({("a", 0): ([0.9, 0.5, 0.9], 10.0), ("b", 0): ([0.5, 0.8, 0.6], 10.0)}))
    assert "With 3 seeds it could be chance that it differs from b" in said and "Beyond" not in said


def test_another_answer_in_another_place_is_said_with_the_place() -> None:
    cells = {
        ("tree", 0): ([0.99, 0.98, 0.99], 100.0),
        ("epidemic", 0): ([0.9, 0.9, 0.91], 100.0),
        ("tree", 1): ([0.4, 0.41, 0.4], 100.0),
        ("epidemic", 1): ([0.8, 0.81, 0.8], 100.0),
    }
    _, places, said = verdict(results(cells))
    assert [place.winner.name for place in places] == ["tree", "epidemic"]
    expected = (
        "The answer depends on world.area. world.area = 400 × 400: tree; world.area = 800 × 800: epidemic."
    )
    assert expected in said


def test_without_two_strategies_or_without_deliveries_there_is_no_verdict() -> None:
    assert in_words(results({("only", 0): ([0.9, 0.9, 0.9], 10.0)})) == []
    nothing = results({("a", 0): ([0.9, 0.9, 0.9], 10.0), ("b", 0): ([0.9, 0.9, 0.9], 10.0)})
    assert in_words(Results(nothing.description, [], {})) == []


def test_each_figure_can_be_written_for_a_paper(tmp_path: Path) -> None:
    whole, _, _ = verdict(
        results({("<a>", 0): ([0.9, 0.5, 0.9], 10.0), ('b, "c"', 0): ([0.5, 0.8, 0.6], 99.0)})
    )
    figure = trade_off(whole, "verdict")
    rows = list(csv.reader(io.StringIO(as_csv(figure))))
    assert rows[0][:3] == ["series", "octets sent per delivery", "delivery_ratio"]
    assert rows[2][0] == 'b, "c"' and float(rows[2][1]) == 99.0
    write_figures([figure], tmp_path / "figures")
    written = (tmp_path / "figures" / "verdict.svg").read_text()
    assert ElementTree.fromstring(written).tag.endswith("svg") and written == as_svg(figure)
    assert (tmp_path / "figures" / "verdict.csv").read_text() == as_csv(figure)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sweep of two strategies, run here and not by Spark."""
    tables = {
        "scenario": {"name": "small", "duration": 6.0, "warmup": 1.0},
        "world": {"nodes": 10, "area": [300.0, 300.0], "range": 110.0},
        "roles": {"publishers": 3, "subscribers": "all"},
        "workload": {"rate": 2.0},
        "strategy": {"name": "flooding"},
    }
    tables["world"]["mobility"] = {"model": "random_waypoint"}  # type: ignore[index]
    tables["world"]["radio"] = {"model": "csma"}  # type: ignore[index]
    axes = {"strategy.name": ["flooding", "epidemic"], "world.area": [[300.0, 300.0], [500.0, 500.0]]}
    experiment = experiment_from("small", tables, axes, replications=2)
    path = tmp_path_factory.mktemp("sweep")
    folder = SweepFolder(path)
    folder.check(experiment, resume=False)
    folder.claim(experiment)
    for plan in experiment.runs():
        result = simulate(experiment.scenario(plan))
        record = RunRecord(
            run=plan.run,
            status="ok",
            seconds=1.0,
            attempt=1,
            info=result.info,
            figures={name: value for name, value in result.metrics.items() if value is not None},
            rows={name: len(table) for name, table in result.tables.items() if len(table)},
        )
        folder.commit([(record, result.tables)], tuple(METRICS))
    return path


def test_a_report_links_to_a_run_of_each_cell_that_plays(swept: Path, tmp_path: Path) -> None:
    page = Path(report(swept, plays=True)).read_text()
    links = set(re.findall(r'href="(play/[^"]*)"', page))
    assert len(links) == 4 and all((swept / link).is_file() for link in links)
    assert "serves this scenario best" in page
    drawn = set(re.findall(r'data-figure="([^"]*)"', page))
    assert {"verdict", "latency", "reasons"} <= drawn
    without = Path(report(swept, tmp_path / "alone.html")).read_text()
    assert 'href="play/' not in without


def test_distributions_end_at_the_delivery_ratio(swept: Path) -> None:
    from roamcast.lab.report.samples import take_samples
    from roamcast.lab.storage import Storage
    from roamcast.lab.sweep.results import read_results

    found = read_results(swept)
    shown = layout(found.description.axes)
    samples = take_samples(Storage.open(swept), found, shown)
    figure, reasons = latency_figure(samples, shown), reasons_figure(samples, shown)
    assert figure is not None and reasons is not None
    for series in figure.series:
        cells = shown.matching({"strategy.name": series.index})
        delivered = sum(sum(found.values("delivered", cell).values()) for cell in cells)
        expected = sum(sum(found.values("expected", cell).values()) for cell in cells)
        assert series.points[-1].y == pytest.approx(delivered / expected, rel=1e-4)
        first = [found.values("delivered", c)[1] / found.values("expected", c)[1] for c in cells]
        lost = sum(reason.points[series.index].y for reason in reasons.series)
        assert lost == pytest.approx(1 - sum(first) / len(first), abs=0.1)
    assert latency_figure(RunSamples(), shown) is None and reasons_figure(RunSamples(), shown) is None
