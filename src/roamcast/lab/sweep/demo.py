"""`roamcast demo`: a small sweep of every strategy over one scenario, on Spark, with a report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from roamcast.lab.report import report
from roamcast.lab.report.layout import layout
from roamcast.lab.report.numbers import with_interval
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.results import Results, read_results
from roamcast.lab.sweep.summary import spread
from roamcast.lab.sweep.sweep import Progress, sweep
from roamcast.scenario import read_tables
from roamcast.strategy import STRATEGIES

SCENARIO = Path(__file__).with_name("demo.toml")
AREAS = [[400.0, 400.0], [600.0, 600.0], [800.0, 800.0]]  # from dense to partitioned
REPLICATIONS = 3
METRICS = ("delivery_ratio", "delivery_ratio_reachable", "latency_p50", "hops_mean", "data_messages")


@dataclass(frozen=True)
class Demonstration:
    """What the demo found, for the terminal: a short table and the path of the report."""

    heads: list[str]
    rows: list[list[str]]
    failed: int  # runs
    report: str  # its file


def demo(
    out: Storage | Path | str,
    master: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Demonstration:
    """Sweep into `out` and write its report there. What an earlier call finished is not run again."""
    ended = sweep(demo_experiment(), out, master=master, resume=True, progress=progress)
    written = report(out)
    heads, rows = short_table(read_results(out))
    return Demonstration(heads, rows, ended.failed, written)


def demo_experiment() -> Experiment:
    return experiment_from(
        "demo",
        read_tables(SCENARIO),
        {"strategy.name": STRATEGIES.own_names(), "world.area": AREAS},
        replications=REPLICATIONS,
        scenario_source=str(SCENARIO),
    )


def short_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """A row per cell: its axis values, then the metrics most asked for."""
    shown = layout(results.description.axes)
    rows = []
    for cell, indices in enumerate(shown.cells):
        figures = [spread(list(results.values(metric, cell).values())) for metric in METRICS]
        labels = [axis.labels[indices[axis.key]] for axis in shown.axes.values()]
        rows.append([*labels, *(with_interval(found) for found in figures)])
    return [*(axis.title for axis in shown.axes.values()), *METRICS], rows
