"""Published figures: files that are checked, rules that can fail, and rows that say what came out."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import FileError, InputError
from roamcast.lab.published import FigureRow, known, load_figure, rows, rows_of_sweep, selected
from roamcast.lab.published import reproduce as reproduce_module
from roamcast.lab.published.agreement import decide
from roamcast.lab.published.figure import PROFILES
from roamcast.lab.published.formula import evaluate, metrics_in
from roamcast.lab.published.reproduce import (
    CORES,
    Reproduction,
    UntilDecided,
    commit,
    estimate,
    planned,
    reproduce,
)
from roamcast.lab.published.standing import told
from roamcast.lab.sweep.experiment import cells
from roamcast.lab.sweep.results import Description, Results, Run
from roamcast.lab.sweep.summary import SampleMean, spread

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


CSMA_AT_2 = 'at = { "world.radio.model" = "csma", "workload.rate" = 2.0 }\n'  # 0.7 and 0.9
HALF = 12.7062 * 0.1  # of its 95% interval: Student's t with one degree of freedom, standard error 0.1


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        # The interval is 0.8 ± 1.27: -0.47 to 2.07.
        ("published = 0.8\ntolerance = 1.28", "agrees"),
        ("published = 0.8\ntolerance = 1.26", "undecided"),
        ("published = 0.8\ntolerance = '160%'", "agrees"),
        ("published = 0.8\ntolerance = '2%'", "undecided"),  # right in the middle, and too wide to say so
        ("published = 4.0\ntolerance = '49%'", "undecided"),  # from 2.04
        ("published = 4.0\ntolerance = '48%'", "differs"),  # from 2.08
        ("published = 4.0\ntolerance = '48%'\nbetter = 'lower'", "better"),
        ("published = 4.0\ntolerance = '48%'\nbetter = 'higher'", "differs"),
        ("published = -4.0\ntolerance = 3.5\nbetter = 'higher'", "better"),  # up to -0.5
        ("published = -4.0\ntolerance = 3.6\nbetter = 'higher'", "undecided"),
        ("published = 0.8\ntolerance = 1.28\ncalibrated = true", "calibrated"),
        ("published = 9.0\ntolerance = 1.28\ncalibrated = true", "calibrated"),
        ("claim = { at_most = 2.08 }", "agrees"),
        ("claim = { at_most = 0.81 }", "undecided"),
        ("claim = { at_most = -0.48 }", "differs"),
        ("claim = { at_least = -0.48 }", "agrees"),
        ("claim = { at_least = 2.08 }", "differs"),
        ("claim = { at_least = -0.48, at_most = 2.08 }", "agrees"),
        ("claim = { at_least = 0.7, at_most = 2.08 }", "undecided"),
    ],
)
def test_verdicts_on_one_value(tmp_path: Path, rule: str, verdict: str) -> None:
    row = judged(tmp_path, CSMA_AT_2 + rule)
    assert row.ours == pytest.approx(0.8) and row.verdict == verdict and row.agrees is (verdict == "agrees")
    assert (row.low, row.high) == pytest.approx((0.8 - HALF, 0.8 + HALF), abs=1e-4)
    assert row.at == {"world.radio.model": "csma", "workload.rate": 2.0} and row.seeds == [1, 2]


def test_how_much_ours_differs_and_how_exactly_theirs_can_be_read(tmp_path: Path) -> None:
    row = judged(tmp_path, CSMA_AT_2 + "published = 4.0\ntolerance = '5%'")
    assert row.kind == "number" and row.tolerance == pytest.approx(0.2) and row.rule == "4 ± 5%"
    assert row.difference == pytest.approx(-3.2) and told(row) == "differs by −80%"
    row = judged(tmp_path, CSMA_AT_2 + "claim = { at_least = 2.1, at_most = 3 }")
    assert row.kind == "claim" and row.rule == "at least 2.1 and at most 3"
    assert row.difference == pytest.approx(-1.3) and told(row) == "differs by −1.300"
    assert judged(tmp_path, CSMA_AT_2 + "claim = { at_least = 0.1 }").difference == 0
    assert judged(tmp_path, CSMA_AT_2 + "claim = { at_least = 0.1 }\nextra = true").kind == "extra"


@settings(max_examples=300)
@given(
    st.floats(-10, 10),
    st.floats(0, 5),
    st.floats(0, 5),
    st.tuples(st.floats(-10, 10), st.floats(-10, 10)).map(sorted),
    st.sampled_from([None, "lower", "higher"]),
    st.floats(0, 2),
)
def test_no_verdict_comes_of_a_wide_interval(
    mean: float, half: float, more: float, agreed: list[float], better: str | None, narrow: float
) -> None:
    low, high = agreed
    first = decide(SampleMean(9, mean, 1.0, mean - half, mean + half), (low, high), better, narrow)
    wider = SampleMean(9, mean, 1.0, mean - half - more, mean + half + more)
    wide = decide(wider, (low, high), better, narrow)
    # Of two narrow ones the wider may still reach the range that the other has left.
    assert wide in (first, "undecided") or (wide == "agrees" and half + more <= narrow + 1e-9)
    assert decide(wider, (low, high), better) in (first, "undecided")  # a claim never agrees by that


def test_a_number_agrees_where_a_narrow_interval_reaches_the_published_one(tmp_path: Path) -> None:
    close: dict[str, Any] = {"delivery_ratio": [[0.9995, 1.0005]] * 6}
    row = judged(tmp_path, CSMA_AT_2 + "published = 1.02\ntolerance = '2%'", **close)
    assert (row.low, row.high) == pytest.approx((1.0 - 0.00635, 1.0 + 0.00635), abs=1e-4)
    assert row.verdict == "agrees"  # it reaches 0.9996, and half of it is 0.6% of 1.02
    row = judged(tmp_path, CSMA_AT_2 + "published = 1.03\ntolerance = '2%'", **close)
    assert row.verdict == "differs"  # from 1.0094
    wider: dict[str, Any] = {"delivery_ratio": [[0.995, 1.005]] * 6}  # 1 ± 0.0635, more than 5%
    assert judged(tmp_path, CSMA_AT_2 + "published = 1.02\ntolerance = '2%'", **wider).verdict == "undecided"
    claim = judged(tmp_path, CSMA_AT_2 + "claim = { at_least = 1.0 }", **close)
    assert claim.verdict == "undecided"


def test_one_seed_decides_nothing() -> None:
    assert decide(spread([0.5]), (0.0, 1.0)) == "undecided"
    assert decide(spread([0.5, 0.5]), (0.0, 1.0)) == "agrees"  # no spread: the interval is a point


def test_a_ratio_between_two_cells_is_made_seed_by_seed(tmp_path: Path) -> None:
    row = judged(
        tmp_path,
        CSMA_AT_2
        + 'relative_to = { "world.radio.model" = "ideal", "workload.rate" = 4.0 }\nclaim = { at_most = 1.0 }',
    )
    assert row.ours == pytest.approx((0.7 / 0.8 + 0.9 / 0.9) / 2)  # and not 0.8 / 0.85


def test_a_slope_of_ratios_divides_each_cell_by_its_own(tmp_path: Path) -> None:
    row = judged(
        tmp_path,
        'at = { "world.radio.model" = "csma" }\nrelative_to = { "world.radio.model" = "ideal" }\n'
        'claim = { grows = "workload.rate" }',
    )
    # 0.9 / 1.0; 0.7 / 0.9 and 0.9 / 1.0; 0.75 / 0.8 and 0.95 / 0.9
    assert row.detail == "1: 0.9; 2: 0.8389; 4: 0.9965" and row.rule == "grows along workload.rate"
    # By hand, over 1, 2, 4 with the mean 7/3 and 14/3 for its squares.
    slopes = [
        sum((at - 7 / 3) * value for at, value in zip((1, 2, 4), values, strict=True)) / (14 / 3)
        for values in ((0.9, 0.7 / 0.9, 0.75 / 0.8), (0.9, 0.9, 0.95 / 0.9))
    ]
    assert row.ours == pytest.approx(sum(slopes) / 2)


def test_every_step_of_an_order_must_hold_beyond_chance(tmp_path: Path) -> None:
    order = 'claim = {{ order = [{{ "workload.rate" = {} }}, {{ "workload.rate" = {} }}]{} }}'
    at = 'at = { "world.radio.model" = "ideal" }\n'
    rising = judged(tmp_path, at + order.format("4.0", "2.0", ""))  # 0.1 on both seeds
    assert rising.agrees and rising.ours == pytest.approx(0.1) and rising.low == pytest.approx(0.1)
    assert rising.rule == "4 < 2" and rising.detail == "4: 0.85; 2: 0.95"
    falling = judged(tmp_path, at + order.format("2.0", "4.0", ""))
    assert falling.verdict == "differs" and falling.difference == pytest.approx(-0.1)
    by_chance = judged(tmp_path, at + order.format("2.0", "1.0", ""))  # 0.1 and 0
    assert by_chance.verdict == "undecided" and by_chance.ours == pytest.approx(0.05)
    too_little = judged(tmp_path, at + order.format("4.0", "2.0", ", at_least = 0.2"))
    assert too_little.verdict == "differs" and too_little.rule == "4 < 2, each step at least 0.2"
    equal: list[list[float | None]] = [[0.5, 0.5]] * 6
    assert judged(tmp_path, at + order.format("4.0", "2.0", ""), delivery_ratio=equal).verdict == "differs"


def test_one_step_that_falls_is_the_verdict_on_an_order(tmp_path: Path) -> None:
    steps: list[list[float | None]] = [[0.1, 0.1], [0.3, 0.3], [0.2, 0.2], *RATIOS[3:]]
    rates = ", ".join(f'{{ "workload.rate" = {rate} }}' for rate in (1.0, 2.0, 4.0))
    at = 'at = { "world.radio.model" = "ideal" }\n'
    row = judged(tmp_path, f"{at}claim = {{ order = [{rates}] }}", delivery_ratio=steps)
    assert row.verdict == "differs" and row.ours == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("radio", "claim", "verdict"),
    [
        ("ideal", "falls", "undecided"),  # slopes -1/14 · 0.93 and about -0.03: the interval includes 0
        ("steep", "falls", "agrees"),
        ("steep", "grows", "differs"),
        ("steep", "linear", "agrees"),
        ("bent", "linear", "differs"),
    ],
)
def test_lines(tmp_path: Path, radio: str, claim: str, verdict: str) -> None:
    lines: dict[str, list[list[float | None]]] = {
        "ideal": RATIOS,
        "steep": [[0.9, 0.91], [0.7, 0.71], [0.3, 0.31], *RATIOS[3:]],
        "bent": [[0.1, 0.1], [0.9, 0.9], [0.3, 0.3], *RATIOS[3:]],
    }
    at = 'at = { "world.radio.model" = "ideal" }\n'
    row = judged(tmp_path, f'{at}claim = {{ {claim} = "workload.rate" }}', delivery_ratio=lines[radio])
    assert row.verdict == verdict, row


def test_extremes_are_of_each_three_runs(tmp_path: Path) -> None:
    """Seven seeds are two groups and one too few: the least of 3, 1, 2 and of 6, 5, 9 are 1 and 5."""
    values: list[float | None] = [3.0, 1.0, 2.0, 6.0, 5.0, 9.0, 0.0]
    found = results(AXES, list(range(1, 8)), delivery_ratio=[values] * 6)
    for extreme, mean in (("least", 3.0), ("greatest", 6.0)):
        rule = f"published = 3.0\ntolerance = 99\nextreme = '{extreme}'"
        (row,) = rows(load_figure(figure_file(tmp_path, CSMA_AT_2 + rule)), "quick", found)
        assert row.ours == mean and row.seeds == [1, 2, 3, 4, 5, 6] and row.agrees
        (row,) = rows(
            load_figure(tmp_path / "paper" / "figure.toml"),
            "quick",
            results(AXES, [1, 2, 3], delivery_ratio=[values[:3]] * 6),
        )
        assert row.verdict == "undecided"  # one group has no interval


def test_without_values_nothing_is_decided(tmp_path: Path) -> None:
    nothing: list[list[float | None]] = [[None, None]] * 6
    for rule in (
        CSMA_AT_2 + "claim = { at_least = 0.0 }",
        'at = { "world.radio.model" = "csma" }\nclaim = { falls = "workload.rate" }',
    ):
        assert judged(tmp_path, rule, delivery_ratio=nothing).verdict == "not run"
        ended = results(AXES, [1, 2], delivery_ratio=nothing)
        ended.runs.extend(Run(f"{cell:04}-1-x", cell, 1, "ok", "") for cell in range(6))
        (row,) = rows(load_figure(tmp_path / "paper" / "figure.toml"), "quick", ended)
        assert row.verdict == "undecided" and row.ours is None and "no run gave a value" in row.detail


def test_a_seed_without_a_value_is_named(tmp_path: Path) -> None:
    figure = load_figure(figure_file(tmp_path, CSMA_AT_2 + "claim = { at_least = 0.5 }"))
    ratios: list[list[float | None]] = [[1.0, 1.0, 1.0] for _ in range(6)]
    ratios[4] = [0.9, None, 0.9]
    half = results(AXES, [1, 2, 3], delivery_ratio=ratios)
    half.runs.extend(Run(f"{4:04}-{seed}-x", 4, seed, "ok", "") for seed in (1, 2, 3))
    (row,) = rows(figure, "quick", half)
    assert row.agrees and row.seeds == [1, 3] and row.detail == "without seed 2"


def test_undecided_verdicts_ask_for_seeds_of_their_cells(tmp_path: Path) -> None:
    quantity = CSMA_AT_2 + (
        'relative_to = { "world.radio.model" = "ideal" }\nclaim = { at_most = 0.99 }\n'
        + QUANTITY
        + 'at = { "world.radio.model" = "ideal", "workload.rate" = 1.0 }\nclaim = { at_least = 1 }\n'
        + QUANTITY
        + 'at = { "world.radio.model" = "csma", "workload.rate" = 4.0 }\n'
        + "claim = { at_least = 0.8 }\nextra = true"
    )
    figure = load_figure(figure_file(tmp_path, quantity))
    (plan,) = planned([figure], "quick", 501, 7)
    assert (plan.seeds_first, plan.seeds) == (2, tuple(range(501, 508)))
    found = results(AXES, [501, 502], delivery_ratio=RATIOS)
    assert plan.wanted([2] * 6, found) == [
        2,
        4,
        2,
        2,
        4,
        2,
    ]  # csma and ideal at 2.0; of the others one is decided, one does not count
    assert plan.wanted([4] * 6, found) == [4, 7, 4, 4, 7, 4]
    assert planned([figure], "quick", None, None)[0].seeds == (1, 2)
    assert "12 runs" in estimate([plan]) and "at most 27 runs" in estimate([plan])


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
        (CSMA_AT_2, r"quantity\[0\]: has neither; allowed: one of `published` and `claim`"),
        (CSMA_AT_2 + "published = 1.0\nclaim = { at_most = 1 }", "has both; allowed: one of"),
        (CSMA_AT_2 + "published = 1.0", 'tolerance: is missing; allowed: as "2%"'),
        (CSMA_AT_2 + "published = 1.0\ntolerance = '2'", "tolerance: is"),
        (CSMA_AT_2 + "claim = { at_most = 1 }\ntolerance = 1", "has a claim; `tolerance`"),
        (CSMA_AT_2 + "claim = {}", "claim: allowed: `at_least`, `at_most` or both"),
        ('claim = { grows = "workload.rate", falls = "workload.rate" }', "claim: allowed: "),
        (
            "claim = { at_most = 1.0 }",
            "at: means 6 cells; it must also name world.radio.model, workload.rate",
        ),
        (
            'at = { "world.nodes" = 4 }\nclaim = { at_most = 1.0 }',
            "at.world.nodes: is no axis of profile quick",
        ),
        (
            'at = { "world.radio.model" = "csma", "workload.rate" = 3 }\nclaim = { at_most = 1.0 }',
            "is 3; allowed in profile quick: 1.0, 2.0, 4.0",
        ),
        ('claim = { falls = "world.nodes" }', "claim: is along .*not to follow"),
        ('claim = { falls = "workload.rate" }', "it must also name world.radio.model"),
        (CSMA_AT_2 + "rule = { at_most = 1.0 }", r"quantity\[0\].rule: is no known key"),
    ],
)
def test_a_faulty_file_is_told_in_one_line(tmp_path: Path, quantity: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        load_figure(figure_file(tmp_path, quantity))
    assert "figure.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_faulty_scenario_in_a_file_is_told_too(tmp_path: Path) -> None:
    head = FIGURE.replace("nodes = 4", "nodes = -4")
    with pytest.raises(InputError, match=r"figure.toml: scenario: world.nodes: is -4"):
        load_figure(figure_file(tmp_path, CSMA_AT_2 + "claim = { at_most = 1.0 }", head))


@pytest.mark.long
def test_every_figure_of_the_package_is_sound() -> None:
    assert {"opportunistic/network-paths", "roamcast/radios"} <= set(known())
    for figure in selected(None):
        for profile in PROFILES:
            assert figure.experiment(profile).runs()
            assert figure.quantities(profile)
            experiment = msgspec.convert(figure.experiment(profile).to_dict(), Description)
            assert {row.verdict for row in rows(figure, profile, Results(experiment, [], {}))} == {"not run"}


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
tolerance = '2%'

[[quantity]]
name = "{world.radio.model} falls"
metric = "delivery_ratio"
each = { "world.radio.model" = 2 }
claim = { falls = "workload.rate" }
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
    assert all(quantity.rule.endswith(" ± 2%") for quantity in slow.file.quantity)
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
    assert row.published == 2.36 and row.ours == pytest.approx(2.3) and row.verdict == "differs"
    description.scenario["world"]["range"] = 100.0
    assert rows_of_sweep(Results(description, [], measured)) == []


README = "before\n<!-- reproduction: begin -->\nold\n<!-- reproduction: end -->\nafter\n"


@pytest.mark.spark
def test_a_tiny_figure_from_the_command_to_the_pages(tmp_path: Path) -> None:
    """From the command to what a person sees: terminal, rows, page, Markdown, the counts in a README."""
    published = tmp_path / "published"
    published.mkdir()
    head = FIGURE.replace("[1.0, 2.0, 4.0]", "[2.0]").replace(
        "[profile.quick]\nreplications = 2", "[profile.quick]\nreplications = 2\nreplications_max = 4"
    )
    figure_file(published, 'at = { "world.radio.model" = "ideal" }\nclaim = { at_least = 1 }\n', head)
    with (published / "paper" / "figure.toml").open("a") as file:
        file.write(f"{QUANTITY}{CSMA_AT_2}published = 7.5\ntolerance = '2%'\nnote = 'told <why>'\n")
        file.write(f"{QUANTITY}{CSMA_AT_2}claim = {{ at_least = 0.9999 }}\nextra = true\n")
    out = tmp_path / "out"
    readme = tmp_path / "README.md"
    readme.write_text(README)
    said: list[str] = []

    def again(resume: bool, **options: Any) -> Reproduction:
        return reproduce(
            "paper/figure",
            "quick",
            out,
            published=published,
            seed=501,
            resume=resume,
            tell=said.append,
            results_page=tmp_path / "results.md",
            counts_page=readme,
            **options,
        )

    found = again(False)
    assert said[0].startswith("4 runs, about 0 minutes on 2 cores; at most 8 runs")
    assert found.to_line() == "Of 1 published numbers: 1 differ; of 1 claims in words: 1 agree"
    written = json.loads((out / "reproduction.json").read_text())
    needed = {"paper", "figure", "quantity", "at", "published", "ours", "low", "high", "rule", "agrees"}
    assert needed | {"verdict", "tolerance", "seeds", "kind", "work"} <= written[0].keys()
    # All four nodes hear each other, so with an ideal radio everything arrives.
    assert (written[0]["ours"], written[0]["verdict"], written[0]["seeds"]) == (1.0, "agrees", [501, 502])
    assert (written[1]["published"], written[1]["verdict"]) == (7.5, "differs")
    page = Path(found.page).read_text()
    assert "7.500" in page and "differs" in page and "told &lt;why&gt;" in page
    assert "Of 1 published numbers: 1 differ" in page
    results_page = (tmp_path / "results.md").read_text()
    assert "**Of 1 published numbers: 1 differ; of 1 claims in words: 1 agree.**" in results_page
    assert f"nowhere: profile `quick`, commit {commit()}, seeds 501, 502." in results_page
    assert {row.commit for row in found.rows} == {commit()}
    table = "| nowhere | published numbers | 1 | 0 | 0 | 1 | 0 | 0 | 0 |\n"
    assert table in results_page and table in readme.read_text()
    assert readme.read_text().startswith("before\n<!-- reproduction: begin -->\n| work |")
    assert readme.read_text().endswith("<!-- reproduction: end -->\nafter\n")
    assert (out / "paper" / "figure" / "report.html").exists()
    with pytest.raises(InputError, match="use --resume"):
        again(False)
    assert again(True).rows == found.rows and Path(found.page).read_text() == page  # nothing left to run
    # A later call for another figure has these rows beside its own, under the commit that they say.
    earlier = tmp_path / "earlier.json"
    told_before = [msgspec.structs.replace(row, figure="other", commit="0123") for row in found.rows]
    earlier.write_bytes(msgspec.json.encode(told_before))
    (published / "paper" / "other.toml").write_text((published / "paper" / "figure.toml").read_text())
    assert again(True, beside=[earlier]).rows == found.rows
    both = (tmp_path / "results.md").read_text()
    assert both.startswith(results_page.partition("Roamcast 0")[0]) and "`paper/other`" in both
    assert f"commit {commit()} and 0123, seeds" in both and "Of 2 published numbers: 2 differ" in both
    earlier.write_text("[{}]")
    with pytest.raises(FileError, match="holds no rows"):
        again(True, beside=[earlier])
    other = again(True, seeds=3)  # fewer than the cell has: only these are judged
    assert all(set(row.seeds) <= {501, 502, 503} for row in other.rows)
    with pytest.raises(InputError, match="holds another experiment"):
        reproduce("paper/figure", "full", out, published=published, resume=True)


@pytest.mark.spark
def test_what_an_interrupted_reproduction_has_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = tmp_path / "published"
    published.mkdir()
    figure_file(published, CSMA_AT_2 + "claim = { at_least = 0.5 }")

    def interrupted(master: str | None, sweeps: Any) -> None:
        sweeps[0].claim()
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce_module, "run_sweeps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(None, "quick", tmp_path / "out", published=published)
    (row,) = json.loads((tmp_path / "out" / "reproduction.json").read_text())
    assert row["verdict"] == "not run" and row["ours"] is None


def test_the_artifact_page_has_every_figure_with_the_minutes_of_the_estimate() -> None:
    page = (Path(__file__).parents[3] / "ARTIFACT.md").read_text()
    rows = [
        tuple(cell.strip(" `") for cell in line.split("|")[1:4])
        for line in page.split("## Each published figure")[1].splitlines()
        if line.startswith("| `") and "/" in line
    ]
    figures = selected(None)  # read once: every one of them is checked cell by cell
    quick, full = (map(_minutes, planned(figures, profile, None, None)) for profile in PROFILES)
    assert rows == list(zip(known(), quick, full, strict=True))


def _minutes(plan: UntilDecided) -> str:
    first, most, seconds = plan.cost
    return " to ".join(f"{runs * seconds / 60 / CORES:.1f}" for runs in (first, most))
