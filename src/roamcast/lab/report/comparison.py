"""Every two strategies, metric by metric: how large the difference is, and whether it is significant."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from roamcast.lab.report.layout import CellLayout
from roamcast.lab.report.statistics import SIGNIFICANT, Difference, difference, holm
from roamcast.lab.sweep.results import Results


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
