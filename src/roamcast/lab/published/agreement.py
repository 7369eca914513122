"""Ours beside theirs: each quantity of a published figure computed from a sweep, and its rule applied.

Where a quantity needs several cells, runs of the same seed are paired: a ratio is computed for each seed
and then averaged, so that the effect of the seed cancels out.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from roamcast.lab.published.figure import (
    PROFILES,
    Cell,
    PublishedFigure,
    Quantity,
    chosen_cells,
    known,
    selected,
)
from roamcast.lab.published.formula import evaluate, names_in
from roamcast.lab.sweep.results import Results, value_label
from roamcast.lab.sweep.summary import CONFIDENCE, SampleMean, spread

RESAMPLES = 2000  # of the bootstrap; chosen by us: more make the interval steadier and take longer
_NOTHING = "no run gave a value"


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `reproduction.json`.

    `ours` is a mean over seeds, for `order` the smallest step between neighbours, for `trend` Spearman's
    rank correlation, for `linear` the mean R². `low` and `high` are its 95% confidence interval, None with
    a single seed.
    """

    paper: str
    figure: str
    quantity: str
    at: dict[str, Any]
    published: float | None
    ours: float | None
    low: float | None
    high: float | None
    rule: str
    agrees: bool
    unit: str
    profile: str
    metrics: list[str]
    detail: str  # the figures behind `ours`, where there are several
    note: str


def rows(figure: PublishedFigure, profile: str, results: Results) -> list[FigureRow]:
    """Every quantity of a figure that the profile computes."""
    return [_row(figure, profile, quantity, results) for quantity in figure.quantities(profile)]


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
            return rows(figure, profile, results) if same else []
    return []


def _row(figure: PublishedFigure, profile: str, quantity: Quantity, results: Results) -> FigureRow:
    match quantity.rule.kind:
        case "order":
            found, agrees, detail = _ordered(quantity, results)
        case "trend":
            found, agrees, detail = _trend(quantity, results)
        case "linear":
            found, agrees, detail = _linear(quantity, results)
        case _:
            found, agrees, detail = _single(quantity, results)
    return FigureRow(
        paper=figure.paper,
        figure=figure.figure,
        quantity=quantity.name,
        at=quantity.at,
        published=quantity.published,
        ours=found.mean,
        low=found.ci_low,
        high=found.ci_high,
        rule=str(quantity.rule),
        agrees=agrees,
        unit=quantity.unit,
        profile=profile,
        metrics=names_in(quantity.metric),
        detail=detail,
        note=quantity.note,
    )


def _single(quantity: Quantity, results: Results) -> tuple[SampleMean, bool, str]:
    found = spread(list(_values(quantity, quantity.at, results).values()))
    if found.mean is None:
        return found, False, _NOTHING
    rule = quantity.rule
    match rule.kind:
        case "within" | "within_relative":
            assert quantity.published is not None
            away = abs(found.mean - quantity.published)
            if rule.within is not None:
                return found, away <= rule.within, ""
            assert rule.within_relative is not None
            return found, away <= rule.within_relative * abs(quantity.published), ""
        case "at_most":
            assert rule.at_most is not None
            limits = -math.inf, rule.at_most
        case "at_least":
            assert rule.at_least is not None
            limits = rule.at_least, math.inf
        case _:
            assert rule.between is not None
            limits = rule.between
    judged = [found.mean]
    if rule.sure and found.ci_low is not None and found.ci_high is not None:
        judged = [found.ci_low, found.ci_high]
    return found, all(limits[0] <= value <= limits[1] for value in judged), ""


def _ordered(quantity: Quantity, results: Results) -> tuple[SampleMean, bool, str]:
    """The means of the listed cells must rise strictly. The figure is the smallest step."""
    assert quantity.rule.order is not None
    places = list(quantity.rule.order)
    columns = [_values(quantity, quantity.at | place, results) for place in places]
    detail = _told(places, columns)
    steps = []
    for before, after in itertools.pairwise(columns):
        common = [seed for seed in before if seed in after]
        steps.append(spread([after[seed] - before[seed] for seed in common]))
    known_steps = [step for step in steps if step.mean is not None]
    if len(known_steps) < len(steps):
        return spread([]), False, detail
    smallest = min(known_steps, key=lambda step: step.mean if step.mean is not None else math.inf)
    agrees = smallest.mean is not None and smallest.mean > 0
    if agrees and (smallest.ci_low is None or smallest.ci_low <= 0):
        detail += "; the smallest step could be chance"
        agrees = not quantity.rule.sure
    return smallest, agrees, detail


def _trend(quantity: Quantity, results: Results) -> tuple[SampleMean, bool, str]:
    """The means along the axis must be monotone: Spearman's correlation of exactly 1 or -1."""
    _, columns, seeds, detail = _along(quantity, results)
    if not seeds:
        return spread([]), False, detail
    values = np.array([[column[seed] for column in columns] for seed in seeds])
    correlation = spearman([math.fsum(column) / len(seeds) for column in values.T.tolist()])
    low, high = _bootstrapped(values) if len(seeds) > 1 else (None, None)
    sign = 1.0 if quantity.rule.trend == "increasing" else -1.0
    agrees = math.isclose(sign * correlation, 1.0)
    return SampleMean(len(seeds), correlation, None, low, high), agrees, detail


def _linear(quantity: Quantity, results: Results) -> tuple[SampleMean, bool, str]:
    """Seed by seed, the share of the variance that a straight line along the axis explains."""
    axis, columns, seeds, detail = _along(quantity, results)
    least = quantity.rule.linear
    assert least is not None
    numbers = [float(value) for value in axis]
    found = spread([r_squared(numbers, [column[seed] for column in columns]) for seed in seeds])
    return found, found.mean is not None and found.mean >= least, detail


def _along(quantity: Quantity, results: Results) -> tuple[list[Any], list[dict[int, float]], list[int], str]:
    """The axis that the rule follows: its values, a column for each, the seeds that all have, and a line."""
    axis = quantity.rule.along
    assert axis is not None
    values = results.description.axes[axis]
    columns = [_values(quantity, quantity.at | {axis: value}, results) for value in values]
    seeds = [seed for seed in columns[0] if all(seed in column for column in columns)]
    return values, columns, seeds, _told([{axis: value} for value in values], columns)


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


def spearman(values: Sequence[float]) -> float:
    """Rank correlation of values with their own order; equal values share a rank. 0 if all are equal."""
    ranks = _ranks(values)
    places = list(range(1, len(values) + 1))
    middle = (len(values) + 1) / 2
    above = math.fsum((rank - middle) * (place - middle) for rank, place in zip(ranks, places, strict=True))
    spread_of_ranks = math.fsum((rank - middle) ** 2 for rank in ranks)
    spread_of_places = math.fsum((place - middle) ** 2 for place in places)
    return above / math.sqrt(spread_of_ranks * spread_of_places) if spread_of_ranks > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def _bootstrapped(values: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """The bootstrap interval of the correlation: whole seeds are resampled, with a fixed random stream."""
    draws = np.random.Generator(np.random.PCG64(1)).integers(0, len(values), (RESAMPLES, len(values)))
    found = [spearman(row) for row in values[draws].mean(axis=1).tolist()]
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return float(low), float(high)


def _told(places: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[int, float]]) -> str:
    parts = []
    for place, column in zip(places, columns, strict=True):
        mean = spread(list(column.values())).mean
        label = ", ".join(value_label(value) for value in place.values())
        parts.append(f"{label}: {_NOTHING if mean is None else f'{mean:.4g}'}")
    return "; ".join(parts)
