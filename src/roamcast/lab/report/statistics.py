"""Significance of differences: Student's t, paired where runs share a seed, and Holm's correction.

The same seed gives the same motion and the same publications whatever the strategy, so two runs of one
seed differ by the strategy alone: pairing removes the variation between seeds from the comparison. Where
fewer than two seeds are shared, Welch's test compares the two samples unpaired.

`compare_overall` and `compare_by_place` do so for every two strategies, metric by metric.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from roamcast.lab.report.layout import CellLayout
from roamcast.lab.sweep.results import Results
from roamcast.lab.sweep.summary import spread

PAIRED, WELCH, NONE = "paired t", "Welch's t", "none"
SIGNIFICANT = 0.05  # the customary level
_NOISE = 1e-12  # relative; below this a spread is rounding, not variation


@dataclass(frozen=True)
class Difference:
    """`second` minus `first`. `p` is None where no test is possible: too few runs, or no variation."""

    test: str
    count: str  # pairs, or the two samples' sizes
    mean: float | None
    low: float | None = None  # 95% confidence interval
    high: float | None = None
    p: float | None = None
    effect: float | None = None  # standard deviations: Cohen's d_z of pairs, Hedges' g of samples
    constant: bool = False  # every pair differs by the same amount, so there is nothing to test


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference:
    """Compare two samples, given by seed."""
    shared = sorted(first.keys() & second.keys())
    if len(shared) >= 2:
        return paired([first[seed] for seed in shared], [second[seed] for seed in shared])
    if len(first) >= 2 and len(second) >= 2:
        return welch(list(first.values()), list(second.values()))
    if not first or not second:
        return Difference(NONE, f"{len(first)}, {len(second)}", None)
    mean = math.fsum(second.values()) / len(second) - math.fsum(first.values()) / len(first)
    return Difference(NONE, f"{len(first)}, {len(second)}", mean)


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Student's t-test of the pairwise differences, two-sided."""
    found = spread([b - a for a, b in zip(first, second, strict=True)])
    assert found.mean is not None and found.std is not None, "paired() needs two pairs"
    count = str(found.count)
    scale = max(abs(value) for value in (*first, *second))
    if found.std <= _NOISE * scale:
        return Difference(PAIRED, count, found.mean, found.mean, found.mean, constant=True)
    t = found.mean / (found.std / math.sqrt(found.count))
    p = 2 * float(stats.t.sf(abs(t), found.count - 1))
    return Difference(PAIRED, count, found.mean, found.ci_low, found.ci_high, p, found.mean / found.std)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Welch's t-test, two-sided: two samples, variances not assumed equal."""
    a, b = spread(first), spread(second)
    assert a.mean is not None and b.mean is not None, "welch() needs values"
    assert a.std is not None and b.std is not None, "welch() needs two values on each side"
    count = f"{a.count}, {b.count}"
    mean = b.mean - a.mean
    if max(a.std, b.std) <= _NOISE * max(abs(value) for value in (*first, *second)):
        return Difference(WELCH, count, mean, mean, mean, constant=True)
    parts = a.std**2 / a.count, b.std**2 / b.count
    error = math.sqrt(sum(parts))
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (a.count - 1) + parts[1] ** 2 / (b.count - 1))
    p = 2 * float(stats.t.sf(abs(mean / error), degrees))
    half = float(stats.t.ppf(0.975, degrees)) * error
    freedom = a.count + b.count - 2
    pooled = math.sqrt(((a.count - 1) * a.std**2 + (b.count - 1) * b.std**2) / freedom)
    hedges = mean / pooled * (1 - 3 / (4 * freedom - 1))
    return Difference(WELCH, count, mean, mean - half, mean + half, p, hedges)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """The p values corrected for their number (Holm 1979), in the order given. None is not counted."""
    order = sorted((p, index) for index, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        corrected[index] = highest
    return corrected


@dataclass(frozen=True)
class Comparison:
    """`second` against `first` in some cells that differ in nothing else."""

    metric: str
    place: str  # which cells; empty for the mean over all
    first: str
    second: str
    difference: Difference
    corrected: float | None  # p after Holm's correction over all comparisons of the list

    @property
    def verdict(self) -> str:
        found = self.difference
        if found.mean is None:
            return "no values"
        if found.constant:
            return "no difference" if found.mean == 0 else "the same difference in every run"
        if self.corrected is None:
            return "too few runs to tell"
        if self.corrected >= SIGNIFICANT:
            return "not significant"
        return f"{self.second} {'higher' if found.mean > 0 else 'lower'}"


def compare_overall(results: Results, layout: CellLayout, metrics: Sequence[str]) -> list[Comparison]:
    """Per seed, the mean over all cells of a series: one test for each metric and pair."""
    return _compare(results, layout, metrics, [{}])


def compare_by_place(results: Results, layout: CellLayout, metrics: Sequence[str]) -> list[Comparison]:
    """The same in each combination of the other axes."""
    return _compare(results, layout, metrics, layout.combinations(layout.others()))


def _compare(
    results: Results, layout: CellLayout, metrics: Sequence[str], places: Sequence[dict[str, int]]
) -> list[Comparison]:
    found = []
    for metric, place in itertools.product(metrics, places):
        samples = [
            (layout.label(series), results.means(metric, layout.matching(series | place)))
            for series in layout.series()
        ]
        for (first, a), (second, b) in itertools.combinations(samples, 2):
            found.append((metric, layout.full_label(place), first, second, difference(a, b)))
    corrected = holm([row[4].p for row in found])
    return [Comparison(*row, p) for row, p in zip(found, corrected, strict=True)]
