"""The sweep that a page reports: its results, how they are laid out, and which metrics are shown first."""

from dataclasses import dataclass

from roamcast.lab.published import FigureRow
from roamcast.lab.report.layout import CellLayout
from roamcast.lab.sweep.results import Results

MAIN = (
    "delivery_ratio",
    "delivery_ratio_reachable",
    "latency_p50",
    "latency_p95",
    "hops_mean",
    "control_overhead",
    "data_messages",
)
"""The metrics that are shown first; chosen by us. The others are folded."""

CELLS_MAX = 1000  # that are shown with all metrics; with more, the main ones: a page of 10 MB at most


@dataclass(frozen=True)
class ReportedSweep:
    results: Results
    layout: CellLayout
    published: list[FigureRow]

    @property
    def measured(self) -> list[str]:
        return self.results.measured()

    @property
    def main(self) -> list[str]:
        """The main metrics that were measured; first those for which published figures exist."""
        asked = [name for row in self.published for name in row.metrics]
        return [name for name in dict.fromkeys([*asked, *MAIN]) if name in self.measured]

    @property
    def rest(self) -> list[str]:
        return [name for name in self.measured if name not in self.main]

    @property
    def compares(self) -> bool:
        return len(self.layout.series()) > 1

    @property
    def compared(self) -> str:
        return " and ".join(self.layout.series_axes)

    def varies(self, metric: str) -> bool:
        """Whether any two runs differ in it."""
        values = [value for by_seed in self.results.figures[metric].values() for value in by_seed.values()]
        return min(values) != max(values)
