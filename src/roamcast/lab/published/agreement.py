"""Ours beside theirs: each quantity of a published figure computed from a sweep, and judged.

There is one definition. A quantity has a range of values that agree (`Quantity.agreed`) and a figure of ours
with its 95% confidence interval. Where the two have nothing in common ours *differs*, or is *better* on the
side that is. Where the whole interval lies in the range ours *agrees*; a published number agrees too where
they overlap and the interval is narrow (`Quantity.narrow`). Otherwise it is *undecided*: more seeds are
needed. So no verdict can come of a wide interval.

Where a quantity needs several cells, runs of the same seed are paired: a ratio is computed for each seed
and then averaged, so that the effect of the seed cancels out.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from roamcast.lab.published.figure import (
    PROFILES,
    Cell,
    PublishedFigure,
    Quantity,
    Range,
    chosen_cells,
    known,
    selected,
)
from roamcast.lab.published.formula import evaluate, names_in
from roamcast.lab.sweep.results import Results, is_number, value_label
from roamcast.lab.sweep.summary import SampleMean, spread

AGREES, BETTER, DIFFERS, UNDECIDED, CALIBRATED, NOT_RUN = VERDICTS = (
    "agrees",
    "better",
    "differs",
    "undecided",
    "calibrated",
    "not run",
)
RUNS = 3  # of which an extreme is taken; the acyclic overlay's field tests, the only ones with extremes
_NOTHING = "no run gave a value"


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `reproduction.json`.

    `ours` is a mean over seeds; for an order the step between neighbours that decides, for `grows` and
    `falls` the slope, for `linear` R². `low` and `high` are its 95% confidence interval, None with a single
    seed.
    """

    paper: str
    work: str
    figure: str
    quantity: str
    at: dict[str, Any]
    kind: str  # number, claim, extra
    published: float | None
    tolerance: float | None  # in the unit of the published number
    ours: float | None
    low: float | None
    high: float | None
    rule: str
    verdict: str
    agrees: bool
    difference: float | None  # from the published number, else from the nearest value that agrees
    seeds: list[int]  # that gave a value
    unit: str
    profile: str
    metrics: list[str]
    detail: str  # the figures behind `ours`, where there are several
    note: str
    commit: str = ""  # of the code that ran it


def rows(figure: PublishedFigure, profile: str, results: Results) -> list[FigureRow]:
    """Every quantity of a figure. What only the other, larger profile computes is not run."""
    found = []
    for quantity in figure.file.quantity:
        if quantity.only in (None, profile):
            found.append(_row(figure, profile, quantity, *_judged(quantity, results)))
        elif quantity.only == "full":
            found.append(_row(figure, profile, quantity, NOT_RUN, {}, ""))
    return found


def rows_of_sweep(results: Results) -> list[FigureRow]:
    """The rows of the published figure that this sweep reproduces, if any; found by name and experiment."""
    description = results.description
    for name in known():
        for profile in PROFILES:
            if description.experiment != f"{name} ({profile})":
                continue
            (figure,) = selected(name)
            wanted = msgspec.to_builtins(figure.experiment(profile).to_dict())
            same = description.scenario == wanted["scenario"] and description.axes == wanted["axes"]
            found = rows(figure, profile, results) if same else []
            return [row for row in found if row.verdict != NOT_RUN]
    return []


def undecided_cells(figure: PublishedFigure, profile: str, results: Results) -> set[int]:
    """The cells that need more seeds: of what counts."""
    found: set[int] = set()
    for quantity in figure.quantities(profile):
        if not quantity.extra and _judged(quantity, results)[0] == UNDECIDED:
            found |= quantity.cells(results.description.axes)
    return found


def decide(found: SampleMean, agreed: Range, better: str | None = None, narrow: float = 0.0) -> str:
    """The verdict on one figure of ours. `narrow`: half the width that an interval may have to agree where it
    only overlaps the range."""
    low, high = agreed
    if found.ci_low is None or found.ci_high is None:
        return UNDECIDED
    if low <= found.ci_low and found.ci_high <= high:
        return AGREES
    if found.ci_high < low:
        return BETTER if better == "lower" else DIFFERS
    if found.ci_low > high:
        return BETTER if better == "higher" else DIFFERS
    return AGREES if found.ci_high - found.ci_low <= 2 * narrow else UNDECIDED


def counted(rows: Sequence[FigureRow], kind: str) -> Counter[str]:
    """How many rows of a kind have each verdict."""
    return Counter(row.verdict for row in rows if row.kind == kind)


Sample = dict[int, float]  # by seed


def _row(
    figure: PublishedFigure, profile: str, quantity: Quantity, verdict: str, sample: Sample, detail: str
) -> FigureRow:
    found = _figure(quantity, sample)
    difference = None
    if found.mean is not None:
        low, high = quantity.agreed if quantity.published is None else [quantity.published] * 2
        difference = found.mean - min(max(found.mean, low), high)
    return FigureRow(
        paper=figure.paper,
        work=figure.file.source.partition(",")[0],
        figure=figure.figure,
        quantity=quantity.name,
        at=quantity.at,
        kind=quantity.kind,
        published=quantity.published,
        tolerance=quantity.error,
        ours=found.mean,
        low=found.ci_low,
        high=found.ci_high,
        rule=quantity.rule,
        verdict=verdict,
        agrees=verdict == AGREES,
        difference=difference,
        seeds=list(sample),
        unit=quantity.unit,
        profile=profile,
        metrics=names_in(quantity.metric),
        detail=detail,
        note=quantity.note,
    )


