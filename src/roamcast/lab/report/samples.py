"""What a report takes from the runs themselves: how long deliveries took, why others did not happen, and
which run of each cell can be played. Everything else on a page comes from the figures of the manifests."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.lab.play.source import PlayedRun, SweepRuns
from roamcast.lab.report.figures import FigurePoint, FigureSeries, ReportFigure
from roamcast.lab.report.layout import CellLayout
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.folder import OK
from roamcast.lab.sweep.results import Results
from roamcast.lab.why.inquest import Examined, examine

CELLS_MAX = 30  # of which a run is explained and can be played; chosen by us: 0.3 s each in the demo
ROWS_MAX = 3_000_000  # of deliveries that are read; chosen by us, as are the next two
FRAMES_MAX = 1_000_000  # of the explained runs together: half a minute
POINTS = 60  # of a distribution

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunSamples:
    """`latencies`: by series, seconds of first deliveries; `expected`: by series, how many there should
    be."""

    latencies: dict[int, Seconds] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, Counter[str]] = field(default_factory=dict)
    explained: dict[int, int] = field(default_factory=dict)  # by series, pairs expected in the explained runs
    played: dict[int, tuple[PlayedRun, Examined]] = field(default_factory=dict)  # by cell
    names: dict[int, str] = field(default_factory=dict)  # of the played runs, by cell


def take_samples(folder: Storage, results: Results, layout: CellLayout) -> RunSamples:
    """Read what is bounded; nothing of a sweep whose runs left no rows."""
    made = RunSamples()
    runs = SweepRuns(folder)
    series_of = _series_of(layout)
    ended = [run for run in results.runs if run.status == OK and runs.has(run.run) and run.cell in series_of]
    if 0 < runs.rows("deliveries", [run.run for run in ended]) <= ROWS_MAX:
        for run in ended:
            tables = runs.tables(run.run, ("publications", "deliveries", "expected"))
            series = series_of[run.cell]
            taken, expected = _latencies(tables, runs.info(run.run).warmup)
            known = made.latencies.get(series, np.zeros(0))
            made.latencies[series] = np.concatenate([known, taken])
            made.expected[series] = made.expected.get(series, 0) + expected
    first = {run.cell: run for run in reversed(ended)}
    if (
        len(first) <= CELLS_MAX
        and runs.rows("transmissions", [run.run for run in first.values()]) <= FRAMES_MAX
    ):
        for _, run in sorted(first.items()):
            played = runs.open(run.run)
            examined = examine(played.tables, played.info)
            made.played[run.cell], made.names[run.cell] = (played, examined), run.run
            series = series_of[run.cell]
            made.reasons.setdefault(series, Counter()).update(_reasons(played, examined))
            of_run = _latencies(played.tables, played.info.warmup)[1]
            made.explained[series] = made.explained.get(series, 0) + of_run
    return made


def latency_figure(samples: RunSamples, layout: CellLayout) -> ReportFigure | None:
    """What share of all expected deliveries had happened after so long: how high a line ends is its
    delivery."""
    values = [latencies for latencies in samples.latencies.values() if len(latencies)]
    if not values:
        return None
    least = max(min(float(one.min()) for one in values), 1e-4)
    most = max(max(float(one.max()) for one in values), 1.01 * least)
    grid = np.geomspace(least, most, POINTS)
    grid[-1] = most  # not a rounding error less
    series = []
    for index, chosen in enumerate(layout.series()):
        if samples.expected.get(index):
            counts = np.searchsorted(np.sort(samples.latencies[index]), grid, side="right")
            shares = (counts / samples.expected[index]).tolist()
            rounded = (
                (float(f"{x:.4g}"), float(f"{y:.5g}")) for x, y in zip(grid.tolist(), shares, strict=True)
            )
            points = [FigurePoint(x, y) for x, y in rounded]
            series.append(FigureSeries(layout.label(chosen), index, points))
    return ReportFigure(
        id="latency",
        kind="steps",
        title="Delivered within …",
        x_title="seconds after publication",
        y_title="share of expected deliveries",
        x_log=True,
        most=1.0,
        series=series,
    )


def reasons_figure(samples: RunSamples, layout: CellLayout) -> ReportFigure | None:
    """Stacked: the share of expected deliveries that each reason cost."""
    total: Counter[str] = Counter()
    for counted in samples.reasons.values():
        total.update(counted)
    shown = [(index, chosen) for index, chosen in enumerate(layout.series()) if samples.explained.get(index)]
    if not total or not shown:
        return None
    names = sorted(total, key=lambda name: (-total[name], name))
    series = [
        FigureSeries(
            reason.replace("_", " "),
            place,
            [
                FigurePoint(x, float(f"{samples.reasons[index][reason] / samples.explained[index]:.5g}"))
                for x, (index, _) in enumerate(shown)
            ],
        )
        for place, reason in enumerate(names)
    ]
    return ReportFigure(
        id="reasons",
        kind="bars",
        title="Why deliveries did not happen",
        x_title="",
        y_title="share of expected deliveries",
        labels=[layout.label(chosen) for _, chosen in shown],
        series=series,
    )


def _series_of(layout: CellLayout) -> dict[int, int]:
    """By cell, the place of its series."""
    found: dict[int, int] = {}
    for index, series in enumerate(layout.series()):
        found |= dict.fromkeys(layout.matching(series), index)
    return found


def _latencies(tables: Mapping[str, pa.Table], warmup: int) -> tuple[Seconds, int]:
    """Of the events after the warm-up: seconds to each first delivery, and how many were expected."""
    published = tables["publications"].select(["publisher", "sequence", "t"]).filter(pc.field("t") >= warmup)
    keys = ["publisher", "sequence"]
    delivered = tables["deliveries"].filter(pc.field("matched")).select([*keys, "node", "t"])
    first = delivered.group_by([*keys, "node"], use_threads=False).aggregate([("t", "min")])
    joined = first.join(published, keys, join_type="inner", use_threads=False)
    expected = tables["expected"].join(published, keys, join_type="left semi", use_threads=False)
    wanted = joined.join(
        expected.select([*keys, "node"]), [*keys, "node"], join_type="left semi", use_threads=False
    )
    return (wanted["t_min"].to_numpy() - wanted["t"].to_numpy()) / 1e6, len(expected)


def _reasons(run: PlayedRun, examined: Examined) -> Iterable[str]:
    return (
        found.reason.value
        for found in examined.explanations
        if examined.stories[found.event].publication.t >= run.info.warmup
    )
