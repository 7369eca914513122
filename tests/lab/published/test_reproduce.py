"""Published figures: files that are checked, rules that can fail, and rows that say what came out."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from roamcast.errors import InputError
from roamcast.lab.published import FigureRow, known, load_figure, rows, rows_of_sweep, selected
from roamcast.lab.published.agreement import spearman
from roamcast.lab.published.figure import PROFILES
from roamcast.lab.published.formula import evaluate, metrics_in
from roamcast.lab.published.reproduce import reproduce
from roamcast.lab.sweep.experiment import cells
from roamcast.lab.sweep.results import Description, Results

FIGURE = """
title = "A test"
source = "nowhere"

[scenario.scenario]
name = "tiny"
duration = 4.0

[scenario.world]
nodes = 4
area = [100.0, 100.0]
range = 150.0
mobility = { model = "static" }

[scenario.strategy]
name = "flooding"

[axes]
"world.radio.model" = ["ideal", "csma"]
"workload.rate" = [1.0, 2.0, 4.0]

[profile.quick]
replications = 2
[profile.full]
replications = 2
set = { "scenario.duration" = 6.0 }
"""
QUANTITY = """
[[quantity]]
name = "how much arrives"
metric = "delivery_ratio"
"""


def figure_file(folder: Path, quantity: str, head: str = FIGURE) -> Path:
    (folder / "paper").mkdir(exist_ok=True)
    path = folder / "paper" / "figure.toml"
    path.write_text(head + QUANTITY + quantity)
    return path


def results(axes: dict[str, list[Any]], seeds: list[int], **figures: list[list[float | None]]) -> Results:
    """Hand-made: for each metric a list per cell, with a value per seed."""
    by_metric = {
        name: {
            cell: {seed: value for seed, value in zip(seeds, values, strict=True) if value is not None}
            for cell, values in enumerate(by_cell)
        }
        for name, by_cell in figures.items()
    }
    assert all(len(by_cell) == len(list(cells(axes))) for by_cell in figures.values())
    return Results(
        Description(experiment="x", roamcast="0", scenario={}, axes=axes, seeds=seeds), [], by_metric
    )


AXES: dict[str, list[Any]] = {"world.radio.model": ["ideal", "csma"], "workload.rate": [1.0, 2.0, 4.0]}
# Cells: ideal at 1, 2, 4, then csma at 1, 2, 4; two seeds.
RATIOS: list[list[float | None]] = [[1.0, 1.0], [0.9, 1.0], [0.8, 0.9], [0.9, 0.9], [0.7, 0.9], [0.75, 0.95]]


def judged(tmp_path: Path, quantity: str, **figures: list[list[float | None]]) -> FigureRow:
    figure = load_figure(figure_file(tmp_path, quantity))
    (row,) = rows(figure, "quick", results(AXES, [1, 2], **({"delivery_ratio": RATIOS} | figures)))
    return row


CSMA_AT_2 = 'at = { "world.radio.model" = "csma", "workload.rate" = 2.0 }\n'


@pytest.mark.parametrize(
    ("rule", "agrees"),
    [
        ("published = 0.9\nrule = { within = 0.11 }", True),
        ("published = 0.9\nrule = { within = 0.09 }", False),
        ("published = 1.0\nrule = { within_relative = 0.21 }", True),
        ("published = 1.0\nrule = { within_relative = 0.19 }", False),
        ("rule = { at_most = 0.81 }", True),
        ("rule = { at_most = 0.79 }", False),
        ("rule = { at_least = 0.79 }", True),
        ("rule = { at_least = 0.81 }", False),
    ],
)
def test_rules_about_one_value(tmp_path: Path, rule: str, agrees: bool) -> None:
    row = judged(tmp_path, CSMA_AT_2 + rule)
    assert row.ours == pytest.approx(0.8) and row.agrees is agrees
    low, high = stats.t.interval(0.95, 1, loc=0.8, scale=0.1)
    assert (row.low, row.high) == pytest.approx((low, high))
    assert row.at == {"world.radio.model": "csma", "workload.rate": 2.0}


def test_a_ratio_between_two_cells_is_made_seed_by_seed(tmp_path: Path) -> None:
    row = judged(
        tmp_path,
        CSMA_AT_2
        + 'relative_to = { "world.radio.model" = "ideal", "workload.rate" = 4.0 }\nrule = { at_most = 1.0 }',
    )
    assert row.ours == pytest.approx((0.7 / 0.8 + 0.9 / 0.9) / 2)  # and not 0.8 / 0.85


def test_a_trend_of_ratios_divides_each_cell_by_its_own(tmp_path: Path) -> None:
    row = judged(
        tmp_path,
        'at = { "world.radio.model" = "csma" }\nrelative_to = { "world.radio.model" = "ideal" }\n'
        'rule = { trend = "increasing", along = "workload.rate" }',
    )
    # 0.9 / 1.0; 0.7 / 0.9 and 0.9 / 1.0; 0.75 / 0.8 and 0.95 / 0.9
    assert row.detail == "1: 0.9; 2: 0.8389; 4: 0.9965" and row.ours == pytest.approx(0.5)


def test_an_order_holds_only_if_every_step_rises(tmp_path: Path) -> None:
    order = 'rule = {{ order = [{{ "workload.rate" = {} }}, {{ "workload.rate" = {} }}] }}'
    at = 'at = { "world.radio.model" = "ideal" }\n'
    falling = judged(tmp_path, at + order.format("1.0", "2.0"))
    assert not falling.agrees and falling.ours == pytest.approx(-0.05)
    rising = judged(tmp_path, at + order.format("4.0", "2.0"))
    assert rising.agrees and rising.ours == pytest.approx(0.1) and rising.low == pytest.approx(0.1)
    assert rising.rule == "4 < 2" and rising.detail == "4: 0.85; 2: 0.95"
    equal: list[list[float | None]] = [[0.5, 0.5]] * 6
    assert not judged(tmp_path, at + order.format("4.0", "2.0"), delivery_ratio=equal).agrees


def test_an_order_that_could_be_chance_says_so(tmp_path: Path) -> None:
    noisy: list[list[float | None]] = [[0.5, 0.6], [0.4, 0.9], *RATIOS[2:]]
    at = 'at = { "world.radio.model" = "ideal" }\n'
    rule = 'rule = { order = [{ "workload.rate" = 1.0 }, { "workload.rate" = 2.0 }] }'
    row = judged(tmp_path, at + rule, delivery_ratio=noisy)
    assert row.agrees and "could be chance" in row.detail


@pytest.mark.parametrize(
    ("radio", "direction", "agrees", "correlation"),
    [
        ("ideal", "decreasing", True, -1.0),
        ("ideal", "increasing", False, -1.0),
        ("csma", "decreasing", False, -0.5),  # 0.9, 0.8, 0.85
    ],
)
def test_trends(tmp_path: Path, radio: str, direction: str, agrees: bool, correlation: float) -> None:
    at = f'at = {{ "world.radio.model" = "{radio}" }}\n'
    row = judged(tmp_path, f'{at}rule = {{ trend = "{direction}", along = "workload.rate" }}')
    assert row.agrees is agrees and row.ours == pytest.approx(correlation)
    assert row.low is not None and row.high is not None and -1 <= row.low <= correlation <= row.high <= 1


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=8).filter(lambda values: len(set(values)) > 1))
def test_spearman_agrees_with_scipy(values: list[int]) -> None:
    expected = stats.spearmanr(range(len(values)), values).statistic
    assert spearman([float(value) for value in values]) == pytest.approx(float(expected))


def test_without_values_nothing_agrees(tmp_path: Path) -> None:
    nothing: list[list[float | None]] = [[None, None]] * 6
    for rule in (
        CSMA_AT_2 + "rule = { at_least = 0.0 }",
        'at = { "world.radio.model" = "csma" }\nrule = { trend = "decreasing", along = "workload.rate" }',
    ):
        row = judged(tmp_path, rule, delivery_ratio=nothing)
        assert not row.agrees and row.ours is None and "no run gave a value" in row.detail


def test_formulas() -> None:
    assert sorted(metrics_in("delivered / expected", "x")) == ["delivered", "expected"]
    assert evaluate("-delivered / (2 * expected)", {"delivered": 3.0, "expected": 6.0}) == -0.25
    assert evaluate("delivered / expected", {"delivered": 3.0, "expected": 0.0}) is None
    assert evaluate("delivered / expected", {"expected": 1.0}) is None


@pytest.mark.parametrize(
    "formula",
    [
        "",
        "1 + 1",
        "delivered +",
        "__import__('os')",
        "delivered ** 9",
        "delivered.real",
        "'a'",
        "unknown",
        "True",
        "[delivered]",
        "delivered if expected else 1",
        "(" * 300 + "delivered" + ")" * 300,
    ],
)
def test_what_is_no_arithmetic_over_metrics_is_refused(formula: str) -> None:
    with pytest.raises(InputError, match=r"^quantity\[0\].metric: "):
        metrics_in(formula, "quantity[0].metric")


@pytest.mark.parametrize(
    ("quantity", "problem"),
    [
        ("rule = {}", r"quantity\[0\].rule: has none; allowed: exactly one of within"),
        ("rule = { at_most = 1.0, at_least = 0.0 }", "has at_most and at_least; allowed: exactly one"),
        (CSMA_AT_2 + "rule = { within = 0.1 }", "published: is missing; the rule `within` needs it"),
        ("rule = { at_most = 1.0 }", "at: means 6 cells; it must also name world.radio.model, workload.rate"),
        (
            'at = { "world.nodes" = 4 }\nrule = { at_most = 1.0 }',
            "at.world.nodes: is no axis of profile quick",
        ),
        (
            'at = { "world.radio.model" = "csma", "workload.rate" = 3 }\nrule = { at_most = 1.0 }',
            "is 3; allowed in profile quick: 1.0, 2.0, 4.0",
        ),
        ('rule = { trend = "decreasing" }', "must have `along` together with `trend` or `linear`"),
        ('rule = { trend = "down", along = "workload.rate" }', 'trend: is "down"; allowed: '),
        ('rule = { trend = "decreasing", along = "world.nodes" }', "along: is .*not to follow"),
        ('rule = { trend = "decreasing", along = "workload.rate" }', "it must also name world.radio.model"),
        ("rule = { at_most = 1.0 }\ncolour = 3", r"quantity\[0\].colour: is no known key"),
    ],
)
def test_a_faulty_file_is_told_in_one_line(tmp_path: Path, quantity: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        load_figure(figure_file(tmp_path, quantity))
    assert "figure.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_faulty_scenario_in_a_file_is_told_too(tmp_path: Path) -> None:
    head = FIGURE.replace("nodes = 4", "nodes = -4")
    with pytest.raises(InputError, match=r"figure.toml: scenario: world.nodes: is -4"):
        load_figure(figure_file(tmp_path, CSMA_AT_2 + "rule = { at_most = 1.0 }", head))


@pytest.mark.long
def test_every_figure_of_the_package_is_sound() -> None:
    assert {"opportunistic/network-paths", "roamcast/radios"} <= set(known())
    for figure in selected(None):
        for profile in PROFILES:
            assert figure.experiment(profile).runs()
            assert figure.quantities(profile)


SERIES = """
[labels]
"world.radio.model" = ["without collisions", "with collisions"]