def _judged(quantity: Quantity, results: Results) -> tuple[str, Sample, str]:
    """The verdict, the sample that decides it, and the figures behind it."""
    samples, detail = _samples(quantity, results)
    rule = quantity.agreed, quantity.better, quantity.narrow
    judged = [(decide(_figure(quantity, sample), *rule), sample) for sample in samples]
    # Every step of an order must hold: one that does not is the verdict, else one that is undecided.
    verdict, sample = min(judged, key=lambda found: (_GRAVEST.index(found[0]), _mean(found[1])))
    by_cell = [
        {run.seed for run in results.runs if run.cell == cell}
        for cell in quantity.cells(results.description.axes)
    ]
    if not sample and not any(by_cell):
        return NOT_RUN, {}, ""
    empty = ", ".join(map(str, sorted(set.intersection(*by_cell) - sample.keys())))
    missing = _NOTHING if not sample else f"without seed {empty}" if empty else ""
    detail = "; ".join(filter(None, [detail, missing]))
    return CALIBRATED if quantity.calibrated else verdict, sample, detail


_GRAVEST = (DIFFERS, UNDECIDED, BETTER, AGREES)


def _samples(quantity: Quantity, results: Results) -> tuple[list[Sample], str]:
    """What is compared with the range: the quantity, each step of an order, or one figure of a line."""
    axes = results.description.axes
    places = quantity.places(axes)
    columns = [_values(quantity, place, results) for place in places]
    claim = quantity.claim
    if quantity.extreme is not None:
        return [_extremes(columns[0], min if quantity.extreme == "least" else max)], ""
    if claim is None or len(places) == 1:
        return columns, ""
    if claim.order is not None:
        steps = [
            {seed: after[seed] - before[seed] for seed in before if seed in after}
            for before, after in itertools.pairwise(columns)
        ]
        return steps, _told(list(claim.order), columns)
    assert claim.axis is not None
    values = axes[claim.axis]
    numbers = [float(value) if is_number(value) else float(place) for place, value in enumerate(values)]
    fit = r_squared if claim.linear is not None else slope
    common = [seed for seed in columns[0] if all(seed in column for column in columns)]
    sample = {seed: fit(numbers, [column[seed] for column in columns]) for seed in common}
    return [sample], _told([{claim.axis: value} for value in values], columns)


def _extremes(values: Sample, pick: Callable[[list[float]], float]) -> Sample:
    """One of each three runs. A group has its value under all its seeds, and counts once (`_figure`)."""
    seeds = sorted(values)
    whole = len(seeds) - len(seeds) % RUNS
    return {
        seed: pick([values[other] for other in seeds[at - at % RUNS : at - at % RUNS + RUNS]])
        for at, seed in enumerate(seeds[:whole])
    }


def _figure(quantity: Quantity, sample: Sample) -> SampleMean:
    return spread(list(sample.values())[:: 1 if quantity.extreme is None else RUNS])


def slope(axis: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the least-squares line."""
    return float(np.polyfit(axis, values, 1)[0])


def _mean(sample: Sample) -> float:
    return sum(sample.values()) / len(sample) if sample else 0.0


def r_squared(axis: Sequence[float], values: Sequence[float]) -> float:
    """R² of the least-squares line; 0 if all values are equal: a constant is no linear growth."""
    correlation = np.corrcoef(axis, values)[0, 1] if len(set(values)) > 1 else 0.0
    return float(correlation * correlation)


def _values(quantity: Quantity, at: Cell, results: Results) -> dict[int, float]:
    """By seed: the quantity in one cell, divided by its value in the reference cell if there is one."""
    own = _formula_values(quantity, at, results)
    if quantity.relative_to is None:
        return own
    reference = _formula_values(quantity, at | quantity.relative_to, results)
    return {seed: own[seed] / reference[seed] for seed in own if reference.get(seed)}


def _formula_values(quantity: Quantity, at: Cell, results: Results) -> dict[int, float]:
    (cell,) = chosen_cells(results.description.axes, at)
    names = names_in(quantity.metric)
    by_metric = {name: results.values(name, cell) for name in names}
    found = {}
    for seed in results.description.seeds:
        figures = {name: values[seed] for name, values in by_metric.items() if seed in values}
        value = evaluate(quantity.metric, figures)
        if value is not None:
            found[seed] = value
    return found


def _told(places: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[int, float]]) -> str:
    parts = []
    for place, column in zip(places, columns, strict=True):
        mean = spread(list(column.values())).mean
        label = ", ".join(value_label(value) for value in place.values())
        parts.append(f"{label}: {_NOTHING if mean is None else f'{mean:.4g}'}")
    return "; ".join(parts)
