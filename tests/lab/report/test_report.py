"""The report says what the tables say, to anyone, and in the same bytes each time."""

import base64
import hashlib
import json
import math
import re
import time
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from roamcast.errors import FileError
from roamcast.lab.report import report
from roamcast.lab.report.layout import layout
from roamcast.lab.report.markup import Markup, element, escaped
from roamcast.lab.report.numbers import interval, number, numbered, with_interval
from roamcast.lab.report.statistics import PAIRED, WELCH, difference, holm, paired, welch
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.sweep.experiment import experiment_from
from roamcast.lab.sweep.folder import RunRecord, SweepFolder
from roamcast.lab.sweep.results import Description, Results, means, read_results
from roamcast.lab.sweep.summary import spread

SCENARIO: dict[str, Any] = {
    "scenario": {"name": "square", "duration": 20.0},
    "world": {
        "nodes": 5,
        "area": [300.0, 300.0],
        "range": 120.0,
        "mobility": {"model": "random_waypoint"},
    },
    "strategy": {"name": "flooding"},
}
AXES: dict[str, list[Any]] = {
    "world.radio.model": ["ideal", "csma"],
    "world.area": [[300.0, 300.0], [600.0, 600.0]],
}
RATIOS = {0: [0.9, 0.92, 0.94], 1: [0.6, 0.66, 0.69], 2: [0.8, 0.83, 0.83], 3: [0.5, 0.54, 0.58]}
"""delivery_ratio of the cells, seeds 1 to 3."""
HOSTILE = '</style><script>alert("&")</script>'


def sweep_folder(
    path: Path,
    name: str = "areas",
    axes: dict[str, list[Any]] = AXES,
    ratios: dict[int, list[float | None]] | None = None,
    errors: dict[tuple[int, int], str] | None = None,
) -> Path:
    """A finished sweep, as `sweep` would leave it, without running anything."""
    experiment = experiment_from(name, SCENARIO, axes, replications=3)
    folder = SweepFolder(path)
    folder.check(experiment, resume=False)
    folder.claim(experiment)
    given_ratios = RATIOS if ratios is None else ratios
    records = []
    for plan in experiment.runs():
        error = (errors or {}).get((plan.cell, plan.seed))
        figures = (
            {} if error else {"published": 100.0, "delivery_ratio": given_ratios[plan.cell][plan.seed - 1]}
        )
        records.append(
            RunRecord(
                run=plan.run,
                status="failed" if error else "ok",
                error=error,
                seconds=1.0,
                attempt=1,
                figures={name: value for name, value in figures.items() if value is not None},
            )
        )
    folder.commit([(record, {}) for record in records], tuple(METRICS))
    return path


def page_of(folder: Path) -> str:
    return Path(report(folder)).read_text(encoding="utf-8")


def words(page: str) -> str:
    """What a reader sees, figures left out."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", without_scripts(page)))


def without_scripts(page: str) -> str:
    """The page without its own script and the script's data: exactly these two elements."""
    left, count = re.subn(
        r"<script type=\"(application/json|module)\".*?</script>", "", page, flags=re.DOTALL
    )
    assert count == 2
    return left


def figures_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return list(json.loads(found[1]))


# Statistics.


def test_a_paired_difference_computed_by_hand() -> None:
    found = paired([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])  # differences 1, 2, 3: mean 2, deviation 1
    assert found.mean == 2.0 and found.effect == 2.0
    assert found.p == pytest.approx(0.07417990)  # t = 2 √3 with 2 degrees of freedom
    assert found.low == pytest.approx(2 - 4.30265273 / math.sqrt(3))


numbers = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