[figures.slow]
"scenario.world.range" = 120.0

[figures.fast]
title = "Another"
"scenario.world.range" = 140.0
"profile.quick.axes" = { "workload.rate" = [2.0] }
"""
GRID = """
[[quantity]]
name = "{world.radio.model}, {workload.rate} a second"
metric = "delivery_ratio"
each = { "world.radio.model" = 2, "workload.rate" = 2 }
published = [[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]]]
rule = { at_least = "published" }

[[quantity]]
name = "{world.radio.model} falls"
metric = "delivery_ratio"
each = { "world.radio.model" = 2 }
rule = { trend = "decreasing", along = "workload.rate" }
only = "full"
figures = ["fast"]
"""


def test_a_file_may_hold_several_figures_and_an_entry_several_quantities(tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "both.toml").write_text(FIGURE + SERIES + GRID)
    assert known(tmp_path) == ["paper/fast", "paper/slow"]
    fast, slow = selected("paper", tmp_path)
    assert (fast.figure, slow.figure) == ("fast", "slow")
    assert (fast.file.title, slow.file.title) == ("Another", "A test")
    assert [figure.file.scenario["world"]["range"] for figure in (fast, slow)] == [140.0, 120.0]
    assert [quantity.name for quantity in fast.file.quantity] == [
        "without collisions, 1 a second",
        "without collisions, 2 a second",
        "without collisions falls",
        "with collisions, 1 a second",
        "with collisions, 2 a second",
        "with collisions falls",
    ]
    assert [quantity.published for quantity in slow.file.quantity] == [0.1, 0.2, 0.3, 0.4]
    assert all(quantity.rule.at_least == quantity.published for quantity in slow.file.quantity)
    assert slow.file.quantity[1].at == {"world.radio.model": "ideal", "workload.rate": 2.0}
    # What only the full profile runs is judged there only.
    assert [len(figure.quantities("quick")) for figure in (fast, slow)] == [2, 4]
    assert [len(figure.quantities("full")) for figure in (fast, slow)] == [6, 4]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('each = { "world.radio.model" = 2 }', 'each = { "world.radio" = 2 }', "is no axis with a list"),
        ('each = { "world.radio.model" = 2 }', "each = 2", "Expected `object`"),
        (
            "[[0.1, 0.2], [0.3, 0.4]]",
            "[[0.1, 0.2]]",
            "has 1 values; allowed: one for each of world.radio.model",
        ),
    ],
)
def test_a_faulty_series_is_told_in_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "both.toml").write_text(FIGURE + SERIES + GRID.replace(old, new))
    with pytest.raises(InputError, match=problem) as caught:
        selected("paper", tmp_path)
    assert "both.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_selection_is_a_paper_or_a_figure_and_anything_else_lists_them() -> None:
    assert [figure.name for figure in selected("roamcast")] == ["roamcast/radios"]
    assert [figure.name for figure in selected("opportunistic/network-paths")] == [
        "opportunistic/network-paths"
    ]
    with pytest.raises(InputError, match=r"is no published figure.*allowed: .*roamcast/radios"):
        selected("roamcast/radio")
    with pytest.raises(InputError, match="profile: is 'slow'; allowed: quick, full"):
        reproduce(None, "slow", Path("nowhere"))


def test_a_report_knows_its_published_figure_only_if_the_experiment_is_the_same() -> None:
    (figure,) = selected("opportunistic/network-paths")
    experiment = json.loads(json.dumps(figure.experiment("quick").to_dict()))
    seeds = experiment["seeds"]
    description = Description(
        experiment=experiment["experiment"],
        roamcast="0",
        scenario=experiment["scenario"],
        axes=experiment["axes"],
        seeds=seeds,
    )
    measured = {"path_hops_network": {0: dict.fromkeys(seeds, 2.3)}}
    (row,) = rows_of_sweep(Results(description, [], measured))
    assert row.published == 2.36 and row.ours == pytest.approx(2.3) and row.agrees
    description.scenario["world"]["range"] = 100.0
    assert rows_of_sweep(Results(description, [], measured)) == []


@pytest.mark.spark
def test_a_tiny_figure_from_file_to_page(tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.mkdir()
    head = FIGURE.replace("[1.0, 2.0, 4.0]", "[2.0]")
    figure_file(published, 'at = { "world.radio.model" = "ideal" }\nrule = { at_least = 1 }\n', head)
    with (published / "paper" / "figure.toml").open("a") as file:
        file.write(f"{QUANTITY}{CSMA_AT_2}published = 7.5\nnote = 'told <why>'\nrule = {{ within = 0.1 }}\n")
    out = tmp_path / "out"
    found = reproduce("paper/figure", "quick", out, published=published)
    assert found.to_line() == "1 of 2 quantities agree, 1 differ"
    written = json.loads((out / "reproduction.json").read_text())
    needed = {"paper", "figure", "quantity", "at", "published", "ours", "low", "high", "rule", "agrees"}
    assert needed <= written[0].keys()
    # All four nodes hear each other, so with an ideal radio everything arrives.
    assert (written[0]["ours"], written[0]["agrees"]) == (1.0, True)
    assert (written[1]["published"], written[1]["agrees"]) == (7.5, False)
    page = Path(found.page).read_text()
    assert "7.500" in page and "differs" in page and "told &lt;why&gt;" in page
    assert (out / "paper" / "figure" / "report.html").exists()
    again = reproduce("paper/figure", "quick", out, published=published)  # nothing left to run
    assert again.rows == found.rows and Path(found.page).read_text() == page
    with pytest.raises(InputError, match="holds another experiment"):
        reproduce("paper/figure", "full", out, published=published)