@settings(max_examples=60)
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_paired_and_welch_agree_with_scipy(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy says so if one of the samples does not vary
        by_pairs = stats.ttest_rel(second, first)
        apart = stats.ttest_ind(second, first, equal_var=False)
    for ours, theirs in [(paired(first, second), by_pairs), (welch(first, second), apart)]:
        if not ours.constant:
            low, high = theirs.confidence_interval(0.95)
            assert ours.p == pytest.approx(float(theirs.pvalue), rel=1e-6, abs=1e-12)
            assert (ours.low, ours.high) == pytest.approx((float(low), float(high)), rel=1e-6, abs=1e-9)


def test_runs_are_paired_by_seed_and_not_by_position() -> None:
    found = difference({1: 1.0, 2: 2.0, 3: 9.0}, {3: 9.5, 2: 2.6, 1: 1.4})
    assert found.test == PAIRED
    assert found.mean == pytest.approx(0.5) and found.p is not None and found.p < 0.02


def test_without_shared_seeds_it_is_welch_and_with_single_runs_no_test() -> None:
    apart = difference({1: 1.0, 2: 1.2}, {3: 2.0, 4: 2.4})
    assert apart.test == WELCH and apart.p is not None and apart.count == "2, 2"
    alone = difference({1: 1.0}, {1: 3.0})
    assert alone.mean == 2.0 and alone.p is None
    assert difference({}, {1: 3.0}).mean is None


def test_a_difference_without_variation_is_not_tested() -> None:
    found = paired([0.1, 0.2, 0.3], [1.1, 1.2, 1.3])
    assert found.constant and found.p is None and found.mean == pytest.approx(1.0)


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03 times 3, 2, 1: 0.03, 0.04, and 0.03 raised to 0.04. None counts for nothing.
    assert holm([0.02, None, 0.03, 0.01]) == pytest.approx([0.04, None, 0.04, 0.03])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_means_over_cells_take_only_seeds_that_all_cells_have() -> None:
    assert means([{1: 1.0, 2: 2.0}, {2: 4.0, 3: 9.0}]) == {2: 3.0}
    assert means([]) == {}


# Numbers and layout.


def test_numbers_show_no_more_digits_than_are_known() -> None:
    assert with_interval(spread([0.9, 0.92, 0.94])) == "0.920 ± 0.050"
    assert with_interval(spread([120_000.0, 121_000.0])) == "120,500 ± 6,400"
    assert with_interval(spread([3.0, 3.0])) == "3.000 ± 0"
    assert with_interval(spread([0.25])) == "0.2500"
    assert with_interval(spread([])) == "–"
    assert number(-0.012345, 3) == "−0.0123" and number(0.0) == "0"
    assert interval(-0.5, 1.5) == "−0.5 to 1.5"
    assert numbered([1, 2, 3]) == "1 to 3" and numbered([1, 5]) == "1, 5"


def test_strategies_are_compared_and_numbers_lie_along_the_x_axis() -> None:
    chosen = layout(
        {
            "world.area": [[750.0, 750.0], [1000.0, 1000.0]],
            "strategy.name": ["flooding", "tree"],
            "world.mobility.speed": [[1.0, 2.0], [1.0, 20.0]],
            "workload.rate": [2.0],
        }
    )
    assert chosen.series_axes == ["strategy.name"]
    assert chosen.plot_axes == ["world.area", "world.mobility.speed"]
    assert chosen.axes["world.area"].positions == [750.0, 1000.0]
    assert chosen.axes["world.mobility.speed"].positions is None
    assert chosen.matching({"strategy.name": 1, "world.area": 0}) == [2, 3]
    assert chosen.others("world.area") == ["world.mobility.speed"]


# Pages.


def test_the_page_has_the_figures_of_every_cell(tmp_path: Path) -> None:
    page = words(page_of(sweep_folder(tmp_path / "s")))
    for cell in ("0.920 ± 0.050", "0.65 ± 0.11", "0.820 ± 0.043", "0.540 ± 0.099"):
        assert cell in page
    # Over both areas, per seed: ideal 0.75, 0.79, 0.815; csma 0.65, 0.685, 0.705.
    assert "ideal 0.785 ± 0.081" in page
    found = stats.ttest_rel([0.65, 0.685, 0.705], [0.75, 0.79, 0.815])
    assert 0.0001 < found.pvalue < 0.01  # else it is written otherwise
    assert f"{found.pvalue:.4f} {found.pvalue:.4f} paired t 3" in page  # the only test: nothing to correct
    assert "csma lower" in page and "−0.105" in page
    assert "Without meaning for these runs, so not shown" in page and "latency_p50" in page


def test_the_page_needs_nothing_from_outside_and_allows_its_own_script_only(tmp_path: Path) -> None:
    page = page_of(sweep_folder(tmp_path / "s"))
    assert not re.findall(r'(?:href|src)="(?!#)', page)
    assert not re.findall(r"@import|<link|<img|https?://", page)
    script = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src &#x27;none&#x27;; script-src &#x27;sha256-{digest}&#x27;;" in page


def test_the_figures_have_the_means_and_whole_intervals_of_the_cells(tmp_path: Path) -> None:
    (figure,) = figures_of(page_of(sweep_folder(tmp_path / "s")))
    assert figure["kind"] == "lines" and figure["x_title"] == "world.area, side (m)"
    ideal, csma = figure["series"]
    assert (ideal["name"], csma["name"]) == ("ideal", "csma")
    assert [(p["x"], p["y"]) for p in csma["points"]] == [(300.0, 0.82), (600.0, 0.54)]
    found = spread(RATIOS[0])
    assert ideal["points"][0]["high"] == pytest.approx(found.ci_high, rel=1e-5)


def test_ids_are_unique_and_references_lead_somewhere(tmp_path: Path) -> None:
    page = without_scripts(page_of(sweep_folder(tmp_path / "s")))
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', page)) <= set(ids)


@pytest.mark.realtime
def test_the_same_tables_give_the_same_bytes(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path / "s")
    first = Path(report(folder)).read_bytes()
    time.sleep(1.01)  # a date in it would show
    second = Path(report(folder, tmp_path / "other.html")).read_bytes()
    assert first == second
    assert sorted(p.name for p in folder.iterdir() if "unfinished" in p.name) == []


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in {"meta", "wbr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


def test_names_and_errors_cannot_break_out_of_the_text(tmp_path: Path) -> None:
    folder = sweep_folder(
        tmp_path / "s",
        name=HOSTILE,
        axes=AXES | {"workload.subscriptions": [[{"node": 1, "topic": HOSTILE + "$x$\x01"}]]},
        errors={(0, 1): f"RuntimeError: {HOSTILE}\x00"},
    )
    page = page_of(folder)
    assert HOSTILE not in page and "<script" not in without_scripts(page)
    assert escaped(HOSTILE) in page
    assert "\x01" not in page and "\x00" not in page
    tags = _Tags()
    tags.feed(without_scripts(page))
    assert tags.open == [] and "script" not in tags.seen


def test_failed_runs_are_listed_with_their_errors(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path / "s", errors={(3, 2): "ran out of luck"})
    page = words(page_of(folder))
    assert "1 of 12 runs" in page and "ran out of luck" in page
    assert "world.radio.model = csma, world.area = 600 × 600" in page
    run = next(run for run in read_results(folder).runs if run.status == "failed")
    assert run.run in page
    # The cell's figure is that of the two runs that are left: 0.5 and 0.58.
    assert "0.54 ± 0.51" in page


def test_a_sweep_in_which_everything_failed_still_gives_a_page(tmp_path: Path) -> None:
    errors = {(cell, seed): f"no luck {cell}" for cell in range(4) for seed in (1, 2, 3)}
    page = page_of(sweep_folder(tmp_path / "s", errors=errors))
    assert "None of the 12 runs ended well" in words(page)
    assert words(page).count("no luck") == 12 and figures_of(page) == []


def test_one_cell_with_nothing_to_plot_or_compare(tmp_path: Path) -> None:
    page = words(page_of(sweep_folder(tmp_path / "s", axes={"world.nodes": [5]})))
    assert "nothing to plot" in page and "0.920 ± 0.050" in page and "Differences" not in page


def test_null_figures_are_left_out_of_the_mean(tmp_path: Path) -> None:
    ratios: dict[int, list[float | None]] = {cell: list(values) for cell, values in RATIOS.items()}
    ratios[0] = [None, 0.25, 0.75]
    assert "0.5 ± 3.2" in words(page_of(sweep_folder(tmp_path / "s", ratios=ratios)))


def test_what_is_no_sweep_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is no folder"):
        report(tmp_path / "missing")
    with pytest.raises(FileError, match="is no sweep's folder"):
        report(tmp_path)
    folder = sweep_folder(tmp_path / "s")
    with pytest.raises(FileError, match="cannot be written"):
        report(folder, folder / "experiment.json" / "place.html")
    (manifest,) = (folder / "manifest").iterdir()
    text = manifest.read_bytes()
    assert b"0.92" in text
    manifest.write_bytes(text.replace(b"0.92", b"0.29"))
    with pytest.raises(FileError, match=r"has not the digest [^\n]*--resume[^\n]*$") as caught:
        report(folder)
    assert caught.value.where == str(manifest)
    manifest.write_bytes(b"")
    with pytest.raises(FileError, match="is empty"):
        report(folder)


def test_a_sweep_that_is_still_running_can_be_read(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path / "s")
    (manifest,) = (folder / "manifest").iterdir()
    manifest.unlink()
    assert "12 runs to come" in words(page_of(folder))
    experiment = experiment_from("areas", SCENARIO, AXES, replications=3)
    done = RunRecord(run=experiment.run(0).run, status="ok", seconds=1.0, attempt=1, figures={"published": 7})
    SweepFolder(folder).commit([(done, {})], ["published"])
    shown = words(page_of(folder))
    assert "1 runs measured" in shown and "11 runs to come" in shown


def test_a_folder_of_an_earlier_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text('{"experiment": "areas", "roamcast": "0.2.0"}')
    for use in (
        read_results,
        lambda place: SweepFolder(place).check(experiment_from("areas", SCENARIO, AXES), True),
    ):
        with pytest.raises(
            FileError, match=r"Roamcast 0\.2\.0, in a layout .* sweep again into a new folder$"
        ):
            use(tmp_path)


def test_elements_escape_what_is_not_markup() -> None:
    assert element("b", "<", Markup("<i>"), title='"') == '<b title="&quot;">&lt;<i></b>'


@pytest.mark.long
def test_a_report_of_ten_thousand_cells_is_below_ten_megabytes() -> None:
    axes: dict[str, list[Any]] = {
        "strategy.name": ["flooding", "tree"],
        "world.nodes": list(range(50)),
        "workload.rate": list(range(100)),
    }
    cells = range(2 * 50 * 100)
    figures = {
        name: {cell: {seed: 1.0 + (cell * 7 + seed) % 13 / 7 for seed in (1, 2)} for cell in cells}
        for name in list(METRICS)[:14]
    }
    description = Description(experiment="large", roamcast="0", scenario={}, axes=axes, seeds=[1, 2])
    from roamcast.lab.report.page import render

    page = render(Results(description, [], figures))
    assert len(page.encode()) < 10_000_000
    assert (
        "in the table `summary` only" in page
        and "5,000 combinations of world.nodes and workload.rate" in page
    )
    chosen = layout(axes)
    assert chosen.matching({"world.nodes": 3}) == [
        number for number, cell in enumerate(chosen.cells) if cell["world.nodes"] == 3
    ]
